//! The store's answer to a call, and what it says about a call that has none.

use trine_kvstore::{AbortCause, OtherError, Response, StoreError};

use super::run::Waiting;
use super::{Connection, Failure};
use crate::errors::{denied_text, error_text};
use crate::plan::Item;
use crate::shape::Shape;

impl Connection {
    /// The call that was under way is over.
    pub fn on_answer(&mut self, result: Result<Response<'_>, Failure>) {
        // The stream is no call, and its wait ends otherwise.
        let is_call = |waiting: &Waiting| !matches!(waiting, Waiting::Stream(_));
        let Some((call, read_only)) = self.run.take_if(is_call) else {
            return;
        };
        match call {
            Waiting::Run(items) => self.on_run_answer(&items, read_only, result),
            Waiting::Transaction { items, before } => {
                if !matches!(result, Ok(Response::List(_))) {
                    self.restore(*before);
                }
                self.on_transaction_answer(&items, read_only, result);
            }
            Waiting::Watch(keys) => self.on_watch_answer(keys, result),
            Waiting::Walk(walk) => self.on_page(walk, result),
            Waiting::Users(asked) => self.on_users_answer(&asked, result),
            Waiting::Auth(then) => self.go_on_unknown(then, result.err()),
            Waiting::Stream(_) => unreachable!("it was left where it is"),
        }
    }

    fn on_run_answer(
        &mut self,
        items: &[Item],
        read_only: bool,
        result: Result<Response<'_>, Failure>,
    ) {
        let tried_singly = matches!(
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
        );
        if tried_singly && items.len() > 1 {
            // Nothing was applied: each of the commands is tried for itself.
            self.run.split(items.len());
            self.commands -= items.len() as u64;
            self.input.reread();
            self.tracker.repeat_caching();
            return;
        }
        match result {
            Ok(response) => {
                let operations: usize = items.iter().map(|item| item.operations).sum();
                match (&response, operations) {
                    (Response::List(list), 2..) => {
                        let answers: Vec<Response<'_>> = list.iter().collect();
                        self.write_items(items, &answers);
                    }
                    (Response::Error(error), _) => self.write_errors(items, &error_text(*error)),
                    (Response::OtherError(error), _) => {
                        self.write_errors(items, &format!("ERR {error}"));
                    }
                    (Response::Denied { reason }, _) => {
                        self.write_errors(items, &denied_text(reason));
                    }
                    _ => self.write_items(items, std::slice::from_ref(&response)),
                }
            }
            Err(failure) => self.write_errors(items, &failure_text(&failure, read_only)),
        }
        self.input.on_answered();
    }

    fn on_transaction_answer(
        &mut self,
        items: &[Item],
        read_only: bool,
        result: Result<Response<'_>, Failure>,
    ) {
        match result {
            Ok(Response::List(list)) => {
                let answers: Vec<Response<'_>> = list.iter().collect();
                self.replies.writer().array(items.len());
                self.write_items(items, &answers);
            }
            Ok(Response::Aborted {
                cause: AbortCause::Condition { .. },
            }) => self.replies.writer().null_array(),
            Ok(Response::Error(error)) => {
                let text = format!("EXECABORT Transaction discarded because of: {error}");
                self.replies.error(&text);
            }
            Ok(Response::OtherError(error)) => {
                let text = format!("EXECABORT Transaction discarded because of: {error}");
                self.replies.error(&text);
            }
            Ok(Response::Denied { reason }) => self.replies.error(&denied_text(reason)),
            Ok(_) => self.replies.error(NO_ANSWER),
            Err(failure) => {
                let text = failure_text(&failure, read_only);
                self.replies.error(&text);
            }
        }
    }

    /// The error of a read that was not answered with what it asks for.
    pub(super) fn write_failed_read(&mut self, result: Result<Response<'_>, Failure>) {
        match result {
            Ok(Response::Error(error)) => self.replies.error(&error_text(error)),
            Ok(Response::OtherError(error)) => self.replies.error(&format!("ERR {error}")),
            Ok(Response::Denied { reason }) => self.replies.error(&denied_text(reason)),
            Ok(_) => self.replies.error(NO_ANSWER),
            Err(failure) => {
                let text = failure_text(&failure, true);
                self.replies.error(&text);
            }
        }
    }

    fn on_watch_answer(&mut self, keys: Vec<Vec<u8>>, result: Result<Response<'_>, Failure>) {
        let list = match result {
            Ok(Response::List(list)) if list.len() == keys.len() => list,
            other => {
                self.transaction.on_watch_failed();
                return self.write_failed_read(other);
            }
        };
        let versions = list.iter().map(|answer| match answer {
            Response::Value { version, .. } => Some(version),
            _ => None,
        });
        self.transaction.on_watched(keys.into_iter().zip(versions));
        self.replies.ok();
    }

    /// Writes a reply for each item from the answers to its operations.
    pub(super) fn write_items(&mut self, items: &[Item], answers: &[Response<'_>]) {
        let (mut rest, before) = (answers, self.replies.len());
        for item in items {
            let mut writer = self.replies.writer();
            if let Shape::Known(reply) = &item.shape {
                writer.encoded(reply);
                continue;
            }
            match rest.split_at_checked(item.operations) {
                Some((own, behind)) => {
                    item.shape.write(own, &mut writer);
                    rest = behind;
                }
                None => writer.error(NO_ANSWER),
            }
        }
        for answer in answers {
            match answer {
                Response::Value { .. } | Response::TimeToLive { .. } => self.lookups.0 += 1,
                Response::NotFound => self.lookups.1 += 1,
                _ => {}
            }
        }
        self.run.learn(self.replies.len() - before, answers.len());
    }

    fn write_errors(&mut self, items: &[Item], text: &str) {
        for item in items {
            match &item.shape {
                Shape::Known(reply) => self.replies.writer().encoded(reply),
                _ => self.replies.error(text),
            }
        }
    }
}

pub(super) const NO_ANSWER: &str = "ERR the replica's answer does not belong to this command";

/// An error that says precisely whether the command can have changed anything.
pub(super) fn failure_text(failure: &Failure, read_only: bool) -> String {
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
