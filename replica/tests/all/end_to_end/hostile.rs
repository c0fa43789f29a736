//! A peer that keeps to the transport's rules and to no other: whatever it says, replicas go on serving.

use std::sync::atomic::Ordering;

use trine_client::Mode;
use trine_kvstore::Command;
use trine_protocol::endpoint_config;
use trine_protocol::message::{
    AppendFrame, BatchWriter, BootstrapRequest, ClientRequest, ClusterId, Encode, GroupId,
    Incarnation, JoinRequest, Members, NodeId, Operation, PeerHeader, RaftFrame, SnapshotChunk,
    StatusForm, StatusRequest, kind,
};
use trine_transport::backend::{RingBackend, RingRoute};
use trine_transport::event_loop::EventLoop;
use trine_transport::prng::{Prng, Ratio};
use trine_transport::time::Duration;
use trine_transport::{
    App, Completion, ConnectParams, Cx, Event, Identity, Reply, Request, SessionId,
};

use super::world::World;
use crate::support::{ManualClock, address};

/// Requests that the peer keeps in flight to each replica.
const IN_FLIGHT: usize = 16;

/// The peer's knowledge about the group it talks to: with it, its messages pass the first checks.
#[derive(Clone, Copy)]
struct Insight {
    cluster: ClusterId,
    incarnations: [Incarnation; 3],
}

/// Sends mutated messages of every kind.
struct Attacker {
    prng: Prng,
    insight: Insight,
    sessions: Vec<(usize, SessionId, usize)>,
    sent: u64,
    answered: u64,
}

impl Attacker {
    fn message(&mut self, target: usize) -> (u8, Vec<u8>) {
        let prng = &mut self.prng;
        let header = PeerHeader {
            state_version: 0,
            cluster: self.insight.cluster,
            group: GroupId(0),
            from: self.insight.incarnations[prng.below(3) as usize],
            to: self.insight.incarnations[target],
        };
        let mut body = vec![0; prng.below(120) as usize];
        body.iter_mut()
            .for_each(|byte| *byte = prng.next_u64() as u8);
        let (number, draw) = (prng.below(9), prng.next_u64());
        match number {
            0 => (
                kind::CLIENT,
                random_request(prng, self.insight.cluster, &body),
            ),
            1 => {
                let (stream, sequence) = (prng.below(3) as u32, prng.below(100));
                (
                    kind::APPEND,
                    AppendFrame {
                        header,
                        stream,
                        sequence,
                        message: &body,
                    }
                    .encode_to_vec(),
                )
            }
            // Crash-tolerant consensus does not withstand a member that lies with messages that make sense.
            2 => {
                let header = PeerHeader {
                    from: Incarnation(draw),
                    ..header
                };
                (
                    kind::RAFT,
                    RaftFrame {
                        header,
                        message: &raft_like(prng),
                    }
                    .encode_to_vec(),
                )
            }
            3 => {
                let chunk = prng.below(3) as u32;
                let piece = SnapshotChunk {
                    header,
                    index: draw,
                    term: 1,
                    transfer: 1,
                    chunk,
                    last: chunk == 2,
                    data: &body,
                };
                (kind::SNAPSHOT, piece.encode_to_vec())
            }
            4 => {
                let begin = BootstrapRequest::Begin {
                    node_id: NodeId(target as u32),
                    incarnation: self.insight.incarnations[target],
                    cluster: ClusterId(draw),
                    members: Members::default(),
                    first_entry: &body,
                };
                (kind::BOOTSTRAP, begin.encode_to_vec())
            }
            5 => {
                // A node id that does not exist: a well-formed join request for a real one is a legal membership
                // change.
                let node_id = NodeId(40 + (draw as u32 % 10));
                let join = JoinRequest {
                    state_version: 0,
                    member: false,
                    node_id,
                    incarnation: Incarnation(draw),
                    address: address(0),
                    cluster: header.cluster,
                };
                (kind::JOIN, join.encode_to_vec())
            }
            6 => (
                kind::STATUS,
                StatusRequest {
                    form: StatusForm::Json,
                }
                .encode_to_vec(),
            ),
            7 => {
                let items: Vec<Vec<u8>> = (0..prng.below(10))
                    .map(|_| random_request(prng, header.cluster, &body))
                    .collect();
                let mut bytes = vec![0; 8 + items.iter().map(|item| 4 + item.len()).sum::<usize>()];
                let mut writer = BatchWriter::new(&mut bytes);
                items.iter().for_each(|item| writer.push(item));
                let len = writer.finish();
                assert_eq!(len, bytes.len());
                (kind::CLIENT_BATCH, bytes)
            }
            _ => (draw as u8, body),
        }
    }

    /// Damages one message in two; never so that a join request names a real node id.
    fn damage(&mut self, kind_number: u8, bytes: &mut Vec<u8>) {
        let half = Ratio::percent(50);
        if kind_number == kind::JOIN || bytes.is_empty() || !self.prng.chance(half) {
            return;
        }
        for _ in 0..=self.prng.below(3) {
            let at = self.prng.below(bytes.len() as u64) as usize;
            bytes[at] ^= 1 << self.prng.below(8);
        }
        if self.prng.chance(half) {
            bytes.truncate(self.prng.below(bytes.len() as u64 + 1) as usize);
        }
    }
}

