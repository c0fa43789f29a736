//! `trine cache put`, `get` and `del`: each sends one command to the shard of its key.

use trine_kvstore::cache::shard_of;
use trine_kvstore::config::VALUE_BYTES_MAX;
use trine_kvstore::{Command, Response};
use trine_transport::buf::MsgBuf;

use super::call::CacheServer;
use super::wire::{COMMAND, DONE, WRONG_SHARD};
use crate::cache::CacheClientArguments;
use crate::cache::CacheKeyArguments;
use crate::cache::CachePutArguments;
use trine_base::answers::{store_failure, unexpected};
use trine_base::failure::Failure;
use trine_base::interrupt;
use trine_base::network::Network;
use trine_base::output::Output;
use trine_base::values::{key_bytes, read_value};

/// The bytes of an answer beside its value.
const ANSWER_BYTES_LEAST: usize = 64;

pub(super) fn put<N: Network>(
    network: &N,
    arguments: &CachePutArguments,
    output: Output,
) -> Result<(), Failure> {
    let key = key_bytes(&arguments.key)?;
    let value = read_value(arguments.value.as_deref())?;
    let command = Command::Put { key, value: &value };
    let answer = apply(network, &arguments.client, key, &command)?;
    match response_of(&answer)? {
        Response::Written { .. } => {
            output.done(key, [("bytes", value.len().into())]);
            output.at_terminal("ok");
            Ok(())
        }
        other => Err(unexpected(&other)),
    }
}

pub(super) fn get<N: Network>(
    network: &N,
    arguments: &CacheKeyArguments,
    output: Output,
) -> Result<(), Failure> {
    let key = key_bytes(&arguments.key)?;
    let answer = apply(network, &arguments.client, key, &Command::Get { key })?;
    match response_of(&answer)? {
        Response::Value { value, .. } => {
            output.value(key, value, []);
            Ok(())
        }
        Response::NotFound => Err(not_in_cache(key)),
        other => Err(unexpected(&other)),
    }
}

pub(super) fn del<N: Network>(
    network: &N,
    arguments: &CacheKeyArguments,
    output: Output,
) -> Result<(), Failure> {
    let key = key_bytes(&arguments.key)?;
    let answer = apply(network, &arguments.client, key, &Command::Delete { key })?;
    match response_of(&answer)? {
        Response::Deleted { existed: true } => {
            output.done(key, [("deleted", 1.into())]);
            output.at_terminal("1 key deleted");
            Ok(())
        }
        Response::Deleted { existed: false } => Err(not_in_cache(key)),
        other => Err(unexpected(&other)),
    }
}

/// Finds the key's shard and does the command there.
fn apply<N: Network>(
    network: &N,
    arguments: &CacheClientArguments,
    key: &[u8],
    command: &Command<'_>,
) -> Result<MsgBuf, Failure> {
    let mut request = Vec::with_capacity(command.encoded_len());
    command.encode(&mut request);
    let writes = !command.is_read_only();
    if writes {
        // A Ctrl-C that comes too late leaves a write that may be applied, and that is said. A read ends by the signal.
        interrupt::start()?;
    }
    let mut server = CacheServer::find(network, arguments)?;
    let shard = shard_of(key, server.shards);
    let answer_bytes = match command {
        Command::Get { .. } => ANSWER_BYTES_LEAST + VALUE_BYTES_MAX as usize,
        _ => ANSWER_BYTES_LEAST,
    };
    server.ask(shard, COMMAND, &request, answer_bytes, writes)
}

/// The response inside an answer; a refusal is a failure.
fn response_of(answer: &MsgBuf) -> Result<Response<'_>, Failure> {
    let unreadable = |why: &str| {
        Failure::usage(
            format!("the cache did not execute the command: {why}"),
            "run the same release on both sides",
        )
    };
    match answer.split_first() {
        Some((&DONE, response)) => match Response::decode(response) {
            Ok(Response::Error(error)) => Err(store_failure(error)),
            Ok(response) => Ok(response),
            Err(error) => Err(Failure::usage(
                format!("the reply could not be decoded: {error}"),
                "run the same release on both sides",
            )),
        },
        Some((&WRONG_SHARD, _)) => Err(Failure::negative(
            "the cache was restarted with other threads meanwhile; nothing was done",
            "run the command again",
        )),
        _ => Err(unreadable("it did not understand the command")),
    }
}

/// The negative answer of `get` and `del`.
fn not_in_cache(key: &[u8]) -> Failure {
    let key = String::from_utf8_lossy(key);
    Failure::negative(format!("not in the cache: {key}"), "")
}
