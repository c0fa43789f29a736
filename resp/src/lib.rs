//! The Redis protocol in front of trine's store, as a value without I/O: bytes of a connection go in, commands of the
//! store and bytes of replies come out. Sockets, clocks and the way to the group stay outside.
//!
//! - `request` parses a client's bytes, within limits; `reply` writes answers in RESP2 or RESP3.
//! - `table` has a row for every command; `arguments` is the language in which a row says what stands behind the name.
//!   `glob` compares names with patterns, `pattern` keys.
//! - `plan` turns commands about keys into operations of the store, and `shape` turns the store's answers into replies.
//!   `errors` has the texts of errors.
//! - `connection` holds one client's state: its protocol, its transaction, and the call that it waits for.
//! - `connection/broker` knows who tracks which keys and who subscribes to which channels, and tells them of changes.
//! - `outside` lets a shell use the commands of the table without a connection.

mod acl;
mod answer;
mod arguments;
mod connection;
mod describe;
mod errors;
mod glob;
mod hello;
mod keyspace;
mod limits;
mod outside;
mod pattern;
mod plan;
mod reply;
mod request;
mod shape;
mod table;

pub use connection::{
    Broker, BrokerCounts, Call, Classes, Clients, Connection, Environment, Failure, Identity,
    KeyChange, NotKnown, OnBehalf, Submit, Told, is_same_secret,
};
pub use limits::{Limits, PUSHED_BYTES_MAX};
pub use outside::{Reading, Refused, Request, StoreCommand};
pub use pattern::Pattern;
pub use reply::Writer;
pub use request::{Parser, Progress, ProtocolError};
pub use shape::Meaning;
