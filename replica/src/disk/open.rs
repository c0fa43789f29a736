//! Opens a data directory: reads its files, and checks whether anything that may have been promised is missing.

use std::collections::{BTreeMap, VecDeque};
use trine_protocol::message::{ClusterId, Incarnation, NodeId};

use super::error::{LostMemory, OpenError};
use super::frame::{SECTOR, Sector, read};
use super::identity::{self, Identity};
use super::names::{LOCK, RECOVERING, SET_ASIDE, set_aside};
use super::reading::Reading;
use super::record::Record;
use super::replay::{Replay, Replayed, Restored, base_of};
use super::segment::{self, Scan};
use super::snapshot_file;
use super::writer::{
    LIFTED, MARKED, Position, QUARANTINED, SYNCED, SYNCED_NUMBER, UNSYNCED, Writer, create_segment,
    replace_identity,
};
use super::{Disk, DiskError, Fsync, Write};
use crate::config::SEGMENT_BYTES_MIN;

/// How to open.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OpenOptions {
    /// The node id that the replica was started with.
    pub node_id: NodeId,
    /// When writes count as durable.
    pub fsync: Fsync,
    /// Size of new log segments.
    pub segment_bytes: u64,
    /// The identity for a new directory.
    pub incarnation: Incarnation,
    /// Whether lost memory is set aside, and the replica starts as a new one.
    pub rejoin: bool,
}

impl OpenOptions {
    /// Size of new log segments in whole sectors.
    fn segment_sectors(&self) -> u64 {
        self.segment_bytes.max(SEGMENT_BYTES_MIN) / SECTOR as u64
    }
}

/// An open directory.
#[derive(Debug)]
pub struct Opened<D> {
    /// Writes to it.
    pub writer: Writer<D>,
    /// Who the replica is.
    pub incarnation: Incarnation,
    /// Its state, if it belonged to a group.
    pub restored: Option<Restored>,
    /// The files that were lost and set aside.
    pub lost: Option<LostMemory>,
}

/// Opens a directory, or begins a new one in it.
///
/// # Errors
/// See [`OpenError`]; nothing was changed then.
pub fn open<D: Disk>(mut disk: D, options: OpenOptions) -> Result<Opened<D>, OpenError> {
    match inspect(&mut disk, options) {
        Ok(Some(found)) => resume(disk, options, found),
        Ok(None) => Ok(begin(disk, options, None)?),
        Err(OpenError::Lost(lost)) if options.rejoin => {
            set_aside(&mut disk, options.incarnation)?;
            Ok(begin(disk, options, Some(lost))?)
        }
        Err(OpenError::Quarantined { file, why }) if options.rejoin => {
            set_aside(&mut disk, options.incarnation)?;
            Ok(begin(disk, options, Some(LostMemory { file, what: why }))?)
        }
        Err(error) => Err(error),
    }
}

/// Starts as a new replica, whatever the directory contains, as with lost memory. The replica that it belongs to was
/// removed from its group, or its state has diverged.
///
/// # Errors
/// The device fails, or a recovery of the directory was interrupted.
pub fn open_without_memory<D: Disk>(
    mut disk: D,
    options: OpenOptions,
    why: LostMemory,
) -> Result<Opened<D>, OpenError> {
    present(&mut disk)?;
    set_aside(&mut disk, options.incarnation)?;
    Ok(begin(disk, options, Some(why))?)
}

/// Lifts the quarantine of a directory: the replica goes on as who it was, with its state as it is. Returns why the
/// directory was in quarantine; nothing if it was not.
///
/// # Errors
/// The device fails, or a recovery of the directory was interrupted.
pub fn lift_quarantine(disk: &mut impl Disk) -> Result<Option<String>, OpenError> {
    let names = present(disk)?;
    let why = quarantine(disk, &names)?;
    if why.is_some() {
        disk.rename(QUARANTINED, LIFTED)?;
        disk.sync_names()?;
    }
    Ok(why)
}

/// Why a directory is in quarantine, if it is.
fn quarantine(disk: &mut impl Disk, names: &[String]) -> Result<Option<String>, OpenError> {
    if !names.iter().any(|name| name == QUARANTINED) {
        return Ok(None);
    }
    let why = read_whole(disk, QUARANTINED)?;
    Ok(Some(String::from_utf8_lossy(&why).into_owned()))
}

/// The files that count, unless a recovery of the directory was interrupted.
fn present(disk: &mut impl Disk) -> Result<Vec<String>, OpenError> {
    let mut names = disk.names()?;
    let file = RECOVERING.to_owned();
    if names.contains(&file) {
        return Err(OpenError::Recovering { file });
    }
    names.retain(|name| !name.starts_with(SET_ASIDE) && name != LOCK);
    Ok(names)
}

