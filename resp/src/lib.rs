//! The Redis protocol in front of trine's store, as a value without I/O: bytes of a connection go in, commands of the
//! store and bytes of replies come out. Sockets, clocks and the way to the group stay outside.
//!
//! - `request` takes what a client sends apart, within limits; `reply` puts answers together in RESP2 or RESP3.
//! - `table` knows every command, `plan` turns the ones about keys into operations of the store, `shape` turns the
//!   store's answers into replies; `errors` are the texts of those that are errors.
//! - `connection` holds one client's state: its protocol, its transaction, what it waits for.

mod connection;
mod errors;
mod limits;
mod plan;
mod reply;
mod request;
mod shape;
mod table;

pub use connection::{Call, Connection, Environment, Failure, Submit, Told};
pub use limits::Limits;
pub use reply::Writer;
pub use request::{Parser, Progress, ProtocolError};
