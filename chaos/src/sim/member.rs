//! The kinds of programs in a cluster: replicas, machines full of clients, operators who give one command each, users and
//! who administrates them, watchers, and who takes backups.

use super::backups::{BackingUp, Ledger as BackupLedger};
use super::bursts::{Rest, SweepLedger};
use super::callers::Callers;
use super::deaths::DeathLedger;
use super::disk::SimQueue;
use super::keeper::Keeper;
use super::trust::Ledger;
use super::users::User;
use super::watchers::{Ledger as WatchLedger, Watching};
use super::{Host, Program};
use crate::checker::log_agreement::LogAgreement;
use crate::checker::seats::{Log, Seats, Seen};
use std::cell::RefCell;
use std::rc::Rc;
use trine_client::AdminClient;
use trine_keys::Credential;
use trine_kvstore::{Position, Users};
use trine_replica::{Halt, Node, Replica};
use trine_transport::app::{App, Completion, Cx, Reply, Request};
use trine_transport::endpoint::Endpoint;
use trine_transport::keys::KeyId;
use trine_transport::session::{Event, Holder, SessionId};
use trine_transport::time::Instant;

pub(crate) enum Member {
    Replica(Box<Observed>),
    Callers(Box<Callers>),
    Operator(Box<AdminClient<Host>>),
    Keeper(Box<Keeper>),
    User(Box<User>),
    Watching(Box<Watching>),
    BackingUp(Box<BackingUp>),
}

/// What all replicas together are judged by.
#[derive(Default)]
pub(crate) struct Judges {
    pub(crate) deaths: Rc<RefCell<DeathLedger>>,
    pub(crate) seats: Rc<RefCell<Seats>>,
    pub(crate) sweeps: Rc<RefCell<SweepLedger>>,
}

/// A replica whose state is compared with the others' after each of its turns.
pub(crate) struct Observed {
    pub(crate) node: Node<Host>,
    log: Rc<RefCell<Agreement>>,
    judges: Judges,
    /// The members that it knew behind the last turn, and whether it had halted.
    knew: (u64, bool),
    /// The term in which it led, and the elections that it had begun for a death, behind the last turn.
    seen: (Option<u64>, u64),
    applied: u64,
    rest: Rest,
    pub(crate) stopping: bool,
    /// The disk's side of the node's writes, in disk mode.
    queue: Option<SimQueue>,
    /// Whether the sessions of users end whose keys are void, if there are keys.
    pub(crate) revocations: Option<Revocations>,
    /// The log that watchers are compared with, if there are any.
    pub(crate) watched: Option<Rc<RefCell<WatchLedger>>>,
    /// The log that backups are compared with, if there are any.
    pub(crate) backed_up: Option<Rc<RefCell<BackupLedger>>>,
}

/// The sessions that users had when a replica was looked at last.
pub(crate) struct Revocations {
    ledger: Rc<RefCell<Ledger>>,
    sessions: Vec<(SessionId, KeyId)>,
    changed_at: Option<Position>,
}

impl Revocations {
    pub(crate) fn new(ledger: Rc<RefCell<Ledger>>) -> Self {
        Self {
            ledger,
            sessions: Vec::new(),
            changed_at: None,
        }
    }

    /// A session that was there before the table changed must be gone behind that turn, if its key does not count any
    /// more. One that begins later is told so with each call.
    fn look(&mut self, replica: &Replica, endpoint: &Endpoint<Host>) {
        let changed_at = replica.users().map(Users::changed_at);
        if changed_at.is_some() && changed_at != self.changed_at {
            self.changed_at = changed_at;
            for (session, key) in &self.sessions {
                let Some(Credential::User { name, generation }) = Credential::parse(key) else {
                    continue;
                };
                if replica.is_current(name, generation).is_none()
                    && endpoint.key(*session) == Some(*key)
                {
                    let incarnation = replica.incarnation().0;
                    self.ledger.borrow_mut().blame(format!(
                        "trust: replica {incarnation:x} serves a session of a removed user: it has applied that generation {generation} of {name} is void"
                    ));
                }
            }
        }
        self.sessions.clear();
        self.sessions.extend(endpoint.sealed_sessions());
    }
}

