//! The options of `trine top`.

use std::time::Duration;

use clap::Args;

use trine_base::arguments::GroupArguments;
use trine_base::units::parse_poll_interval;

#[derive(Debug, Args)]
pub(crate) struct TopArguments {
    /// The time between two polls of the group; a plain number is in seconds.
    #[arg(default_value = "1s", value_name = "TIME", value_parser = parse_poll_interval)]
    pub(crate) every: Duration,
    /// Keys that break the group: pause a replica, block a link, heal. The replicas have to run on this machine and to
    /// have been started with --fault-injection, as those of `trine up` are.
    #[arg(long)]
    pub(crate) fault_injection: bool,
    #[command(flatten)]
    pub(crate) group: GroupArguments,
}
