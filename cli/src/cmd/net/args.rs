//! The options of `trine net`.

use clap::{Args, Subcommand};
use trine_transport::backend::Faults;

use trine_base::config::DEFAULT_PEERS;
use trine_local::faults::Way;

#[derive(Clone, Debug, PartialEq, Subcommand)]
pub(crate) enum NetCommand {
    /// From now on, damage what a replica sends or receives.
    Set(NetSetArguments),
    /// End the faults: of one link, of one replica, or of all.
    Clear(NetClearArguments),
    /// Show the faults that are set.
    Show(FaultArguments),
}

/// How the replicas with fault injection are found. They have to run on this machine, under this user.
#[derive(Clone, Debug, PartialEq, Args)]
pub(crate) struct FaultArguments {
    /// The replicas' addresses, host:port,...
    #[arg(long, env = "TRINE_PEERS", default_value = DEFAULT_PEERS, value_name = "LIST")]
    pub(crate) peers: String,
}

#[derive(Clone, Debug, PartialEq, Args)]
pub(crate) struct NetSetArguments {
    /// The node id of the replica.
    #[arg(value_name = "ID", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) node_id: u32,
    /// What happens to its packets: loss=5%,dup=1%,reorder=2%,corrupt=0.1%,delay=1ms..5ms, or blocked.
    #[arg(value_name = "FAULTS")]
    pub(crate) faults: Faults,
    /// Only on the link to this node, or address; without it on every link that has no rule of its own, the clients'
    /// included.
    #[arg(long, value_name = "ID")]
    pub(crate) link: Option<String>,
    /// Which way the packets go, as the replica sees it.
    #[arg(long, default_value = "both", value_enum)]
    pub(crate) direction: Way,
    #[command(flatten)]
    pub(crate) peers: FaultArguments,
}

#[derive(Clone, Debug, PartialEq, Args)]
pub(crate) struct NetClearArguments {
    /// The node id of the replica; all of them if absent.
    #[arg(value_name = "ID", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) node_id: Option<u32>,
    /// Only the own rule of the link to this node, or address.
    #[arg(long, value_name = "ID", requires = "node_id")]
    pub(crate) link: Option<String>,
    #[command(flatten)]
    pub(crate) peers: FaultArguments,
}
