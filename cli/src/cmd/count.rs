//! `trine count` counts the keys, all of them or those of a range.

use clap::Args;
use serde_json::json;
use trine_base::answers::{response_of, unexpected};
use trine_base::arguments::ClientArguments;
use trine_base::client::call;
use trine_base::failure::Failure;
use trine_base::network::Network;
use trine_base::output::Output;
use trine_kvstore::{Command, Response};

use super::range::{RangeArguments, ReplicaArguments};

/// Counts the keys that begin with PREFIX, or of a range; without either all keys.
///
/// For a range the group has to keep an ordered index (`trine config set ordered on`), and keys that have expired do not
/// count. Among all keys they count until they are removed, a moment later.
#[derive(Debug, Args)]
pub(crate) struct CountArguments {
    #[command(flatten)]
    pub(crate) range: RangeArguments,
    #[command(flatten)]
    pub(crate) replica: ReplicaArguments,
    #[command(flatten)]
    pub(crate) client: ClientArguments,
}

pub(crate) fn run<N: Network>(
    network: &N,
    arguments: &CountArguments,
    output: Output,
) -> Result<(), Failure> {
    let command = match arguments.range.range()? {
        None => Command::Count,
        Some(range) => Command::CountRange { range },
    };
    let mode = arguments.replica.mode();
    let answer = call(network, &arguments.client, mode, &command, output)?;
    match response_of(&answer)? {
        Response::Count { items } => {
            let position = answer.position().as_u64();
            output.document(&json!({ "count": items, "position": position }));
            output.line(items);
            Ok(())
        }
        other => Err(unexpected(&other)),
    }
}
