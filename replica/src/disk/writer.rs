//! Turns batches of writes into files.

use std::collections::{BTreeMap, VecDeque};

use super::frame::{SECTOR, encode, sectors_of};
use super::{Disk, DiskError, Fsync, Write, identity, segment, snapshot_file};
use crate::config::FRAME_BYTES_MAX;

/// The newest frame that is known to be synced: two sectors, written in turn. They are synced at each start and when
/// a segment begins, not with each frame.
pub(crate) const SYNCED: &str = "synced";
/// Exists, empty, since both sectors of [`SYNCED`] were written and synced: zeros in it are damage from then on. It is
/// a name and not a content, so whatever turns content into zeros leaves it.
pub(crate) const MARKED: &str = "marked";
/// Exists while nothing is synced: the files beside it after a start count as lost.
pub(crate) const UNSYNCED: &str = "unsynced";
/// Exists, with the reason, when the state must not be used again.
pub(crate) const QUARANTINED: &str = "condemned";
/// Exists, with the same, since an operator has lifted the quarantine, until no member remembers more than the files hold.
pub(crate) const LIFTED: &str = "lifted";
/// In the checksum of a sector of [`SYNCED`], in place of a segment's number.
pub(crate) const SYNCED_NUMBER: u64 = u64::MAX;
const SEGMENT_TEMPORARY: &str = "segment.tmp";
const IDENTITY_TEMPORARY: &str = "identity.tmp";

/// Where the log goes on.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Position {
    /// Number and greatest entry index of each segment.
    pub(crate) segments: VecDeque<(u64, u64)>,
    /// Next free sector of the last one, and how many it has.
    pub(crate) sector: u64,
    pub(crate) sectors: u64,
    /// Sequence of the next frame.
    pub(crate) sequence: u64,
    /// The newest snapshot.
    pub(crate) snapshot: Option<u64>,
    /// Whether [`MARKED`] is there.
    pub(crate) marked: bool,
}

/// Writes to one replica's files.
#[derive(Debug)]
pub struct Writer<D> {
    disk: D,
    fsync: Fsync,
    segment_sectors: u64,
    position: Position,
    /// Bytes so far of each snapshot that is not complete.
    streams: BTreeMap<u64, u64>,
    /// Records of the frame that is being put together.
    content: Vec<u8>,
    content_index_max: u64,
    sectors: Vec<u8>,
}

impl<D: Disk> Writer<D> {
    pub(crate) fn new(mut disk: D, fsync: Fsync, segment_sectors: u64, position: Position) -> Self {
        disk.prepare(segment_sectors * SECTOR as u64);
        Self {
            disk,
            fsync,
            segment_sectors,
            position,
            streams: BTreeMap::new(),
            content: Vec::new(),
            content_index_max: 0,
            sectors: Vec::new(),
        }
    }

    /// The disk.
    pub fn disk_mut(&mut self) -> &mut D {
        &mut self.disk
    }

    /// Does all of it, in order. When this returns without an error everything is durable.
    ///
    /// # Errors The disk is full or broken. It is unknown what of the batch is durable, so the replica must not go on.
    pub fn perform(&mut self, batch: impl IntoIterator<Item = Write>) -> Result<(), DiskError> {
        for write in batch {
            match write {
                Write::Log(record) => {
                    self.content.extend_from_slice(&record.bytes);
                    self.content_index_max = self.content_index_max.max(record.last_index);
                    if self.fsync == Fsync::Each || self.content.len() >= FRAME_BYTES_MAX {
                        self.end_frame()?;
                    }
                }
                other => {
                    self.end_frame()?;
                    self.perform_other(other)?;
                }
            }
        }
        self.end_frame()
    }

    fn perform_other(&mut self, write: Write) -> Result<(), DiskError> {
        match write {
            Write::Log(_) => Ok(()),
            Write::Identity(bytes) => self.write_identity(&bytes),
            Write::Quarantined(why) => self.quarantine(&why),
            Write::LiftEnded => self.end_lift(),
            Write::SnapshotPiece { stream, bytes } => self.write_piece(stream, &bytes),
            Write::SnapshotEnd { stream, index } => self.end_snapshot(stream, index),
            Write::SnapshotGivenUp { stream } => match self.streams.remove(&stream) {
                Some(_) => self.disk.remove(&stream_name(stream)),
                None => Ok(()),
            },
        }
    }

