//! Pins threads to processors, so that a measurement and its baseline run alike.

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use rustix::time::{ClockId, clock_gettime};

/// Two processors of this process. They are the last ones that it may use, because the first ones serve interrupts.
/// `TRINE_BENCH_CORES=a,b` overrides them.
pub fn two_cores() -> (usize, usize) {
    if let Ok(text) = std::env::var("TRINE_BENCH_CORES") {
        let parse = |core: &str| core.trim().parse::<usize>().expect("a processor number");
        let (first, second) = text.split_once(',').expect("TRINE_BENCH_CORES=a,b");
        return (parse(first), parse(second));
    }
    let allowed = sched_getaffinity(None).expect("every thread has a processor mask");
    let cores: Vec<usize> = (0..CpuSet::MAX_CPU)
        .filter(|&core| allowed.is_set(core))
        .collect();
    match cores[..] {
        [.., first, second] => (first, second),
        _ => panic!(
            "the benchmarks need two processors, this process may use {}",
            cores.len()
        ),
    }
}

/// Pins the calling thread to `core`.
pub fn pin(core: usize) {
    let mut set = CpuSet::new();
    set.set(core);
    sched_setaffinity(None, &set)
        .unwrap_or_else(|error| panic!("cannot pin to processor {core}: {error}"));
}

/// The processor time of the calling thread, in nanoseconds. The time of other threads on its core does not count.
pub fn cpu_time_ns() -> f64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as f64 * 1e9 + time.tv_nsec as f64
}
