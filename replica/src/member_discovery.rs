//! Which replica is asked who the members are.

use std::net::SocketAddr;

use trine_transport::time::Instant;

use crate::config::{LEADER_QUESTION_EVERY, MEMBERS_QUESTION_EVERY, OWN_PLACE_QUESTION_EVERY};

/// When the next question is due, and whose turn it is.
#[derive(Debug)]
pub(crate) struct MemberDiscovery {
    /// An unknown replica has spoken, or the members are not known yet: a known replica is to be asked who they are.
    wanted: bool,
    ask_at: Instant,
    ask_leader_at: Instant,
    want_again_at: Instant,
    /// Counts the questions, so that all are asked in turn.
    turn: usize,
}

impl MemberDiscovery {
    pub(crate) fn new() -> Self {
        Self {
            wanted: false,
            ask_at: Instant::ZERO,
            ask_leader_at: Instant::ZERO,
            want_again_at: Instant::ZERO,
            turn: 0,
        }
    }

    /// An unknown replica speaks as a member would. If the members have changed while this replica was away, one that
    /// it knows can say so.
    pub(crate) fn want(&mut self) {
        self.wanted = true;
    }

    /// The same for a question that is worth asking again and again.
    pub(crate) fn want_at_times(&mut self, now: Instant) {
        if now >= self.want_again_at {
            self.want_again_at = now + OWN_PLACE_QUESTION_EVERY;
            self.wanted = true;
        }
    }

    /// Which of `known` to ask now, if any.
    pub(crate) fn next(
        &mut self,
        now: Instant,
        known: impl Iterator<Item = SocketAddr>,
    ) -> Option<SocketAddr> {
        if !self.wanted || now < self.ask_at {
            return None;
        }
        self.wanted = false;
        self.ask_at = now + MEMBERS_QUESTION_EVERY;
        self.turn = self.turn.wrapping_add(1);
        let all: Vec<SocketAddr> = known.collect();
        all.get(self.turn % all.len().max(1)).copied()
    }

    /// The leader, if it is time to ask it.
    pub(crate) fn next_of_leader(
        &mut self,
        now: Instant,
        leader: impl FnOnce() -> Option<SocketAddr>,
    ) -> Option<SocketAddr> {
        if now < self.ask_leader_at {
            return None;
        }
        self.ask_leader_at = now + LEADER_QUESTION_EVERY;
        leader()
    }

    /// When [`MemberDiscovery::next`] has something to say.
    pub(crate) fn next_timeout(&self) -> Option<Instant> {
        self.wanted.then_some(self.ask_at)
    }
}
