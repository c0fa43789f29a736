//! CPU time of this thread, and percentiles of it.

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

/// What two readings of the clock take at best.
pub(crate) fn clock_cost_ns() -> u64 {
    let pair = |_| {
        let start = thread_ns();
        thread_ns() - start
    };
    (0..10_000).map(pair).min().unwrap_or(0)
}

/// The value that `per_10_000` in 10,000 of the samples do not exceed.
pub(crate) fn percentile(samples: &mut [u64], per_10_000: usize) -> u64 {
    samples.sort_unstable();
    samples[(samples.len() * per_10_000 / 10_000).min(samples.len() - 1)]
}