/// The content of a directory.
pub(super) struct Found {
    identity: Identity,
    position: Position,
    /// Where the last frame of the last segment begins.
    last_frame: u64,
    /// Sectors of the last segment that an unfinished write has left.
    torn_until: u64,
    pub(super) restored: Option<Restored>,
    /// The first record that the log still has to write: that it is based on the snapshot.
    rebase: Option<Record>,
}

/// Reads everything and changes nothing. Nothing is found in a new directory.
pub(super) fn inspect(
    disk: &mut impl Disk,
    options: OpenOptions,
) -> Result<Option<Found>, OpenError> {
    let names = present(disk)?;
    if let Some(why) = quarantine(disk, &names)? {
        let file = QUARANTINED.to_owned();
        return Err(OpenError::Quarantined { file, why });
    }
    let segments = numbered(&names, segment::number);
    let snapshots = numbered(&names, snapshot_file::index);
    if !names.iter().any(|name| name == identity::FILE) {
        return check_new(disk, &names, &segments, &snapshots).map(|()| None);
    }
    let size = disk.size(identity::FILE)?;
    let mut bytes = vec![0; usize::try_from(size.min(1 << 20)).unwrap_or_default()];
    disk.read(identity::FILE, 0, &mut bytes)?;
    let identity = Identity::decode(&bytes)?;
    if identity.node_id != options.node_id {
        return Err(OpenError::OtherNodeId {
            file: identity::FILE.to_owned(),
            found: identity.node_id.0,
            wanted: options.node_id.0,
        });
    }
    if names.iter().any(|name| name == UNSYNCED) {
        let what = "the last run did not sync its writes and had no orderly end";
        return Err(LostMemory::new(UNSYNCED, what).into());
    }
    let newest = snapshots.last_key_value().map(|(_, file)| file);
    let mut reading = Reading::of(disk, segments.values().chain(newest))?;
    let snapshot = match newest {
        Some(file) => Some(snapshot_file::load(disk, file, &mut reading)?),
        None => None,
    };
    if let (Some(loaded), Some(file)) = (&snapshot, newest)
        && loaded.head.cluster != identity.cluster
    {
        return Err(LostMemory::new(file, "it is of another cluster than the identity").into());
    }
    let mut log = read_log(disk, &segments, &mut reading)?;
    log.position.marked = check_synced(disk, &names, &log)?;
    log.position.snapshot = snapshots.keys().last().copied();
    let base = base_of(&identity, snapshot.as_ref());
    let replayed = log.replay.finish(base, ends_of(&segments))?;
    let rebase = replayed.rebase(base);
    let Replayed {
        hard_state,
        entries,
        ..
    } = replayed;
    let restored = (!identity.cluster.is_none()).then(|| Restored {
        identity: identity.clone(),
        snapshot,
        hard_state,
        entries,
        is_lifted: names.iter().any(|name| name == LIFTED),
    });
    Ok(Some(Found {
        identity,
        position: log.position,
        last_frame: log.last_frame,
        torn_until: log.torn_until,
        restored,
        rebase,
    }))
}

/// The files of one kind, by the numbers in their names.
fn numbered(names: &[String], number: fn(&str) -> Option<u64>) -> BTreeMap<u64, String> {
    let numbered = names.iter().filter_map(|name| Some((number(name)?, name)));
    numbered.map(|(at, name)| (at, name.clone())).collect()
}

/// For tests: reads the log as [`inspect`] does, and nothing else.
#[cfg(test)]
pub(super) fn inspect_log(disk: &mut impl Disk) -> Result<(), OpenError> {
    let names = present(disk)?;
    let segments = numbered(&names, segment::number);
    let mut reading = Reading::of(disk, segments.values())?;
    let log = read_log(disk, &segments, &mut reading)?;
    check_synced(disk, &names, &log).map(drop)
}

/// The files of the first and of the last segment.
fn ends_of(segments: &BTreeMap<u64, String>) -> (&str, &str) {
    let mut files = segments.values().map(String::as_str);
    let first = files.next().unwrap_or_default();
    (first, files.next_back().unwrap_or(first))
}

/// Without an identity there is nothing that this replica can have said; but then there must not be anything else.
fn check_new(
    disk: &mut impl Disk,
    names: &[String],
    segments: &BTreeMap<u64, String>,
    snapshots: &BTreeMap<u64, String>,
) -> Result<(), OpenError> {
    let missing = || LostMemory::new(identity::FILE, "it is missing");
    if !snapshots.is_empty() || names.iter().any(|name| name == MARKED) {
        return Err(missing().into());
    }
    if !segments.is_empty() {
        let mut reading = Reading::of(disk, segments.values())?;
        if read_log(disk, segments, &mut reading)?.position.sequence > 1 {
            return Err(missing().into());
        }
    }
    let known = |name: &&String| {
        segment::number(name).is_some()
            || name.ends_with(".tmp")
            || *name == SYNCED
            || *name == UNSYNCED
    };
    match names.iter().find(|name| !known(name)) {
        Some(file) => Err(OpenError::Foreign { file: file.clone() }),
        None => Ok(()),
    }
}

