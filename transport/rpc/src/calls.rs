//! The cells in which futures and the event loop meet: a fixed table, so that a call allocates nothing.
//!
//! ```text
//!   Free -> Queued -> UnderWay -> Done -> Free     the future takes the outcome
//!              \          \
//!               +----------+--> Abandoned -> Free  the future was dropped; the loop cleans up
//! ```

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use super::error::NotSent;
use trine_transport::buf::MsgBuf;
use trine_transport::session::{ConnectError, ConnectRefused, SessionId};
use trine_transport::slab::Key;
use trine_transport::stats::EndpointStats;
use trine_transport::{RequestId, RpcError};

/// All cells of a node.
pub(super) struct Calls {
    cells: Box<[Mutex<Cell>]>,
    free: Mutex<Vec<u32>>,
}

struct Cell {
    /// Tells this use of the cell from earlier ones.
    generation: u32,
    state: CallState,
    /// The waiting task; only while `Queued` or `UnderWay`.
    waker: Option<Waker>,
}

enum CallState {
    Free,
    /// In the inbox.
    Queued,
    /// The loop has begun it.
    UnderWay(UnderWay),
    Done(CallOutcome),
    /// No caller waits for the outcome.
    Abandoned,
}

/// The operation that the loop has begun for a cell.
#[derive(Copy, Clone, Debug, Eq, PartialEq)]
pub(super) enum UnderWay {
    Request(RequestId),
    Session(SessionId),
}

/// How a call ended.
pub(super) enum CallOutcome {
    Response(MsgBuf),
    Failed(RpcError),
    NotSent(NotSent),
    Session(SessionId),
    ConnectRefused(ConnectRefused),
    ConnectFailed(ConnectError),
    Stats(Box<EndpointStats>),
    /// The one who asks is in a forked child. The operation may still go on in its parent.
    OtherProcess,
}

/// Names one use of a cell.
pub(super) type Ticket = Key;

impl Calls {
    pub(super) fn new(limit: usize) -> Self {
        // As many as a 32-bit index names.
        let limit = u32::try_from(limit).unwrap_or(u32::MAX);
        let cell = |_| {
            Mutex::new(Cell {
                generation: 0,
                state: CallState::Free,
                waker: None,
            })
        };
        Self {
            cells: (0..limit).map(cell).collect(),
            free: Mutex::new((0..limit).rev().collect()),
        }
    }

    /// Takes a cell into use; `None` when all are.
    pub(super) fn take(&self) -> Option<Ticket> {
        let index = lock(&self.free).pop()?;
        let mut cell = lock(&self.cells[index as usize]);
        cell.state = CallState::Queued;
        Some(Ticket {
            index,
            generation: cell.generation,
        })
    }

    /// The outcome, once it is there; the cell is free then.
    pub(super) fn poll(&self, ticket: Ticket, context: &mut Context<'_>) -> Poll<CallOutcome> {
        let mut cell = self.cell(ticket);
        debug_assert!(cell.generation == ticket.generation, "polled after its end");
        if matches!(cell.state, CallState::Done(_)) {
            let CallState::Done(outcome) = self.release(ticket, &mut cell) else {
                unreachable!("looked at above")
            };
            return Poll::Ready(outcome);
        }
        match &mut cell.waker {
            Some(waker) => waker.clone_from(context.waker()),
            none => *none = Some(context.waker().clone()),
        }
        Poll::Pending
    }

    /// The future is dropped. The operation that the loop must be told to take back, if it has
    /// begun.
    pub(super) fn abandon(&self, ticket: Ticket) -> Option<UnderWay> {
        let mut cell = self.cell(ticket);
        let mut to_take_back = None;
        // The outcome and the waker are foreign code's: dropped after the lock.
        let (before, waker) = match &cell.state {
            CallState::Done(outcome) => {
                if let CallOutcome::Session(session) = outcome {
                    to_take_back = Some(UnderWay::Session(*session));
                }
                (self.release(ticket, &mut cell), None)
            }
            CallState::Queued | CallState::UnderWay(_) => {
                if let CallState::UnderWay(under_way) = &cell.state {
                    to_take_back = Some(*under_way);
                }
                let before = std::mem::replace(&mut cell.state, CallState::Abandoned);
                (before, cell.waker.take())
            }
            CallState::Free | CallState::Abandoned => unreachable!("a future is dropped once"),
        };
        drop(cell);
        drop((before, waker));
        to_take_back
    }

