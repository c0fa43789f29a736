//! The replicated state as chunks, and back.
//!
//! ```text
//! 0       1         2                 4              8
//! | part  | version | reserved (zero) | CRC-32C (u32)| content ...
//! ```
//! Parts come in this order: one head, the client sessions, the store. The checksum covers what stands in front of it, and the
//! content. The head's version is the state version in use, of the other parts it is zero: so a release can tell a state that is
//! too new for it from a damaged one, whatever the rest looks like.
//!
//! An image is the state between two entries, but it is written chunk by chunk while later entries are applied. The
//! store keeps overwritten values until the image has passed them. Chunks that every receiver has are dropped, so its
//! memory is that of the slowest transfer's distance. A receiver that comes late waits for the next image.

use std::collections::VecDeque;
use trine_kvstore::checksum::crc32c;

use trine_canary as canary;
use trine_kvstore::command::STATE_VERSION;
use trine_kvstore::{Position, RestoreError, SnapshotReader, SnapshotStep, Store};
use trine_protocol::message::ClusterId;
use trine_protocol::status::ReceivingStatus;
use trine_transport::time::Instant;

use crate::client_sessions::ClientSessions;
use crate::membership::MemberTable;
use crate::state_machine::codec::{Cursor, StateError, put_bytes, put_u64};
use crate::state_machine::{Genesis, Parts, StateMachine};

/// Bytes in front of a chunk's content.
const CHUNK_HEADER_SIZE: usize = 8;
/// Steps of the store's walk in one turn, before other work gets its turn.
const WALK_STEPS_MAX: usize = 4;

const PART_HEAD: u8 = 1;
const PART_SESSIONS: u8 = 2;
const PART_STORE: u8 = 3;

/// The state at one index, as far as it is written and still needed.
#[derive(Debug)]
pub(crate) struct Image {
    index: u64,
    /// When it was begun.
    begun: Instant,
    /// Number of the first chunk that is still held.
    first: u32,
    chunks: VecDeque<Vec<u8>>,
    /// Whether the last of `chunks` is the last of all.
    complete: bool,
}

/// An image's answer to a request for a chunk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Piece<'a> {
    /// The chunk, and whether it is the last one.
    Chunk(&'a [u8], bool),
    /// It is not written yet: ask again in the next turn.
    Pending,
    /// It was dropped, or the store has given the image up: the transfer has failed.
    Gone,
}

impl Image {
    /// Begins with the state as it is now. Fails only while the store still clears an earlier image away.
    pub(crate) fn begin(
        now: Instant,
        state: &mut StateMachine,
        piece_bytes: usize,
    ) -> Option<Self> {
        state.store_mut().clear_snapshot();
        state.store_mut().begin_snapshot().ok()?;
        let mut chunks = VecDeque::from([head_chunk(state, true)]);
        let sessions = state.sessions().to_pieces(piece_bytes);
        chunks.extend(sessions.iter().map(|piece| seal(PART_SESSIONS, 0, piece)));
        Some(Self::with_chunks(now, state, chunks))
    }

    /// The same without the client sessions: they are of no use in another group, and their numbers are secrets.
    pub(crate) fn begin_without_sessions(now: Instant, state: &mut StateMachine) -> Option<Self> {
        state.store_mut().clear_snapshot();
        state.store_mut().begin_snapshot().ok()?;
        let chunks = VecDeque::from([head_chunk(state, false)]);
        Some(Self::with_chunks(now, state, chunks))
    }

    fn with_chunks(now: Instant, state: &StateMachine, chunks: VecDeque<Vec<u8>>) -> Self {
        assert!(!chunks.is_empty(), "the head comes first");
        Self {
            index: state.applied_index(),
            begun: now,
            first: 0,
            chunks,
            complete: false,
        }
    }

    /// The last entry that the state holds.
    pub(crate) fn index(&self) -> u64 {
        self.index
    }

    /// When it was begun.
    pub(crate) fn begun(&self) -> Instant {
        self.begun
    }

