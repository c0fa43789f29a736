//! The kinds of programs in a cluster: replicas, machines full of clients, and operators who give one command each.

use super::callers::Callers;
use super::disk::SimQueue;
use super::{Host, Program};
use crate::checker::log_agreement::LogAgreement;
use std::cell::RefCell;
use std::rc::Rc;
use trine_client::AdminClient;
use trine_replica::Node;
use trine_transport::app::{App, Completion, Cx, Reply, Request};
use trine_transport::session::{Event, Holder};
use trine_transport::time::Instant;

pub(crate) enum Member {
    Replica(Box<Observed>),
    Callers(Box<Callers>),
    Operator(Box<AdminClient<Host>>),
}

/// A replica whose state is compared with the others' after each of its turns.
pub(crate) struct Observed {
    pub(crate) node: Node<Host>,
    log: Rc<RefCell<Agreement>>,
    applied: u64,
    pub(crate) stopping: bool,
    /// The disk's side of the node's writes, in disk mode.
    queue: Option<SimQueue>,
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
        queue: Option<SimQueue>,
    ) -> Self {
        Self {
            node,
            log,
            applied: 0,
            stopping: false,
            queue,
        }
    }

    pub(crate) fn stop(&mut self, now: Instant) {
        self.stopping = true;
        self.node.replica_mut().stop(now);
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
        // Entries that a snapshot has replaced are in no log here; the state behind them is compared.
        for index in self.applied + 1..=applied {
            if let Some((term, digest)) = replica.entry_digest(index) {
                log.entries.observe_entry(incarnation, index, term, digest);
            }
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
            Member::Callers(_) | Member::Operator(_) => None,
        }
    }

    pub(crate) fn callers_mut(&mut self) -> Option<&mut Callers> {
        match self {
            Member::Replica(_) | Member::Operator(_) => None,
            Member::Callers(callers) => Some(callers),
        }
    }
}

impl App<Host> for Member {
    fn on_request(&mut self, cx: &mut Cx<'_, Host>, request: Request<'_>) -> Reply {
        match self {
            Member::Replica(observed) => observed.node.on_request(cx, request),
            Member::Callers(callers) => callers.clients.on_request(cx, request),
            Member::Operator(giver) => giver.on_request(cx, request),
        }
    }

    fn on_completion(&mut self, cx: &mut Cx<'_, Host>, tag: u64, completion: Completion) {
        match self {
            Member::Replica(observed) => observed.node.on_completion(cx, tag, completion),
            Member::Callers(callers) => callers.clients.on_completion(cx, tag, completion),
            Member::Operator(giver) => giver.on_completion(cx, tag, completion),
        }
    }

    fn on_event(&mut self, cx: &mut Cx<'_, Host>, event: Event<Host>) {
        match self {
            Member::Replica(observed) => observed.node.on_event(cx, event),
            Member::Callers(callers) => callers.clients.on_event(cx, event),
            Member::Operator(giver) => giver.on_event(cx, event),
        }
    }

    fn on_turn(&mut self, cx: &mut Cx<'_, Host>) {
        match self {
            Member::Replica(observed) => observed.node.on_turn(cx),
            Member::Callers(callers) => callers.clients.on_turn(cx),
            Member::Operator(giver) => giver.on_turn(cx),
        }
    }

    fn holder(&self, host: &Host) -> Holder {
        match self {
            Member::Replica(observed) => observed.node.holder(host),
            Member::Callers(_) | Member::Operator(_) => Holder::Shared,
        }
    }

    fn next_timeout(&self) -> Option<Instant> {
        match self {
            Member::Replica(observed) => observed.node.next_timeout(),
            Member::Callers(callers) => callers.clients.next_timeout(),
            Member::Operator(giver) => giver.next_timeout(),
        }
    }
}

impl Program for Member {
    fn before_turn(&mut self, now: Instant, simulated: Instant) {
        match self {
            Member::Operator(_) => {}
            Member::Callers(callers) => callers.call(now, simulated),
            Member::Replica(observed) => {
                if let Some(queue) = &observed.queue {
                    queue.end_batch(simulated);
                }
            }
        }
    }

    fn after_turn(&mut self, _now: Instant, simulated: Instant) {
        match self {
            Member::Replica(observed) => {
                observed.observe();
                if let Some(queue) = &observed.queue {
                    queue.begin_batch(simulated);
                }
            }
            Member::Callers(callers) => callers.collect(simulated),
            Member::Operator(_) => {}
        }
    }

    fn take_notes(&mut self) -> Vec<String> {
        match self {
            Member::Callers(callers) => callers.take_notes(),
            Member::Replica(_) | Member::Operator(_) => Vec::new(),
        }
    }

    fn next_call(&self) -> Option<Instant> {
        match self {
            Member::Replica(observed) => observed.queue.as_ref().and_then(SimQueue::due),
            Member::Operator(_) => None,
            Member::Callers(callers) => callers.next_call(),
        }
    }
}
