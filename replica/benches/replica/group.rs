//! Three replicas and a client endpoint on rings, all driven by one thread on the real clock.

use std::net::SocketAddr;

use trine_client::{
    Answer, ClientConfig, ClientId, Clients, Mode, Submission, WatchConfig, WatchFrom, WatchTarget,
    Watcher,
};
use trine_kvstore::{Command, ExecuteMode, List, Position, Response};
use trine_protocol::endpoint_config;
use trine_protocol::message::{Incarnation, NodeId};
use trine_protocol::route::RouteOf;
use trine_protocol::status::Role;
use trine_replica::{Node, Replica, ReplicaConfig};
use trine_transport::Identity;
use trine_transport::backend::{Backend, MonotonicClock, RingBackend, RingConfig, RingRoute};
use trine_transport::event_loop::EventLoop;
use trine_transport::time::{Clock, Duration};

use crate::{KEY, VALUE};

const REPLICAS: u16 = 3;
/// Different keys that are written.
const KEYS: u64 = 100_000;
/// Keys of each watcher.
const KEYS_WATCHED: u64 = 100;

/// The function inside which a counted run counts.
pub(crate) const COUNTED: &str = "turn_counted";
/// The same for the client.
pub(crate) const COUNTED_CLIENT: &str = "turn_of_the_client";

type ClientLoop = EventLoop<RingBackend, MonotonicClock, Clients<RingRoute>>;
type NodeLoop = EventLoop<RingBackend, MonotonicClock, Node<RingRoute>>;

/// What is written.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Writes {
    /// Values of [`KEYS`] keys in turn: new ones at first.
    Mixed,
    /// Values of the first so many keys, again and again.
    Overwrite(u64),
    /// Keys that were never there.
    NewKeys,
    /// Deletions of keys in the order in which they were written.
    Deletions,
    /// Values of the first so many keys, [`PIPELINE`] of them in a command, as a Redis client's pipeline arrives.
    Pipelines(u64),
}

/// Operations of a command of [`Writes::Pipelines`].
pub(crate) const PIPELINE: u64 = 16;

pub(crate) struct Group {
    nodes: Vec<NodeLoop>,
    client: ClientLoop,
    id: ClientId,
    writes: Writes,
    written: u64,
    watchers: Vec<Watcher<RingBackend, MonotonicClock>>,
    /// Whether the turns of all replicas are counted, and not only those of the leader.
    counts_all: bool,
}

impl Group {
    /// From now on the turns of all replicas are counted.
    pub(crate) fn count_all(&mut self) {
        self.counts_all = true;
    }

    /// A group that has elected its leader, and a registered client.
    pub(crate) fn start() -> Self {
        Self::start_with(false, true)
    }

    /// The same, with an index of the keys in their order or without one, and with a history of changes or without one.
    pub(crate) fn start_with(ordered: bool, history: bool) -> Self {
        Self::start_among((ordered, history), 0)
    }

    /// A group with an index, and endpoints that watch so many keys each: those that [`Writes::Overwrite`] writes first. The
    /// turns of all replicas are counted. Begins when all watch.
    pub(crate) fn start_watched(watchers: u16) -> Self {
        let mut group = Self::start_among((true, true), watchers);
        group.counts_all = true;
        while group
            .watchers
            .iter()
            .any(|watcher| watcher.began().is_none() || watcher.served_by().is_none())
        {
            group.turn(None);
        }
        group
    }

    fn start_among(kind: (bool, bool), watchers: u16) -> Self {
        let mut mesh = RingBackend::mesh(REPLICAS + 1 + watchers, RingConfig::default());
        let watchers = (0..u64::from(watchers)).map(|number| {
            let backend = mesh.pop().expect("one for each watcher");
            watcher(backend, number)
        });
        let watchers = watchers.collect();
        let backend = mesh.pop().expect("one for the client");
        let nodes = mesh
            .into_iter()
            .zip(0..)
            .map(|(backend, node_id)| node_loop(backend, node_id, kind))
            .collect();
        let config = ClientConfig::new((0..REPLICAS).map(address).collect());
        let pool = backend.pool().clone();
        let mut clients = Clients::new(config, route_of(), pool, 1).expect("a sound configuration");
        let id = clients.open().expect("room for a client");
        let identity = Identity {
            cluster: 0,
            incarnation: 99,
        };
        let client = EventLoop::new(
            backend,
            MonotonicClock,
            clients,
            endpoint_config(),
            identity,
            1,
        );
        let client = client.expect("a sound configuration");
        let mut group = Self {
            nodes,
            client,
            id,
            writes: Writes::Mixed,
            written: 0,
            watchers,
            counts_all: false,
        };
        group.write(100, 1);
        group
    }

