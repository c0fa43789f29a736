//! Three replicas in threads on UDP loopback, the blocking and the async client, the death of the leader: the real
//! backend and the real clock.

use std::future::Future;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{JoinHandle, Thread};

use trine_client::{
    AsyncClients, AsyncWatcher, BlockingClient, ClientConfig, Error, Mode, Obstacle, Probed,
    WatchConfig, WatchFrom, WatchTarget, WatchedChange, probe_status,
};
use trine_kvstore::{Command, Response};
use trine_protocol::endpoint_config;
use trine_protocol::message::{ClusterId, Incarnation, NodeId};
use trine_protocol::route::{IsAt, RouteOf, is_same_address};
use trine_protocol::status::Role;
use trine_replica::{Node, Replica, ReplicaConfig};
use trine_transport::backend::{Backend, MonotonicClock, UdpBackend, UdpConfig};
use trine_transport::event_loop::EventLoop;
use trine_transport::time::{Clock, Duration};

const REPLICAS: usize = 3;

/// A replica in a thread of its own.
struct Process {
    stopping: Arc<AtomicBool>,
    waker: trine_transport::backend::Waker,
    thread: Option<JoinHandle<()>>,
}

impl Process {
    fn start(node_id: usize, backend: UdpBackend, addresses: &[SocketAddr]) -> Self {
        let stopping = Arc::new(AtomicBool::new(false));
        let waker = backend.waker();
        let (flag, peers) = (Arc::clone(&stopping), addresses.to_vec());
        let thread = std::thread::spawn(move || run_replica(node_id, backend, &peers, &flag));
        Self {
            stopping,
            waker,
            thread: Some(thread),
        }
    }

