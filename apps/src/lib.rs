//! Programs on the transport beside the replicated store.

pub mod cache;
mod config;
