//! From which addresses do messages between replicas count, and who is asked for those that are missing?
//!
//! Anybody can write a peer message, so it counts only if its session leads to an address that this replica has reason to
//! trust: a member's, one of `--peers`, or one that was named by an answer over a session that this replica opened itself.
//! Addresses are compared and never incarnations: a member that was restarted in memory mode has an incarnation that a
//! replica which was cut off meanwhile does not know, and its vote may be the one that the group needs.

use std::collections::VecDeque;
use std::net::SocketAddr;
use trine_protocol::message::PlaceId;
use trine_protocol::route::is_same_address;
use trine_transport::time::Instant;

use crate::config::{LEARNED_ADDRESSES_MAX, MEMBERS_QUESTION_EVERY};

/// The addresses that this replica trusts beside those of the members.
#[derive(Debug)]
pub(crate) struct Addresses {
    /// `--peers`, without this replica itself.
    peers: Vec<(PlaceId, SocketAddr)>,
    /// Named by answers or by operators, the latest at the end, at most [`LEARNED_ADDRESSES_MAX`].
    learned: VecDeque<SocketAddr>,
    /// Whether `peers` tells which place has which address, or only whom to ask.
    placed: bool,
    /// Somebody unknown has spoken, or the members are not known yet: a known replica is to be asked who they are.
    wanted: bool,
    ask_at: Instant,
    /// Counts the questions, so that all are asked in turn.
    turn: usize,
}

impl Addresses {
    pub(crate) fn new(peers: Vec<(PlaceId, SocketAddr)>) -> Self {
        Self {
            peers,
            learned: VecDeque::new(),
            placed: true,
            wanted: false,
            ask_at: Instant::ZERO,
            turn: 0,
        }
    }

    /// `--peers` only says whom to ask: the places in it were made up.
    pub(crate) fn without_places(mut self) -> Self {
        self.placed = false;
        self
    }

    /// Somebody who is not known speaks as a member would. If the members have changed while this replica was away, one
    /// that it knows can say so.
    pub(crate) fn want_members(&mut self) {
        self.wanted = true;
    }

    /// Whom to ask now who the members are, if anybody: `members` and these addresses in turn.
    pub(crate) fn due_question(
        &mut self,
        now: Instant,
        members: impl Iterator<Item = SocketAddr>,
    ) -> Option<SocketAddr> {
        if !self.wanted || now < self.ask_at {
            return None;
        }
        self.wanted = false;
        self.ask_at = now + MEMBERS_QUESTION_EVERY;
        self.turn = self.turn.wrapping_add(1);
        let all: Vec<SocketAddr> = members.chain(self.iter()).collect();
        all.get(self.turn % all.len().max(1)).copied()
    }

    /// When [`Addresses::due_question`] has something to say.
    pub(crate) fn next_timeout(&self) -> Option<Instant> {
        self.wanted.then_some(self.ask_at)
    }

    /// The other places that were named at the start.
    pub(crate) fn peers(&self) -> &[(PlaceId, SocketAddr)] {
        &self.peers
    }

    /// Whether `--peers` names this address for this place.
    pub(crate) fn lists(&self, place: PlaceId, address: SocketAddr) -> bool {
        let is_it =
            |&(other, at): &(PlaceId, SocketAddr)| other == place && is_same_address(at, address);
        self.placed && self.peers.iter().any(is_it)
    }

    /// Whether `--peers` names an address for this place.
    pub(crate) fn lists_place(&self, place: PlaceId) -> bool {
        self.placed && self.peers.iter().any(|&(other, _)| other == place)
    }

    /// An answer over a session that this replica has opened names this address, or an operator does.
    pub(crate) fn learn(&mut self, address: SocketAddr) {
        if self.learned.contains(&address) {
            return;
        }
        if self.learned.len() == LEARNED_ADDRESSES_MAX {
            self.learned.pop_front();
        }
        self.learned.push_back(address);
    }

    /// All of them.
    pub(crate) fn iter(&self) -> impl Iterator<Item = SocketAddr> {
        let peers = self.peers.iter().map(|&(_, address)| address);
        peers.chain(self.learned.iter().copied())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(text: &str) -> SocketAddr {
        text.parse().unwrap()
    }

    #[test]
    fn learned_addresses_are_bounded_and_the_oldest_gives_way() {
        let mut addresses = Addresses::new(vec![(PlaceId(1), address("10.0.0.1:7"))]);
        for port in 1..=LEARNED_ADDRESSES_MAX as u16 + 1 {
            addresses.learn(SocketAddr::from(([10, 0, 0, 2], port)));
            addresses.learn(SocketAddr::from(([10, 0, 0, 2], port)));
        }
        let all: Vec<SocketAddr> = addresses.iter().collect();
        assert_eq!(all.len(), 1 + LEARNED_ADDRESSES_MAX);
        assert_eq!(all[1], address("10.0.0.2:2"));
    }
}
