//! The replicated state as chunks, and back.
//!
//! ```text
//! 0       1                 4              8
//! | part  | reserved (zero) | CRC-32C (u32)| content ...
//! ```
//! Parts come in this order: one head, the client sessions, the store. The checksum covers part and content.
//!
//! An image is taken while the replica pauses, and is held whole until the last transfer that needs it has ended.

use trine_kvstore::{Position, SnapshotReader, SnapshotStep, Store};

use crate::client_sessions::ClientSessions;
use crate::membership::MemberTable;
use crate::message::ClusterId;
use crate::state_machine::codec::{Cursor, StateError, put_bytes, put_u64};
use crate::state_machine::{Genesis, Parts, StateMachine};

/// Bytes in front of a chunk's content.
const CHUNK_HEADER_SIZE: usize = 8;

const PART_HEAD: u8 = 1;
const PART_SESSIONS: u8 = 2;
const PART_STORE: u8 = 3;

/// The state at one index.
#[derive(Debug)]
pub(crate) struct Image {
    pub(crate) index: u64,
    chunks: Vec<Vec<u8>>,
}

impl Image {
    /// The state as it is now. Fails only while the store still writes an earlier snapshot.
    pub(crate) fn take(state: &mut StateMachine, chunk_bytes: usize) -> Option<Self> {
        let mut chunks = vec![seal(PART_HEAD, &head(state))];
        chunks.extend(
            state
                .sessions()
                .to_pieces(chunk_bytes)
                .iter()
                .map(|piece| seal(PART_SESSIONS, piece)),
        );
        store_chunks(state.store_mut(), &mut chunks)?;
        Some(Self {
            index: state.applied_index(),
            chunks,
        })
    }

    pub(crate) fn len(&self) -> usize {
        self.chunks.len()
    }

    pub(crate) fn chunk(&self, number: usize) -> Option<&[u8]> {
        self.chunks.get(number).map(Vec::as_slice)
    }
}

fn head(state: &StateMachine) -> Vec<u8> {
    let mut out = Vec::new();
    put_u64(&mut out, state.cluster().0);
    put_bytes(&mut out, &state.genesis().encode());
    put_u64(&mut out, state.group_time_ns());
    put_u64(&mut out, state.applied_index());
    put_u64(&mut out, state.applied_position().as_u64());
    state.members().write(&mut out);
    out
}

fn store_chunks(store: &mut Store, chunks: &mut Vec<Vec<u8>>) -> Option<()> {
    while !store.clear_snapshot() {}
    store.begin_snapshot().ok()?;
    let mut chunk = Vec::new();
    loop {
        let step = store.snapshot_chunk(&mut chunk).ok()?;
        chunks.push(seal(PART_STORE, &chunk));
        if step == SnapshotStep::Last {
            return Some(());
        }
    }
}

fn seal(part: u8, content: &[u8]) -> Vec<u8> {
    let mut chunk = Vec::with_capacity(CHUNK_HEADER_SIZE + content.len());
    chunk.extend_from_slice(&[part, 0, 0, 0]);
    chunk.extend_from_slice(&checksum(part, content).to_le_bytes());
    chunk.extend_from_slice(content);
    chunk
}

fn checksum(part: u8, content: &[u8]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(&[part]), content)
}

struct Head {
    cluster: ClusterId,
    genesis: Genesis,
    group_time_ns: u64,
    applied_index: u64,
    applied_position: Position,
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
        let (part, content) = open(chunk)?;
        match (part, &mut self.started) {
            (PART_HEAD, started @ None) => {
                let head = read_head(content)?;
                let sessions = ClientSessions::new(head.genesis.session_limits);
                *started = Some((head, sessions));
                Ok(())
            }
            (PART_SESSIONS, Some((_, sessions))) if !self.in_store => sessions.add_piece(content),
            (PART_STORE, Some(_)) => {
                self.in_store = true;
                self.store
                    .push(content)
                    .map_err(|_| StateError { what: "the store" })
            }
            _ => Err(StateError {
                what: "the order of the snapshot's parts",
            }),
        }
    }

    /// The state, once the last chunk was pushed.
    pub(crate) fn finish(self) -> Result<StateMachine, StateError> {
        let (head, sessions) = self.started.ok_or(StateError {
            what: "the snapshot's head",
        })?;
        let store = self
            .store
            .finish()
            .map_err(|_| StateError { what: "the store" })?;
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

fn open(chunk: &[u8]) -> Result<(u8, &[u8]), StateError> {
    let mut cursor = Cursor::new(chunk, "a snapshot chunk");
    let part = cursor.u8()?;
    cursor.take(3)?;
    let expected = cursor.u32()?;
    let content = &chunk[CHUNK_HEADER_SIZE..];
    if checksum(part, content) == expected {
        Ok((part, content))
    } else {
        Err(cursor.error())
    }
}

fn read_head(content: &[u8]) -> Result<Head, StateError> {
    let mut cursor = Cursor::new(content, "the snapshot's head");
    let head = Head {
        cluster: ClusterId(cursor.u64()?),
        genesis: Genesis::decode(cursor.bytes()?)?,
        group_time_ns: cursor.u64()?,
        applied_index: cursor.u64()?,
        applied_position: Position::from_u64(cursor.u64()?),
        members: MemberTable::read(&mut cursor)?,
    };
    cursor.finish()?;
    Ok(head)
}
