//! The store's answers as replies.

use trine_kvstore::{AbortCause, Position, Response, StoreError};

use crate::errors::{NO_ANSWER, error_text};
use crate::reply::Writer;

const NS_PER_MS: u64 = 1_000_000;

/// How the answers to a command's operations make its reply.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Shape {
    /// No operation: the reply is there already.
    Known(Vec<u8>),
    /// OK.
    Ok,
    /// OK, or nothing if the condition did not hold.
    OkOrNull,
    /// The value, or nothing.
    Value,
    /// The value of the first answer; the others have no reply.
    ValueFirst,
    /// The length of the value; 0 without one.
    ValueLength,
    /// The value before the command.
    Previous,
    /// A number.
    Number,
    /// 1 if something was changed, otherwise 0.
    Changed,
    /// How many of the keys were there.
    HowMany,
    /// A list of values.
    Values,
    /// The time to live: -2 without a key, -1 without an expiry.
    Seconds,
    /// The same in milliseconds.
    Milliseconds,
    /// The kind of value.
    Type,
    /// This error if the key is there, otherwise nothing.
    ErrorIfPresent(String),
    /// The value and its version, or nothing.
    Versioned,
    /// 1 and the new version, or 0 and the one that is there, which is 0 without a key.
    Swapped,
    /// The same of two operations on this key, of which the first one compares. If it finds another version, the answer
    /// does not say which.
    Compared(Vec<u8>),
}

/// What a reply says outside of the Redis protocol.
#[derive(Debug)]
pub enum Meaning<'a> {
    /// The store's answer says it.
    Answer(&'a Response<'a>),
    /// Each of these answers does.
    Each(&'a [Response<'a>]),
    /// A number that was made from the answers.
    Number(i64),
    /// A word that was made from the answers.
    Text(&'static str),
    /// The command failed for this reason.
    Failed(&'a str),
}

impl Shape {
    /// What the answers say. There is one for each operation, in order.
    pub(crate) fn meaning<'a>(&'a self, answers: &'a [Response<'a>]) -> Meaning<'a> {
        let refused = |answer: &&Response<'_>| error_of(answer).is_some();
        if let Some(refusal) = answers.iter().find(refused) {
            return Meaning::Answer(refusal);
        }
        match (self, answers) {
            (Self::Values, _) => Meaning::Each(answers),
            (Self::HowMany, _) => Meaning::Number(how_many(answers)),
            (Self::ValueLength, [answer, ..]) => Meaning::Number(value_length(answer)),
            (Self::Milliseconds, [answer, ..]) => Meaning::Number(time_to_live(answer, NS_PER_MS)),
            (Self::Type, [answer, ..]) => Meaning::Text(type_of(answer)),
            (Self::ErrorIfPresent(text), [answer, ..]) if is_there(answer) => {
                Meaning::Failed(text.strip_prefix("ERR ").unwrap_or(text))
            }
            (_, [answer, ..]) => Meaning::Answer(answer),
            (_, []) => Meaning::Failed("no answer"),
        }
    }

    /// How many of the answers to so many operations are expected to carry a value.
    pub(crate) fn values(&self, operations: usize) -> usize {
        match self {
            Self::Values => operations,
            Self::Value
            | Self::ValueFirst
            | Self::ValueLength
            | Self::Previous
            | Self::Versioned => 1,
            Self::Known(_)
            | Self::Ok
            | Self::OkOrNull
            | Self::Number
            | Self::Changed
            | Self::HowMany
            | Self::Seconds
            | Self::Milliseconds
            | Self::Type
            | Self::ErrorIfPresent(_)
            | Self::Swapped
            | Self::Compared(_) => 0,
        }
    }

    /// Writes the reply. `answers` has one for each operation, in order.
    pub(crate) fn write(&self, answers: &[Response<'_>], writer: &mut Writer<'_>) {
        if let (Self::Swapped | Self::Compared(_), [answer, ..]) = (self, answers) {
            return swapped(answer, writer);
        }
        if let Some(error) = answers.iter().find_map(error_of) {
            return writer.error(&error);
        }
        match (self, answers) {
            (Self::HowMany, answers) => writer.integer(how_many(answers)),
            (Self::Values, answers) => {
                writer.array(answers.len());
                answers.iter().for_each(|answer| value(answer, writer));
            }
            (shape, [first, ..]) => shape.write_one(first, writer),
            (_, []) => writer.error(NO_ANSWER),
        }
    }

    fn write_one(&self, answer: &Response<'_>, writer: &mut Writer<'_>) {
        match self {
            Self::Ok => writer.simple("OK"),
            Self::OkOrNull => match answer {
                Response::Conflict { .. } => writer.null(),
                _ => writer.simple("OK"),
            },
            Self::Value | Self::ValueFirst => value(answer, writer),
            Self::ValueLength => writer.integer(value_length(answer)),
            Self::Previous => match answer {
                Response::Exchanged {
                    previous: Some(previous),
                    ..
                } => writer.bulk(previous.value),
                _ => writer.null(),
            },
            Self::Number => writer.integer(number(answer)),
            Self::Changed => writer.integer(i64::from(matches!(
                answer,
                Response::Written { .. } | Response::Deleted { existed: true }
            ))),
            Self::Seconds => writer.integer(time_to_live(answer, 1_000 * NS_PER_MS)),
            Self::Milliseconds => writer.integer(time_to_live(answer, NS_PER_MS)),
            Self::Type => writer.simple(type_of(answer)),
            Self::ErrorIfPresent(text) => match is_there(answer) {
                true => writer.error(text),
                false => writer.null(),
            },
            Self::Versioned => match answer {
                Response::Value { value, version } => {
                    writer.array(2);
                    writer.bulk(value);
                    writer.integer(number_of(*version));
                }
                _ => writer.null(),
            },
            Self::Known(_) | Self::HowMany | Self::Values | Self::Swapped | Self::Compared(_) => {
                unreachable!("they are no reply to one answer")
            }
        }
    }
}

