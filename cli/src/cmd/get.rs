//! `trine get KEY`: reads a value and prints its raw bytes.

use serde_json::json;
use trine_client::Mode;
use trine_kvstore::{Command, Response};

use super::{response_of, unexpected};
use crate::args::{GetArguments, ReadFrom};
use crate::client::call;
use crate::failure::Failure;
use crate::network::Network;
use crate::output::Output;
use crate::values::key_bytes;

pub(crate) fn run<N: Network>(
    network: &N,
    arguments: &GetArguments,
    output: Output,
) -> Result<(), Failure> {
    let key = key_bytes(&arguments.key)?;
    let mode = match arguments.from {
        _ if arguments.stale => Mode::ReadStale,
        ReadFrom::Leader => Mode::Read,
        ReadFrom::Follower => Mode::ReadFollower,
        ReadFrom::Any => Mode::ReadAnywhere,
    };
    let answer = call(network, &arguments.client, mode, &Command::Get { key })?;
    match response_of(&answer)? {
        Response::Value { value, version } => {
            let version = ("version", json!(version.as_u64()));
            output.value(key, value, [version]);
            Ok(())
        }
        Response::NotFound => Err(no_such_key(key)),
        other => Err(unexpected(&other)),
    }
}

/// The clear negative answer of `get` and `del`.
pub(super) fn no_such_key(key: &[u8]) -> Failure {
    Failure::negative(format!("no such key: {}", String::from_utf8_lossy(key)), "")
}
