//! The proof of trine: a deterministic simulator of whole clusters, the vocabulary of faults, and
//! the checkers that judge what clients saw.
//!
//! A run, simulated or on real processes, leaves a [`history::History`]: for each request the
//! client, the content, and the times of call and answer. Everything in [`checker`] works on that
//! record alone and knows nothing of replicas, so a defect in the system cannot excuse itself.

#[cfg(debug_assertions)]
pub mod canaries;
pub mod checker;
pub mod fault;
pub mod history;
pub mod seeds;
pub mod shrink;
pub mod sim;
pub mod translate;
pub mod workload;
