//! Live groups: real `trine serve` processes on loopback that tests, `trine demo`, `trine up`
//! and `trine chaos` start, kill, restart and always clean up.
//!
//! The pieces: [`Group`] owns the processes of one group; [`Process`] is one of them with its
//! [`free_addresses`] chooses loopback ports; [`die_with_parent`] is what a child calls so that
//! it never survives whoever started it.

mod fault_flags;
mod group;
mod lifeline;
mod output;
mod ports;
mod process;

pub use fault_flags::{FaultFlags, FaultFlagsError};
pub use group::{Exit, Group, GroupConfig, LiveError};
pub use lifeline::{LifelineError, die_with_parent};
pub use output::{LineSink, Stream};
pub use ports::{addresses_from, free_addresses};
pub use process::Process;
