//! Reliable RPC over unreliable packets.
