//! This member's identity and settings.

use trine_protocol::message::{ClusterId, GroupId, Incarnation, Member, PeerHeader};
use trine_transport::time::Duration;

use crate::config::ReplicaConfig;
use crate::state_machine::StateMachine;

/// The identity and the settings of this member: plain data that all parts read.
#[derive(Clone, Copy, Debug)]
pub(super) struct Local {
    pub(super) cluster: ClusterId,
    pub(super) own: Member,
    /// The group's settings replace some of these when the first snapshot arrives.
    pub(super) config: ReplicaConfig,
}

impl Local {
    /// The header of a message from this member to another one.
    pub(super) fn header_to(&self, to: Incarnation) -> PeerHeader {
        PeerHeader {
            cluster: self.cluster,
            group: GroupId(0),
            from: self.own.incarnation,
            to,
            state_version: self.config.state_version,
        }
    }

    /// Whether a message is meant for this incarnation, in this cluster.
    pub(super) fn is_addressed_by(&self, header: &PeerHeader) -> bool {
        header.cluster == self.cluster
            && header.group == GroupId(0)
            && header.to == self.own.incarnation
    }

    /// The least election timeout.
    pub(super) fn election_timeout(&self) -> Duration {
        election_timeout(&self.config)
    }

    /// How long a leadership lasts that a quorum has confirmed.
    pub(super) fn lease_length(&self, state: Option<&StateMachine>) -> Duration {
        let refusal = state.map_or(0, |state| state.genesis().vote_refusal_ns);
        Duration::from_nanos(refusal).saturating_sub(self.config.lease_drift)
    }
}

/// The least election timeout under these settings.
pub(super) fn election_timeout(config: &ReplicaConfig) -> Duration {
    Duration::from_nanos(config.tick.as_nanos() * config.election_ticks as u64)
}
