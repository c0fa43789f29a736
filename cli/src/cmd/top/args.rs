//! The options of `trine top`.

use clap::Args;

use trine_base::arguments::GroupArguments;
use trine_base::units::parse_seconds;

#[derive(Debug, Args)]
pub(crate) struct TopArguments {
    /// Seconds between two polls of the group.
    #[arg(default_value = "1", value_name = "SECONDS", value_parser = parse_seconds)]
    pub(crate) seconds: f64,
    /// Keys that break the group: pause a replica, block a link, heal. The replicas have to run on this machine and to
    /// have been started with --fault-injection, as those of `trine up` are.
    #[arg(long)]
    pub(crate) fault_injection: bool,
    #[command(flatten)]
    pub(crate) group: GroupArguments,
}
