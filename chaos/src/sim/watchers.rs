//! Clients that watch keys, in a part of the seeds: each has one stream of changes at a time, and leaves or dies with it.
//!
//! The streams are those of the client library. Each batch is compared with what the log has changed
//! (`checker/watches.rs`) as soon as it comes.

use super::Host;
use crate::checker::Verdict;
use crate::checker::changes::Changes;
use crate::checker::watches::WatchCheck;
use crate::history::History;
use std::cell::RefCell;
use std::net::SocketAddr;
use std::rc::Rc;
use trine_client::{WatchConfig, WatchError, WatchFrom, WatchStream, WatchTarget};
use trine_kvstore::Position;
use trine_replica::config::{ReplicaConfig, WATCH_HISTORY_BYTES_MIN};
use trine_transport::app::{App, Completion, Cx, Reply, Request};
use trine_transport::prng::{Prng, Ratio};
use trine_transport::session::Event;
use trine_transport::time::{Duration, Instant};

/// Machines that watch.
pub(crate) const SEATS: usize = 2;
/// How long a stream lasts: most are short, because each beginning is a risk of its own.
const LIFE_NS: (u64, u64) = (300_000_000, 9_000_000_000);
/// A slow reader takes its next batch after up to so long.
const SLOW_MAX: Duration = Duration::from_millis(400);
/// Positions that later streams begin behind.
const KEPT_MAX: usize = 40;
/// Targets of a stream at most.
const TARGETS_MAX: u64 = 4;
/// Keys of commands that no other checker judges; and one letter that no key begins with.
const UNJUDGED: [&[u8]; 3] = [b"x0", b"x3", b"q"];

/// One seed of four may have them, and has them if its packets are not sealed. Drawn separately, so that the other seeds stay the same.
pub(crate) fn is_drawn(seed: u64) -> bool {
    Prng::new(seed ^ 0x003a_7c4e_003a_7c4e).below(4) == 0
}

/// In a third of them replicas keep so little history that watchers fall behind it.
pub(crate) fn draw_history(seed: u64, replica: &mut ReplicaConfig) {
    if Prng::new(seed ^ 0x0815_7082_0815_7082).below(3) == 0 {
        replica.watch_history_bytes = WATCH_HISTORY_BYTES_MIN;
    }
}

/// What all watchers of a run know.
#[derive(Default)]
pub(crate) struct Ledger {
    pub(crate) changes: Changes,
    wrong: Option<String>,
    /// Where streams have ended: others begin there.
    ends: Vec<u64>,
    pub(crate) counts: WatchCounts,
}

/// The streams of a run.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct WatchCounts {
    /// Streams that have begun.
    pub streams: u64,
    /// Events that they have told.
    pub events: u64,
    /// Streams that were told that events are forgotten.
    pub compacted: u64,
    /// Times that a stream went on at another replica.
    pub moves: u64,
}

impl Ledger {
    fn blame(&mut self, text: String) {
        self.wrong.get_or_insert(text);
    }

    fn keep_end(&mut self, position: u64) {
        if self.ends.len() >= KEPT_MAX {
            self.ends.remove(0);
        }
        self.ends.push(position);
    }

    pub(crate) fn verdict(&self) -> Verdict {
        match &self.wrong {
            Some(wrong) => Verdict::violation(wrong.clone()),
            None => Verdict::Pass,
        }
    }
}

/// A machine with one stream.
pub(crate) struct Watching {
    stream: WatchStream<Host>,
    plan: Plan,
    /// Some as soon as it has begun.
    check: Option<WatchCheck>,
    ledger: Rc<RefCell<Ledger>>,
    /// The next batch is taken then.
    read_at: Instant,
    prng: Prng,
    started_at: Instant,
    served_by: Option<Host>,
    is_over: bool,
    notes: Vec<String>,
    wants_notes: bool,
}

/// What a stream is to do.
struct Plan {
    config: WatchConfig,
    /// No position that was acknowledged by now may come in a stream that begins now.
    acknowledged: u64,
    /// The group cannot have come to where it begins.
    is_future: bool,
    /// It reads slowly.
    slow: bool,
    ends: Instant,
    /// It takes leave; otherwise its machine dies.
    leaves: bool,
}

