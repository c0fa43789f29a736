//! A running node: a replica with its threads, metrics, logs, settings, and sockets for Redis clients.
//!
//! [`serve`] runs one until it is asked to end. The other modules are its parts, each with the options that set it.

// These macros panic where the stream cannot be written. A server prints through `announce` and its log.
#![cfg_attr(not(test), deny(clippy::print_stdout, clippy::print_stderr))]

pub mod backup_file;
mod cluster_check;
pub mod companion;
pub mod data;
pub mod exposure;
pub mod from_file;
pub mod injection;
mod key_changes;
pub mod logs;
pub mod metrics;
mod names;
pub mod options;
mod places;
pub mod private;
pub mod resp;
pub mod serve;
mod startup;
pub mod tls;
