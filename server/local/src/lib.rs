//! Live groups: real `trine serve` processes on loopback that tests, `trine demo`, `trine up`
//! and `trine chaos` start, kill, restart and always clean up.
//!
//! The pieces: [`Group`] owns the processes of one group. [`Process`] is one of them with its collected output. [`start`]
//! starts a group and waits until it serves. [`faults`] changes what the network of a replica does. A child calls
//! [`die_with_parent`] so that it never survives its parent.

// They panic where the stream cannot be written: results go through `output`, everything else through `announce`.
#![cfg_attr(not(test), deny(clippy::print_stdout, clippy::print_stderr))]

mod arguments;
pub mod config;
pub mod faults;
mod group;
mod lifeline;
mod output;
mod process;
pub mod start;

pub use group::{Exit, Group, GroupConfig, LiveError};
pub use lifeline::{LifelineError, die_with_parent};
pub use output::{LineSink, Stream};
pub use process::{Process, own_command};
