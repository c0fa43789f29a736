//! Which client ends have something to send now, and which must wait for their rate.

use std::collections::VecDeque;

use crate::time::Instant;
use crate::timing_wheel::TimingWheel;

/// The tick of the wheel of departures: about a packet at 10 Gbit/s.
const DEPARTURE_PRECISION_NS: u64 = 1_024;

/// Sessions with packets to send, by index. An entry may be older than the session at its index.
pub(crate) struct ReadyList {
    /// Sessions whose client end has something to send and a credit for it.
    ready: VecDeque<u16>,
    /// Sessions that have something to send but must keep their rate.
    departures: TimingWheel,
}

impl ReadyList {
    pub(crate) fn new(sessions: usize) -> Self {
        Self {
            ready: VecDeque::with_capacity(sessions),
            departures: TimingWheel::new(sessions, DEPARTURE_PRECISION_NS),
        }
    }

    #[inline]
    pub(crate) fn push(&mut self, session: u16) {
        self.ready.push_back(session);
    }

    pub(crate) fn pop(&mut self) -> Option<u16> {
        self.ready.pop_front()
    }

    /// Whether no session can send now.
    pub(crate) fn is_empty(&self) -> bool {
        self.ready.is_empty()
    }

    /// The session may send at `at`.
    pub(crate) fn depart_at(&mut self, session: u16, at: Instant) {
        self.departures.set(u32::from(session), at);
    }

    /// Lists the sessions whose departure has come.
    pub(crate) fn release_departures(&mut self, now: Instant) {
        while let Some(entry) = self.departures.pop_due(now) {
            // The wheel's entries are session indexes.
            self.ready.push_back(entry as u16);
        }
    }

    /// The session does not wait for its departure any more. False if it did not.
    pub(crate) fn cancel_departure(&mut self, session: u16) -> bool {
        self.departures.remove(u32::from(session))
    }

    /// When the next session departs.
    pub(crate) fn next_departure(&self) -> Option<Instant> {
        self.departures.next()
    }
}
