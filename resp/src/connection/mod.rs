//! One client's connection: bytes in, commands for the store out, answers in, replies out.
//!
//! A run of pipelined commands goes to the store as one command, so that they keep their order, cost one round of
//! replication together, and are applied at most once together. The next run begins when the last is answered:
//!
//! ```text
//!            a request is whole              the store has answered
//! reading ----------------------> waiting ---------------------------> reading
//!    |  \__ PING, MULTI, ...: answered here                              |
//!    |                                                                   |
//!    +--- QUIT, a broken request, the client's end ---> ending ----------+---> over, once the replies are written
//! ```
//!
//! Bytes of a run stay until it is answered: if the whole is too large for the store, it is read again and sent one
//! by one.

mod answering;
mod auth;
mod broker;
mod client;
mod config;
mod exec;
mod input;
mod late;
mod life;
mod listening;
mod local;
mod profile;
mod replies;
mod run;
mod standing;
mod subscriptions;
mod tracking;
mod transaction;

use std::cell::RefCell;

use trine_commands::answer::write_items;
use trine_commands::limits::OPERATIONS_MAX;
use trine_commands::plan::{Plan, in_one};
use trine_commands::table;
use trine_kvstore::Command;

use crate::limits::Limits;
use crate::request::{Progress, ProtocolError};
use input::Input;
use life::{Cause, Life};
use profile::Profile;
use replies::Replies;
use run::{Run, Waiting};
use standing::Standing;
use subscriptions::Subscriptions;
use tracking::Tracker;
use transaction::Transaction;

/// Bytes of requests that are sent to the store together; a larger single request goes alone.
const RUN_BYTES_MAX: usize = 256 * 1024;
/// Operations of the store that are sent together; a command with more goes alone.
const RUN_OPERATIONS_MAX: usize = 4 * 1024;
/// An idle connection shrinks its buffers to this size.
const RESTING_BYTES_MAX: usize = 64 * 1024;

pub use broker::{Broker, BrokerCounts, Classes, Clients, KeyChange};
use late::Late;
pub use standing::{Identity, NotKnown, OnBehalf, is_same_secret};
pub use trine_commands::answer::Failure;

/// A command for the group.
#[derive(Debug)]
pub struct Call<'a> {
    /// Work for the store.
    pub command: &'a Command<'a>,
    /// It changes nothing, so it needs no log entry.
    pub read_only: bool,
    /// About how many bytes the store's response takes.
    pub response_bytes: usize,
    /// The user whose rights count, if the client is a user of the group.
    pub for_user: Option<OnBehalf>,
}

/// Where calls go to.
pub trait Submit {
    /// Begins the call; its end comes through [`Connection::on_answer`], unless it could not even be begun.
    ///
    /// # Errors
    /// Why not.
    fn submit(&mut self, call: &Call<'_>) -> Result<(), Failure>;

    /// Begins to find out whether the client is this user; the end comes through [`Connection::on_known`], unless it is
    /// known already that it is not.
    ///
    /// # Errors
    /// Why not.
    fn authenticate(&mut self, user: &[u8], secret: &[u8]) -> Result<(), NotKnown>;
}

/// Settings of a connection beside its own state.
pub struct Environment<'a> {
    /// The limits of each connection.
    pub limits: &'a Limits,
    /// The password of the default user.
    pub password: Option<&'a [u8]>,
    /// Whether every client has to say who it is. Without this and a password, every client is the default user.
    pub requires_auth: bool,
    /// Milliseconds of Unix time, for expiries that name a moment.
    pub unix_ms: i64,
    /// The process around.
    pub host: &'a dyn Told,
    /// Who is told of changes.
    pub broker: &'a RefCell<Broker>,
}

impl Environment<'_> {
    /// Whether this is the secret of the default user.
    fn is_default_secret(&self, secret: &[u8]) -> bool {
        match self.password {
            // The server takes no empty password. It would be what clients show that have none.
            Some(password) => !password.is_empty() && is_same_secret(password, secret),
            None => !self.requires_auth,
        }
    }
}