fn random_request(prng: &mut Prng, cluster: ClusterId, body: &[u8]) -> Vec<u8> {
    let operations = [
        Operation::Register,
        Operation::Apply,
        Operation::ApplyAndClose,
        Operation::ReadLinearizable,
        Operation::ReadStale,
    ];
    let operation = operations[prng.below(5) as usize];
    let (client, sequence, lowest_awaited) =
        (prng.below(1 << 22), prng.below(200), prng.next_u64());
    let request = ClientRequest {
        timed: false,
        operation,
        group: GroupId(0),
        cluster,
        client,
        sequence,
        lowest_awaited,
        session_number: prng.next_u64(),
        check: trine_protocol::message::NO_CHECK,
        for_user: None,
        command: body,
    };
    request.encode_to_vec()
}

/// Protobuf fields of a raft message with small random values: they decode, and make no sense.
fn raft_like(prng: &mut Prng) -> Vec<u8> {
    let mut bytes = Vec::new();
    for field in 1..=8_u64 {
        if prng.chance(Ratio::percent(66)) {
            bytes.push((field << 3) as u8);
            bytes.push(prng.below(20) as u8);
        }
    }
    bytes
}

impl App<RingRoute> for Attacker {
    fn on_request(&mut self, cx: &mut Cx<'_, RingRoute>, _request: Request<'_>) -> Reply {
        cx.alloc(0).map_or(Reply::Later, Reply::Now)
    }

    fn on_completion(&mut self, _cx: &mut Cx<'_, RingRoute>, tag: u64, _completion: Completion) {
        self.answered += 1;
        self.sessions[tag as usize].2 -= 1;
    }

    fn on_event(&mut self, _cx: &mut Cx<'_, RingRoute>, event: Event<RingRoute>) {
        if let Event::Connected { session, peer } = event {
            self.sessions.push((usize::from(peer.route.0), session, 0));
        }
    }

    fn on_turn(&mut self, cx: &mut Cx<'_, RingRoute>) {
        for index in 0..self.sessions.len() {
            while self.sessions[index].2 < IN_FLIGHT {
                let (target, session, _) = self.sessions[index];
                let (number, mut bytes) = self.message(target);
                self.damage(number, &mut bytes);
                let mut request = cx
                    .alloc(bytes.len())
                    .expect("a test never runs out of buffers");
                request.copy_from_slice(&bytes);
                let response = cx
                    .alloc(64 << 10)
                    .expect("a test never runs out of buffers");
                if cx
                    .enqueue_request(session, number, request, response, index as u64, None)
                    .is_err()
                {
                    break;
                }
                self.sent += 1;
                self.sessions[index].2 += 1;
            }
        }
    }
}

fn attacker(
    world: &mut World,
    backend: RingBackend,
    seed: u64,
) -> EventLoop<RingBackend, ManualClock, Attacker> {
    let statuses: Vec<_> = (0..3)
        .map(|node_id| world.status(node_id).replica)
        .collect();
    let number = |text: &str| u64::from_str_radix(text, 16).expect("status prints hexadecimal");
    let insight = Insight {
        cluster: ClusterId(number(
            statuses[0].cluster.as_deref().expect("it has begun"),
        )),
        incarnations: [0, 1, 2].map(|node_id| Incarnation(number(&statuses[node_id].incarnation))),
    };
    let app = Attacker {
        prng: Prng::new(seed),
        insight,
        sessions: Vec::new(),
        sent: 0,
        answered: 0,
    };
    let identity = Identity {
        cluster: 0,
        incarnation: 666,
    };
    let mut event_loop = EventLoop::new(
        backend,
        world.clock.clone(),
        app,
        endpoint_config(),
        identity,
        seed,
    )
    .expect("a sound configuration");
    event_loop.with(|_, cx| {
        for node_id in 0..3 {
            cx.connect(RingRoute(node_id), ConnectParams::default())
                .expect("room for a session");
        }
    });
    event_loop
}

#[test]
fn a_hundred_thousand_senseless_messages_change_nothing() {
    let (mut world, spare) = World::with_spare(21);
    // Without trust none of its messages would get past the first check.
    world.spare_is_trusted.store(true, Ordering::Relaxed);
    let client = world.open();
    world.put(client, b"bytes", b"");
    let mut attacker = attacker(&mut world, spare, 5);
    let mut submitted = 0;
    while attacker.app().answered < 100_000 {
        attacker.turn().expect("rings do not fail");
        if world.client.app().in_flight_of(client) < 8 {
            world.submit(
                client,
                Mode::Write,
                &Command::Append {
                    key: b"bytes",
                    value: b"x",
                },
                submitted,
            );
            submitted += 1;
        }
        world.step();
    }
    let waited = Duration::from_secs(20);
    world.run_until(waited, "all outcomes", |world| {
        world.finished.len() == submitted as usize
    });
    for finished in &world.finished {
        assert!(finished.result.is_ok(), "{finished:?}");
    }
    assert_eq!(
        world
            .get(client, Mode::Read, b"bytes")
            .map(|value| value.len()),
        Some(submitted as usize)
    );
    let stats = world.nodes[0].as_ref().expect("alive").app().node.stats();
    assert!(stats.unknown_kind > 0 && stats.unreadable > 0, "{stats:?}");
    assert_eq!(world.roles().into_iter().flatten().count(), 3);
}
