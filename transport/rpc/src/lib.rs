//! Typed calls as futures, and handlers by request type, over the raw layer of [`trine_transport::app`].
//!
//! A [`Node`] runs an event loop in a thread of its own. A [`Client`] opens [`Session`]s from it,
//! whose calls are plain futures: any executor runs them, and none comes along. On the other side a
//! request type's handler is a function of its request: in the event loop ([`Builder::handle`]),
//! answering later ([`Builder::handle_later`]), an async function ([`Builder::handle_async`]), or in
//! a worker thread ([`Builder::handle_worker`]). Both sides are nodes: one may call and serve.
//!
//! ```
//! use trine_transport::backend::{UdpBackend, UdpConfig};
//! use trine_rpc::{Node, Rpc};
//!
//! /// Greets whoever tells a name.
//! struct Greet;
//!
//! impl Rpc for Greet {
//!     const KIND: u8 = 1;
//!     type Request = String;
//!     type Response = String;
//! }
//!
//! let bind = || UdpBackend::bind("127.0.0.1:0".parse().unwrap(), &UdpConfig::default());
//! let backend = bind()?;
//! let address = backend.local_addr();
//! let _server = Node::builder(backend)
//!     .handle::<Greet, _>(|name, _| format!("hello, {name}"))
//!     .start()?;
//!
//! let client = Node::builder(bind()?).start()?;
//! pollster::block_on(async {
//!     let session = client.client().connect(address).await?;
//!     let greeting = session.call::<Greet>(&"world".to_owned()).await?;
//!     assert_eq!(greeting, "hello, world");
//!     Ok::<(), Box<dyn std::error::Error>>(())
//! })?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Its cost over the raw layer: a call passes a mutex-protected queue into the loop's thread and a cell back, and wakes
//! the waiting task. Nothing is allocated for it (the cells are a fixed table, [`Builder::calls`]; the messages lie in
//! the backend's pool). A program that wants the last microsecond runs in the loop's thread itself, as an
//! [`trine_transport::App`].
//!
//! Dropping a [`Call`] cancels it, dropping the last clone of a [`Session`] closes it, dropping the
//! [`Node`] ends all. [`WithWorkers`] gives an [`App`](trine_transport::App) of the raw layer worker threads.
//!
//! | example | shows |
//! |---|---|
//! | `hello` | the shortest whole program: a typed request and its answer |
//! | `nested` | a handler that calls two other servers and answers when both have |
//! | `worker` | long requests in threads, short ones answered meanwhile |
//! | `large_transfer` | messages of 8 MiB both ways, two under way together |
//!
//! `cargo run --release -p trine-rpc --example NAME`.

mod application;
mod calls;
mod client;
#[doc(hidden)]
pub mod doc;
mod error;
mod loop_handle;
mod message;
mod node;
mod patience;
mod serve;
mod status;
mod tasks;
pub mod worker;

pub use client::{Call, Client, Connect, Session};
pub use error::{CallError, CallRefusal, NodeError, NotSent, SessionError, StartError};
pub use message::{DecodeError, Message};
pub use node::{Builder, Node};
pub use serve::{Caller, Responder};
pub use worker::{WithWorkers, WorkerStats};

/// Calls and connects under way together, unless `Builder::calls` says otherwise.
const CALLS_DEFAULT: usize = 4_096;
/// Requests that async handlers serve together, unless `Builder::tasks` says otherwise.
const TASKS_DEFAULT: usize = 4_096;

/// A request type: its number, its request and its response. Both sides share it.
///
/// ```
/// use trine_rpc::Rpc;
///
/// /// The value of a key, if it is there.
/// struct Get;
///
/// impl Rpc for Get {
///     const KIND: u8 = 7;
///     const RESPONSE_BYTES_MAX: usize = 64 << 10;
///     type Request = Vec<u8>;
///     type Response = Option<Vec<u8>>;
/// }
/// ```
pub trait Rpc: 'static {
    /// Tells request types apart; each of a server's handlers has another.
    const KIND: u8;
    /// The largest response in bytes that a call makes room for, at most 8 MiB less one. The default
    /// fits one packet.
    const RESPONSE_BYTES_MAX: usize = 1_400;
    /// What is asked.
    type Request: Message;
    /// What is answered. A handler that can fail answers a `Result`.
    type Response: Message;
}

#[cfg(test)]
mod tests;
