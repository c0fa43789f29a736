//! Makes a failing simulation smaller: takes faults and clients away, one by one, as long as it
//! still fails in the same way.

use crate::checker::Verdict;
use crate::fault::Fault;
use crate::sim::{Report as _, Run, Trace};
use std::collections::BTreeSet;

/// A failing run and the smaller one that it was shrunk to.
#[derive(Clone, Debug)]
pub struct Shrunk<C: Run> {
    /// The smallest configuration found that still fails.
    pub config: C,
    /// Its report.
    pub report: C::Report,
    /// Runs that were tried.
    pub tried: u64,
}

/// Shrinks the failing run of `config` within `runs_max` runs, and as long as `go_on` says so. `None` if it does not
/// fail, or was interrupted before it had. A run that proved nothing is handed back as it is: every smaller one proves
/// less, so one fault or client less would always seem to be the same failure.
pub fn shrink<C: Run>(config: &C, runs_max: u64, go_on: fn() -> bool) -> Option<Shrunk<C>> {
    let mut config = config.clone();
    let mut tried = 1;
    let run = |config: &C| {
        let report = config.simulate(Trace::Off, go_on);
        (!report.ended_early()).then_some(report)
    };
    let mut report = run(&config)?;
    let failure = kind_of(report.verdict())?;
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
            let report = run(&candidate)?;
            (kind_of(report.verdict()).as_ref() == Some(&failure)).then_some((candidate, report))
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
fn beginnings<C: Run>(config: &C, report: &C::Report) -> Vec<C> {
    let counted = report.faults().iter();
    let fired: BTreeSet<Fault> = counted
        .filter(|(_, fired)| **fired > 0)
        .map(|(&fault, _)| fault)
        .collect();
    let all: BTreeSet<Fault> = report.faults().keys().copied().collect();
    // A panic leaves no count of fired faults behind.
    if fired.is_empty() || fired == all {
        return vec![config.with_faults(all)];
    }
    vec![config.with_faults(fired), config.with_faults(all)]
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
fn candidates<C: Run>(config: &C) -> Vec<C> {
    let mut smaller = config.smaller();
    let faults = config.faults().cloned().unwrap_or_default();
    for fault in &faults {
        let mut fewer = faults.clone();
        fewer.remove(fault);
        smaller.push(config.with_faults(fewer));
    }
    smaller
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sim::SimConfig;
    use trine_transport::time::Duration;

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
        config.faulty = Duration::from_secs(2);
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
