//! Large messages: 8 MiB there and back, cut into packets, put together again, checked.
//!
//!     cargo run --release -p trine-transport --example large_transfer -- [MESSAGES]
//!
//! A session with 256 credits has 256 packets in flight; the default of 32 is for small requests.
//! Two messages are under way together, so that the wire never waits for the program.

use std::error::Error;
use std::time::Instant;

use trine_rpc::{Call, CallError, Node, Rpc, Session};
use trine_transport::ConnectParams;
use trine_transport::backend::{UdpBackend, UdpConfig};

/// The largest message, less the byte that the typed layer adds to a response.
const BYTES: usize = (8 << 20) - 1;

/// Gives back what it gets.
struct Transfer;

impl Rpc for Transfer {
    const KIND: u8 = 1;
    const RESPONSE_BYTES_MAX: usize = BYTES;
    type Request = Vec<u8>;
    type Response = Vec<u8>;
}

fn bind() -> Result<UdpBackend, Box<dyn Error>> {
    Ok(UdpBackend::bind(
        "127.0.0.1:0".parse()?,
        &UdpConfig::default(),
    )?)
}

/// Bytes that tell one message from another.
fn message(number: usize) -> Vec<u8> {
    (0..BYTES).map(|place| (place / 7 + number) as u8).collect()
}

async fn transfer(session: &Session, messages: usize) -> Result<(), CallError> {
    let start = |number| session.call::<Transfer>(&message(number));
    let mut next: Option<Call<Transfer>> = Some(start(0));
    for number in 0..messages {
        let this = next.take().expect("one is always under way");
        if number + 1 < messages {
            next = Some(start(number + 1));
        }
        assert!(
            this.await? == message(number),
            "message {number} came back changed"
        );
    }
    Ok(())
}

pub(crate) fn main() -> Result<(), Box<dyn Error>> {
    let messages = std::env::args()
        .nth(1)
        .and_then(|count| count.parse().ok())
        .unwrap_or(4);
    let backend = bind()?;
    let address = backend.local_addr();
    let server = Node::builder(backend)
        // A message of 8 MiB is copied twice in its handler, by a thread that has the time.
        .handle_worker::<Transfer, _>(|bytes| bytes)
        .config(trine_transport::Config {
            credits: 256,
            ..Default::default()
        })
        .start()?;
    let client = Node::builder(bind()?).start()?;

    let wishes = ConnectParams {
        credits: Some(256),
        ..ConnectParams::default()
    };
    let began = Instant::now();
    pollster::block_on(async {
        let session = client.client().connect_with(address, wishes).await?;
        transfer(&session, messages).await?;
        Ok::<_, Box<dyn Error>>(())
    })?;
    let seconds = began.elapsed().as_secs_f64();
    let megabytes = (2 * messages * BYTES) as f64 / 1e6;
    println!(
        "{megabytes:.0} MB in {seconds:.2} s, {:.0} MB/s",
        megabytes / seconds
    );

    client.stop()?;
    server.stop()?;
    Ok(())
}
