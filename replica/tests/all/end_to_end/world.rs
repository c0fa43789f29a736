//! Three replicas, a client endpoint, faulty rings between them, and a clock that the test moves.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use trine_client::{ClientConfig, ClientId, Clients, Finished, Mode, Submission};
use trine_kvstore::{Command, Position, Response};
use trine_protocol::endpoint_config;
use trine_protocol::message::{Incarnation, NodeId};
use trine_protocol::node_status::NodeStatus;
use trine_protocol::route::IsAt;
use trine_protocol::status::Role;
use trine_replica::{Node, Replica, ReplicaConfig};
use trine_transport::backend::{Direction, FaultHandle, Faults, Faulty, RingBackend, RingRoute};
use trine_transport::event_loop::EventLoop;
use trine_transport::time::{Duration, Instant};
use trine_transport::{App, Completion, Cx, Event, Holder, Reply, Request, SessionId};

use crate::support::{ManualClock, address, is_at, mesh, route_of};

/// Replicas of the group.
pub(crate) const REPLICAS: u16 = 3;
const STEP: Duration = Duration::from_micros(50);

type Wire = Faulty<RingBackend, ManualClock>;

/// A node whose sessions the test can end.
pub(crate) struct Tapped {
    pub(crate) node: Node<RingRoute>,
    served: Vec<SessionId>,
}

impl App<RingRoute> for Tapped {
    fn on_request(&mut self, cx: &mut Cx<'_, RingRoute>, request: Request<'_>) -> Reply {
        self.node.on_request(cx, request)
    }

    fn on_completion(&mut self, cx: &mut Cx<'_, RingRoute>, tag: u64, completion: Completion) {
        self.node.on_completion(cx, tag, completion);
    }

    fn on_event(&mut self, cx: &mut Cx<'_, RingRoute>, event: Event<RingRoute>) {
        if let Event::Accepted { session, .. } = event {
            self.served.push(session);
        }
        self.node.on_event(cx, event);
    }

    fn on_turn(&mut self, cx: &mut Cx<'_, RingRoute>) {
        self.node.on_turn(cx);
    }

    fn holder(&self, route: &RingRoute) -> Holder {
        self.node.holder(route)
    }

    fn next_timeout(&self) -> Option<Instant> {
        self.node.next_timeout()
    }
}

pub(crate) type NodeLoop = EventLoop<Wire, ManualClock, Tapped>;
type ClientLoop = EventLoop<Wire, ManualClock, Clients<RingRoute>>;

pub(crate) struct World {
    pub(crate) clock: ManualClock,
    seed: u64,
    config: ReplicaConfig,
    /// By node; none while the node's process is dead.
    pub(crate) nodes: Vec<Option<NodeLoop>>,
    /// A paused process keeps everything and gets no turn.
    pub(crate) paused: Vec<bool>,
    /// The wire of each node: its faults outlive the processes.
    wires: Vec<FaultHandle<RingRoute>>,
    incarnations: Vec<u64>,
    /// Whether the endpoint to spare counts as the first replica's address.
    pub(crate) spare_is_trusted: Arc<AtomicBool>,
    pub(crate) client: ClientLoop,
    pub(crate) finished: Vec<Finished>,
}

impl World {
    /// A group of three that has not begun yet.
    pub(crate) fn new(seed: u64) -> Self {
        Self::with_spare(seed).0
    }

    /// The same, and an endpoint of its ring for another user.
    pub(crate) fn with_spare(seed: u64) -> (Self, RingBackend) {
        Self::configured(seed, ReplicaConfig::default())
    }

    /// The same with replicas that are set up like this.
    pub(crate) fn configured(seed: u64, config: ReplicaConfig) -> (Self, RingBackend) {
        let clock = ManualClock::new();
        let mut world_mesh = mesh(REPLICAS + 2);
        let client_backend = world_mesh
            .pop()
            .expect("the mesh has an endpoint for the client");
        let spare = world_mesh.pop().expect("the mesh has an endpoint to spare");
        let mut world = Self {
            client: client_loop(client_backend, &clock, seed),
            clock,
            seed,
            config,
            nodes: (0..REPLICAS).map(|_| None).collect(),
            paused: vec![false; usize::from(REPLICAS)],
            wires: Vec::new(),
            incarnations: vec![0; usize::from(REPLICAS)],
            spare_is_trusted: Arc::default(),
            finished: Vec::new(),
        };
        for (node_id, backend) in world_mesh.drain(..usize::from(REPLICAS)).enumerate() {
            let node = world.boot(node_id, backend, node_id == 0);
            world.nodes[node_id] = Some(node);
        }
        (world, spare)
    }

