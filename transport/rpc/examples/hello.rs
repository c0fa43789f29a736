//! The shortest whole program: a typed request and its answer over kernel UDP.
//!
//!     cargo run -p trine-transport --example hello -- NAME
//!
//! Server and client run in one process here, each a node with a thread of its own; nothing but the
//! address connects them. The futures run on `pollster`, any other executor does as well.

use std::error::Error;

use trine_rpc::{Node, Rpc};
use trine_transport::backend::{UdpBackend, UdpConfig};

/// Greets the caller by the name in the request. Both sides share this definition.
struct Greet;

impl Rpc for Greet {
    const KIND: u8 = 1;
    type Request = String;
    type Response = String;
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
        .handle::<Greet, _>(|name, _| format!("hello, {name}"))
        .start()?;
    let client = Node::builder(bind()?).start()?;

    let name = std::env::args().nth(1).unwrap_or("world".to_owned());
    let greeting = pollster::block_on(async {
        let session = client.client().connect(address).await?;
        Ok::<_, Box<dyn Error>>(session.call::<Greet>(&name).await?)
    })?;
    println!("{greeting}");
    assert_eq!(greeting, format!("hello, {name}"));

    client.stop()?;
    server.stop()?;
    Ok(())
}
