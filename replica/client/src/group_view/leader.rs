//! Choosing the replica to ask: following hints, turning to others if there is no leader, and finding out why a leader
//! fell silent.

use std::net::SocketAddr;

use trine_protocol::message::{Discovery, StatusForm, StatusReply, StatusRequest, kind};
use trine_transport::app::{Completion, Cx};
use trine_transport::backend::Route;
use trine_transport::session::SessionId;
use trine_transport::time::{Duration, Instant};

use super::GroupView;
use super::belief::QUESTION_BIT;
use crate::config::SUSPICIONS_MAX;
use crate::conversation::{Question, ReplicaSession};
use crate::outcome::Obstacle;

/// Room for a [`Discovery`] with the most members.
const DISCOVERY_BYTES: usize = 4096;
/// So many questions for the leader would fit into [`ClientConfig::suspect_after`](crate::ClientConfig) at the first pace.
const FIRST_ASKS_IN_A_SUSPICION: u64 = 2;
/// After so many the pause between two is twice as long.
const ASKS_BEFORE_DOUBLING: u32 = 16;

/// What an answer about the leader has changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum LeaderNews {
    Nothing,
    /// It cannot be read.
    Unreadable,
    /// Another replica leads. What is under way at this one is to be repeated.
    NoLonger(usize),
}

impl<R: Route> GroupView<R> {
    /// The session to the replica that is taken for the leader; another one's if that is unreachable.
    pub(crate) fn target(&mut self) -> Option<(usize, SessionId)> {
        if let Some(index) = self.leader.target {
            let peer = self.peers.get(index);
            match peer.session {
                ReplicaSession::Up(session) if !peer.is_foreign() => return Some((index, session)),
                // A fresh hint deserves the wait, a replica that failed before does not.
                ReplicaSession::Connecting(_) if peer.failures == 0 => return None,
                _ => {}
            }
        }
        let index = self.guess()?;
        self.peers
            .get(index)
            .session()
            .map(|session| (index, session))
    }

    /// Whether [`GroupView::target`] would find one. If not, a connection has to come first.
    pub(crate) fn has_target(&self) -> bool {
        if let Some(index) = self.leader.target {
            let peer = self.peers.get(index);
            match peer.session {
                ReplicaSession::Up(_) if !peer.is_foreign() => return true,
                ReplicaSession::Connecting(_) if peer.failures == 0 => return false,
                _ => {}
            }
        }
        self.peers.next_up(self.leader.last_guess).is_some()
    }

    fn turn_to(&mut self, index: usize) {
        assert!(index < self.peers.len(), "the leader is a known replica");
        if self.leader.target != Some(index) {
            self.leader.target = Some(index);
            self.leader_changes += 1;
        }
    }

    /// `from` does not lead; it may have named the leader.
    pub(crate) fn redirect(&mut self, now: Instant, from: usize, hint: Option<SocketAddr>) {
        if self.leader.target != Some(from) {
            return; // Said by one that is no longer asked.
        }
        let Some(index) = hint
            .and_then(|address| self.peers.add(address))
            .filter(|&index| index != from)
        else {
            return self.ask_elsewhere(now, from);
        };
        self.leader.streak += 1;
        // Hints may go round in a circle while an election is under way.
        if self.leader.streak as usize > self.peers.len() {
            self.leader.resume_at = now + self.pause(self.leader.streak);
        }
        self.turn_to(index);
    }

    /// `from` can do nothing and knows no leader: pause, then ask the next one.
    pub(crate) fn ask_elsewhere(&mut self, now: Instant, from: usize) {
        if self.leader.target != Some(from) {
            return;
        }
        self.hold_back(now);
        self.guess();
    }

    /// Takes the next reachable replica for the leader.
    fn guess(&mut self) -> Option<usize> {
        let index = self.peers.next_up(self.leader.last_guess)?;
        self.leader.last_guess = index;
        self.turn_to(index);
        Some(index)
    }

    /// Nothing is sent to the leader for a while; the pause doubles until an answer comes.
    pub(crate) fn hold_back(&mut self, now: Instant) {
        // Of many answers in the same pause only the first lengthens it.
        if now >= self.leader.resume_at {
            let pause = self.pause(self.leader.streak);
            self.leader.resume_at = now + pause;
            self.leader.streak = self.leader.streak.saturating_add(1);
        }
    }

    /// When something can be sent to the leader.
    pub(crate) fn resume_at(&self) -> Instant {
        self.leader.resume_at
    }

