//! Sending: from the ready queues into the sessions.

use trine_protocol::message::{
    BATCH_HEADER_SIZE, BATCH_ITEM_HEADER_SIZE, BATCH_ITEMS_MAX, ClientRequest, Operation, kind,
};
use trine_transport::app::{Cx, RequestId};
use trine_transport::backend::Route;
use trine_transport::session::SessionId;
use trine_transport::slab::Key;
use trine_transport::time::Instant;

use super::Clients;
use crate::config::{BATCH_RESPONSE_BYTES_MAX, IN_FLIGHT_MAX};
use crate::group_view::SPREAD;
use crate::operation::{Numbering, OperationQueue, OperationStage};
use crate::outcome::Obstacle;

impl<R: Route> Clients<R> {
    /// Sends every ready operation that has a target.
    pub(super) fn dispatch(&mut self, cx: &mut Cx<'_, R>) {
        self.operations.admit_large();
        self.dispatch_spread(cx);
        if !self.operations.has_ready_for_leader() || cx.now() < self.group.resume_at() {
            return;
        }
        if let Some((index, session)) = self.group.target() {
            self.send_queue(cx, OperationQueue::Write, index, session);
            self.send_queue(cx, OperationQueue::Read, index, session);
        }
    }

    /// Sends the operations that are ready for followers, or for any replica.
    fn dispatch_spread(&mut self, cx: &mut Cx<'_, R>) {
        for queue in SPREAD {
            if !self.operations.has_ready(queue) {
                continue;
            }
            let since = self.operations.first_started(queue);
            if queue == OperationQueue::Follower && self.group.awaits_leader(cx, since) {
                continue;
            }
            if let Some((index, session)) = self.group.next_spread(queue, cx.now()) {
                self.send_queue(cx, queue, index, session);
            }
        }
    }

    /// When the reads that wait for a replica are due again.
    pub(super) fn spread_resumes_at(&self) -> Option<Instant> {
        let waits = |queue: OperationQueue| self.operations.has_ready(queue);
        if !SPREAD.into_iter().any(waits) {
            return None;
        }
        let since = self.operations.first_started(OperationQueue::Follower);
        let others_wait = waits(OperationQueue::Stale) || waits(OperationQueue::Anywhere);
        self.group.spread_resumes_at(since, others_wait)
    }

    fn send_queue(
        &mut self,
        cx: &mut Cx<'_, R>,
        queue: OperationQueue,
        index: usize,
        session: SessionId,
    ) {
        while self.pick(cx.now(), queue) {
            let sent = match self.batches.picked[..] {
                [key] => self.send_alone(cx, key, index, session),
                _ => self.send_batch(cx, index, session),
            };
            if !sent {
                // Nothing more can be sent at the moment: everything stays in its place.
                let picked = self.batches.picked.drain(..).rev();
                picked.for_each(|key| self.operations.put_back(queue, key));
                return;
            }
            self.batches.picked.clear();
        }
    }

    /// Takes the operations for the next message out of `queue`; returns whether there are any.
    fn pick(&mut self, now: Instant, queue: OperationQueue) -> bool {
        let mut bytes = BATCH_HEADER_SIZE;
        let mut response_bytes = 0;
        while let Some(key) = self.operations.pop_ready(queue) {
            if !self.is_current(now, key) {
                continue;
            }
            let Some(pending) = self.operations.get(key) else {
                continue;
            };
            let request_bytes = pending.request.as_ref().map_or(0, |request| request.len());
            bytes += BATCH_ITEM_HEADER_SIZE + request_bytes;
            response_bytes += pending.room.bytes;
            let fits = bytes <= self.config.batch_bytes
                && response_bytes <= BATCH_RESPONSE_BYTES_MAX
                && !pending.room.alone
                && self.batches.picked.len() < BATCH_ITEMS_MAX;
            if !fits && !self.batches.picked.is_empty() {
                self.operations.put_back(queue, key);
                break;
            }
            self.batches.picked.push(key);
            if !fits {
                break;
            }
        }
        !self.batches.picked.is_empty()
    }

