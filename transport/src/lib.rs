//! Reliable RPC over unreliable packets.

pub mod backend;
pub mod buf;
pub mod prng;
pub mod time;
