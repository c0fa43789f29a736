//! Live groups: real `trine serve` processes on loopback that tests, `trine demo`, `trine up`
//! and `trine chaos` start, kill, restart and always clean up.
//!
//! The pieces: [`Group`] owns the processes of one group. [`Process`] is one of them with its collected output.
//! [`survey()`] asks every replica for its status. [`free_addresses`] chooses loopback ports. A child calls
//! [`die_with_parent`] so that it never survives its parent.

mod group;
mod lifeline;
mod output;
mod ports;
mod process;
mod survey;

pub use group::{Exit, Group, GroupConfig, LiveError};
pub use lifeline::{LifelineError, die_with_parent};
pub use output::{LineSink, Stream};
pub use ports::{addresses_from, free_addresses, local_address_towards};
pub use process::Process;
pub use survey::{
    Report, SurveyError, leader_of, majority_gone, survey, survey_over, voters_in_step,
};