    /// Syncs what `--fsync none` has left, so that the next start finds it.
    ///
    /// # Errors
    /// The disk is broken.
    pub fn finish(&mut self) -> Result<(), DiskError> {
        if self.fsync != Fsync::None {
            return Ok(());
        }
        for &(number, _) in &self.position.segments {
            self.disk.sync(&segment::name(number))?;
        }
        if let Some(index) = self.position.snapshot {
            self.disk.sync(&snapshot_file::name(index))?;
        }
        self.settle_mark()?;
        self.disk.sync(identity::FILE)?;
        self.disk.sync_names()?;
        self.disk.remove(UNSYNCED)?;
        self.disk.sync_names()
    }

    fn end_frame(&mut self) -> Result<(), DiskError> {
        if self.content.is_empty() {
            return Ok(());
        }
        let count = sectors_of(self.content.len()) as u64;
        if self.position.sector + count > self.position.sectors {
            self.begin_segment(count + 1)?;
        }
        let Position {
            sector,
            sectors,
            sequence,
            ..
        } = self.position;
        assert!(sector > 0, "the first sector is the segment's header");
        assert!(sector + count <= sectors, "a frame is in one segment");
        let number = self.last_segment();
        self.sectors.clear();
        encode(&mut self.sectors, number, sector, sequence, &self.content);
        let name = segment::name(number);
        self.disk
            .write(&name, sector * SECTOR as u64, &self.sectors)?;
        self.sync(&name)?;
        self.position.sector += count;
        self.position.sequence += 1;
        self.mark_synced(sequence)?;
        if let Some((_, index_max)) = self.position.segments.back_mut() {
            *index_max = (*index_max).max(self.content_index_max);
        }
        self.content.clear();
        self.content_index_max = 0;
        Ok(())
    }

    fn last_segment(&self) -> u64 {
        self.position
            .segments
            .back()
            .map_or(0, |&(number, _)| number)
    }

    fn sync(&mut self, name: &str) -> Result<(), DiskError> {
        match self.fsync {
            Fsync::None => Ok(()),
            Fsync::Each | Fsync::Batch => self.disk.sync(name),
        }
    }

    fn sync_names(&mut self) -> Result<(), DiskError> {
        match self.fsync {
            Fsync::None => Ok(()),
            Fsync::Each | Fsync::Batch => self.disk.sync_names(),
        }
    }

    /// Not synced itself: it only has to be right when it is there. But the first frame is not promised before the mark
    /// is durable, for zeros in it would prove nothing else.
    fn mark_synced(&mut self, sequence: u64) -> Result<(), DiskError> {
        if self.fsync == Fsync::None {
            return Ok(());
        }
        if !self.position.marked {
            return self.settle_mark();
        }
        let slot = sequence % 2;
        self.sectors.clear();
        encode(&mut self.sectors, SYNCED_NUMBER, slot, sequence, &[]);
        self.disk.write(SYNCED, slot * SECTOR as u64, &self.sectors)
    }

    /// Marks all frames so far, which are durable, in both sectors, and syncs them. Only then [`MARKED`] may be there.
    pub(crate) fn settle_mark(&mut self) -> Result<(), DiskError> {
        assert!(self.position.sequence > 0, "sequences begin at one");
        let last = self.position.sequence - 1;
        if last == 0 {
            return Ok(());
        }
        self.sectors.clear();
        for slot in 0..2 {
            encode(&mut self.sectors, SYNCED_NUMBER, slot, last, &[]);
        }
        self.disk.write(SYNCED, 0, &self.sectors)?;
        self.disk.sync(SYNCED)?;
        if !self.position.marked {
            self.disk.create(MARKED, 0)?;
            self.disk.sync_names()?;
            self.position.marked = true;
        }
        Ok(())
    }

