//! `trine get KEY` reads a value and prints its raw bytes.

use serde_json::json;
use trine_client::{Mode, Report};
use trine_kvstore::{Command, Response};

use trine_base::answers::{response_of, unexpected};

use clap::Args;
use std::borrow::Cow;
use std::ffi::OsString;
use std::str::FromStr;
use trine_base::arguments::ClientArguments;
use trine_base::client::call;
use trine_base::failure::Failure;
use trine_base::network::Network;
use trine_base::output::Output;
use trine_base::peers;
use trine_base::survey::{SURVEY_TIMEOUT, ask_everybody};
use trine_base::values::key_bytes;

use super::status::nobody;

#[derive(Debug, Args)]
pub(crate) struct GetArguments {
    /// The key.
    pub(crate) key: OsString,
    /// Read from the nearest replica, even without a quorum; the result may be stale.
    #[arg(long, conflicts_with = "from")]
    pub(crate) stale: bool,
    /// Replica to read from: leader, follower, any, or a node id. The result is never stale: a follower first asks the
    /// leader which index to wait for.
    #[arg(
        long = "replica",
        alias = "from",
        default_value = "leader",
        value_name = "REPLICA"
    )]
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

impl ReadFrom {
    /// The mode of such a read, or of one that may be old.
    pub(crate) fn mode(self, stale: bool) -> Mode {
        match self {
            _ if stale => Mode::ReadStale,
            Self::Leader => Mode::Read,
            Self::Follower => Mode::ReadFollower,
            // That replica alone is asked, see `towards`.
            Self::Any | Self::Node(_) => Mode::ReadAnywhere,
        }
    }

    /// The arguments of a client that asks these replicas. A client chooses by role, so of a replica with a node id it gets
    /// the address alone.
    ///
    /// # Errors
    /// No such replica answers.
    pub(super) fn towards<'a, N: Network>(
        self,
        network: &N,
        client: &'a ClientArguments,
    ) -> Result<Cow<'a, ClientArguments>, Failure> {
        let Self::Node(node_id) = self else {
            return Ok(Cow::Borrowed(client));
        };
        let addresses = peers::resolve(&client.group.peers)?;
        let limit = client.group.timeout.min(SURVEY_TIMEOUT).into();
        let reports = ask_everybody(network, &addresses, limit)?;
        if reports.iter().all(|report| report.answer.is_err()) {
            return Err(nobody(&reports));
        }
        let has_id = |report: &&Report| report.status().is_some_and(|s| s.node_id == node_id);
        let found = reports.iter().find(has_id).ok_or_else(|| {
            Failure::not_reachable(
                format!("no replica {node_id} answers; nothing was read"),
                "`trine status` shows the replicas; name all of them with --peers",
            )
        })?;
        let mut client = client.clone();
        client.group.peers = found.address.to_string();
        Ok(Cow::Owned(client))
    }
}

pub(crate) fn run<N: Network>(
    network: &N,
    arguments: &GetArguments,
    output: Output,
) -> Result<(), Failure> {
    let key = key_bytes(&arguments.key)?;
    let mode = arguments.from.mode(arguments.stale);
    let client = arguments.from.towards(network, &arguments.client)?;
    let answer = call(network, &client, mode, &Command::Get { key }, output)?;
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