    /// The loop has begun it. False if no caller waits any more: then it is to be taken back.
    #[must_use]
    pub(super) fn begin(&self, ticket: Ticket, under_way: UnderWay) -> bool {
        let mut cell = self.cell(ticket);
        let is_wanted = matches!(cell.state, CallState::Queued);
        if is_wanted {
            cell.state = CallState::UnderWay(under_way);
        }
        is_wanted
    }

    /// Whether a future waits for it.
    pub(super) fn is_wanted(&self, ticket: Ticket) -> bool {
        !matches!(self.cell(ticket).state, CallState::Abandoned)
    }

    /// The end, told by the loop exactly once. False if no caller waits: the outcome is dropped.
    pub(super) fn complete(&self, ticket: Ticket, outcome: CallOutcome) -> bool {
        let mut cell = self.cell(ticket);
        debug_assert!(cell.generation == ticket.generation, "it ended twice");
        if matches!(cell.state, CallState::Abandoned) {
            self.release(ticket, &mut cell);
            drop(cell);
            drop(outcome);
            return false;
        }
        cell.state = CallState::Done(outcome);
        let waker = cell.waker.take();
        drop(cell);
        if let Some(waker) = waker {
            waker.wake();
        }
        true
    }

    /// The loop is over and will not see this cell.
    pub(super) fn end_queued(&self, ticket: Ticket) {
        let is_queued = matches!(self.cell(ticket).state, CallState::Queued);
        if is_queued {
            self.complete(ticket, CallOutcome::NotSent(NotSent::Stopped));
        }
    }

    /// The loop is over: callers that still wait are told so.
    pub(super) fn end_all(&self) {
        for (index, cell) in self.cells.iter().enumerate() {
            let (generation, outcome) = {
                let cell = lock(cell);
                let outcome = match &cell.state {
                    CallState::Free | CallState::Done(_) => continue,
                    CallState::Queued | CallState::Abandoned => {
                        CallOutcome::NotSent(NotSent::Stopped)
                    }
                    CallState::UnderWay(UnderWay::Request(_)) => {
                        CallOutcome::Failed(RpcError::OutcomeUnknown)
                    }
                    CallState::UnderWay(UnderWay::Session(_)) => {
                        CallOutcome::NotSent(NotSent::Stopped)
                    }
                };
                (cell.generation, outcome)
            };
            // Fits: the table has at most as many cells as an index names.
            let index = index as u32;
            self.complete(Ticket { index, generation }, outcome);
        }
    }

    /// Cells in use.
    #[cfg(test)]
    pub(super) fn used(&self) -> usize {
        self.cells.len() - lock(&self.free).len()
    }

    fn cell(&self, ticket: Ticket) -> MutexGuard<'_, Cell> {
        lock(&self.cells[ticket.index as usize])
    }

    fn release(&self, ticket: Ticket, cell: &mut Cell) -> CallState {
        cell.generation = cell.generation.wrapping_add(1);
        cell.waker = None;
        lock(&self.free).push(ticket.index);
        std::mem::replace(&mut cell.state, CallState::Free)
    }
}

