//! The end of a call: its answer becomes replies, and changes what the connection waits for.

use trine_commands::answer::{
    Answered, CommandOutcome, error_of, key_to_look_at, may_succeed_singly, write_looked_at,
    write_run, write_transaction,
};
use trine_commands::plan::Item;
use trine_kvstore::{Position, Response};

use super::{Executor, Served};
use crate::connection::run::Waiting;

impl Executor {
    /// The call that was under way is over.
    pub(in crate::connection) fn on_answer(
        &mut self,
        position: Position,
        result: CommandOutcome<'_>,
    ) -> Served {
        // The stream is no call, and its wait ends otherwise.
        let is_call = |waiting: &Waiting| !matches!(waiting, Waiting::Stream(_));
        let Some((call, read_only)) = self.run.take_if(is_call) else {
            return Served::Waiting;
        };
        match call {
            Waiting::Run(items) => return self.on_run_answer(&items, read_only, result),
            Waiting::Transaction { items, before } => {
                if !matches!(result, Ok(Response::List(_))) {
                    self.restore(*before);
                }
                let writer = &mut self.replies.writer();
                let answered = write_transaction(&items, read_only, result, writer);
                self.note_answered(answered);
            }
            Waiting::Numbered(items) => self.on_numbered_answer(&items, result),
            Waiting::Look => write_looked_at(&result, &mut self.replies.writer()),
            Waiting::Opening { number } => self.on_opened(number, position, result),
            Waiting::Closing => self.on_closed(result),
            Waiting::Watch(keys) => self.on_watch_answer(keys, result),
            Waiting::Walk(walk) => match result {
                Ok(Response::Page(page)) => {
                    if let Some(walk) = walk.on_page(&page, &mut self.replies.writer()) {
                        self.run.walk_on(walk);
                    }
                }
                other => self.replies.error(&error_of(other, true)),
            },
            Waiting::Users(asked) => match result {
                Ok(Response::Users(users)) => {
                    asked.write(users.iter(), &mut self.replies.writer());
                }
                other => self.replies.error(&error_of(other, true)),
            },
            Waiting::Auth(then) => self.go_on_unknown(then, result.err()),
            Waiting::Stream(_) => unreachable!("it was left where it is"),
        }
        Served::Answered
    }

    fn on_run_answer(
        &mut self,
        items: &[Item],
        read_only: bool,
        result: CommandOutcome<'_>,
    ) -> Served {
        if items.len() > 1 && may_succeed_singly(&result) {
            // Nothing was applied: each of the commands is tried for itself.
            self.run.split(items.len());
            self.counts.commands -= items.len() as u64;
            self.tracker.repeat_caching();
            return Served::Split;
        }
        self.write_or_look(items, read_only, result);
        Served::Answered
    }

    /// Writes the replies, unless one of them needs another call.
    pub(super) fn write_or_look(
        &mut self,
        items: &[Item],
        read_only: bool,
        result: CommandOutcome<'_>,
    ) {
        match key_to_look_at(items, &result) {
            Some(key) => self.run.look_at(key.to_vec()),
            None => {
                let writer = &mut self.replies.writer();
                let answered = write_run(items, read_only, result, writer);
                self.note_answered(answered);
            }
        }
    }

    fn on_watch_answer(&mut self, keys: Vec<Vec<u8>>, result: CommandOutcome<'_>) {
        let list = match result {
            Ok(Response::List(list)) if list.len() == keys.len() => list,
            other => {
                self.transaction.on_watch_failed();
                return self.replies.error(&error_of(other, true));
            }
        };
        let versions = list.iter().map(|answer| match answer {
            Response::Value { version, .. } => Some(version),
            _ => None,
        });
        self.transaction.on_watched(keys.into_iter().zip(versions));
        self.replies.ok();
    }

    /// Answers were written as replies.
    pub(super) fn note_answered(&mut self, answered: Answered) {
        self.run.learn(answered.bytes, answered.answers);
        self.counts.hits += answered.hits;
        self.counts.misses += answered.misses;
    }
}
