//! A log whose end has turned into zeros, and the mark that says where the end was. Neither loss alone nor both
//! together may go unnoticed, and no crash of a healthy disk may look like it.
//!
//! The mark, `synced`, began as zeros and was never synced, so zeros in it had to be taken for a mark that had not come
//! through. With both sectors zero, and the log zeros from any frame on, a replica started silently: 31 acknowledged keys
//! were gone where 60 sectors were. It could have voted again, or been counted for entries that it no longer had. With the
//! mark intact the same log was refused.

use super::cache::CachedDisk;
use super::frame::SECTOR;
use super::memory::MemoryDisk;
use super::segment::name as segment_name;
use super::tests::{SharedDisk, identity, indexes, options, record, reopen, small};
use super::writer::{MARKED, SYNCED};
use super::*;

/// A way to harm the mark, and its name.
type Harm = (&'static str, fn(&mut MemoryDisk));

const HARMS: [Harm; 6] = [
    ("intact", |_| {}),
    ("zeros", |disk| mark(disk).fill(0)),
    ("zeros in the first sector", |disk| {
        mark(disk)[..SECTOR].fill(0);
    }),
    ("zeros in the second sector", |disk| {
        mark(disk)[SECTOR..].fill(0);
    }),
    ("cut", |disk| mark(disk).truncate(SECTOR)),
    ("gone", |disk| drop(disk.files.remove(SYNCED))),
];

fn mark(disk: &mut MemoryDisk) -> &mut Vec<u8> {
    disk.files.get_mut(SYNCED).unwrap()
}

/// Acknowledged keys: entries 2 to 32, in a frame of two sectors each.
fn keys() -> MemoryDisk {
    let mut opened = open(MemoryDisk::default(), options()).unwrap();
    let begin = Write::Identity(identity().encode());
    opened.writer.perform([begin]).unwrap();
    for index in 2..33 {
        let frame = record(index..index + 1, 2, 600);
        opened.writer.perform([frame]).unwrap();
    }
    opened.writer.disk_mut().clone()
}

/// Each segment of the log, with how many of its sectors were written.
fn written(disk: &MemoryDisk) -> Vec<(String, usize)> {
    let of = |bytes: &Vec<u8>| bytes.iter().rposition(|&byte| byte != 0).unwrap() / SECTOR + 1;
    let files = disk.files.iter();
    let log = files.filter(|(name, _)| segment::number(name).is_some());
    log.map(|(name, bytes)| (name.clone(), of(bytes))).collect()
}

/// Why it does not open: it has lost memory.
fn refused(disk: &MemoryDisk, what: &str) -> String {
    match reopen(disk) {
        Err(OpenError::Lost(lost)) => lost.to_string(),
        Err(error) => panic!("{what}: {error}"),
        Ok(opened) => panic!("{what}: it starts with {:?}", indexes(&opened)),
    }
}

#[test]
fn zeros_at_the_end_of_the_log_are_refused_whatever_has_become_of_the_mark() {
    let disk = keys();
    let log = written(&disk);
    assert!(log.len() > 1, "the end of one segment is another's");
    let all: usize = log.iter().map(|(_, sectors)| sectors - 1).sum();
    assert_eq!(all, 62);
    for (harm, does) in HARMS {
        for gone in 0..=all {
            let mut harmed = disk.clone();
            does(&mut harmed);
            let mut left = gone;
            for (name, sectors) in log.iter().rev() {
                let here = left.min(sectors - 1);
                left -= here;
                let from = (sectors - here) * SECTOR;
                harmed.files.get_mut(name).unwrap()[from..].fill(0);
            }
            match (harm, gone) {
                ("intact", 0) => assert_eq!(indexes(&reopen(&harmed).unwrap()).len(), 31),
                _ => drop(refused(
                    &harmed,
                    &format!("{gone} sectors, the mark is {harm}"),
                )),
            }
        }
    }
}

#[test]
fn the_error_names_the_mark_and_the_files_are_set_aside_on_request() {
    let mut disk = small();
    mark(&mut disk).fill(0);
    let error = refused(&disk, "zeros in the mark");
    let expected = "synced: zeros at byte 0, where it said how far the log was synced";
    assert!(error.starts_with(expected), "{error}");
    let rejoin = OpenOptions {
        rejoin: true,
        ..options()
    };
    let mut opened = open(disk, rejoin).unwrap();
    assert_eq!(opened.lost.unwrap().file, SYNCED);
    let left = opened.writer.disk_mut().clone();
    assert!(!left.files.contains_key(MARKED), "nothing is marked yet");
    assert!(reopen(&left).unwrap().restored.is_none());
}

/// The whole log is gone, and the identity, too: it is no new directory.
#[test]
fn a_mark_without_an_identity_is_lost_memory() {
    let mut disk = small();
    disk.files.remove("identity");
    mark(&mut disk).fill(0);
    let log = disk.files.get_mut(&segment_name(1)).unwrap();
    log[SECTOR..].fill(0);
    assert!(refused(&disk, "without identity").starts_with("identity"));
}

/// The power fails, or the process is killed, after each change of a directory's first run, a second run, and one that
/// begins a segment. Unsynced content is there or is not. Whatever was acknowledged is there, and nothing is refused.
#[test]
fn no_crash_of_a_healthy_disk_looks_like_a_lost_mark() {
    let mut kills = 0;
    for fsync in [Fsync::Batch, Fsync::Each] {
        let options = OpenOptions { fsync, ..options() };
        for changes in 0.. {
            let mut begun = CachedDisk::default();
            begun.changes_left = Some(changes);
            let shared = SharedDisk(std::rc::Rc::new(std::cell::RefCell::new(begun)));
            let acknowledged = lives(&shared, options);
            let mut left = shared.0.borrow().clone();
            left.changes_left = None;
            let begins = |disk: &MemoryDisk| disk.files.contains_key("identity");
            let landed = (0..4).map(|landed| left.after_power_loss_late(SYNCED, landed));
            for disk in landed.chain([left.after_power_loss()]) {
                let opened = reopen(&disk).unwrap_or_else(|error| panic!("{changes}: {error}"));
                let last = opened.restored.map_or(0, |restored| restored.last_index());
                assert!(last >= acknowledged, "{changes}: {last} < {acknowledged}");
                assert!(begins(&disk) || acknowledged == 0);
            }
            // The process alone: the next one sees everything.
            let seen = open(left, options).unwrap_or_else(|error| panic!("{changes}: {error}"));
            let last = seen.restored.map_or(0, |restored| restored.last_index());
            assert!(last >= acknowledged, "{changes}: {last} < {acknowledged}");
            if acknowledged == LAST {
                break;
            }
            kills += 1;
        }
    }
    assert!(kills > 60, "{kills} moments are no life");
}

/// The last entry that [`lives`] writes.
const LAST: u64 = 5;

/// Two runs of a replica; returns the last entry that was acknowledged, zero if none was.
fn lives(disk: &SharedDisk<CachedDisk>, options: OpenOptions) -> u64 {
    let mut acknowledged = 0;
    let batches = [
        vec![Write::Identity(identity().encode())],
        vec![record(2..3, 2, 10)],
        vec![record(3..4, 2, 100)],
        // It does not fit into the first segment.
        vec![record(4..5, 2, 16 << 10)],
        vec![record(5..6, 2, 10)],
    ];
    for (life, batches) in batches.chunks(3).enumerate() {
        let Ok(mut opened) = open(disk.clone(), options) else {
            return acknowledged;
        };
        for (at, batch) in batches.iter().enumerate() {
            if opened.writer.perform(batch.clone()).is_err() {
                return acknowledged;
            }
            // The first entry of a group has index 1, and is in no log.
            acknowledged = (life * 3 + at + 1) as u64;
        }
    }
    acknowledged
}

/// It had never synced its mark: the power may have failed before that reached the device, or `--fsync none` never wrote it.
#[test]
fn the_directory_of_an_earlier_release_opens_and_is_marked_from_then_on() {
    let mut earlier = keys();
    earlier.files.remove(MARKED);
    mark(&mut earlier).fill(0);
    let mut opened = reopen(&earlier).unwrap();
    assert_eq!(indexes(&opened).len(), 31);
    let mut disk = opened.writer.disk_mut().clone();
    assert_eq!(indexes(&reopen(&disk).unwrap()).len(), 31);
    mark(&mut disk).fill(0);
    assert!(refused(&disk, "marked").starts_with(SYNCED));
}

#[test]
fn an_orderly_end_without_syncs_marks_the_log() {
    let options = OpenOptions {
        fsync: Fsync::None,
        ..options()
    };
    let mut opened = open(MemoryDisk::default(), options).unwrap();
    let begin = Write::Identity(identity().encode());
    let batch = [begin, record(2..4, 2, 10)];
    opened.writer.perform(batch).unwrap();
    assert!(!opened.writer.disk_mut().files.contains_key(MARKED));
    opened.writer.finish().unwrap();
    let mut disk = opened.writer.disk_mut().clone();
    assert_eq!(indexes(&reopen(&disk).unwrap()), [2, 3]);
    mark(&mut disk).fill(0);
    assert!(refused(&disk, "marked").starts_with(SYNCED));
}

/// A mark that stays behind the log for long could hide as much, so it is synced at a start, and where a segment
/// begins.
#[test]
fn a_mark_that_did_not_come_through_is_never_older_than_the_start_or_the_segment() {
    let mut opened = open(CachedDisk::of(&small()), options()).unwrap();
    let next = [record(8..9, 3, 10), record(9..10, 3, 16 << 10)];
    for frame in next {
        opened.writer.perform([frame]).unwrap();
    }
    // The plate never heard of the marks that were not synced; then the frames turn into zeros.
    let disk = opened.writer.disk_mut().after_power_loss();
    assert_eq!(indexes(&reopen(&disk).unwrap()).last(), Some(&9));
    let mut without = disk.clone();
    for (name, sectors) in written(&disk) {
        if name == segment_name(1) {
            let from = (sectors - 1) * SECTOR;
            without.files.get_mut(&name).unwrap()[from..].fill(0);
        } else {
            without.files.get_mut(&name).unwrap()[SECTOR..].fill(0);
        }
    }
    let error = refused(&without, "the first segment's last frame");
    assert!(error.contains("synced"), "{error}");
}