/// The states in which replicas are compared: the entry at every index, and the store at every index at which a turn
/// ended. Everything else costs more to hash, and is compared at some.
#[derive(Default)]
pub(crate) struct Agreement {
    pub(crate) entries: LogAgreement,
    pub(crate) stores: LogAgreement,
    pub(crate) states: LogAgreement,
    /// The first index at which whole states are compared again.
    next_whole: u64,
}

/// One in this many indexes has the whole state compared.
const WHOLE_STATE_EVERY: u64 = 32;
/// And one in more, if there is much to compare: this many bytes an index on average.
const WHOLE_STATE_BYTES: u64 = 512;

impl Agreement {
    /// Whether a replica that has applied `applied` shows its whole state. All of them do at the same indexes: the
    /// first one to get there decides by the cost of hashing its state.
    fn wants_whole(&mut self, applied: u64, bytes: impl FnOnce() -> u64) -> bool {
        if !applied.is_multiple_of(WHOLE_STATE_EVERY) {
            return false;
        }
        if self.states.knows_state(applied) {
            return true;
        }
        if applied < self.next_whole {
            return false;
        }
        self.next_whole = applied + bytes() / WHOLE_STATE_BYTES;
        true
    }
}

impl Observed {
    pub(crate) fn new(
        node: Node<Host>,
        log: Rc<RefCell<Agreement>>,
        judges: Judges,
        queue: Option<SimQueue>,
    ) -> Self {
        Self {
            node,
            log,
            judges,
            knew: (0, false),
            seen: (None, 0),
            applied: 0,
            rest: Rest::default(),
            stopping: false,
            queue,
            revocations: None,
            watched: None,
            backed_up: None,
        }
    }

    pub(crate) fn replica_mut(&mut self) -> &mut Replica {
        self.node.replica_mut()
    }

    pub(crate) fn stop(&mut self, now: Instant) {
        self.stopping = true;
        self.node.replica_mut().stop(now);
    }

    /// Before what it has answered meanwhile can arrive anywhere.
    fn note_applied(&mut self, simulated: Instant) {
        if self.watched.is_none() && self.backed_up.is_none() {
            return;
        }
        let entries = self.node.replica_mut().take_applied();
        let begin = || self.node.replica().replay();
        if let Some(watched) = &self.watched {
            let now_ns = simulated.as_nanos();
            watched.borrow_mut().changes.note(&entries, begin, now_ns);
        }
        if let Some(backed_up) = &self.backed_up {
            backed_up.borrow_mut().reference.note(&entries, begin);
        }
    }

    fn observe_deaths(&mut self) {
        let replica = self.node.replica();
        let now = (replica.leads_in(), replica.counters().leader_deaths);
        let before = std::mem::replace(&mut self.seen, now);
        if now == before {
            return;
        }
        let own = replica.incarnation();
        let mut ledger = self.judges.deaths.borrow_mut();
        ledger.note_role(own, now.0);
        if let (Some((leader, term)), true) = (replica.last_death(), now.1 != before.1) {
            ledger.note_death(own, leader, term);
        }
    }

    fn observe_seats(&mut self) {
        let replica = self.node.replica();
        let own = replica.incarnation();
        let mut seats = self.judges.seats.borrow_mut();
        if replica.leads_without_vote() {
            seats.note_leader_without_vote(own);
        }
        let log = Log {
            end: replica.log_end(),
            votes_from: replica.least_log_voted_for(),
            unapplied: replica.has_unapplied(),
        };
        let knows = (replica.members_digest(), replica.halted().is_some());
        if knows == std::mem::replace(&mut self.knew, knows) {
            return seats.note_log(own, log);
        }
        let removed = matches!(replica.halted(), Some(Halt::Removed { .. }));
        if replica.halted().is_some() && !removed {
            return seats.note_crash(own);
        }
        let seen = Seen {
            replica: own,
            sides: replica.voter_sides(),
            members: &replica.discovery().members.0,
            applied: replica.applied_state().map_or(0, |(applied, _)| applied),
            answers: !removed,
        };
        seats.note_change(&seen, log);
    }

