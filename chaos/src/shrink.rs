//! Makes a failing simulation smaller: takes faults and clients away, one by one, as long as it
//! still fails in the same way.

use crate::checker::Verdict;
use crate::sim::{self, SimConfig, SimReport, Trace};
use std::collections::BTreeSet;
use trine_transport::time::Duration;

/// Shortest time with faults that is tried.
const FAULTY_MIN: Duration = Duration::from_secs(2);

/// A failing run and the smaller one that it was shrunk to.
#[derive(Clone, Debug)]
pub struct Shrunk {
    /// The smallest configuration found that still fails.
    pub config: SimConfig,
    /// Its report.
    pub report: SimReport,
    /// Runs that were tried.
    pub tried: u64,
}

/// Shrinks the failing run of `config` within `runs_max` runs, and as long as `go_on` says so; `None` if it does not
/// fail, or was interrupted before it had.
pub fn shrink(config: &SimConfig, runs_max: u64, go_on: fn() -> bool) -> Option<Shrunk> {
    let mut config = config.clone();
    let mut tried = 1;
    let run = |config: &SimConfig| sim::run_while(config.clone(), Trace::Off, go_on).ok();
    let mut report = run(&config).filter(|report| !report.ended_early)?;
    let failure = kind_of(&report.verdict)?;
    let fired = report.faults.iter().filter(|(_, fired)| **fired > 0);
    config.faults = Some(fired.map(|(&fault, _)| fault).collect());
    // What is asked of a whole run is not asked of its remains.
    config.ask_for_less(1);
    loop {
        let smaller = candidates(&config).into_iter().find_map(|candidate| {
            if tried >= runs_max || !go_on() {
                return None;
            }
            tried += 1;
            let report = run(&candidate).filter(|report| !report.ended_early)?;
            (kind_of(&report.verdict) == Some(failure)).then_some((candidate, report))
        });
        match smaller {
            Some(found) => (config, report) = found,
            None => {
                return Some(Shrunk {
                    config,
                    report,
                    tried,
                });
            }
        }
    }
}

/// In which way a run failed: the property that was broken, not where.
fn kind_of(verdict: &Verdict) -> Option<Failure> {
    match verdict {
        Verdict::Pass => None,
        Verdict::Undecided { .. } => Some(Failure::Undecided),
        Verdict::Violation(violation) => Some(Failure::of(&violation.explanation)),
    }
}

#[derive(Copy, Clone, Debug, PartialEq, Eq)]
enum Failure {
    NotLinearizable,
    NotExactlyOnce,
    NoAgreement,
    NotLive,
    NothingProved,
    Undecided,
    Other,
}

impl Failure {
    fn of(explanation: &str) -> Self {
        let kinds = [
            ("not linearizable", Failure::NotLinearizable),
            ("not exactly once", Failure::NotExactlyOnce),
            ("no agreement", Failure::NoAgreement),
            ("not live", Failure::NotLive),
            ("nothing proved", Failure::NothingProved),
        ];
        let found = kinds
            .into_iter()
            .find(|(begin, _)| explanation.starts_with(begin));
        found.map_or(Failure::Other, |(_, failure)| failure)
    }
}

/// Smaller configurations, the largest steps first.
fn candidates(config: &SimConfig) -> Vec<SimConfig> {
    let mut smaller = Vec::new();
    let halved = Duration::from_nanos(config.faulty.as_nanos() / 2);
    if halved >= FAULTY_MIN {
        smaller.push(SimConfig {
            faulty: halved,
            ..config.clone()
        });
    }
    if config.client_machines > 1 {
        smaller.push(SimConfig {
            client_machines: config.client_machines - 1,
            ..config.clone()
        });
    }
    if config.clients_per_machine > 1 {
        smaller.push(SimConfig {
            clients_per_machine: config.clients_per_machine - 1,
            ..config.clone()
        });
    }
    let faults = config.faults.clone().unwrap_or_default();
    for fault in &faults {
        let fewer: BTreeSet<_> = faults
            .iter()
            .copied()
            .filter(|other| other != fault)
            .collect();
        smaller.push(SimConfig {
            faults: Some(fewer),
            ..config.clone()
        });
    }
    smaller
}