    /// Sends one operation in the buffer that it was encoded into; returns whether it could be sent.
    fn send_alone(
        &mut self,
        cx: &mut Cx<'_, R>,
        key: Key,
        index: usize,
        session: SessionId,
    ) -> bool {
        self.fill_in(key);
        let Some(pending) = self.operations.get_mut(key) else {
            return true;
        };
        let Some(response) = cx.alloc(pending.room.bytes) else {
            pending.so_far.obstacle = Some(Obstacle::NoBuffer);
            return false;
        };
        let Some(request) = pending.request.take() else {
            return true;
        };
        // The attempt has no deadline of its own in the transport: `expire` cancels it, and then knows why.
        match cx.enqueue_request(session, kind::CLIENT, request, response, key.to_u64(), None) {
            Ok(request) => {
                self.group.on_sent(index, cx.now());
                self.note_sent(key, index, request, cx.now());
                true
            }
            Err(refused) => {
                pending.request = Some(refused.request);
                false
            }
        }
    }

    /// Writes the fields that are known only when an operation is sent.
    pub(super) fn fill_in(&mut self, key: Key) {
        let cluster = self.group.cluster();
        let Some(pending) = self.operations.get_mut(key) else {
            return;
        };
        let Some(request) = &mut pending.request else {
            return;
        };
        if pending.times.timed {
            ClientRequest::ask_for_timing(request);
        }
        let mut envelope = ClientRequest {
            cluster,
            ..ClientRequest::bare(pending.operation)
        };
        if let Some(ticket) = pending.ticket {
            let lowest = match ticket.numbering {
                Numbering::Caller { lowest } => lowest,
                Numbering::Client { .. } => {
                    let logical = self.logical.get(pending.owner);
                    let logical = logical.filter(|logical| ticket.is_of_epoch(logical.epoch));
                    // Of an older session only what was under way is still asked for, and which that is nobody notes.
                    let oldest = ticket.sequence.saturating_sub(IN_FLIGHT_MAX as u64 - 1);
                    logical.map_or(oldest.max(1), |logical| logical.window.lowest_awaited())
                }
            };
            // The replicas forget the replies below `lowest`.
            assert!(lowest <= ticket.sequence, "what is sent is awaited");
            envelope.client = ticket.session.client;
            envelope.session_number = ticket.session.number;
            envelope.sequence = ticket.sequence;
            envelope.lowest_awaited = lowest;
        } else if pending.operation == Operation::Register {
            envelope.client = pending.tag;
        }
        envelope.fill_in(request);
    }

    /// An operation is under way.
    pub(super) fn note_sent(&mut self, key: Key, peer: usize, request: RequestId, now: Instant) {
        let Some(pending) = self.operations.get_mut(key) else {
            return;
        };
        pending.times.sent_at = now;
        pending.stage = OperationStage::Sent {
            peer,
            request,
            at: now,
        };
        let due = pending
            .times
            .deadline
            .min(now + self.config.attempt_timeout);
        self.operations.check_by(due);
    }

    /// Whether a key from a ready queue still names an operation to send. A write whose session was evicted before it
    /// was ever sent goes back to wait for the next session.
    fn is_current(&mut self, now: Instant, key: Key) -> bool {
        let Some(pending) = self.operations.get_mut(key) else {
            return false;
        };
        if pending.stage != OperationStage::Ready {
            return false;
        }
        let (Some(ticket), Some(logical)) = (pending.ticket, self.logical.get(pending.owner))
        else {
            return true;
        };
        if pending.so_far.may_be_applied
            || ticket.is_of_caller()
            || ticket.is_of_epoch(logical.epoch)
        {
            return true;
        }
        let owner = pending.owner;
        self.wait_for_session(now, key, owner);
        false
    }

    /// Puts an operation whose attempt ended without an answer back into the queue for the next one.
    pub(super) fn requeue(&mut self, key: Key) {
        let Some(pending) = self.operations.get(key) else {
            return;
        };
        let (owner, is_registration) = (pending.owner, pending.is_own_registration());
        self.stats.retries += 1;
        self.operations.make_ready(key);
        if is_registration {
            match self.logical.get(owner) {
                Some(_) => self.drop_unwanted_registration(owner),
                None => drop(self.operations.remove(key)),
            }
        }
    }
}
