//! Group time: it lives in the replicated state, only grows, and moves with the leader's monotonic clock.
//!
//! A stamp is the group time that was applied when this leadership began plus the monotonic time since, so a wall clock
//! that jumps changes nothing, and without a leader time stands still. Commands carry stamps anyway; when a key's expiry
//! is due and nobody writes, the leader proposes an entry that carries nothing else.

use trine_canary as canary;
use trine_transport::time::{Duration, Instant};

use super::Group;
use crate::outbox::Outbox;
use crate::state_machine::StateMachine;
use crate::state_machine::entry::EntryBuilder;

/// The least time between two entries that carry nothing but the time.
const TICK_ENTRY_PAUSE: Duration = Duration::from_millis(10);

/// How the leader keeps group time.
pub(super) struct GroupClock {
    /// Group time, and the moment at which it was that.
    anchor: (u64, Instant),
    /// Index of the last entry that was proposed for the time alone, and when.
    last_tick: Option<(u64, Instant)>,
}

impl GroupClock {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            anchor: (0, now),
            last_tick: None,
        }
    }

    /// The stamp of an entry that is proposed now.
    pub(super) fn stamp(&self, now: Instant) -> u64 {
        if canary::planted("group time jumps") {
            return now.as_nanos();
        }
        self.anchor
            .0
            .saturating_add(now.saturating_since(self.anchor.1).as_nanos())
    }

    /// Since when this replica has led.
    pub(super) fn anchored_at(&self) -> Instant {
        self.anchor.1
    }

    fn may_tick(&self, now: Instant, applied: u64) -> bool {
        // Without a quorum nothing is applied, and entries must not pile up.
        self.last_tick.is_none_or(|(index, at)| {
            index <= applied && now.saturating_since(at) >= TICK_ENTRY_PAUSE
        })
    }
}

impl Group {
    /// Group time goes on from what is applied now.
    pub(super) fn anchor_time(&mut self, now: Instant) {
        self.clock.anchor = (
            self.state.as_ref().map_or(0, StateMachine::group_time_ns),
            now,
        );
        self.clock.last_tick = None;
    }

    /// Moves group time forward if a key waits for that.
    pub(super) fn propose_tick(&mut self, now: Instant, out: &mut Outbox) {
        let Some(state) = &self.state else { return };
        let stamp = self.clock.stamp(now);
        let due = state
            .store()
            .next_expiry()
            .is_some_and(|expiry| expiry <= stamp);
        if !due
            || !self.consensus.raft().leads_with_commit()
            || !self.clock.may_tick(now, state.applied_index())
        {
            return;
        }
        if let Ok((index, _)) = self
            .consensus
            .propose(EntryBuilder::default().finish(stamp))
        {
            self.clock.last_tick = Some((index, now));
            out.counters.ticks_proposed += 1;
        }
    }
}
