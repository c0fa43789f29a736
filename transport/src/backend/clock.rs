//! The operating system's monotonic clock.
#![allow(unsafe_code)]

use std::time::{SystemTime, UNIX_EPOCH};

use crate::time::{Clock, Duration, Instant};

/// `CLOCK_BOOTTIME`: never stepped, and it goes on while the machine is suspended, so that a lease
/// or a timeout ends when the rest of the world thinks so.
#[derive(Copy, Clone, Default, Debug)]
pub struct MonotonicClock;

impl Clock for MonotonicClock {
    #[inline]
    fn now(&self) -> Instant {
        let mut time = libc::timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        // SAFETY: the pointer is to a live value that the call fills.
        let result = unsafe { libc::clock_gettime(libc::CLOCK_BOOTTIME, &raw mut time) };
        assert!(
            result == 0,
            "CLOCK_BOOTTIME is missing; Linux has it since 2.6.39"
        );
        Instant::from_nanos(time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64)
    }

    /// Zero if the wall clock stands before 1970.
    fn wall_ahead(&self) -> Duration {
        ahead(|| self.now().as_nanos(), wall_ns)
    }
}

/// Nanoseconds since 1970; 0 if the wall clock stands before that.
pub(super) fn wall_ns() -> u64 {
    let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH);
    since_1970.map_or(0, |since| since.as_nanos() as u64)
}

/// How far the second clock is ahead of the first. A thread that loses its processor between the two looks again: the
/// difference stays with the process.
fn ahead(first: impl Fn() -> u64, second: impl Fn() -> u64) -> Duration {
    let mut best = (u64::MAX, 0);
    for _ in 0..LOOKS_MAX {
        let (before, there, after) = (first(), second(), first());
        let span = after.saturating_sub(before);
        best = best.min((span, there.saturating_sub(before + span / 2)));
        if span <= LOOK_NS_MAX {
            break;
        }
    }
    Duration::from_nanos(best.1)
}

/// Two looks at a clock take longer only if something came in between.
const LOOK_NS_MAX: u64 = 50_000;
const LOOKS_MAX: usize = 20;

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    /// The thread loses its processor for 30 ms in each of the first `pauses` looks at the wall clock, which then is 1 s
    /// ahead.
    fn ahead_after(pauses: u32) -> Duration {
        let (time, left) = (Cell::new(1_000), Cell::new(pauses));
        let tick = || {
            time.set(time.get() + 100);
            time.get()
        };
        let wall = || {
            let wall = tick() + 1_000_000_000;
            if left.get() > 0 {
                left.set(left.get() - 1);
                time.set(time.get() + 30_000_000);
            }
            wall
        };
        ahead(tick, wall)
    }

    #[test]
    fn a_pause_between_the_clocks_is_no_difference_of_theirs() {
        let second = Duration::from_secs(1);
        assert_eq!(ahead_after(0), second);
        assert_eq!(ahead_after(5), second);
        let busy = ahead_after(1_000).as_nanos().abs_diff(second.as_nanos());
        assert!(busy <= 15_000_000, "half of the pause at worst: {busy}");
    }

    #[test]
    fn time_passes_forwards() {
        let clock = MonotonicClock;
        let start = clock.now();
        assert!(start > Instant::ZERO);
        while clock.now() == start {}
        assert!(clock.now() > start);
    }
}
