//! Planted bugs, and the search for them: a checker that never found anything proves nothing.

use crate::checker::Verdict;
use crate::seeds::for_each_seed;
use crate::sim::{self, SimConfig, Trace, rpc};
use std::panic::catch_unwind;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use trine_replica::config::ReadMode;

/// Most seeds that a canary may need.
pub const SEEDS_MAX: u64 = 500;

/// What is simulated to find a bug.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Subject {
    /// Whole groups, as `trine sim` does.
    Group,
    /// The transport alone.
    Transport,
}

/// A bug that can be planted.
#[derive(Copy, Clone, Debug)]
pub struct Canary {
    /// The name in the code: `canary::planted("...")`.
    pub name: &'static str,
    /// What is simulated.
    pub subject: Subject,
}

const fn group(name: &'static str) -> Canary {
    Canary {
        name,
        subject: Subject::Group,
    }
}

const fn transport(name: &'static str) -> Canary {
    Canary {
        name,
        subject: Subject::Transport,
    }
}

/// All of them.
pub const CANARIES: &[Canary] = &[
    group("read without ReadIndex"),
    group("read before its index is applied"),
    group("snapshot without sessions"),
    group("dedup window off by one"),
    group("vote after amnesia"),
    group("ack before fsync"),
    group("vote forgotten"),
    group("commit without quorum"),
    group("snapshot misses a bucket"),
    group("TTL from the local clock"),
    group("group time jumps"),
    group("lease ignores a pause"),
    group("lease survives a transfer"),
    transport("credits off by one"),
    transport("response to a reused slot"),
    transport("rollback forgets a packet"),
    transport("handler run twice"),
    transport("skipped checksum"),
];

/// How the search for a canary ended.
#[derive(Clone, Debug)]
pub struct Search {
    /// The bug.
    pub canary: Canary,
    /// The first seed that found it, with what was found.
    pub found: Option<(u64, String)>,
    /// Wall-clock time of the search.
    pub took: Duration,
    /// Whether every seed up to the one that found it passes without the bug.
    pub silent_without: bool,
}

impl Search {
    /// Missed with the bug off, found with it on.
    #[must_use]
    pub fn is_as_it_should_be(&self) -> bool {
        self.found.is_some() && self.silent_without
    }
}

/// Looks for a canary on `jobs` threads, from seed 1 on.
#[must_use]
pub fn search(canary: Canary, jobs: u64) -> Search {
    let started = Instant::now();
    let mut found: Option<(u64, String)> = None;
    let first = AtomicU64::new(u64::MAX);
    // Seeds below a finding are still run to their end, so that the first one is the first one.
    for_each_seed(
        1,
        SEEDS_MAX,
        jobs,
        || first.load(Ordering::Relaxed) == u64::MAX,
        |seed| {
            if !may_find(canary, seed) {
                return (seed, None);
            }
            trine_canary::plant(Some(canary.name));
            let finding = finding_of(canary.subject, seed);
            trine_canary::plant(None);
            if finding.is_some() {
                first.fetch_min(seed, Ordering::Relaxed);
            }
            (seed, finding)
        },
        |(seed, finding)| {
            if let Some(text) = finding
                && found.as_ref().is_none_or(|(earlier, _)| seed < *earlier)
            {
                found = Some((seed, text));
            }
        },
    );
    Search {
        canary,
        found,
        took: started.elapsed(),
        silent_without: false,
    }
}

/// The seeds up to `last` that find something although nothing is planted.
#[must_use]
pub fn false_alarms(subject: Subject, last: u64, jobs: u64) -> Vec<(u64, String)> {
    let mut alarms = Vec::new();
    for_each_seed(
        1,
        last,
        jobs,
        || true,
        |seed| (seed, finding_of(subject, seed)),
        |(seed, finding)| alarms.extend(finding.map(|text| (seed, text))),
    );
    alarms.sort_unstable();
    alarms
}

/// A seed without leases cannot find what is wrong with leases, and one without disks not what is wrong with them: it
/// counts, and need not be run.
fn may_find(canary: Canary, seed: u64) -> bool {
    let config = SimConfig::from_seed(seed);
    match canary.name {
        name if name.starts_with("lease") => config.replica.reads == ReadMode::Lease,
        "ack before fsync" => config.disk.is_some(),
        _ => true,
    }
}

/// What a seed finds; a run that proves nothing finds nothing.
fn finding_of(subject: Subject, seed: u64) -> Option<String> {
    let verdict = match subject {
        Subject::Group => {
            let report = sim::run(SimConfig::from_seed(seed), Trace::Off);
            report
                .expect("seeds stand for sound configurations")
                .verdict
        }
        // Assertions of the transport find a bug as well as its checkers.
        Subject::Transport => catch_unwind(|| rpc::run(&rpc::RpcConfig::new(seed), Trace::Off))
            .map_or_else(
                |payload| Verdict::violation(format!("assertion: {}", sim::message_of(&*payload))),
                |report| report.verdict,
            ),
    };
    match verdict {
        Verdict::Violation(violation) if !violation.explanation.starts_with("nothing proved") => {
            Some(violation.explanation)
        }
        _ => None,
    }
}
