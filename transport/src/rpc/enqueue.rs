//! A request's beginning: into a slot, or into the session's queue. And its end at the caller's wish.

use super::{Buffers, NO_REQUEST, Peer};
use crate::backend::Route;
use crate::buf::MsgBuf;
use crate::endpoint::Endpoint;
use crate::exchange::{Refused, RefusedReason, RequestId, RpcError};
use crate::session::{Role, SessionId, State};
use crate::time::Instant;

impl<R: Route> Endpoint<R> {
    /// Sends `request` as soon as slots and credits allow. The answer goes into `response`, whose
    /// capacity bounds it. Both buffers come back in the completion with `tag`, or at once in
    /// [`Refused`].
    #[inline]
    #[allow(clippy::too_many_arguments, clippy::result_large_err)]
    pub fn enqueue_request(
        &mut self,
        now: Instant,
        session: SessionId,
        kind: u8,
        request: MsgBuf,
        response: MsgBuf,
        tag: u64,
        deadline: Option<Instant>,
    ) -> Result<RequestId, Refused> {
        let is_fine = request.len() <= self.config.message_bytes
            && deadline.is_none_or(|deadline| deadline > now)
            && !self.requests.is_full();
        if is_fine
            && let Some(entry) = self.sessions.get_mut(session)
            && entry.state == State::Open
        {
            let peer = Peer::of(entry);
            if let Role::Client(client) = &mut entry.role
                && client.has_free_slot()
                && client.queue_first == NO_REQUEST
            {
                self.stats.requests_enqueued += 1;
                let buffers = Buffers { request, response };
                let index = session.index;
                let id = self.requests.insert(index, kind, tag, deadline, buffers);
                let request = &mut self.requests[id.index];
                client.start(id.index, request, &entry.terms);
                if !self.fast_path.send_request(now, &peer, client, request)
                    && client.becomes_ready()
                {
                    self.ready.push(index);
                }
                let due = request.look_due();
                self.requests.watch(id.index, due);
                return Ok(id);
            }
        }
        self.queue_request(now, session, kind, request, response, tag, deadline)
    }

    /// As `enqueue_request`, for a request that cannot start now: it waits, or is refused.
    #[inline(never)]
    #[allow(clippy::too_many_arguments, clippy::result_large_err)]
    fn queue_request(
        &mut self,
        now: Instant,
        session: SessionId,
        kind: u8,
        request: MsgBuf,
        response: MsgBuf,
        tag: u64,
        deadline: Option<Instant>,
    ) -> Result<RequestId, Refused> {
        if let Some(reason) = self.reason_to_refuse(now, session, request.len(), deadline) {
            return Err(Refused {
                reason,
                request,
                response,
            });
        }
        self.stats.requests_enqueued += 1;
        let buffers = Buffers { request, response };
        let index = session.index;
        let id = self.requests.insert(index, kind, tag, deadline, buffers);
        let Role::Client(client) = &mut self.sessions[index].role else {
            unreachable!("checked above")
        };
        match client.queue_last {
            NO_REQUEST => client.queue_first = id.index,
            last => self.requests[last].next = id.index,
        }
        client.queue_last = id.index;
        client.queued += 1;
        client.queue_deadline = client
            .queue_deadline
            .min(deadline.unwrap_or(Instant::FAR_FUTURE));
        if let Some(deadline) = deadline {
            self.timers.set_if_sooner(u32::from(index), deadline);
        }
        Ok(id)
    }

    fn reason_to_refuse(
        &self,
        now: Instant,
        session: SessionId,
        request_bytes: usize,
        deadline: Option<Instant>,
    ) -> Option<RefusedReason> {
        let entry = self
            .sessions
            .get(session)
            .filter(|entry| entry.state != State::Closing);
        let Some(Role::Client(client)) = entry.map(|entry| &entry.role) else {
            return Some(RefusedReason::NoSession);
        };
        if request_bytes > self.config.message_bytes {
            return Some(RefusedReason::RequestTooLarge);
        }
        if deadline.is_some_and(|deadline| deadline <= now) {
            return Some(RefusedReason::DeadlineExceeded);
        }
        let queue_is_full = client.queued as usize >= self.config.queued_requests_per_session;
        (self.requests.is_full() || queue_is_full).then_some(RefusedReason::QueueFull)
    }

    /// Gives up a request: it completes with `Cancelled`. False if it has already completed.
    /// A handler that runs goes on; its response is dropped.
    pub fn cancel(&mut self, now: Instant, request: RequestId) -> bool {
        let _ = now;
        let Some(index) = self.requests.find(request) else {
            return false;
        };
        let session = self.requests[index].session;
        let finished = self.end_request(index, Err(RpcError::Cancelled));
        self.finished.push_back(finished);
        // Worth it once half of the queue is empty places: a constant share for each of them.
        if let Some(client) = self.sessions[session].client()
            && client.ended > client.queued
        {
            self.sweep_queue(session);
        }
        true
    }

    /// Frees the entries of requests that have ended in the queue; the others keep their order.
    pub(crate) fn sweep_queue(&mut self, session: u16) {
        let Some(client) = self.sessions[session].client() else {
            return;
        };
        let mut next = client.queue_first;
        (client.queue_first, client.queue_last) = (NO_REQUEST, NO_REQUEST);
        client.ended = 0;
        while next != NO_REQUEST {
            let index = next;
            next = self.requests[index].next;
            if self.requests[index].buffers.is_none() {
                self.requests.release(index);
                continue;
            }
            self.requests[index].next = NO_REQUEST;
            match client.queue_last {
                NO_REQUEST => client.queue_first = index,
                last => self.requests[last].next = index,
            }
            client.queue_last = index;
        }
    }

    /// Starts queued requests while slots are free, and lists the session if it can send now.
    pub(crate) fn start_queued(&mut self, session: u16) {
        while self.sessions[session].state == State::Open {
            let Role::Client(client) = &mut self.sessions[session].role else {
                return;
            };
            if client.queue_first == NO_REQUEST || !client.has_free_slot() {
                break;
            }
            let index = self.pop_queued(session);
            if self.requests[index].buffers.is_none() {
                self.requests.release(index);
                continue;
            }
            let entry = &mut self.sessions[session];
            if let Role::Client(client) = &mut entry.role {
                let request = &mut self.requests[index];
                client.start(index, request, &entry.terms);
                let due = request.look_due();
                self.requests.watch(index, due);
            }
        }
        self.mark_ready(session);
    }

    /// Takes the first entry off a session's queue, which is not empty.
    pub(crate) fn pop_queued(&mut self, session: u16) -> u32 {
        let Role::Client(client) = &mut self.sessions[session].role else {
            unreachable!("servers queue nothing")
        };
        let index = client.queue_first;
        let entry = &self.requests[index];
        client.queue_first = entry.next;
        if client.queue_first == NO_REQUEST {
            client.queue_last = NO_REQUEST;
            client.queue_deadline = Instant::FAR_FUTURE;
        }
        // One that ended in the queue was uncounted then.
        if entry.buffers.is_some() {
            client.queued -= 1;
        } else {
            client.ended -= 1;
        }
        index
    }

    /// Lists the session among those that can send, if it can.
    #[inline]
    pub(crate) fn mark_ready(&mut self, session: u16) {
        let Some(client) = self.sessions[session].client() else {
            return;
        };
        if client.becomes_ready() {
            self.ready.push(session);
        }
    }
}
