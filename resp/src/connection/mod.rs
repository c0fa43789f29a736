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

mod acl;
mod answer;
mod broker;
mod describe;
mod keyspace;
mod late;
mod local;
mod push;
mod standing;
mod subscribing;
mod tracking;
mod transaction;

use std::cell::RefCell;
use std::collections::BTreeMap;

use trine_kvstore::config::LIST_RESPONSE_BYTES_MAX;
use trine_kvstore::{Command, ExecuteMode, List, Position};

use crate::errors::wrong_arity;
use crate::limits::{Limits, OPERATIONS_MAX, WATCHED_KEY_CHARGE_BYTES};
use crate::plan::{Item, Plan};
use crate::reply::Writer;
use crate::request::{Parser, Progress, ProtocolError};
use crate::table;
use acl::UsersAsked;
use keyspace::Walk;
use standing::{Standing, Then};
use subscribing::Subscriptions;
use tracking::{Options, Tracking};
use transaction::{Settings, Transaction};

/// Bytes of requests that are sent to the store together; a larger single request goes alone.
const RUN_BYTES_MAX: usize = 256 * 1024;
/// Operations of the store that are sent together; a command with more goes alone.
const RUN_OPERATIONS_MAX: usize = 4 * 1024;
/// An idle connection shrinks its buffers to this size.
const RESTING_BYTES_MAX: usize = 64 * 1024;

pub use broker::{Broker, BrokerCounts, Classes, Clients, KeyChange};
use late::Late;
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

/// The store request that the connection waits for.
#[derive(Debug)]
enum Waiting {
    /// The commands of a run.
    Run(Vec<Item>),
    /// A transaction's EXEC. Without the store's consent nothing of it was done: the settings are those before.
    Transaction {
        items: Vec<Item>,
        before: Box<Settings>,
    },
    /// The versions of keys that WATCH named.
    Watch(Vec<Vec<u8>>),
    /// Who the client is.
    Auth(Then),
    /// The users of the group.
    Users(UsersAsked),
    /// A page of the keys.
    Walk(Box<Walk>),
    /// The stream of changes.
    Stream(OnStream),
}

impl Waiting {
    /// Bytes of memory that it holds: replies that are known already, and names.
    fn held_bytes(&self) -> usize {
        let of_names = |names: &[Vec<u8>]| -> usize {
            let of_name = |name: &Vec<u8>| size_of::<Vec<u8>>() + name.capacity();
            names.iter().map(of_name).sum()
        };
        match self {
            Self::Run(items) | Self::Transaction { items, .. } => {
                items.iter().map(Item::held_bytes).sum()
            }
            Self::Watch(keys) => of_names(keys),
            Self::Stream(OnStream::Subscribe { names, .. }) => of_names(names),
            Self::Walk(walk) => walk.held_bytes(),
            Self::Stream(OnStream::Track(options)) => of_names(options.prefixes()),
            Self::Auth(_) | Self::Users(_) => 0,
        }
    }
}

/// What follows once the stream of changes is there.
#[derive(Debug)]
enum OnStream {
    /// CLIENT TRACKING ON.
    Track(Options),
    /// SUBSCRIBE, or PSUBSCRIBE.
    Subscribe { names: Vec<Vec<u8>>, patterns: bool },
}

