//! What the simulations of one part of the system share: the times and faults of a run, its result, and the command that
//! replays it.

use super::counted::counted;
use super::message_of;
use super::network::Network;
use super::run::{Report, Run, halved};
use super::trace::Trace;
use crate::checker::Verdict;
use crate::fault::{Fault, FaultSet, Schedule};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::marker::PhantomData;
use std::panic::{AssertUnwindSafe, catch_unwind};
use trine_transport::time::Duration;

/// Shortest time with faults to which a run is shrunk.
const FAULTY_MIN: Duration = Duration::from_millis(100);

/// A part of the system that is simulated without the rest.
pub trait Part: Clone + fmt::Debug + Send + Sync {
    /// What its reports say beyond that of every part.
    type Facts: Facts;
    /// The option of `trine sim` that asks for it.
    const OPTION: &'static str;
    /// The faults that make sense for it. Seeds draw from them, so their order counts.
    const KINDS: &'static [Fault];
    /// The usual simulated time with faults.
    const FAULTY: Duration;
    /// The fewest answered requests of a usual run.
    const ANSWERS_MIN: u64;

    /// Runs it as long as `go_on` says so. It may panic.
    fn simulate(
        config: &PartConfig<Self>,
        trace: Trace,
        go_on: fn() -> bool,
    ) -> PartReport<Self::Facts>;
}

/// What the reports of one part say alone.
pub trait Facts: Clone + fmt::Debug + Default + Send {
    /// In words, with the packets of the run.
    fn in_words(&self, packets: u64) -> String;
}

/// What to simulate.
#[derive(Clone, Debug)]
pub struct PartConfig<P> {
    /// The seed.
    pub seed: u64,
    /// Simulated time with faults.
    pub faulty: Duration,
    /// Simulated time without, at the end.
    pub quiet: Duration,
    /// The faults; without them the seed draws a subset.
    pub faults: Option<BTreeSet<Fault>>,
    /// Fewest answered requests.
    pub answers_min: u64,
    /// The part.
    pub part: PhantomData<P>,
}

impl<P: Part> PartConfig<P> {
    /// The part's usual time with a drawn subset of the faults, three simulated seconds without.
    pub fn new(seed: u64) -> Self {
        Self {
            seed,
            faulty: P::FAULTY,
            quiet: Duration::from_secs(3),
            faults: None,
            answers_min: P::ANSWERS_MIN,
            part: PhantomData,
        }
    }

    /// The command that replays the run and prints what happens.
    fn replay_command(&self) -> String {
        let mut command = format!(
            "cargo run --profile sim -- sim {} --seed {}",
            P::OPTION,
            self.seed
        );
        if let Some(faults) = &self.faults {
            command += &format!(" --faults {}", FaultSet(faults.clone()));
        }
        if self.faulty != P::FAULTY {
            command += &format!(" --faulty {}ns", self.faulty.as_nanos());
        }
        command + " --trace"
    }
}

impl<P: Part> Run for PartConfig<P> {
    type Report = PartReport<P::Facts>;

    fn simulate(&self, trace: Trace, go_on: fn() -> bool) -> Self::Report {
        run_while(self, trace, go_on)
    }

    fn faults(&self) -> Option<&BTreeSet<Fault>> {
        self.faults.as_ref()
    }

    fn with_faults(&self, faults: BTreeSet<Fault>) -> Self {
        Self {
            faults: Some(faults),
            answers_min: 1,
            ..self.clone()
        }
    }

    fn smaller(&self) -> Vec<Self> {
        let faulty = halved(self.faulty, FAULTY_MIN);
        let smaller = faulty.map(|faulty| Self {
            faulty,
            ..self.clone()
        });
        smaller.into_iter().collect()
    }
}

/// Runs a part under faults, as long as `go_on` says so. A panic is a finding about this seed and not the end of all runs.
pub fn run_while<P: Part>(
    config: &PartConfig<P>,
    trace: Trace,
    go_on: fn() -> bool,
) -> PartReport<P::Facts> {
    let run = AssertUnwindSafe(|| P::simulate(config, trace, go_on));
    catch_unwind(run).unwrap_or_else(|payload| PartReport {
        seed: config.seed,
        verdict: Verdict::violation(format!("panic: {}", message_of(&*payload))),
        faults: BTreeMap::new(),
        packets: 0,
        hash: 0,
        ended_early: false,
        replay: config.replay_command(),
        facts: P::Facts::default(),
    })
}

/// Runs a part under faults.
pub fn run<P: Part>(config: &PartConfig<P>, trace: Trace) -> PartReport<P::Facts> {
    run_while(config, trace, || true)
}

/// The result.
#[derive(Clone, Debug)]
pub struct PartReport<F> {
    /// The seed.
    pub seed: u64,
    /// The judgement.
    pub verdict: Verdict,
    /// Faults that fired.
    pub faults: BTreeMap<Fault, u64>,
    /// Wire packets sent.
    pub packets: u64,
    /// A hash over every end of every request, in order.
    pub hash: u64,
    /// It was told to end before its time.
    pub ended_early: bool,
    /// The command that replays the run.
    pub replay: String,
    /// What this part alone has to say.
    pub facts: F,
}

/// How a run has ended, as its requests saw it.
pub(super) struct Ending {
    pub(super) verdict: Verdict,
    pub(super) hash: u64,
    pub(super) early: bool,
}

impl<F: Facts> PartReport<F> {
    pub(super) fn new<P: Part<Facts = F>>(
        config: &PartConfig<P>,
        (schedule, network): (&Schedule, &Network),
        ending: Ending,
        facts: F,
    ) -> Self {
        let fired = &network.stats.fired;
        let of_enabled = |fault: &Fault| (*fault, fired.get(fault).copied().unwrap_or(0));
        Self {
            seed: config.seed,
            verdict: ending.verdict,
            faults: schedule.enabled.iter().map(of_enabled).collect(),
            packets: network.stats.packets_sent,
            hash: ending.hash,
            ended_early: ending.early,
            replay: config.replay_command(),
            facts,
        }
    }
}

impl<F: Facts> Report for PartReport<F> {
    fn seed(&self) -> u64 {
        self.seed
    }

    fn verdict(&self) -> &Verdict {
        &self.verdict
    }

    fn hash(&self) -> u64 {
        self.hash
    }

    fn faults(&self) -> &BTreeMap<Fault, u64> {
        &self.faults
    }

    fn ended_early(&self) -> bool {
        self.ended_early
    }

    fn replay_command(&self) -> String {
        self.replay.clone()
    }
}

impl<F: Facts> fmt::Display for PartReport<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let facts = self.facts.in_words(self.packets);
        writeln!(f, "seed {}: {facts}, history {:016x}", self.seed, self.hash)?;
        writeln!(f, "faults: {}", counted(&self.faults))?;
        write!(f, "{}", self.verdict)?;
        match self.verdict {
            Verdict::Violation(_) => write!(f, "\nreplay with: {}", self.replay),
            _ => Ok(()),
        }
    }
}
