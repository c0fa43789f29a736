//! Snapshot files: the replicated state up to one entry, in checksummed pieces.
//!
//! ```text
//! | kind (u8) | 3 x 0 | bytes (u32) | CRC32C | bytes ... |   first the head, then the pieces of the image, then the end
//! ```
//! The checksum covers kind, length, bytes, and the number of pieces in front of this one.

use raft::eraftpb::ConfState;
use trine_kvstore::checksum::crc32c;
use trine_protocol::message::ClusterId;

use super::error::{LostMemory, OpenError};
use super::reading::Reading;
use super::segment::FORMAT;
use super::{Disk, DiskError};
use crate::snapshot_transfer::ImageReader;
use crate::state_machine::StateMachine;
use crate::state_machine::codec::{Cursor, StateError, put_u32, put_u64};

const PREFIX: &str = "snapshot-";
const SUFFIX: &str = ".image";
const MAGIC: &[u8; 8] = b"trinesnp";
const PIECE_HEADER: usize = 12;
const HEAD: u8 = 1;
const PIECE: u8 = 2;
const END: u8 = 3;
/// No piece is longer; a greater length is damage.
const PIECE_BYTES_MAX: usize = 64 << 20;

/// The name of the snapshot up to `index`.
pub(crate) fn name(index: u64) -> String {
    format!("{PREFIX}{index:016x}{SUFFIX}")
}

/// The index in a snapshot's name.
pub(crate) fn index(name: &str) -> Option<u64> {
    let digits = name.strip_prefix(PREFIX)?.strip_suffix(SUFFIX)?;
    // Nothing but what `name` writes: no sign, no capitals.
    let index = u64::from_str_radix(digits, 16).ok()?;
    (self::name(index) == name).then_some(index)
}

/// Identifies the state that a snapshot is of.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct SnapshotHead {
    pub(crate) cluster: ClusterId,
    pub(crate) index: u64,
    pub(crate) term: u64,
    pub(crate) conf: ConfState,
}

/// The first piece.
pub(crate) fn begin_piece(head: &SnapshotHead) -> Vec<u8> {
    let mut body = MAGIC.to_vec();
    body.extend_from_slice(&FORMAT.to_le_bytes());
    body.extend_from_slice(&[0; 6]);
    put_u64(&mut body, head.cluster.0);
    put_u64(&mut body, head.index);
    put_u64(&mut body, head.term);
    let conf = &head.conf;
    let lists = [
        &conf.voters,
        &conf.learners,
        &conf.voters_outgoing,
        &conf.learners_next,
    ];
    for list in lists {
        put_u32(&mut body, list.len() as u32);
        list.iter().for_each(|&id| put_u64(&mut body, id));
    }
    body.push(u8::from(conf.auto_leave));
    seal(HEAD, 0, &body)
}

/// Piece `number`, from one.
pub(crate) fn middle_piece(number: u32, content: &[u8]) -> Vec<u8> {
    seal(PIECE, number, content)
}

/// The last piece; `number` pieces precede it.
pub(crate) fn end_piece(number: u32) -> Vec<u8> {
    seal(END, number, &[])
}

fn seal(kind: u8, number: u32, content: &[u8]) -> Vec<u8> {
    assert!(
        content.len() <= PIECE_BYTES_MAX,
        "a reader takes no longer piece"
    );
    let mut out = Vec::with_capacity(PIECE_HEADER + content.len());
    out.extend_from_slice(&[kind, 0, 0, 0]);
    put_u32(&mut out, content.len() as u32);
    let crc = checksum(&out[..8], number, content);
    put_u32(&mut out, crc);
    out.extend_from_slice(content);
    out
}

fn checksum(head: &[u8], number: u32, content: &[u8]) -> u32 {
    crc32c([head, &number.to_le_bytes(), content])
}