struct OpenLog {
    replay: Replay,
    position: Position,
    last_frame: u64,
    torn_until: u64,
}

fn read_log(
    disk: &mut impl Disk,
    segments: &BTreeMap<u64, String>,
    reading: &mut Reading,
) -> Result<OpenLog, OpenError> {
    let mut log = OpenLog {
        replay: Replay::default(),
        position: Position {
            segments: VecDeque::new(),
            sector: 1,
            sectors: 0,
            sequence: 1,
            snapshot: None,
            marked: false,
        },
        last_frame: 1,
        torn_until: 0,
    };
    let mut scan = Scan::default();
    let mut before = None;
    for (&number, file) in segments {
        if before.is_some_and(|before| before + 1 != number) {
            return Err(LostMemory::new(file, "the segment in front of it is missing").into());
        }
        before = Some(number);
        let bytes = read_whole(disk, file)?;
        let OpenLog {
            replay, position, ..
        } = &mut log;
        replay.segment_index_max = 0;
        let end = scan.segment(&bytes, number, file, |frame| replay.frame(frame, file))?;
        position
            .segments
            .push_back((number, replay.segment_index_max));
        position.sector = end.sector as u64;
        position.sectors = (bytes.len() / SECTOR) as u64;
        log.last_frame = end.last_frame as u64;
        log.torn_until = end.torn_until as u64;
        reading.on_read(disk, bytes.len() as u64)?;
    }
    if segments.is_empty() {
        return Err(LostMemory::new(&segment::name(1), "no segment of the log is there").into());
    }
    log.position.sequence = scan.expected.unwrap_or(1);
    Ok(log)
}

fn read_whole(disk: &mut impl Disk, file: &str) -> Result<Vec<u8>, OpenError> {
    let size = disk.size(file)?;
    let Ok(size) = usize::try_from(size) else {
        return Err(LostMemory::new(file, "it is larger than memory").into());
    };
    let mut bytes = vec![0; size];
    disk.read(file, 0, &mut bytes)?;
    Ok(bytes)
}

/// The log must not end before the newest frame that was known to be synced. Zeros say nothing about that. They are
/// right until the first frame is promised, and in the directory of an earlier release, which never synced the mark. In
/// both cases [`MARKED`] is not there. Beside it they are damage, and the same may have befallen the end of the log.
/// Says whether it is there.
fn check_synced(disk: &mut impl Disk, names: &[String], log: &OpenLog) -> Result<bool, OpenError> {
    let marked = names.iter().any(|name| name == MARKED);
    if !names.iter().any(|name| name == SYNCED) {
        return Err(LostMemory::new(SYNCED, "it is missing").into());
    }
    let bytes = read_whole(disk, SYNCED)?;
    if bytes.len() != 2 * SECTOR {
        return Err(LostMemory::new(SYNCED, "its end is missing").into());
    }
    for slot in 0..2 {
        match read(&bytes, SYNCED_NUMBER, slot) {
            Sector::Zero if !marked => {}
            Sector::Zero => {
                let offset = slot * SECTOR;
                let what = format!(
                    "zeros at byte {offset}, where it said how far the log was synced; frames at the log's end may be gone, too"
                );
                return Err(LostMemory::new(SYNCED, what).into());
            }
            Sector::Valid { sequence, .. } if sequence < log.position.sequence => {}
            Sector::Valid { .. } => {
                let last = segment::name(log.position.segments.back().map_or(1, |last| last.0));
                let what = "it ends before the last frame that was synced";
                return Err(LostMemory::new(&last, what).into());
            }
            Sector::Damaged => return Err(LostMemory::new(SYNCED, "it is damaged").into()),
        }
    }
    Ok(marked)
}

/// Goes on where the directory ends. Clears away the rest of an unfinished write.
fn resume<D: Disk>(
    mut disk: D,
    options: OpenOptions,
    found: Found,
) -> Result<Opened<D>, OpenError> {
    settle_end(&mut disk, &found)?;
    for name in disk.names()? {
        let index = snapshot_file::index(&name);
        let old = index.is_some() && index != found.position.snapshot;
        if name.ends_with(".tmp") || old {
            disk.remove(&name)?;
        }
    }
    note_unsynced(&mut disk, options.fsync)?;
    let mut writer = Writer::new(
        disk,
        options.fsync,
        options.segment_sectors(),
        found.position,
    );
    // The content used from here on must not be missing at the next start.
    writer.settle_mark()?;
    // Without it the next start would take later entries for a part of the log that the snapshot has replaced.
    writer.perform(found.rebase.map(Write::Log))?;
    Ok(Opened {
        writer,
        incarnation: found.identity.incarnation,
        restored: found.restored,
        lost: None,
    })
}