    fn boot(&mut self, node_id: usize, backend: RingBackend, bootstrap: bool) -> NodeLoop {
        self.incarnations[node_id] += 1;
        let incarnation = Incarnation(100 * (node_id as u64 + 1) + self.incarnations[node_id]);
        let config = ReplicaConfig {
            bootstrap,
            ..self.config
        };
        let peers = (0..REPLICAS)
            .map(|node_id| (NodeId(u32::from(node_id)), address(node_id)))
            .collect();
        let wire = Faulty::new(backend, self.clock.clone(), self.seed ^ incarnation.0);
        self.wires
            .insert(node_id.min(self.wires.len()), wire.handle());
        let pool = trine_transport::backend::Backend::pool(&wire).clone();
        let now = trine_transport::time::Clock::now(&self.clock);
        let own = address(node_id as u16);
        let replica = Replica::new(
            config,
            incarnation,
            NodeId(node_id as u32),
            own,
            peers,
            pool,
            self.seed,
            now,
        )
        .expect("a sound configuration");
        let (spare_is_trusted, by_route) = (Arc::clone(&self.spare_is_trusted), is_at());
        let is_at: IsAt<RingRoute> = Box::new(move |route, known| {
            let trusted = spare_is_trusted.load(Ordering::Relaxed);
            by_route(route, known)
                || (trusted && *route == RingRoute(REPLICAS) && known == address(0))
        });
        let holder_of = |route: &RingRoute| Holder::Address(u64::from(route.0));
        let node =
            Node::new(replica, route_of(), is_at, self.seed).with_holders(Box::new(holder_of));
        let identity = node.identity();
        let tapped = Tapped {
            node,
            served: Vec::new(),
        };
        EventLoop::new(
            wire,
            self.clock.clone(),
            tapped,
            endpoint_config(),
            identity,
            self.seed ^ incarnation.0,
        )
        .expect("a sound configuration")
    }

    pub(crate) fn step(&mut self) {
        self.clock.advance(STEP);
        for (node, _) in self
            .nodes
            .iter_mut()
            .zip(&self.paused)
            .filter(|(_, paused)| !**paused)
        {
            if let Some(node) = node {
                node.turn().expect("rings do not fail");
            }
        }
        self.client.turn().expect("rings do not fail");
        while let Some(finished) = self.client.app_mut().poll_finished() {
            self.finished.push(finished);
        }
    }

    /// The client's thread does something else for a while: its endpoint answers nothing.
    pub(crate) fn idle_client(&mut self, span: Duration) {
        for _ in 0..span.as_nanos() / STEP.as_nanos() {
            self.clock.advance(STEP);
            for node in self.nodes.iter_mut().flatten() {
                node.turn().expect("rings do not fail");
            }
        }
    }

    pub(crate) fn run_for(&mut self, span: Duration) {
        for _ in 0..span.as_nanos() / STEP.as_nanos() {
            self.step();
        }
    }

    /// Runs until `done`; how long that took.
    pub(crate) fn run_until(
        &mut self,
        limit: Duration,
        what: &str,
        mut done: impl FnMut(&mut Self) -> bool,
    ) -> Duration {
        let start = self.client.now();
        while !done(self) {
            self.step();
            let waited = self.client.now().saturating_since(start);
            assert!(
                waited < limit,
                "waited {limit:?} for: {what}; {:#?}",
                self.roles()
            );
        }
        self.client.now().saturating_since(start)
    }

    pub(crate) fn roles(&mut self) -> Vec<Option<(Role, u64, Option<String>)>> {
        let now = self.client.now();
        let role = |node: &NodeLoop| {
            let status = node.app().node.replica().status(now);
            (status.role, status.term, status.not_serving)
        };
        self.nodes
            .iter()
            .map(|node| node.as_ref().map(role))
            .collect()
    }

    pub(crate) fn status(&mut self, node_id: usize) -> NodeStatus {
        let node = self.nodes[node_id].as_mut().expect("the node is alive");
        node.with(|tapped, cx| tapped.node.status(cx))
    }

