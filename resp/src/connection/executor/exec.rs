//! MULTI, EXEC and WATCH: a transaction is one EXEC of the store, the watched versions are its conditions.

use trine_commands::answer::write_items;
use trine_commands::errors::too_many;
use trine_commands::limits::OPERATIONS_MAX;
use trine_commands::plan::{Clock, Plan};
use trine_commands::table::{self, Spec, Verb};
use trine_kvstore::{Command, ExecuteMode, List};

use super::Executor;
use crate::connection::run::{Settings, Waiting};
use crate::connection::{Environment, Submit};

const PROTOCOL_STAYS: &str = "ERR HELLO cannot change the protocol inside a transaction";

impl Executor {
    /// MULTI.
    pub(super) fn begin_transaction(&mut self) {
        match self.transaction.begin() {
            true => self.replies.ok(),
            false => self.replies.error("ERR MULTI calls can not be nested"),
        }
    }

    /// DISCARD.
    pub(super) fn discard(&mut self) {
        match self.transaction.discard() {
            true => self.replies.ok(),
            false => self.replies.error("ERR DISCARD without MULTI"),
        }
    }

    /// Keeps a command for EXEC.
    pub(super) fn queue(&mut self, parts: &[&[u8]], environment: &Environment<'_>) {
        match self.transaction.queue(parts, environment.limits) {
            Ok(()) => self.replies.writer().simple("QUEUED"),
            Err(text) => self.replies.error(&text),
        }
    }

    pub(super) fn exec(&mut self, environment: &Environment<'_>, submit: &mut dyn Submit) {
        let ready = match self.transaction.take() {
            Ok(ready) => ready,
            Err(text) => return self.replies.error(&text),
        };
        let parts = ready.commands();
        let conditions = ready.conditions();
        let before = self.settings();
        self.tracker.begin_reads();
        // Reads of a transaction are tracked as others. CLIENT CACHING counts for all of them.
        for parts in &parts {
            if let Some(spec) = table::find(parts[0]) {
                self.note_reads(spec, parts, environment);
            }
        }
        let mut plan = Plan::default();
        let mut reply_bytes = 0;
        for parts in &parts {
            reply_bytes += self.plan_queued(&mut plan, parts, environment, submit);
            // Small commands can ask for long replies, and all of them wait for the store's. No reply is written by
            // then.
            if reply_bytes > environment.limits.query_bytes {
                self.restore(*before);
                let text = "EXECABORT Transaction discarded because its replies are too large.";
                return self.replies.error(text);
            }
        }
        let (count, values) = (plan.operation_count(), plan.value_count());
        if count > OPERATIONS_MAX {
            self.restore(*before);
            return self.abort(&too_many("operations"));
        }
        let (operations, items) = plan.split();
        if count == 0 && conditions.is_empty() {
            let mut writer = self.replies.writer();
            writer.array(items.len());
            write_items(&items, &[], &mut writer);
            return;
        }
        let operations = operations.commands();
        let command = Command::Execute {
            mode: ExecuteMode::Independent,
            conditions: List::from(conditions.as_slice()),
            operations: List::from(operations.as_slice()),
        };
        let bytes = self.run.expected_bytes(count, values);
        self.call(
            &command,
            bytes,
            Waiting::Transaction { items, before },
            submit,
        );
    }

    fn settings(&self) -> Box<Settings> {
        Box::new(Settings {
            names: self.profile.names(),
            user: self.standing.acts_as(),
        })
    }

    /// The transaction was not done, so its commands changed nothing here either.
    pub(super) fn restore(&mut self, settings: Settings) {
        let Settings { names, user } = settings;
        self.profile.restore(names);
        self.standing.restore(user);
    }

    /// The bytes of its reply, if that is known already.
    fn plan_queued<'a>(
        &mut self,
        plan: &mut Plan<'a>,
        parts: &[&'a [u8]],
        environment: &Environment<'_>,
        submit: &mut dyn Submit,
    ) -> usize {
        let spec = table::find(parts[0]).expect("only known commands are queued");
        let reply = match spec.plan(plan, parts, Clock::at(environment.unix_ms)) {
            Some(Ok(())) => return 0,
            Some(Err(text)) => self.replies.encode_error(&text),
            // A command that needs no store writes its reply, which waits among the others.
            None => {
                let (earlier, settings) = (self.replies.begin_collecting(), self.settings());
                self.answer_here(spec, parts, environment, submit);
                let collected = self.replies.end_collecting(earlier);
                if collected.has_switched {
                    // The list would begin in one protocol and end in the other: no client could read it.
                    self.restore(*settings);
                    self.replies.encode_error(PROTOCOL_STAYS)
                } else {
                    collected.bytes
                }
            }
        };
        let bytes = reply.len();
        plan.add_reply(reply);
        bytes
    }

    pub(super) fn watch(
        &mut self,
        parts: &[&[u8]],
        environment: &Environment<'_>,
        submit: &mut dyn Submit,
    ) {
        if self.transaction.is_open() {
            return self.replies.error("ERR WATCH inside MULTI is not allowed");
        }
        if !self.transaction.may_watch(&parts[1..], environment.limits) {
            return self.replies.error("ERR too many watched keys");
        }
        let operations: Vec<Command<'_>> =
            parts[1..].iter().map(|key| Command::Get { key }).collect();
        let command = Command::Execute {
            mode: ExecuteMode::Independent,
            conditions: List::default(),
            operations: List::from(operations.as_slice()),
        };
        let bytes = self.run.expected_bytes(operations.len(), operations.len());
        let keys = parts[1..].iter().map(|key| key.to_vec()).collect();
        self.call(&command, bytes, Waiting::Watch(keys), submit);
    }

    /// A request that names no command, or has not the right number of parts.
    pub(super) fn refuse(&mut self, text: &str) {
        self.transaction.refuse();
        self.replies.error(text);
    }

    /// An EXEC that cannot be one. Redis ends the transaction with it.
    pub(super) fn abort(&mut self, text: &str) {
        self.transaction.forget();
        let why = text.strip_prefix("ERR ").unwrap_or(text);
        let text = format!("EXECABORT Transaction discarded because of: {why}");
        self.replies.error(&text);
    }
}

/// Whether a command is done immediately although a transaction is being put together.
pub(super) fn ends_or_is_outside_of_transaction(spec: &Spec) -> bool {
    matches!(
        spec.verb(),
        Some(Verb::Multi | Verb::Exec | Verb::Discard | Verb::Watch | Verb::Quit | Verb::Reset)
    )
}

/// Why a command cannot be queued that is the store's otherwise.
pub(super) fn why_not_queued(spec: &Spec, parts: &[&[u8]]) -> Option<&'static str> {
    match spec.verb() {
        Some(Verb::Do) => Some("ERR TRINE.DO cannot stand inside MULTI: a sequence is for one write"),
        Some(Verb::Session) => Some("ERR TRINE.SESSION cannot stand inside MULTI"),
        _ => spec.goes_alone(parts).then_some(
            "ERR TRINE.CAS with a version and PX cannot stand inside MULTI: WATCH the key, and SET it",
        ),
    }
}

/// Whether a command is about all keys, so that a transaction cannot have it.
pub(super) fn is_about_all_keys(spec: &Spec) -> bool {
    matches!(
        spec.verb(),
        Some(Verb::Scan | Verb::Keys | Verb::RandomKey | Verb::Flush)
    )
}
