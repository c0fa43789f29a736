//! `trine get KEY` reads a value and prints its raw bytes.

use serde_json::json;
use trine_client::Mode;
use trine_kvstore::{Command, Response};

use trine_base::answers::{response_of, unexpected};

use clap::Args;
use clap::ValueEnum;
use std::ffi::OsString;
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
    /// Which replica reads. Never old: a follower first asks the leader how far it has to be.
    #[arg(long, default_value = "leader", value_enum)]
    pub(crate) from: ReadFrom,
    #[command(flatten)]
    pub(crate) client: ClientArguments,
}

/// Which replica does a linearizable read.
#[derive(Copy, Clone, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ReadFrom {
    /// The one that leads.
    Leader,
    /// One that follows, to spare the leader; the leader if there is no other.
    Follower,
    /// Each in turn.
    Any,
}

impl ReadFrom {
    /// The mode of such a read, or of one that may be old.
    pub(crate) fn mode(self, stale: bool) -> Mode {
        match self {
            _ if stale => Mode::ReadStale,
            Self::Leader => Mode::Read,
            Self::Follower => Mode::ReadFollower,
            Self::Any => Mode::ReadAnywhere,
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
