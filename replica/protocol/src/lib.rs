//! The protocol between replicas and clients: messages, the status of a replica
//! and of its node, and where the time of writes goes. The layouts are drawn in
//! `replica/PROTOCOL.md`.

pub mod endpoint;
pub mod message;
pub mod node_status;
pub mod program;
pub mod release;
pub mod route;
pub mod stages;
pub mod status;

pub use endpoint::endpoint_config;
pub use route::{IsAt, RouteOf};
