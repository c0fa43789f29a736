//! Sending: from the ready queues into the sessions.

use trine_transport::app::Cx;
use trine_transport::backend::Route;
use trine_transport::session::SessionId;

use super::core::Clients;
use super::logical::Registration;
use super::operation::Stage;
use super::outcome::Obstacle;
use crate::message::{ClientRequest, Operation, kind};
use crate::slab::Key;

/// What became of an attempt to send.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Sending {
    /// It went out, or there was nothing to send any more.
    Done,
    /// Nothing more can be sent at the moment.
    Blocked,
}

impl<R: Route> Clients<R> {
    /// Sends everything that is ready and can go somewhere.
    pub(super) fn dispatch(&mut self, cx: &mut Cx<'_, R>) {
        if !self.ready_stale.is_empty() {
            self.dispatch_to_anyone(cx);
        }
        if self.ready.is_empty() || cx.now() < self.leader.resume_at {
            return;
        }
        let Some((index, session)) = self.target() else {
            return;
        };
        while let Some(key) = self.ready.pop_front() {
            if self.send(cx, key, index, session) == Sending::Blocked {
                self.ready.push_front(key);
                return;
            }
        }
    }

    /// Stale reads prefer the replica that is taken for the leader, and take any other.
    fn dispatch_to_anyone(&mut self, cx: &mut Cx<'_, R>) {
        let favourite = self
            .leader
            .target
            .filter(|&index| self.peers.get(index).session().is_some());
        let Some(index) = favourite.or_else(|| self.peers.next_up(self.leader.last_guess)) else {
            return;
        };
        let Some(session) = self.peers.get(index).session() else {
            return;
        };
        while let Some(key) = self.ready_stale.pop_front() {
            if self.send(cx, key, index, session) == Sending::Blocked {
                self.ready_stale.push_front(key);
                return;
            }
        }
    }

    fn send(&mut self, cx: &mut Cx<'_, R>, key: Key, index: usize, session: SessionId) -> Sending {
        let now = cx.now();
        let cluster = self.cluster;
        if !self.is_current(key) {
            return Sending::Done;
        }
        let Some(pending) = self.operations.get_mut(key) else {
            return Sending::Done;
        };
        let Some(response) = cx.alloc(pending.response_bytes) else {
            pending.obstacle = Some(Obstacle::NoBuffer);
            return Sending::Blocked;
        };
        let mut request = pending
            .request
            .take()
            .expect("a ready operation has its request");
        if let Some(ticket) = pending.ticket {
            let window = self
                .logical
                .get(pending.owner)
                .filter(|logical| logical.epoch == ticket.epoch);
            // Of an older session nothing but this very command is asked for any more.
            let lowest = window.map_or(ticket.sequence, |logical| logical.window.lowest_awaited());
            ClientRequest::fill_in(
                &mut request,
                cluster,
                ticket.client,
                ticket.sequence,
                lowest,
            );
        } else {
            let nonce = if pending.operation == Operation::Register {
                pending.tag
            } else {
                0
            };
            ClientRequest::fill_in(&mut request, cluster, nonce, 0, 0);
        }
        // The attempt has no deadline of its own in the transport: `expire` cancels it, and then knows why.
        match cx.enqueue_request(session, kind::CLIENT, request, response, key.to_u64(), None) {
            Ok(request) => {
                pending.stage = Stage::Sent {
                    peer: index,
                    request,
                    at: now,
                };
                let deadline = pending.deadline;
                self.note_sent(index, now);
                self.check_at = self
                    .check_at
                    .min(deadline)
                    .min(now + self.config.attempt_timeout);
                Sending::Done
            }
            Err(refused) => {
                pending.request = Some(refused.request);
                Sending::Blocked
            }
        }
    }

    /// Whether a key from a ready queue still names something to send. A write whose session was evicted before it
    /// was ever sent goes back to wait for the next session.
    fn is_current(&mut self, key: Key) -> bool {
        let Some(pending) = self.operations.get_mut(key) else {
            return false;
        };
        if pending.stage != Stage::Ready {
            return false;
        }
        let (Some(ticket), Some(logical)) = (pending.ticket, self.logical.get_mut(pending.owner))
        else {
            return true;
        };
        if pending.may_be_applied || ticket.epoch == logical.epoch {
            return true;
        }
        pending.stage = Stage::Waiting;
        pending.ticket = None;
        logical.waiting.push_back(key);
        false
    }

    fn note_sent(&mut self, index: usize, now: trine_transport::time::Instant) {
        let peer = self.peers.get_mut(index);
        if peer.outstanding == 0 {
            peer.heard_at = now;
        }
        peer.outstanding += 1;
    }

    /// Puts an operation whose attempt ended without an answer back to where it waits for the next one.
    pub(super) fn requeue(&mut self, key: Key) {
        let Some(pending) = self.operations.get(key) else {
            return;
        };
        let owner = pending.owner;
        if pending.operation == Operation::Register && !self.is_registration_wanted(owner) {
            self.operations.remove(key);
            if let Some(logical) = self.logical.get_mut(owner) {
                logical.registration = Registration::None;
            }
            return;
        }
        self.stats.retries += 1;
        self.make_ready(key);
    }

    /// Whether anything still waits for the session of `owner`.
    fn is_registration_wanted(&self, owner: Key) -> bool {
        let alive = |key: &Key| self.operations.get(*key).is_some();
        self.logical
            .get(owner)
            .is_some_and(|logical| logical.waiting.iter().any(alive))
    }
}
