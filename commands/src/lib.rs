//! The commands of Redis in front of trine's store. A request's parts become commands of the store, and its answers become
//! replies. Who sent the request, in which order, and what waits for what is the business of the crate above, `trine-resp`.
//!
//! - `table` has a row for every command, and a file for each family of them; `arguments` is the language in which a row says
//!   what stands after the name. `expiry` reads times.
//! - `plan` turns commands about keys into operations of the store, `shape` the store's answers into replies, and `answer`
//!   what a whole call brought. `reply` writes in RESP2 or RESP3.
//! - `keyspace` has the walks of SCAN, KEYS and RANDOMKEY, `acl` the rules of users, `hello` the words of HELLO, `describe`
//!   COMMAND and the help texts.
//! - `once` reads TRINE.DO: the session and the sequence of a write, and the write.
//! - `glob` compares names with patterns, `pattern` keys. `errors` has the texts of errors.
//! - `outside` lets a shell use the commands of the table without a connection.
//!
//! Invariant: nothing here keeps a state between requests.

pub mod acl;
pub mod answer;
mod arguments;
pub mod describe;
pub mod errors;
mod expiry;
pub mod glob;
pub mod hello;
pub mod keyspace;
pub mod limits;
pub mod once;
mod outside;
mod pattern;
pub mod plan;
mod reply;
mod shape;
pub mod table;

pub use outside::{Reading, Refused, Request, StoreCommand};
pub use pattern::Pattern;
pub use reply::Writer;
pub use shape::Meaning;
