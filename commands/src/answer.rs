//! Replies to calls of the store: what its answer says of each command, or why there is no answer.

use trine_kvstore::{AbortCause, OtherError, Response, StoreError};

use crate::errors::{NO_ANSWER, denied_text, error_text};
use crate::plan::Item;
use crate::reply::Writer;
use crate::shape::{Shape, write_present};

/// Why a call has no response.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Failure {
    /// It was not applied and never will be.
    NotApplied(String),
    /// It may have been applied.
    Unknown(String),
    /// It was not applied: it is larger than the group takes.
    TooLarge,
    /// The session that the client has named refuses it. Whether an earlier copy was applied depends on the reason.
    Session(SessionRefusal),
}

/// Why a session that its client keeps refuses a command.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SessionRefusal {
    /// The sequence is below the lowest that is awaited. The command may have been applied.
    Stale,
    /// It is too far above that. This copy was not applied.
    Window,
    /// A command in other words has it. This copy was not applied.
    SequenceUsed,
    /// There is no such session of this user. The command may have been applied.
    Lost,
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
        // An answer of TRINE.CAS like another.
        Ok(missing @ Response::Error(StoreError::KeyMissing)) if operations == 1 => {
            write_items(items, std::slice::from_ref(&missing), writer)
        }
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

/// The key whose version a refused TRINE.CAS has still to name: the answer does not.
pub fn key_to_look_at<'i>(items: &'i [Item], result: &CommandOutcome<'_>) -> Option<&'i [u8]> {
    match (items, result) {
        (
            [
                Item {
                    shape: Shape::Compared(key),
                    ..
                },
            ],
            Ok(Response::Aborted {
                cause: AbortCause::Conflict { .. },
            }),
        ) => Some(key),
        _ => None,
    }
}

/// Writes the reply to that TRINE.CAS, after the key was read. Without an answer it names no version.
pub fn write_looked_at(result: &CommandOutcome<'_>, writer: &mut Writer<'_>) {
    write_present(result.as_ref().ok(), writer);
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
        Failure::Session(refusal) => refusal_text(*refusal).to_owned(),
    }
}

/// The same for a copy of a command that has a sequence: another copy of it may have been applied.
pub fn copy_failure_text(failure: &Failure) -> String {
    match failure {
        Failure::NotApplied(why) => {
            format!("CLUSTERDOWN this copy was not applied, repeat it: {why}")
        }
        Failure::Unknown(why) => {
            format!("UNKNOWNOUTCOME the command may have been applied, once, repeat it: {why}")
        }
        other => failure_text(other, false),
    }
}

/// What a session refuses, why, and what to do.
pub(crate) const fn refusal_text(refusal: SessionRefusal) -> &'static str {
    match refusal {
        SessionRefusal::Stale => {
            "STALE it is not known whether the command was applied: its sequence is below the lowest one of the session, or \
             the session was closed, so no answer is kept"
        }
        SessionRefusal::Window => {
            "WINDOW this copy was not applied: its sequence is 64 or more above the lowest one that is awaited. Wait for \
             the answer to that one, or repeat its command, and name a higher one then"
        }
        SessionRefusal::SequenceUsed => {
            "SEQUENCEUSED this copy was not applied: the sequence belongs to a command in other words. Repeat a command in \
             the same words; two programs need a session each"
        }
        SessionRefusal::Lost => {
            "SESSIONLOST it is not known whether the command was applied: this user has no such session. It was idle for \
             too long, or there never was one. TRINE.SESSION opens another one"
        }
    }
}
