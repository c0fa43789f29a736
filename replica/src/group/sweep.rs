//! How many expired items the next log entry removes.
//!
//! Only the leader decides, and the entry says what it has decided: replicas that used a clock of their own would differ.
//! One entry gets what the leader's own sweeps do in 0.2 ms, and what is proposed and not yet applied stays below 0.4 ms.
//! So a turn stays below one on a replica that is half as fast. (With 0.5 ms the p99 of other writes was 1.8 times as long
//! as with 0.2 ms, on two cores for three replicas; docs/operations.md has what is left.) Between two such entries the leader rests
//! for as long as its sweep took: sweeps take at most half of the replicas' time, and writes the rest. The sweep also fills a watch
//! history once a second at most, or it would push watchers out that keep up with everything else.

use std::collections::VecDeque;

use trine_canary as canary;
use trine_kvstore::Swept;
use trine_kvstore::command::SWEEP_VERSION;
use trine_kvstore::config::{SWEEP_ITEMS_MAX, SWEEP_ITEMS_MIN};
use trine_transport::time::{Duration, Instant};

use crate::config::{SWEEP_ENTRY, SWEEP_UNAPPLIED};
use crate::state_machine::StateMachine;

/// What removing an item costs where nothing is measured, in nanoseconds.
const ITEM_NS_ASSUMED: u64 = 1_000;
/// Bounds for what is measured: a thread that was suspended in the middle of a sweep has measured something else.
const ITEM_NS_MIN: u64 = 100;
const ITEM_NS_MAX: u64 = 10_000;
/// The event of a key of 16 bytes.
const EVENT_BYTES_ASSUMED: u64 = 48;
/// Each sample moves a mean by one eighth of the difference.
const MEAN_WEIGHT: u64 = 8;
/// The pause until the next attempt when raft takes no proposals.
const REFUSED_REST: Duration = Duration::from_millis(1);
/// The part of a history that a sweep may fill at once, after a rest.
const BURST_PART: u64 = 8;

/// How fast the leader lets the group remove expired items. A follower keeps the means up to date, too: it may lead next.
pub(super) struct SweepPace {
    /// Moving mean of what removing an item costs here, in nanoseconds.
    item_ns: u64,
    /// Moving mean of the bytes that an item's event takes in a history.
    event_bytes: u64,
    /// Entries that were proposed with a number and are not applied yet, with that number, oldest first.
    proposed: VecDeque<(u64, u64)>,
    /// The sum of their numbers.
    proposed_items: u64,
    /// Until then entries remove the least.
    rests_until: Instant,
    history: HistoryBudget,
}

/// What the sweep may still add to a watch history: a bucket that is filled with one history a second.
struct HistoryBudget {
    /// Bytes of the history; with 0 nothing is kept, and nothing is limited.
    size: u64,
    left: u64,
    filled: Instant,
}

impl HistoryBudget {
    fn burst(&self) -> u64 {
        self.size / BURST_PART
    }

    fn left_at(&self, now: Instant) -> u64 {
        if self.size == 0 {
            return u64::MAX;
        }
        let passed_ns = u128::from(now.saturating_since(self.filled).as_nanos());
        let filled = passed_ns * u128::from(self.size) / 1_000_000_000;
        let filled = u64::try_from(filled).unwrap_or(u64::MAX);
        self.left.saturating_add(filled).min(self.burst())
    }

    fn take(&mut self, now: Instant, bytes: u64) {
        (self.left, self.filled) = (self.left_at(now).saturating_sub(bytes), now);
    }

    /// When so many bytes are left; nothing if that is more than a burst.
    fn filled_to(&self, bytes: u64) -> Option<Instant> {
        if self.size == 0 {
            return Some(Instant::ZERO);
        }
        let lacking = u128::from(bytes.saturating_sub(self.left));
        let wait_ns = (lacking * 1_000_000_000).div_ceil(u128::from(self.size));
        let at = self.filled + Duration::from_nanos(u64::try_from(wait_ns).unwrap_or(u64::MAX));
        (bytes <= self.burst()).then_some(at)
    }
}

impl SweepPace {
    /// For a replica that keeps a watch history of so many bytes.
    pub(super) fn new(now: Instant, history_bytes: usize) -> Self {
        let size = history_bytes as u64;
        Self {
            item_ns: ITEM_NS_ASSUMED,
            event_bytes: EVENT_BYTES_ASSUMED,
            proposed: VecDeque::new(),
            proposed_items: 0,
            rests_until: now,
            history: HistoryBudget {
                size,
                left: size / BURST_PART,
                filled: now,
            },
        }
    }

