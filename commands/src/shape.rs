//! The store's answers as replies.

use trine_kvstore::Response;

use crate::errors::error_text;
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
            Self::Value | Self::ValueFirst | Self::ValueLength | Self::Previous => 1,
            Self::Known(_)
            | Self::Ok
            | Self::OkOrNull
            | Self::Number
            | Self::Changed
            | Self::HowMany
            | Self::Seconds
            | Self::Milliseconds
            | Self::Type
            | Self::ErrorIfPresent(_) => 0,
        }
    }

    /// Writes the reply. `answers` has one for each operation, in order.
    pub(crate) fn write(&self, answers: &[Response<'_>], writer: &mut Writer<'_>) {
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
            (_, []) => writer.error("ERR no answer"),
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
            Self::Known(_) | Self::HowMany | Self::Values => {
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