    /// From now on it writes these, and counts keys from the first one on again.
    pub(crate) fn go_on_with(&mut self, writes: Writes) {
        (self.writes, self.written) = (writes, 0);
    }

    /// Writes `count` times with `window` writes in flight.
    pub(crate) fn write(&mut self, count: u64, window: usize) {
        self.run(count, window, None);
    }

    /// Pins the present position.
    pub(crate) fn pin(&mut self) -> Position {
        match Response::decode(&self.execute(&Command::Pin)) {
            Ok(Response::Pinned { position }) => position,
            other => panic!("{other:?}"),
        }
    }

    /// Ends a pin, which must have lived until now.
    pub(crate) fn unpin(&mut self, position: Position) {
        let answer = self.execute(&Command::Unpin { position });
        assert_eq!(Response::decode(&answer), Ok(Response::Done));
    }

    fn execute(&mut self, command: &Command<'_>) -> Vec<u8> {
        let answer = self.answer(Mode::Write, command);
        let mut bytes = Vec::new();
        let response = answer.response().expect("it can be read");
        response.encode(&mut bytes);
        bytes
    }

    /// Does one command.
    pub(crate) fn answer(&mut self, mode: Mode, command: &Command<'_>) -> Answer {
        let submission = Submission {
            mode,
            command,
            deadline: None,
            tag: 0,
        };
        let id = self.id;
        self.client
            .with(|clients, cx| clients.submit(cx.now(), id, submission))
            .expect("room for a command");
        loop {
            self.turn(None);
            if let Some(ended) = self.client.app_mut().poll_finished() {
                return ended.result.expect("an answer");
            }
        }
    }

    /// The same; the leader's turns run inside the function whose instructions are counted, a burst of `window`
    /// commands in each.
    pub(crate) fn write_counted(&mut self, count: u64, window: usize) {
        let now = MonotonicClock.now();
        let leads = |node: &NodeLoop| node.app().replica().status(now).role == Role::Leader;
        let leader = self.nodes.iter().position(leads).expect("it was elected");
        self.run(count, window, Some(leader));
    }

    fn run(&mut self, count: u64, window: usize, counted: Option<usize>) {
        let (mut submitted, mut finished) = (0, 0);
        while finished < count {
            // Whole windows, so that the leader meets batches of this size.
            if submitted == finished {
                for _ in 0..window.min((count - submitted) as usize) {
                    self.submit();
                    submitted += 1;
                }
            }
            self.turn(counted);
            while let Some(ended) = self.client.app_mut().poll_finished() {
                assert!(ended.result.is_ok(), "{:?}", ended.result);
                finished += 1;
            }
        }
    }

    fn submit(&mut self) {
        let first = self.written;
        if let Writes::Pipelines(_) = self.writes {
            self.written += PIPELINE;
            let keys: Vec<[u8; KEY]> = (first..self.written).map(|n| self.key(n)).collect();
            let puts: Vec<Command<'_>> = keys.iter().map(|key| put(key)).collect();
            return self.submit_command(&Command::Execute {
                mode: ExecuteMode::Independent,
                conditions: List::default(),
                operations: List::from(puts.as_slice()),
            });
        }
        self.written += 1;
        let key = self.key(first);
        self.submit_command(&match self.writes {
            Writes::Deletions => Command::Delete { key: &key },
            _ => put(&key),
        });
    }

    /// The key of the write with this number.
    fn key(&self, number: u64) -> [u8; KEY] {
        let mixed = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        key_bytes(match self.writes {
            Writes::Mixed => mixed % KEYS,
            Writes::Overwrite(keys) | Writes::Pipelines(keys) => {
                (number % keys).wrapping_mul(0x9e37_79b9_7f4a_7c15)
            }
            Writes::NewKeys | Writes::Deletions => mixed,
        })
    }

