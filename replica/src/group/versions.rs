//! Rolling upgrades: a group switches to a newer state-machine version when the last member understands it.
//!
//! Every message between members says which version its sender understands at most. The leader proposes the switch as an
//! entry of its own once it has heard that of every member, learners included, and takes nobody in afterwards who
//! understands less. A member that meets a version beyond its own all the same stops, and says why.

use trine_protocol::message::Incarnation;
use trine_transport::time::Instant;

use super::Group;
use crate::state_machine::StateMachine;
use crate::state_machine::entry::raise_version;

/// What is known of a member from its own words.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Heard {
    pub(super) at: Instant,
    /// The newest state-machine version that it understands; zero while it has not said so.
    pub(super) state_version: u8,
}

impl Group {
    /// The version that whoever joins has to understand.
    pub(super) fn required_version(&self) -> u8 {
        let active = self.state.as_ref().map(StateMachine::version);
        let raising = self.raising.map(|(_, version)| version);
        active.max(raising).unwrap_or_default()
    }

    pub(super) fn understands(&self, member: Incarnation) -> u8 {
        if member == self.local.own.incarnation {
            return self.local.config.state_version;
        }
        self.heard
            .get(&member)
            .map_or(0, |heard| heard.state_version)
    }

    /// Proposes the switch to the newest version that all members understand, if it is newer than the present one.
    pub(super) fn raise_version(&mut self, now: Instant) {
        let Some(state) = &self.state else { return };
        let members = state.members().all().iter();
        let common = members
            .map(|member| self.understands(member.incarnation))
            .min();
        let Some(version) = common.filter(|&common| common > self.required_version()) else {
            return;
        };
        // Whoever is being taken in at the moment is not in the list yet.
        let settled = !self.consensus.raft().has_pending_conf() && self.stopping.is_none();
        if !settled || !self.consensus.raft().leads_with_commit() {
            return;
        }
        let entry = raise_version(self.clock.stamp(now), version);
        if let Ok((index, _)) = self.consensus.propose(entry) {
            self.raising = Some((index, version));
        }
    }
}
