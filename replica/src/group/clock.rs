//! Group time: it lives in the replicated state, only grows, and moves with the leader's monotonic clock.
//!
//! A stamp is the group time that was applied when this leadership began plus the monotonic time since. A wall clock
//! that jumps therefore changes nothing, and without a leader time does not advance. Commands carry stamps anyway. When
//! a key's expiry is due and no client writes, the leader proposes an entry that carries nothing else. Such entries also
//! move the building of an ordered index on. While expired items are left to be removed they follow each other at once, as
//! far as [`SweepPace`] allows.

use trine_canary as canary;
use trine_transport::time::{Duration, Instant};

use super::consensus::Consensus;
use super::sweep::SweepPace;
use crate::log::MemoryLog;
use crate::outbox::Outbox;
use crate::raft_group::RaftGroup;
use crate::state_machine::StateMachine;
use crate::state_machine::entry::EntryBuilder;

/// The least time between two entries that carry nothing but the time.
const TICK_ENTRY_PAUSE: Duration = Duration::from_millis(10);

/// How the leader keeps group time.
pub(super) struct GroupClock {
    anchor: Anchor,
    /// The last entry that was proposed for the time alone.
    last_tick: Option<TickEntry>,
    sweep: SweepPace,
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
    /// For a replica that keeps a watch history of so many bytes.
    pub(super) fn new(now: Instant, history_bytes: usize) -> Self {
        Self {
            anchor: Anchor {
                group_time_ns: 0,
                at: now,
            },
            last_tick: None,
            sweep: SweepPace::new(now, history_bytes),
        }
    }

    /// How many expired items an entry removes that is proposed now with this stamp: see [`SweepPace::number`].
    pub(super) fn sweep_number(
        &self,
        now: Instant,
        stamp: u64,
        state: Option<&StateMachine>,
    ) -> u16 {
        state.map_or(0, |state| self.sweep.number(now, stamp, state))
    }

    /// An entry was proposed that removes so many.
    pub(super) fn on_proposed(&mut self, index: u64, number: u16) {
        self.sweep.on_proposed(index, number);
    }

    /// The entry at `index` was applied. `took` is the time of one that did nothing but move group time, if it was measured.
    pub(super) fn on_applied(
        &mut self,
        now: Instant,
        index: u64,
        state: &StateMachine,
        took: Option<Duration>,
    ) {
        self.sweep.on_applied(now, index, state.swept(), took);
    }

    /// When a leader has to propose an entry because expired items are left. Raft takes none during a transfer, and ahead
    /// of the first one of its term the stamps may be behind those that are applied.
    pub(super) fn next_sweep(
        &self,
        state: Option<&StateMachine>,
        raft: &RaftGroup<MemoryLog>,
    ) -> Option<Instant> {
        let may = raft.is_leader() && raft.has_applied_in_term() && !raft.is_transferring();
        self.sweep.next_entry(state.filter(|_| may)?)
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
        self.sweep.forget_proposed();
        self.anchor_at(now, state);
    }

    fn anchor_at(&mut self, now: Instant, state: Option<&StateMachine>) {
        let group_time_ns = state.map_or(0, StateMachine::group_time_ns);
        self.anchor = Anchor {
            group_time_ns,
            at: now,
        };
        self.last_tick = None;
    }

    /// The first entry of this leadership is applied, and so is everything that earlier leaders have stamped. Entries behind it
    /// may have stamps already, of the time in which this leader had no quorum. Group time goes on from the latest of all.
    pub(super) fn begin(&mut self, now: Instant, state: &StateMachine) {
        let stamped_ns = self.stamp(now);
        self.anchor_at(now, Some(state));
        self.anchor.group_time_ns = self.anchor.group_time_ns.max(stamped_ns);
        assert!(self.stamp(now) >= stamped_ns, "stamps never go back");
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
        self.propose_time(now, stamp, state, consensus, out);
    }

    /// Moves the building of an ordered index on, if no entry is under way that does, and removes more of what has expired,
    /// if the last entry was not enough.
    pub(super) fn propose_work(
        &mut self,
        now: Instant,
        state: Option<&StateMachine>,
        consensus: &mut Consensus,
        out: &mut Outbox,
    ) {
        let Some(state) = state else { return };
        let raft = consensus.raft();
        let builds = state.is_building_index()
            && raft.leads_with_commit()
            && raft.last_index() == state.applied_index();
        let sweep = self.next_sweep(Some(state), raft);
        if builds || sweep.is_some_and(|at| at <= now) {
            self.propose_time(now, self.stamp(now), state, consensus, out);
        }
    }

    fn propose_time(
        &mut self,
        now: Instant,
        stamp: u64,
        state: &StateMachine,
        consensus: &mut Consensus,
        out: &mut Outbox,
    ) {
        let number = self.sweep.number(now, stamp, state);
        let data = EntryBuilder::default().finish_sweeping(stamp, number);
        let Ok(entry) = consensus.propose(data) else {
            return self.sweep.on_refused(now);
        };
        self.sweep.on_proposed(entry.index, number);
        self.last_tick = Some(TickEntry {
            index: entry.index,
            at: now,
        });
        out.counters.ticks_proposed += 1;
    }
}

#[cfg(test)]
mod tests {
    use trine_protocol::message::ClusterId;

    use super::*;
    use crate::config::ReplicaConfig;
    use crate::state_machine::Genesis;

    /// Seed 2489 of the simulator at bca05605. A leader had no quorum for nine seconds from its election on, and clients'
    /// writes were stamped in that time. Then its first entry was applied, and its stamps began again nine seconds lower: group
    /// time stood still until they had caught up, and no key expired.
    #[test]
    fn stamps_of_the_time_without_a_quorum_are_not_given_again() {
        let genesis = Genesis::new(&ReplicaConfig::default(), [1, 2]);
        let state = StateMachine::new(ClusterId(7), genesis, &[], 1);
        let elected = Instant::ZERO + Duration::from_secs(100);
        let mut clock = GroupClock::new(Instant::ZERO, 0);
        clock.anchor(elected, Some(&state));
        let write = clock.stamp(elected + Duration::from_secs(9));
        let applied = elected + Duration::from_millis(9_500);
        clock.begin(applied, &state);
        assert!(clock.stamp(applied) >= write);
        // No faster than the clock, either: the time before the election does not count.
        assert_eq!(clock.stamp(applied), 9_500_000_000);
    }
}