    /// Lets the store forget about an image that is not complete.
    pub(crate) fn abandon(&self, store: &mut Store) {
        if !self.complete {
            store.abandon_snapshot();
        }
    }

    /// The number of chunks, once all are written.
    pub(crate) fn end(&self) -> Option<u32> {
        let count = self.first + u32::try_from(self.chunks.len()).unwrap_or(u32::MAX);
        self.complete.then_some(count)
    }

    /// Whether the store writes no further chunk of it, although there are some.
    pub(crate) fn is_given_up(&self, store: &Store) -> bool {
        !self.complete && !store.writes_snapshot()
    }

    /// Whether a transfer can still begin.
    pub(crate) fn is_whole(&self) -> bool {
        self.first == 0
    }

    /// Chunk `number`, written if it is the next one.
    pub(crate) fn piece(&mut self, number: u32, store: &mut Store) -> Piece<'_> {
        let Some(at) = number.checked_sub(self.first) else {
            return Piece::Gone;
        };
        let at = at as usize;
        for _ in 0..WALK_STEPS_MAX {
            if at < self.chunks.len() || self.complete {
                break;
            }
            if self.write_on(store).is_none() {
                return Piece::Gone;
            }
        }
        let last = self.complete && at + 1 == self.chunks.len();
        match self.chunks.get(at) {
            Some(chunk) => Piece::Chunk(chunk, last),
            None if self.complete => Piece::Gone,
            None => Piece::Pending,
        }
    }

    fn write_on(&mut self, store: &mut Store) -> Option<()> {
        assert!(!self.complete, "nothing follows the last chunk");
        let mut chunk = Vec::new();
        let step = store.snapshot_chunk(&mut chunk).ok()?;
        if step != SnapshotStep::Pending {
            self.chunks.push_back(seal(PART_STORE, 0, &chunk));
            self.complete = step == SnapshotStep::Last;
        }
        Some(())
    }

    /// Number of the first chunk that is not written yet.
    pub(crate) fn written(&self) -> u32 {
        self.first + self.chunks.len() as u32
    }

    /// Every receiver has the chunks below `number`.
    pub(crate) fn forget_below(&mut self, number: u32) {
        while self.first < number && self.chunks.pop_front().is_some() {
            self.first += 1;
        }
    }
}

fn head_chunk(state: &StateMachine, with_sessions: bool) -> Vec<u8> {
    let version = state.store().state_version();
    seal(PART_HEAD, version, &head(state, with_sessions))
}

fn head(state: &StateMachine, with_sessions: bool) -> Vec<u8> {
    let mut out = Vec::new();
    put_u64(&mut out, state.cluster().0);
    put_bytes(&mut out, &state.genesis().encode());
    put_u64(&mut out, state.group_time_ns());
    put_u64(&mut out, state.applied_index());
    put_u64(&mut out, state.applied_position().as_u64());
    let sessions = match with_sessions {
        true => session_count(state.sessions()),
        false => 0,
    };
    put_u64(&mut out, sessions);
    state.members().write(&mut out);
    out
}

fn seal(part: u8, version: u8, content: &[u8]) -> Vec<u8> {
    let mut chunk = Vec::with_capacity(CHUNK_HEADER_SIZE + content.len());
    chunk.extend_from_slice(&[part, version, 0, 0]);
    chunk.extend_from_slice(&checksum([part, version, 0, 0], content).to_le_bytes());
    chunk.extend_from_slice(content);
    chunk
}

pub(crate) fn checksum(front: [u8; 4], content: &[u8]) -> u32 {
    crc32c([&front, content])
}

fn session_count(sessions: &ClientSessions) -> u64 {
    sessions.open_count() + sessions.closed_count()
}

struct Head {
    cluster: ClusterId,
    genesis: Genesis,
    group_time_ns: u64,
    applied_index: u64,
    applied_position: Position,
    session_count: u64,
    members: MemberTable,
}

