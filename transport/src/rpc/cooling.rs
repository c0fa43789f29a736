//! When message memory is given back to the system: once half of it has been free for a while.
//!
//! The pool is looked at a few times while that lasts. A burst between two looks does no harm: its memory is taken anew.
//! The memory goes a piece at a time, because each page costs the event loop some time.

use crate::buf::Pool;
use crate::config::{COOLING_BYTES, COOLING_FLOOR, COOLING_LOOKS, COOLING_PAUSE, COOLING_STEP};
use crate::time::Instant;

/// The state of giving memory back.
#[derive(Copy, Clone, Debug)]
pub(crate) struct Cooling {
    next_look: Instant,
    /// Looks in a row that found half of the memory free.
    half_empty: u32,
    /// There is memory that may have to be given back.
    is_watching: bool,
}

impl Cooling {
    pub(super) const fn new() -> Self {
        Self {
            next_look: Instant::ZERO,
            half_empty: 0,
            is_watching: false,
        }
    }

    /// Looks at the pool, if that is due.
    #[inline]
    pub(super) fn on_time(&mut self, now: Instant, pool: &Pool) {
        if now >= self.next_look {
            self.look(now, pool);
        }
    }

    #[cold]
    fn look(&mut self, now: Instant, pool: &Pool) {
        self.next_look = now + COOLING_PAUSE;
        self.is_watching = pool.large_warm_bytes() > COOLING_FLOOR;
        if !self.is_watching {
            self.half_empty = 0;
            return;
        }
        let (all, free) = pool.warm_bytes();
        let is_cooling = self.half_empty > COOLING_LOOKS;
        // Once it has begun, all that is free goes.
        self.half_empty = match free * 2 >= all || (is_cooling && free > 0) {
            true => self.half_empty + 1,
            false => 0,
        };
        if self.half_empty <= COOLING_LOOKS {
            return;
        }
        if pool.cool(COOLING_BYTES) == 0 {
            // A device's memory, or others took what was free.
            self.half_empty = 0;
            return;
        }
        self.next_look = now + COOLING_STEP;
    }

    /// When the next look is due, if there is anything to give back.
    pub(super) fn next(&self) -> Option<Instant> {
        self.is_watching.then_some(self.next_look)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::buf::PoolConfig;
    use crate::time::Duration;

    const MB: usize = 1 << 20;

    /// Looks whenever that is due, for so long.
    fn pass(cooling: &mut Cooling, now: &mut Instant, pool: &Pool, span: Duration) {
        let end = *now + span;
        while *now < end {
            cooling.on_time(*now, pool);
            *now = cooling
                .next()
                .unwrap_or(end)
                .min(end)
                .max(*now + Duration::from_millis(1));
        }
    }

    #[test]
    fn memory_goes_back_ten_seconds_after_a_burst() {
        let pool = Pool::new(PoolConfig::default());
        let (mut cooling, mut now) = (Cooling::new(), Instant::from_nanos(1));
        let held: Vec<_> = (0..64).map(|_| pool.alloc(MB).expect("room")).collect();
        pass(&mut cooling, &mut now, &pool, Duration::from_secs(60));
        assert_eq!(pool.stats().cold_bytes, 0, "all is in use");
        drop(held);
        pass(&mut cooling, &mut now, &pool, Duration::from_secs(9));
        assert_eq!(pool.stats().cold_bytes, 0, "not yet");
        pass(&mut cooling, &mut now, &pool, Duration::from_secs(5));
        assert!(pool.stats().cold_bytes > 59 * MB, "{:?}", pool.stats());
        // Nothing is left to watch, and nothing is lost.
        let before = pool.region_bytes();
        let held: Vec<_> = (0..64).map(|_| pool.alloc(MB).expect("room")).collect();
        assert_eq!((pool.region_bytes(), pool.stats().cold_bytes), (before, 0));
        drop(held);
    }

    #[test]
    fn memory_that_is_used_again_and_again_stays() {
        let pool = Pool::new(PoolConfig::default());
        let (mut cooling, mut now) = (Cooling::new(), Instant::from_nanos(1));
        for _ in 0..20 {
            let held: Vec<_> = (0..32).map(|_| pool.alloc(MB).expect("room")).collect();
            pass(&mut cooling, &mut now, &pool, COOLING_PAUSE);
            drop(held);
            pass(&mut cooling, &mut now, &pool, COOLING_PAUSE * 2);
        }
        assert_eq!(pool.stats().cold_bytes, 0);
    }

    #[test]
    fn a_little_memory_costs_no_wakeups() {
        let pool = Pool::new(PoolConfig::default());
        let (mut cooling, now) = (Cooling::new(), Instant::from_nanos(1));
        let _held = pool.alloc(MB);
        cooling.on_time(now, &pool);
        assert_eq!(cooling.next(), None);
    }
}
