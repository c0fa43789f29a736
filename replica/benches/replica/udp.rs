//! Three replicas and their clients on UDP loopback, each in a thread of its own.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Instant;

use trine_client::{BlockingClient, ClientConfig, Clients, Mode, Submission};
use trine_kvstore::Command;
use trine_protocol::endpoint_config;
use trine_protocol::message::{Incarnation, NodeId};
use trine_protocol::route::RouteOf;
use trine_replica::{Node, Replica, ReplicaConfig};
use trine_transport::backend::{Backend, MonotonicClock, UdpBackend, UdpConfig};
use trine_transport::event_loop::EventLoop;
use trine_transport::time::{Clock, Duration};
use trine_transport::{Config, Identity};

use crate::{KEY, VALUE};

const REPLICAS: usize = 3;

pub(crate) type Client = BlockingClient<UdpBackend, MonotonicClock>;

pub(crate) struct Cluster {
    /// Of every endpoint.
    config: Config,
    addresses: Vec<SocketAddr>,
    stopping: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
    /// What the kernel says of the threads' times.
    times: Arc<Mutex<Vec<PathBuf>>>,
}

impl Cluster {
    /// Replicas and clients that never sleep: the figures are those of the code, not of the scheduler's wake-up.
    pub(crate) fn start() -> Self {
        Self::start_with(Config {
            spin: Duration::from_secs(3600),
            ..endpoint_config()
        })
    }

    /// Replicas and clients that sleep as those of `trine` do: for rows with more threads than this machine has cores.
    pub(crate) fn start_sleeping() -> Self {
        Self::start_with(endpoint_config())
    }

    fn start_with(config: Config) -> Self {
        let backends: Vec<UdpBackend> = (0..REPLICAS).map(|_| bind()).collect();
        let addresses: Vec<SocketAddr> = backends.iter().map(UdpBackend::local_addr).collect();
        let stopping = Arc::new(AtomicBool::new(false));
        let times = Arc::new(Mutex::new(Vec::new()));
        let start = |(node_id, backend)| {
            let (addresses, stopping) = (addresses.clone(), Arc::clone(&stopping));
            let (config, times) = (config.clone(), Arc::clone(&times));
            std::thread::spawn(move || {
                let own = std::fs::canonicalize("/proc/thread-self").expect("Linux");
                times.lock().expect("no panic").push(own.join("schedstat"));
                serve(node_id, backend, config, &addresses, &stopping);
            })
        };
        let threads = backends.into_iter().enumerate().map(start).collect();
        Self {
            config,
            addresses,
            stopping,
            threads,
            times,
        }
    }

    /// The processor time that the replicas have taken, in nanoseconds.
    fn time_ns(&self) -> u64 {
        let times = self.times.lock().expect("no panic");
        let of = |path: &PathBuf| {
            let text = std::fs::read_to_string(path).expect("a thread that runs");
            let first = text.split(' ').next().expect("a number");
            first.parse::<u64>().expect("nanoseconds")
        };
        times.iter().map(of).sum()
    }

    pub(crate) fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    pub(crate) fn client(&self) -> Client {
        let config = ClientConfig::new(self.addresses.clone());
        BlockingClient::new(
            bind(),
            MonotonicClock,
            config,
            self.config.clone(),
            Box::new(Some),
            7,
        )
        .expect("a sound configuration")
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.stopping.store(true, Ordering::SeqCst);
        for thread in self.threads.drain(..) {
            drop(thread.join());
        }
    }
}

pub(crate) fn bind() -> UdpBackend {
    let any_port = SocketAddr::from(([127, 0, 0, 1], 0));
    UdpBackend::bind(any_port, &UdpConfig::default()).expect("a free port on loopback")
}

fn serve(
    index: usize,
    backend: UdpBackend,
    endpoint: Config,
    addresses: &[SocketAddr],
    stopping: &AtomicBool,
) {
    let peers = (0..).map(NodeId).zip(addresses.iter().copied()).collect();
    let config = ReplicaConfig {
        bootstrap: index == 0,
        ..ReplicaConfig::default()
    };
    let (pool, seed, now) = (
        backend.pool().clone(),
        index as u64 + 1,
        MonotonicClock.now(),
    );
    let node_id = NodeId(index as u32);
    let replica = Replica::new(
        config,
        Incarnation(seed),
        node_id,
        addresses[index],
        peers,
        pool,
        seed,
        now,
    );
    let node = Node::new(
        replica.expect("a sound configuration"),
        Box::new(Some) as RouteOf<SocketAddr>,
        Box::new(|route, address| *route == address),
        seed,
    );
    let identity = node.identity();
    let event_loop = EventLoop::new(backend, MonotonicClock, node, endpoint, identity, seed);
    let stopped = event_loop
        .expect("a sound configuration")
        .run_until(None, |_| stopping.load(Ordering::Relaxed));
    stopped.expect("the socket works");
}

