//! Many seeds on several threads: each run is a world of its own.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

/// Calls `run` with every seed of `from..from + count` on `jobs` threads and `take` with each outcome, in the order
/// in which they end. Stops handing out seeds when `go_on` says no.
///
/// # Panics
/// When `run` or `take` panics.
pub fn for_each_seed<T>(
    from: u64,
    count: u64,
    jobs: u64,
    go_on: impl Fn() -> bool + Sync,
    run: impl Fn(u64) -> T + Sync,
    take: impl FnMut(T) + Send,
) {
    let next = AtomicU64::new(from);
    let end = from.saturating_add(count);
    let take = Mutex::new(take);
    let work = || {
        while go_on() {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= end {
                return;
            }
            let outcome = run(seed);
            take.lock().expect("no holder panics")(outcome);
        }
    };
    std::thread::scope(|scope| (0..jobs.max(1)).for_each(|_| drop(scope.spawn(work))));
}

#[cfg(test)]
mod tests {
    use super::for_each_seed;

    #[test]
    fn every_seed_is_run_once_whatever_the_number_of_threads() {
        for jobs in [0, 1, 3, 50] {
            let mut seen = Vec::new();
            for_each_seed(10, 20, jobs, || true, |seed| seed, |seed| seen.push(seed));
            seen.sort_unstable();
            assert_eq!(seen, (10..30).collect::<Vec<_>>(), "{jobs}");
        }
    }
}
