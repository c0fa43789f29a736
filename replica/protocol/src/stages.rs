//! The time of writes at the leader, by stage, counted over many of them.

use serde::{Deserialize, Serialize};

use crate::message::LeaderTiming;

/// Times are counted by their length in bits; the last class holds all longer ones.
const CLASSES: usize = 33;

/// How long something took, many times.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub struct Histogram {
    /// How many times.
    pub count: u64,
    /// All of them together, in nanoseconds.
    pub sum_ns: u64,
    /// `classes[n]` counts the times below 2^n ns that no earlier class holds; the last one holds all longer ones.
    /// Empty classes at the end are left out.
    pub classes: Vec<u64>,
}

impl Histogram {
    /// Counts one time.
    pub fn record(&mut self, ns: u32) {
        let class = (u32::BITS - ns.leading_zeros()) as usize;
        if self.classes.len() <= class {
            self.classes.resize((class + 1).min(CLASSES), 0);
        }
        self.classes[class.min(CLASSES - 1)] += 1;
        self.count += 1;
        self.sum_ns += u64::from(ns);
    }

    /// A length that at least this share (in percent) of the times did not exceed: the upper end of its class.
    #[must_use]
    pub fn percentile_ns(&self, percent: u64) -> Option<u64> {
        let rank = (self.count * percent).div_ceil(100).max(1);
        let mut seen = 0;
        let class = self.classes.iter().position(|&count| {
            seen += count;
            seen >= rank
        })?;
        Some((1 << class) - 1)
    }
}

/// The stages of the writes that were watched since the start, at the leader.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub struct WriteStages {
    /// From the arrival of a write until its entry was proposed.
    pub queue: Histogram,
    /// Until the entry was in the leader's log, and on its way to the followers.
    pub append: Histogram,
    /// Until a quorum was known to have it.
    pub quorum: Histogram,
    /// Until it was applied and its answer was there.
    pub apply: Histogram,
}

impl WriteStages {
    /// Counts the stages of one write.
    pub fn record(&mut self, timing: &LeaderTiming) {
        self.queue.record(timing.queue_ns);
        self.append.record(timing.append_ns);
        self.quorum.record(timing.quorum_ns);
        self.apply.record(timing.apply_ns);
    }

    /// The stages by name, in their order.
    #[must_use]
    pub const fn stages(&self) -> [(&'static str, &Histogram); 4] {
        [
            ("queue", &self.queue),
            ("append", &self.append),
            ("quorum", &self.quorum),
            ("apply", &self.apply),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_counted_by_their_length_in_bits() {
        let mut histogram = Histogram::default();
        assert_eq!(histogram.percentile_ns(50), None);
        for ns in [0, 1, 2, 3, 4, 1000, u32::MAX] {
            histogram.record(ns);
        }
        assert_eq!(histogram.classes[..4], [1, 1, 2, 1]);
        assert_eq!(histogram.classes.len(), CLASSES);
        assert_eq!(histogram.count, 7);
        assert_eq!(histogram.percentile_ns(50), Some(3));
        assert_eq!(histogram.percentile_ns(80), Some(1023));
        assert_eq!(histogram.percentile_ns(100), Some(u64::from(u32::MAX)));
    }
}
