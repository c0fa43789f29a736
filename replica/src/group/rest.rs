//! When this member may sleep through ticks of raft that do nothing.
//!
//! The work of a tick (`Group::maintain`) is done when a member wakes up, and an idle group wakes up for each heartbeat.
//! That is soon enough unless something here waits for the next tick.

use trine_transport::time::Instant;

use super::Group;
use crate::outbox::Outbox;

impl Group {
    /// When the next turn is due for the sake of raft's ticks.
    pub(super) fn next_tick(&self, out: &Outbox) -> Instant {
        let raft = self.consensus.raft();
        if self.waits_for_a_tick(out) {
            return raft.next_tick();
        }
        if raft.wants_to_plan() {
            return Instant::ZERO;
        }
        let working = raft.next_working_tick();
        match self.has_expiry_before(working) {
            true => raft.next_tick(),
            false => working,
        }
    }

    fn waits_for_a_tick(&self, out: &Outbox) -> bool {
        self.state.is_none()
            || self.life.is_stopping()
            || self.service.has_waiting_reads()
            || self.consensus.wants_snapshot()
            || self.sending.has_image()
            || out.has_debts()
    }

    /// Whether a leader has to move group time before this moment, because a key expires.
    fn has_expiry_before(&self, at: Instant) -> bool {
        let expiry = self
            .state
            .as_ref()
            .and_then(|state| state.store().next_expiry());
        expiry.is_some_and(|expiry| {
            self.consensus.raft().is_leader() && expiry <= self.clock.stamp(at)
        })
    }
}
