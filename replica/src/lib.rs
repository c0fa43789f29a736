//! Replication: raft-rs on the transport.

pub mod message;
