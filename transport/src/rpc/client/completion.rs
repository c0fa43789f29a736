//! A request's end: slot and credits return to the session, the buffers to their owner.
//!
//! A buffer goes back only when no transmission refers to it. Without a retransmission the answer
//! proves that; otherwise the completion waits for a flush of the backend, unless that copies.

use super::request::{NO_REQUEST, RequestStage};
use super::{ClientEnd, Ended, Finished, Requests};
use crate::exchange::RpcError;
use crate::rpc::Memory;
use crate::session::terms::Terms;
use crate::stats::EndpointStats;
use crate::time::Instant;

impl ClientEnd {
    /// Ends a request in a slot of an established session, and starts those that waited for the slot.
    pub(crate) fn complete(
        &mut self,
        session: u16,
        terms: &Terms,
        ended: Ended,
        memory: &Memory,
        requests: &mut Requests,
        stats: &mut EndpointStats,
    ) -> Finished {
        let finished = self.end(ended.index, ended.result, memory, requests, stats);
        self.start_queued(session, terms, requests);
        finished
    }

    /// Ends a request: frees its slot, or its entry in the queue.
    pub(super) fn end(
        &mut self,
        index: u32,
        result: Result<(), RpcError>,
        memory: &Memory,
        requests: &mut Requests,
        stats: &mut EndpointStats,
    ) -> Finished {
        let request = &mut requests.table[index];
        let was_sent = request.send.was_sent();
        let after_epoch = match result {
            Ok(()) => memory.epoch_to_flush(request.send.retransmitted_in()),
            Err(_) if was_sent => memory.epoch_to_flush(memory.epoch()),
            Err(_) => 0,
        };
        let buffers = request.buffers.take().expect("a request ends once");
        let tag = request.tag;
        match result {
            Ok(()) => {
                self.completed += 1;
                stats.requests_completed += 1;
            }
            Err(_) => stats.requests_failed += 1,
        }
        if request.stage == RequestStage::InSlot {
            let gave_up = result.is_err() && (was_sent || self.slots.entry(request.slot).gave_up);
            let (slot, credits) = (request.slot, request.send.in_flight());
            self.credits.held -= u16::from(request.send.is_busy());
            self.leave_slot(slot, credits, gave_up);
            requests.table.release(index);
        } else {
            self.queue.note_ended();
        }
        Finished {
            tag,
            completion: buffers.into_completion(result),
            after_epoch,
        }
    }

    /// A request's slot is free again, and its credits are back.
    #[inline(always)]
    pub(super) fn leave_slot(&mut self, slot: u8, credits: u16, gave_up: bool) {
        self.credits.left += credits;
        self.slots.give_back(slot, gave_up);
    }

    /// Ends all requests of a session that is not established any more.
    pub(crate) fn fail_all(
        &mut self,
        session: u16,
        memory: &Memory,
        requests: &mut Requests,
        stats: &mut EndpointStats,
    ) {
        let mut slot = 0;
        while let Some(&super::slots::ClientSlot { request, .. }) = self.slots.get(slot) {
            slot += 1;
            if request == NO_REQUEST {
                continue;
            }
            let error = if requests.table[request].send.was_sent() {
                RpcError::OutcomeUnknown
            } else {
                RpcError::NotSent
            };
            let finished = self.end(request, Err(error), memory, requests, stats);
            self.mark_ready(session, requests);
            requests.finished.push(finished);
        }
        while !self.queue.is_empty() {
            let index = self.queue.first();
            if requests.table[index].buffers.is_some() {
                let finished = self.end(index, Err(RpcError::NotSent), memory, requests, stats);
                requests.finished.push(finished);
            }
            self.queue.pop(&requests.table);
            requests.table.release(index);
        }
    }

    /// Ends queued requests whose deadline has passed. False if there can be none.
    pub(crate) fn expire_queued(
        &mut self,
        now: Instant,
        memory: &Memory,
        requests: &mut Requests,
        stats: &mut EndpointStats,
    ) -> bool {
        if self.queue.deadline() > now {
            return false;
        }
        let mut earliest = Instant::FAR_FUTURE;
        let mut next = self.queue.first();
        while next != NO_REQUEST {
            let (index, request) = (next, &requests.table[next]);
            next = request.next;
            match request.deadline.filter(|_| request.buffers.is_some()) {
                Some(deadline) if deadline <= now => {
                    let error = Err(RpcError::DeadlineExceeded);
                    let finished = self.end(index, error, memory, requests, stats);
                    requests.finished.push(finished);
                }
                Some(deadline) => earliest = earliest.min(deadline),
                None => {}
            }
        }
        self.queue.sweep(&mut requests.table);
        self.queue.set_deadline(earliest);
        true
    }
}

impl Requests {
    /// Keeps a completion until it can be delivered.
    pub(crate) fn push_finished(&mut self, finished: Finished) {
        self.finished.push(finished);
    }

    /// Completions that wait.
    pub(crate) fn finished(&self) -> usize {
        self.finished.len()
    }

    pub(crate) fn pop_finished(&mut self) -> Option<Finished> {
        self.finished.pop()
    }

    /// Whether a completion waits for a flush that has not come.
    pub(crate) fn need_flush(&self, memory: &Memory) -> bool {
        self.finished.needs_flush(memory)
    }
}
