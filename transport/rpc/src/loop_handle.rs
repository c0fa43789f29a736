//! The state that futures, handlers and the event loop of one node share.

use std::sync::Arc;

use super::calls::{Calls, Ticket, UnderWay};
use trine_transport::ResponseHandle;
use trine_transport::backend::{Route, Waker};
use trine_transport::buf::{MsgBuf, Pool};
use trine_transport::inbox::Inbox;
use trine_transport::session::{ConnectParams, SessionId};
use trine_transport::slab::Key;
use trine_transport::time::Instant;

/// What threads and event loop share. The inbox is bounded by its sources: a cell has at most two commands under
/// way, a session's handle one, a received request one, a task one.
pub(super) struct LoopHandle<R: Route> {
    pub(super) inbox: Inbox<LoopRequest<R>>,
    pub(super) calls: Calls,
    pub(super) pool: Pool,
}

/// The requests to the loop.
pub(super) enum LoopRequest<R> {
    Call(Submission),
    Connect(Ticket, R, ConnectParams),
    TakeBack(UnderWay),
    Disconnect(SessionId),
    /// A late response; `None` if there was no memory even for a status.
    Respond(ResponseHandle, Option<MsgBuf>),
    /// A task wants to be polled.
    Poll(Key),
    Stats(Ticket),
}

/// A call on its way into the loop.
pub(super) struct Submission {
    pub(super) ticket: Ticket,
    pub(super) session: SessionId,
    pub(super) kind: u8,
    pub(super) request: MsgBuf,
    pub(super) response: MsgBuf,
    pub(super) deadline: Option<Instant>,
}

impl<R: Route> LoopHandle<R> {
    pub(super) fn new(calls: usize, pool: Pool, waker: Waker) -> Arc<Self> {
        Arc::new(Self {
            inbox: Inbox::new(2 * calls, waker),
            calls: Calls::new(calls),
            pool,
        })
    }

    /// No thread drives the loop any more: all callers that wait are told so.
    pub(super) fn end(&self) {
        // A handler forked in the loop's thread: the callers are the parent's.
        if !self.inbox.is_here() {
            return;
        }
        let left = self.inbox.close();
        self.calls.end_all();
        drop(left);
    }

    /// A future is dropped before its end.
    pub(super) fn abandon(&self, ticket: Ticket) {
        // A cell's lock may be held for ever in a forked child.
        if !self.inbox.is_here() {
            return;
        }
        if let Some(under_way) = self.calls.abandon(ticket) {
            // A loop that is over has ended it already.
            let _ = self.inbox.push(LoopRequest::TakeBack(under_way));
        }
    }
}
