//! A session's one timer: the earliest of handshake, queued requests' deadlines and keepalive. The
//! requests in slots are watched in their table (`rpc/client/request_table`).
//!
//! The wheel's entry may be early: it is only moved forward, and when it fires the true time is
//! computed. So is that of an entry for which a sleep would end. An idle session's entry sits at its
//! keepalive and costs nothing in between.

use super::{
    ConnectError, ControlOutput, DownReason, Ended, Role, SessionId, SessionInput, SessionState,
    Sessions,
};
use crate::backend::Route;
use crate::stats::EndpointStats;
use crate::time::{Duration, Instant};

/// Entries that are moved in front of a sleep.
const SETTLED_MAX: usize = 16;
/// A session is scanned at least so often, and a keepalive later than that.
const SCANS_APART: Duration = Duration::from_secs(10);

/// The result of a session's timer.
#[must_use]
#[allow(clippy::large_enum_variant)] // a session ends once
pub(crate) enum Timer {
    /// All is done.
    Done,
    /// The session is established: the caller scans its slots.
    Established,
    /// The session is over.
    Ended(Ended),
}

impl<R: Route> Sessions<R> {
    /// A session whose timer is due.
    pub(crate) fn pop_due(&mut self, now: Instant) -> Option<u16> {
        // The wheel's entries are session indexes.
        self.timers.pop_due(now).map(|entry| entry as u16)
    }

    /// When the next timer is due.
    pub(crate) fn next_timer(&self) -> Option<Instant> {
        self.timers.next()
    }

    /// Moves early entries to their true times, until [`Sessions::next_timer`] is one of those, or many were moved. The entry
    /// of a session that was not scanned for long stays early: the age of its keys moves no timer.
    pub(crate) fn settle_timers(&mut self, now: Instant, stats: &EndpointStats) {
        for _ in 0..SETTLED_MAX {
            let Some(entry) = self.timers.first() else {
                return;
            };
            let scanned_at = self.table[entry as u16].scanned_at;
            if now.saturating_since(scanned_at) >= SCANS_APART {
                return;
            }
            // The wheel's entries are session indexes.
            let due = self.due(entry as u16, stats);
            if due <= self.timers.at(entry) {
                return;
            }
            self.timers.set(entry, due);
        }
    }

    /// The session's timer fires at `at` or earlier.
    pub(crate) fn wake_at(&mut self, index: u16, at: Instant) {
        self.timers.set_if_sooner(u32::from(index), at);
    }

    /// The session's timer has fired: handshake, teardown and keepalive.
    pub(crate) fn on_timer(
        &mut self,
        now: Instant,
        index: u16,
        out: &mut ControlOutput<'_, R>,
    ) -> Timer {
        let session = &mut self.table[index];
        let handshake = session.handshake;
        match session.state {
            SessionState::Asking | SessionState::Returning if handshake.give_up_at <= now => {
                let gone = session.go(SessionInput::Silence);
                debug_assert!(gone, "silence ends a handshake");
                let reason = session.obstacle().unwrap_or(ConnectError::TimedOut);
                return Timer::Ended(self.end_connect(index, reason, out));
            }
            SessionState::Asking | SessionState::Returning if handshake.resend_at <= now => {
                self.send_connect(now, index, out);
            }
            SessionState::HalfOpen if handshake.give_up_at <= now => self.end_half(index),
            SessionState::Closing if handshake.give_up_at <= now => {
                let ended = self.end(index, SessionInput::Silence, DownReason::Disconnected, out);
                return ended.map_or(Timer::Done, Timer::Ended);
            }
            SessionState::Closing if handshake.resend_at <= now => {
                self.send_disconnect(now, index, out)
            }
            SessionState::Open => {
                self.table[index].scanned_at = now;
                let ended = self.check_silence(now, index, out);
                return ended.map_or(Timer::Established, Timer::Ended);
            }
            _ => {}
        }
        Timer::Done
    }

    /// Sets the timer of a session that is not over to the true time. What the application did meanwhile may be due at once; it
    /// waits for the next call of `on_timeout`, which it could keep for ever.
    pub(crate) fn set_timer(&mut self, now: Instant, id: SessionId, stats: &EndpointStats) {
        if self.get(id).is_none() {
            return;
        }
        let due = self.due(id.index, stats).max(now + Duration::from_nanos(1));
        self.timers.set(u32::from(id.index), due);
    }

    /// Sets the wheel's entry to the true time.
    pub(super) fn rearm(&mut self, index: u16, stats: &EndpointStats) {
        let due = self.due(index, stats);
        self.timers.set(u32::from(index), due);
    }

    fn due(&self, index: u16, stats: &EndpointStats) -> Instant {
        let session = &self.table[index];
        let of_end = match &session.role {
            Role::Client(client) => client.queue_deadline(),
            Role::Server(server) => server.scan_at(),
        };
        match session.state {
            SessionState::Open => of_end.min(self.keepalive_due(index, stats)),
            SessionState::HalfOpen => session.handshake.give_up_at,
            SessionState::Asking | SessionState::Returning | SessionState::Closing => of_end
                .min(session.handshake.resend_at)
                .min(session.handshake.give_up_at),
            SessionState::Free => Instant::FAR_FUTURE,
        }
    }
}