impl Plan {
    fn draw(
        prng: &mut Prng,
        (addresses, keys): (Vec<SocketAddr>, &[Vec<u8>]),
        (ledger, history): (&Ledger, &History),
        now: Instant,
    ) -> Self {
        let applied = ledger.changes.position();
        let future = Position::new((applied >> 16) + 1_000_000, 0);
        let ends = &ledger.ends;
        let drawn = prng.below(100);
        let from = match drawn {
            0..4 => WatchFrom::Behind(future),
            // Of the beginning of the group: mostly forgotten.
            4..8 => WatchFrom::Behind(Position::new(prng.in_range(1..=200).min(applied >> 16), 0)),
            8..60 if !ends.is_empty() => {
                let end = ends[prng.below(ends.len() as u64) as usize];
                WatchFrom::Behind(Position::from_u64(end))
            }
            _ => WatchFrom::Now,
        };
        let life = Duration::from_nanos(prng.in_range(LIFE_NS.0..=LIFE_NS.1));
        Self {
            config: WatchConfig {
                addresses,
                targets: draw_targets(prng, keys),
                from,
                keys_only: prng.chance(Ratio::percent(20)),
            },
            acknowledged: acknowledged(history),
            is_future: from == WatchFrom::Behind(future),
            slow: prng.chance(Ratio::percent(20)),
            ends: now + life,
            leaves: prng.chance(Ratio::percent(50)),
        }
    }
}

/// The latest position that any client was told.
pub(super) fn acknowledged(history: &History) -> u64 {
    let told = history.operations().iter();
    let told = told.filter(|operation| operation.return_ns.is_some());
    told.filter_map(|operation| operation.position)
        .max()
        .unwrap_or(0)
}

/// Keys, prefixes and ranges, each once.
fn draw_targets(prng: &mut Prng, keys: &[Vec<u8>]) -> Vec<(u32, WatchTarget)> {
    let mut targets: Vec<(u32, WatchTarget)> = Vec::new();
    for number in 0..prng.in_range(1..=TARGETS_MAX) {
        let target = draw_target(prng, keys);
        if targets.iter().all(|(_, known)| *known != target) {
            targets.push((900 - number as u32 * 7, target));
        }
    }
    targets
}

fn draw_target(prng: &mut Prng, keys: &[Vec<u8>]) -> WatchTarget {
    let mut key = || match prng.below(5) {
        0 => UNJUDGED[prng.below(3) as usize].to_vec(),
        _ => keys[prng.below(keys.len() as u64) as usize].clone(),
    };
    let (one, other) = (key(), key());
    match prng.below(10) {
        0..4 => WatchTarget::Key(one),
        4..6 => WatchTarget::Prefix(one[..1].to_vec()),
        6 => WatchTarget::Prefix(Vec::new()),
        7 => WatchTarget::Range {
            start: one,
            end: None,
        },
        _ => WatchTarget::Range {
            start: one.clone().min(other.clone()),
            end: Some(one.max(other)),
        },
    }
}

impl Watching {
    pub(crate) fn new(
        (addresses, keys): (Vec<SocketAddr>, &[Vec<u8>]),
        (ledger, history): (Rc<RefCell<Ledger>>, &History),
        mut prng: Prng,
        now: Instant,
        wants_notes: bool,
    ) -> Self {
        let plan = Plan::draw(
            &mut prng,
            (addresses, keys),
            (&ledger.borrow(), history),
            now,
        );
        let seed = prng.next_u64();
        Self {
            stream: WatchStream::new(plan.config.clone(), Host::of_address, seed),
            plan,
            check: None,
            ledger,
            read_at: now,
            prng,
            started_at: now,
            served_by: None,
            is_over: false,
            notes: Vec::new(),
            wants_notes,
        }
    }

    /// Whether another one may take its place.
    pub(crate) fn is_over(&self) -> bool {
        self.is_over
    }

    fn note(&mut self, line: impl FnOnce() -> String) {
        if self.wants_notes {
            self.notes.push(line());
        }
    }

    pub(crate) fn take_notes(&mut self) -> Vec<String> {
        std::mem::take(&mut self.notes)
    }

    /// Takes in what has come.
    pub(crate) fn collect(&mut self, now: Instant, simulated: Instant) {
        if self.is_over {
            return;
        }
        self.see_where_it_begins();
        self.see_who_serves(now);
        while self.read_at <= simulated
            && let Some(batch) = self.stream.take_batch()
        {
            if self.plan.slow {
                let pause = self.prng.below(SLOW_MAX.as_nanos());
                self.read_at = simulated + Duration::from_nanos(pause);
            }
            self.note(|| format!("is told {batch:?}"));
            let mut ledger = self.ledger.borrow_mut();
            let Some(check) = &mut self.check else { break };
            let before = check.events;
            let taken = check.take(&batch, &ledger.changes);
            ledger.counts.events += check.events - before;
            if let Err(wrong) = taken {
                let targets = &self.plan.config.targets;
                ledger.blame(format!(
                    "watch: {wrong} ({targets:?}, from {:?}, at {simulated:?})",
                    self.plan.config.from
                ));
                self.is_over = true;
                return;
            }
        }
        if !self.stream.has_batch()
            && let Some(error) = self.stream.error().cloned()
        {
            self.fail(&error);
        }
    }

