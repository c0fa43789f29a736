//! A request's end: slot and credits return to the session, the buffers to their owner.
//!
//! A buffer goes back only when no transmission refers to it. Without a retransmission the answer
//! proves that; otherwise the completion waits for a flush of the backend, unless that copies.

use super::{ClientRequest, Finished, NO_REQUEST, Place};
use crate::app::{App, Cx};
use crate::backend::Route;
use crate::endpoint::Endpoint;
use crate::exchange::{Completion, RpcError};
use crate::session::{Role, SessionId, State};
use crate::time::Instant;

impl<R: Route> Endpoint<R> {
    /// Ends a request and tells the application, at once if the buffers are free.
    pub(crate) fn complete(
        &mut self,
        now: Instant,
        index: u32,
        result: Result<(), RpcError>,
        app: &mut impl App<R>,
    ) {
        let finished = self.end_request(index, result);
        if self.memory.is_referred_to(finished.after_epoch) {
            self.finished.push_back(finished);
            return;
        }
        app.on_completion(
            &mut Cx {
                endpoint: self,
                now,
            },
            finished.tag,
            finished.completion,
        );
    }

    /// Ends a request: frees its slot for the next one.
    pub(crate) fn end_request(&mut self, index: u32, result: Result<(), RpcError>) -> Finished {
        let after_epoch = self.epoch_to_flush(&self.requests[index], result);
        let request = &mut self.requests[index];
        let buffers = request.buffers.take().expect("a request ends once");
        let (tag, place, session) = (request.tag, request.place, request.session);
        let Role::Client(client) = &mut self.sessions[session].role else {
            unreachable!("only clients have requests")
        };
        match result {
            Ok(()) => {
                client.completed += 1;
                self.stats.requests_completed += 1;
            }
            Err(_) => self.stats.requests_failed += 1,
        }
        if place == Place::InSlot {
            client.credits += request.in_flight();
            let slot = &mut client.slots[usize::from(request.slot)];
            slot.gave_up = result.is_err() && (slot.gave_up || request.sent_max > 0);
            client.give_slot_back(request.slot);
            self.requests.release(index);
            self.start_queued(session);
        } else {
            // It keeps its place in the queue, empty, until its turn comes or the queue is swept.
            client.queued -= 1;
            client.ended += 1;
        }
        Finished {
            tag,
            completion: buffers.into_completion(result),
            after_epoch,
        }
    }

    /// Up to which epoch transmissions must be flushed before the request buffer is free.
    fn epoch_to_flush(&self, request: &ClientRequest, result: Result<(), RpcError>) -> u64 {
        match result {
            Ok(()) => self.memory.epoch_to_flush(request.resent_in),
            Err(_) if request.sent_max > 0 => self.memory.epoch_to_flush(self.memory.epoch()),
            Err(_) => 0,
        }
    }

    /// Ends all requests of a session that is not open any more.
    pub(crate) fn fail_requests(&mut self, session: u16) {
        debug_assert!(self.sessions[session].state != State::Open);
        for slot in 0.. {
            let Role::Client(client) = &self.sessions[session].role else {
                return;
            };
            let Some(slot) = client.slots.get(slot) else {
                break;
            };
            let index = slot.request;
            if index != NO_REQUEST {
                let was_sent = self.requests[index].sent_max > 0;
                self.fail(
                    index,
                    if was_sent {
                        RpcError::OutcomeUnknown
                    } else {
                        RpcError::NotSent
                    },
                );
            }
        }
        loop {
            let Role::Client(client) = &self.sessions[session].role else {
                return;
            };
            if client.queue_first == NO_REQUEST {
                return;
            }
            let index = client.queue_first;
            if self.requests[index].buffers.is_some() {
                self.fail(index, RpcError::NotSent);
            }
            let index = self.pop_queued(session);
            self.requests.release(index);
        }
    }

    fn fail(&mut self, index: u32, error: RpcError) {
        let finished = self.end_request(index, Err(error));
        self.finished.push_back(finished);
    }

    /// Ends queued requests whose deadline has passed.
    pub(crate) fn expire_queued(&mut self, now: Instant, id: SessionId, app: &mut impl App<R>) {
        let Some(Role::Client(client)) = self.sessions.get_mut(id).map(|session| &mut session.role)
        else {
            return;
        };
        if client.queue_deadline > now {
            return;
        }
        client.queue_deadline = Instant::FAR_FUTURE;
        let mut earliest = Instant::FAR_FUTURE;
        let mut next = client.queue_first;
        while next != NO_REQUEST {
            let request = &self.requests[next];
            let index = next;
            next = request.next;
            match request.deadline.filter(|_| request.buffers.is_some()) {
                Some(deadline) if deadline <= now => {
                    let finished = self.end_request(index, Err(RpcError::DeadlineExceeded));
                    self.finished.push_back(finished);
                }
                Some(deadline) => earliest = earliest.min(deadline),
                None => {}
            }
        }
        self.sweep_queue(id.index);
        if let Some(client) = self.sessions[id.index].client() {
            client.queue_deadline = earliest;
        }
        self.deliver_finished(now, app);
    }

    /// Delivers completions that waited for an application or for a flush.
    pub(crate) fn deliver_finished(&mut self, now: Instant, app: &mut impl App<R>) {
        // What handlers add in here waits for the next call, so that this loop ends.
        for _ in 0..self.finished.len() {
            let Some(Finished {
                tag,
                completion,
                after_epoch,
            }) = self.finished.pop_front()
            else {
                return;
            };
            if self.memory.is_referred_to(after_epoch) {
                self.finished.push_back(Finished {
                    tag,
                    completion,
                    after_epoch,
                });
                continue;
            }
            self.deliver(now, tag, completion, app);
        }
    }

    fn deliver(&mut self, now: Instant, tag: u64, completion: Completion, app: &mut impl App<R>) {
        app.on_completion(
            &mut Cx {
                endpoint: self,
                now,
            },
            tag,
            completion,
        );
    }
}
