//! Replication: raft-rs on the transport.
