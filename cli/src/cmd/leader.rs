//! `trine leader transfer` transfers leadership.

use trine_client::{Report, leader_of};
use trine_protocol::status::{Role, Status};

use super::member::{Wanted, give};
use clap::Args;
use clap::Subcommand;
use trine_base::arguments::AdminArguments;
use trine_base::client::advice;
use trine_base::failure::Failure;
use trine_base::network::Network;
use trine_base::output::Output;
use trine_base::peers;
use trine_base::survey::{SURVEY_TIMEOUT, ask_everybody};

#[derive(Debug, Subcommand)]
pub(crate) enum LeaderCommand {
    /// Transfer leadership to another voter.
    Transfer(TransferArguments),
}

#[derive(Debug, Args)]
pub(crate) struct TransferArguments {
    /// Node id of the new leader; by default the follower with the longest log.
    #[arg(value_name = "ID", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) id: Option<u32>,
    /// Former name of ID.
    #[arg(long, hide = true, value_name = "ID", conflicts_with = "id", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) to: Option<u32>,
    #[command(flatten)]
    pub(crate) admin: AdminArguments,
}

pub(crate) fn run<N: Network>(
    network: &N,
    command: &LeaderCommand,
    output: Output,
) -> Result<(), Failure> {
    let LeaderCommand::Transfer(TransferArguments { id, to, admin }) = command;
    let node_id = match id.or(*to) {
        Some(node_id) => node_id,
        None => choose(network, admin)?,
    };
    give(network, admin, Wanted::transfer(node_id), output)
}

/// The node id of the follower with the longest log among those that answer.
fn choose<N: Network>(network: &N, arguments: &AdminArguments) -> Result<u32, Failure> {
    let addresses = peers::resolve(&arguments.peers)?;
    let limit = arguments.timeout.min(SURVEY_TIMEOUT).into();
    let reports = ask_everybody(network, &addresses, limit)?;
    let Some(leader) = leader_of(&reports) else {
        let obstacle = match reports
            .iter()
            .find_map(|report| report.answer.as_ref().err())
        {
            Some(obstacle) if reports.iter().all(|report| report.answer.is_err()) => *obstacle,
            _ => trine_client::Obstacle::NoLeader,
        };
        let message = format!("{obstacle}; nothing was changed");
        return Err(Failure::not_reachable(message, advice(obstacle)));
    };
    successor(leader, &reports).ok_or_else(|| {
        Failure::negative(
            "no other voter that could lead answers; nothing was changed",
            "`trine member list` shows the voters",
        )
    })
}

fn successor(leader: &Status, reports: &[Report]) -> Option<u32> {
    let follows = |incarnation: &str| {
        let mut known = reports.iter().filter_map(Report::status);
        known.any(|status| status.incarnation == incarnation && status.role == Role::Follower)
    };
    let voters = leader.members.iter().filter(|member| member.voter);
    let able = voters.filter(|member| follows(&member.incarnation));
    able.max_by_key(|member| member.matched)
        .map(|member| member.node_id)
}
