//! `trine flush` deletes every key of the group.

use clap::Args;
use serde_json::json;
use trine_base::answers::{response_of, unexpected};
use trine_base::arguments::ClientArguments;
use trine_base::client::call;
use trine_base::failure::Failure;
use trine_base::network::Network;
use trine_base::output::Output;
use trine_base::units::plural;
use trine_client::Mode;
use trine_kvstore::{Command, Response};

use super::confirm::ConfirmArguments;

#[derive(Debug, Args)]
pub(crate) struct FlushArguments {
    #[command(flatten)]
    confirm: ConfirmArguments,
    #[command(flatten)]
    client: ClientArguments,
}

pub(crate) fn run<N: Network>(
    network: &N,
    arguments: &FlushArguments,
    output: Output,
) -> Result<(), Failure> {
    let peers = &arguments.client.group.peers;
    let what = format!("every key of the group at {peers}");
    arguments.confirm.require_somebody(&what)?;
    let execute = |mode, command: &Command<'_>| {
        let answer = call(network, &arguments.client, mode, command, output)?;
        match response_of(&answer)? {
            Response::Count { items } => Ok(items),
            other => Err(unexpected(&other)),
        }
    };
    if !arguments.confirm.yes {
        arguments
            .confirm
            .ask(&what, execute(Mode::Read, &Command::Count)?)?;
    }
    let deleted = execute(Mode::WriteAndClose, &Command::Flush)?;
    output.document(&json!({ "deleted": deleted }));
    output.line(format_args!("{} deleted", plural(deleted, "key")));
    Ok(())
}
