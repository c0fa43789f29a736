//! Makes a failing simulation smaller: takes faults and clients away, one by one, as long as it
//! still fails in the same way.

use crate::checker::Verdict;
use crate::fault::Fault;
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

/// Shrinks the failing run of `config` within `runs_max` runs, and as long as `go_on` says so. `None` if it does not
/// fail, or was interrupted before it had. A run that proved nothing is handed back as it is: every smaller one proves
/// less, so one fault or client less would always seem to be the same failure.
pub fn shrink(config: &SimConfig, runs_max: u64, go_on: fn() -> bool) -> Option<Shrunk> {
    let mut config = config.clone();
    let mut tried = 1;
    let run = |config: &SimConfig| sim::run_while(config.clone(), Trace::Off, go_on).ok();
    let mut report = run(&config).filter(|report| !report.ended_early)?;
    let failure = kind_of(&report.verdict)?;
    let mut next = match failure {
        Failure::NothingProved => Vec::new(),
        _ => beginnings(&config, &report),
    };
    loop {
        let smaller = next.into_iter().find_map(|candidate| {
            if tried >= runs_max || !go_on() {
                return None;
            }
            tried += 1;
            let report = run(&candidate).filter(|report| !report.ended_early)?;
            (kind_of(&report.verdict).as_ref() == Some(&failure)).then_some((candidate, report))
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
        next = candidates(&config);
    }
}

/// The run with its faults by name, so that some can then be taken away: those that fired, or else all. A named fault
/// must fire. The demands on a whole run do not apply to its remains.
fn beginnings(config: &SimConfig, report: &SimReport) -> Vec<SimConfig> {
    let of = |faults: BTreeSet<Fault>| {
        let mut named = SimConfig {
            faults: Some(faults),
            ..config.clone()
        };
        named.ask_for_less(1);
        named
    };
    let fired = report.faults.iter().filter(|(_, fired)| **fired > 0);
    let fired: BTreeSet<Fault> = fired.map(|(&fault, _)| fault).collect();
    let all: BTreeSet<Fault> = report.faults.keys().copied().collect();
    // A panic leaves no count of fired faults behind.
    if fired.is_empty() || fired == all {
        return vec![of(all)];
    }
    vec![of(fired), of(all)]
}

/// How a run failed: the broken property, not its place.
fn kind_of(verdict: &Verdict) -> Option<Failure> {
    match verdict {
        Verdict::Pass => None,
        Verdict::Undecided { .. } => Some(Failure::Undecided),
        Verdict::Violation(violation) => Some(Failure::of(&violation.explanation)),
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Failure {
    /// The run did not do what it was asked to do.
    NothingProved,
    Undecided,
    /// The program's last message, without the words that hold a number: they are of that one run.
    Panic(String),
    /// The property, as the checkers name it before the first colon.
    Broken(String),
}

impl Failure {
    fn of(explanation: &str) -> Self {
        match explanation.split_once(':') {
            Some(("nothing proved", _)) => Failure::NothingProved,
            Some(("panic", message)) => {
                let words = message.lines().next().unwrap_or_default().split(' ');
                let words = words.filter(|word| !word.contains(|c: char| c.is_ascii_digit()));
                Failure::Panic(words.collect::<Vec<_>>().join(" "))
            }
            Some((property, _)) => Failure::Broken(property.to_owned()),
            None => Failure::Broken(explanation.to_owned()),
        }
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

#[cfg(test)]
mod tests {
    use super::*;

    /// These three were one kind once, and a shrink went from one to another.
    #[test]
    fn failures_of_different_kinds_are_told_apart() {
        let kinds = [
            "not linearizable: a read is stale",
            "a key was gone before its time: a read is stale",
            "not whole again behind all faults: at the end no running replica votes for node 2",
            "an event loop spins: 7 turns for 1 packets in 2 s, at most 5 are plausible",
            "panic: the commit index went back from 7 to 5",
            "panic: term 3 has two leaders",
            "nothing proved: no fault fired",
        ];
        for (number, one) in kinds.iter().enumerate() {
            for other in &kinds[number + 1..] {
                assert_ne!(Failure::of(one), Failure::of(other));
            }
        }
    }

    #[test]
    fn a_failure_is_the_same_whatever_its_numbers_are() {
        for (one, other) in [
            ("not live: put 1.7", "not live: get of key 3"),
            (
                "panic: term 3 has two leaders",
                "panic: term 4 has two leaders",
            ),
        ] {
            assert_eq!(Failure::of(one), Failure::of(other));
        }
    }

    /// If a run asks for more than it can do, every remainder fails likewise: it was shrunk to nothing.
    #[test]
    fn a_run_that_proved_nothing_is_not_shrunk() {
        let mut config = SimConfig::from_seed(3);
        config.faulty = FAULTY_MIN;
        config.faults = Some([Fault::Loss].into());
        config.ask_for_less(u64::MAX);
        let shrunk = shrink(&config, 10, || true).expect("nothing completes so many operations");
        assert_eq!(
            kind_of(&shrunk.report.verdict),
            Some(Failure::NothingProved)
        );
        assert_eq!(shrunk.tried, 1);
        assert_eq!(shrunk.config.faults, config.faults);
    }
}
