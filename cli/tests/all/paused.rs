//! A leader is paused for seconds (SIGSTOP) and continues (SIGCONT) as if nothing had happened. It must not answer
//! requests that waited in its socket from its earlier knowledge.

use std::net::SocketAddr;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::common::Cluster;
use trine_client::{BlockingClient, CallError, ClientConfig, Mode};
use trine_kvstore::Response;
use trine_protocol::endpoint_config;
use trine_transport::Config;
use trine_transport::backend::{MonotonicClock, UdpBackend, UdpConfig};

/// The duration of the pause: many election timeouts, and longer than any lease.
const PAUSE: Duration = Duration::from_secs(2);
/// How long a reader waits for the same replica.
const PATIENCE: Duration = Duration::from_secs(60);

/// A client that stays with the replica at `address`, however long it is silent.
struct Reader(BlockingClient<UdpBackend, MonotonicClock>);

impl Reader {
    fn at(address: SocketAddr, seed: u64) -> Self {
        let local = SocketAddr::from(([127, 0, 0, 1], 0));
        let backend = UdpBackend::bind(local, &UdpConfig::default()).expect("a socket");
        let patience = PATIENCE.into();
        let config = ClientConfig {
            operation_timeout: patience,
            attempt_timeout: patience,
            suspect_after: patience,
            ..ClientConfig::new(vec![address])
        };
        let transport = Config {
            failure_timeout: patience,
            ..endpoint_config()
        };
        let route_of = Box::new(Some);
        let clock = MonotonicClock;
        Self(
            BlockingClient::new(backend, clock, config, transport, route_of, seed)
                .expect("the settings are sound"),
        )
    }

    fn read(&mut self, mode: Mode) -> Result<Vec<u8>, CallError> {
        let answer = self
            .0
            .execute(mode, &trine_kvstore::Command::Get { key: b"key" })?;
        match answer.response().expect("it was decoded before") {
            Response::Value { value, .. } => Ok(value.to_vec()),
            other => panic!("the key is there: {other:?}"),
        }
    }

    /// Reads in a separate thread, because the answer arrives only when the replica continues.
    fn read_later(mut self, mode: Mode) -> JoinHandle<Result<Vec<u8>, CallError>> {
        std::thread::spawn(move || self.read(mode))
    }
}

/// Pauses the replica `node_id` and overwrites the key through the others. It also sends reads to the paused replica,
/// which finds them when it continues. None of them may return the overwritten value.
fn pause_and_read(cluster: &mut Cluster, node_id: usize, mode: Mode, round: usize) {
    let address = cluster.group.addresses()[node_id - 1];
    let (old, new) = (format!("old {round}"), format!("new {round}"));
    cluster.ok(&["put", "key", &old]);
    let seed = |n: u64| (round as u64) << 8 | n;
    let mut readers: Vec<Reader> = (1..=4).map(|n| Reader::at(address, seed(n))).collect();
    for reader in &mut readers {
        assert_eq!(reader.read(mode).expect("a session"), old.as_bytes());
    }
    let process = cluster.group.process(node_id).expect("it runs");
    process.pause().expect("SIGSTOP");
    let paused = Instant::now();
    cluster.ok(&["put", "key", &new, "--timeout", "30s"]);
    // From here on the old value is overwritten, so every read that begins now has to return the new one.
    let reads: Vec<_> = readers.into_iter().map(|r| r.read_later(mode)).collect();
    while paused.elapsed() < PAUSE {
        cluster.ok(&["put", "other", "value"]);
    }
    let process = cluster.group.process(node_id).expect("it runs");
    process.resume().expect("SIGCONT");
    let mut answered = 0;
    for read in reads {
        let read = read.join().expect("a reader does not panic");
        // A session that did not survive the pause gives an error, not an old value.
        if let Ok(value) = read {
            assert_eq!(
                String::from_utf8_lossy(&value),
                new,
                "{mode:?} in round {round}"
            );
            answered += 1;
        }
    }
    assert!(answered > 0, "the sessions outlive the pause");
    cluster.wait_for_voters(3);
}

fn the_leader_pauses(reads: &str) {
    let mut cluster = Cluster::start(&["--reads", reads]);
    for round in 0..2 {
        let leader = cluster.leader();
        pause_and_read(&mut cluster, leader, Mode::Read, round);
    }
}

#[test]
fn a_paused_leader_answers_no_linearizable_read_from_before() {
    the_leader_pauses("index");
}

#[test]
fn a_paused_leader_answers_no_read_under_its_lease_from_before() {
    the_leader_pauses("lease");
}

#[test]
fn a_paused_follower_answers_no_linearizable_read_from_before() {
    let mut cluster = Cluster::start(&[]);
    let follower = cluster.leader() % 3 + 1;
    pause_and_read(&mut cluster, follower, Mode::ReadAnywhere, 0);
}

#[test]
fn a_read_from_a_follower_is_as_new_as_one_from_the_leader() {
    let cluster = Cluster::start(&[]);
    for n in 0..10 {
        let value = n.to_string();
        cluster.ok(&["put", "key", &value]);
        for from in ["follower", "any", "leader"] {
            let read = cluster.ok(&["get", "key", "--from", from]);
            assert_eq!(read, value.as_bytes(), "from {from}");
        }
    }
    let reports = cluster.survey();
    let following = |report: &trine_client::Report| {
        let status = report.status().expect("every replica answers");
        status.counters.reads_following
    };
    // Ten clients prefer a follower, and ten have no preference. A new client takes the replica that it is connected to
    // first, so on a busy machine some of them end at the leader.
    assert!(reports.iter().map(following).sum::<u64>() >= 5);
    cluster
        .run(&["get", "key", "--stale", "--from", "any"])
        .expect_status(2);
}
