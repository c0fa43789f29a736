//! Messages that are well formed and make no sense, in a member's name and to a group at work. Raft would panic on many
//! of them, so they have to be stopped in front of it. The damage that a liar can do to the data is not the subject
//! here.

use trine_replica_harness as harness;

use harness::client::Wish;
use harness::{World, small};
use proptest::prelude::*;
use prost::Message as _;
use raft::eraftpb::{ConfState, Entry, Message, Snapshot};
use trine_protocol::message::{
    AppendFrame, ClusterId, Encode, GroupId, Incarnation, PeerHeader, RaftFrame, SnapshotChunk,
    kind,
};
use trine_transport::time::Duration;

/// A number as a liar would choose it: near something that means something, or absurd.
#[derive(Clone, Copy, Debug)]
enum Number {
    /// This far above or below what is present.
    Near(i64),
    Absolute(u64),
}

impl Number {
    fn at(self, present: u64) -> u64 {
        match self {
            Self::Near(distance) => present.wrapping_add_signed(distance),
            Self::Absolute(value) => value,
        }
    }
}

fn number() -> impl Strategy<Value = Number> {
    prop_oneof![
        6 => (-3..4_i64).prop_map(Number::Near),
        2 => (-300..300_i64).prop_map(Number::Near),
        1 => (0..4_u64).prop_map(Number::Absolute),
        1 => prop::sample::select(vec![u64::MAX, u64::MAX - 1, 1 << 63, 1 << 57, 1 << 56, (1 << 56) - 1]).prop_map(Number::Absolute),
        1 => any::<u64>().prop_map(Number::Absolute),
    ]
}

#[derive(Clone, Debug)]
struct Lie {
    kind: i32,
    /// Which member it goes to, and which one it names as its sender (the fourth is not a member).
    to: u32,
    from: u32,
    honest_parties: bool,
    term: Number,
    log_term: Number,
    index: Number,
    commit: Number,
    commit_term: Number,
    reject: bool,
    reject_hint: Number,
    request_snapshot: u64,
    context: Vec<u8>,
    entries: Vec<LiedEntry>,
    snapshot: Option<LiedSnapshot>,
    as_append: bool,
    /// Milliseconds that pass afterwards.
    pause: u64,
}

#[derive(Clone, Debug)]
struct LiedEntry {
    kind: i32,
    term: Number,
    index: Number,
    data: Vec<u8>,
}

fn entry() -> impl Strategy<Value = LiedEntry> {
    let data = prop_oneof![
        3 => Just(Vec::new()),
        2 => Just(vec![1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]),
        // Changes of the configuration: enter a joint one, leave it, remove, add no member.
        1 => Just(vec![18, 4, 8, 1, 16, 5]),
        1 => Just(vec![8, 1]),
        1 => prop::collection::vec(any::<u8>(), 0..30).prop_map(|mut bytes| {
            // A newer version would stop the replica, and the test would end with it.
            bytes.iter_mut().take(2).for_each(|byte| *byte = 1);
            bytes
        }),
    ];
    let mostly_next = prop_oneof![8 => Just(Number::Near(0)), 1 => number()];
    (
        prop_oneof![6 => Just(0), 3 => Just(2), 1 => -1..5_i32],
        mostly_next.clone(),
        mostly_next,
        data,
    )
        .prop_map(|(kind, term, index, data)| LiedEntry {
            kind,
            term,
            index,
            data,
        })
}

/// Index, term, voters, learners, outgoing voters (as indices of replicas), leaves by itself.
type LiedSnapshot = (Number, Number, Vec<usize>, Vec<usize>, Vec<usize>, bool);

fn snapshot() -> impl Strategy<Value = Option<LiedSnapshot>> {
    let some = (
        number(),
        number(),
        prop::collection::vec(0..5_usize, 0..5),
        prop::collection::vec(0..5_usize, 0..3),
        prop::collection::vec(0..5_usize, 0..4),
        any::<bool>(),
    );
    prop::option::weighted(0.15, some)
}

