//! Where the time of writes goes: some are watched on their way through the leader, always, and those whose clients ask.
//!
//! A turn of the event loop has one time for everything in it, which is too coarse here. A write that shares its turn
//! with nothing has stages shorter than the turn. So the owner of a clock may lend it as a stopwatch. Its times are
//! reported and never decided upon; without it, stages are measured in turns.

use trine_transport::time::Instant;

use trine_protocol::message::LeaderTiming;
use trine_protocol::stages::WriteStages;

/// Of so many entries the first command of one is watched.
pub(crate) const SAMPLE_EVERY: u32 = 64;
/// Commands of one entry that are watched at most.
pub(crate) const TRACES_MAX: usize = 64;

/// A command on its way.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Trace {
    /// Its place in its entry.
    pub(crate) place: usize,
    pub(crate) received: Instant,
    /// Whether its client has asked; else it is a sample.
    pub(crate) wanted: bool,
}

/// The notes on an entry that holds watched commands.
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
        // The followers may be quicker than the leader's check of its own log.
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
    /// The first of those that is not applied yet.
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

#[cfg(test)]
mod tests {
    use super::*;

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
