//! How a member of disk mode handles a snapshot that comes in.

use raft::eraftpb::{Message, MessageType};
use trine_kvstore::command::STATE_VERSION;
use trine_kvstore::{Command, Position};
use trine_protocol::message::{
    ChunkAck, ChunkOutcome, ClientRequest, ClusterId, GroupId, Incarnation, Member, MemberRole,
    NodeId, Operation, PeerHeader, ReplyToken, SnapshotChunk,
};
use trine_transport::buf::{Pool, PoolConfig};
use trine_transport::time::{Duration, Instant};

use super::Group;
use crate::config::{ReplicaConfig, SNAPSHOT_BYTES_WAITING_MAX};
use crate::disk::Write;
use crate::halt::Halt;
use crate::outbox::Outbox;
use crate::output::Output;
use crate::snapshot_transfer::{Image, Piece, checksum};
use crate::state_machine::entry::EntryBuilder;
use crate::state_machine::{Genesis, StateMachine};

const CLUSTER: ClusterId = ClusterId(7);

/// The receiver, and the possible messages of its leader (11) and of another member (12).
struct Scene {
    group: Group,
    out: Outbox,
    now: Instant,
    next_token: u64,
    index: u64,
    pieces: Vec<Vec<u8>>,
}

impl Scene {
    /// With the snapshot of a state of so many bytes.
    fn new(bytes: usize) -> Self {
        let (config, now) = (ReplicaConfig::default(), Instant::ZERO);
        let members = [11, 12, 13].map(|id| Member {
            node_id: NodeId(id as u32 - 10),
            role: MemberRole::Voter,
            incarnation: Incarnation(id),
            address: ([127, 0, 0, 1], 7460 + id as u16).into(),
        });
        let mut state = StateMachine::new(CLUSTER, Genesis::new(&config, [1, 2]), &members, 1);
        fill(&mut state, bytes);
        let mut out = Outbox::new(Pool::new(PoolConfig::default()));
        let mut group = Group::joining(config, members[2], CLUSTER, 1, now);
        group.keep_on_disk(&mut out);
        let mut scene = Self {
            group,
            out,
            now,
            next_token: 1,
            index: state.applied_index(),
            pieces: pieces(&mut state),
        };
        scene.heartbeat(11, 2);
        scene
    }

    fn heartbeat(&mut self, from: u64, term: u64) {
        let mut message = Message {
            from,
            to: 13,
            term,
            ..Message::default()
        };
        message.set_msg_type(MessageType::MsgHeartbeat);
        let from = Incarnation(from);
        self.group
            .step(self.now, from, message, None, &mut self.out);
        self.group.on_turn(self.now, &mut self.out);
    }

    fn pass(&mut self, span: Duration) {
        let end = self.now + span;
        while self.now < end {
            self.now += ReplicaConfig::default().tick;
            self.heartbeat(11, 2);
        }
    }

    /// Sends chunk `number`, and tells its answer if it has one.
    fn chunk(&mut self, number: usize) -> Option<ChunkAck> {
        let token = ReplyToken(self.next_token);
        self.next_token += 1;
        let chunk = SnapshotChunk {
            header: PeerHeader {
                cluster: CLUSTER,
                group: GroupId(0),
                from: Incarnation(11),
                to: Incarnation(13),
                state_version: 0,
            },
            index: self.index,
            term: 2,
            transfer: 5,
            chunk: number as u32,
            last: number + 1 == self.pieces.len(),
            data: &self.pieces[number],
        };
        self.group.on_chunk(self.now, token, &chunk, &mut self.out);
        self.answer_to(token)
    }

    fn answer_to(&mut self, token: ReplyToken) -> Option<ChunkAck> {
        let mut found = None;
        while let Some(output) = self.out.pop() {
            match output {
                Output::Reply { token: to, bytes } if to == token && !bytes.is_empty() => {
                    found = Some(ChunkAck::decode(&bytes).unwrap());
                }
                _ => {}
            }
        }
        found
    }

    fn writes(&mut self) -> Vec<(u64, Write)> {
        std::iter::from_fn(|| self.out.pop_write()).collect()
    }
}

fn fill(state: &mut StateMachine, bytes: usize) {
    let mut apply = |operation, client, sequence: u64, command: &[u8]| {
        let mut builder = EntryBuilder::default();
        builder.push(&ClientRequest {
            timed: false,
            operation,
            group: GroupId(0),
            cluster: CLUSTER,
            client,
            sequence,
            lowest_awaited: sequence,
            session_number: 0,
            check: trine_protocol::message::NO_CHECK,
            for_user: None,
            command,
        });
        let index = state.applied_index() + 1;
        let entry = builder.finish(index);
        state.apply(index, &entry, |_, _| {}).unwrap();
    };
    apply(Operation::Register, 99, 0, &[]);
    let value = vec![1; 64 << 10];
    for sequence in 1..=(bytes / value.len()) as u64 {
        let mut command = Vec::new();
        let (key, value) = (&sequence.to_le_bytes()[..], &value[..]);
        Command::Put { key, value }.encode(&mut command);
        let client = Position::new(2, 0).as_u64();
        apply(Operation::Apply, client, sequence, &command);
    }
}

/// All chunks of a transfer.
fn pieces(state: &mut StateMachine) -> Vec<Vec<u8>> {
    let mut message = Message {
        from: 11,
        to: 13,
        term: 2,
        ..Message::default()
    };
    message.set_msg_type(MessageType::MsgSnapshot);
    let metadata = message.mut_snapshot().mut_metadata();
    (metadata.index, metadata.term) = (state.applied_index(), 2);
    metadata.mut_conf_state().voters = vec![11, 12, 13];
    let mut all = vec![prost::Message::encode_to_vec(&message)];
    let mut image = Image::begin(Instant::ZERO, state, 64 << 10).unwrap();
    loop {
        match image.piece(all.len() as u32 - 1, state.store_mut()) {
            Piece::Chunk(chunk, last) => {
                all.push(chunk.to_vec());
                if last {
                    return all;
                }
            }
            Piece::Pending => {}
            Piece::Gone => panic!("chunk {} is gone", all.len()),
        }
    }
}

