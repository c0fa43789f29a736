//! The replicas: messages between them and with clients, and the files of a data directory.

use std::fmt::Debug;

use prost::Message as _;
use raft::eraftpb::{ConfState, Entry, Message, MessageType, Snapshot};
use trine_protocol::message::{
    AdminReply, AdminRequest, AppendFrame, BATCH_ITEMS_MAX, BackupReply, BackupRequest, BatchItems,
    BootstrapReply, BootstrapRequest, ChunkAck, ClientReply, ClientRequest, ClusterId, DecodeError,
    Encode, GroupId, JoinReply, JoinRequest, LeaderSecret, PeerHeader, RaftFrame, SnapshotChunk,
    StateReport, StatusReply, StatusRequest, WatchReply, WatchRequest, kind, stream_position,
};
use trine_replica_harness::{World, small};
use trine_transport::time::Duration;

/// A data directory whose files are cut out of the bytes.
pub fn directory(bytes: &[u8]) {
    trine_replica::disk::fuzz_open(bytes);
}

/// A backup file of the bytes, read in portions and restored. Every other input is the content of frames whose checksums
/// are right.
pub fn backup(bytes: &[u8]) {
    trine_replica::backup::fuzz_restore(bytes);
}

/// Every decoder over the same bytes. If one of them reads a value, it writes it, and the written
/// bytes read back the same.
pub fn messages(bytes: &[u8]) {
    macro_rules! survive {
        ($($message:ident),*) => {$(
            if let Ok(read) = $message::decode(bytes) {
                let written = read.encode_to_vec();
                same($message::decode(&written), read);
            }
        )*};
    }
    survive!(
        AdminReply,
        AdminRequest,
        AppendFrame,
        BackupReply,
        BackupRequest,
        BootstrapReply,
        BootstrapRequest,
        ChunkAck,
        ClientReply,
        ClientRequest,
        JoinReply,
        JoinRequest,
        LeaderSecret,
        RaftFrame,
        SnapshotChunk,
        StateReport,
        StatusReply,
        StatusRequest,
        WatchReply,
        WatchRequest
    );
    let _ = stream_position(bytes);
    if let Ok(items) = BatchItems::decode_replies(bytes) {
        assert!(items.count() <= BATCH_ITEMS_MAX);
    }
}

fn same<M: PartialEq + Debug>(again: Result<M, DecodeError>, read: M) {
    assert_eq!(again, Ok(read));
}

/// The longest input that is worth running.
const INPUT_BYTES_MAX: usize = 4 * 1024;
/// In front of each piece of the input: its receiver, its kind, and its length.
const HEAD: usize = 4;

/// An entry that the leader is said to have committed.
const ENTRY: u8 = 0x40;
/// A part of a snapshot, with a right checksum. The first byte says which part it is, and whether
/// it is the last one. A first part has the index of the snapshot between that byte and its
/// content.
const SNAPSHOT_PART: u8 = 0x80;

/// Three working replicas get the input piece by piece: as a message of whatever kind, as an entry,
/// as a part of a snapshot. Entries and parts come in the leader's name and with everything around
/// them right, so that they are read. A replica may stop, and say why; none may panic. Returns
/// them.
pub fn peers(bytes: &[u8]) -> World {
    let mut rest = &bytes[..bytes.len().min(INPUT_BYTES_MAX)];
    let mut world = World::serving(3, small(), 1);
    let mut transfer = Transfer::default();
    while let Some((head, behind)) = rest.split_first_chunk::<HEAD>() {
        let [to, what, low, high] = *head;
        let length = usize::from(u16::from_le_bytes([low, high])).min(behind.len());
        let (piece, behind) = behind.split_at(length);
        rest = behind;
        let to = 1 + u32::from(to % 3);
        match what {
            ENTRY => forge_entry(&mut world, to, piece),
            SNAPSHOT_PART => transfer.forge_part(&mut world, to, piece),
            kind => world.inject(to, kind, piece),
        }
        world.run_for(Duration::from_millis(3));
    }
    world.run_for(Duration::from_millis(300));
    world
}