    /// A new segment gets its name only once it is whole. All of the one before is in the mark by then.
    fn begin_segment(&mut self, sectors_least: u64) -> Result<(), DiskError> {
        self.sync(SYNCED)?;
        let sectors = self.segment_sectors.max(sectors_least);
        let number = self.last_segment() + 1;
        create_segment(&mut self.disk, number, sectors, self.fsync != Fsync::None)?;
        self.disk.prepare(self.segment_sectors * SECTOR as u64);
        self.position.segments.push_back((number, 0));
        (self.position.sector, self.position.sectors) = (1, sectors);
        Ok(())
    }

    fn write_identity(&mut self, bytes: &[u8]) -> Result<(), DiskError> {
        replace_identity(&mut self.disk, bytes, self.fsync != Fsync::None)
    }

    /// Synced in every mode: its content must not be forgotten.
    fn quarantine(&mut self, why: &str) -> Result<(), DiskError> {
        self.disk.create(QUARANTINED, 0)?;
        self.disk.write(QUARANTINED, 0, why.as_bytes())?;
        self.disk.sync(QUARANTINED)?;
        self.disk.sync_names()
    }

    /// Synced: else the mark may come back, and hide a loss of later.
    fn end_lift(&mut self) -> Result<(), DiskError> {
        self.disk.remove(LIFTED)?;
        self.disk.sync_names()
    }

    fn write_piece(&mut self, stream: u64, bytes: &[u8]) -> Result<(), DiskError> {
        let name = stream_name(stream);
        let offset = match self.streams.get(&stream) {
            Some(&offset) => offset,
            None => {
                self.disk.create(&name, 0)?;
                0
            }
        };
        self.disk.write(&name, offset, bytes)?;
        self.streams.insert(stream, offset + bytes.len() as u64);
        Ok(())
    }

    /// The log is shortened only once the snapshot that replaces it is durable.
    fn end_snapshot(&mut self, stream: u64, index: u64) -> Result<(), DiskError> {
        if self.streams.remove(&stream).is_none() {
            return Ok(());
        }
        let temporary = stream_name(stream);
        self.sync(&temporary)?;
        self.disk.rename(&temporary, &snapshot_file::name(index))?;
        self.sync_names()?;
        if let Some(old) = self
            .position
            .snapshot
            .replace(index)
            .filter(|&old| old != index)
        {
            self.disk.remove(&snapshot_file::name(old))?;
        }
        // The last segment holds the hard state, once it holds anything.
        while self.position.segments.len() > 1 && self.position.sector > 1 {
            match self.position.segments.front() {
                Some(&(number, index_max)) if index_max <= index => {
                    self.disk.remove(&segment::name(number))?;
                    self.position.segments.pop_front();
                }
                _ => break,
            }
        }
        Ok(())
    }
}

fn stream_name(stream: u64) -> String {
    format!("snapshot-{stream}.tmp")
}

pub(crate) fn create_segment(
    disk: &mut impl Disk,
    number: u64,
    sectors: u64,
    synced: bool,
) -> Result<(), DiskError> {
    disk.create(SEGMENT_TEMPORARY, sectors * SECTOR as u64)?;
    disk.write(SEGMENT_TEMPORARY, 0, &segment::header(number, sectors))?;
    if synced {
        disk.sync(SEGMENT_TEMPORARY)?;
    }
    disk.rename(SEGMENT_TEMPORARY, &segment::name(number))?;
    if synced {
        disk.sync_names()?;
    }
    Ok(())
}

pub(crate) fn replace_identity(
    disk: &mut impl Disk,
    bytes: &[u8],
    synced: bool,
) -> Result<(), DiskError> {
    disk.create(IDENTITY_TEMPORARY, bytes.len() as u64)?;
    disk.write(IDENTITY_TEMPORARY, 0, bytes)?;
    if synced {
        disk.sync(IDENTITY_TEMPORARY)?;
    }
    disk.rename(IDENTITY_TEMPORARY, identity::FILE)?;
    if synced {
        disk.sync_names()?;
    }
    Ok(())
}
