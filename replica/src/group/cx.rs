//! What the parts of a member work with, beside what is theirs.

use std::net::SocketAddr;

use trine_protocol::message::Incarnation;
use trine_transport::time::Instant;

use super::clock::GroupClock;
use super::consensus::Consensus;
use super::local::Local;
use crate::log::MemoryLog;
use crate::membership::MemberTable;
use crate::outbox::Outbox;
use crate::places::Places;
use crate::raft_group::RaftGroup;
use crate::state_machine::StateMachine;

/// The arguments that a call lends to a part of a member, bundled because they are always the same.
///
/// A part may propose through consensus and may send. The state is only to be read. The clock is told what the entries say that are
/// proposed.
pub(super) struct Cx<'a> {
    pub(super) now: Instant,
    pub(super) local: &'a Local,
    /// Nothing until the first snapshot has arrived.
    pub(super) state: Option<&'a StateMachine>,
    pub(super) clock: &'a mut GroupClock,
    /// Whether this member has halted.
    pub(super) halted: bool,
    pub(super) consensus: &'a mut Consensus,
    pub(super) out: &'a mut Outbox,
}

impl<'a> Cx<'a> {
    pub(super) fn raft(&self) -> &RaftGroup<MemoryLog> {
        self.consensus.raft()
    }

    pub(super) fn members(&self) -> Option<&'a MemberTable> {
        self.state.map(StateMachine::members)
    }

    /// Where the leader is, if this member knows that.
    pub(super) fn leader_address(&self) -> Option<SocketAddr> {
        leader_address(self.consensus, self.state, &self.out.places)
    }

    /// Whether this leader has led for an election timeout. Before that it has heard from no member, and must not take
    /// silence for death.
    pub(super) fn is_settled(&self) -> bool {
        let leads_for = self.now.saturating_since(self.clock.anchored_at());
        leads_for >= self.local.election_timeout()
    }
}

/// Where the leader is, if this member knows that.
pub(super) fn leader_address(
    consensus: &Consensus,
    state: Option<&StateMachine>,
    places: &Places,
) -> Option<SocketAddr> {
    let leader = Incarnation(consensus.raft().leader());
    let member = state?.members().get(leader)?;
    Some(places.of(member))
}
