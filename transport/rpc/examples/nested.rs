//! Nested RPC: a handler that calls two other servers and answers when both have.
//!
//!     cargo run -p trine-transport --example nested
//!
//! ```text
//! client --Total--> front --Price--> shop          the front's event loop never waits: its handler
//!                         --Price--> other shop    is a future that the loop polls when answers come
//! ```

use std::error::Error;
use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};

use trine_rpc::{CallError, Node, Rpc, Session};
use trine_transport::backend::{UdpBackend, UdpConfig};
use trine_transport::time::Duration;

/// A shop's price for an article.
struct Price;

impl Rpc for Price {
    const KIND: u8 = 1;
    type Request = String;
    type Response = Option<u32>;
}

/// The price of an article in both shops together, or why that is unknown.
struct Total;

impl Rpc for Total {
    const KIND: u8 = 2;
    type Request = String;
    type Response = Result<u32, String>;
}

fn bind() -> Result<UdpBackend, Box<dyn Error>> {
    Ok(UdpBackend::bind(
        "127.0.0.1:0".parse()?,
        &UdpConfig::default(),
    )?)
}

fn shop(price: u32) -> Result<(Node, SocketAddr), Box<dyn Error>> {
    let backend = bind()?;
    let address = backend.local_addr();
    let node = Node::builder(backend)
        .handle::<Price, _>(move |article, _| (article == "apple").then_some(price))
        .start()?;
    Ok((node, address))
}

/// Both calls are under way together: each begins when it is made.
async fn total(shops: [Session; 2], article: String) -> Result<u32, String> {
    let patience = Duration::from_secs(10);
    let calls = shops
        .each_ref()
        .map(|shop| shop.call_within::<Price>(&article, patience));
    let mut sum = 0;
    for call in calls {
        let price = call.await.map_err(|error: CallError| error.to_string())?;
        sum += price.ok_or_else(|| format!("no shop has {article}"))?;
    }
    Ok(sum)
}

pub(crate) fn main() -> Result<(), Box<dyn Error>> {
    let ((shop_a, address_a), (shop_b, address_b)) = (shop(30)?, shop(12)?);

    // The front is one node: it serves, and its handler calls from the same event loop.
    let backend = bind()?;
    let front_address = backend.local_addr();
    let sessions: Arc<OnceLock<[Session; 2]>> = Arc::default();
    let known = Arc::clone(&sessions);
    let front = Node::builder(backend)
        .handle_async::<Total, _, _>(move |article, _| {
            let shops = known.get().cloned();
            async move { total(shops.ok_or("the shops are not open yet")?, article).await }
        })
        .start()?;
    let client = Node::builder(bind()?).start()?;

    pollster::block_on(async {
        let dial = front.client();
        let opened = [
            dial.connect(address_a).await?,
            dial.connect(address_b).await?,
        ];
        assert!(sessions.set(opened).is_ok(), "it is set here alone");

        let session = client.client().connect(front_address).await?;
        let apple = session.call::<Total>(&"apple".to_owned()).await?;
        let pear = session.call::<Total>(&"pear".to_owned()).await?;
        println!("an apple from each shop: {apple:?}; a pear: {pear:?}");
        assert_eq!((apple, pear), (Ok(42), Err("no shop has pear".to_owned())));
        Ok::<_, Box<dyn Error>>(())
    })?;

    client.stop()?;
    front.stop()?;
    shop_a.stop()?;
    shop_b.stop()?;
    Ok(())
}