/// Puts an image together again, chunk by chunk.
#[derive(Default)]
pub(crate) struct ImageReader {
    /// Some from the first chunk on.
    started: Option<(Head, ClientSessions)>,
    store: SnapshotReader,
    in_store: bool,
}

impl ImageReader {
    /// Takes the next chunk.
    pub(crate) fn push(&mut self, chunk: &[u8]) -> Result<(), StateError> {
        let Chunk {
            part,
            version,
            content,
        } = open(chunk)?;
        match (part, &mut self.started) {
            (PART_HEAD, None) if version > STATE_VERSION => Err(StateError::newer(version)),
            (PART_HEAD, started @ None) => {
                let head = read_head(content)?;
                let sessions = ClientSessions::new(head.genesis.session_limits);
                *started = Some((head, sessions));
                Ok(())
            }
            (PART_SESSIONS, Some((_, sessions))) if !self.in_store => sessions.add_piece(content),
            (PART_STORE, Some(_)) => {
                self.in_store = true;
                self.store.push(content).map_err(|error| match error {
                    RestoreError::NewerStateVersion {
                        version: version @ 1..,
                    } => StateError::newer(version),
                    _ => StateError::of("the store"),
                })
            }
            _ => Err(StateError::of("the order of the snapshot's parts")),
        }
    }

    /// How much of the store is here; nothing before it has said how large it is.
    pub(crate) fn progress(&self) -> Option<ReceivingStatus> {
        let summary = self.store.summary()?;
        Some(ReceivingStatus {
            bytes: self.store.logical_bytes(),
            bytes_total: summary.logical_bytes,
        })
    }

    /// The state, once the last chunk was pushed.
    pub(crate) fn finish(self) -> Result<StateMachine, StateError> {
        let started = self.started;
        let (head, sessions) = started.ok_or(StateError::of("the snapshot's head"))?;
        if session_count(&sessions) != head.session_count {
            return Err(StateError::of("the number of sessions"));
        }
        let sessions = if canary::planted("snapshot without sessions") {
            ClientSessions::new(head.genesis.session_limits)
        } else {
            sessions
        };
        let store = self
            .store
            .finish()
            .map_err(|_| StateError::of("the store"))?;
        Ok(StateMachine::from_parts(Parts {
            cluster: head.cluster,
            genesis: head.genesis,
            store,
            sessions,
            members: head.members,
            group_time_ns: head.group_time_ns,
            applied_index: head.applied_index,
            applied_position: head.applied_position,
        }))
    }
}

/// A chunk as it was written.
struct Chunk<'a> {
    part: u8,
    version: u8,
    content: &'a [u8],
}

fn open(chunk: &[u8]) -> Result<Chunk<'_>, StateError> {
    let mut cursor = Cursor::new(chunk, "a snapshot chunk");
    let front: [u8; 4] = *cursor.chunk()?;
    let expected = cursor.u32()?;
    let content = &chunk[CHUNK_HEADER_SIZE..];
    if checksum(front, content) != expected {
        return Err(cursor.error());
    }
    let [part, version, ..] = front;
    Ok(Chunk {
        part,
        version,
        content,
    })
}

