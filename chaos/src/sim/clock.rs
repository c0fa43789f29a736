//! The clock of one machine: it starts anywhere, drifts, and can jump ahead, but never goes back.

use trine_transport::time::{Duration, Instant};

const MILLION: u64 = 1_000_000;

/// The time on one machine's clock, as a function of simulated time.
#[derive(Copy, Clone, Debug)]
pub(crate) struct LocalClock {
    /// A moment of simulated time at which the local clock showed `local_ns`.
    simulated_ns: u64,
    local_ns: u64,
    parts_per_million: i32,
}

impl LocalClock {
    pub(crate) fn new(simulated: Instant, local: Instant) -> Self {
        Self {
            simulated_ns: simulated.as_nanos(),
            local_ns: local.as_nanos(),
            parts_per_million: 0,
        }
    }

    /// The clock's reading at a simulated moment, which is not before the last change of the clock.
    pub(crate) fn local(&self, simulated: Instant) -> Instant {
        let passed = simulated.as_nanos().saturating_sub(self.simulated_ns);
        Instant::from_nanos(self.local_ns + scale(passed, self.speed(), MILLION))
    }

    /// The first simulated moment at which the clock shows `local` or more.
    pub(crate) fn simulated(&self, local: Instant) -> Instant {
        let to_show = local.as_nanos().saturating_sub(self.local_ns);
        let speed = self.speed();
        let passed = if speed == MILLION {
            to_show
        } else {
            // Rounded up.
            let shown = scale(to_show, MILLION, speed);
            shown.saturating_add(u64::from(scale(shown, speed, MILLION) < to_show))
        };
        Instant::from_nanos(self.simulated_ns.saturating_add(passed))
    }

    /// Local nanoseconds in a million simulated ones.
    fn speed(&self) -> u64 {
        MILLION.saturating_add_signed(i64::from(self.parts_per_million))
    }

    /// From `simulated` on the clock runs this much too fast.
    pub(crate) fn drift(&mut self, simulated: Instant, parts_per_million: i32) {
        self.local_ns = self.local(simulated).as_nanos();
        self.simulated_ns = simulated.as_nanos();
        self.parts_per_million = parts_per_million;
    }

    /// The clock shows no progress until `until`, like a clock that does not count a process's suspension.
    pub(crate) fn stand_still(&mut self, simulated: Instant, until: Instant) {
        self.drift(simulated, self.parts_per_million);
        self.simulated_ns = until.as_nanos();
    }

    /// At `simulated` the clock jumps ahead.
    pub(crate) fn jump(&mut self, simulated: Instant, span: Duration) {
        self.drift(simulated, self.parts_per_million);
        self.local_ns += span.as_nanos();
    }
}

/// `value * by / of`, rounded down, at most `u64::MAX`. Divisions of 64 bits suffice for hours, and cost a tenth.
fn scale(value: u64, by: u64, of: u64) -> u64 {
    match value.checked_mul(by) {
        _ if by == of => value,
        Some(product) => product / of,
        None => {
            let scaled = u128::from(value) * u128::from(by) / u128::from(of);
            u64::try_from(scaled).unwrap_or(u64::MAX)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(nanos: u64) -> Instant {
        Instant::from_nanos(nanos)
    }

    #[test]
    fn a_fast_clock_shows_more_than_has_passed() {
        let mut clock = LocalClock::new(at(1_000), at(5_000_000));
        clock.drift(at(2_000), 500_000);
        assert_eq!(clock.local(at(4_000)), at(5_000_000 + 1_000 + 3_000));
    }

    #[test]
    fn a_deadline_is_reached_at_the_moment_computed_for_it() {
        for parts_per_million in [-10_000, -1, 0, 3, 9_999] {
            let mut clock = LocalClock::new(at(77), at(123_456_789));
            clock.drift(at(100), parts_per_million);
            for wait in [0, 1, 7, 999, 1_000_000, 123_456_789_123] {
                let deadline = at(clock.local(at(100)).as_nanos() + wait);
                let reached = clock.simulated(deadline);
                assert!(clock.local(reached) >= deadline);
                let before = at(reached.as_nanos().saturating_sub(1).max(100));
                assert!(reached == at(100) || clock.local(before) < deadline);
            }
        }
    }

    #[test]
    fn a_jump_goes_ahead_and_keeps_the_speed() {
        let mut clock = LocalClock::new(at(0), at(0));
        clock.drift(at(0), 1_000);
        clock.jump(at(1_000_000), Duration::from_nanos(500));
        assert_eq!(clock.local(at(1_000_000)), at(1_001_500));
        assert_eq!(clock.local(at(2_000_000)), at(2_002_500));
    }
}
