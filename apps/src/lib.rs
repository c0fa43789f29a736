//! Programs on the transport beside the replicated store.

// They panic where the stream cannot be written: results go through `output`, everything else through `announce`.
#![cfg_attr(not(test), deny(clippy::print_stdout, clippy::print_stderr))]

mod bench;
pub mod cache;
mod config;
pub mod event_loop;
pub mod index;
mod line;
mod rights;
pub mod sequencer;
mod threads;
