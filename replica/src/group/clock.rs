//! Group time: it lives in the replicated state, only grows, and moves with the leader's monotonic clock.
//!
//! A stamp is the group time that was applied when this leadership began plus the monotonic time since. A wall clock
//! that jumps therefore changes nothing, and without a leader time does not advance. Commands carry stamps anyway. When
//! a key's expiry is due and no client writes, the leader proposes an entry that carries nothing else. Such entries also
//! move the building of an ordered index on.

use trine_canary as canary;
use trine_kvstore::Ordered;
use trine_transport::time::{Duration, Instant};

use super::consensus::Consensus;
use crate::outbox::Outbox;
use crate::state_machine::StateMachine;
use crate::state_machine::entry::EntryBuilder;

/// The least time between two entries that carry nothing but the time.
const TICK_ENTRY_PAUSE: Duration = Duration::from_millis(10);

/// How the leader keeps group time.
pub(super) struct GroupClock {
    anchor: Anchor,
    /// The last entry that was proposed for the time alone.
    last_tick: Option<TickEntry>,
}

/// Group time, and the moment at which it was that.
#[derive(Clone, Copy, Debug)]
struct Anchor {
    group_time_ns: u64,
    at: Instant,
}

/// An entry that carries nothing but the time.
#[derive(Clone, Copy, Debug)]
struct TickEntry {
    index: u64,
    /// When it was proposed.
    at: Instant,
}

impl GroupClock {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            anchor: Anchor {
                group_time_ns: 0,
                at: now,
            },
            last_tick: None,
        }
    }

    /// The stamp of an entry that is proposed now.
    pub(super) fn stamp(&self, now: Instant) -> u64 {
        if canary::planted("group time jumps") {
            return now.as_nanos();
        }
        let passed_ns = now.saturating_since(self.anchor.at).as_nanos();
        self.anchor.group_time_ns.saturating_add(passed_ns)
    }

    /// Since when this replica has led.
    pub(super) fn anchored_at(&self) -> Instant {
        self.anchor.at
    }

    fn may_tick(&self, now: Instant, applied: u64) -> bool {
        // Without a quorum nothing is applied, and entries must not pile up.
        self.last_tick.is_none_or(|tick| {
            tick.index <= applied && now.saturating_since(tick.at) >= TICK_ENTRY_PAUSE
        })
    }

    /// Group time continues from the applied group time.
    pub(super) fn anchor(&mut self, now: Instant, state: Option<&StateMachine>) {
        let group_time_ns = state.map_or(0, StateMachine::group_time_ns);
        self.anchor = Anchor {
            group_time_ns,
            at: now,
        };
        self.last_tick = None;
    }

    /// Moves group time forward if a key waits for that.
    pub(super) fn propose_tick(
        &mut self,
        now: Instant,
        state: Option<&StateMachine>,
        consensus: &mut Consensus,
        out: &mut Outbox,
    ) {
        let Some(state) = state else { return };
        let stamp = self.stamp(now);
        let due = state
            .store()
            .next_expiry()
            .is_some_and(|expiry| expiry <= stamp);
        if !due
            || !consensus.raft().leads_with_commit()
            || !self.may_tick(now, state.applied_index())
        {
            return;
        }
        self.propose_time(now, stamp, consensus, out);
    }

    /// Moves the building of an ordered index on, if no entry is under way that does.
    pub(super) fn propose_building(
        &mut self,
        now: Instant,
        state: Option<&StateMachine>,
        consensus: &mut Consensus,
        out: &mut Outbox,
    ) {
        let Some(state) = state else { return };
        let building = matches!(state.store().ordered(), Ordered::Building(_));
        if building
            && consensus.raft().leads_with_commit()
            && consensus.raft().last_index() == state.applied_index()
        {
            self.propose_time(now, self.stamp(now), consensus, out);
        }
    }

    fn propose_time(
        &mut self,
        now: Instant,
        stamp: u64,
        consensus: &mut Consensus,
        out: &mut Outbox,
    ) {
        if let Ok(entry) = consensus.propose(EntryBuilder::default().finish(stamp)) {
            self.last_tick = Some(TickEntry {
                index: entry.index,
                at: now,
            });
            out.counters.ticks_proposed += 1;
        }
    }
}
