//! Where the time of writes goes: some are watched on their way through the leader, always, and those whose clients ask.
//!
//! A turn of the event loop has one time for everything in it, which is too coarse here: the stages of a write that
//! shares its turn with nothing are shorter than the turn. So whoever owns a clock may lend it as a stopwatch. What it
//! says is reported and never decided upon; without it turns are what is measured in.

use serde::{Deserialize, Serialize};
use trine_transport::time::Instant;

use crate::message::LeaderTiming;

/// Of so many entries the first command of one is watched.
pub(crate) const SAMPLE_EVERY: u32 = 64;
/// Commands of one entry that are watched at most.
pub(crate) const TRACES_MAX: usize = 64;
/// Times are counted by their length in bits; the last class holds everything that is longer.
const CLASSES: usize = 33;

/// A command on its way.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Trace {
    /// Its place in its entry.
    pub(crate) place: usize,
    pub(crate) received: Instant,
    /// Whether its client has asked; else it is a sample.
    pub(crate) wanted: bool,
}

/// What was noted of an entry that holds watched commands.
#[derive(Clone, Default, Debug)]
pub(crate) struct Traces {
    pub(crate) list: Vec<Trace>,
    pub(crate) proposed: Option<Instant>,
    pub(crate) appended: Option<Instant>,
}

impl Traces {
    /// The stages of one command of an entry whose commit was noticed at `committed`.
    pub(crate) fn stages(&self, trace: &Trace, committed: Instant, now: Instant) -> LeaderTiming {
        let proposed = self.proposed.unwrap_or(trace.received);
        // The followers may be quicker than the leader's look at its own log.
        let appended = self.appended.unwrap_or(committed);
        let between = |from: Instant, until: Instant| {
            u32::try_from(until.saturating_since(from).as_nanos()).unwrap_or(u32::MAX)
        };
        LeaderTiming {
            queue_ns: between(trace.received, proposed),
            append_ns: between(proposed, appended),
            quorum_ns: between(appended, committed),
            apply_ns: between(committed, now),
        }
    }
}

/// Tells the time when it is asked to.
pub type Stopwatch = fn() -> Instant;

/// The watched commands of an entry while it is applied.
pub(crate) struct Watched<'a> {
    traces: &'a Traces,
    /// Of those the first that is not applied yet.
    next: usize,
    committed: Instant,
    stopwatch: Option<Stopwatch>,
}

impl<'a> Watched<'a> {
    /// Nothing if no command of the entry is watched.
    pub(crate) fn of(
        traces: &'a Traces,
        stopwatch: Option<Stopwatch>,
        now: Instant,
    ) -> Option<Self> {
        (!traces.list.is_empty()).then(|| Self {
            traces,
            next: 0,
            committed: stopwatch.map_or(now, |stopwatch| stopwatch()),
            stopwatch,
        })
    }

    /// The command at `place` is applied: its stages, if it was watched and its client has asked.
    pub(crate) fn on_answer(
        &mut self,
        place: usize,
        stages: &mut WriteStages,
    ) -> Option<LeaderTiming> {
        let trace = self.traces.list.get(self.next)?;
        if trace.place != place {
            return None;
        }
        self.next += 1;
        let now = self
            .stopwatch
            .map_or(self.committed, |stopwatch| stopwatch());
        let timing = self.traces.stages(trace, self.committed, now);
        stages.record(&timing);
        trace.wanted.then_some(timing)
    }
}

/// How long something took, many times.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub struct Histogram {
    /// How many times.
    pub count: u64,
    /// All of them together, in nanoseconds.
    pub sum_ns: u64,
    /// `classes[n]` counts the times below 2^n ns that no earlier class holds; the last one holds whatever is longer.
    /// Classes behind the last that holds anything are left out.
    pub classes: Vec<u64>,
}

impl Histogram {
    pub(crate) fn record(&mut self, ns: u32) {
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
    pub(crate) fn record(&mut self, timing: &LeaderTiming) {
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

    #[test]
    fn the_stages_of_a_write_follow_each_other() {
        let at = Instant::from_nanos;
        let trace = Trace {
            place: 0,
            received: at(10),
            wanted: true,
        };
        let traces = Traces {
            list: vec![trace],
            proposed: Some(at(11)),
            appended: Some(at(14)),
        };
        let timing = traces.stages(&trace, at(20), at(29));
        assert_eq!(timing.stages().map(|(_, ns)| ns), [1, 3, 6, 9]);
        assert_eq!(timing.total_ns(), 19);
        let long = traces.stages(&trace, at(20), at(10_000_000_000));
        assert_eq!(long.apply_ns, u32::MAX);
    }
}
