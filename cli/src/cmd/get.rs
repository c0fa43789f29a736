//! `trine get KEY` reads a value and prints its raw bytes.

use serde_json::json;
use trine_client::Mode;
use trine_kvstore::{Command, Response};

use trine_base::answers::{response_of, unexpected};

use clap::Args;
use std::ffi::OsString;
use std::str::FromStr;
use trine_base::arguments::ClientArguments;
use trine_base::client::call;
use trine_base::failure::Failure;
use trine_base::network::Network;
use trine_base::output::Output;
use trine_base::values::key_bytes;

#[derive(Debug, Args)]
pub(crate) struct GetArguments {
    /// The key.
    pub(crate) key: OsString,
    /// Take what the nearest replica has, also without a quorum; it may be old.
    #[arg(long, conflicts_with = "from")]
    pub(crate) stale: bool,
    /// Which replica is read: leader, follower or any. Never old: a follower first asks the leader how far it has to be.
    #[arg(long = "replica", alias = "from", default_value = "leader", value_name = "REPLICA", value_parser = parse_reader)]
    pub(crate) from: ReadFrom,
    #[command(flatten)]
    pub(crate) client: ClientArguments,
}

/// Which replica reads.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) enum ReadFrom {
    /// The one that leads.
    Leader,
    /// One that follows, to spare the leader; the leader if there is no other.
    Follower,
    /// Each in turn.
    Any,
    /// The one with this node id.
    Node(u32),
}

impl FromStr for ReadFrom {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match (text, text.parse()) {
            ("leader", _) => Ok(Self::Leader),
            ("follower", _) => Ok(Self::Follower),
            ("any", _) => Ok(Self::Any),
            (_, Ok(node_id @ 1..)) => Ok(Self::Node(node_id)),
            _ => Err("write leader, follower, any, or the node id of a replica".to_owned()),
        }
    }
}

/// A client finds the replica that reads a key by its role. Only `trine backup` reads from one by its node id.
pub(super) fn parse_reader(text: &str) -> Result<ReadFrom, String> {
    match text.parse() {
        Ok(ReadFrom::Node(_)) | Err(_) => Err("write leader, follower or any".to_owned()),
        read_from => read_from,
    }
}

impl ReadFrom {
    /// The mode of such a read, or of one that may be old.
    pub(crate) fn mode(self, stale: bool) -> Mode {
        match self {
            _ if stale => Mode::ReadStale,
            Self::Leader => Mode::Read,
            Self::Follower => Mode::ReadFollower,
            Self::Any => Mode::ReadAnywhere,
            Self::Node(_) => unreachable!("`parse_reader` reads no node id"),
        }
    }
}

pub(crate) fn run<N: Network>(
    network: &N,
    arguments: &GetArguments,
    output: Output,
) -> Result<(), Failure> {
    let key = key_bytes(&arguments.key)?;
    let mode = arguments.from.mode(arguments.stale);
    let answer = call(
        network,
        &arguments.client,
        mode,
        &Command::Get { key },
        output,
    )?;
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

/// The negative answer of `get` and `del`.
pub(super) fn no_such_key(key: &[u8]) -> Failure {
    Failure::negative(format!("no such key: {}", String::from_utf8_lossy(key)), "")
}
