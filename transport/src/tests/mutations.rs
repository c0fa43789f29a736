//! Sealed packets of living sessions, changed in all the ways that somebody on the path can: not one is taken in, and no
//! session notices.

use super::net::{Done, Net};
use crate::prng::Prng;
use crate::time::Duration;
use crate::{Config, SessionId};

const CLIENT: usize = 0;
const SERVER: usize = 1;
const OTHER: usize = 2;

/// An epoch has so many counters.
const EPOCH: u64 = 1 << 24;

type Sent = (u32, u32, Vec<u8>);

/// Packets of some sessions at one moment.
struct Traffic {
    net: Net,
    /// Packets that have come: none of them may be taken in again.
    past: Vec<Sent>,
    /// Packets that are under way: each is good, once and as it is.
    due: Vec<Sent>,
    /// Requests of the client under way: tag and bytes.
    asked: Vec<(u64, usize)>,
}

impl Traffic {
    /// Three sessions of two clients. One of them is at the end of an epoch: packets under way are of the next.
    fn new() -> Self {
        let mut net = Net::sealed(1, 3, &Config::default());
        let sessions = [net.connected(CLIENT, SERVER), net.connected(CLIENT, SERVER)];
        let other = net.connected(OTHER, SERVER);
        net.run_for(Duration::from_millis(5));
        for node in [CLIENT, SERVER] {
            net.nodes[node]
                .endpoint
                .skip_packets(sessions[0].index, EPOCH - 12);
        }
        net.recorded = Some(Vec::new());
        for tag in 0..8 {
            net.request(
                CLIENT,
                sessions[tag as usize % 2],
                tag,
                30 + 190 * tag as usize,
            );
            net.request(OTHER, other, 50 + tag, 32);
            net.run_for(Duration::from_millis(1));
        }
        let past = net.recorded.take().expect("recorded");
        let mut traffic = Self {
            net,
            past,
            due: Vec::new(),
            asked: Vec::new(),
        };
        for (tag, bytes) in [(100, 40), (101, 40), (102, 4_000), (103, 300)] {
            traffic.ask(sessions[tag as usize % 2], tag, bytes);
        }
        for (tag, bytes) in [(104, 40), (105, 40), (106, 800)] {
            traffic.ask(sessions[tag as usize % 2], tag, bytes);
        }
        traffic.send(CLIENT);
        // The first of them comes: its answers are under way, too.
        let (from, to, packet) = traffic.due.remove(0);
        traffic.net.inject(to as usize, from, &packet);
        traffic.past.push((from, to, packet));
        traffic.send(SERVER);
        traffic
    }

    fn ask(&mut self, session: SessionId, tag: u64, bytes: usize) {
        self.net.request(CLIENT, session, tag, bytes);
        self.asked.push((tag, bytes));
    }

    fn send(&mut self, node: usize) {
        let now = self.net.now;
        for (to, packet) in self.net.nodes[node].turn(now) {
            self.due.push((node as u32, to, packet));
        }
    }

    /// All that a packet that is taken in changes.
    fn state(&self) -> Vec<String> {
        let nodes = self.net.nodes.iter();
        nodes
            .map(|node| {
                let stats = node.endpoint.stats();
                let counts = (
                    stats.sealed_opened,
                    stats.sessions_client,
                    stats.sessions_server,
                );
                let app = (&node.app.executed, node.app.completions.len());
                let events = node.app.events.len();
                let sessions = node.endpoint.describe_sessions();
                format!("{counts:?} {app:?} {events} {sessions}")
            })
            .collect()
    }