/// From the leader to a follower; none if there is no leader, or it would be sent to itself.
fn header(world: &World, to: u32) -> Option<PeerHeader> {
    let leader = world.leader().filter(|&leader| leader != to)?;
    Some(PeerHeader {
        state_version: 0,
        cluster: ClusterId(world.replica(leader).discovery().cluster.0),
        group: GroupId(0),
        from: world.replica(leader).incarnation(),
        to: world.replica(to).incarnation(),
    })
}

fn message(world: &World, header: &PeerHeader, to: u32, kind: MessageType) -> Message {
    let term = world.status(to).term;
    Message {
        msg_type: kind as i32,
        from: header.from.0,
        to: header.to.0,
        term,
        log_term: term,
        ..Message::default()
    }
}

fn forge_entry(world: &mut World, to: u32, piece: &[u8]) {
    let Some(header) = header(world, to) else {
        return;
    };
    let (entry_type, data) = match piece.split_first() {
        Some((&first, data)) => (i32::from(first % 4), data),
        None => (0, piece),
    };
    let last = world.status(to).log.last_index;
    let mut message = message(world, &header, to, MessageType::MsgAppend);
    message.index = last;
    message.commit = last + 1;
    message.entries = vec![Entry {
        entry_type,
        term: message.term,
        index: last + 1,
        data: data.to_vec(),
        ..Entry::default()
    }];
    let frame = RaftFrame {
        header,
        message: &message.encode_to_vec(),
    };
    world.inject(to, kind::RAFT, &frame.encode_to_vec());
}

/// A snapshot that is being sent.
#[derive(Default)]
struct Transfer {
    /// Of the state behind this index; none before the first part.
    index: Option<u64>,
    /// Number of the next chunk.
    chunk: u32,
    count: u64,
}

impl Transfer {
    fn forge_part(&mut self, world: &mut World, to: u32, piece: &[u8]) {
        let Some(header) = header(world, to) else {
            return;
        };
        let Some((&first, mut content)) = piece.split_first() else {
            return;
        };
        if self.index.is_none()
            && let Some((index, behind)) = content.split_first_chunk()
        {
            (self.index, content) = (Some(u64::from_le_bytes(*index)), behind);
        }
        let index = self.index.unwrap_or_default();
        let mut message = message(world, &header, to, MessageType::MsgSnapshot);
        message.snapshot = Some(snapshot(world, index, message.term));
        let chunk = SnapshotChunk {
            header,
            index,
            term: message.term,
            transfer: self.count,
            chunk: self.chunk,
            last: false,
            data: &message.encode_to_vec(),
        };
        if self.chunk == 0 {
            world.inject(to, kind::SNAPSHOT, &chunk.encode_to_vec());
            self.chunk = 1;
        }
        let last = first & 0x80 != 0;
        let chunk = SnapshotChunk {
            chunk: self.chunk,
            last,
            data: &sealed(first & 0x7f, content),
            ..chunk
        };
        world.inject(to, kind::SNAPSHOT, &chunk.encode_to_vec());
        self.chunk += 1;
        if last {
            *self = Self {
                count: self.count + 1,
                ..Self::default()
            };
        }
    }
}

fn snapshot(world: &World, index: u64, term: u64) -> Snapshot {
    let lives = (1..=3).map(|node_id| world.replica(node_id).incarnation().0);
    let mut snapshot = Snapshot::default();
    let metadata = snapshot.mut_metadata();
    (metadata.index, metadata.term) = (index, term);
    metadata.conf_state = Some(ConfState {
        voters: lives.collect(),
        ..ConfState::default()
    });
    snapshot
}

/// A chunk as `snapshot_transfer/image.rs` describes it.
fn sealed(part: u8, content: &[u8]) -> Vec<u8> {
    let front = [part, 0, 0, 0];
    let checksum = crc32c::crc32c_append(crc32c::crc32c(&front), content);
    [&front, &checksum.to_le_bytes()[..], content].concat()
}
