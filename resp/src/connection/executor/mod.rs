//! Executes one client's commands, and holds all that they change.
//!
//! The connection above reads requests and keeps their order; this value does not know where one ends. Each part of the state
//! is a value of its own, and what joins them is in a file for each kind of command:
//!
//! - `local` has the commands that need no store, and those about all keys.
//! - `once` has TRINE.DO and TRINE.SESSION.
//! - `auth` has AUTH and HELLO, `client` CLIENT, `config` CONFIG, `exec` transactions.
//! - `listening` has SUBSCRIBE and tracking, and how the broker tells the client of changes.
//! - `answering` is the end of a call.
//!
//! Invariant: no part reaches into another one. A command either writes its reply or begins one call.

mod answering;
mod auth;
mod client;
mod config;
mod exec;
mod listening;
mod local;
mod once;

use trine_commands::answer::{Failure, write_items};
use trine_commands::plan::{Clock, Plan, in_one};
use trine_commands::table;
use trine_kvstore::{Command, Position};

use super::life::{Cause, Life};
use super::profile::Profile;
use super::replies::Replies;
use super::run::{Run, Waiting};
use super::standing::Standing;
use super::subscriptions::Subscriptions;
use super::tracking::Tracker;
use super::transaction::Transaction;
use super::{Call, Environment, Submit};
use crate::limits::Limits;

/// One client's state.
#[derive(Debug)]
pub(super) struct Executor {
    profile: Profile,
    standing: Standing,
    replies: Replies,
    life: Life,
    run: Run,
    transaction: Transaction,
    tracker: Tracker,
    subscriptions: Subscriptions,
    counts: Counts,
}

/// What is counted.
#[derive(Default, Debug)]
struct Counts {
    /// Commands that were taken.
    commands: u64,
    /// Reads that found their key, since they were asked for last.
    hits: u64,
    /// Reads that did not.
    misses: u64,
}

/// What has become of requests.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Served {
    /// They are answered.
    Answered,
    /// They wait for the store.
    Waiting,
    /// The store refused them together, and has done none: they have to be read again, one by one.
    Split,
}

impl Executor {
    /// The state of a new client at `peer`. `requires_auth`: it has to give a password or a key first.
    pub(super) fn new(id: u64, peer: String, requires_auth: bool, unix_ms: i64) -> Self {
        Self {
            profile: Profile::new(id, peer, unix_ms),
            standing: Standing::new(requires_auth),
            replies: Replies::default(),
            life: Life::default(),
            run: Run::default(),
            transaction: Transaction::default(),
            tracker: Tracker::default(),
            subscriptions: Subscriptions::default(),
            counts: Counts::default(),
        }
    }

    /// Where the client is, and what it calls itself.
    pub(super) fn profile(&self) -> &Profile {
        &self.profile
    }

    /// As whom the client acts.
    pub(super) fn standing(&self) -> &Standing {
        &self.standing
    }

    /// Replies that are not read yet.
    pub(super) fn replies(&self) -> &Replies {
        &self.replies
    }

    /// The same, when some were written or memory is to be given back.
    pub(super) fn replies_mut(&mut self) -> &mut Replies {
        &mut self.replies
    }

    /// Where the connection is in its life.
    pub(super) fn life(&self) -> Life {
        self.life
    }

    /// Whether a call is under way.
    pub(super) fn is_busy(&self) -> bool {
        self.run.is_busy()
    }

    /// Commands so far.
    pub(super) fn commands(&self) -> u64 {
        self.counts.commands
    }

    /// Reads since the last call that found their key, and those that did not.
    pub(super) fn take_lookups(&mut self) -> (u64, u64) {
        let Counts { hits, misses, .. } = &mut self.counts;
        (std::mem::take(hits), std::mem::take(misses))
    }

    /// Bytes of memory that it holds beside itself.
    pub(super) fn held_bytes(&self) -> usize {
        let told = self.tracker.held_bytes() + self.subscriptions.held_bytes();
        let waiting = self.run.held_bytes() + self.transaction.held_bytes();
        self.replies.capacity() + waiting + told
    }

    /// The client sends no more.
    pub(super) fn end(&mut self) {
        self.life.end(Cause::Farewell);
    }

    /// The client broke the protocol.
    pub(super) fn end_broken(&mut self, text: &str) {
        self.replies.error(&format!("ERR {text}"));
        self.life.end(Cause::Broken);
    }

    /// The client acts as this user.
    #[cfg(test)]
    pub(super) fn become_user(&mut self, identity: super::standing::Identity) {
        self.standing.become_user(identity);
    }

    /// Ends the connection, whatever the client has not read.
    pub(super) fn cut_off(&mut self) {
        self.life.cut_off();
        self.replies.drop_all();
    }

    /// The next commands are put together. Returns how many they may be.
    pub(super) fn begin_plan(&mut self, limits: &Limits) -> usize {
        self.tracker.begin_reads();
        self.run.commands_max(limits.pipeline_commands)
    }

    /// Adds a command to the plan, if it is one for the store and may be added now.
    pub(super) fn plan<'a>(
        &mut self,
        plan: &mut Plan<'a>,
        parts: &[&'a [u8]],
        environment: &Environment<'_>,
    ) -> bool {
        if !self.standing.is_known() || self.transaction.is_open() || self.is_only_subscriber() {
            return false;
        }
        let Some(spec) = parts.first().and_then(|name| table::find(name)) else {
            return false;
        };
        if plan.command_count() > 0 && spec.goes_alone(parts) {
            return false;
        }
        match spec.plan(plan, parts, Clock::at(environment.unix_ms)) {
            None => return false,
            Some(Ok(())) => {}
            Some(Err(text)) => plan.add_reply(self.replies.encode_error(&text)),
        }
        if self.tracker.is_on() {
            self.note_reads(spec, parts, environment);
            self.end_caching();
        }
        true
    }

    /// Sends the commands of a plan to the store.
    pub(super) fn submit_plan(&mut self, plan: Plan<'_>, submit: &mut dyn Submit) -> Served {
        self.counts.commands += plan.command_count() as u64;
        self.run.on_commands(plan.command_count());
        let (count, values) = (plan.operation_count(), plan.value_count());
        let (operations, items) = plan.split();
        if count == 0 {
            write_items(&items, &[], &mut self.replies.writer());
            return Served::Answered;
        }
        let operations = operations.commands();
        let bytes = self.run.expected_bytes(count, values);
        self.call(&in_one(&operations), bytes, Waiting::Run(items), submit)
    }

    /// Sends a command to the store, whose answer is about so many bytes, and waits for the answer.
    fn call(
        &mut self,
        command: &Command<'_>,
        response_bytes: usize,
        waiting: Waiting,
        submit: &mut dyn Submit,
    ) -> Served {
        let call = Call {
            command,
            read_only: command.is_read_only(),
            response_bytes,
            for_user: self.standing.on_behalf(),
            numbered: None,
        };
        let begun = submit.submit(&call);
        self.wait_for(begun, waiting, call.read_only)
    }

    /// The answer to a call that has begun is awaited. One that could not begin is answered at once.
    fn wait_for(
        &mut self,
        begun: Result<(), Failure>,
        waiting: Waiting,
        read_only: bool,
    ) -> Served {
        self.run.begin(waiting, read_only);
        match begun {
            Ok(()) => Served::Waiting,
            Err(failure) => self.on_answer(Position::ZERO, Err(failure)),
        }
    }
}
