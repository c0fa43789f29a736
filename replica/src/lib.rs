//! Replication: raft-rs on the transport.

mod addresses;
pub mod audit;
pub mod backup;
mod bootstrap;
mod client_sessions;
pub mod config;
pub mod disk;
mod group;
mod halt;
mod join;
mod log;
mod member_discovery;
mod membership;
pub mod node;
mod outbox;
pub mod output;
mod places;
mod raft_group;
mod raft_log;
mod reads;
pub mod replay;
mod replica;
pub mod rights;
mod searches;
mod snapshot_transfer;
mod state_machine;
pub mod timing;
mod watch;
mod writes;

pub use config::ReplicaConfig;
pub use halt::Halt;
pub use node::Node;
pub use output::{Class, Output};
pub use raft_log::log_raft_to;
pub use replica::Replica;
pub use searches::PlaceNews;
