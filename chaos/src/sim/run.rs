//! What every simulated run has, whatever runs on its machines: the whole group, or the transport alone.

use super::trace::Trace;
use crate::checker::Verdict;
use crate::fault::Fault;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use trine_transport::time::Duration;

/// The settings of a run.
pub trait Run: Clone {
    /// Its result.
    type Report: Report;

    /// Runs it as long as `go_on` says so.
    ///
    /// # Panics
    /// When the settings contradict each other.
    fn simulate(&self, trace: Trace, go_on: fn() -> bool) -> Self::Report;

    /// The faults that are named, instead of those that the seed draws.
    fn faults(&self) -> Option<&BTreeSet<Fault>>;

    /// The run with these faults, of which the demands on a whole run are not made.
    #[must_use]
    fn with_faults(&self, faults: BTreeSet<Fault>) -> Self;

    /// Smaller runs with the same faults, the largest steps first.
    fn smaller(&self) -> Vec<Self>;
}

/// The result of a run.
pub trait Report: fmt::Display {
    /// The seed.
    fn seed(&self) -> u64;
    /// The judgement.
    fn verdict(&self) -> &Verdict;
    /// The same seed at the same commit has the same.
    fn hash(&self) -> u64;
    /// How often each fault fired.
    fn faults(&self) -> &BTreeMap<Fault, u64>;
    /// It was told to end before its time.
    fn ended_early(&self) -> bool;
    /// The command that replays the run.
    fn replay_command(&self) -> String;
}

/// Half of a time, if that is enough.
pub(super) fn halved(time: Duration, least: Duration) -> Option<Duration> {
    let half = Duration::from_nanos(time.as_nanos() / 2);
    (half >= least).then_some(half)
}