/// Reads a whole snapshot.
///
/// # Errors
/// It is damaged, of a newer format, or cannot be read to its end.
pub(super) fn load(
    disk: &mut impl Disk,
    file: &str,
    reading: &mut Reading,
) -> Result<Loaded, OpenError> {
    let mut reader = Reader {
        size: disk.size(file)?,
        file,
        offset: 0,
        number: 0,
    };
    let Some((HEAD, body)) = reader.next(disk)? else {
        return Err(reader.lost().into());
    };
    let head = read_head(&body, file)?;
    let mut image = ImageReader::default();
    let mut told = 0;
    loop {
        let next = reader.next(disk)?;
        reading.on_read(disk, reader.offset - told)?;
        told = reader.offset;
        match next {
            Some((PIECE, chunk)) => image
                .push(&chunk)
                .map_err(|error| OpenError::of_state(error, file, reader.lost()))?,
            Some((END, body)) if body.is_empty() && reader.offset == reader.size => break,
            _ => return Err(reader.lost().into()),
        }
    }
    let state = image.finish().map_err(|_| reader.lost())?;
    if state.applied_index() != head.index || state.cluster() != head.cluster {
        return Err(LostMemory::new(file, "its state is not the one that its head names").into());
    }
    Ok(Loaded { head, state })
}

/// A snapshot that was read.
pub(crate) struct Loaded {
    pub(crate) head: SnapshotHead,
    pub(crate) state: StateMachine,
}

struct Reader<'a> {
    file: &'a str,
    size: u64,
    offset: u64,
    number: u32,
}

impl Reader<'_> {
    fn lost(&self) -> LostMemory {
        LostMemory::new(self.file, format!("damaged before byte {}", self.offset))
    }

    /// The next piece; nothing if it is not whole.
    fn next(&mut self, disk: &mut impl Disk) -> Result<Option<(u8, Vec<u8>)>, DiskError> {
        let mut head = [0; PIECE_HEADER];
        if self.size - self.offset < PIECE_HEADER as u64 {
            return Ok(None);
        }
        disk.read(self.file, self.offset, &mut head)?;
        let len = u32::from_le_bytes([head[4], head[5], head[6], head[7]]) as usize;
        let crc = u32::from_le_bytes([head[8], head[9], head[10], head[11]]);
        let left = self.size - self.offset - PIECE_HEADER as u64;
        if len > PIECE_BYTES_MAX || len as u64 > left {
            return Ok(None);
        }
        let mut body = vec![0; len];
        disk.read(self.file, self.offset + PIECE_HEADER as u64, &mut body)?;
        if checksum(&head[..8], self.number, &body) != crc {
            return Ok(None);
        }
        self.offset += (PIECE_HEADER + len) as u64;
        self.number += 1;
        Ok(Some((head[0], body)))
    }
}

fn read_head(body: &[u8], file: &str) -> Result<SnapshotHead, OpenError> {
    let damaged = || LostMemory::new(file, "its head is damaged");
    if !body.starts_with(MAGIC) || body.len() < 16 {
        return Err(damaged().into());
    }
    let found = u16::from_le_bytes([body[8], body[9]]);
    if found > FORMAT {
        return Err(OpenError::Newer {
            file: file.to_owned(),
            found,
            known: FORMAT,
        });
    }
    read_fields(&body[16..]).map_err(|_| damaged().into())
}

fn read_fields(bytes: &[u8]) -> Result<SnapshotHead, StateError> {
    let mut cursor = Cursor::new(bytes, "a snapshot's head");
    let (cluster, index, term) = (ClusterId(cursor.u64()?), cursor.u64()?, cursor.u64()?);
    let mut lists = [const { Vec::new() }; 4];
    for list in &mut lists {
        for _ in 0..cursor.u32()? {
            list.push(cursor.u64()?);
        }
    }
    let auto_leave = cursor.u8()? != 0;
    cursor.finish()?;
    let [voters, learners, voters_outgoing, learners_next] = lists;
    Ok(SnapshotHead {
        cluster,
        index,
        term,
        conf: ConfState {
            voters,
            learners,
            voters_outgoing,
            learners_next,
            auto_leave,
        },
    })
}
