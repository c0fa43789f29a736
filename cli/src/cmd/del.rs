//! `trine del KEY`: deletes a key.

use trine_client::Mode;
use trine_kvstore::{Command, Response};

use super::get::no_such_key;
use super::{response_of, unexpected};

use crate::client::call;
use crate::failure::Failure;
use crate::network::Network;
use crate::options::ClientArguments;
use crate::output::Output;
use crate::values::key_bytes;
use clap::Args;
use std::ffi::OsString;

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
    )?;
    match response_of(&answer)? {
        Response::Deleted { existed: true } => {
            output.done(key, [("deleted", true.into())]);
            Ok(())
        }
        Response::Deleted { existed: false } => Err(no_such_key(key)),
        other => Err(unexpected(&other)),
    }
}
