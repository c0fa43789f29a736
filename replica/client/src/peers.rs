//! The replicas that a client endpoint knows, its session with each, and which of them leads.

use std::net::SocketAddr;

use trine_protocol::route::RouteOf;
use trine_transport::app::Cx;
use trine_transport::backend::Route;
use trine_transport::prng::Prng;
use trine_transport::session::{ConnectParams, Event, SessionId};
use trine_transport::time::{Duration, Instant};

use super::config::{ClientConfig, PEERS_MAX, SUSPICIONS_MAX};
use super::conversation::{ReplicaSession, SessionChange};
use super::outcome::Obstacle;

#[derive(Debug)]
pub(super) struct Peer {
    pub(super) address: SocketAddr,
    pub(super) session: ReplicaSession,
    /// Without a session the next attempt is due at this moment.
    retry_at: Instant,
    /// Why the last attempt to reach it failed.
    pub(super) obstacle: Option<Obstacle>,
    /// Connection attempts that failed since the last success.
    pub(super) failures: u32,
    /// Attempts under way there, questions about the leader not counted.
    pub(super) outstanding: usize,
    pub(super) silence: Silence,
    /// Whether a question about the leader is under way there.
    pub(super) asked: bool,
    /// Reads that need no leader are not sent there before this moment, unless there is no other replica.
    pub(super) avoid_until: Instant,
}

/// How long a replica has been silent, and how long it may be.
#[derive(Clone, Copy, Debug)]
pub(super) struct Silence {
    /// The last answer, or the moment when the first of the outstanding attempts was sent, or a connection was begun.
    since: Instant,
    /// The longest wait for an answer lately.
    gap: Duration,
}

impl Silence {
    const NONE: Self = Self {
        since: Instant::ZERO,
        gap: Duration::ZERO,
    };

    /// Counts from now on.
    pub(super) const fn begin(&mut self, now: Instant) {
        self.since = now;
    }

    /// An answer has come. Longer gaps are forgotten bit by bit.
    pub(super) fn end(&mut self, now: Instant) {
        let kept = self.gap.as_nanos() / 8 * 7;
        let gap = now.saturating_since(self.since).as_nanos();
        self.gap = Duration::from_nanos(gap.max(kept));
        self.since = now;
    }

    /// When it becomes suspicious, where `least` is how long any replica may be silent.
    pub(super) fn suspicious_at(&self, least: Duration) -> Instant {
        let gaps = self.gap.saturating_mul(2);
        self.since + gaps.clamp(least, least.saturating_mul(SUSPICIONS_MAX))
    }
}

impl Peer {
    pub(super) const fn session(&self) -> Option<SessionId> {
        self.session.up()
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
            session: ReplicaSession::Down,
            retry_at: Instant::ZERO,
            obstacle: None,
            failures: 0,
            outstanding: 0,
            silence: Silence::NONE,
            asked: false,
            avoid_until: Instant::ZERO,
        };
        if self.list.len() < PEERS_MAX {
            self.list.push(peer);
            return Some(self.list.len() - 1);
        }
        assert_eq!(self.list.len(), PEERS_MAX, "none is forgotten before");
        let index = self.most_in_vain()?;
        self.list[index] = peer;
        Some(index)
    }

    /// Whose place another one may have: nobody was there the last times, and nothing is under way.
    fn most_in_vain(&self) -> Option<usize> {
        let in_vain = |(_, peer): &(usize, &Peer)| {
            peer.session == ReplicaSession::Down
                && peer.failures > 0
                && peer.outstanding == 0
                && !peer.asked
        };
        let most = self
            .iter()
            .filter(in_vain)
            .max_by_key(|(_, peer)| peer.failures);
        most.map(|(index, _)| index)
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
            let peer = &self.list[index];
            if peer.session != ReplicaSession::Down || peer.retry_at > now {
                continue;
            }
            // Looked up each time: on some backends a restarted peer has another route.
            let address = self.list[index].address;
            let Some(route) = (self.route_of)(address) else {
                self.on_failed(index, now, Obstacle::NoRoute { peer: address }, rng);
                continue;
            };
            let peer = &mut self.list[index];
            match peer.session.connect(cx, route, self.params) {
                true => peer.silence.begin(now),
                false => self.on_failed(index, now, Obstacle::NoConnection, rng),
            }
        }
    }

    /// Notes the new state of a session. Returns whether a connection attempt failed, perhaps the last that had hope.
    pub(super) fn on_event(&mut self, now: Instant, event: &Event<R>, rng: &mut Prng) -> bool {
        let mut peers = self.list.iter_mut().enumerate();
        let changed = peers.find_map(|(index, peer)| Some((index, peer.session.on_event(event)?)));
        match changed {
            Some((index, SessionChange::Up(_))) => self.on_connected(index, now),
            Some((index, SessionChange::NotReached(reason))) => {
                self.on_failed(index, now, reason.into(), rng);
                return true;
            }
            Some((index, SessionChange::Lost(_))) => self.on_down(index, now),
            None => {}
        }
        false
    }

    fn on_connected(&mut self, index: usize, now: Instant) {
        let peer = &mut self.list[index];
        assert!(peer.session().is_some(), "a connected peer has a session");
        peer.failures = 0;
        peer.obstacle = None;
        peer.silence.begin(now);
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
        assert_eq!(peer.session, ReplicaSession::Down, "nothing is under way");
        peer.failures = failures.saturating_add(1);
        peer.obstacle = Some(obstacle);
        peer.retry_at = now + Duration::from_nanos(jittered);
    }

    /// The established session is over: the first attempt to make another one follows immediately.
    fn on_down(&mut self, index: usize, now: Instant) {
        let peer = &mut self.list[index];
        peer.retry_at = now;
        peer.obstacle = Some(Obstacle::NoConnection);
    }

    /// When the next connection attempt is due.
    pub(super) fn next_timeout(&self) -> Option<Instant> {
        let is_down = |peer: &&Peer| peer.session == ReplicaSession::Down;
        let down = self.list.iter().filter(is_down);
        down.map(|peer| peer.retry_at).min()
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
