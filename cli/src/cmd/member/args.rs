//! The options of `trine member`.

use clap::{Args, Subcommand};

use trine_base::arguments::{AdminArguments, GroupArguments};

#[derive(Debug, Subcommand)]
pub(crate) enum MemberCommand {
    /// Show every member: place, address, role, how far it is behind.
    List(MemberListArguments),
    /// Take in a replica that is, or will be, started with `trine serve` at a new place.
    Add(MemberAddArguments),
    /// Give the learner at a place a vote.
    Promote(NodeArguments),
    /// Remove the member at a place; refused if too few that are alive would be left.
    Remove(NodeArguments),
    /// Let a newly started replica take a place although its present holder may be alive, or is gone and was elsewhere.
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
    /// Where the new replica is, host:port. The group takes in nobody from elsewhere. Not needed for the address that the
    /// place's last holder had, or that the leader's --peers has for the place.
    #[arg(long, value_name = "HOST:PORT")]
    pub(crate) address: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct NodeArguments {
    /// The place: what the replica was, or will be, started with as --id.
    #[arg(value_name = "ID", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) node_id: u32,
    #[command(flatten)]
    pub(crate) admin: AdminArguments,
}
