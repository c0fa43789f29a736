//! One replica as a sans-IO value: requests, peers' answers and time go in, messages and answers come out.

use std::collections::VecDeque;
use std::net::SocketAddr;

use trine_transport::buf::Pool;
use trine_transport::time::Instant;

use crate::config::{ConfigError, ReplicaConfig};
use crate::message::{ClusterId, Discovery, Incarnation, Members, PlaceId, ReplyToken, RoleCode};
use crate::output::Output;
use crate::status::{Counters, LogStatus, Role, SessionStatus, Status, StoreStatus};

/// One replica. Every call is followed by draining [`Replica::poll_output`].
pub struct Replica {
    config: ReplicaConfig,
    incarnation: Incarnation,
    place: PlaceId,
    address: SocketAddr,
    peers: Vec<(PlaceId, SocketAddr)>,
    pool: Pool,
    seed: u64,
    outputs: VecDeque<Output>,
    next_attempt: Instant,
    stopping: bool,
}

impl Replica {
    /// A replica that belongs to no group yet. `peers` names every place of the group, this one's own included.
    ///
    /// # Errors
    /// When the settings contradict themselves.
    #[expect(
        clippy::too_many_arguments,
        reason = "everything that is outside of the replica comes in here, once"
    )]
    pub fn new(
        config: ReplicaConfig,
        incarnation: Incarnation,
        place: PlaceId,
        address: SocketAddr,
        peers: Vec<(PlaceId, SocketAddr)>,
        pool: Pool,
        seed: u64,
        now: Instant,
    ) -> Result<Self, ConfigError> {
        config.validate()?;
        let outputs = VecDeque::new();
        Ok(Self {
            config,
            incarnation,
            place,
            address,
            peers,
            pool,
            seed,
            outputs,
            next_attempt: now,
            stopping: false,
        })
    }

    /// A request of kind CLIENT. It is answered through [`Output::Reply`], exactly once.
    pub fn on_client(&mut self, now: Instant, token: ReplyToken, request: &[u8]) {
        let _ = (now, token, request);
    }

    /// A request from a peer, of kind APPEND, RAFT, SNAPSHOT, BOOTSTRAP or JOIN. It is answered through
    /// [`Output::Reply`], exactly once.
    pub fn on_peer(&mut self, now: Instant, token: ReplyToken, kind: u8, request: &[u8]) {
        let _ = (now, token, kind, request);
    }

    /// The end of a request that was sent through [`Output::Send`]: its answer, or nothing if there was none.
    pub fn on_peer_reply(&mut self, now: Instant, tag: u64, answer: Option<&[u8]>) {
        let _ = (now, tag, answer);
    }

    /// The session to a peer has ended; its pending requests end through [`Replica::on_peer_reply`] one by one.
    pub fn on_peer_unreachable(&mut self, now: Instant, address: SocketAddr) {
        let _ = (now, address);
    }

    /// To be called once after each burst of the calls above, and whenever [`Replica::next_timeout`] has passed: packs
    /// what has arrived into one proposal, runs raft, applies what is committed, ticks if a tick is due.
    pub fn on_turn(&mut self, now: Instant) {
        let _ = (now, self.stopping);
    }

    /// The next thing to do, or nothing.
    pub fn poll_output(&mut self) -> Option<Output> {
        self.outputs.pop_front()
    }

    /// When [`Replica::on_turn`] has to be called next, if nothing else happens before.
    pub fn next_timeout(&self) -> Option<Instant> {
        Some(self.next_attempt)
    }

    /// Begins a graceful stop: a leader hands the lead over. Poll [`Replica::is_stopped`] after each turn.
    pub fn stop(&mut self, now: Instant) {
        let _ = now;
        self.stopping = true;
    }

    /// Whether the process may end: the lead is in other hands, or the time for that is over.
    pub fn is_stopped(&self, now: Instant) -> bool {
        let _ = now;
        self.stopping
    }

    /// The cluster that this replica belongs to, [`ClusterId::NONE`] while it belongs to none.
    pub fn cluster(&self) -> ClusterId {
        ClusterId::NONE
    }

    /// This life of the replica.
    pub fn incarnation(&self) -> Incarnation {
        self.incarnation
    }

    /// What a client needs to find the leader.
    pub fn discovery(&self) -> Discovery {
        Discovery {
            cluster: ClusterId::NONE,
            place: self.place,
            role: RoleCode::Unattached,
            incarnation: self.incarnation,
            term: 0,
            leader: None,
            members: Members::default(),
        }
    }

    /// Everything that there is to say about this replica.
    pub fn status(&self, now: Instant) -> Status {
        let _ = (
            now,
            &self.pool,
            self.seed,
            &self.peers,
            self.config.bootstrap,
        );
        Status {
            place: self.place.0,
            incarnation: self.incarnation.to_string(),
            cluster: None,
            address: self.address,
            role: Role::Unattached,
            not_serving: Some("belongs to no group yet".to_owned()),
            term: 0,
            leader: None,
            committed: 0,
            applied: 0,
            group_time_ns: 0,
            members: Vec::new(),
            change_in_progress: false,
            log: LogStatus::default(),
            sessions: SessionStatus::default(),
            store: StoreStatus::default(),
            counters: Counters::default(),
        }
    }
}
