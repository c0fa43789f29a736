//! A server that answers every request with itself, over kernel UDP, until it is killed.
//!
//!     cargo run --release -p trine-transport --example echo_server -- 127.0.0.1:7700
//!     cargo run --release -p trine-transport --example echo_client -- 127.0.0.1:7700
//!
//! It polls for 50 us after each packet and then sleeps: idle it uses next to no processor time.

use std::error::Error;
use std::net::SocketAddr;

use trine_transport::backend::{MonotonicClock, UdpBackend, UdpConfig};
use trine_transport::time::Clock;
use trine_transport::{App, Completion, Config, Cx, Event, EventLoop, Identity, Reply, Request};

struct Echo;

impl App<SocketAddr> for Echo {
    fn on_request(&mut self, cx: &mut Cx<'_, SocketAddr>, request: Request<'_>) -> Reply {
        // Without memory for a response the client is left to its deadline.
        let Some(mut response) = cx.alloc(request.data.len()) else {
            return Reply::Later;
        };
        response.copy_from_slice(request.data);
        Reply::Now(response)
    }

    fn on_completion(&mut self, _: &mut Cx<'_, SocketAddr>, _: u64, _: Completion) {}

    fn on_event(&mut self, _: &mut Cx<'_, SocketAddr>, event: Event<SocketAddr>) {
        match event {
            Event::Accepted { peer, .. } => println!("{} connected", peer.route),
            Event::Down { reason, .. } => println!("a session ended: {reason:?}"),
            _ => {}
        }
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let address = std::env::args()
        .nth(1)
        .ok_or("usage: echo_server HOST:PORT")?;
    serve(
        address.parse()?,
        |local| println!("listening on {local}"),
        || false,
    )
}

/// Serves at `address` until `is_over` says so, which is asked after every turn.
pub(crate) fn serve(
    address: SocketAddr,
    listening: impl FnOnce(SocketAddr),
    is_over: impl Fn() -> bool,
) -> Result<(), Box<dyn Error>> {
    let backend = UdpBackend::bind(address, &UdpConfig::default())?;
    if let Some(shortfall) = backend.rx_queue_shortfall() {
        eprintln!("warning: {shortfall}");
    }
    listening(backend.local_addr());
    // A restarted server must not pass for the old one.
    let incarnation = MonotonicClock.now().as_nanos();
    let identity = Identity {
        cluster: 0,
        incarnation,
    };
    let mut event_loop = EventLoop::new(
        backend,
        MonotonicClock,
        Echo,
        Config::default(),
        identity,
        incarnation,
    )?;
    event_loop.run_until(None, |_| is_over())?;
    Ok(())
}