    fn observe(&mut self) {
        let replica = self.node.replica();
        let Some((applied, hash)) = replica.applied_state() else {
            return;
        };
        if applied == self.applied {
            return;
        }
        let incarnation = replica.incarnation().0;
        let mut log = self.log.borrow_mut();
        // Entries that a snapshot has replaced are in no log here; the state behind them is compared. There may be as many as
        // a restored group leaves out.
        let digest_of = |index| Some((index, replica.entry_digest(index)?));
        let entries = (self.applied + 1..=applied).rev().map_while(digest_of);
        let entries: Vec<_> = entries.collect();
        for (index, (term, digest)) in entries.into_iter().rev() {
            log.entries.observe_entry(incarnation, index, term, digest);
        }
        self.applied = applied;
        log.stores.observe_state(incarnation, applied, hash);
        if log.wants_whole(applied, || replica.state_digest_bytes())
            && let Some((applied, digest)) = replica.state_digest()
        {
            log.states.observe_state(incarnation, applied, digest);
        }
    }
}

impl Member {
    pub(crate) fn replica(&self) -> Option<&Node<Host>> {
        match self {
            Member::Replica(observed) => Some(&observed.node),
            _ => None,
        }
    }

    pub(crate) fn callers_mut(&mut self) -> Option<&mut Callers> {
        match self {
            Member::Callers(callers) => Some(callers),
            _ => None,
        }
    }
}

impl App<Host> for Member {
    fn on_request(&mut self, cx: &mut Cx<'_, Host>, request: Request<'_>) -> Reply {
        match self {
            Member::Replica(observed) => observed.node.on_request(cx, request),
            Member::Callers(callers) => callers.clients.on_request(cx, request),
            Member::Operator(giver) => giver.on_request(cx, request),
            Member::Keeper(keeper) => keeper.clients.on_request(cx, request),
            Member::User(user) => user.clients.on_request(cx, request),
            Member::Watching(watching) => watching.on_request(cx, request),
            Member::BackingUp(process) => process.on_request(cx, request),
        }
    }

    fn on_completion(&mut self, cx: &mut Cx<'_, Host>, tag: u64, completion: Completion) {
        match self {
            Member::Replica(observed) => observed.node.on_completion(cx, tag, completion),
            Member::Callers(callers) => callers.clients.on_completion(cx, tag, completion),
            Member::Operator(giver) => giver.on_completion(cx, tag, completion),
            Member::Keeper(keeper) => keeper.clients.on_completion(cx, tag, completion),
            Member::User(user) => user.clients.on_completion(cx, tag, completion),
            Member::Watching(watching) => watching.on_completion(cx, tag, completion),
            Member::BackingUp(process) => process.on_completion(cx, tag, completion),
        }
    }

    fn on_event(&mut self, cx: &mut Cx<'_, Host>, event: Event<Host>) {
        match self {
            Member::Replica(observed) => observed.node.on_event(cx, event),
            Member::Callers(callers) => callers.clients.on_event(cx, event),
            Member::Operator(giver) => giver.on_event(cx, event),
            Member::Keeper(keeper) => keeper.clients.on_event(cx, event),
            Member::User(user) => user.clients.on_event(cx, event),
            Member::Watching(watching) => watching.on_event(cx, event),
            Member::BackingUp(process) => process.on_event(cx, event),
        }
    }