    /// Another leader decides, or this one begins anew: what was proposed before may never be applied.
    pub(super) fn forget_proposed(&mut self) {
        self.proposed.clear();
        self.proposed_items = 0;
    }

    /// The number for an entry that is proposed now with this stamp. 0 says nothing: the least are removed, as every
    /// program does.
    pub(super) fn number(&self, now: Instant, stamp: u64, state: &StateMachine) -> u16 {
        let next = state.store().next_expiry();
        if !says_numbers(state) || next.is_none_or(|expiry| expiry > stamp) {
            return 0;
        }
        let unapplied = items_in(SWEEP_UNAPPLIED, self.item_ns).saturating_sub(self.proposed_items);
        let (least, most) = (SWEEP_ITEMS_MIN as u16, SWEEP_ITEMS_MAX as u16);
        if now < self.rests_until {
            return least;
        }
        let number = self.per_entry().min(unapplied).min(self.room(now));
        u16::try_from(number).unwrap_or(most).clamp(least, most)
    }

    /// When the next entry may be proposed for the sake of the sweep alone. Nothing if the last entry was enough, or while
    /// others are under way that may be.
    pub(super) fn next_entry(&self, state: &StateMachine) -> Option<Instant> {
        if !says_numbers(state)
            || !state.store().has_expired_items()
            || canary::planted("10 ms though a sweep is behind")
        {
            return None;
        }
        if self.proposed_items > 0 {
            // The entries under way come first.
            return None;
        }
        // Where the history is too small for that the usual pause comes first.
        let filled = self
            .history
            .filled_to(self.per_entry() * self.event_bytes)?;
        Some(self.rests_until.max(filled))
    }

    /// An entry was proposed with this number.
    pub(super) fn on_proposed(&mut self, index: u64, number: u16) {
        if number > 0 {
            self.proposed.push_back((index, number.into()));
            self.proposed_items += u64::from(number);
        }
    }

    /// Raft takes no proposals now: its log is full of what is not committed yet.
    pub(super) fn on_refused(&mut self, now: Instant) {
        self.rests_until = now + REFUSED_REST;
    }

    /// An entry was applied. `took` is the time of one that did nothing but move group time, if it was measured.
    pub(super) fn on_applied(
        &mut self,
        now: Instant,
        index: u64,
        swept: Swept,
        took: Option<Duration>,
    ) {
        while let Some(&(first, number)) = self.proposed.front()
            && first <= index
        {
            self.proposed.pop_front();
            self.proposed_items -= number;
        }
        assert!(
            self.proposed_items == 0 || !self.proposed.is_empty(),
            "what is counted is under way"
        );
        if swept.items == 0 {
            return;
        }
        let items = u64::from(swept.items);
        // The clock was read before the sweep.
        let rest = Duration::from_nanos(2 * items * self.item_ns);
        self.rests_until = self.rests_until.max(now + rest);
        self.history.take(now, swept.event_bytes);
        self.event_bytes = moved(self.event_bytes, swept.event_bytes.div_ceil(items));
        // A few items say more about the entry than about the sweep.
        if let Some(took) = took.filter(|_| swept.items >= SWEEP_ITEMS_MIN) {
            let sample = (took.as_nanos() / items).clamp(ITEM_NS_MIN, ITEM_NS_MAX);
            self.item_ns = moved(self.item_ns, sample);
        }
    }

    fn per_entry(&self) -> u64 {
        items_in(SWEEP_ENTRY, self.item_ns).clamp(SWEEP_ITEMS_MIN.into(), SWEEP_ITEMS_MAX.into())
    }

    /// Items whose events the history has room for now.
    fn room(&self, now: Instant) -> u64 {
        let items = self.history.left_at(now) / self.event_bytes.max(1);
        items.saturating_sub(self.proposed_items)
    }
}

/// Whether entries of this group say how many items they remove.
fn says_numbers(state: &StateMachine) -> bool {
    // An older program knows no numbers, whatever is planted in newer ones.
    let ignores_version = canary::planted("a sweep's number without the state version")
        && state.understands(SWEEP_VERSION);
    state.version() >= SWEEP_VERSION || ignores_version
}

fn items_in(time: Duration, item_ns: u64) -> u64 {
    time.as_nanos() / item_ns
}

fn moved(mean: u64, sample: u64) -> u64 {
    (mean * (MEAN_WEIGHT - 1) + sample) / MEAN_WEIGHT
}