fn error_of(answer: &Response<'_>) -> Option<String> {
    match answer {
        Response::Error(error) => Some(error_text(*error)),
        Response::OtherError(error) => Some(format!("ERR {error}")),
        _ => None,
    }
}

fn value(answer: &Response<'_>, writer: &mut Writer<'_>) {
    match answer {
        Response::Value { value, .. } => writer.bulk(value),
        _ => writer.null(),
    }
}

/// TRINE.CAS.
fn swapped(answer: &Response<'_>, writer: &mut Writer<'_>) {
    let is_missing = |error: &StoreError| *error == StoreError::KeyMissing;
    let (done, version) = match answer {
        Response::Written { version } => (1, Some(number_of(*version))),
        Response::Conflict { current } => (0, Some(current.map_or(0, number_of))),
        Response::Error(error) if is_missing(error) => (0, Some(0)),
        Response::List(both) => match both.iter().next() {
            Some(Response::Written { version }) => (1, Some(number_of(version))),
            _ => return writer.error(NO_ANSWER),
        },
        Response::Aborted {
            cause: AbortCause::Refused { error, .. },
        } if !is_missing(error) => return writer.error(&error_text(*error)),
        Response::Aborted {
            cause: AbortCause::Refused { .. },
        } => (0, Some(0)),
        Response::Aborted { .. } => (0, None),
        other => {
            let text = error_of(other);
            return writer.error(text.as_deref().unwrap_or(NO_ANSWER));
        }
    };
    write_version(done, version, writer);
}

/// Whether TRINE.CAS was done, and the version, if it is known.
fn write_version(done: i64, version: Option<i64>, writer: &mut Writer<'_>) {
    writer.array(2);
    writer.integer(done);
    match version {
        Some(version) => writer.integer(version),
        None => writer.null(),
    }
}

/// Writes that TRINE.CAS was not done, with the version of a read that came after it.
pub(crate) fn write_present(read: Option<&Response<'_>>, writer: &mut Writer<'_>) {
    let version = match read {
        Some(Response::Value { version, .. }) => Some(number_of(*version)),
        Some(Response::NotFound) => Some(0),
        _ => None,
    };
    write_version(0, version, writer);
}

fn number_of(version: Position) -> i64 {
    i64::try_from(version.as_u64()).unwrap_or(i64::MAX)
}

fn number(answer: &Response<'_>) -> i64 {
    match answer {
        Response::Number { value, .. } => *value,
        Response::Length { bytes, .. } => i64::from(*bytes),
        Response::Count { items } => i64::try_from(*items).unwrap_or(i64::MAX),
        _ => 0,
    }
}

fn how_many(answers: &[Response<'_>]) -> i64 {
    answers.iter().filter(|answer| is_there(answer)).count() as i64
}

fn value_length(answer: &Response<'_>) -> i64 {
    match answer {
        Response::Value { value, .. } => value.len() as i64,
        _ => 0,
    }
}

fn type_of(answer: &Response<'_>) -> &'static str {
    match is_there(answer) {
        true => "string",
        false => "none",
    }
}

fn is_there(answer: &Response<'_>) -> bool {
    match answer {
        Response::Deleted { existed } => *existed,
        Response::NotFound => false,
        _ => true,
    }
}

/// Rounded to the next unit as Redis rounds: halves go up. A key that is there has at least one unit left: 0 would read
/// as if it were gone.
fn time_to_live(answer: &Response<'_>, unit_ns: u64) -> i64 {
    match answer {
        Response::TimeToLive {
            remaining_ns: Some(remaining_ns),
        } => (remaining_ns.saturating_add(unit_ns / 2) / unit_ns).max(1) as i64,
        Response::TimeToLive { remaining_ns: None } => -1,
        _ => -2,
    }
}
