//! The options of `trine member`.

use clap::{Args, Subcommand};

use trine_base::arguments::{AdminArguments, GroupArguments};

#[derive(Debug, Subcommand)]
pub(crate) enum MemberCommand {
    /// Show every member: node id, address, role, lag.
    List(MemberListArguments),
    /// Add a replica, which you start with `trine serve` and a new node id before or after this command.
    Add(MemberAddArguments),
    /// Promote a learner to a voter.
    Promote(NodeArguments),
    /// Remove a member; rejected if too few live members would be left.
    Remove(NodeArguments),
    /// Replace a member with a newly started replica that has the same node id. The old one may still run, or have
    /// another address.
    Replace(MemberReplaceArguments),
}

#[derive(Debug, Args)]
pub(crate) struct MemberListArguments {
    #[command(flatten)]
    pub(crate) group: GroupArguments,
}

#[derive(Debug, Args)]
pub(crate) struct MemberAddArguments {
    /// Keep the new member a learner, without a vote, until it is promoted.
    #[arg(long)]
    pub(crate) learner: bool,
    #[command(flatten)]
    pub(crate) newcomer: NewcomerArguments,
    #[command(flatten)]
    pub(crate) target: NodeArguments,
}

#[derive(Debug, Args)]
pub(crate) struct MemberReplaceArguments {
    #[command(flatten)]
    pub(crate) newcomer: NewcomerArguments,
    #[command(flatten)]
    pub(crate) target: NodeArguments,
}

#[derive(Debug, Args)]
pub(crate) struct NewcomerArguments {
    /// Address of the new replica, host:port. The group accepts no replica from another address. Not needed if it is
    /// the address of the last replica with this node id, or the one in the leader's --peers.
    #[arg(long, value_name = "HOST:PORT")]
    pub(crate) address: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct NodeArguments {
    /// Node id of the replica: the --id that it was, or will be, started with.
    #[arg(value_name = "ID", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) node_id: u32,
    #[command(flatten)]
    pub(crate) admin: AdminArguments,
}
