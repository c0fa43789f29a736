//! The transport: bytes from a network, from people and from the owners of endpoints.

pub mod frames;
pub mod operations;
pub mod packets;
mod pair;
pub mod rules;
pub mod sealed;
pub mod values;