    fn see_where_it_begins(&mut self) {
        let (None, Some(began)) = (&self.check, self.stream.began()) else {
            return;
        };
        let began = began.as_u64();
        let mut ledger = self.ledger.borrow_mut();
        ledger.counts.streams += 1;
        let acknowledged = self.plan.acknowledged;
        if self.plan.config.from == WatchFrom::Now && began < acknowledged {
            ledger.blame(format!(
                "watch: a stream from now begins at {began}, and {acknowledged} was acknowledged before"
            ));
        }
        let (targets, keys_only) = (self.plan.config.targets.clone(), self.plan.config.keys_only);
        self.check = Some(WatchCheck::new(targets, keys_only, began, &ledger.changes));
        drop(ledger);
        self.note(|| format!("watches behind {began}"));
    }

    fn see_who_serves(&mut self, now: Instant) {
        let served_by = self.stream.served_by(now).and_then(Host::of_address);
        if served_by.is_none() || served_by == self.served_by {
            return;
        }
        if self.served_by.is_some() {
            self.ledger.borrow_mut().counts.moves += 1;
        }
        self.served_by = served_by;
    }

    /// The stream has ended with an error, which has to be a right one.
    fn fail(&mut self, error: &WatchError) {
        self.note(|| format!("is told: {error}"));
        let seen = self.check.as_ref().map(WatchCheck::seen);
        let mut ledger = self.ledger.borrow_mut();
        let is_right = match error {
            WatchError::Compacted { from, oldest } => {
                ledger.counts.compacted += 1;
                ledger.keep_end(oldest.as_u64());
                Some(from.as_u64()) == seen && oldest > from
            }
            WatchError::Future { from, applied } => self.plan.is_future && applied < from,
            _ => false,
        };
        if !is_right {
            ledger.blame(format!(
                "watch: a stream that has everything up to {seen:?} is told: {error}"
            ));
        }
        self.is_over = true;
    }

    /// What it waits for although that was there before `latest`.
    pub(crate) fn overdue(&self, latest: Instant) -> Option<String> {
        if self.is_over || self.started_at >= latest {
            return None;
        }
        let Some(check) = &self.check else {
            return Some(format!(
                "a stream from {:?} does not begin",
                self.plan.config.from
            ));
        };
        let ledger = self.ledger.borrow();
        let pending = check.pending(&ledger.changes)?;
        (pending.seen_ns < latest.as_nanos()).then(|| format!("a stream waits for {pending:?}"))
    }

    pub(crate) fn next_call(&self) -> Option<Instant> {
        if self.is_over {
            return None;
        }
        let read = self.stream.has_batch().then_some(self.read_at);
        [read, Some(self.plan.ends)].into_iter().flatten().min()
    }

    /// Runs in front of each turn.
    pub(crate) fn look_at_the_time(&mut self, simulated: Instant) {
        if simulated < self.plan.ends || self.is_over {
            return;
        }
        if let Some(check) = &self.check {
            self.ledger.borrow_mut().keep_end(check.seen());
        }
        self.is_over = true;
    }
}

impl App<Host> for Watching {
    fn on_request(&mut self, cx: &mut Cx<'_, Host>, request: Request<'_>) -> Reply {
        self.stream.on_request(cx, request)
    }

    fn on_completion(&mut self, cx: &mut Cx<'_, Host>, tag: u64, completion: Completion) {
        self.stream.on_completion(cx, tag, completion);
    }

    fn on_event(&mut self, cx: &mut Cx<'_, Host>, event: Event<Host>) {
        self.stream.on_event(cx, event);
    }

    fn on_turn(&mut self, cx: &mut Cx<'_, Host>) {
        match (self.is_over, self.plan.leaves) {
            (false, _) => self.stream.on_turn(cx),
            (true, true) => self.stream.leave(cx),
            (true, false) => {}
        }
    }

    fn next_timeout(&self) -> Option<Instant> {
        match self.is_over {
            true => None,
            false => self.stream.next_timeout(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn some_seeds_have_watchers_and_most_have_none() {
        let drawn = (0..4_000).filter(|&seed| is_drawn(seed)).count();
        assert!((850..1_150).contains(&drawn), "{drawn}");
    }

    #[test]
    fn no_stream_watches_a_thing_twice() {
        let keys = [b"r0", b"d0", b"t1"].map(|key| key.to_vec());
        let mut prng = Prng::new(1);
        for _ in 0..1_000 {
            let targets = draw_targets(&mut prng, &keys);
            let ids: BTreeSet<u32> = targets.iter().map(|(id, _)| *id).collect();
            assert!(!targets.is_empty() && ids.len() == targets.len());
        }
    }
}
