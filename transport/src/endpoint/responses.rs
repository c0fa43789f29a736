//! Requests of peers: their handlers are called, and the program answers.

use super::Endpoint;
use crate::app::{App, Cx};
use crate::backend::Route;
use crate::buf::MsgBuf;
use crate::config::MESSAGE_BYTES_MAX;
use crate::exchange::{Reply, Request, ResponseHandle, Stale};
use crate::rpc::{Responded, SlotId};
use crate::session::SessionId;
use crate::time::Instant;
use crate::wire::RequestNumber;

impl<R: Route> Endpoint<R> {
    /// Calls the handler of a request that is complete, unless its client no longer waits for the
    /// answer.
    #[inline(always)]
    pub(super) fn call_handler(
        &mut self,
        now: Instant,
        request: Request<'_>,
        app: &mut impl App<R>,
    ) {
        let handle = request.handle;
        if request.deadline.is_some_and(|deadline| deadline <= now) {
            return self.expire(handle);
        }
        self.counters.stats.requests_executed += 1;
        let cx = &mut Cx {
            endpoint: self,
            now,
        };
        match app.on_request(cx, request) {
            // The handler may have ended the session; then no client wants the response.
            Reply::Now(response) => drop(self.enqueue_response(now, handle, response)),
            Reply::Later => {}
        }
    }

    fn expire(&mut self, handle: ResponseHandle) {
        self.counters.stats.requests_expired += 1;
        if let Some(server) = self.sessions.entry(handle.session.index).server() {
            server.expire(handle.slot);
        }
    }

    /// Answers a request whose handler said `Later`.
    #[inline(always)]
    #[allow(clippy::result_large_err)] // the buffer comes back in the error
    pub fn enqueue_response(
        &mut self,
        now: Instant,
        handle: ResponseHandle,
        response: MsgBuf,
    ) -> Result<(), Stale> {
        assert!(
            response.len() <= MESSAGE_BYTES_MAX,
            "a response above the limit of messages"
        );
        let (index, stats) = (handle.session.index, &mut self.counters.stats);
        let found = self.sessions.established(handle.session);
        let found = found.map(|session| (session.peer_of(index), session));
        let Some((to, Some(server))) = found.map(|(to, session)| (to, session.server())) else {
            stats.responses_stale += 1;
            return Err(Stale { response });
        };
        let (responses, fast_path) = (&mut self.responses, &mut self.fast_path);
        let memory = &mut self.memory;
        match server.respond(
            now, &to, handle, response, responses, fast_path, memory, stats,
        ) {
            Ok(Responded::Single) => Ok(()),
            Ok(Responded::Held { scan_at }) => {
                self.on_response_held(index, scan_at);
                Ok(())
            }
            Err(stale) => {
                stats.responses_stale += 1;
                Err(stale)
            }
        }
    }

    /// A session holds another response of several packets: others may have to go for it.
    #[cold]
    fn on_response_held(&mut self, index: u16, scan_at: Option<Instant>) {
        if let Some(scan_at) = scan_at {
            self.sessions.wake_at(index, scan_at);
        }
        while let Some(server) = self.sessions.entry(index).server()
            && let Some(place) = server.must_go(&self.memory)
        {
            self.give_way(place);
        }
    }

    /// A server end's slot gives up the memory that it holds, for another holder.
    pub(super) fn give_way(&mut self, place: SlotId) {
        if let Some(server) = self.sessions.entry(place.session).server() {
            server.give_way(place.slot, &mut self.memory, &mut self.counters.stats);
        }
    }

    /// There will be no answer to a request whose handler said `Later`: its client learns that by its session's end.
    /// False, and nothing happens, if the client no longer waits for the answer.
    pub fn give_no_response(&mut self, now: Instant, handle: ResponseHandle) -> bool {
        let open = self.sessions.established(handle.session);
        let is_awaited = open
            .and_then(|session| session.server())
            .is_some_and(|server| server.is_awaited(handle));
        if is_awaited {
            self.disconnect(now, handle.session);
        } else {
            self.counters.stats.responses_stale += 1;
        }
        is_awaited
    }
}

/// The name of a request in its answer.
#[inline(always)]
pub(super) fn handle_of(session: SessionId, number: RequestNumber) -> ResponseHandle {
    ResponseHandle {
        session,
        slot: number.slot(),
        sequence: number.sequence(),
    }
}