    fn any<'a>(&'a self, prng: &mut Prng) -> &'a Sent {
        let all = self.past.len() + self.due.len();
        let at = prng.below(all as u64) as usize;
        self.past
            .get(at)
            .unwrap_or_else(|| &self.due[at - self.past.len()])
    }

    /// A packet, changed.
    fn mutant(&self, prng: &mut Prng) -> Sent {
        let (from, to, packet) = self.any(prng);
        let (mut from, mut to, mut packet) = (*from, *to, packet.clone());
        let place = |packet: &[u8], prng: &mut Prng| prng.below(packet.len() as u64) as usize;
        match prng.below(8) {
            0 => {
                let at = place(&packet, prng);
                packet[at] ^= 1 << prng.below(8);
            }
            1 => {
                for _ in 0..=prng.below(8) {
                    let at = place(&packet, prng);
                    packet[at] = prng.next_u64() as u8;
                }
            }
            2 => packet.truncate(place(&packet, prng)),
            3 => {
                // The head of one, and the tail of another.
                let (_, _, tail) = self.any(prng);
                let at = place(&packet, prng).min(tail.len() - 1).max(1);
                packet.truncate(at);
                packet.extend_from_slice(&tail[at..]);
            }
            4 => {
                // Another session's, or the same session's of the other end.
                packet[2] = prng.below(4) as u8;
                if prng.below(2) == 0 {
                    (from, to) = (to, from);
                }
            }
            5 => {
                // Another epoch, near or far, or another counter of it.
                let by = [1, EPOCH as u32, u32::MAX, 1 << prng.below(32)][prng.below(4) as usize];
                let counter = u32::from_le_bytes([packet[20], packet[21], packet[22], packet[23]]);
                packet[20..24].copy_from_slice(&counter.wrapping_add(by).to_le_bytes());
            }
            6 => {
                // Another type or other flags.
                packet[prng.below(2) as usize] ^= 1 << prng.below(8);
            }
            _ => packet.extend((0..=prng.below(40)).map(|_| prng.next_u64() as u8)),
        }
        (from, to, packet)
    }

    /// Whether it begins with a packet that is still good.
    fn is_good(&self, (from, to, packet): &Sent) -> bool {
        let mut due = self.due.iter();
        due.any(|good| (&good.0, &good.1) == (from, to) && packet.starts_with(&good.2))
    }

    /// Sends so many changed packets, and as many replayed ones as there are in between.
    fn attack(&mut self, count: u64) {
        let mut prng = Prng::new(4);
        let (now, before) = (self.net.now, self.state());
        for sent in 1..=count {
            let mutant = self.mutant(&mut prng);
            if !self.is_good(&mutant) {
                let (from, to, packet) = mutant;
                self.net.nodes[to as usize].receive_unchecked(now, from, &packet);
            }
            if sent % 1_000 == 0 || sent == count {
                for (from, to, packet) in &self.past {
                    self.net.nodes[*to as usize].receive_unchecked(now, *from, packet);
                }
                for node in &mut self.net.nodes {
                    // Refusals and proofs that a session is not known.
                    node.turn_unchecked(now);
                }
                assert_eq!(self.state(), before, "after {sent} changed packets");
            }
        }
    }

    /// The packets under way come, and all that was asked is answered.
    fn finish(&mut self) {
        for (from, to, packet) in std::mem::take(&mut self.due) {
            self.net.inject(to as usize, from, &packet);
        }
        let asked = std::mem::take(&mut self.asked);
        let has = |net: &Net, tag, bytes| {
            let done = Done::with(tag, bytes);
            net.nodes[CLIENT].app.completions.contains(&done)
        };
        let all = |net: &Net| asked.iter().all(|(tag, bytes)| has(net, *tag, *bytes));
        assert!(self.net.run_until(Duration::from_secs(5), all));
        for node in &self.net.nodes {
            node.endpoint.check_invariants();
            assert!(node.app.executed.values().all(|runs| *runs == 1));
        }
    }
}

#[test]
fn a_hundred_thousand_changed_packets_change_nothing() {
    let mut traffic = Traffic::new();
    traffic.attack(100_000);
    traffic.finish();
}

/// As many as the issue asks for; the sample above is for every run:
/// `cargo test --release -p trine-transport --lib ten_million -- --ignored --nocapture`.
#[test]
#[ignore = "takes a minute in a release build"]
fn ten_million_changed_packets_change_nothing() {
    let mut traffic = Traffic::new();
    traffic.attack(10_000_000);
    let drops = traffic
        .net
        .nodes
        .iter()
        .map(|node| node.endpoint.stats().drops);
    println!("{:#?}", drops.collect::<Vec<_>>());
    traffic.finish();
}
