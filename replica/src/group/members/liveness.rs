//! When was each member last heard from, and which state-machine version does it understand?

use std::collections::BTreeMap;

use trine_protocol::message::Incarnation;
use trine_transport::time::Instant;

use crate::membership::MemberTable;

/// The members' states as their own messages report them.
#[derive(Default)]
pub(super) struct PeerLiveness {
    /// Members alone, this one excluded.
    peers: BTreeMap<Incarnation, Peer>,
}

/// The state of a member as its own messages report it.
#[derive(Clone, Copy, Default, Debug)]
struct Peer {
    heard_at: Instant,
    /// The newest state-machine version that it understands; zero while it has not said so.
    state_version: u8,
    /// The end of its log, from its latest answer to an append if that was a rejection.
    log_end: Option<u64>,
}

impl PeerLiveness {
    /// A member has spoken.
    pub(super) fn hear(&mut self, now: Instant, from: Incarnation, version: u8) {
        let peer = self.peers.entry(from).or_default();
        peer.heard_at = now;
        // An answer without content says nothing about it.
        if version != 0 {
            peer.state_version = version;
        }
    }

    /// A member has answered an append. A rejection names the end of the member's log.
    pub(super) fn note_log_end(&mut self, member: Incarnation, end: Option<u64>) {
        if let Some(peer) = self.peers.get_mut(&member) {
            peer.log_end = end;
        }
    }

    /// The end of a member's log, if the member has rejected the latest append that it answered.
    pub(super) fn log_end(&self, member: Incarnation) -> Option<u64> {
        self.peers.get(&member)?.log_end
    }

    /// Forgets replicas that are no longer members.
    pub(super) fn retain(&mut self, members: &MemberTable) {
        self.peers
            .retain(|incarnation, _| members.get(*incarnation).is_some());
    }

    pub(super) fn was_heard_since(&self, member: Incarnation, since: Instant) -> bool {
        let peer = self.peers.get(&member);
        peer.is_some_and(|peer| peer.heard_at >= since)
    }

    pub(super) fn silence_ns(&self, now: Instant, member: Incarnation) -> Option<u64> {
        let peer = self.peers.get(&member)?;
        Some(now.saturating_since(peer.heard_at).as_nanos())
    }

    pub(super) fn understands(&self, member: Incarnation) -> u8 {
        self.peers.get(&member).map_or(0, |peer| peer.state_version)
    }
}
