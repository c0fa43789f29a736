//! A worker handler: long requests run in threads, short ones are answered meanwhile.
//!
//!     cargo run --release -p trine-transport --example worker
//!
//! Counting primes takes milliseconds; in the event loop it would hold up every other request.

use std::error::Error;

use trine_rpc::{Node, Rpc};
use trine_transport::backend::{UdpBackend, UdpConfig};

/// How many primes there are below a number. Long: a worker's.
struct CountPrimes;

impl Rpc for CountPrimes {
    const KIND: u8 = 1;
    type Request = u64;
    type Response = u64;
}

/// Asks whether the server is there. It is short, so the event loop answers it.
struct Ping;

impl Rpc for Ping {
    const KIND: u8 = 2;
    type Request = ();
    type Response = ();
}

fn count_primes(below: u64) -> u64 {
    let is_prime = |number: &u64| {
        (2..)
            .take_while(|divisor| divisor * divisor <= *number)
            .all(|divisor| !number.is_multiple_of(divisor))
    };
    (2..below).filter(is_prime).count() as u64
}

fn bind() -> Result<UdpBackend, Box<dyn Error>> {
    Ok(UdpBackend::bind(
        "127.0.0.1:0".parse()?,
        &UdpConfig::default(),
    )?)
}

pub(crate) fn main() -> Result<(), Box<dyn Error>> {
    let backend = bind()?;
    let address = backend.local_addr();
    let server = Node::builder(backend)
        .handle_worker::<CountPrimes, _>(count_primes)
        .handle::<Ping, _>(|(), _| ())
        .workers(2)
        .start()?;
    let client = Node::builder(bind()?).start()?;

    pollster::block_on(async {
        let session = client.client().connect(address).await?;
        let long = [200_000, 300_000].map(|below| session.call::<CountPrimes>(&below));
        let mut pings = 0;
        for _ in 0..100 {
            session.call::<Ping>(&()).await?;
            pings += 1;
        }
        println!("{pings} short requests answered");
        let mut counts = Vec::new();
        for call in long {
            counts.push(call.await?);
        }
        println!("primes below 200,000 and 300,000: {counts:?}");
        assert_eq!(counts, [17_984, 25_997]);
        Ok::<_, Box<dyn Error>>(())
    })?;

    client.stop()?;
    server.stop()?;
    Ok(())
}