fn read_head(content: &[u8]) -> Result<Head, StateError> {
    let mut cursor = Cursor::new(content, "the snapshot's head");
    let head = Head {
        cluster: ClusterId(cursor.u64()?),
        genesis: Genesis::decode(cursor.bytes()?)?,
        group_time_ns: cursor.u64()?,
        applied_index: cursor.u64()?,
        applied_position: Position::from_u64(cursor.u64()?),
        session_count: cursor.u64()?,
        members: MemberTable::read(&mut cursor)?,
    };
    cursor.finish()?;
    Ok(head)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::ReplicaConfig;
    use crate::state_machine::entry::EntryBuilder;
    use trine_kvstore::Command;
    use trine_protocol::message::{ClientRequest, GroupId, Operation};

    fn apply(
        machine: &mut StateMachine,
        operation: Operation,
        client: u64,
        sequence: u64,
        command: &[u8],
    ) {
        let mut builder = EntryBuilder::default();
        builder.push(&ClientRequest {
            timed: false,
            operation,
            group: GroupId(0),
            cluster: ClusterId(7),
            client,
            sequence,
            lowest_awaited: sequence,
            session_number: 0,
            check: trine_protocol::message::NO_CHECK,
            for_user: None,
            command,
        });
        let index = machine.applied_index() + 1;
        machine
            .apply(index, &builder.finish(index), |_, _| {})
            .unwrap();
    }

    fn put(machine: &mut StateMachine, sequence: u64, key: u32) {
        let mut command = Vec::new();
        let value = vec![sequence as u8; 500];
        Command::Put {
            key: &key.to_le_bytes(),
            value: &value,
        }
        .encode(&mut command);
        apply(
            machine,
            Operation::Apply,
            Position::new(2, 0).as_u64(),
            sequence,
            &command,
        );
    }

    fn filled() -> StateMachine {
        let genesis = Genesis::new(&ReplicaConfig::default(), [1, 2]);
        let mut machine = StateMachine::new(ClusterId(7), genesis, &[], 1);
        apply(&mut machine, Operation::Register, 99, 0, &[]);
        (1..=400).for_each(|n| put(&mut machine, n, n as u32));
        machine
    }

    /// All chunks; between two of them `between` may change the state.
    fn chunks(
        machine: &mut StateMachine,
        mut between: impl FnMut(&mut StateMachine),
    ) -> Vec<Vec<u8>> {
        let mut image = Image::begin(Instant::ZERO, machine, 64).unwrap();
        let mut all = Vec::new();
        loop {
            let number = all.len() as u32;
            match image.piece(number, machine.store_mut()) {
                Piece::Chunk(chunk, last) => {
                    all.push(chunk.to_vec());
                    if last {
                        return all;
                    }
                    image.forget_below(number);
                }
                Piece::Pending => {}
                Piece::Gone => panic!("chunk {number} is gone"),
            }
            between(machine);
        }
    }

    fn rebuild(chunks: &[Vec<u8>]) -> Result<StateMachine, StateError> {
        let mut reader = ImageReader::default();
        for chunk in chunks {
            reader.push(chunk)?;
        }
        reader.finish()
    }

    #[test]
    fn an_image_holds_the_state_of_its_beginning_whatever_is_applied_meanwhile() {
        let mut machine = filled();
        let (hash, index) = (machine.store().state_hash(), machine.applied_index());
        let mut sequence = 400;
        let all = chunks(&mut machine, |machine| {
            for _ in 0..20 {
                sequence += 1;
                put(machine, sequence, sequence as u32 * 17 % 400);
            }
        });
        assert!(all.len() > 4, "{}", all.len());
        assert_ne!(machine.store().state_hash(), hash);
        let rebuilt = rebuild(&all).unwrap();
        assert_eq!(rebuilt.store().state_hash(), hash);
        assert_eq!(
            (rebuilt.applied_index(), rebuilt.applied_position().index()),
            (index, index)
        );
        assert_eq!(rebuilt.sessions().open_count(), 1);
    }

    #[test]
    fn a_damaged_missing_or_repeated_chunk_is_noticed() {
        let all = chunks(&mut filled(), |_| {});
        for damaged in 0..all.len() {
            for at in [0, 5, all[damaged].len() / 2, all[damaged].len() - 1] {
                let mut copy = all.clone();
                copy[damaged][at] ^= 0x10;
                assert!(rebuild(&copy).is_err(), "byte {at} of chunk {damaged}");
            }
            let mut copy = all.clone();
            copy.remove(damaged);
            assert!(rebuild(&copy).is_err(), "without chunk {damaged}");
            let mut copy = all.clone();
            copy.insert(damaged, all[damaged].clone());
            assert!(rebuild(&copy).is_err(), "chunk {damaged} twice");
        }
    }
}
