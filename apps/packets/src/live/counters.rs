//! Counters of one thread of an application.

use std::sync::atomic::{AtomicU64, Ordering};
use trine_packets::forwarding::Sum;

/// Counters that one thread writes and another reads, on cache lines of their own.
#[derive(Default)]
#[repr(align(128))]
pub(super) struct PacketCounters {
    received: AtomicU64,
    forwarded: AtomicU64,
    flooded: AtomicU64,
    dropped: [AtomicU64; 7],
    sent: AtomicU64,
    refused: AtomicU64,
}

/// Only one thread writes.
fn add(counter: &AtomicU64, count: u64) {
    if count > 0 {
        counter.store(counter.load(Ordering::Relaxed) + count, Ordering::Relaxed);
    }
}

impl PacketCounters {
    /// Adds a burst.
    pub(super) fn add(&self, burst: &Sum) {
        add(&self.received, burst.received);
        add(&self.forwarded, burst.tally.forwarded);
        add(&self.flooded, burst.tally.flooded);
        for (counter, count) in self.dropped.iter().zip(burst.tally.dropped) {
            add(counter, count);
        }
        add(&self.sent, burst.sent);
        add(&self.refused, burst.refused);
    }

    fn add_to(&self, sum: &mut Sum) {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        sum.received += read(&self.received);
        sum.tally.forwarded += read(&self.forwarded);
        sum.tally.flooded += read(&self.flooded);
        for (count, counter) in sum.tally.dropped.iter_mut().zip(&self.dropped) {
            *count += read(counter);
        }
        sum.sent += read(&self.sent);
        sum.refused += read(&self.refused);
    }
}

/// The sum of all threads.
pub(super) fn sum(counters: &[PacketCounters]) -> Sum {
    let mut sum = Sum::default();
    counters
        .iter()
        .for_each(|counters| counters.add_to(&mut sum));
    sum
}
