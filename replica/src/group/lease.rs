//! The lease: until when a leader answers reads by itself.
//!
//! A round that began at some moment and was confirmed by a quorum proves more than the leadership at that moment. Each
//! member of the quorum has heard from this leader since, and votes for no other replica for the group's vote refusal
//! time. No other leader can exist until the beginning plus that time, less the drift that the settings allow. The
//! lease relies on ticks that are never made up in a burst, and on two more rules:
//! - An answer leaves only after the clock was read again *behind* the reading of the value. A process may be stopped
//!   between reading the clock and its work, and would otherwise answer requests that came in meanwhile.
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

#[cfg(test)]
mod tests {
    use super::*;

    const LENGTH: Duration = Duration::from_nanos(100);

    fn at(ns: u64) -> Instant {
        Instant::from_nanos(ns)
    }

    #[test]
    fn a_lease_ends_its_length_behind_the_latest_beginning() {
        let mut lease = Lease::default();
        lease.extend(at(50), LENGTH, 3);
        lease.extend(at(10), LENGTH, 3);
        assert_eq!(lease.until(at(149)), Some(at(150)));
        assert_eq!(lease.until(at(150)), None);
    }

    /// The confirmation of a round that began before the change may come from a quorum of the old configuration alone.
    #[test]
    fn a_round_of_before_a_change_extends_nothing() {
        let mut lease = Lease::default();
        lease.extend(at(10), LENGTH, 3);
        lease.interrupt(at(20));
        lease.extend(at(19), LENGTH, 3);
        assert_eq!(lease.until(at(21)), None);
        lease.extend(at(20), LENGTH, 3);
        assert_eq!(lease.until(at(21)), Some(at(120)));
    }

    #[test]
    fn a_transfer_bars_the_rest_of_the_term_and_no_other() {
        let mut lease = Lease::default();
        lease.extend(at(10), LENGTH, 3);
        lease.bar(3);
        lease.extend(at(20), LENGTH, 3);
        assert_eq!(lease.until(at(21)), None);
        lease.extend(at(20), LENGTH, 4);
        assert_eq!(lease.until(at(21)), Some(at(120)));
    }
}