    /// The node that leads in the highest term.
    pub(crate) fn leader(&mut self) -> Option<usize> {
        let roles = self.roles();
        let leading = |node_id: &usize| {
            let alive = !self.paused[*node_id];
            alive
                && roles[*node_id]
                    .as_ref()
                    .is_some_and(|(role, ..)| *role == Role::Leader)
        };
        (0..roles.len())
            .filter(leading)
            .max_by_key(|node_id| roles[*node_id].as_ref().map(|(_, term, _)| *term))
    }

    pub(crate) fn run_until_led(&mut self) -> usize {
        self.run_until(Duration::from_secs(5), "a leader", |world| {
            world.leader().is_some()
        });
        self.leader().expect("waited for it")
    }

    /// The process at `node_id` is gone at once, with its whole memory. Its endpoint is kept for the restart.
    pub(crate) fn kill(&mut self, node_id: usize) -> RingBackend {
        let node = self.nodes[node_id].take().expect("the node is alive");
        node.into_backend().into_inner()
    }

    /// A restart at `node_id`, without any memory.
    pub(crate) fn restart(&mut self, node_id: usize, backend: RingBackend) {
        let node = self.boot(node_id, backend, false);
        self.nodes[node_id] = Some(node);
    }

    pub(crate) fn set_faults(&mut self, faults: &str) {
        let faults: Faults = faults.parse().expect("fault rules");
        for wire in &self.wires {
            wire.set(Direction::Outbound, faults);
        }
        self.client
            .backend()
            .handle()
            .set(Direction::Outbound, faults);
    }

    /// Ends every session that `node_id` serves.
    pub(crate) fn reset_sessions(&mut self, node_id: usize) {
        let node = self.nodes[node_id].as_mut().expect("the node is alive");
        let served = std::mem::take(&mut node.app_mut().served);
        node.with(|_, cx| {
            served
                .into_iter()
                .for_each(|session| cx.disconnect(session))
        });
    }

    pub(crate) fn open(&mut self) -> ClientId {
        self.client.app_mut().open().expect("room for a client")
    }

    pub(crate) fn submit(&mut self, client: ClientId, mode: Mode, command: &Command<'_>, tag: u64) {
        let submission = Submission {
            mode,
            command,
            deadline: None,
            tag,
        };
        self.client
            .with(|clients, cx| clients.submit(cx.now(), client, submission))
            .expect("room for a command");
    }

    /// One command from start to end.
    pub(crate) fn call(&mut self, client: ClientId, mode: Mode, command: &Command<'_>) -> Finished {
        let before = self.finished.len();
        self.submit(client, mode, command, u64::MAX);
        self.run_until(Duration::from_secs(20), "an outcome", |world| {
            world.finished.len() > before
        });
        self.finished.pop().expect("waited for it")
    }

    pub(crate) fn put(&mut self, client: ClientId, key: &[u8], value: &[u8]) -> Position {
        let finished = self.call(client, Mode::Write, &Command::Put { key, value });
        let answer = finished.result.expect("the put succeeds");
        assert_eq!(
            answer.response(),
            Ok(Response::Written {
                version: answer.position()
            })
        );
        answer.position()
    }

    pub(crate) fn get(&mut self, client: ClientId, mode: Mode, key: &[u8]) -> Option<Vec<u8>> {
        let finished = self.call(client, mode, &Command::Get { key });
        let answer = finished.result.expect("the get succeeds");
        match answer.response().expect("checked by the client") {
            Response::Value { value, .. } => Some(value.to_vec()),
            Response::NotFound => None,
            other => panic!("a get was answered {other:?}"),
        }
    }
}

fn client_loop(backend: RingBackend, clock: &ManualClock, seed: u64) -> ClientLoop {
    let wire = Faulty::new(backend, clock.clone(), seed ^ 0xc11e);
    let config = ClientConfig::new((0..REPLICAS).map(address).collect());
    let pool = trine_transport::backend::Backend::pool(&wire).clone();
    let clients = Clients::new(config, route_of(), pool, seed).expect("a sound configuration");
    let identity = trine_transport::Identity {
        cluster: 0,
        incarnation: seed,
    };
    EventLoop::new(
        wire,
        clock.clone(),
        clients,
        endpoint_config(),
        identity,
        seed,
    )
    .expect("a sound configuration")
}
