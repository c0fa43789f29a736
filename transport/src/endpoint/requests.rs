//! Requests as a program makes them: enqueued, cancelled, completed.

use super::Endpoint;
use crate::app::{App, Cx};
use crate::backend::Route;
use crate::buf::MsgBuf;
use crate::exchange::{Refused, RefusedReason, RequestId};
use crate::rpc::{Buffers, Ended, Finished, NewRequest};
use crate::session::{Role, SessionId};
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
        if is_fine && let Some(entry) = self.sessions.established(session) {
            let to = entry.peer_of(session.index);
            if let Role::Client(client) = entry.role_mut()
                && client.can_start()
            {
                self.counters.stats.requests_enqueued += 1;
                let new = NewRequest {
                    kind,
                    tag,
                    deadline,
                    buffers: Buffers { request, response },
                };
                let (requests, fast_path) = (&mut self.requests, &mut self.fast_path);
                return Ok(client.start_new(now, &to, new, requests, fast_path));
            }
        }
        let new = NewRequest {
            kind,
            tag,
            deadline,
            buffers: Buffers { request, response },
        };
        self.queue_request(now, session, new)
    }

    /// As `enqueue_request`, for a request that cannot start now: it waits, or is refused.
    #[inline(never)]
    #[allow(clippy::result_large_err)]
    fn queue_request(
        &mut self,
        now: Instant,
        session: SessionId,
        new: NewRequest,
    ) -> Result<RequestId, Refused> {
        if let Some(reason) = self.reason_to_refuse(now, session, &new) {
            return Err(Refused {
                reason,
                request: new.buffers.request,
                response: new.buffers.response,
            });
        }
        self.counters.stats.requests_enqueued += 1;
        let (index, deadline) = (session.index, new.deadline);
        let Role::Client(client) = self.sessions.entry(index).role_mut() else {
            unreachable!("checked above")
        };
        let id = client.queue_new(index, new, &mut self.requests);
        if let Some(deadline) = deadline {
            self.sessions.wake_at(index, deadline);
        }
        Ok(id)
    }

    fn reason_to_refuse(
        &self,
        now: Instant,
        session: SessionId,
        new: &NewRequest,
    ) -> Option<RefusedReason> {
        let entry = self
            .sessions
            .get(session)
            .filter(|entry| !entry.is_closing());
        let Some(Role::Client(client)) = entry.map(|entry| entry.role()) else {
            return Some(RefusedReason::NoSession);
        };
        if new.buffers.request.len() > self.config.message_bytes {
            return Some(RefusedReason::RequestTooLarge);
        }
        if new.deadline.is_some_and(|deadline| deadline <= now) {
            return Some(RefusedReason::DeadlineExceeded);
        }
        let queue_is_full = client.queued() as usize >= self.config.queued_requests_per_session;
        (self.requests.is_full() || queue_is_full).then_some(RefusedReason::QueueFull)
    }

    /// Gives up a request: it completes with `Cancelled`. False if it has already completed.
    /// A handler that runs goes on; its response is dropped.
    pub fn cancel(&mut self, request: RequestId) -> bool {
        let Some(request) = self.requests.find(request) else {
            return false;
        };
        let index = self.requests.session_of(request);
        let session = self.sessions.entry(index);
        let terms = session.terms();
        let Role::Client(client) = session.role_mut() else {
            unreachable!("only clients have requests")
        };
        let (memory, stats) = (&self.memory, &mut self.counters.stats);
        client.cancel(index, &terms, request, memory, &mut self.requests, stats);
        true
    }

    /// Starts the queued requests of a session that is established now.
    pub(super) fn start_queued(&mut self, index: u16) {
        let session = self.sessions.entry(index);
        let terms = session.terms();
        if let Some(client) = session.client() {
            client.start_queued(index, &terms, &mut self.requests);
        }
    }

    /// Ends a request in a slot and tells the application, at once if the buffers are free.
    pub(super) fn complete(
        &mut self,
        now: Instant,
        index: u16,
        ended: Ended,
        app: &mut impl App<R>,
    ) {
        let session = self.sessions.entry(index);
        let terms = session.terms();
        let Role::Client(client) = session.role_mut() else {
            unreachable!("only clients have requests")
        };
        let (memory, stats) = (&self.memory, &mut self.counters.stats);
        let finished = client.complete(index, &terms, ended, memory, &mut self.requests, stats);
        if finished.must_wait(&self.memory) {
            return self.requests.push_finished(finished);
        }
        self.deliver(now, finished, app);
    }

    /// Delivers completions that waited for an application or for a flush.
    pub(super) fn deliver_finished(&mut self, now: Instant, app: &mut impl App<R>) {
        // Completions that handlers add in here wait for the next call, so that this loop ends.
        for _ in 0..self.requests.finished() {
            let Some(finished) = self.requests.pop_finished() else {
                return;
            };
            if finished.must_wait(&self.memory) {
                self.requests.push_finished(finished);
                continue;
            }
            self.deliver(now, finished, app);
        }
    }

    #[inline(always)]
    pub(super) fn deliver(&mut self, now: Instant, finished: Finished, app: &mut impl App<R>) {
        let cx = &mut Cx {
            endpoint: self,
            now,
        };
        app.on_completion(cx, finished.tag, finished.completion);
    }
}
