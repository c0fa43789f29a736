//! How do commands find the group?

use std::time::Duration;

use clap::Args;

use crate::capture::CaptureArguments;
use crate::config::DEFAULT_PEERS;
use crate::units::parse_positive_duration;

/// Where the group is, for a command that asks each replica by itself.
#[derive(Clone, Debug, Args)]
pub(crate) struct GroupArguments {
    /// The replicas' addresses, host:port,...
    #[arg(long, env = "TRINE_PEERS", default_value = DEFAULT_PEERS, value_name = "LIST")]
    pub(crate) peers: String,
    /// Give up after this long. Of a write the error then says whether it may still have happened.
    #[arg(long, default_value = "5s", value_name = "TIME", value_parser = parse_positive_duration)]
    pub(crate) timeout: Duration,
}

/// Where the group is, for a command that opens a client.
#[derive(Clone, Debug, Args)]
pub(crate) struct ClientArguments {
    #[command(flatten)]
    pub(crate) group: GroupArguments,
    #[command(flatten)]
    pub(crate) capture: CaptureArguments,
}

/// How an operator's order finds the group.
#[derive(Clone, Debug, Args)]
pub(crate) struct OrderArguments {
    /// Replicas' addresses, host:port,...; one that answers is enough to find the others.
    #[arg(long, env = "TRINE_PEERS", default_value = DEFAULT_PEERS, value_name = "LIST")]
    pub(crate) peers: String,
    /// Give up waiting after this long; the change may still be made, and the error says so.
    #[arg(long, default_value = "30s", value_name = "TIME", value_parser = parse_positive_duration)]
    pub(crate) timeout: Duration,
    #[command(flatten)]
    pub(crate) capture: CaptureArguments,
}
