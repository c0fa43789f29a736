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
        let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH);
        let wall = since_1970.map_or(0, |since| since.as_nanos() as u64);
        Duration::from_nanos(wall.saturating_sub(self.now().as_nanos()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_passes_forwards() {
        let clock = MonotonicClock;
        let start = clock.now();
        assert!(start > Instant::ZERO);
        while clock.now() == start {}
        assert!(clock.now() > start);
    }
}