    /// Ends it without a message to any peer, as `kill -9` would.
    fn kill(&mut self) {
        self.stopping.store(true, Ordering::SeqCst);
        self.waker.wake();
        if let Some(thread) = self.thread.take() {
            thread.join().expect("a replica never panics");
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}

fn run_replica(
    node_id: usize,
    backend: UdpBackend,
    addresses: &[SocketAddr],
    stopping: &AtomicBool,
) {
    let peers = (0..).map(NodeId).zip(addresses.iter().copied()).collect();
    let config = ReplicaConfig {
        bootstrap: node_id == 0,
        ..ReplicaConfig::default()
    };
    let incarnation = Incarnation(0xabc0 + node_id as u64);
    let pool = backend.pool().clone();
    let now = MonotonicClock.now();
    let seed = node_id as u64 + 1;
    let replica = Replica::new(
        config,
        incarnation,
        NodeId(node_id as u32),
        addresses[node_id],
        peers,
        pool,
        seed,
        now,
    )
    .expect("a sound configuration");
    let is_at: IsAt<SocketAddr> = Box::new(|route, address| is_same_address(*route, address));
    let node = Node::new(replica, route_of(), is_at, seed);
    let identity = node.identity();
    let mut event_loop = EventLoop::new(
        backend,
        MonotonicClock,
        node,
        endpoint_config(),
        identity,
        seed,
    )
    .expect("a sound configuration");
    event_loop
        .run_until(None, |_| stopping.load(Ordering::SeqCst))
        .expect("the socket works");
}

fn route_of() -> RouteOf<SocketAddr> {
    Box::new(Some)
}

fn bind() -> UdpBackend {
    let any_port = SocketAddr::from(([127, 0, 0, 1], 0));
    UdpBackend::bind(any_port, &UdpConfig::default()).expect("a free port on loopback")
}

struct Cluster {
    processes: Vec<Process>,
    addresses: Vec<SocketAddr>,
}

impl Cluster {
    fn start() -> Self {
        let backends: Vec<UdpBackend> = (0..REPLICAS).map(|_| bind()).collect();
        let addresses: Vec<SocketAddr> = backends.iter().map(UdpBackend::local_addr).collect();
        let start = |(node_id, backend)| Process::start(node_id, backend, &addresses);
        let processes = backends.into_iter().enumerate().map(start).collect();
        Self {
            processes,
            addresses,
        }
    }

    fn config(&self) -> ClientConfig {
        ClientConfig {
            operation_timeout: Duration::from_secs(20),
            ..ClientConfig::new(self.addresses.clone())
        }
    }

    fn blocking(&self, config: ClientConfig) -> BlockingClient<UdpBackend, MonotonicClock> {
        let seed = MonotonicClock.now().as_nanos();
        BlockingClient::new(
            bind(),
            MonotonicClock,
            config,
            endpoint_config(),
            route_of(),
            seed,
        )
        .expect("a sound configuration")
    }

    fn probe(&self) -> Vec<Probed> {
        static SEED: AtomicU64 = AtomicU64::new(77);
        let timeout = Duration::from_secs(2);
        probe_status(
            bind(),
            MonotonicClock,
            endpoint_config(),
            &route_of(),
            &self.addresses,
            timeout,
            // As of another process each time: an endpoint's sessions are told apart by what it draws from this.
            SEED.fetch_add(1, Ordering::Relaxed),
        )
        .expect("the socket works")
    }

    fn kill_leader(&mut self, leader: SocketAddr) {
        let node_id = self
            .addresses
            .iter()
            .position(|address| *address == leader)
            .expect("one of the replicas leads");
        self.processes[node_id].kill();
    }
}

#[test]
fn a_group_on_loopback_survives_its_leader() {
    let mut cluster = Cluster::start();
    let mut client = cluster.blocking(cluster.config());
    for n in 0..100_u32 {
        client
            .put(&n.to_le_bytes(), b"before")
            .expect("the put succeeds");
    }
    let answer = client.get(&7_u32.to_le_bytes()).expect("the get succeeds");
    assert!(matches!(
        answer.response(),
        Ok(Response::Value {
            value: b"before",
            ..
        })
    ));
    let answer = client
        .delete(&7_u32.to_le_bytes())
        .expect("the delete succeeds");
    assert_eq!(answer.response(), Ok(Response::Deleted { existed: true }));

    let leader = client.leader().expect("it has just answered");
    cluster.kill_leader(leader);
    client
        .put(b"after", b"the death")
        .expect("another one leads");
    assert_ne!(client.leader(), Some(leader));
    for n in 0..100_u32 {
        let answer = client.get(&n.to_le_bytes()).expect("the get succeeds");
        match answer.response() {
            Ok(Response::Value {
                value: b"before", ..
            }) => assert_ne!(n, 7),
            Ok(Response::NotFound) => assert_eq!(n, 7),
            other => panic!("key {n}: {other:?}"),
        }
    }
}

#[test]
fn the_status_tells_who_leads_and_who_is_gone() {
    let mut cluster = Cluster::start();
    let mut client = cluster.blocking(cluster.config());
    client.put(b"key", b"value").expect("the put succeeds");
    let statuses: Vec<_> = cluster
        .probe()
        .into_iter()
        .map(|probed| probed.status.expect("all are there"))
        .collect();
    let leaders = statuses
        .iter()
        .filter(|status| status.replica.role == Role::Leader)
        .count();
    assert_eq!(leaders, 1);
    let leader = statuses
        .iter()
        .find(|status| status.replica.role == Role::Leader)
        .expect("counted above");
    assert!(
        leader
            .links
            .iter()
            .filter(|link| link.class == "raft" && link.rtt_ns.is_some())
            .count()
            >= 2
    );
    assert_eq!(leader.replica.members.len(), REPLICAS);

    let address = leader.replica.address;
    cluster.kill_leader(address);
    let gone: Vec<_> = cluster
        .probe()
        .into_iter()
        .filter(|probed| probed.status.is_err())
        .collect();
    assert_eq!(gone.len(), 1);
    assert_eq!(gone[0].address, address);
}

#[test]
fn a_client_of_another_cluster_is_refused_by_name() {
    let cluster = Cluster::start();
    let mut client = cluster.blocking(cluster.config());
    client.put(b"key", b"value").expect("the put succeeds");
    let theirs = client.event_loop().app().cluster();
    let mut stranger = cluster.blocking(ClientConfig {
        cluster: ClusterId(theirs.0 ^ 1),
        ..cluster.config()
    });
    let error = stranger.get(b"key").expect_err("another cluster");
    let expected = Error::Refused {
        obstacle: Obstacle::WrongCluster { theirs },
    };
    assert_eq!(error, trine_client::CallError::Failed(expected));
}

#[test]
fn futures_run_on_any_executor_and_pipeline() {
    let mut cluster = Cluster::start();
    let clients = AsyncClients::start(
        bind(),
        MonotonicClock,
        cluster.config(),
        endpoint_config(),
        route_of(),
        5,
    )
    .expect("a sound configuration");
    let client = clients.client();
    let calls: Vec<_> = (0..300_u32)
        .map(|n| {
            client.execute(
                Mode::Write,
                &Command::Put {
                    key: &n.to_le_bytes(),
                    value: b"v",
                },
            )
        })
        .collect();
    let mut positions = std::collections::BTreeSet::new();
    for call in calls {
        positions.insert(block_on(call).expect("the put succeeds").position());
    }
    assert_eq!(positions.len(), 300, "each command has its own position");
    let answer = block_on(client.get(&299_u32.to_le_bytes())).expect("the get succeeds");
    assert!(matches!(
        answer.response(),
        Ok(Response::Value { value: b"v", .. })
    ));

    // Handles in several threads share the endpoint, and a death in between is only latency.
    let leader = cluster
        .probe()
        .into_iter()
        .flat_map(|probed| probed.status)
        .find(|s| s.replica.role == Role::Leader);
    let workers: Vec<_> = (0..4_u8)
        .map(|worker| {
            let client = clients.client();
            std::thread::spawn(move || {
                for n in 0..50_u8 {
                    block_on(client.put(&[worker, n], b"threaded")).expect("the put succeeds");
                }
            })
        })
        .collect();
    cluster.kill_leader(leader.expect("one leads").replica.address);
    for worker in workers {
        worker.join().expect("every put succeeded");
    }
    let answer = block_on(client.get(&[3, 49])).expect("the get succeeds");
    assert!(matches!(
        answer.response(),
        Ok(Response::Value {
            value: b"threaded",
            ..
        })
    ));
}

#[test]
fn a_stopped_client_thread_tells_those_who_wait() {
    // No replica is there: the call would wait for its deadline.
    let nobody = bind();
    let config = ClientConfig::new(vec![nobody.local_addr()]);
    let clients = AsyncClients::start(
        bind(),
        MonotonicClock,
        config,
        endpoint_config(),
        route_of(),
        5,
    )
    .expect("a sound configuration");
    let client = clients.client();
    let call = client.put(b"key", b"value");
    drop(clients);
    assert!(block_on(call).is_err());
    assert!(block_on(client.put(b"key", b"value")).is_err());
}

/// The async stream of changes: what was written is told, once and in order, also when the replica dies that serves it.
#[test]
fn an_async_watcher_goes_on_when_its_replica_dies() {
    let mut cluster = Cluster::start();
    let mut client = cluster.blocking(cluster.config());
    let first = client.put(b"w/0", b"0").expect("the put succeeds");
    let config = WatchConfig {
        addresses: cluster.addresses.clone(),
        targets: vec![(3, WatchTarget::Prefix(b"w/".to_vec()))],
        from: WatchFrom::Behind(first.position()),
        keys_only: false,
    };
    let (backend, seed) = (bind(), MonotonicClock.now().as_nanos());
    let mut watcher = AsyncWatcher::start(
        backend,
        MonotonicClock,
        endpoint_config(),
        config,
        Some,
        seed,
    )
    .expect("sound settings");
    let mut told = Vec::new();
    let mut tell = |watcher: &mut AsyncWatcher, count| {
        while told.len() < count {
            let batch = block_on(watcher.next_batch()).expect("the stream goes on");
            for event in batch.events {
                let WatchedChange::Written { key, value, .. } = event.change else {
                    panic!("nothing else was done");
                };
                told.push((event.targets, key, value));
            }
        }
        told.clone()
    };
    let written = |n: u32| {
        let (key, value) = (format!("w/{n}"), n.to_string());
        (vec![3], key.into_bytes(), Some(value.into_bytes()))
    };
    let mut write = |numbers: std::ops::Range<u32>| {
        for n in numbers {
            client
                .put(format!("w/{n}").as_bytes(), n.to_string().as_bytes())
                .expect("the put succeeds");
        }
    };
    write(1..30);
    assert_eq!(
        tell(&mut watcher, 29),
        (1..30).map(written).collect::<Vec<_>>()
    );
    assert_eq!(watcher.began(), Some(first.position()));
    let served_by = watcher.served_by().expect("it has just told something");
    assert_eq!(watcher.trouble(), None);
    cluster.kill_leader(served_by);
    write(30..60);
    assert_eq!(
        tell(&mut watcher, 59),
        (1..60).map(written).collect::<Vec<_>>()
    );
    assert_ne!(watcher.served_by(), Some(served_by));
}

/// The smallest executor: one future, one thread.
fn block_on<F: Future>(future: F) -> F::Output {
    struct Unpark(Thread);
    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let mut context = Context::from_waker(&waker);
    let mut future = pin!(future);
    loop {
        match future.as_mut().poll(&mut context) {
            Poll::Ready(output) => return output,
            Poll::Pending => std::thread::park(),
        }
    }
}