    pub(crate) fn note_leader_answered(&mut self, peer: usize) {
        if self.leader.target == Some(peer) {
            (self.leader.streak, self.leader.asks) = (0, 0);
        }
    }

    /// When the leader's silence becomes suspicious. A replica may have been named that ended before this client knew it, so
    /// silence counts while a connection is being made, too.
    pub(crate) fn silence_ends_at(&self, waits_for_leader: bool) -> Option<Instant> {
        let peer = self.peers.get(self.leader.target?);
        let is_awaited = match peer.session {
            ReplicaSession::Connecting(_) => waits_for_leader,
            ReplicaSession::Up(_) | ReplicaSession::Down => peer.outstanding > 0,
        };
        let others = self
            .peers
            .iter()
            .any(|(index, other)| Some(index) != self.leader.target && other.may_know_leader());
        if !is_awaited || !others {
            return None;
        }
        let suspicious_at = peer.silence.suspicious_at(self.pauses.suspect_after);
        Some(suspicious_at.max(self.leader.ask_at))
    }

    /// An election takes about as long as the silence that began it. Its end is asked for often at first, and then more and
    /// more seldom: there may be many clients, and no quorum. They do not all ask at the same moments.
    fn ask_interval(&mut self) -> Duration {
        let doublings = self.leader.asks / ASKS_BEFORE_DOUBLING;
        let suspicion = self.pauses.suspect_after.as_nanos();
        let longest = suspicion.saturating_mul(SUSPICIONS_MAX);
        let first = suspicion / FIRST_ASKS_IN_A_SUSPICION;
        let interval = first
            .saturating_mul(1 << doublings.min(16))
            .clamp(2, longest.max(2));
        Duration::from_nanos(interval / 4 * 3 + self.rng.below(interval / 2))
    }

    /// Asks the other replicas for the leader, if the presumed one is silent.
    pub(crate) fn ask_if_silent(&mut self, cx: &mut Cx<'_, R>, waits_for_leader: bool) {
        let now = cx.now();
        if self
            .silence_ends_at(waits_for_leader)
            .is_none_or(|at| at > now)
        {
            return;
        }
        self.leader.ask_at = now + self.ask_interval();
        self.leader.asks = self.leader.asks.saturating_add(1);
        for index in 0..self.peers.len() {
            let peer = self.peers.get(index);
            if self.leader.target != Some(index) && peer.may_know_leader() && !peer.asked {
                self.ask(cx, index);
            }
        }
    }

    pub(crate) fn ask(&mut self, cx: &mut Cx<'_, R>, index: usize) {
        let Some(session) = self.peers.get(index).session() else {
            return;
        };
        let question = Question {
            kind: kind::STATUS,
            room: DISCOVERY_BYTES,
            deadline: cx.now() + self.pauses.attempt_timeout,
        };
        let (tag, form) = (QUESTION_BIT | index as u64, StatusForm::Discovery);
        self.peers.get_mut(index).asked = question.send(cx, session, tag, &StatusRequest { form });
    }

    pub(crate) fn on_leader_answer(&mut self, tag: u64, completion: &Completion) -> LeaderNews {
        let index = (tag & !QUESTION_BIT) as usize;
        self.peers.get_mut(index).asked = false;
        if completion.result.is_err() {
            return LeaderNews::Nothing;
        }
        let Ok(StatusReply::Discovery(discovery)) = StatusReply::decode(&completion.response)
        else {
            return LeaderNews::Unreadable;
        };
        if !self.cluster.admits(discovery.cluster) {
            self.peers.get_mut(index).obstacle = Some(Obstacle::WrongCluster {
                theirs: discovery.cluster,
            });
            return LeaderNews::Nothing;
        }
        self.on_discovery(&discovery)
    }

    fn on_discovery(&mut self, discovery: &Discovery) -> LeaderNews {
        for member in &discovery.members.0 {
            self.peers.add(member.address);
        }
        let Some(leader) = discovery.leader.and_then(|address| self.peers.add(address)) else {
            return LeaderNews::Nothing;
        };
        let named = (discovery.cluster, discovery.term);
        if named.0 == self.leader.named_in.0 && named.1 < self.leader.named_in.1 {
            return LeaderNews::Nothing;
        }
        self.leader.named_in = named;
        let old = self.leader.target.filter(|&old| old != leader);
        self.turn_to(leader);
        old.map_or(LeaderNews::Nothing, LeaderNews::NoLonger)
    }
}
