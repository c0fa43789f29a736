//! CPU time of this thread, and how it is distributed.

#![allow(unsafe_code)]

/// Nanoseconds of CPU time that this thread has used.
pub(crate) fn thread_ns() -> u64 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: the pointer is to a live timespec, which is all that the call writes.
    let result = unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
    assert_eq!(result, 0, "every Linux thread has a CPU clock");
    time.tv_sec.cast_unsigned() * 1_000_000_000 + time.tv_nsec.cast_unsigned()
}

/// The shortest time between two readings of the clock.
pub(crate) fn clock_cost_ns() -> u64 {
    let pair = |_| {
        let start = thread_ns();
        thread_ns() - start
    };
    (0..10_000).map(pair).min().unwrap_or(0)
}

/// Counts of nanoseconds, sixteen steps to each power of two.
pub(crate) struct Histogram {
    counts: Box<[u64; 64 * 16]>,
    total: u64,
}

impl Default for Histogram {
    fn default() -> Self {
        Self {
            counts: Box::new([0; 64 * 16]),
            total: 0,
        }
    }
}

impl Histogram {
    pub(crate) fn add(&mut self, ns: u64) {
        let value = ns.max(16);
        let power = value.ilog2() - 4;
        self.counts[(power * 16) as usize + (value >> power) as usize - 16] += 1;
        self.total += 1;
    }

    /// The value that `per_10_000` in 10,000 do not exceed, to a sixteenth.
    pub(crate) fn percentile(&self, per_10_000: u64) -> f64 {
        let mut left = (self.total * per_10_000).div_ceil(10_000);
        for (step, &count) in self.counts.iter().enumerate() {
            if count >= left {
                return ((step as u64 % 16 + 17) << (step / 16)) as f64;
            }
            left -= count;
        }
        unreachable!("the counts add up to the total")
    }
}
