//! Replies to calls of the store: what its answer says of each command, or why there is no answer.

use trine_kvstore::{AbortCause, OtherError, Response, StoreError};

use crate::errors::{denied_text, error_text};
use crate::plan::Item;
use crate::reply::Writer;
use crate::shape::Shape;

/// Why a call has no response.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Failure {
    /// It was not applied and never will be.
    NotApplied(String),
    /// It may have been applied.
    Unknown(String),
    /// It was not applied: it is larger than the group takes.
    TooLarge,
}

/// What a call brought.
pub type CommandOutcome<'a> = Result<Response<'a>, Failure>;

/// Answers that were written as replies.
#[derive(Clone, Copy, Default, Debug)]
pub struct Answered {
    /// How many there were.
    pub answers: usize,
    /// Bytes of their replies.
    pub bytes: usize,
    /// Reads that found their key.
    pub hits: u64,
    /// Reads that did not.
    pub misses: u64,
}

/// Whether nothing was applied, and some of several commands may succeed alone.
pub fn may_succeed_singly(result: &CommandOutcome<'_>) -> bool {
    matches!(
        result,
        Err(Failure::TooLarge)
            // Another command of them may be allowed.
            | Ok(Response::Denied { .. })
            // Nor does one for which a later release has a reason.
            | Ok(Response::OtherError(OtherError { index: None, .. }))
            | Ok(Response::Error(
                StoreError::ResponseTooLarge
                    | StoreError::ExecuteTooLarge
                    | StoreError::ListTooLong
                    // A command that the group does not know yet says nothing about those beside it.
                    | StoreError::VersionNotActive { .. }
                    | StoreError::SwitchWaits { .. }
            ))
    )
}

/// Writes a reply to each command of a run.
pub fn write_run(
    items: &[Item],
    read_only: bool,
    result: CommandOutcome<'_>,
    writer: &mut Writer<'_>,
) -> Answered {
    let operations: usize = items.iter().map(|item| item.operations).sum();
    match result {
        Ok(Response::List(list)) if operations > 1 => {
            let answers: Vec<Response<'_>> = list.iter().collect();
            write_items(items, &answers, writer)
        }
        Ok(Response::Error(_) | Response::OtherError(_) | Response::Denied { .. }) | Err(_) => {
            let text = error_of(result, read_only);
            for item in items {
                match &item.shape {
                    Shape::Known(reply) => writer.encoded(reply),
                    _ => writer.error(&text),
                }
            }
            Answered::default()
        }
        Ok(response) => write_items(items, std::slice::from_ref(&response), writer),
    }
}

/// Writes the reply to EXEC.
pub fn write_transaction(
    items: &[Item],
    read_only: bool,
    result: CommandOutcome<'_>,
    writer: &mut Writer<'_>,
) -> Answered {
    match result {
        Ok(Response::List(list)) => {
            let answers: Vec<Response<'_>> = list.iter().collect();
            writer.array(items.len());
            return write_items(items, &answers, writer);
        }
        Ok(Response::Aborted {
            cause: AbortCause::Condition { .. },
        }) => writer.null_array(),
        Ok(Response::Error(error)) => {
            writer.error(&format!(
                "EXECABORT Transaction discarded because of: {error}"
            ));
        }
        Ok(Response::OtherError(error)) => {
            writer.error(&format!(
                "EXECABORT Transaction discarded because of: {error}"
            ));
        }
        other => writer.error(&error_of(other, read_only)),
    }
    Answered::default()
}

/// Writes a reply for each item from the answers to its operations.
pub fn write_items(items: &[Item], answers: &[Response<'_>], writer: &mut Writer<'_>) -> Answered {
    let (mut rest, before) = (answers, writer.len());
    for item in items {
        if let Shape::Known(reply) = &item.shape {
            writer.encoded(reply);
            continue;
        }
        match rest.split_at_checked(item.operations) {
            Some((own, behind)) => {
                item.shape.write(own, writer);
                rest = behind;
            }
            None => writer.error(NO_ANSWER),
        }
    }
    let mut answered = Answered {
        answers: answers.len(),
        bytes: writer.len() - before,
        ..Answered::default()
    };
    for answer in answers {
        match answer {
            Response::Value { .. } | Response::TimeToLive { .. } => answered.hits += 1,
            Response::NotFound => answered.misses += 1,
            _ => {}
        }
    }
    answered
}

/// The error of a call that was not answered with what it asks for.
pub fn error_of(result: CommandOutcome<'_>, read_only: bool) -> String {
    match result {
        Ok(Response::Error(error)) => error_text(error),
        Ok(Response::OtherError(error)) => format!("ERR {error}"),
        Ok(Response::Denied { reason }) => denied_text(reason),
        Ok(_) => NO_ANSWER.to_owned(),
        Err(failure) => failure_text(&failure, read_only),
    }
}

/// The error for an answer that says nothing about the command.
pub const NO_ANSWER: &str = "ERR the replica's answer does not belong to this command";

/// An error that says precisely whether the command can have changed anything.
pub fn failure_text(failure: &Failure, read_only: bool) -> String {
    match failure {
        Failure::NotApplied(why) | Failure::Unknown(why) if read_only => {
            format!("CLUSTERDOWN nothing was read: {why}")
        }
        Failure::NotApplied(why) => format!("CLUSTERDOWN not applied: {why}"),
        Failure::Unknown(why) => {
            format!("UNKNOWNOUTCOME the command may have been applied, once: {why}")
        }
        Failure::TooLarge => "ERR the command is larger than the group takes".to_owned(),
    }
}
