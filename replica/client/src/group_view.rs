//! What an endpoint knows of the group: its replicas, the cluster, and whom it takes for the leader.
//!
//! `leader` finds the replica to ask, `spread` one for reads that need no leader.
//!
//! Invariant: the replica that is taken for the leader, and those that reads were spread to, are in the list of replicas.
//! Nothing is sent before the cluster is named, if that is awaited.

mod belief;
mod leader;
mod spread;

use std::net::SocketAddr;

use trine_protocol::message::ClusterId;
use trine_protocol::route::RouteOf;
use trine_transport::app::Cx;
use trine_transport::backend::Route;
use trine_transport::prng::Prng;
use trine_transport::session::{Event, SessionId};
use trine_transport::time::{Duration, Instant};

use super::config::ClientConfig;
use super::outcome::Obstacle;
use super::peers::Peers;
use belief::Leader;
pub(super) use belief::QUESTION_BIT;
pub(super) use leader::LeaderNews;
pub(super) use spread::SPREAD;

pub(super) struct GroupView<R: Route> {
    peers: Peers<R>,
    leader: Leader,
    /// Times that another replica than before was taken for the leader.
    leader_changes: u64,
    /// The replica that last got reads which need no leader.
    last_spread: usize,
    /// The cluster of this client: configured, or the first that gave an answer.
    cluster: ClusterId,
    /// Whether nothing is sent before [`GroupView::pin`].
    awaits_pin: bool,
    rng: Prng,
    pauses: GroupPauses,
}

/// The settings that say how long is waited, see [`ClientConfig`].
struct GroupPauses {
    attempt_timeout: Duration,
    suspect_after: Duration,
    pause_min: Duration,
    pause_max: Duration,
}

impl<R: Route> GroupView<R> {
    pub(super) fn new(config: &ClientConfig, route_of: RouteOf<R>, seed: u64) -> Self {
        Self {
            peers: Peers::new(config, route_of),
            leader: Leader::new(),
            leader_changes: 0,
            last_spread: 0,
            cluster: config.cluster,
            awaits_pin: false,
            rng: Prng::new(seed),
            pauses: GroupPauses {
                attempt_timeout: config.attempt_timeout,
                suspect_after: config.suspect_after,
                pause_min: config.pause_min,
                pause_max: config.pause_max,
            },
        }
    }

    /// Nothing is sent before [`GroupView::pin`].
    pub(super) fn await_pin(&mut self) {
        self.awaits_pin = true;
    }

    pub(super) const fn is_awaiting_pin(&self) -> bool {
        self.awaits_pin
    }

    /// See [`Clients::pin`](super::Clients::pin).
    pub(super) fn pin(&mut self, cluster: ClusterId) -> bool {
        let (awaited, before) = (std::mem::take(&mut self.awaits_pin), self.cluster);
        if awaited || before != cluster {
            self.cluster = cluster;
            self.leader = Leader::new();
            self.peers.forget_clusters();
        }
        !before.is_none() && before != cluster
    }

    pub(super) const fn cluster(&self) -> ClusterId {
        self.cluster
    }

    /// An answer of a replica of this cluster has come. The first one decides.
    pub(super) fn adopt(&mut self, cluster: ClusterId) {
        if self.cluster.is_none() {
            self.cluster = cluster;
        }
    }

    pub(super) const fn leader_changes(&self) -> u64 {
        self.leader_changes
    }

    /// The next random number.
    pub(super) fn draw(&mut self) -> u64 {
        self.rng.next_u64()
    }

    pub(super) fn add(&mut self, address: SocketAddr) {
        self.peers.add(address);
    }

    /// The replica that is taken for the leader.
    pub(super) fn leader(&self) -> Option<SocketAddr> {
        self.leader
            .target
            .map(|index| self.peers.get(index).address)
    }

    /// The established sessions.
    pub(super) fn sessions(&self) -> impl Iterator<Item = SessionId> + '_ {
        self.peers.sessions()
    }

    /// Starts every connection attempt that is due.
    pub(super) fn connect(&mut self, cx: &mut Cx<'_, R>) {
        self.peers.connect(cx, &mut self.rng);
    }

    /// When the next connection attempt is due.
    pub(super) fn next_connection(&self) -> Option<Instant> {
        self.peers.next_timeout()
    }

    /// Returns whether a connection attempt failed, perhaps the last that had hope.
    pub(super) fn on_event(&mut self, now: Instant, event: &Event<R>) -> bool {
        self.peers.on_event(now, event, &mut self.rng)
    }

    /// A message is under way to a replica.
    pub(super) fn on_sent(&mut self, peer: usize, now: Instant) {
        let peer = self.peers.get_mut(peer);
        if peer.outstanding == 0 {
            peer.silence.begin(now);
        }
        peer.outstanding += 1;
    }

    /// One of those has ended, with an answer or without one.
    pub(super) fn on_ended(&mut self, peer: usize) {
        let peer = self.peers.get_mut(peer);
        assert!(peer.outstanding > 0, "what ends was sent");
        peer.outstanding -= 1;
    }

    /// A replica of this cluster has answered.
    pub(super) fn on_heard(&mut self, peer: usize, now: Instant) {
        self.peers.get_mut(peer).silence.end(now);
    }

    /// A replica cannot serve this client: it belongs to another cluster.
    pub(super) fn on_foreign(&mut self, peer: usize, obstacle: Obstacle) {
        self.peers.get_mut(peer).obstacle = Some(obstacle);
        if self.leader.target == Some(peer) {
            self.leader.target = None;
        }
    }

    /// Why no replica can serve this client, if none is left to talk to.
    pub(super) fn all_foreign(&self) -> Option<Obstacle> {
        self.peers.all_foreign()
    }

    /// Why nothing can be sent, if that is so.
    pub(super) fn obstacle(&self) -> Obstacle {
        self.peers.obstacle()
    }

    /// The pause before asking once more, after `streak` failures.
    fn pause(&mut self, streak: u32) -> Duration {
        let longest = self.pauses.pause_max.as_nanos();
        let pause = self
            .pauses
            .pause_min
            .as_nanos()
            .saturating_mul(1 << streak.min(16))
            .min(longest)
            .max(2);
        Duration::from_nanos(pause / 2 + self.rng.below(pause / 2))
    }
}