    fn submit_command(&mut self, command: &Command<'_>) {
        let submission = Submission {
            mode: Mode::Write,
            command,
            deadline: None,
            tag: 0,
        };
        let id = self.id;
        self.client
            .with(|clients, cx| clients.submit(cx.now(), id, submission))
            .expect("room for a command");
    }

    fn turn(&mut self, counted: Option<usize>) {
        turn_of_the_client(&mut self.client);
        for (index, node) in self.nodes.iter_mut().enumerate() {
            if counted.is_some_and(|leader| self.counts_all || leader == index) {
                turn_counted(node)
            } else {
                turn_of_another(node)
            }
        }
        for watcher in &mut self.watchers {
            watcher.next(Duration::ZERO).expect("the watch goes on");
        }
    }
}

#[inline(never)]
fn turn_counted(node: &mut NodeLoop) {
    node.turn().expect("rings do not fail");
}

#[inline(never)]
fn turn_of_the_client(client: &mut ClientLoop) {
    client.turn().expect("rings do not fail");
}

fn put(key: &[u8]) -> Command<'_> {
    Command::Put {
        key,
        value: &[7; VALUE],
    }
}

/// The key that the write with this number makes, where all of them make new ones.
pub(crate) fn key_of(number: u64) -> [u8; KEY] {
    key_bytes(number.wrapping_mul(0x9e37_79b9_7f4a_7c15))
}

fn key_bytes(number: u64) -> [u8; KEY] {
    let mut key = [0; KEY];
    key[..8].copy_from_slice(&number.to_le_bytes());
    key
}

fn turn_of_another(node: &mut NodeLoop) {
    node.turn().expect("rings do not fail");
}

/// Each watches keys of its own, so many that they are told apart from all others by an index.
fn watcher(backend: RingBackend, number: u64) -> Watcher<RingBackend, MonotonicClock> {
    let mut addresses: Vec<SocketAddr> = (0..REPLICAS).map(address).collect();
    addresses.rotate_left(number as usize % usize::from(REPLICAS));
    let target = |id: u64| {
        let key = key_of(number * KEYS_WATCHED + id);
        (id as u32, WatchTarget::Key(key.to_vec()))
    };
    let config = WatchConfig {
        addresses,
        targets: (0..KEYS_WATCHED).map(target).collect(),
        from: WatchFrom::Now,
        keys_only: false,
    };
    let route_of = |address: SocketAddr| address.port().checked_sub(7000).map(RingRoute);
    Watcher::new(
        backend,
        MonotonicClock,
        endpoint_config(),
        config,
        route_of,
        number + 1_000,
    )
    .expect("a sound configuration")
}

fn node_loop(backend: RingBackend, number: u16, (ordered, history): (bool, bool)) -> NodeLoop {
    let peers = (0..REPLICAS)
        .map(|node_id| (NodeId(u32::from(node_id)), address(node_id)))
        .collect();
    let defaults = ReplicaConfig::default();
    let config = ReplicaConfig {
        bootstrap: number == 0,
        ordered,
        watch_history_bytes: if history {
            defaults.watch_history_bytes
        } else {
            0
        },
        ..defaults
    };
    let pool = backend.pool().clone();
    let seed = u64::from(number) + 1;
    let node_id = NodeId(u32::from(number));
    let now = MonotonicClock.now();
    let replica = Replica::new(
        config,
        Incarnation(seed),
        node_id,
        address(number),
        peers,
        pool,
        seed,
        now,
    );
    let node = Node::new(
        replica.expect("a sound configuration"),
        route_of(),
        Box::new(|route, known| address(route.0) == known),
        seed,
    );
    let identity = node.identity();
    EventLoop::new(
        backend,
        MonotonicClock,
        node,
        endpoint_config(),
        identity,
        seed,
    )
    .expect("a sound configuration")
}

fn address(node_id: u16) -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], 7000 + node_id))
}

fn route_of() -> RouteOf<RingRoute> {
    Box::new(|address| address.port().checked_sub(7000).map(RingRoute))
}
