//! Shared parts of every trine program: output, failures, units, Ctrl-C, and the choice of a network.
//!
//! Results go to standard output through [`output`]. All other text goes through [`announce`], which never fails.

// These macros panic where the stream cannot be written.
#![cfg_attr(not(test), deny(clippy::print_stdout, clippy::print_stderr))]

pub mod announce;
pub mod answers;
pub mod arguments;
pub mod aside;
pub mod bars;
pub mod capture;
pub mod client;
pub mod client_endpoint;
pub mod config;
pub mod document;
pub mod endpoint;
pub mod failure;
pub mod html;
pub mod interrupt;
pub mod latency;
pub mod lines;
pub mod load;
pub mod local_key;
pub mod log_format;
pub mod lookup;
pub mod network;
pub mod new_file;
mod one_client;
pub mod output;
pub mod peers;
pub mod placement;
pub mod ports;
pub mod progress;
pub mod renewal;
pub mod restoring;
pub mod result_file;
pub mod survey;
pub mod units;
pub mod values;
pub mod waiting;
pub mod whole_file;
pub mod words;
