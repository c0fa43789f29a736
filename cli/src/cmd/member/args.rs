//! The options of `trine member`.

use clap::{Args, Subcommand};

use trine_base::arguments::{AdminArguments, GroupArguments};

#[derive(Debug, Subcommand)]
pub(crate) enum MemberCommand {
    /// Show every member: node id, address, role, how far it is behind.
    List(MemberListArguments),
    /// Add a replica that is, or will be, started with `trine serve` and a new node id.
    Add(MemberAddArguments),
    /// Give a learner a vote.
    Promote(NodeArguments),
    /// Remove a member; refused if too few live members would be left.
    Remove(NodeArguments),
    /// Replace a member by a newly started replica with its node id. The old one may be alive, or at another address.
    Replace(MemberReplaceArguments),
}

#[derive(Debug, Args)]
pub(crate) struct MemberListArguments {
    #[command(flatten)]
    pub(crate) group: GroupArguments,
}

#[derive(Debug, Args)]
pub(crate) struct MemberAddArguments {
    /// Let it follow as a learner, without a vote, until it is promoted.
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
    /// Where the new replica is, host:port. The group accepts no replica from another address. Not needed for the
    /// address that the last replica with this node id had, or that the leader's --peers has for it.
    #[arg(long, value_name = "HOST:PORT")]
    pub(crate) address: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct NodeArguments {
    /// The node id: what the replica was, or will be, started with as --id.
    #[arg(value_name = "ID", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) node_id: u32,
    #[command(flatten)]
    pub(crate) admin: AdminArguments,
}
