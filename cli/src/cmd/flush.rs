//! `trine flush --yes` removes every key.

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

#[derive(Debug, Args)]
pub(crate) struct FlushArguments {
    /// Do it. Nothing brings the keys back.
    #[arg(long)]
    yes: bool,
    #[command(flatten)]
    client: ClientArguments,
}

pub(crate) fn run<N: Network>(
    network: &N,
    arguments: &FlushArguments,
    output: Output,
) -> Result<(), Failure> {
    if !arguments.yes {
        let peers = &arguments.client.group.peers;
        return Err(Failure::usage(
            format!("this would remove every key of the group at {peers}; nothing was done"),
            "`trine flush --yes` does it; `trine export > FILE` keeps them first",
        ));
    }
    let mode = Mode::WriteAndClose;
    let answer = call(network, &arguments.client, mode, &Command::Flush, output)?;
    match response_of(&answer)? {
        Response::Count { items } => {
            output.document(&json!({ "removed": items }));
            output.line(format_args!("removed {}", plural(items, "key")));
            Ok(())
        }
        other => Err(unexpected(&other)),
    }
}
