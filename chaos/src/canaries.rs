//! Planted bugs, and the search for them: a checker that never found anything proves nothing.

use crate::checker::Verdict;
use crate::seeds::for_each_seed;
use crate::sim::{self, OrderedFrom, SimConfig, Trace, numbers, rpc};
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use trine_replica::config::ReadMode;

/// Most seeds that a canary may need.
pub const SEEDS_MAX: u64 = 500;

/// The kind of simulation that finds a bug.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Subject {
    /// Whole groups, as `trine sim` does.
    Group,
    /// The transport alone.
    Transport,
    /// Sequencers.
    Sequencer,
}

/// A bug that can be planted.
#[derive(Copy, Clone, Debug)]
pub struct Canary {
    /// The name in the code: `canary::planted("...")`.
    pub name: &'static str,
    /// What is simulated.
    pub subject: Subject,
    /// Words of the finding, one of which it must have: another finding does not count.
    pub found_as: &'static [&'static str],
    /// The first seed of the short search, which a gate has time for: a little below the one at which the full search
    /// ended.
    pub short_from: u64,
}

const fn group(name: &'static str, found_as: &'static [&'static str]) -> Canary {
    Canary::new(name, Subject::Group, found_as)
}

const fn transport(name: &'static str, found_as: &'static [&'static str]) -> Canary {
    Canary::new(name, Subject::Transport, found_as)
}

const fn sequencer(name: &'static str, found_as: &'static [&'static str]) -> Canary {
    Canary::new(name, Subject::Sequencer, found_as)
}

impl Canary {
    const fn new(name: &'static str, subject: Subject, found_as: &'static [&'static str]) -> Self {
        Self {
            name,
            subject,
            found_as,
            short_from: 1,
        }
    }

    const fn from(mut self, seed: u64) -> Self {
        self.short_from = seed;
        self
    }
}

/// A stale, lost or doubled answer.
const ORDER: &[&str] = &["not linearizable"];

/// All bugs that seeds find. (Directed tests alone find "lease survives a transfer", `replica/tests/all/lease.rs`; "one user has
/// all kept answers", `reply_shares.rs` beside it; "another user's token is answered", `rights/sessions.rs` beside it; and those
/// of congestion control, `transport/src/tests/delay.rs` and `answer_times.rs`.)
pub const CANARIES: &[Canary] = &[
    group("read without ReadIndex", ORDER),
    group("read before its index is applied", ORDER),
    group(
        "snapshot without sessions",
        &["not exactly once", "not linearizable"],
    ),
    group("dedup window off by one", &["applied once"]),
    group("vote after amnesia", &["not linearizable", "no agreement"]),
    group(
        "ack before fsync",
        &[
            "no agreement",
            "not linearizable",
            "applied in order",
            "lacks what it has promised",
        ],
    ),
    group("vote forgotten", &["not linearizable", "no agreement"]).from(30),
    group(
        "commit without quorum",
        &["not linearizable", "no agreement"],
    ),
    group(
        "snapshot misses a bucket",
        &["not linearizable", "no agreement"],
    ),
    group("TTL from the local clock", &["gone before its time"]),
    group(
        "group time jumps",
        &["gone before its time", "outlived its time"],
    ),
    group("lease ignores a pause", ORDER).from(80),
    group(
        "index missed an undo",
        &["not linearizable", "not the state of one position"],
    ),
    group(
        "range delete before the index is whole",
        &[
            "not linearizable",
            "no agreement",
            "not the state of one position",
        ],
    )
    .from(30),
    group(
        "torn scan",
        &["not linearizable", "not the state of one position"],
    ),
    group(
        "pin ignored by the sweep",
        &[
            "not linearizable",
            "gone before its time",
            "not the state of one position",
        ],
    ),
    group(
        "a revoked user keeps its session",
        &["session of a removed user"],
    ),
    group("death notice of any run", &["took", "not linearizable"]),
    group(
        "a sequence is not one command",
        &["not linearizable", "not the state of one position"],
    )
    .from(60),
    group("a session answers another user", &["of somebody else"]),
    group("TRINE.DO looks at the connection", &["repeated: "]),
    group("a walk forgets the rest of a bucket", ORDER),
    group(
        "a flush keeps expiries",
        &["an item with an expiry was counted in"],
    ),
    group("event lost at failover", &["a change was lost"]),
    group("event twice", &["a change came twice"]),
    group(
        "a backup of a follower that lags",
        &["a backup misses what was acknowledged"],
    )
    .from(170),
    group(
        "a resumed backup skips a piece",
        &["a whole backup cannot be restored"],
    ),
    group(
        "a restore gives old positions again",
        &["a position of the old group comes again"],
    ),
    group(
        "a restore goes on in the old cluster",
        &["answered a client of the old one"],
    ),
    group(
        "removed in the joint change",
        &["no replica could be elected"],
    ),
    group(
        "a former voter compares its whole log",
        &["no replica could be elected"],
    ),
    group("a demoted leader stays", &["leads and has no vote"]),
    group("a learner takes its seat back", &["took its seat back"]),
    group("a hanging leader keeps leading", &["does not go on"]),
    group(
        "a successor that lacks what is committed",
        &["does not go on"],
    ),
    group("the wish is the device's size", &["too long for the path"]),
    group(
        "one datagram size for all routes",
        &["too long for the path"],
    ),
    group(
        "the number of a sweep from the own clock",
        &["no agreement"],
    ),
    group(
        "a sweep's number without the state version",
        &["no agreement"],
    ),
    group("10 ms though a sweep is behind", &["has expired keys left"]),
    group(
        "a switch forgets who is silent",
        &["left behind by a switch"],
    ),
    group("followed without the incarnation", &["not where"]),
    group(
        "a failed lookup forgets",
        &["not live", "does not follow", "not whole again"],
    ),
    group(
        "two places, the newer wins",
        &["not where", "takes the copy"],
    ),
    group("a place is not agreed on", &["takes the copy"]),
    transport("credits off by one", &["credits", "add with overflow"]),
    transport(
        "response to a reused slot",
        &["an answer that is not its own"],
    ),
    transport(
        "rollback forgets a packet",
        &["packet", "subtract with overflow"],
    ),
    transport("handler run twice", &["the handler of request"]),
    transport("skipped checksum", &["nobody sent"]),
    transport("window ignores replays", &["opened twice"]),
    sequencer("an epoch begins twice", &["a number came twice"]),
    sequencer("a taker waits for nobody", &["a number went back"]),
    sequencer("a lease is looked at too early", &["a number went back"]).from(370),
    sequencer(
        "a half is joined with a newer guess",
        &["a number went back", "a number came twice"],
    ),
    sequencer("a request is repeated on its way", &["a number went back"]),
    group(
        "an older copy is not asked",
        &["takes part on an older copy"],
    ),
    group(
        "members forget what was promised",
        &["takes part on an older copy"],
    ),
    group(
        "a front has the rights of whomever it names",
        &["beyond what a front and its user may both do"],
    ),
];

/// How the search for a canary ended.
#[derive(Clone, Debug)]
pub struct Search {
    /// The bug.
    pub canary: Canary,
    /// The seed that it began with.
    pub from: u64,
    /// The first seed that found it, with the finding.
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

/// Searches for a canary on `jobs` threads, from seed `from` on.
#[must_use]
pub fn search(canary: Canary, from: u64, jobs: u64) -> Search {
    let started = Instant::now();
    let mut found: Option<(u64, String)> = None;
    let first = AtomicU64::new(u64::MAX);
    // Seeds below a finding still run to their end, so that the reported first one is the first.
    for_each_seed(
        from,
        SEEDS_MAX + 1 - from,
        jobs,
        || first.load(Ordering::Relaxed) == u64::MAX,
        |seed| {
            if !may_find(canary, seed) {
                return (seed, None);
            }
            let bug = trine_canary::plant(canary.name);
            let finding = finding_of(canary.subject, SimConfig::from_seed(seed));
            drop(bug);
            let finding = finding.filter(|text| is_what_it_is(canary, text));
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
        from,
        found,
        took: started.elapsed(),
        silent_without: false,
    }
}

fn is_what_it_is(canary: Canary, finding: &str) -> bool {
    canary.found_as.iter().any(|words| finding.contains(words))
}

/// Those of these seeds that find something although no bug is planted.
#[must_use]
pub fn false_alarms(subject: Subject, seeds: &BTreeSet<u64>, jobs: u64) -> Vec<(u64, String)> {
    let numbered: Vec<u64> = seeds.iter().copied().collect();
    let mut alarms = Vec::new();
    for_each_seed(
        0,
        numbered.len() as u64,
        jobs,
        || true,
        |number| {
            let seed = numbered[number as usize];
            (seed, finding_of(subject, SimConfig::from_seed(seed)))
        },
        |(seed, finding)| alarms.extend(finding.map(|text| (seed, text))),
    );
    alarms.sort_unstable();
    alarms
}

/// The seeds that these searches ran, by kind of simulation: without the bugs they have to pass.
#[must_use]
pub fn seeds_run(searches: &[Search], subject: Subject) -> BTreeSet<u64> {
    let found = searches
        .iter()
        .filter(|search| search.canary.subject == subject);
    let ranges = found.filter_map(|search| Some((search, search.found.as_ref()?.0)));
    ranges
        .flat_map(|(search, last)| {
            (search.from..=last).filter(|&seed| may_find(search.canary, seed))
        })
        .collect()
}

/// A seed without leases cannot find a bug of leases. It is the same with disks, keys and ordered indexes. Such a seed
/// counts, and need not run.
fn may_find(canary: Canary, seed: u64) -> bool {
    let config = SimConfig::from_seed(seed);
    match canary.name {
        name if name.starts_with("lease") => config.replica.reads == ReadMode::Lease,
        "ack before fsync"
        | "a hanging leader keeps leading"
        | "a successor that lacks what is committed" => config.disk.is_some(),
        "a sequence is not one command" => config.copies,
        "TRINE.DO looks at the connection" => config.repeats,
        "index missed an undo" | "torn scan" | "pin ignored by the sweep" => {
            config.ordered.is_some()
        }
        "range delete before the index is whole" => config.ordered == Some(OrderedFrom::Clients),
        name if name.starts_with("a walk") || name.starts_with("a flush") => config.walks,
        "event lost at failover" | "event twice" => config.watches,
        "a backup of a follower that lags"
        | "a resumed backup skips a piece"
        | "a restore gives old positions again"
        | "a restore goes on in the old cluster" => config.backups,
        "removed in the joint change"
        | "a former voter compares its whole log"
        | "a demoted leader stays"
        | "a learner takes its seat back" => config.moves,
        "followed without the incarnation"
        | "a failed lookup forgets"
        | "two places, the newer wins"
        | "a place is not agreed on" => config.has_addresses_to_change(),
        "an older copy is not asked" | "members forget what was promised" => {
            config.has_machines_to_set_back()
        }
        "a revoked user keeps its session"
        | "a session answers another user"
        | "a front has the rights of whomever it names"
        | "window ignores replays" => config.sealed,
        "the wish is the device's size" | "one datagram size for all routes" => config.small_paths,
        "the number of a sweep from the own clock" | "10 ms though a sweep is behind" => {
            config.bursts
        }
        "a sweep's number without the state version" => config.bursts && config.mixes_versions(),
        "a switch forgets who is silent" => config.mixes_versions(),
        _ => true,
    }
}

/// The finding of a seed; a run that proves nothing finds nothing.
fn finding_of(subject: Subject, config: SimConfig) -> Option<String> {
    let seed = config.seed;
    let verdict = match subject {
        Subject::Group => {
            let report = sim::run(config, Trace::Off);
            report
                .expect("seeds stand for sound configurations")
                .verdict
        }
        Subject::Transport => rpc::run(&rpc::RpcConfig::new(seed), Trace::Off).verdict,
        Subject::Sequencer => numbers::run(&numbers::NumbersConfig::new(seed), Trace::Off).verdict,
    };
    match verdict {
        Verdict::Violation(violation) if !violation.explanation.starts_with("nothing proved") => {
            Some(violation.explanation)
        }
        _ => None,
    }
}
