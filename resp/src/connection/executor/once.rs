//! TRINE.DO and TRINE.SESSION: writes in sessions that clients keep. A session is named in each request, so the
//! connection knows of none.

use trine_commands::answer::{
    CommandOutcome, Failure, SessionRefusal, copy_failure_text, error_of,
};
use trine_commands::once::{Numbered, Once, SessionAsked, Token, not_opened_text, write_opened};
use trine_commands::plan::{Item, in_one};
use trine_kvstore::{Command, ExecuteMode, List, Position, Response};

use super::Executor;
use crate::connection::run::Waiting;
use crate::connection::{Call, Environment, Submit};

impl Executor {
    /// TRINE.DO.
    pub(super) fn do_once(
        &mut self,
        parts: &[&[u8]],
        environment: &Environment<'_>,
        submit: &mut dyn Submit,
    ) {
        let once = match Once::read(parts) {
            Ok(once) => once,
            Err(text) => return self.replies.error(&text),
        };
        let plan = match once.plan(environment.unix_ms) {
            Ok(plan) => plan,
            Err(text) => return self.replies.error(&text),
        };
        let (count, values) = (plan.operation_count(), plan.value_count());
        let (operations, items) = plan.split();
        let commands = operations.commands();
        let bytes = self.run.expected_bytes(count, values);
        self.call_in_session(
            &in_one(&commands),
            once.numbered(),
            bytes,
            Waiting::Numbered(items),
            submit,
        );
    }

    /// TRINE.SESSION.
    pub(super) fn session(&mut self, words: &[&[u8]], submit: &mut dyn Submit) {
        match SessionAsked::read(words, &mut self.replies.writer()) {
            Ok(Some(SessionAsked::Open)) => self.open_session(submit),
            Ok(Some(SessionAsked::Close(token))) => self.close_session(token, submit),
            Ok(None) => {}
            Err(text) => self.replies.error(&text),
        }
    }

    fn open_session(&mut self, submit: &mut dyn Submit) {
        match submit.open_session(self.standing.on_behalf()) {
            Ok(number) => self.run.begin(Waiting::Opening { number }, false),
            Err(failure) => self.replies.error(&not_opened_text(&failure)),
        }
    }

    /// A command that does nothing takes the last sequence, and the session ends with it.
    fn close_session(&mut self, token: Token, submit: &mut dyn Submit) {
        let nothing = Command::Execute {
            mode: ExecuteMode::AllOrNothing,
            conditions: List::default(),
            operations: List::default(),
        };
        let numbered = Numbered::closing(token);
        let bytes = self.run.expected_bytes(1, 0);
        self.call_in_session(&nothing, numbered, bytes, Waiting::Closing, submit);
    }

    fn call_in_session(
        &mut self,
        command: &Command<'_>,
        numbered: Numbered,
        response_bytes: usize,
        waiting: Waiting,
        submit: &mut dyn Submit,
    ) {
        let for_user = self.standing.on_behalf();
        // The group knows the session of a user by its user. Those of other clients look like the front's own.
        let begun = match numbered.token.is_of_user() == for_user.is_some() {
            true => submit.submit(&Call {
                command,
                read_only: false,
                response_bytes,
                for_user,
                numbered: Some(numbered),
            }),
            false => Err(Failure::Session(SessionRefusal::Lost)),
        };
        self.wait_for(begun, waiting, false);
    }

    pub(super) fn on_numbered_answer(&mut self, items: &[Item], result: CommandOutcome<'_>) {
        match result {
            Err(failure) => self.replies.error(&copy_failure_text(&failure)),
            answer => self.write_or_look(items, false, answer),
        }
    }

    pub(super) fn on_opened(
        &mut self,
        number: u64,
        position: Position,
        result: CommandOutcome<'_>,
    ) {
        match result {
            Ok(Response::Done) => {
                let client = position.as_u64();
                write_opened(Token { client, number }, &mut self.replies.writer());
            }
            Err(failure) => self.replies.error(&not_opened_text(&failure)),
            other => self.replies.error(&error_of(other, false)),
        }
    }

    /// A session that is gone already is closed.
    pub(super) fn on_closed(&mut self, result: CommandOutcome<'_>) {
        match result {
            Ok(Response::List(_)) | Err(Failure::Session(SessionRefusal::Lost)) => {
                self.replies.ok();
            }
            Err(failure) => self.replies.error(&copy_failure_text(&failure)),
            other => self.replies.error(&error_of(other, false)),
        }
    }
}
