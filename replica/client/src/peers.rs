//! The replicas that a client endpoint knows, its session with each, and which of them leads.

use std::net::SocketAddr;

use trine_protocol::message::ClusterId;
use trine_protocol::route::RouteOf;
use trine_transport::app::Cx;
use trine_transport::backend::Route;
use trine_transport::prng::Prng;
use trine_transport::session::{ConnectError, ConnectParams, Event, SessionId};
use trine_transport::time::{Duration, Instant};

use super::config::{ClientConfig, PEERS_MAX, SUSPICIONS_MAX};
use super::outcome::Obstacle;

/// The state of the session with one replica.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum PeerSession {
    /// None; the next attempt is due at this moment.
    Down { retry_at: Instant },
    /// Under way.
    Connecting(SessionId),
    /// Requests can be sent.
    Up(SessionId),
}

#[derive(Debug)]
pub(super) struct Peer {
    pub(super) address: SocketAddr,
    pub(super) link: PeerSession,
    /// Why the last attempt to reach it failed.
    pub(super) obstacle: Option<Obstacle>,
    /// Connection attempts that failed since the last success.
    pub(super) failures: u32,
    /// Attempts under way there, questions about the leader not counted.
    pub(super) outstanding: usize,
    /// The last answer, or the moment when the first of the outstanding attempts was sent, or a connection was begun.
    pub(super) heard_at: Instant,
    /// The longest wait for an answer lately.
    pub(super) gap: Duration,
    /// Whether a question about the leader is under way there.
    pub(super) asked: bool,
    /// Reads that need no leader are not sent there before this moment, unless there is no other replica.
    pub(super) avoid_until: Instant,
}

impl Peer {
    /// An answer has come. Longer gaps are forgotten bit by bit.
    pub(super) fn hear(&mut self, now: Instant) {
        let kept = self.gap.as_nanos() / 8 * 7;
        let gap = now.saturating_since(self.heard_at).as_nanos();
        self.gap = Duration::from_nanos(gap.max(kept));
        self.heard_at = now;
    }

    /// How long it may be silent before it is suspected, where `least` is how long any replica may.
    pub(super) fn patience(&self, least: Duration) -> Duration {
        let gaps = self.gap.saturating_mul(2);
        gaps.clamp(least, least.saturating_mul(SUSPICIONS_MAX))
    }

    pub(super) const fn session(&self) -> Option<SessionId> {
        match self.link {
            PeerSession::Up(session) => Some(session),
            PeerSession::Down { .. } | PeerSession::Connecting(_) => None,
        }
    }

    /// Whether it can be asked for the leader.
    pub(super) const fn may_know_leader(&self) -> bool {
        self.session().is_some() && !self.is_foreign()
    }

    /// Whether it belongs to another cluster, speaks another version or takes no such session: it cannot serve this
    /// client.
    pub(super) const fn is_foreign(&self) -> bool {
        matches!(
            self.obstacle,
            Some(
                Obstacle::WrongCluster { .. }
                    | Obstacle::VersionMismatch { .. }
                    | Obstacle::BadTerms { .. }
                    | Obstacle::Key(_)
            )
        )
    }
}

pub(super) struct Peers<R> {
    list: Vec<Peer>,
    route_of: RouteOf<R>,
    params: ConnectParams,
    reconnect_min: Duration,
    reconnect_max: Duration,
}

impl<R: Route> Peers<R> {
    pub(super) fn new(config: &ClientConfig, route_of: RouteOf<R>) -> Self {
        let mut peers = Self {
            list: Vec::new(),
            route_of,
            params: ConnectParams {
                slots: Some(config.slots),
                ..ConnectParams::default()
            },
            reconnect_min: config.reconnect_min,
            reconnect_max: config.reconnect_max,
        };
        for &address in &config.peers {
            peers.add(address);
        }
        peers
    }

    pub(super) fn len(&self) -> usize {
        self.list.len()
    }

    /// Forgets which peers belonged to another cluster: this client's cluster has changed.
    pub(super) fn forget_clusters(&mut self) {
        for peer in &mut self.list {
            if matches!(peer.obstacle, Some(Obstacle::WrongCluster { .. })) {
                peer.obstacle = None;
            }
        }
    }

    pub(super) fn get(&self, index: usize) -> &Peer {
        &self.list[index]
    }

    pub(super) fn get_mut(&mut self, index: usize) -> &mut Peer {
        &mut self.list[index]
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (usize, &Peer)> {
        self.list.iter().enumerate()
    }

    /// The peer with this address, which is added if it is new and there is room.
    pub(super) fn add(&mut self, address: SocketAddr) -> Option<usize> {
        if let Some(index) = self.list.iter().position(|peer| peer.address == address) {
            return Some(index);
        }
        let peer = Peer {
            address,
            link: PeerSession::Down {
                retry_at: Instant::ZERO,
            },
            obstacle: None,
            failures: 0,
            outstanding: 0,
            heard_at: Instant::ZERO,
            gap: Duration::ZERO,
            asked: false,
            avoid_until: Instant::ZERO,
        };
        if self.list.len() < PEERS_MAX {
            self.list.push(peer);
            return Some(self.list.len() - 1);
        }
        let index = self.most_in_vain()?;
        self.list[index] = peer;
        Some(index)
    }

    /// Whose place another one may have: nobody was there the last times, and nothing is under way.
    fn most_in_vain(&self) -> Option<usize> {
        let in_vain = |(_, peer): &(usize, &Peer)| {
            let is_down = matches!(peer.link, PeerSession::Down { .. });
            is_down && peer.failures > 0 && peer.outstanding == 0 && !peer.asked
        };
        let most = self
            .iter()
            .filter(in_vain)
            .max_by_key(|(_, peer)| peer.failures);
        most.map(|(index, _)| index)
    }

    fn of_session(&self, session: SessionId) -> Option<usize> {
        self.list
            .iter()
            .position(|peer| matches!(peer.link, PeerSession::Connecting(s) | PeerSession::Up(s) if s == session))
    }

    /// The next peer behind `after` with a session, foreign ones left out.
    pub(super) fn next_up(&self, after: usize) -> Option<usize> {
        let count = self.list.len();
        (1..=count)
            .map(|step| (after + step) % count)
            .find(|&index| self.list[index].may_know_leader())
    }

    /// The established sessions.
    pub(super) fn sessions(&self) -> impl Iterator<Item = SessionId> + '_ {
        self.list.iter().filter_map(Peer::session)
    }

