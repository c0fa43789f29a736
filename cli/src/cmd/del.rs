//! `trine del KEY` deletes a key.

use trine_client::Mode;
use trine_kvstore::{Command, Response};

use super::get::no_such_key;
use trine_base::answers::{response_of, unexpected};

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
    #[command(flatten)]
    pub(crate) client: ClientArguments,
}

pub(crate) fn run<N: Network>(
    network: &N,
    arguments: &DelArguments,
    output: Output,
) -> Result<(), Failure> {
    let key = key_bytes(&arguments.key)?;
    let answer = call(
        network,
        &arguments.client,
        Mode::WriteAndClose,
        &Command::Delete { key },
        output,
    )?;
    match response_of(&answer)? {
        Response::Deleted { existed: true } => {
            output.done(key, [("deleted", 1.into())]);
            output.at_terminal("1 key deleted");
            Ok(())
        }
        Response::Deleted { existed: false } => Err(no_such_key(key)),
        other => Err(unexpected(&other)),
    }
}
