//! Connections of Redis clients to trine's store, as values without I/O: bytes of a connection go in, commands of the store and
//! bytes of replies come out. Sockets, clocks and the way to the group stay outside, and the commands themselves are in the
//! crate below, `trine-commands`.
//!
//! - `request` parses a client's bytes, within limits.
//! - `connection` keeps the order of one client's requests. Its `executor` does them, and holds the rest of the client's state,
//!   each part in a value of its own: its replies, who it is, its transaction, what it is told of, the call that it waits for.
//! - `connection/broker` knows who tracks which keys and who subscribes to which channels, and tells them of changes.

mod connection;
mod limits;
mod request;

pub use connection::{
    Broker, BrokerCounts, Call, Classes, Clients, Connection, Environment, Identity, KeyChange,
    NotKnown, OnBehalf, Submit, Told, is_same_secret,
};
pub use limits::{Limits, PUSHED_BYTES_MAX};
pub use request::{Parser, Progress, ProtocolError};
pub use trine_commands::answer::{Failure, SessionRefusal};
pub use trine_commands::limits::{SESSION_TTL_MS, SESSION_WINDOW};
pub use trine_commands::once::{Numbered, Token};