/// A panic in another thread leaves these values whole: they change in single steps.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use trine_transport::backend::{MonotonicClock, RingBackend, RingConfig, RingRoute};
    use trine_transport::session::SessionId;
    use trine_transport::{
        App, Completion, Config, ConnectParams, Cx, Event, EventLoop, Identity, Reply, Request,
    };

    struct Nobody;

    impl App<RingRoute> for Nobody {
        fn on_request(&mut self, _: &mut Cx<'_, RingRoute>, _: Request<'_>) -> Reply {
            Reply::Later
        }

        fn on_event(&mut self, _: &mut Cx<'_, RingRoute>, _: Event<RingRoute>) {}

        fn on_completion(&mut self, _: &mut Cx<'_, RingRoute>, _: u64, _: Completion) {}
    }

    /// Names as an endpoint gives them out: of a session, and of a request that waits for it.
    fn names() -> (SessionId, RequestId) {
        let (ours, theirs) = RingBackend::pair(RingConfig::default());
        let route = theirs.route();
        let (config, identity) = (Config::default(), Identity::default());
        let mut event_loop = EventLoop::new(ours, MonotonicClock, Nobody, config, identity, 1)
            .expect("a good configuration");
        event_loop.with(|_, cx| {
            let session = cx.connect(route, ConnectParams::default()).expect("room");
            let (request, response) = (cx.alloc(1).expect("memory"), cx.alloc(1).expect("memory"));
            let queued = cx.enqueue_request(session, 1, request, response, 0, None);
            (session, queued.expect("the queue is empty"))
        })
    }

    fn poll(calls: &Calls, ticket: Ticket) -> Poll<CallOutcome> {
        calls.poll(ticket, &mut Context::from_waker(Waker::noop()))
    }

    #[test]
    fn a_cell_serves_one_call_after_the_other() {
        let (session, _) = names();
        let calls = Calls::new(1);
        let first = calls.take().expect("one is free");
        assert!(calls.take().is_none());
        assert!(poll(&calls, first).is_pending());
        assert!(calls.begin(first, UnderWay::Session(session)));
        assert!(calls.complete(first, CallOutcome::Session(session)));
        assert!(matches!(
            poll(&calls, first),
            Poll::Ready(CallOutcome::Session(opened)) if opened == session
        ));
        let second = calls.take().expect("it is free again");
        assert_ne!(first, second);
        assert_eq!(Ticket::from_u64(second.to_u64()), second);
    }

    #[test]
    fn a_future_dropped_at_any_moment_frees_its_cell() {
        let (session, _) = names();
        let calls = Calls::new(1);
        // In the inbox: the loop finds out when it begins.
        let ticket = calls.take().expect("free");
        assert_eq!(calls.abandon(ticket), None);
        assert!(!calls.is_wanted(ticket));
        assert!(!calls.begin(ticket, UnderWay::Session(session)));
        assert!(!calls.complete(ticket, CallOutcome::Session(session)));
        assert_eq!(calls.used(), 0);
        // Under way: the loop is told what to take back.
        let ticket = calls.take().expect("free");
        assert!(calls.begin(ticket, UnderWay::Session(session)));
        assert_eq!(calls.abandon(ticket), Some(UnderWay::Session(session)));
        assert_eq!(calls.used(), 1, "the loop still has it");
        calls.complete(ticket, CallOutcome::Failed(RpcError::Cancelled));
        assert_eq!(calls.used(), 0);
        // A session that no caller has taken is closed.
        let ticket = calls.take().expect("free");
        calls.complete(ticket, CallOutcome::Session(session));
        assert_eq!(calls.abandon(ticket), Some(UnderWay::Session(session)));
        // Over: there is nothing left to do.
        let ticket = calls.take().expect("free");
        calls.complete(ticket, CallOutcome::Failed(RpcError::NotSent));
        assert_eq!(calls.abandon(ticket), None);
        assert_eq!(calls.used(), 0);
    }

    #[test]
    fn the_end_tells_everybody_who_waits() {
        let calls = Calls::new(3);
        let (queued, sent) = (calls.take().expect("free"), calls.take().expect("free"));
        let (_, request) = names();
        assert!(calls.begin(sent, UnderWay::Request(request)));
        let dropped = calls.take().expect("free");
        calls.abandon(dropped);
        calls.end_all();
        assert!(matches!(
            poll(&calls, queued),
            Poll::Ready(CallOutcome::NotSent(NotSent::Stopped))
        ));
        assert!(matches!(
            poll(&calls, sent),
            Poll::Ready(CallOutcome::Failed(RpcError::OutcomeUnknown))
        ));
        assert_eq!(calls.used(), 0);
    }
}
