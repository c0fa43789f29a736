//! The store's answers as replies.

use trine_kvstore::{Response, StoreError};

use crate::errors::error_text;
use crate::reply::Writer;

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

impl Shape {
    /// Writes the reply. `answers` has one for each operation, in order.
    pub(crate) fn write(&self, answers: &[Response<'_>], writer: &mut Writer<'_>) {
        if let Some(error) = answers.iter().find_map(error_of) {
            return writer.error(&error_text(error));
        }
        match (self, answers) {
            (Self::HowMany, answers) => {
                let found = answers.iter().filter(|answer| is_there(answer)).count();
                writer.integer(found as i64);
            }
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
            Self::ValueLength => writer.integer(match answer {
                Response::Value { value, .. } => value.len() as i64,
                _ => 0,
            }),
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
            Self::Seconds => writer.integer(time_to_live(answer, 1_000_000_000)),
            Self::Milliseconds => writer.integer(time_to_live(answer, 1_000_000)),
            Self::Type => writer.simple(match is_there(answer) {
                true => "string",
                false => "none",
            }),
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

fn error_of(answer: &Response<'_>) -> Option<StoreError> {
    match answer {
        Response::Error(error) => Some(*error),
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