fn lie() -> impl Strategy<Value = Lie> {
    let head = (
        prop_oneof![12 => 3..10_i32, 3 => 10..19_i32, 1 => -2..30_i32],
        1..4_u32,
        1..5_u32,
        prop::bool::weighted(0.95),
        prop_oneof![3 => (0..2_i64).prop_map(Number::Near), 1 => number()],
        number(),
        number(),
        number(),
    );
    let tail = (
        number(),
        any::<bool>(),
        number(),
        prop_oneof![9 => Just(0), 1 => any::<u64>()],
        prop_oneof![
            3 => Just(Vec::new()),
            1 => Just(b"CampaignTransfer".to_vec()),
            1 => (0..4_u64).prop_map(|context| context.to_le_bytes().to_vec()),
        ],
        prop::collection::vec(entry(), 0..5),
        snapshot(),
        any::<bool>(),
        prop_oneof![4 => Just(0), 2 => 0..3_u64, 1 => 0..200_u64],
    );
    (head, tail).prop_map(|(head, tail)| {
        let (kind, to, from, honest_parties, term, log_term, index, commit) = head;
        let (
            commit_term,
            reject,
            reject_hint,
            request_snapshot,
            context,
            entries,
            snapshot,
            as_append,
            pause,
        ) = tail;
        Lie {
            kind,
            to,
            from,
            honest_parties,
            term,
            log_term,
            index,
            commit,
            commit_term,
            reject,
            reject_hint,
            request_snapshot,
            context,
            entries,
            snapshot,
            as_append,
            pause,
        }
    })
}

struct Liar {
    cluster: ClusterId,
    /// The members' incarnations, and one that no member has.
    incarnations: Vec<u64>,
}

impl Liar {
    fn new(world: &World) -> Self {
        let discovery = world.replica(1).discovery();
        let mut incarnations: Vec<u64> = (1..=3)
            .map(|node_id| world.replica(node_id).incarnation().0)
            .collect();
        incarnations.push(0x1234_5678);
        incarnations.push(0);
        Self {
            cluster: discovery.cluster,
            incarnations,
        }
    }

    fn message(&self, world: &World, lie: &Lie) -> Message {
        let status = world.status(lie.to);
        let (term, last) = (status.term, status.log.last_index);
        let from = self.incarnations[lie.from as usize - 1];
        let message_term = lie.term.at(term);
        let index = lie.index.at(last);
        let mut entries = Vec::new();
        for (offset, lied) in lie.entries.iter().enumerate() {
            entries.push(Entry {
                entry_type: lied.kind,
                term: lied.term.at(message_term),
                index: lied.index.at(index.wrapping_add(1 + offset as u64)),
                data: lied.data.clone(),
                ..Entry::default()
            });
        }
        Message {
            msg_type: lie.kind,
            to: if lie.honest_parties {
                self.incarnations[lie.to as usize - 1]
            } else {
                77
            },
            from,
            term: message_term,
            log_term: lie.log_term.at(term),
            index,
            entries,
            commit: lie.commit.at(status.committed),
            commit_term: lie.commit_term.at(term),
            snapshot: self.snapshot(lie, last, term),
            request_snapshot: lie.request_snapshot,
            reject: lie.reject,
            reject_hint: lie.reject_hint.at(last),
            context: lie.context.clone(),
            ..Message::default()
        }
    }

    fn snapshot(&self, lie: &Lie, last: u64, term: u64) -> Option<Snapshot> {
        let (index, snapshot_term, voters, learners, outgoing, auto_leave) =
            lie.snapshot.as_ref()?;
        let incarnations = |node_ids: &Vec<usize>| {
            node_ids
                .iter()
                .map(|&node_id| self.incarnations[node_id])
                .collect()
        };
        let mut snapshot = Snapshot::default();
        let metadata = snapshot.mut_metadata();
        metadata.index = index.at(last);
        metadata.term = snapshot_term.at(term);
        metadata.conf_state = Some(ConfState {
            voters: incarnations(voters),
            learners: incarnations(learners),
            voters_outgoing: incarnations(outgoing),
            auto_leave: *auto_leave,
            ..ConfState::default()
        });
        Some(snapshot)
    }

