//! Until when may a leader answer reads by itself?
//!
//! A round that began at some moment and was confirmed by a quorum proves more than the leadership at that moment.
//! Everybody in the quorum has heard from this leader since, and votes for nobody else for the group's vote refusal time.
//! No other leader can exist until the beginning plus that time, less the drift that the settings allow. The lease stands
//! on ticks that are never made up in a burst, and on two more rules:
//! - An answer leaves only after the clock was read again *behind* the reading of the value. A process may be stopped
//!   between its look at the clock and its work, and would otherwise answer what came in meanwhile.
//! - A transfer of leadership ends it for the rest of the term. A change of the configuration ends it until the new
//!   quorum has confirmed the leadership.

use trine_transport::time::{Duration, Instant};

/// A leader's permission to answer by itself.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Lease {
    until: Option<Instant>,
    /// Rounds that began before this say nothing about the present quorum.
    not_before: Instant,
    /// In this term leadership was, or is being, transferred.
    barred_term: Option<u64>,
}

impl Lease {
    /// Leadership was lost or won.
    pub(super) fn end(&mut self) {
        self.until = None;
    }

    /// The configuration has changed.
    pub(super) fn interrupt(&mut self, now: Instant) {
        self.until = None;
        self.not_before = now;
    }

    /// Leadership is being transferred.
    pub(super) fn bar(&mut self, term: u64) {
        self.until = None;
        self.barred_term = Some(term);
    }

    /// A quorum has confirmed a round that began at `begun`.
    pub(super) fn extend(&mut self, begun: Instant, length: Duration, term: u64) {
        if self.barred_term != Some(term) && begun >= self.not_before {
            let until = begun + length;
            self.until = Some(self.until.map_or(until, |before| before.max(until)));
        }
    }

    /// When it ends; nothing if it has ended.
    pub(super) fn until(&self, now: Instant) -> Option<Instant> {
        self.until.filter(|&until| now < until)
    }
}
