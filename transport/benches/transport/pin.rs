//! Pins threads to processors, so that a measurement and its baseline run alike.
#![allow(unsafe_code)]

use std::mem::{size_of, zeroed};

/// Two processors of this process, the last ones it may use; the first ones serve interrupts.
/// `TRINE_BENCH_CORES=a,b` overrides.
pub(crate) fn two_cores() -> (usize, usize) {
    if let Ok(text) = std::env::var("TRINE_BENCH_CORES") {
        let parse = |core: &str| core.trim().parse::<usize>().expect("a processor number");
        let (first, second) = text.split_once(',').expect("TRINE_BENCH_CORES=a,b");
        return (parse(first), parse(second));
    }
    let cores = allowed_cores();
    match cores[..] {
        [.., first, second] => (first, second),
        _ => panic!(
            "the benchmarks need two processors, this process may use {}",
            cores.len()
        ),
    }
}

/// Pins the calling thread to `core`.
pub(crate) fn pin(core: usize) {
    // SAFETY: a `cpu_set_t` is a plain array of integers, for which zeros are valid.
    let mut set: libc::cpu_set_t = unsafe { zeroed() };
    assert!(core < libc::CPU_SETSIZE as usize, "no such processor");
    // SAFETY: the index is below `CPU_SETSIZE`.
    unsafe { libc::CPU_SET(core, &mut set) };
    // SAFETY: pointer and size describe a live set; 0 is the calling thread.
    let result =
        unsafe { libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &raw const set) };
    assert!(
        result == 0,
        "cannot pin to processor {core}: {}",
        std::io::Error::last_os_error()
    );
}

fn allowed_cores() -> Vec<usize> {
    // SAFETY: as in `pin`.
    let mut set: libc::cpu_set_t = unsafe { zeroed() };
    // SAFETY: pointer and size describe a live set that the call fills.
    let result = unsafe { libc::sched_getaffinity(0, size_of::<libc::cpu_set_t>(), &raw mut set) };
    assert!(
        result == 0,
        "cannot read the processor mask: {}",
        std::io::Error::last_os_error()
    );
    let is_set = |&core: &usize| {
        // SAFETY: the index is below `CPU_SETSIZE`.
        unsafe { libc::CPU_ISSET(core, &set) }
    };
    (0..libc::CPU_SETSIZE as usize).filter(is_set).collect()
}

/// Processor time that the calling thread has used, in nanoseconds: what others on its core take
/// does not count.
pub(crate) fn cpu_time_ns() -> f64 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: the pointer leads to a live value that the call fills.
    let result = unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
    assert!(result == 0, "every thread has a clock");
    time.tv_sec as f64 * 1e9 + time.tv_nsec as f64
}