    /// Starts every connection attempt that is due.
    pub(super) fn connect(&mut self, cx: &mut Cx<'_, R>, rng: &mut Prng) {
        let now = cx.now();
        for index in 0..self.list.len() {
            let PeerSession::Down { retry_at } = self.list[index].link else {
                continue;
            };
            if retry_at > now {
                continue;
            }
            // Looked up each time: on some backends a restarted peer has another route.
            let address = self.list[index].address;
            let Some(route) = (self.route_of)(address) else {
                self.on_failed(index, now, Obstacle::NoRoute { peer: address }, rng);
                continue;
            };
            match cx.connect(route, self.params) {
                Ok(session) => {
                    let peer = &mut self.list[index];
                    (peer.link, peer.heard_at) = (PeerSession::Connecting(session), now);
                }
                Err(_) => self.on_failed(index, now, Obstacle::NoConnection, rng),
            }
        }
    }

    /// Notes the new state of a session. Returns whether a connection attempt failed, perhaps the last that had hope.
    pub(super) fn on_event(&mut self, now: Instant, event: &Event<R>, rng: &mut Prng) -> bool {
        match *event {
            Event::Connected { session, .. } => {
                if let Some(index) = self.of_session(session) {
                    self.on_connected(index, session, now);
                }
            }
            Event::ConnectFailed {
                session, reason, ..
            } => {
                if let Some(index) = self.of_session(session) {
                    self.on_failed(index, now, obstacle_of(reason), rng);
                    return true;
                }
            }
            Event::Down { session, .. } => {
                if let Some(index) = self.of_session(session) {
                    self.on_down(index, now);
                }
            }
            Event::Accepted { .. } => {}
        }
        false
    }

    fn on_connected(&mut self, index: usize, session: SessionId, now: Instant) {
        let peer = &mut self.list[index];
        peer.link = PeerSession::Up(session);
        peer.failures = 0;
        peer.obstacle = None;
        peer.heard_at = now;
    }

    /// The session could not be made: the next attempt follows after a pause that doubles, less a random half.
    fn on_failed(&mut self, index: usize, now: Instant, obstacle: Obstacle, rng: &mut Prng) {
        let failures = self.list[index].failures;
        let pause = self
            .reconnect_min
            .as_nanos()
            .saturating_mul(1 << failures.min(16));
        let pause = pause.min(self.reconnect_max.as_nanos()).max(2);
        let jittered = pause / 2 + rng.below(pause / 2);
        let peer = &mut self.list[index];
        peer.failures = failures.saturating_add(1);
        peer.obstacle = Some(obstacle);
        peer.link = PeerSession::Down {
            retry_at: now + Duration::from_nanos(jittered),
        };
    }

    /// The established session is over: the first attempt to make another one follows immediately.
    fn on_down(&mut self, index: usize, now: Instant) {
        let peer = &mut self.list[index];
        peer.link = PeerSession::Down { retry_at: now };
        peer.obstacle = Some(Obstacle::NoConnection);
    }

    /// When the next connection attempt is due.
    pub(super) fn next_timeout(&self) -> Option<Instant> {
        let due = |peer: &Peer| match peer.link {
            PeerSession::Down { retry_at } => Some(retry_at),
            PeerSession::Connecting(_) | PeerSession::Up(_) => None,
        };
        self.list.iter().filter_map(due).min()
    }

    /// Why nothing can be sent, if that is so.
    pub(super) fn obstacle(&self) -> Obstacle {
        // One established session counts for more than failures of other replicas: a replica was reached.
        let reached = self.list.iter().any(|peer| peer.session().is_some());
        let fallback = if reached {
            Obstacle::NoAnswer
        } else {
            Obstacle::NoConnection
        };
        let mut told = self.list.iter().filter_map(|peer| peer.obstacle);
        told.find(|obstacle| *obstacle != Obstacle::NoConnection)
            .unwrap_or(fallback)
    }

    /// Why no replica can serve this client, if none is left to talk to.
    pub(super) fn all_foreign(&self) -> Option<Obstacle> {
        if self.list.iter().all(Peer::is_foreign) {
            Some(self.obstacle())
        } else {
            None
        }
    }
}

/// The text of a failed connection attempt, for people.
pub(super) const fn obstacle_of(error: ConnectError) -> Obstacle {
    match error {
        ConnectError::WrongCluster { theirs } => Obstacle::WrongCluster {
            theirs: ClusterId(theirs),
        },
        ConnectError::VersionMismatch { theirs } => Obstacle::VersionMismatch { theirs },
        ConnectError::PeerFull => Obstacle::Full,
        ConnectError::BadTerms { term, nearest } => Obstacle::BadTerms { term, nearest },
        ConnectError::Key(obstacle) => Obstacle::Key(obstacle),
        ConnectError::OtherReason { code } => Obstacle::OtherReason { code },
        ConnectError::TimedOut | ConnectError::Cancelled => Obstacle::NoConnection,
    }
}
