//! A replica under a million hostile packets while clients work. Some are random. Others are recorded packets
//! that are cut, changed, spliced and replayed.

use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use crate::common::{Cluster, trine, wait_for};
use trine_transport::prng::Prng;

/// The number of hostile packets.
const PACKETS: u64 = 1_000_000;
/// The most memory growth of a replica: buffers for requests in flight, never hostile packets.
const GROWTH_KIB_MAX: u64 = 64 << 10;
/// Recorded packets that the mutations start from.
const RECORDED_MAX: usize = 512;
/// After so many packets the sender waits until the replicas have processed some. So the packets reach the code, not
/// only a full socket buffer.
const BATCH: u64 = 256;

#[test]
fn a_million_hostile_packets_harm_nobody() {
    let mut cluster = Cluster::start(&[]);
    let leader = cluster.leader();
    let target = cluster.group.addresses()[leader - 1];
    let recorded = record(&cluster, target);
    assert!(
        recorded.len() >= 8,
        "the relay recorded {} packets",
        recorded.len()
    );
    let pids = cluster.group.pids();
    let before: Vec<u64> = pids.iter().map(|pid| resident_kib(*pid)).collect();
    let received_before = received(&cluster);

    let client = Worker::start(cluster.group.peers());
    let mut prng = Prng::new(20);
    let socket = UdpSocket::bind("127.0.0.1:0").expect("a socket");
    let addresses = cluster.group.addresses().to_vec();
    let mut packet = Vec::new();
    for number in 0..PACKETS {
        make_hostile(&mut packet, &recorded, &mut prng);
        // Most packets go to the leader, which has the most to lose.
        let to = if prng.below(4) == 0 {
            addresses[prng.below(3) as usize]
        } else {
            target
        };
        // A full buffer drops it, as a network would.
        let _ = socket.send_to(&packet, to);
        if number % BATCH == 0 {
            drain(&socket);
        }
    }
    let worked = client.stop();
    assert!(
        worked > 5,
        "a client got only {worked} operations done meanwhile"
    );

    assert_eq!(cluster.group.pids(), pids, "a replica has died");
    assert!(
        cluster.group.take_exits().expect("status").is_empty(),
        "a replica has died"
    );
    let seen = received(&cluster) - received_before;
    assert!(
        seen > PACKETS / 10,
        "the replicas looked at {seen} packets only"
    );
    for (pid, before) in pids.iter().zip(before) {
        let now = resident_kib(*pid);
        let growth = now.saturating_sub(before);
        assert!(
            growth < GROWTH_KIB_MAX,
            "a replica grew by {growth} KiB to {now} KiB"
        );
    }
    cluster.wait_for_voters(3);
    cluster.ok(&["put", "after", "all"]);
    assert_eq!(cluster.ok(&["get", "after"]), b"all");
}

/// Puts a relay in front of `target` and records the packets between it and a client.
fn record(cluster: &Cluster, target: SocketAddr) -> Vec<Vec<u8>> {
    let relay = UdpSocket::bind("127.0.0.1:0").expect("a socket");
    relay
        .set_read_timeout(Some(Duration::from_millis(20)))
        .expect("a timeout");
    let own = relay.local_addr().expect("bound").to_string();
    let stop = Arc::new(AtomicBool::new(false));
    let stopped = Arc::clone(&stop);
    let thread = std::thread::spawn(move || {
        let (mut recorded, mut client) = (Vec::new(), None);
        let mut buffer = [0; 65_536];
        while !stopped.load(Ordering::SeqCst) {
            let Ok((length, from)) = relay.recv_from(&mut buffer) else {
                continue;
            };
            if recorded.len() < RECORDED_MAX {
                recorded.push(buffer[..length].to_vec());
            }
            let to = if from == target { client } else { Some(target) };
            if from != target {
                client = Some(from);
            }
            if let Some(to) = to {
                relay
                    .send_to(&buffer[..length], to)
                    .expect("loopback takes it");
            }
        }
        recorded
    });
    trine(&["put", "recorded", "value"], &own, b"").expect_status(0);
    trine(&["put", "large"], &own, &[b'x'; 20_000]).expect_status(0);
    trine(&["get", "large"], &own, b"").expect_status(0);
    trine(&["status"], &own, b"").expect_status(0);
    assert_eq!(cluster.ok(&["get", "recorded"]), b"value");
    stop.store(true, Ordering::SeqCst);
    thread.join().expect("the relay")
}

