//! Packets a second that a way of handling full bursts takes, of the time that it works.
//!
//! The generator needs as much time for a packet as a bare forwarder does. So it keeps no fast application busy, and the
//! rate of packets would be its own. The benchmark measures the time of each turn whose poll found a full burst, from the
//! poll to the last frame sent. After a smaller burst the application pauses, so that the next is full.

use std::time::{Duration, Instant};
use trine_dpdk::raw::RawQueue;
use trine_packets::config::BURST;
use trine_report::median;

/// How long one way runs before the other has its turn.
const SPAN: Duration = Duration::from_millis(300);
/// Rounds of a pause, some microseconds.
const PAUSE: u32 = 64;
/// Pauses in a row after which no packet will come any more.
const PAUSES_MAX: u64 = 20_000_000;

/// Handles and sends what the first queue has received.
pub(crate) type Way<'a> = &'a mut dyn FnMut(&mut RawQueue, &mut [RawQueue]);

/// Millions of packets a second of busy time: a burst in the median of the turns with a full one. A turn in which the
/// kernel ran something else does not move the median.
pub(crate) fn rate(input: &mut RawQueue, outputs: &mut [RawQueue], way: Way<'_>) -> f64 {
    let start = Instant::now();
    let mut turns_ns: Vec<f64> = Vec::with_capacity(1 << 18);
    let mut pauses = 0;
    let mut last = start;
    while last - start < SPAN || turns_ns.is_empty() {
        let count = input.receive();
        if count > 0 {
            way(input, outputs);
            pauses = 0;
        }
        let now = Instant::now();
        if count == BURST {
            turns_ns.push((now - last).as_nanos() as f64);
        }
        last = now;
        if count < BURST {
            pauses += 1;
            assert!(pauses < PAUSES_MAX, "the generator is gone");
            (0..PAUSE).for_each(|_| std::hint::spin_loop());
            last = Instant::now();
        }
    }
    BURST as f64 * 1e3 / median(turns_ns.into_iter())
}
