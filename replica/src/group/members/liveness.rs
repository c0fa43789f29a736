//! When each member was last heard from, and the state-machine version that it understands.

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
    /// The newest state-machine version that it understands, and when it has said so last; zero while it has not.
    state_version: u8,
    version_at: Instant,
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
            (peer.state_version, peer.version_at) = (version, now);
        }
    }

    /// What members understood under an earlier leadership says nothing about the processes that run now.
    pub(super) fn forget_versions(&mut self) {
        let peers = self.peers.values_mut();
        peers.for_each(|peer| peer.state_version = 0);
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

    /// Whether a member has said since then which version it understands. A process of another release that has taken its
    /// place may have spoken since, in answers without content.
    pub(super) fn has_said_version_since(&self, member: Incarnation, since: Instant) -> bool {
        let peer = self.peers.get(&member);
        peer.is_some_and(|peer| peer.state_version != 0 && peer.version_at >= since)
    }

    pub(super) fn understands(&self, member: Incarnation) -> u8 {
        self.peers.get(&member).map_or(0, |peer| peer.state_version)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use trine_transport::time::Duration;

    /// A member had said that it understands a newer version, and was silent when the time for the switch was over. Its process
    /// of the older release was taken for the one before if the first that the leader heard of it was an answer without
    /// content: the leader switched, and the member was left behind.
    #[test]
    fn an_answer_without_content_says_nothing_about_the_version() {
        let (member, start) = (Incarnation(1), Instant::from_nanos(1));
        let mut liveness = PeerLiveness::default();
        liveness.hear(start, member, 9);
        assert!(liveness.has_said_version_since(member, start));
        let later = start + Duration::from_secs(1);
        liveness.hear(later, member, 0);
        assert!(liveness.was_heard_since(member, later));
        assert!(!liveness.has_said_version_since(member, later));
        liveness.hear(later, member, 8);
        assert!(liveness.has_said_version_since(member, later));
        assert_eq!(liveness.understands(member), 8);
        // Another leadership knows nothing of it.
        liveness.forget_versions();
        assert!(!liveness.has_said_version_since(member, later));
        assert_eq!(liveness.understands(member), 0);
    }
}
