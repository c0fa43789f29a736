//! `trine del KEY` deletes a key.

use trine_client::Mode;
use trine_kvstore::{AbortCause, Command, Position, Response};

use super::condition::{IfVersion, Unmet, present_version};
use super::get::no_such_key;
use trine_base::answers::{response_of, store_failure, unexpected};

use clap::Args;
use std::ffi::OsString;
use trine_base::arguments::ClientArguments;
use trine_base::client::call;
use trine_base::failure::Failure;
use trine_base::network::Network;
use trine_base::output::Output;
use trine_base::values::key_bytes;

#[derive(Debug, Args)]
pub(crate) struct DelArguments {
    /// The key.
    pub(crate) key: OsString,
    /// Delete only if the key has this version; otherwise exit with status 1.
    ///
    /// `put`, `get --json` and `watch` print versions.
    #[arg(long, value_name = "VERSION")]
    pub(crate) if_version: Option<u64>,
    #[command(flatten)]
    pub(crate) client: ClientArguments,
}

pub(crate) fn run<N: Network>(
    network: &N,
    arguments: &DelArguments,
    output: Output,
) -> Result<(), Failure> {
    let key = key_bytes(&arguments.key)?;
    let delete = Command::Delete { key };
    let expected = arguments.if_version.map(Position::from_u64);
    let conditional;
    let command = match expected {
        None => delete,
        Some(version) => {
            conditional = IfVersion::new(key, version, delete);
            conditional.command()
        }
    };
    let mode = Mode::WriteAndClose;
    let answer = call(network, &arguments.client, mode, &command, output)?;
    let existed = match response_of(&answer)? {
        Response::Deleted { existed } => existed,
        Response::List(answers) => match answers.iter().next() {
            Some(Response::Deleted { existed }) => existed,
            _ => return Err(unexpected(&Response::List(answers))),
        },
        Response::Aborted {
            cause: AbortCause::Refused { error, .. },
        } => return Err(store_failure(error)),
        Response::Aborted { .. } => {
            let unmet = Unmet {
                key,
                expected,
                present: present_version(network, &arguments.client, key, output)?,
            };
            return Err(unmet.report("deleted", output));
        }
        other => return Err(unexpected(&other)),
    };
    if !existed {
        return Err(no_such_key(key));
    }
    output.done(key, [("deleted", 1.into())]);
    output.at_terminal("1 key deleted");
    Ok(())
}
