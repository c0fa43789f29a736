//! Replication: raft-rs on the transport.

pub mod client;
pub mod config;
pub mod message;
pub mod node;
pub mod output;
mod replica;
pub mod route;
mod slab;
pub mod status;

pub use config::ReplicaConfig;
pub use node::Node;
pub use output::{Class, Output};
pub use replica::Replica;
pub use status::Status;
