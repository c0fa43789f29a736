//! The options of `trine net`.

use clap::{Args, Subcommand};
use trine_transport::backend::Faults;

use trine_base::config::DEFAULT_PEERS;
use trine_local::faults::Way;

#[derive(Clone, Debug, PartialEq, Subcommand)]
pub(crate) enum NetCommand {
    /// Inject faults into the packets that a replica sends or receives.
    Set(NetSetArguments),
    /// Clear the faults of one link, of one replica, or of all.
    Clear(NetClearArguments),
    /// Show the active faults.
    Show(FaultArguments),
}

/// The replicas with fault injection. They must run on this machine, under this user.
#[derive(Clone, Debug, PartialEq, Args)]
pub(crate) struct FaultArguments {
    /// Addresses of the replicas: host:port,...
    #[arg(long, env = "TRINE_PEERS", default_value = DEFAULT_PEERS, value_name = "LIST")]
    pub(crate) peers: String,
}

#[derive(Clone, Debug, PartialEq, Args)]
pub(crate) struct NetSetArguments {
    /// The node id of the replica.
    #[arg(value_name = "ID", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) node_id: u32,
    /// Faults for its packets: loss=5%,dup=1%,reorder=2%,corrupt=0.1%,delay=1ms..5ms, or blocked.
    #[arg(value_name = "FAULTS")]
    pub(crate) faults: Faults,
    /// Only on the link to this node or address; by default on every link without its own rule, including those of
    /// clients.
    #[arg(long, value_name = "ID")]
    pub(crate) link: Option<String>,
    /// Direction of the packets, as seen from the replica.
    #[arg(long, default_value = "both", value_enum)]
    pub(crate) direction: Way,
    #[command(flatten)]
    pub(crate) peers: FaultArguments,
}

#[derive(Clone, Debug, PartialEq, Args)]
pub(crate) struct NetClearArguments {
    /// Node id of the replica; all replicas if absent.
    #[arg(value_name = "ID", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) node_id: Option<u32>,
    /// Only the rule of the link to this node or address.
    #[arg(long, value_name = "ID", requires = "node_id")]
    pub(crate) link: Option<String>,
    #[command(flatten)]
    pub(crate) peers: FaultArguments,
}
