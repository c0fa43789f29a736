//! Reliable RPC over unreliable packets, after eRPC (Kalia, Kaminsky, Andersen, NSDI 2019).
//!
//! An [`Endpoint`] is one thread's end of any number of sessions. It is called with the time and
//! with packets, hands back packets, deadlines and events, and does no I/O. An [`EventLoop`] joins
//! it with a [`backend`] (kernel UDP, in-process queues, DPDK, InfiniBand), a clock and an [`App`],
//! which handles requests and completions. Messages live in pool memory, [`buf::MsgBuf`]; requests
//! are executed at most once; what the network did to the packets shows only in the time taken. The
//! packets are described in `PROTOCOL.md`.
//!
//! A request and its answer, both ends in one thread:
//!
//! ```
//! use trine_transport::backend::{MonotonicClock, RingBackend, RingConfig, RingRoute};
//! use trine_transport::{
//!     App, Completion, Config, ConnectParams, Cx, Event, EventLoop, Identity, Reply, Request,
//! };
//!
//! /// Answers "hello, NAME"; as a client, asks once a session is established.
//! #[derive(Default)]
//! struct Greeter {
//!     greeting: Option<String>,
//! }
//!
//! impl App<RingRoute> for Greeter {
//!     fn on_request(&mut self, cx: &mut Cx<'_, RingRoute>, request: Request<'_>) -> Reply {
//!         let mut response = cx.alloc(0).expect("the pool has memory");
//!         response.extend_from_slice(b"hello, ").expect("it fits");
//!         response.extend_from_slice(request.data).expect("it fits");
//!         Reply::Now(response)
//!     }
//!
//!     fn on_event(&mut self, cx: &mut Cx<'_, RingRoute>, event: Event<RingRoute>) {
//!         if let Event::Connected { session, .. } = event {
//!             let mut request = cx.alloc(0).expect("the pool has memory");
//!             request.extend_from_slice(b"world").expect("it fits");
//!             let response = cx.alloc(100).expect("the pool has memory");
//!             cx.enqueue_request(session, 1, request, response, 0, None).expect("a slot is free");
//!         }
//!     }
//!
//!     fn on_completion(&mut self, _: &mut Cx<'_, RingRoute>, _tag: u64, completion: Completion) {
//!         completion.result.expect("nothing is lost here");
//!         self.greeting = Some(String::from_utf8_lossy(&completion.response).into_owned());
//!     }
//! }
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let (client, server) = RingBackend::pair(RingConfig::default());
//! let route = server.route();
//! let event_loop = |backend, incarnation| {
//!     let identity = Identity { cluster: 0, incarnation };
//!     EventLoop::new(backend, MonotonicClock, Greeter::default(), Config::default(), identity, incarnation)
//! };
//! let (mut client, mut server) = (event_loop(client, 1)?, event_loop(server, 2)?);
//! client.with(|_, cx| cx.connect(route, ConnectParams::default())).expect("there is room");
//! while client.app().greeting.is_none() {
//!     client.turn()?;
//!     server.turn()?;
//! }
//! assert_eq!(client.app().greeting.as_deref(), Some("hello, world"));
//! # Ok(())
//! # }
//! ```
//!
//! This is the raw layer: no copy and no thread that a program did not ask for. The crate `trine-rpc` is above it: calls
//! as futures for any executor, handlers by request type, and handlers in worker threads.
//!
//! The examples `echo_server` and `echo_client` measure small and large messages between two processes:
//! `cargo run --release -p trine-transport --example NAME`.

pub mod app;
pub mod backend;
#[doc(hidden)]
pub mod backend_api;
pub mod buf;
pub mod config;
mod congestion;
pub mod endpoint;
pub mod event_loop;
mod exchange;
pub mod inbox;
pub mod keys;
mod prefetch;
pub mod prng;
mod rpc;
pub mod session;
pub mod slab;
pub mod stats;
pub mod time;
mod timing_wheel;
pub mod wire;

pub use app::{App, Cx};
pub use config::{Config, ConfigError, CongestionConfig};
pub use congestion::{CongestionControl, UnknownControl};
pub use endpoint::{Endpoint, Transmit};
pub use event_loop::{EventLoop, LoopStats};
pub use exchange::{
    Completion, Refused, RefusedReason, Reply, Request, RequestId, ResponseHandle, RpcError, Stale,
};
pub use session::{
    BadTerm, ConnectError, ConnectParams, ConnectRefused, DownReason, Event, Holder, Identity,
    KeyObstacle, PeerInfo, SessionId,
};
pub use stats::{Drops, EndpointStats, RttHistogram, SessionStats};
pub use trine_origin::Origin;

#[cfg(test)]
mod tests;
