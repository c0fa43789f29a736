//! The arguments of all commands, and those of commands that talk to a group.

use std::time::Duration;

use clap::Args;

use crate::capture::CaptureArguments;
use crate::config::DEFAULT_PEERS;
use crate::network::NetworkArguments;
use crate::output::OutputForm;
use crate::units::parse_positive_duration;

/// Where the group is, for a command that asks each replica by itself.
#[derive(Clone, Debug, Args)]
pub struct GroupArguments {
    /// Addresses of the replicas: host:port,...
    #[arg(long, env = "TRINE_PEERS", default_value = DEFAULT_PEERS, value_name = "LIST")]
    pub peers: String,
    /// Give up after this long. For a write, the error says whether it may have been applied.
    #[arg(long, default_value = "5s", value_name = "TIME", value_parser = parse_positive_duration)]
    pub timeout: Duration,
}

/// Where the group is, for a command that opens a client.
#[derive(Clone, Debug, Args)]
pub struct ClientArguments {
    /// Where the group is.
    #[command(flatten)]
    pub group: GroupArguments,
    /// Whether packets are captured.
    #[command(flatten)]
    pub capture: CaptureArguments,
}

/// How an admin command finds the group.
#[derive(Clone, Debug, Args)]
pub struct AdminArguments {
    /// Addresses of replicas: host:port,...; one that answers is enough to find the others.
    #[arg(long, env = "TRINE_PEERS", default_value = DEFAULT_PEERS, value_name = "LIST")]
    pub peers: String,
    /// Stop waiting after this long; the error says that the change may still take effect.
    #[arg(long, default_value = "30s", value_name = "TIME", value_parser = parse_positive_duration)]
    pub timeout: Duration,
    /// Whether packets are captured.
    #[command(flatten)]
    pub capture: CaptureArguments,
}

/// What every command takes.
#[derive(Debug, Args)]
pub struct GlobalArguments {
    /// Print one JSON document instead of text; short for -o json.
    #[arg(long, global = true)]
    pub json: bool,
    /// Output format.
    #[arg(
        short,
        long,
        global = true,
        value_enum,
        value_name = "FORM",
        default_value = "table"
    )]
    pub output: OutputForm,
    /// The network that carries the packets.
    #[command(flatten)]
    pub network: NetworkArguments,
}

/// The number behind an option that clap has checked against the counts that the command admits.
pub fn replica_count(checked: &str) -> usize {
    checked.parse().expect("clap admits only numbers")
}
