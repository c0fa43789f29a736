//! `trine upgrade` shows which state version a group uses, and switches to a newer one.

use clap::{Args, Subcommand};
use serde_json::json;
use trine_base::arguments::{AdminArguments, GroupArguments};
use trine_base::failure::Failure;
use trine_base::network::Network;
use trine_base::output::Output;
use trine_base::peers;
use trine_base::survey::{SURVEY_TIMEOUT, ask_everybody};
use trine_client::leader_of;

use super::member::{Wanted, give};
use super::status::{no_leader, nobody, upgrade_line};

#[derive(Debug, Subcommand)]
pub(crate) enum UpgradeCommand {
    /// Show which state version is in use, which one all members understand, and when the group switches to it.
    Status(UpgradeStatusArguments),
    /// Switch to the state version of the release that all members run, without waiting. Afterwards you cannot go back
    /// to an older release.
    Finish(UpgradeFinishArguments),
}

#[derive(Debug, Args)]
pub(crate) struct UpgradeStatusArguments {
    #[command(flatten)]
    pub(crate) group: GroupArguments,
}

#[derive(Debug, Args)]
pub(crate) struct UpgradeFinishArguments {
    #[command(flatten)]
    pub(crate) admin: AdminArguments,
}

pub(crate) fn run<N: Network>(
    network: &N,
    command: &UpgradeCommand,
    output: Output,
) -> Result<(), Failure> {
    match command {
        UpgradeCommand::Status(arguments) => status(network, &arguments.group, output),
        UpgradeCommand::Finish(arguments) => {
            give(network, &arguments.admin, Wanted::finish_upgrade(), output)
        }
    }
}

fn status<N: Network>(
    network: &N,
    arguments: &GroupArguments,
    output: Output,
) -> Result<(), Failure> {
    let addresses = peers::resolve(&arguments.peers)?;
    let limit = arguments.timeout.min(SURVEY_TIMEOUT).into();
    let reports = ask_everybody(network, &addresses, limit)?;
    if reports.iter().all(|report| report.answer.is_err()) {
        return Err(nobody(&reports));
    }
    let leader = leader_of(&reports).ok_or_else(|| no_leader(&reports))?;
    output.document(&json!({
        "state_version": leader.state_version,
        "upgrade": leader.upgrade,
    }));
    output.line(upgrade_line(leader));
    Ok(())
}