/// The bytes read may be in the cache of the operating system alone. The process before may have ended between a write
/// and its sync, or because the sync failed. Nothing may be promised on the strength of that, so the last frame is
/// written once more. A rewrite is needed because after a failed sync the cache takes its content for written. All
/// earlier frames were synced before it.
fn settle_end(disk: &mut impl Disk, found: &Found) -> Result<(), DiskError> {
    let Position {
        sector, segments, ..
    } = &found.position;
    let Some(&(number, _)) = segments.back() else {
        return Ok(());
    };
    let name = segment::name(number);
    let start = found.last_frame * SECTOR as u64;
    let mut end = vec![0; (sector - found.last_frame) as usize * SECTOR];
    disk.read(&name, start, &mut end)?;
    // After it the unfinished write is cleared away.
    let sectors = found.torn_until.max(*sector) - found.last_frame;
    end.resize(sectors as usize * SECTOR, 0);
    if !end.is_empty() {
        disk.write(&name, start, &end)?;
        disk.sync(&name)?;
    }
    disk.sync_names()
}

fn note_unsynced(disk: &mut impl Disk, fsync: Fsync) -> Result<(), DiskError> {
    if fsync == Fsync::None {
        disk.create(UNSYNCED, 0)?;
        disk.sync_names()?;
    }
    Ok(())
}

/// Begins as a new replica. The identity comes last: without it the directory counts as empty.
pub(super) fn begin<D: Disk>(
    mut disk: D,
    options: OpenOptions,
    lost: Option<LostMemory>,
) -> Result<Opened<D>, DiskError> {
    let sectors = options.segment_sectors();
    disk.create(SYNCED, 2 * SECTOR as u64)?;
    disk.sync(SYNCED)?;
    create_segment(&mut disk, 1, sectors, true)?;
    // A first start without syncs may have ended before it had an identity. Its mark says nothing about this one.
    if options.fsync != Fsync::None && disk.names()?.iter().any(|name| name == UNSYNCED) {
        disk.remove(UNSYNCED)?;
        disk.sync_names()?;
    }
    note_unsynced(&mut disk, options.fsync)?;
    let identity = Identity {
        node_id: options.node_id,
        incarnation: options.incarnation,
        cluster: ClusterId::NONE,
        origin: None,
    };
    replace_identity(&mut disk, &identity.encode(), true)?;
    let position = Position {
        segments: VecDeque::from([(1, 0)]),
        sector: 1,
        sectors,
        sequence: 1,
        snapshot: None,
        marked: false,
    };
    Ok(Opened {
        writer: Writer::new(disk, options.fsync, sectors, position),
        incarnation: options.incarnation,
        restored: None,
        lost,
    })
}

/// For the fuzzer: opens a directory whose files are cut out of `bytes`. No content may cause a panic, and a directory
/// that opens once opens again.
#[doc(hidden)]
pub fn fuzz_open(bytes: &[u8]) {
    let Some((&kind, rest)) = bytes.split_first() else {
        return;
    };
    let options = OpenOptions {
        node_id: NodeId(1),
        fsync: Fsync::Batch,
        segment_bytes: SEGMENT_BYTES_MIN,
        incarnation: Incarnation(11),
        rejoin: kind & 0x80 != 0,
    };
    let begun = open(super::memory::MemoryDisk::default(), options);
    let mut disk = begun.expect("memory fails never").writer.disk_mut().clone();
    match kind & 0x7f {
        0 => drop(disk.files.insert(identity::FILE.to_owned(), rest.to_vec())),
        1 => drop(disk.files.insert(snapshot_file::name(5), rest.to_vec())),
        2 => drop(disk.files.insert(SYNCED.to_owned(), rest.to_vec())),
        3 => drop(disk.files.insert(segment::name(1), rest.to_vec())),
        // A whole segment around it, and the frames' checksums are right.
        _ => {
            let count = super::frame::sectors_of(rest.len()) as u64 + 3;
            let mut file = segment::header(1, count);
            super::frame::encode(&mut file, 1, 1, 1, rest);
            file.resize(count as usize * SECTOR, 0);
            disk.files.insert(segment::name(1), file);
        }
    }
    if let Ok(mut opened) = open(disk, options) {
        let again = open(opened.writer.disk_mut().clone(), options).expect("opened before");
        assert_eq!(
            again.restored.map(|restored| restored.last_index()),
            opened.restored.map(|restored| restored.last_index())
        );
    }
}
