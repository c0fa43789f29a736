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
//!
//! Invariant: requests are answered in the order in which they came, and the input knows which are answered. The commands
//! themselves, and all that they change, belong to the `executor`.

mod broker;
mod executor;
mod input;
mod late;
mod life;
mod profile;
mod replies;
mod run;
mod standing;
mod subscriptions;
mod tracking;
mod transaction;

use std::cell::RefCell;

use trine_commands::answer::Failure;
use trine_commands::limits::OPERATIONS_MAX;
use trine_commands::once::Numbered;
use trine_commands::plan::Plan;
use trine_kvstore::{Command, Position, Response};

use crate::limits::Limits;
use crate::request::{Progress, ProtocolError};
use executor::{Executor, Served};
use input::Input;
use life::{Cause, Life};

/// Bytes of requests that are sent to the store together; a larger single request goes alone.
const RUN_BYTES_MAX: usize = 256 * 1024;
/// Operations of the store that are sent together; a command with more goes alone.
const RUN_OPERATIONS_MAX: usize = 4 * 1024;
/// An idle connection shrinks its buffers to this size.
const RESTING_BYTES_MAX: usize = 64 * 1024;

pub use broker::{Broker, BrokerCounts, Classes, Clients, KeyChange};
pub use standing::{Identity, NotKnown, OnBehalf, is_same_secret};

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
    /// The session that the client has named, and the command's place in it. Of other writes the caller knows better.
    pub numbered: Option<Numbered>,
}

