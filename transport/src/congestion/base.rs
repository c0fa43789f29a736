//! The RTT of a path without a queue: the smallest of late, and the time slots in which queues are emptied to see it.

use crate::time::{Duration, Instant};

/// From one drain slot to the next: a quarter of a second, a power of two.
const PERIOD_NS: u64 = 1 << 28;
/// The part of a drain slot that does not depend on the session: how far wall clocks may be apart.
const SLOT_NS: u64 = 1 << 21;
/// On a longer path only each eighth slot is one, because it takes longer.
const LONG_PATH_NS: u32 = 2_000_000;
const LONG_PATH_PERIODS: u64 = 8;
/// The slots repeat after this.
pub(super) const CYCLE_NS: u64 = PERIOD_NS * LONG_PATH_PERIODS;
const _: () = assert!(CYCLE_NS <= u32::MAX as u64 && CYCLE_NS.is_power_of_two());
/// A sample counts for one to two times as many slots.
const SLOTS: u64 = 4;

/// The smallest RTT of the present window and of the one before.
#[derive(Copy, Clone, Debug)]
pub(super) struct Base {
    /// `u32::MAX`: no sample yet.
    ns_now: u32,
    ns_before: u32,
    ends: Instant,
}

impl Base {
    pub(super) fn new() -> Self {
        Self {
            ns_now: u32::MAX,
            ns_before: u32::MAX,
            ends: Instant::ZERO,
        }
    }

    #[inline]
    pub(super) fn is_known(&self) -> bool {
        self.ns() < u32::MAX
    }

    /// `u32::MAX` before the first sample.
    #[inline]
    pub(super) fn ns(&self) -> u32 {
        self.ns_now.min(self.ns_before)
    }

    #[inline]
    pub(super) fn note(&mut self, rtt_ns: u32) {
        self.ns_now = self.ns_now.min(rtt_ns);
    }

    /// The window is over: [`turn`](Self::turn) begins the next.
    #[inline]
    pub(super) fn is_over(&self, now: Instant) -> bool {
        now >= self.ends
    }

    /// Begins the next window, if this one is over. A session that was idle for long knows nothing better than what it
    /// knew before.
    pub(super) fn turn(&mut self, now: Instant) {
        if !self.is_over(now) {
            return;
        }
        self.ns_before = match self.ns_now {
            u32::MAX => self.ns_before,
            smallest => smallest,
        };
        self.ns_now = u32::MAX;
        self.ends = now + Duration::from_nanos(SLOTS * self.period_ns());
    }

    /// What is left of the drain slot at this moment of the wall clock, if it is in one. A slot lasts for two round trips
    /// with such a queue, which empty it, and for as long as clocks may differ.
    #[inline]
    pub(super) fn left_of_slot(&self, wall_ns: u64, queue_ns: u32) -> Option<Duration> {
        let period = self.period_ns();
        let rtt_ns = u64::from(self.ns()) + u64::from(queue_ns);
        let slot = (SLOT_NS + 2 * rtt_ns).min(period / 16);
        let left = slot.checked_sub(wall_ns & (period - 1));
        left.filter(|left| *left > 0).map(Duration::from_nanos)
    }

    fn period_ns(&self) -> u64 {
        match self.is_known() && self.ns() > LONG_PATH_NS {
            true => PERIOD_NS * LONG_PATH_PERIODS,
            false => PERIOD_NS,
        }
    }

    /// For a planted bug alone.
    pub(super) fn take_for_path(&mut self, rtt_ns: u32) {
        (self.ns_now, self.ns_before) = (rtt_ns, rtt_ns);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Instant {
        Instant::ZERO + Duration::from_millis(millis)
    }

    #[test]
    fn the_smallest_counts_for_two_windows() {
        let mut base = Base::new();
        let mut seen = Vec::new();
        for (millis, rtt_ns) in [(0, 20), (500, 90), (1_200, 80), (2_300, 70), (3_400, 75)] {
            base.turn(at(millis));
            base.note(rtt_ns);
            seen.push(base.ns());
        }
        assert_eq!(seen, [20, 20, 20, 70, 70]);
    }

    /// Its path is most likely what it was. If not, that is learnt within two windows.
    #[test]
    fn a_session_that_was_idle_for_an_hour_knows_its_path() {
        let mut base = Base::new();
        base.turn(at(0));
        base.note(20);
        base.turn(at(3_600_000));
        base.note(500);
        assert_eq!(base.ns(), 20);
        base.turn(at(3_602_000));
        base.note(450);
        assert_eq!(base.ns(), 450);
    }

    /// A window without a sample does not forget the path: `turn` comes with a sample, but another can follow at once.
    #[test]
    fn a_window_without_a_sample_changes_nothing() {
        let mut base = Base::new();
        base.turn(at(0));
        base.note(20);
        for seconds in 1..10 {
            base.turn(at(2_000 * seconds));
        }
        assert_eq!(base.ns(), 20);
    }

    #[test]
    fn slots_are_at_the_same_time_of_the_wall_clock_for_all() {
        let mut base = Base::new();
        base.note(20_000);
        let slot = |base: &Base, ns| base.left_of_slot(7 * PERIOD_NS + ns, 0).is_some();
        assert!(slot(&base, 0) && slot(&base, SLOT_NS));
        assert!(!slot(&base, SLOT_NS + 40_000) && !slot(&base, PERIOD_NS - 1));
        let mut long = Base::new();
        long.note(20_000_000);
        assert!(!slot(&long, 0), "not each slot");
        let left = |base: &Base| base.left_of_slot(8 * PERIOD_NS, 0);
        assert!(left(&long).is_some());
        assert_eq!(left(&base), Some(Duration::from_nanos(SLOT_NS + 40_000)));
    }
}
