//! Reserves numbers in the group, as a client that reads and writes one key.

use trine_base::announce::note;
use trine_base::answers::response_of;
use trine_base::arguments::{ClientArguments, GroupArguments};
use trine_base::capture::CaptureArguments;
use trine_base::client::{CommandClient, open};
use trine_base::failure::Failure;
use trine_base::network::Network;
use trine_client::Mode;
use trine_kvstore::{Command, Position, Response, SetCondition, SetOptions, StoreError};
use trine_sequencer::{Ask, GroupAnswer, Next, Record, Refused, Tenure, Terms, Version};
use trine_transport::backend::MonotonicClock;
use trine_transport::time::{Clock, Duration};

use super::reserve::{NumberSource, StepOutcome};
use crate::config::{SEQUENCER_KEY_PREFIX, SEQUENCER_NAME_BYTES_MAX};

/// The record of a sequence, in a group.
pub(super) struct GroupRecord {
    session: CommandClient,
    key: Vec<u8>,
    tenure: Tenure,
    patience: Duration,
}

/// Where a sequence is.
#[derive(Clone)]
pub(super) struct SequenceLocation {
    pub(super) peers: String,
    pub(super) name: String,
    /// How long a question to the group may take.
    pub(super) patience: std::time::Duration,
}

impl SequenceLocation {
    fn key(&self) -> Vec<u8> {
        [SEQUENCER_KEY_PREFIX, &self.name].concat().into_bytes()
    }

    /// The key, as the commands of the group name it.
    pub(super) fn key_text(&self) -> String {
        [SEQUENCER_KEY_PREFIX, &self.name].concat()
    }
}

/// Whether a sequence may have this name.
pub(super) fn check_name(name: &str) -> Result<(), Failure> {
    let plain = |c: char| c.is_ascii_alphanumeric() || "._-/".contains(c);
    if (1..=SEQUENCER_NAME_BYTES_MAX).contains(&name.len()) && name.chars().all(plain) {
        return Ok(());
    }
    Err(Failure::usage(
        format!("--name {name:?} is not a valid name of a sequence"),
        format!("use 1 to {SEQUENCER_NAME_BYTES_MAX} letters, digits and the signs . _ - /"),
    ))
}

impl GroupRecord {
    /// Opens a client; nothing is sent yet.
    ///
    /// # Errors
    /// The addresses of the group or the network are wrong.
    pub(super) fn open<N: Network>(
        network: &N,
        location: &SequenceLocation,
        terms: Terms,
    ) -> Result<Self, Failure> {
        let arguments = ClientArguments {
            group: GroupArguments {
                peers: location.peers.clone(),
                timeout: location.patience,
            },
            capture: CaptureArguments::default(),
        };
        Ok(Self {
            session: open(network, &arguments, |_| {})?,
            key: location.key(),
            tenure: Tenure::new(terms),
            patience: location.patience.into(),
        })
    }

    /// Reads the record once, so that a server that can never have numbers ends at its start.
    ///
    /// # Errors
    /// The group does not answer, or its record is one of other servers.
    pub(super) fn look(&mut self) -> Result<(), Failure> {
        let (asked, told) = self.ask(&Ask::Read, None)?;
        let taken = self
            .tenure
            .tell(asked, MonotonicClock.now(), &Ask::Read, &told);
        taken.map(drop).map_err(|refused| self.refusal(refused))
    }

    fn refusal(&self, refused: Refused) -> Failure {
        let key = String::from_utf8_lossy(&self.key);
        let hint = match refused {
            Refused::OtherMode { strict } => {
                format!("start it with --strict {strict}, or use another --name")
            }
            Refused::Exhausted => "take another --name".to_owned(),
        };
        Failure::usage(format!("no numbers from {key}: {refused}"), hint)
    }