/// Where calls go to.
pub trait Submit {
    /// Begins the call; its end comes through [`Connection::on_answer`], unless it could not even be begun.
    ///
    /// # Errors
    /// Why not.
    fn submit(&mut self, call: &Call<'_>) -> Result<(), Failure>;

    /// Begins to open a session for this user, or for nobody; the client id is the position of the answer. Returns the
    /// number of the session.
    ///
    /// # Errors
    /// Why not.
    fn open_session(&mut self, for_user: Option<OnBehalf>) -> Result<u64, Failure>;

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
    input: Input,
    executor: Executor,
}

/// The next item of the input.
enum NextItem<'a> {
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
            input: Input::default(),
            executor: Executor::new(id, peer, requires_auth, unix_ms),
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
        self.executor.life().is_open() && !self.input.has_ended() && self.input.ahead() < room
    }

    /// Replies that are to be written.
    #[must_use]
    pub fn output(&self) -> &[u8] {
        self.executor.replies().unread()
    }

    /// Drops so many bytes of output: they were written.
    pub fn on_written(&mut self, count: usize) {
        self.executor.replies_mut().on_written(count);
    }

    /// Bytes of memory that this connection holds.
    #[must_use]
    pub fn held_bytes(&self) -> usize {
        size_of::<Self>() + self.input.held_bytes() + self.executor.held_bytes()
    }

    /// Bytes of memory that its replies take.
    #[must_use]
    pub fn output_capacity(&self) -> usize {
        self.executor.replies().capacity()
    }

    /// Gives back the memory of buffers that are empty.
    pub fn release(&mut self) {
        self.input.release();
        self.executor.replies_mut().release();
    }

    /// Whether all is said and done.
    #[must_use]
    pub fn is_over(&self) -> bool {
        match self.executor.life() {
            Life::Open => false,
            Life::Ending(_) => !self.is_waiting() && self.output().is_empty(),
            Life::CutOff(_) => true,
        }
    }

    /// Whether a call is under way.
    #[must_use]
    pub fn is_waiting(&self) -> bool {
        self.executor.is_busy()
    }

    /// Whether the client broke the protocol.
    #[must_use]
    pub fn is_broken(&self) -> bool {
        self.executor.life().cause() == Some(Cause::Broken)
    }

    /// Whether a request was one of HTTP. A web page can make a browser send such requests, with commands in them.
    #[must_use]
    pub fn is_attack(&self) -> bool {
        self.executor.life().cause() == Some(Cause::Attack)
    }

    /// The number of the connection, as CLIENT ID tells it.
    #[must_use]
    pub fn id(&self) -> u64 {
        self.executor.profile().id()
    }

    /// The client's address.
    #[must_use]
    pub fn peer(&self) -> &str {
        self.executor.profile().peer()
    }

    /// The name of the user as whom the client acts.
    #[must_use]
    pub fn user(&self) -> &str {
        self.executor.standing().name()
    }

    /// The user of the group as whom the client acts, if it does.
    #[must_use]
    pub fn identity(&self) -> Option<&Identity> {
        self.executor.standing().identity()
    }

    /// Wrong passwords and keys so far.
    #[must_use]
    pub fn auth_failures(&self) -> u64 {
        self.executor.standing().failures()
    }

    /// Commands taken so far.
    #[must_use]
    pub fn commands(&self) -> u64 {
        self.executor.commands()
    }

    /// Reads since the last call that found their key, and those that did not.
    pub fn take_lookups(&mut self) -> (u64, u64) {
        self.executor.take_lookups()
    }

    /// Replies so far that were errors.
    #[must_use]
    pub fn errors(&self) -> u64 {
        self.executor.replies().errors()
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
        if self.executor.go_on(submit) {
            return true;
        }
        if self.is_waiting()
            || !self.executor.life().is_open()
            || self.is_clogged(environment.limits)
        {
            return false;
        }
        // The requests are borrowed while the rest of the connection changes.
        let input = self.input.lend();
        let going_on = match self.next(&input, environment) {
            NextItem::Nothing => {
                self.on_nothing(input.len(), environment.limits);
                false
            }
            NextItem::Run(plan) => {
                let served = self.executor.submit_plan(plan, submit);
                self.on_served(served);
                true
            }
            NextItem::Local(parts, length) => {
                self.on_local(&parts, length, environment, submit);
                self.input.begin_again();
                true
            }
            NextItem::Line(length) => {
                self.on_line(length, environment, submit);
                true
            }
            NextItem::Broken(error) => {
                self.executor.end_broken(&error.to_string());
                false
            }
        };
        self.input.give_back(input);
        going_on
    }

    /// The next commands for the store, as many as fit together, or the next request of another kind.
    fn next<'a>(&mut self, input: &'a [u8], environment: &Environment<'_>) -> NextItem<'a> {
        let mut plan = Plan::default();
        let commands_max = self.executor.begin_plan(environment.limits);
        while plan.command_count() < commands_max
            && plan.operation_count() < RUN_OPERATIONS_MAX
            && !plan.is_closed()
            && self.input.sent() < RUN_BYTES_MAX
        {
            let known = self.executor.standing().is_known();
            let progress = self.input.parse(input, environment.limits, known);
            let length = match progress {
                Ok(Progress::Complete { length }) => length,
                Ok(Progress::Incomplete) if plan.command_count() == 0 => return NextItem::Nothing,
                Ok(Progress::Incomplete) => break,
                Err(error) if plan.command_count() == 0 => return NextItem::Broken(error),
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
            let planned =
                !self.input.is_line() && self.executor.plan(&mut plan, &parts, environment);
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
                true => NextItem::Line(length),
                false => NextItem::Local(parts, length),
            };
        }
        NextItem::Run(plan)
    }

    /// A request that is handled here, of `length` bytes.
    fn on_local(
        &mut self,
        parts: &[&[u8]],
        length: usize,
        environment: &Environment<'_>,
        submit: &mut dyn Submit,
    ) {
        self.executor.execute(parts, environment, submit);
        self.input.pass(length);
        self.input.on_answered();
    }

    /// A request of `length` bytes that came as a line of words. Its parts are in the parser's memory, so it goes
    /// alone. The input is not rewritten for it: that would move all that was sent ahead once for each line.
    fn on_line(&mut self, length: usize, environment: &Environment<'_>, submit: &mut dyn Submit) {
        let words = self.input.lend_words();
        let parts: Vec<&[u8]> = words.parts(&[]).collect();
        let mut plan = Plan::default();
        if self.executor.plan(&mut plan, &parts, environment) {
            self.input.pass(length);
            let served = self.executor.submit_plan(plan, submit);
            self.on_served(served);
        } else {
            self.on_local(&parts, length, environment, submit);
        }
        self.input.give_back_words(words);
    }

    /// No complete request is there: more has to come, or the connection is at its end.
    fn on_nothing(&mut self, input_bytes: usize, limits: &Limits) {
        if self.input.has_ended() {
            self.executor.end();
        } else if input_bytes - self.input.answered() >= limits.query_bytes {
            let limit = limits.query_bytes;
            self.executor
                .end_broken(&format!("Protocol error: request beyond {limit} bytes"));
        }
    }

    /// Ends the connection, whatever it has not read.
    pub fn cut_off(&mut self) {
        self.executor.cut_off();
    }

    /// Whether it was ended because its client did not read what it was sent.
    #[must_use]
    pub fn is_cut_off(&self) -> bool {
        self.executor.life().is_cut_off()
    }

    /// The call that was under way is over. `position`: where it was applied, or what it has seen; of a session its client
    /// id.
    pub fn on_answer(&mut self, position: Position, result: Result<Response<'_>, Failure>) {
        let served = self.executor.on_answer(position, result);
        self.on_served(served);
    }

    /// It is known who the client is, or why not.
    pub fn on_known(&mut self, result: Result<Identity, NotKnown>) {
        self.executor.on_known(result);
    }

    /// What has become of the requests that were parsed.
    fn on_served(&mut self, served: Served) {
        match served {
            Served::Answered => self.input.on_answered(),
            Served::Waiting => {}
            Served::Split => self.input.reread(),
        }
    }

    /// The client hears of nothing any more.
    pub fn leave(&mut self, broker: &mut Broker) {
        self.executor.leave(broker);
    }

    /// Whether the client is told of keys without asking.
    #[must_use]
    pub fn is_listening(&self) -> bool {
        self.executor.is_listening()
    }

    /// The line of CLIENT LIST.
    #[must_use]
    pub fn describe(&self, unix_ms: i64) -> String {
        let (unanswered, held) = (self.input.unanswered(), self.input.held_bytes());
        self.executor.describe(unix_ms, unanswered, held)
    }

    /// Who is told by the broker.
    fn executor(&mut self) -> &mut Executor {
        &mut self.executor
    }
}

#[cfg(test)]
mod tests;