    fn on_notice(&mut self, cx: &mut Cx<'_, Host>, kind: u8, body: &[u8]) -> bool {
        match self {
            Member::Replica(observed) => observed.node.on_notice(cx, kind, body),
            _ => false,
        }
    }

    fn on_turn(&mut self, cx: &mut Cx<'_, Host>) {
        match self {
            Member::Replica(observed) => observed.node.on_turn(cx),
            Member::Callers(callers) => callers.clients.on_turn(cx),
            Member::Operator(giver) => giver.on_turn(cx),
            Member::Keeper(keeper) => keeper.clients.on_turn(cx),
            Member::User(user) => user.clients.on_turn(cx),
            Member::Watching(watching) => watching.on_turn(cx),
            Member::BackingUp(process) => process.on_turn(cx),
        }
    }

    fn holder(&self, host: &Host) -> Holder {
        match self {
            Member::Replica(observed) => observed.node.holder(host),
            _ => Holder::Shared,
        }
    }

    fn next_timeout(&self) -> Option<Instant> {
        match self {
            Member::Replica(observed) => observed.node.next_timeout(),
            Member::Callers(callers) => callers.clients.next_timeout(),
            Member::Operator(giver) => giver.next_timeout(),
            Member::Keeper(keeper) => keeper.clients.next_timeout(),
            Member::User(user) => user.clients.next_timeout(),
            Member::Watching(watching) => watching.next_timeout(),
            Member::BackingUp(process) => process.next_timeout(),
        }
    }
}

impl Program for Member {
    fn look_at_sessions(&mut self, endpoint: &Endpoint<Host>) {
        if let Member::Replica(observed) = self
            && let Some(revocations) = &mut observed.revocations
        {
            revocations.look(observed.node.replica(), endpoint);
        }
    }

    fn before_turn(&mut self, now: Instant, simulated: Instant) {
        match self {
            Member::Operator(_) => {}
            Member::Callers(callers) => callers.call(now, simulated),
            Member::Keeper(keeper) => keeper.call(now, simulated),
            Member::User(user) => user.call(now, simulated),
            Member::Watching(watching) => watching.look_at_the_time(simulated),
            Member::BackingUp(process) => process.call(now, simulated),
            Member::Replica(observed) => {
                if let Some(queue) = &observed.queue {
                    queue.end_batch(simulated);
                }
            }
        }
    }

    fn after_turn(&mut self, now: Instant, simulated: Instant) {
        match self {
            Member::Replica(observed) => {
                observed.note_applied(simulated);
                observed.observe();
                observed.observe_deaths();
                observed.observe_seats();
                let mut sweeps = observed.judges.sweeps.borrow_mut();
                let replica = observed.node.replica();
                observed.rest.look(replica, simulated, &mut sweeps);
                if let Some(queue) = &observed.queue {
                    queue.begin_batch(simulated);
                }
            }
            Member::Callers(callers) => callers.collect(simulated),
            Member::Keeper(keeper) => keeper.collect(simulated),
            Member::User(user) => user.collect(),
            Member::Watching(watching) => watching.collect(now, simulated),
            Member::BackingUp(process) => process.collect(simulated),
            Member::Operator(_) => {}
        }
    }

    fn take_notes(&mut self) -> Vec<String> {
        match self {
            Member::Callers(callers) => callers.take_notes(),
            Member::Watching(watching) => watching.take_notes(),
            Member::BackingUp(process) => process.take_notes(),
            _ => Vec::new(),
        }
    }

    fn next_call(&self) -> Option<Instant> {
        match self {
            Member::Replica(observed) => observed.queue.as_ref().and_then(SimQueue::due),
            Member::Operator(_) => None,
            Member::Keeper(keeper) => keeper.next_call(),
            Member::User(user) => user.next_call(),
            Member::Watching(watching) => watching.next_call(),
            Member::BackingUp(process) => process.next_call(),
            Member::Callers(callers) => callers.next_call(),
        }
    }
}