/// One client's connection.
#[derive(Debug)]
pub struct Connection {
    id: u64,
    peer: String,
    name: Vec<u8>,
    library: [Vec<u8>; 2],
    since_unix_ms: i64,
    resp3: bool,
    /// As whom the client acts.
    standing: Standing,
    input: Vec<u8>,
    /// Where the first unanswered request begins. Never behind `scan`.
    start: usize,
    /// Where the request begins that the parser is in.
    scan: usize,
    parser: Parser,
    output: Vec<u8>,
    /// Bytes of `output` that are written.
    written: usize,
    /// Some exactly while a call is under way, and whether that call only reads.
    waiting: Option<(Waiting, bool)>,
    /// A walk of which another page is to be asked for.
    walk: Option<Box<Walk>>,
    /// About the bytes of a value in the last answer.
    value_bytes: usize,
    /// This many commands are sent one by one.
    alone: usize,
    transaction: Option<Transaction>,
    /// Watched keys with their versions; none for a key that was absent.
    watched: BTreeMap<Vec<u8>, Option<Position>>,
    /// Some while the client tracks keys.
    tracking: Option<Box<Tracking>>,
    subscriptions: Subscriptions,
    /// The last call had no writes.
    has_only_read: bool,
    /// The commands of the last call have to be sent once more.
    repeats: bool,
    /// A WATCH was answered with an error: the next EXEC would not have the conditions that its client expects.
    watch_failed: bool,
    /// No more requests are taken.
    ending: bool,
    /// The client sends no more.
    at_end: bool,
    commands: u64,
    /// Reads that found their key, and those that did not.
    lookups: (u64, u64),
    errors: u64,
    /// Attempts to give a password or a key that was wrong.
    auth_failures: u64,
    broken: bool,
    /// Another protocol was spoken.
    is_attack: bool,
    /// The client has not read what it was sent without asking.
    is_cut_off: bool,
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
            id,
            peer,
            name: Vec::new(),
            library: Default::default(),
            since_unix_ms: unix_ms,
            resp3: false,
            standing: match requires_auth {
                true => Standing::Stranger,
                false => Standing::Default,
            },
            input: Vec::new(),
            start: 0,
            scan: 0,
            parser: Parser::default(),
            output: Vec::new(),
            written: 0,
            waiting: None,
            walk: None,
            value_bytes: 0,
            alone: 0,
            transaction: None,
            watched: BTreeMap::new(),
            tracking: None,
            subscriptions: Subscriptions::default(),
            has_only_read: true,
            repeats: false,
            watch_failed: false,
            ending: false,
            at_end: false,
            commands: 0,
            lookups: (0, 0),
            errors: 0,
            auth_failures: 0,
            broken: false,
            is_attack: false,
            is_cut_off: false,
        }
    }

    /// Takes what has arrived.
    pub fn on_bytes(&mut self, bytes: &[u8]) {
        self.input.extend_from_slice(bytes);
    }

    /// The client sends no more; what it sent is still answered.
    pub fn on_end(&mut self) {
        self.at_end = true;
    }

    /// Whether more bytes should be read now. If not, they stay with the sender until there is room.
    #[must_use]
    pub fn wants_bytes(&self, limits: &Limits) -> bool {
        let room = match self.is_waiting() || self.is_clogged(limits) {
            true => limits.ahead_bytes,
            false => limits.query_bytes,
        };
        !self.ending && !self.at_end && self.input.len() - self.scan < room
    }

    /// Replies that are to be written.
    #[must_use]
    pub fn output(&self) -> &[u8] {
        &self.output[self.written..]
    }

    /// Drops so many bytes of output: they were written.
    pub fn on_written(&mut self, count: usize) {
        self.written += count;
        if self.written == self.output.len() {
            self.output.clear();
            self.output.shrink_to(RESTING_BYTES_MAX);
            self.written = 0;
        } else if self.written > RESTING_BYTES_MAX && self.written >= self.output.len() / 2 {
            // A client that never reads all of its replies would keep all that it has read. At least half is dropped,
            // so no byte is moved more often than once on average.
            self.output.drain(..self.written);
            self.output.shrink_to(2 * self.output.len());
            self.written = 0;
        }
    }

    /// Bytes of memory that this connection holds.
    #[must_use]
    pub fn held_bytes(&self) -> usize {
        let waiting = self.waiting.as_ref();
        let waiting = waiting.map_or(0, |(waiting, _)| waiting.held_bytes());
        let walk = self.walk.as_ref().map_or(0, |walk| walk.held_bytes());
        let queued = self.transaction.as_ref().map_or(0, Transaction::bytes);
        let of_key = |key: &Vec<u8>| key.len() + WATCHED_KEY_CHARGE_BYTES;
        let watched: usize = self.watched.keys().map(of_key).sum();
        let tracking = self.tracking.as_ref();
        let told =
            tracking.map_or(0, |tracking| tracking.held_bytes()) + self.subscriptions.held_bytes();
        let buffers = self.input.capacity() + self.output.capacity() + self.parser.held_bytes();
        size_of::<Self>() + buffers + waiting + walk + queued + watched + told
    }

    /// Bytes of memory that its replies take.
    #[must_use]
    pub fn output_capacity(&self) -> usize {
        self.output.capacity()
    }

    /// Gives back the memory of buffers that are empty.
    pub fn release(&mut self) {
        if self.input.is_empty() {
            self.input = Vec::new();
        }
        if self.output.is_empty() {
            self.output = Vec::new();
        }
    }

    /// Whether all is said and done.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.is_cut_off || self.ending && !self.is_waiting() && self.output().is_empty()
    }

    /// Whether a call is under way.
    #[must_use]
    pub fn is_waiting(&self) -> bool {
        self.waiting.is_some() || self.walk.is_some()
    }

    /// Whether the client broke the protocol.
    #[must_use]
    pub fn is_broken(&self) -> bool {
        self.broken
    }

    /// Whether a request was one of HTTP. A web page can make a browser send such requests, with commands in them.
    #[must_use]
    pub fn is_attack(&self) -> bool {
        self.is_attack
    }

    /// The number of the connection, as CLIENT ID tells it.
    #[must_use]
    pub fn id(&self) -> u64 {
        self.id
    }

    /// The client's address.
    #[must_use]
    pub fn peer(&self) -> &str {
        &self.peer
    }

    /// Commands taken so far.
    #[must_use]
    pub fn commands(&self) -> u64 {
        self.commands
    }

    /// Reads since the last call that found their key, and those that did not.
    pub fn take_lookups(&mut self) -> (u64, u64) {
        std::mem::take(&mut self.lookups)
    }

    /// Replies so far that were errors.
    #[must_use]
    pub fn errors(&self) -> u64 {
        self.errors
    }

    /// Handles requests until one waits for the store or no more are whole.
    pub fn advance(&mut self, environment: &Environment<'_>, submit: &mut dyn Submit) {
        while self.step(environment, submit) {}
        if self.start == self.input.len() {
            self.input.clear();
            self.input.shrink_to(RESTING_BYTES_MAX);
            (self.start, self.scan) = (0, 0);
        } else if self.start > RESTING_BYTES_MAX {
            self.input.drain(..self.start);
            self.scan -= self.start;
            self.start = 0;
        }
    }

    /// Whether so many replies wait for their reader that no more requests are handled, even if they are complete. Once
    /// they are written, [`Connection::advance`] has to be called again.
    #[must_use]
    pub fn is_clogged(&self, limits: &Limits) -> bool {
        self.output().len() > limits.output_bytes
    }

    /// Handles what comes next; true if there may be more.
    fn step(&mut self, environment: &Environment<'_>, submit: &mut dyn Submit) -> bool {
        if self.waiting.is_none()
            && let Some(walk) = self.walk.take()
        {
            self.ask_for_page(walk, submit);
            return true;
        }
        if self.waiting.is_some() || self.ending || self.is_clogged(environment.limits) {
            return false;
        }
        // The requests are borrowed while the rest of the connection changes.
        let input = std::mem::take(&mut self.input);
        let going_on = match self.next(&input, environment) {
            Next::Nothing => self.on_nothing(input.len(), environment.limits),
            Next::Run(plan) => {
                self.run(plan, submit);
                true
            }
            Next::Local(parts, length) => {
                self.on_local(&parts, length, environment, submit);
                self.parser.reset();
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
        self.input = input;
        going_on
    }

    /// The next commands for the store, as many as fit together, or the next request of another kind.
    fn next<'a>(&mut self, input: &'a [u8], environment: &Environment<'_>) -> Next<'a> {
        let mut plan = Plan::default();
        self.begin_reads();
        let commands_max = match self.alone {
            0 => environment.limits.pipeline_commands,
            _ => 1,
        };
        while plan.len() < commands_max
            && plan.operation_count() < RUN_OPERATIONS_MAX
            && self.scan - self.start < RUN_BYTES_MAX
        {
            let request = &input[self.scan..];
            let progress = self
                .parser
                .advance(request, environment.limits, self.is_known());
            let length = match progress {
                Ok(Progress::Complete { length }) => length,
                Ok(Progress::Incomplete) if plan.len() == 0 => return Next::Nothing,
                Ok(Progress::Incomplete) => break,
                Err(error) if plan.len() == 0 => return Next::Broken(error),
                // The parser finds it again when the commands before it are answered.
                Err(_) => {
                    self.parser.reset();
                    break;
                }
            };
            let parts: Vec<&[u8]> = self.parser.slices(request).collect();
            // No command has more operations than parts. One that has too many together with those before it waits.
            if plan.len() > 0 && plan.operation_count() + parts.len() > OPERATIONS_MAX {
                self.parser.reset();
                break;
            }
            let planned = !self.parser.is_line() && self.plan(&mut plan, &parts, environment);
            if planned {
                self.note_planned(&parts, environment);
            }
            if planned || self.parser.is_empty() {
                self.scan += length;
                self.parser.reset();
                if plan.len() == 0 {
                    self.start = self.scan;
                }
                continue;
            }
            if plan.len() > 0 {
                self.parser.reset();
                break;
            }
            return match self.parser.is_line() {
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
        let Some(spec) = parts.first().and_then(|name| table::find(name)) else {
            return false;
        };
        let Some(planner) = spec.planner() else {
            return false;
        };
        if !self.is_known() || self.transaction.is_some() || self.is_only_subscriber() {
            return false;
        }
        let asked = spec.asked(parts, environment.unix_ms);
        let refusal = match spec.takes(parts.len()) {
            true => planner(plan, &asked).err(),
            false => Some(wrong_arity(spec.name)),
        };
        if let Some(text) = refusal {
            plan.add_reply(self.error_bytes(&text));
        }
        true
    }

    /// A command is part of the next call: its reads are noted if the client tracks them.
    fn note_planned(&mut self, parts: &[&[u8]], environment: &Environment<'_>) {
        if self.tracking.is_none() {
            return;
        }
        if let Some(spec) = parts.first().and_then(|name| table::find(name)) {
            let mut broker = environment.broker.borrow_mut();
            self.note_reads(spec, parts, &mut broker);
            self.end_caching();
        }
    }

    fn error_bytes(&self, text: &str) -> Vec<u8> {
        let mut bytes = Vec::new();
        Writer::new(&mut bytes, self.resp3).error(text);
        bytes
    }

    fn run(&mut self, plan: Plan<'_>, submit: &mut dyn Submit) {
        self.commands += plan.len() as u64;
        self.alone = self.alone.saturating_sub(plan.len());
        if plan.operation_count() == 0 {
            self.write_items(&plan.into_items(), &[]);
            self.start = self.scan;
            return;
        }
        let operations = plan.operations();
        let command = match operations.commands.as_slice() {
            [single] => single.clone(),
            several => Command::Execute {
                mode: ExecuteMode::Independent,
                conditions: List::default(),
                operations: List::from(several),
            },
        };
        let call = Call {
            command: &command,
            read_only: operations.read_only,
            response_bytes: self.expected_bytes(plan.operation_count(), plan.value_count()),
            for_user: self.on_behalf(),
        };
        let (begun, read_only) = (submit.submit(&call), call.read_only);
        self.wait_for(begun, Waiting::Run(plan.into_items()), read_only);
    }

    /// The answer to a call that has begun is awaited. One that could not begin is answered at once.
    fn wait_for(&mut self, begun: Result<(), Failure>, waiting: Waiting, read_only: bool) {
        self.waiting = Some((waiting, read_only));
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
        self.commands += 1;
        self.local(parts, environment, submit);
        if !parts[0].eq_ignore_ascii_case(b"client") {
            self.end_caching();
        }
        self.scan += length;
        self.start = self.scan;
    }

    /// A request of `length` bytes that came as a line of words. Its parts are in the parser's memory, so it goes
    /// alone. The input is not rewritten for it: that would move all that was sent ahead once for each line.
    fn on_line(&mut self, length: usize, environment: &Environment<'_>, submit: &mut dyn Submit) {
        let mut parser = std::mem::take(&mut self.parser);
        let parts: Vec<&[u8]> = parser.parts(&[]).collect();
        let mut plan = Plan::default();
        if self.plan(&mut plan, &parts, environment) {
            self.note_planned(&parts, environment);
            self.scan += length;
            self.run(plan, submit);
        } else {
            self.on_local(&parts, length, environment, submit);
        }
        parser.reset();
        self.parser = parser;
    }

    /// No complete request is there: more has to come, or the connection is at its end.
    fn on_nothing(&mut self, input_bytes: usize, limits: &Limits) -> bool {
        if self.at_end {
            self.ending = true;
        } else if input_bytes - self.start >= limits.query_bytes {
            let limit = limits.query_bytes;
            self.end_broken(&format!("Protocol error: request beyond {limit} bytes"));
        }
        false
    }

    fn end_broken(&mut self, text: &str) {
        self.writer().error(&format!("ERR {text}"));
        (self.ending, self.broken) = (true, true);
    }

    /// A guess with room: a response that does not fit costs a second attempt. A connection's values are expected to be
    /// as large as its last ones, so that its large reads are recognized and take turns.
    fn expected_bytes(&self, operations: usize, values: usize) -> usize {
        const EACH: usize = 24;
        const VALUE: usize = 128;
        let value = VALUE.max(self.value_bytes + EACH);
        let others = operations.saturating_sub(values);
        (EACH + values * value + others * EACH).min(LIST_RESPONSE_BYTES_MAX + VALUE)
    }

    fn writer(&mut self) -> Writer<'_> {
        Writer::counting(&mut self.output, self.resp3, &mut self.errors)
    }
}

#[cfg(test)]
mod tests;