/// Values that only the process around the connections knows.
pub trait Told {
    /// The text of INFO: of these sections, or the usual ones if none is named. A user with a prefix
    /// is told about how much there is, and nothing of what others do.
    fn info(&self, sections: &[&[u8]], has_prefix: bool) -> String;
    /// A line for each of the other connections that are asked for.
    fn others(&self, is_asked_for: &dyn Fn(&Connection) -> bool) -> String;
    /// Whether there is another connection with this number, which acts as this user.
    fn is_there(&self, id: u64, user: &str) -> bool;
    /// The parameters that CONFIG GET knows.
    fn settings(&self) -> Vec<(&'static str, String)>;
}

/// One client's connection.
#[derive(Debug)]
pub struct Connection {
    profile: Profile,
    standing: Standing,
    input: Input,
    replies: Replies,
    run: Run,
    transaction: Transaction,
    tracker: Tracker,
    subscriptions: Subscriptions,
    life: Life,
    counts: Counts,
}

/// What a connection counts.
#[derive(Default, Debug)]
struct Counts {
    /// Commands that were taken.
    commands: u64,
    /// Reads that found their key, since they were asked for last.
    hits: u64,
    /// Reads that did not.
    misses: u64,
}

/// The next item of the input.
enum Next<'a> {
    Nothing,
    /// Commands for the store.
    Run(Plan<'a>),
    /// A request that is handled here, of so many bytes.
    Local(Vec<&'a [u8]>, usize),
    /// A line of words, of so many bytes.
    Line(usize),
    Broken(ProtocolError),
}

impl Connection {
    /// A new connection of the client at `peer`. `requires_auth`: the client has to give a password or a key first.
    #[must_use]
    pub fn new(id: u64, peer: String, requires_auth: bool, unix_ms: i64) -> Self {
        Self {
            profile: Profile::new(id, peer, unix_ms),
            standing: Standing::new(requires_auth),
            input: Input::default(),
            replies: Replies::default(),
            run: Run::default(),
            transaction: Transaction::default(),
            tracker: Tracker::default(),
            subscriptions: Subscriptions::default(),
            life: Life::default(),
            counts: Counts::default(),
        }
    }

    /// Takes what has arrived.
    pub fn on_bytes(&mut self, bytes: &[u8]) {
        self.input.push(bytes);
    }

    /// The client sends no more; what it sent is still answered.
    pub fn on_end(&mut self) {
        self.input.end();
    }

    /// Whether more bytes should be read now. If not, they stay with the sender until there is room.
    #[must_use]
    pub fn wants_bytes(&self, limits: &Limits) -> bool {
        let room = match self.is_waiting() || self.is_clogged(limits) {
            true => limits.ahead_bytes,
            false => limits.query_bytes,
        };
        self.life.is_open() && !self.input.has_ended() && self.input.ahead() < room
    }

    /// Replies that are to be written.
    #[must_use]
    pub fn output(&self) -> &[u8] {
        self.replies.unread()
    }

    /// Drops so many bytes of output: they were written.
    pub fn on_written(&mut self, count: usize) {
        self.replies.on_written(count);
    }

    /// Bytes of memory that this connection holds.
    #[must_use]
    pub fn held_bytes(&self) -> usize {
        let told = self.tracker.held_bytes() + self.subscriptions.held_bytes();
        let buffers = self.input.held_bytes() + self.replies.capacity();
        size_of::<Self>() + buffers + self.run.held_bytes() + self.transaction.held_bytes() + told
    }

    /// Bytes of memory that its replies take.
    #[must_use]
    pub fn output_capacity(&self) -> usize {
        self.replies.capacity()
    }

    /// Gives back the memory of buffers that are empty.
    pub fn release(&mut self) {
        self.input.release();
        self.replies.release();
    }

    /// Whether all is said and done.
    #[must_use]
    pub fn is_over(&self) -> bool {
        match self.life {
            Life::Open => false,
            Life::Ending(_) => !self.is_waiting() && self.output().is_empty(),
            Life::CutOff(_) => true,
        }
    }

    /// Whether a call is under way.
    #[must_use]
    pub fn is_waiting(&self) -> bool {
        self.run.is_busy()
    }

    /// Whether the client broke the protocol.
    #[must_use]
    pub fn is_broken(&self) -> bool {
        self.life.cause() == Some(Cause::Broken)
    }

    /// Whether a request was one of HTTP. A web page can make a browser send such requests, with commands in them.
    #[must_use]
    pub fn is_attack(&self) -> bool {
        self.life.cause() == Some(Cause::Attack)
    }

    /// The number of the connection, as CLIENT ID tells it.
    #[must_use]
    pub fn id(&self) -> u64 {
        self.profile.id()
    }

    /// The client's address.
    #[must_use]
    pub fn peer(&self) -> &str {
        self.profile.peer()
    }

    /// The name of the user as whom the client acts.
    #[must_use]
    pub fn user(&self) -> &str {
        self.standing.name()
    }

    /// The user of the group as whom the client acts, if it does.
    #[must_use]
    pub fn identity(&self) -> Option<&Identity> {
        self.standing.identity()
    }

    /// Wrong passwords and keys so far.
    #[must_use]
    pub fn auth_failures(&self) -> u64 {
        self.standing.failures()
    }

    /// Commands taken so far.
    #[must_use]
    pub fn commands(&self) -> u64 {
        self.counts.commands
    }

    /// Reads since the last call that found their key, and those that did not.
    pub fn take_lookups(&mut self) -> (u64, u64) {
        let Counts { hits, misses, .. } = &mut self.counts;
        (std::mem::take(hits), std::mem::take(misses))
    }

    /// Replies so far that were errors.
    #[must_use]
    pub fn errors(&self) -> u64 {
        self.replies.errors()
    }

    /// Handles requests until one waits for the store or no more are whole.
    pub fn advance(&mut self, environment: &Environment<'_>, submit: &mut dyn Submit) {
        while self.step(environment, submit) {}
        self.input.compact();
    }

    /// Whether so many replies wait for their reader that no more requests are handled, even if they are complete. Once
    /// they are written, [`Connection::advance`] has to be called again.
    #[must_use]
    pub fn is_clogged(&self, limits: &Limits) -> bool {
        self.output().len() > limits.output_bytes
    }

    /// Handles what comes next; true if there may be more.
    fn step(&mut self, environment: &Environment<'_>, submit: &mut dyn Submit) -> bool {
        if let Some(walk) = self.run.take_walk() {
            self.ask_for_page(walk, submit);
            return true;
        }
        if self.run.is_busy() || !self.life.is_open() || self.is_clogged(environment.limits) {
            return false;
        }
        // The requests are borrowed while the rest of the connection changes.
        let input = self.input.lend();
        let going_on = match self.next(&input, environment) {
            Next::Nothing => {
                self.on_nothing(input.len(), environment.limits);
                false
            }
            Next::Run(plan) => {
                self.submit_plan(plan, submit);
                true
            }
            Next::Local(parts, length) => {
                self.on_local(&parts, length, environment, submit);
                self.input.begin_again();
                true
            }
            Next::Line(length) => {
                self.on_line(length, environment, submit);
                true
            }
            Next::Broken(error) => {
                self.end_broken(&error.to_string());
                false
            }
        };
        self.input.give_back(input);
        going_on
    }

    /// The next commands for the store, as many as fit together, or the next request of another kind.
    fn next<'a>(&mut self, input: &'a [u8], environment: &Environment<'_>) -> Next<'a> {
        let mut plan = Plan::default();
        self.tracker.begin_reads();
        let commands_max = self.run.commands_max(environment.limits.pipeline_commands);
        while plan.command_count() < commands_max
            && plan.operation_count() < RUN_OPERATIONS_MAX
            && self.input.sent() < RUN_BYTES_MAX
        {
            let known = self.standing.is_known();
            let progress = self.input.parse(input, environment.limits, known);
            let length = match progress {
                Ok(Progress::Complete { length }) => length,
                Ok(Progress::Incomplete) if plan.command_count() == 0 => return Next::Nothing,
                Ok(Progress::Incomplete) => break,
                Err(error) if plan.command_count() == 0 => return Next::Broken(error),
                // The parser finds it again when the commands before it are answered.
                Err(_) => {
                    self.input.begin_again();
                    break;
                }
            };
            let parts = self.input.parts(input);
            // No command has more operations than parts. One that has too many together with those before it waits.
            if plan.command_count() > 0 && plan.operation_count() + parts.len() > OPERATIONS_MAX {
                self.input.begin_again();
                break;
            }
            let planned = !self.input.is_line() && self.plan(&mut plan, &parts, environment);
            if planned {
                self.note_planned(&parts, environment);
            }
            if planned || self.input.is_empty_request() {
                self.input.pass(length);
                self.input.begin_again();
                if plan.command_count() == 0 {
                    self.input.on_answered();
                }
                continue;
            }
            if plan.command_count() > 0 {
                self.input.begin_again();
                break;
            }
            return match self.input.is_line() {
                true => Next::Line(length),
                false => Next::Local(parts, length),
            };
        }
        Next::Run(plan)
    }

    /// Adds a command to the plan, if it is one for the store and may be added now.
    fn plan<'a>(
        &self,
        plan: &mut Plan<'a>,
        parts: &[&'a [u8]],
        environment: &Environment<'_>,
    ) -> bool {
        if !self.standing.is_known() || self.transaction.is_open() || self.is_only_subscriber() {
            return false;
        }
        let spec = parts.first().and_then(|name| table::find(name));
        match spec.and_then(|spec| spec.plan(plan, parts, environment.unix_ms)) {
            None => return false,
            Some(Ok(())) => {}
            Some(Err(text)) => plan.add_reply(self.replies.encode_error(&text)),
        }
        true
    }

    /// A command is part of the next call: its reads are noted if the client tracks them.
    fn note_planned(&mut self, parts: &[&[u8]], environment: &Environment<'_>) {
        if self.tracker.is_on()
            && let Some(spec) = parts.first().and_then(|name| table::find(name))
        {
            self.note_reads(spec, parts, environment);
            self.end_caching();
        }
    }

    fn submit_plan(&mut self, plan: Plan<'_>, submit: &mut dyn Submit) {
        self.counts.commands += plan.command_count() as u64;
        self.run.on_commands(plan.command_count());
        let (count, values) = (plan.operation_count(), plan.value_count());
        let (operations, items) = plan.split();
        if count == 0 {
            write_items(&items, &[], &mut self.replies.writer());
            return self.input.on_answered();
        }
        let operations = operations.commands();
        let bytes = self.run.expected_bytes(count, values);
        self.call(&in_one(&operations), bytes, Waiting::Run(items), submit);
    }

    /// Sends a command to the store, whose answer is about so many bytes, and waits for the answer.
    fn call(
        &mut self,
        command: &Command<'_>,
        response_bytes: usize,
        waiting: Waiting,
        submit: &mut dyn Submit,
    ) {
        let call = Call {
            command,
            read_only: command.is_read_only(),
            response_bytes,
            for_user: self.standing.on_behalf(),
        };
        let begun = submit.submit(&call);
        self.wait_for(begun, waiting, call.read_only);
    }

    /// The answer to a call that has begun is awaited. One that could not begin is answered at once.
    fn wait_for(&mut self, begun: Result<(), Failure>, waiting: Waiting, read_only: bool) {
        self.run.begin(waiting, read_only);
        if let Err(failure) = begun {
            self.on_answer(Err(failure));
        }
    }

    /// A request that is handled here, of `length` bytes.
    fn on_local(
        &mut self,
        parts: &[&[u8]],
        length: usize,
        environment: &Environment<'_>,
        submit: &mut dyn Submit,
    ) {
        self.counts.commands += 1;
        self.local(parts, environment, submit);
        if !parts[0].eq_ignore_ascii_case(b"client") {
            self.end_caching();
        }
        self.input.pass(length);
        self.input.on_answered();
    }

    /// A request of `length` bytes that came as a line of words. Its parts are in the parser's memory, so it goes
    /// alone. The input is not rewritten for it: that would move all that was sent ahead once for each line.
    fn on_line(&mut self, length: usize, environment: &Environment<'_>, submit: &mut dyn Submit) {
        let words = self.input.lend_words();
        let parts: Vec<&[u8]> = words.parts(&[]).collect();
        let mut plan = Plan::default();
        if self.plan(&mut plan, &parts, environment) {
            self.note_planned(&parts, environment);
            self.input.pass(length);
            self.submit_plan(plan, submit);
        } else {
            self.on_local(&parts, length, environment, submit);
        }
        self.input.give_back_words(words);
    }

    /// No complete request is there: more has to come, or the connection is at its end.
    fn on_nothing(&mut self, input_bytes: usize, limits: &Limits) {
        if self.input.has_ended() {
            self.life.end(Cause::Farewell);
        } else if input_bytes - self.input.answered() >= limits.query_bytes {
            let limit = limits.query_bytes;
            self.end_broken(&format!("Protocol error: request beyond {limit} bytes"));
        }
    }

    fn end_broken(&mut self, text: &str) {
        self.replies.error(&format!("ERR {text}"));
        self.life.end(Cause::Broken);
    }

    /// Ends the connection, whatever it has not read.
    pub fn cut_off(&mut self) {
        self.life.cut_off();
        self.replies.drop_all();
    }

    /// Whether it was ended because its client did not read what it was sent.
    #[must_use]
    pub fn is_cut_off(&self) -> bool {
        self.life.is_cut_off()
    }
}

#[cfg(test)]
mod tests;