    /// Asks the group, at the end of the server `within` a time. A failure is one of the question, after which a write may
    /// have happened.
    fn ask(
        &mut self,
        ask: &Ask,
        within: Option<Duration>,
    ) -> Result<(trine_transport::time::Instant, GroupAnswer), Failure> {
        let asked = MonotonicClock.now();
        let bytes;
        let key = &self.key[..];
        let (mode, command) = match ask {
            Ask::Read => (Mode::Read, Command::Get { key }),
            Ask::Create(record) => {
                bytes = record.encode();
                let options = SetOptions {
                    condition: SetCondition::Absent,
                    ..SetOptions::default()
                };
                (
                    Mode::Write,
                    Command::Set {
                        key,
                        options,
                        value: &bytes,
                    },
                )
            }
            Ask::Swap(Version(version), record) => {
                bytes = record.encode();
                let expected = Position::from_u64(*version);
                (
                    Mode::Write,
                    Command::CompareAndSwap {
                        key,
                        expected,
                        value: &bytes,
                    },
                )
            }
        };
        let answer = match within {
            None => self.session.execute(mode, &command)?,
            Some(limit) => self.session.execute_within(mode, &command, limit)?,
        };
        told(&answer, &self.key).map(|told| (asked, told))
    }
}

/// What the group's answer means.
fn told(answer: &trine_client::Answer, key: &[u8]) -> Result<GroupAnswer, Failure> {
    if let Ok(Response::Error(StoreError::KeyMissing)) = answer.response() {
        return Ok(GroupAnswer::Absent);
    }
    Ok(match response_of(answer)? {
        Response::NotFound => GroupAnswer::Absent,
        Response::Value { value, version } => {
            let record = Record::decode(value).map_err(|bad| {
                let key = String::from_utf8_lossy(key);
                Failure::usage(
                    format!("{key} cannot be used: {bad}"),
                    "take another --name",
                )
            })?;
            GroupAnswer::Found(Version(version.as_u64()), record)
        }
        Response::Written { version }
        | Response::Exchanged {
            written: Some(version),
            ..
        } => GroupAnswer::Written(Version(version.as_u64())),
        Response::Conflict { .. } | Response::Exchanged { written: None, .. } => {
            GroupAnswer::Conflict
        }
        other => return Err(trine_base::answers::unexpected(&other)),
    })
}

impl NumberSource for GroupRecord {
    fn step(&mut self, missing: u64) -> StepOutcome {
        let ask = match self.tenure.next(MonotonicClock.now(), missing) {
            Ok(Next::Wait(until)) => return StepOutcome::Wait(until),
            Ok(Next::Ask(ask)) => ask,
            Err(refused) => return StepOutcome::Failing(self.refusal(refused).in_one_line()),
        };
        let before = MonotonicClock.now();
        // Also after a signal: without an answer it would not be known which lease is to be given back.
        let (asked, told, failure) = match self.ask(&ask, Some(self.patience)) {
            Ok((asked, told)) => (asked, told, None),
            Err(failure) => (before, GroupAnswer::Nothing, Some(failure)),
        };
        let taken = self.tenure.tell(asked, MonotonicClock.now(), &ask, &told);
        match (failure, taken) {
            (Some(failure), _) => StepOutcome::Failing(failure.in_one_line()),
            (None, Err(refused)) => StepOutcome::Failing(self.refusal(refused).in_one_line()),
            (None, Ok(Some(grant))) => StepOutcome::Granted(grant),
            (None, Ok(None)) => StepOutcome::Asked,
        }
    }

    fn give_back(&mut self) {
        let Some(ask) = self.tenure.release() else {
            return;
        };
        // A signal ends the server, and this wait has its time all the same.
        if let Err(failure) = self.ask(&ask, Some(self.patience)) {
            note(format_args!(
                "the lease was not released, so the next server waits until it expires: {}",
                failure.in_one_line()
            ));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_plain_and_short() {
        for name in [
            "a",
            "orders/2024.eu_1-x",
            &"n".repeat(SEQUENCER_NAME_BYTES_MAX),
        ] {
            check_name(name).expect("a name");
        }
        for name in [
            "",
            "a b",
            "ä",
            "a\0",
            &"n".repeat(SEQUENCER_NAME_BYTES_MAX + 1),
        ] {
            assert_eq!(check_name(name).expect_err("no name").exit_status(), 2);
        }
    }
}