/// Fills `packet` with bytes that no honest peer sends, or sends twice.
fn make_hostile(packet: &mut Vec<u8>, recorded: &[Vec<u8>], prng: &mut Prng) {
    packet.clear();
    let one = &recorded[prng.below(recorded.len() as u64) as usize];
    match prng.below(8) {
        // Noise of any length.
        0 => {
            packet.resize(prng.below(1_473) as usize, 0);
            prng.fill(packet);
        }
        // Replayed unchanged, from another address.
        1 => packet.extend_from_slice(one),
        // Truncated.
        2 => packet.extend_from_slice(&one[..prng.below(one.len() as u64 + 1) as usize]),
        // Two packets spliced.
        3 => {
            let other = &recorded[prng.below(recorded.len() as u64) as usize];
            packet.extend_from_slice(&one[..prng.below(one.len() as u64 + 1) as usize]);
            packet.extend_from_slice(&other[prng.below(other.len() as u64 + 1) as usize..]);
        }
        // A valid header before noise.
        4 => {
            packet.extend_from_slice(&one[..one.len().min(24)]);
            let header = packet.len();
            packet.resize(header + prng.below(200) as usize, 0);
            prng.fill(&mut packet[header..]);
        }
        // A few bits, bytes or fields changed.
        _ => {
            packet.extend_from_slice(one);
            for _ in 0..=prng.below(4) {
                let at = prng.below(packet.len().max(1) as u64) as usize;
                let value = [0x00, 0xff, 0x80, 0x01, prng.next_u64() as u8][prng.below(5) as usize];
                if let Some(byte) = packet.get_mut(at) {
                    *byte = value;
                }
            }
        }
    }
    packet.truncate(65_507);
}

/// Reads the replicas' answers from the sender's own buffer, and yields the processor to them.
fn drain(socket: &UdpSocket) {
    socket.set_nonblocking(true).expect("non-blocking");
    let mut buffer = [0; 2_048];
    while socket.recv_from(&mut buffer).is_ok() {}
    std::thread::yield_now();
}

/// A client that writes and reads until it is told to stop; each read has to return the written value.
struct Worker {
    stop: Arc<AtomicBool>,
    done: Arc<AtomicU64>,
    thread: std::thread::JoinHandle<()>,
}

impl Worker {
    fn start(peers: String) -> Self {
        let (stop, done) = (
            Arc::new(AtomicBool::new(false)),
            Arc::new(AtomicU64::new(0)),
        );
        let (stopped, counted) = (Arc::clone(&stop), Arc::clone(&done));
        let thread = std::thread::spawn(move || {
            while !stopped.load(Ordering::SeqCst) {
                let number = counted.load(Ordering::SeqCst).to_string();
                trine(
                    &["put", "counter", &number, "--timeout", "30s"],
                    &peers,
                    b"",
                )
                .expect_status(0);
                let read =
                    trine(&["get", "counter", "--timeout", "30s"], &peers, b"").expect_status(0);
                assert_eq!(read.stdout, number.as_bytes());
                counted.fetch_add(1, Ordering::SeqCst);
            }
        });
        Self { stop, done, thread }
    }

    /// Stops the client; returns how often it wrote and read.
    fn stop(self) -> u64 {
        // The last packets may still be in the replicas' buffers. The replicas have to process them too.
        let so_far = self.done.load(Ordering::SeqCst);
        wait_for("another round of the client", || {
            (self.done.load(Ordering::SeqCst) > so_far || self.thread.is_finished()).then_some(())
        });
        self.stop.store(true, Ordering::SeqCst);
        self.thread.join().expect("the client failed");
        self.done.load(Ordering::SeqCst)
    }
}

/// Packets that the replicas' endpoints received, good and bad.
fn received(cluster: &Cluster) -> u64 {
    let of_one = |report: trine_client::Report| {
        let node = report.answer.expect("every replica answers");
        node.transport.packets_received + node.transport.packets_dropped
    };
    cluster.survey().into_iter().map(of_one).sum()
}

/// The memory that a process holds.
fn resident_kib(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("alive");
    let line = status
        .lines()
        .find(|line| line.starts_with("VmRSS:"))
        .expect("a line");
    line.split_whitespace()
        .nth(1)
        .and_then(|number| number.parse().ok())
        .expect("a number")
}