    fn tell(&self, world: &mut World, lie: &Lie) {
        let message = self.message(world, lie).encode_to_vec();
        let header = PeerHeader {
            state_version: 0,
            cluster: self.cluster,
            group: GroupId(0),
            from: Incarnation(self.incarnations[lie.from as usize - 1]),
            to: Incarnation(self.incarnations[lie.to as usize - 1]),
        };
        if lie.snapshot.is_some() {
            self.tell_chunk(world, lie, header, &message);
        }
        if lie.as_append {
            let frame = AppendFrame {
                header,
                stream: 1,
                sequence: 0,
                message: &message,
            };
            world.inject(lie.to, kind::APPEND, &frame.encode_to_vec());
        } else {
            let frame = RaftFrame {
                header,
                message: &message,
            };
            world.inject(lie.to, kind::RAFT, &frame.encode_to_vec());
        }
    }

    /// The raft message as the first chunk of a snapshot, and something that is no state after it.
    fn tell_chunk(&self, world: &mut World, lie: &Lie, header: PeerHeader, message: &[u8]) {
        let metadata = Message::decode(message)
            .unwrap()
            .snapshot
            .unwrap()
            .metadata
            .unwrap();
        let chunk = SnapshotChunk {
            header,
            index: metadata.index,
            term: metadata.term,
            transfer: 5,
            chunk: 0,
            last: false,
            data: message,
        };
        world.inject(lie.to, kind::SNAPSHOT, &chunk.encode_to_vec());
        let rest = SnapshotChunk {
            chunk: 1,
            last: true,
            data: &lie.context,
            ..chunk
        };
        world.inject(lie.to, kind::SNAPSHOT, &rest.encode_to_vec());
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(), max_shrink_iters: 2000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn senseless_messages_never_panic_a_replica(seed in 0..1000_u64, lies in prop::collection::vec(lie(), 1..60)) {
        let mut world = World::serving(3, small(), seed);
        let client = world.registered_client(1);
        world.put(client, "k", "v");
        world.clients[client].patience = Duration::from_millis(5);
        let liar = Liar::new(&world);
        for (step, lie) in lies.iter().enumerate() {
            if step % 8 == 0 && world.clients[client].is_idle() {
                world.ask(client, Wish::Put("k".into(), step.to_string().into_bytes()));
            }
            liar.tell(&mut world, lie);
            world.run_for(Duration::from_millis(lie.pause));
        }
        world.run_for(Duration::from_millis(500));
    }

    #[test]
    fn arbitrary_bytes_never_panic_a_replica(requests in prop::collection::vec((0..9_u8, prop::collection::vec(any::<u8>(), 0..120)), 1..40)) {
        let mut world = World::serving(3, small(), 1);
        for (kind, mut bytes) in requests {
            // The version byte in front, or nearly everything would fail at the first check.
            bytes.insert(0, 1);
            world.inject(1, kind, &bytes);
        }
        world.run_for(Duration::from_millis(100));
        assert!(world.leader().is_some());
    }
}

/// `TRINE_PROPTEST_CASES` asks for more.
fn cases() -> u32 {
    std::env::var("TRINE_PROPTEST_CASES")
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or(150)
}

#[test]
fn frames_for_another_cluster_or_another_incarnation_are_counted_and_dropped() {
    let mut world = World::serving(3, small(), 1);
    let liar = Liar::new(&world);
    let before = world.status(2).counters.messages_foreign;
    let message = Message {
        msg_type: 8,
        from: liar.incarnations[0],
        to: liar.incarnations[1],
        term: 1000,
        ..Message::default()
    };
    let message = message.encode_to_vec();
    let honest = PeerHeader {
        state_version: 0,
        cluster: liar.cluster,
        group: GroupId(0),
        from: Incarnation(liar.incarnations[0]),
        to: Incarnation(liar.incarnations[1]),
    };
    for header in [
        PeerHeader {
            cluster: ClusterId(liar.cluster.0 ^ 1),
            ..honest
        },
        PeerHeader {
            to: Incarnation(4711),
            ..honest
        },
        PeerHeader {
            group: GroupId(1),
            ..honest
        },
    ] {
        world.inject(
            2,
            kind::RAFT,
            &RaftFrame {
                header,
                message: &message,
            }
            .encode_to_vec(),
        );
    }
    let status = world.status(2);
    assert_eq!(status.counters.messages_foreign, before + 3);
    assert!(status.term < 1000);
}
