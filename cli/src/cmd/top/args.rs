//! The options of `trine top`.

use std::time::Duration;

use clap::Args;

use trine_base::arguments::GroupArguments;
use trine_base::units::parse_poll_interval;

#[derive(Debug, Args)]
pub(crate) struct TopArguments {
    /// Interval between two polls of the group; a plain number is in seconds.
    #[arg(default_value = "1s", value_name = "TIME", value_parser = parse_poll_interval)]
    pub(crate) every: Duration,
    /// Enable keys that inject faults: pause a replica, block a link, heal. The replicas must run on this machine and
    /// have been started with --fault-injection, as those of `trine up` are.
    #[arg(long)]
    pub(crate) fault_injection: bool,
    #[command(flatten)]
    pub(crate) group: GroupArguments,
}
