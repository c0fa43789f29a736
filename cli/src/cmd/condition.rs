//! A write whose condition does not hold: what there is instead, for people and for programs.

use serde_json::json;
use trine_client::Mode;
use trine_kvstore::{Command, Condition, ExecuteMode, List, Position, Response};

use trine_base::answers::{response_of, unexpected};
use trine_base::arguments::ClientArguments;
use trine_base::client::call;
use trine_base::failure::Failure;
use trine_base::network::Network;
use trine_base::output::Output;

/// An operation that is done only while its key has a version.
pub(super) struct IfVersion<'a> {
    conditions: [Condition<'a>; 1],
    operations: [Command<'a>; 1],
}

impl<'a> IfVersion<'a> {
    pub(super) fn new(key: &'a [u8], version: Position, operation: Command<'a>) -> Self {
        Self {
            conditions: [Condition::VersionIs { key, version }],
            operations: [operation],
        }
    }

    pub(super) fn command(&self) -> Command<'_> {
        Command::Execute {
            mode: ExecuteMode::AllOrNothing,
            conditions: List::from(&self.conditions[..]),
            operations: List::from(&self.operations[..]),
        }
    }
}

/// The condition of `put` or `del` does not hold. Nothing was changed.
pub(super) struct Unmet<'a> {
    pub(super) key: &'a [u8],
    /// The version that the key should have had; none if it should have been absent.
    pub(super) expected: Option<Position>,
    /// The version that it has; none if it is absent.
    pub(super) present: Option<Position>,
}

impl Unmet<'_> {
    /// Prints the document, in which `done` is false, and returns the failure: exit status 1.
    pub(super) fn report(&self, done: &str, output: Output) -> Failure {
        let present = self.present.map(Position::as_u64);
        output.done(
            self.key,
            [(done, false.into()), ("present_version", json!(present))],
        );
        let key = String::from_utf8_lossy(self.key);
        let expected = self.expected.map(Position::as_u64);
        Failure::negative(
            match (present, expected) {
                (None, Some(_)) => format!("no such key: {key}; nothing was changed"),
                (Some(present), Some(expected)) if present != expected => {
                    format!("{key} has version {present}, not {expected}; nothing was changed")
                }
                // The key has changed between the write and the question for its version.
                (_, Some(expected)) => {
                    format!("{key} did not have version {expected}; nothing was changed")
                }
                (Some(present), None) => {
                    format!("{key} exists, with version {present}; nothing was changed")
                }
                (None, None) => format!("{key} existed; nothing was changed"),
            },
            "",
        )
    }
}

/// The version of a key; none if it is absent.
pub(super) fn present_version<N: Network>(
    network: &N,
    arguments: &ClientArguments,
    key: &[u8],
    output: Output,
) -> Result<Option<Position>, Failure> {
    let command = Command::Get { key };
    let answer = call(network, arguments, Mode::Read, &command, output)?;
    match response_of(&answer)? {
        Response::Value { version, .. } => Ok(Some(version)),
        Response::NotFound => Ok(None),
        other => Err(unexpected(&other)),
    }
}
