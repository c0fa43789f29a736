//! A session's one timer: the earliest of handshake, queued requests' deadlines and keepalive. The
//! requests in slots are watched in their table (`rpc/request_table`).
//!
//! The wheel's entry may be early: it is only moved forward, and when it fires the true time is
//! computed. An idle session's entry sits at its keepalive and costs nothing in between.

use super::{ConnectError, DownReason, Input, Role, SessionId, State};
use crate::app::App;
use crate::backend::Route;
use crate::endpoint::Endpoint;
use crate::time::Instant;

impl<R: Route> Endpoint<R> {
    /// Runs the timers that are due, and the completions that wait for an application.
    pub fn on_timeout(&mut self, now: Instant, app: &mut impl App<R>) {
        while let Some(entry) = self.timers.pop_due(now) {
            // The wheel's entries are session indexes.
            self.on_session_timer(now, entry as u16, app);
        }
        if self.requests.next_look() <= now {
            self.check_requests(now, app);
        }
        // Last, so that requests of a session that has just ended complete in this call, before an event loop
        // tells its `Down`. Those whose buffers wait for a flush complete after that.
        self.deliver_finished(now, app);
    }

    /// The session's timer has fired.
    pub(crate) fn on_session_timer(&mut self, now: Instant, index: u16, app: &mut impl App<R>) {
        let Some(session) = self.sessions.at(index) else {
            return;
        };
        let (id, handshake) = (
            SessionId {
                index,
                generation: session.generation,
            },
            session.handshake,
        );
        match session.state {
            State::Asking | State::Returning if handshake.give_up_at <= now => {
                let gone = session.go(Input::Silence);
                debug_assert!(gone, "silence ends a handshake");
                self.end_connect(index, ConnectError::TimedOut);
            }
            State::Asking | State::Returning if handshake.resend_at <= now => {
                self.send_connect(now, index)
            }
            State::Closing if handshake.give_up_at <= now => {
                self.end_session(index, Input::Silence, DownReason::Disconnected);
            }
            State::Closing if handshake.resend_at <= now => self.send_disconnect(now, index),
            State::Open => self.check_session(now, id, app),
            _ => {}
        }
        self.expire_queued(now, id, app);
        if self.sessions.get(id).is_some() {
            self.rearm(index);
            debug_assert!(
                self.timers.at(u32::from(index)) > now,
                "a timer that is due again at once would keep `on_timeout` for ever"
            );
        }
    }

    fn check_session(&mut self, now: Instant, id: SessionId, app: &mut impl App<R>) {
        let is_down = self.check_silence(now, id.index) || self.check_numbers(now, id);
        if !is_down {
            self.check_slots(now, id, app);
            self.check_holds(now, id.index);
        }
    }

    /// Request numbers are finite: the caller gets new ones with a new session. Looked at here and not with
    /// each request, because they last. True if the session is down.
    fn check_numbers(&mut self, now: Instant, id: SessionId) -> bool {
        let is_over = match &self.sessions[id.index].role {
            Role::Client(client) => client.has_used_up_numbers(),
            Role::Server(_) => false,
        };
        if is_over {
            self.close(now, id, DownReason::NumbersUsedUp);
        }
        is_over
    }

    /// Sets the wheel's entry to the true time.
    pub(crate) fn rearm(&mut self, index: u16) {
        let due = self.session_due(index);
        self.timers.set(u32::from(index), due);
    }

    fn session_due(&self, index: u16) -> Instant {
        let session = &self.sessions[index];
        let queued = match &session.role {
            Role::Client(client) => client.queue_deadline,
            Role::Server(server) => server.look_due(),
        };
        match session.state {
            State::Open => queued.min(self.keepalive_due(index)),
            State::Asking | State::Returning | State::Closing => queued
                .min(session.handshake.resend_at)
                .min(session.handshake.give_up_at),
            State::Free => Instant::FAR_FUTURE,
        }
    }
}
