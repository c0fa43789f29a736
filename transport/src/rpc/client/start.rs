//! A request begins in a slot or in the session's queue. Its caller may cancel it.

use super::request::{ClientRequest, NO_REQUEST, NewRequest, RequestStage};
use super::{ClientEnd, Requests};
use crate::backend::Route;
use crate::exchange::{RequestId, RpcError};
use crate::rpc::{FastPath, Memory};
use crate::session::peer::SessionPeer;
use crate::session::terms::Terms;
use crate::stats::EndpointStats;
use crate::time::Instant;

impl ClientEnd {
    /// Whether a new request gets a slot at once.
    #[inline(always)]
    pub(crate) fn can_start(&self) -> bool {
        self.slots.has_free() && self.queue.is_empty()
    }

    /// Gives a new request a slot. Its packet is written at once if it may go.
    #[inline(always)]
    pub(crate) fn start_new<R: Route>(
        &mut self,
        now: Instant,
        to: &SessionPeer<R>,
        new: NewRequest,
        requests: &mut Requests,
        fast_path: &mut FastPath<R>,
    ) -> RequestId {
        let (id, request) = requests.table.insert(to.index, new);
        self.start(id.index, request, &to.terms);
        let is_sent = self.send_single(now, to, request, fast_path);
        let due = request.due();
        if !is_sent {
            self.mark_ready(to.index, requests);
        }
        requests.table.watch_at(id.index, due);
        id
    }

    /// Queues a new request for a slot.
    pub(crate) fn queue_new(
        &mut self,
        session: u16,
        new: NewRequest,
        requests: &mut Requests,
    ) -> RequestId {
        let (id, _) = requests.table.insert(session, new);
        self.queue.push(id.index, &mut requests.table);
        id
    }

    /// Requests that wait for a slot.
    pub(crate) fn queued(&self) -> u32 {
        self.queue.len()
    }

    /// Gives a request the lowest free slot.
    #[inline(always)]
    fn start(&mut self, index: u32, request: &mut ClientRequest, terms: &Terms) {
        request.slot = self.slots.take(index);
        request.stage = RequestStage::InSlot;
        request.next = NO_REQUEST;
        let buffers = request.buffers.as_ref();
        let bytes = buffers.map_or(0, |buffers| buffers.request.len());
        request.send.set_request_packets(terms.packets(bytes));
    }

    /// Starts queued requests of an established session while slots are free, and lists the session if it
    /// can send now.
    pub(crate) fn start_queued(&mut self, session: u16, terms: &Terms, requests: &mut Requests) {
        while self.slots.has_free()
            && let Some(index) = self.queue.pop(&requests.table)
        {
            if requests.table[index].buffers.is_none() {
                requests.table.release(index);
                continue;
            }
            self.start(index, &mut requests.table[index], terms);
            requests.table.watch(index);
        }
        self.mark_ready(session, requests);
    }

    /// Gives up a request that is not complete. Only an established session has requests in slots.
    pub(crate) fn cancel(
        &mut self,
        session: u16,
        terms: &Terms,
        index: u32,
        memory: &Memory,
        requests: &mut Requests,
        stats: &mut EndpointStats,
    ) {
        let had_slot = requests.table[index].stage == RequestStage::InSlot;
        let finished = self.end(index, Err(RpcError::Cancelled), memory, requests, stats);
        if had_slot {
            self.start_queued(session, terms, requests);
        }
        requests.finished.push(finished);
        if self.queue.is_worth_sweeping() {
            self.queue.sweep(&mut requests.table);
        }
    }
}