fn bytes_of(writes: &[(u64, Write)]) -> usize {
    writes.iter().map(|(_, write)| write.len()).sum()
}

/// Each chunk was answered as soon as it was queued for the disk. If a snapshot came faster than the disk took it, the
/// difference lay in memory. The vote of the receiver, if it had one, was held back until all of that was written.
#[test]
fn a_snapshot_comes_in_no_faster_than_the_disk_takes_it() {
    let mut scene = Scene::new(3 * SNAPSHOT_BYTES_WAITING_MAX);
    scene.writes();
    let (mut next, mut waits) = (0, 0);
    while next < scene.pieces.len() - 1 {
        if let Some(ack) = scene.chunk(next) {
            next += 1;
            assert_eq!(
                (ack.outcome, ack.next_chunk as usize),
                (ChunkOutcome::Wanted, next)
            );
            continue;
        }
        // Retransmitted, as by a sender that got no answer: nothing more is queued for it.
        assert_eq!(scene.chunk(next), None);
        let held = ReplyToken(scene.next_token - 1);
        let queued = scene.writes();
        let bytes = bytes_of(&queued);
        let most = SNAPSHOT_BYTES_WAITING_MAX + (1 << 20);
        assert!(bytes <= most, "{bytes} bytes wait for the disk");
        let written = queued.last().unwrap().0;
        scene.group.on_written(scene.now, written, &mut scene.out);
        let ack = scene.answer_to(held).expect("the disk has got on");
        next += 1;
        assert_eq!(ack.next_chunk as usize, next);
        waits += 1;
    }
    assert!(waits >= 2, "{waits}");
    // The last one is answered when the state is in place, which takes the disk.
    assert_eq!(scene.chunk(next), None);
    let held = ReplyToken(scene.next_token - 1);
    let written = scene.writes().last().unwrap().0;
    scene.group.on_written(scene.now, written, &mut scene.out);
    let ack = scene.answer_to(held).expect("it is in place");
    assert_eq!(ack.outcome, ChunkOutcome::Installed);
    assert!(scene.group.has_state());
    // A sender that has missed that answer and starts over is told again: refused, it would start over for ever.
    let ack = scene.chunk(0).unwrap();
    assert_eq!(ack.outcome, ChunkOutcome::Installed);
}

/// A transfer ended when there was no leader, or when the receiver led. Leadership passed to a member whose log still
/// reached back to the receiver, without a tick in between, and nothing ever ended the half-received snapshot. Half a
/// state stayed in memory. Because of it this replica made no snapshot of its own any more, so its log filled the disk.
#[test]
fn half_a_snapshot_goes_when_another_leads_or_its_sender_is_silent() {
    let given_up = |scene: &mut Scene| {
        let writes = scene.writes();
        writes
            .iter()
            .any(|(_, write)| matches!(write, Write::SnapshotGivenUp { .. }))
    };
    let mut scene = Scene::new(1 << 20);
    assert!(scene.chunk(0).is_some() && scene.chunk(1).is_some());
    scene.pass(Duration::from_secs(60));
    assert!(scene.group.receiving.is_receiving() && !given_up(&mut scene));
    assert!(scene.chunk(2).is_some(), "it goes on after a while");
    scene.now += ReplicaConfig::default().tick;
    scene.heartbeat(12, 3);
    assert!(!scene.group.receiving.is_receiving() && given_up(&mut scene));

    let mut scene = Scene::new(1 << 20);
    assert!(scene.chunk(0).is_some() && scene.chunk(1).is_some());
    scene.pass(Duration::from_secs(120));
    assert!(!scene.group.receiving.is_receiving() && given_up(&mut scene));
}

/// A member that had missed the switch, and came back with the release before, was sent snapshots for ever and refused each one.
/// Nothing said that it is too old.
#[test]
fn a_snapshot_of_a_later_release_ends_its_receiver() {
    let mut scene = Scene::new(1 << 20);
    let head = &mut scene.pieces[1];
    // Nothing of it but the front looks as it does today.
    head.truncate(17);
    head[1] = STATE_VERSION + 1;
    let front = [head[0], head[1], head[2], head[3]];
    let crc = checksum(front, &head[8..]).to_le_bytes();
    head[4..8].copy_from_slice(&crc);
    assert_eq!(scene.chunk(0).unwrap().outcome, ChunkOutcome::Wanted);
    assert_eq!(scene.group.halted(), None);
    assert_eq!(scene.chunk(1).unwrap().outcome, ChunkOutcome::Refused);
    assert_eq!(scene.group.halted(), Some(&Halt::TooOld));
    // The group has another leader meanwhile.
    let mut late = Scene::new(1 << 20);
    late.pieces[1] = scene.pieces[1].clone();
    late.chunk(0);
    late.heartbeat(12, 3);
    assert_ne!(
        late.chunk(1).map(|ack| ack.outcome),
        Some(ChunkOutcome::Installed)
    );
    assert_eq!(late.group.halted(), None);
    let mut damaged = Scene::new(1 << 20);
    damaged.pieces[1][1] = STATE_VERSION + 1;
    damaged.chunk(0);
    assert_eq!(damaged.chunk(1).unwrap().outcome, ChunkOutcome::Refused);
    assert_eq!(damaged.group.halted(), None);
}