/// Median time of one write, in microseconds.
pub(crate) fn put_latency_us(client: &mut Client, rounds: usize) -> f64 {
    let mut times: Vec<f64> = (0..rounds)
        .map(|round| {
            let mut key = [0; KEY];
            key[..8].copy_from_slice(&(round as u64).to_le_bytes());
            let start = Instant::now();
            client.put(&key, &[7; VALUE]).expect("the put succeeds");
            start.elapsed().as_secs_f64() * 1e6
        })
        .collect();
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}

/// The key with this number, of 100,000 that are written.
pub(crate) fn written_key(number: u64) -> [u8; KEY] {
    let mut key = [0; KEY];
    key[..8].copy_from_slice(&number.to_le_bytes());
    key
}

/// The time within which 99 of 100 writes are done, in microseconds. One is begun each millisecond.
pub(crate) fn put_p99_us(client: &mut Client, rounds: u64) -> f64 {
    let begun = Instant::now();
    let mut times: Vec<f64> = (0..rounds)
        .map(|round| {
            // From when it was due: a write that is late counts its lateness.
            let due = begun + std::time::Duration::from_millis(round);
            std::thread::sleep(due.saturating_duration_since(Instant::now()));
            let key = written_key(round % 100_000);
            client.put(&key, &[7; VALUE]).expect("the put succeeds");
            due.elapsed().as_secs_f64() * 1e6
        })
        .collect();
    times.sort_by(f64::total_cmp);
    times[times.len() * 99 / 100]
}

/// What writes with `clients` logical clients have shown, which keep 64 writes in flight each.
pub(crate) struct Written {
    /// Writes a second.
    pub(crate) rate: f64,
    /// Processor time of all replicas for each write, in nanoseconds.
    pub(crate) group_ns: f64,
}

/// Writes a second.
pub(crate) fn put_rate(cluster: &Cluster, clients: usize, span_ms: u64) -> f64 {
    put(cluster, clients, span_ms).rate
}

/// Writes for a while.
pub(crate) fn put(cluster: &Cluster, clients: usize, span_ms: u64) -> Written {
    const WINDOW: usize = 64;
    let backend = bind();
    let config = ClientConfig::new(cluster.addresses.clone());
    let mut app = Clients::new(config, Box::new(Some), backend.pool().clone(), 3)
        .expect("a sound configuration");
    let ids: Vec<_> = (0..clients)
        .map(|_| app.open().expect("room for a client"))
        .collect();
    let identity = Identity {
        cluster: 0,
        incarnation: 55,
    };
    let event_loop = EventLoop::new(
        backend,
        MonotonicClock,
        app,
        cluster.config.clone(),
        identity,
        3,
    );
    let mut event_loop = event_loop.expect("a sound configuration");
    let (mut written, mut finished, mut begun) = (0_u64, 0_u64, None);
    loop {
        for &id in &ids {
            while event_loop.app().in_flight_of(id) < WINDOW {
                let key = written_key(written.wrapping_mul(0x9e37_79b9_7f4a_7c15) % 100_000);
                written += 1;
                let command = Command::Put {
                    key: &key,
                    value: &[7; VALUE],
                };
                let submission = Submission {
                    mode: Mode::Write,
                    command: &command,
                    deadline: None,
                    tag: 0,
                };
                event_loop
                    .with(|app, cx| app.submit(cx.now(), id, submission))
                    .expect("room for a command");
            }
        }
        if !event_loop.turn().expect("the socket works") {
            std::thread::yield_now();
        }
        while let Some(ended) = event_loop.app_mut().poll_finished() {
            assert!(ended.result.is_ok(), "{:?}", ended.result);
            finished += 1;
        }
        // The first second of a group is its election, and the first writes warm it up.
        match begun {
            None if finished > 20_000 => {
                begun = Some((Instant::now(), finished, cluster.time_ns()));
            }
            Some((start, before, time)) if start.elapsed().as_millis() as u64 >= span_ms => {
                let written = (finished - before) as f64;
                return Written {
                    rate: written / start.elapsed().as_secs_f64(),
                    group_ns: (cluster.time_ns() - time) as f64 / written,
                };
            }
            _ => {}
        }
    }
}
