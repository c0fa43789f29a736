//! Data directories that released programs left behind (`compat/`, docs/versions.md). Each opens to the state that its
//! program had told, and none opens to another state once a bit is flipped.
//!
//! Flipped, one at a time, is each bit of the first KiB of every file of every directory, and the whole directory is read
//! again by the code that a start runs. A state is the identity, term, vote and commit index, all entries, and the image of
//! the snapshot under them. Every file but the spare segment has to be refused, the last segment as well: an unfinished write
//! leaves whole sectors, so a flipped bit never passes for the end of one (DURABILITY.md, the damage rule). The spare is
//! removed unread. `lock` and `marked` are empty. Bits behind the first KiB are in `tests.rs`, on small directories.

use raft::eraftpb::{Entry, HardState};
use trine_corpus::goldens::{FLIPPED_BYTES, Golden, flip_each_bit, goldens};
use trine_protocol::message::{Incarnation, NodeId};
use trine_transport::time::Instant;

use super::memory::MemoryDisk;
use super::open::{inspect, inspect_log};
use super::recover::state_of;
use super::spare::SPARE;
use super::writer::SYNCED;
use super::*;
use crate::config::SEGMENT_BYTES_MIN;
use crate::snapshot_transfer::{Image, Piece};
use crate::state_machine::StateMachine;

/// What a directory holds. The state of a replica follows from it.
#[derive(PartialEq, Debug)]
struct State {
    identity: Identity,
    hard_state: HardState,
    entries: Vec<Entry>,
    snapshot: Option<(SnapshotHead, Vec<u8>)>,
}

fn options(node_id: u32) -> OpenOptions {
    OpenOptions {
        node_id: NodeId(node_id),
        fsync: Fsync::Batch,
        segment_bytes: SEGMENT_BYTES_MIN,
        incarnation: Incarnation(11),
        rejoin: false,
    }
}

fn restored(disk: &mut MemoryDisk, node_id: u32) -> Result<Restored, OpenError> {
    let found = inspect(disk, options(node_id))?;
    Ok(found
        .and_then(|found| found.restored)
        .expect("the directory of a member"))
}

/// The state up to entry `last`.
fn applied(disk: &mut MemoryDisk, node_id: u32, last: u64) -> StateMachine {
    let mut restored = restored(disk, node_id).expect("it opens");
    restored.entries.retain(|entry| entry.index <= last);
    state_of(disk, restored).expect("entries of an earlier release apply")
}

fn image(state: &mut StateMachine) -> Vec<u8> {
    let mut image = Image::begin(Instant::ZERO, state, 64 << 10).expect("the first image");
    let mut bytes = Vec::new();
    for number in 0.. {
        match image.piece(number, state.store_mut()) {
            Piece::Chunk(chunk, last) => {
                bytes.extend_from_slice(chunk);
                if last {
                    return bytes;
                }
            }
            Piece::Pending | Piece::Gone => unreachable!("nothing changes the state meanwhile"),
        }
    }
    unreachable!("the last chunk says so")
}

fn state(disk: &mut MemoryDisk, node_id: u32) -> Result<State, OpenError> {
    let restored = restored(disk, node_id)?;
    let of_snapshot = |mut loaded: Loaded| (loaded.head, image(&mut loaded.state));
    Ok(State {
        identity: restored.identity,
        hard_state: restored.hard_state,
        entries: restored.entries,
        snapshot: restored.snapshot.map(of_snapshot),
    })
}

/// Each directory of a release, with its node id.
fn directories(golden: &Golden) -> impl Iterator<Item = (&str, u32, MemoryDisk)> {
    golden.files("directories").iter().map(|(name, shows)| {
        let node_id = shows["node"].as_u64().expect("a node id") as u32;
        let files = golden.directory(name);
        (&**name, node_id, MemoryDisk { files })
    })
}

#[test]
fn each_opens_to_the_state_that_its_program_told() {
    for golden in goldens() {
        for (name, node_id, mut disk) in directories(&golden) {
            let shows = &golden.files("directories")[name]["quiet"];
            let index = shows["index"].as_u64().expect("an index");
            let then = applied(&mut disk, node_id, index);
            assert_eq!(then.applied_index(), index, "{name}");
            let hash = format!("{:032x}", then.store().state_hash());
            assert_eq!(hash, shows["state_hash"], "{name}");
            assert_eq!(then.store().stats().items, shows["keys"], "{name}");
            // Opening in earnest changes nothing of it, and a second time neither.
            let before = state(&mut disk, node_id).expect("it opens");
            let mut opened = open(disk, options(node_id)).expect("it opens");
            let mut again = opened.writer.disk_mut().clone();
            assert_eq!(state(&mut again, node_id), Ok(before), "{name}");
        }
    }
}

/// Outcomes of flips.
#[derive(Default, Debug, PartialEq, Eq)]
struct Outcomes {
    refused: usize,
    same: usize,
}

#[test]
fn no_flipped_bit_opens_to_another_state() {
    for golden in goldens() {
        for (name, node_id, mut disk) in directories(&golden) {
            let right = state(&mut disk, node_id).expect("it opens");
            let files: Vec<String> = disk.files.keys().cloned().collect();
            for file in files {
                let outcomes = flip(&mut disk, &file, node_id, &right);
                let bits = disk.files[&file].len().min(FLIPPED_BYTES) * 8;
                let (refused, same) = match file == SPARE {
                    true => (0, bits),
                    false => (bits, 0),
                };
                assert_eq!(outcomes, Outcomes { refused, same }, "{name}: {file}");
                println!("{name}: {file}: {outcomes:?}");
            }
        }
    }
}

fn flip(disk: &mut MemoryDisk, file: &str, node_id: u32, right: &State) -> Outcomes {
    let mut outcomes = Outcomes::default();
    let mut bytes = disk.files[file].clone();
    // The snapshot takes most of the time, and a log that is refused is refused with any snapshot.
    let log = |disk: &mut MemoryDisk| match file.ends_with(".log") || file == SYNCED {
        true => inspect_log(disk),
        false => Ok(()),
    };
    flip_each_bit(&mut bytes, |flipped, bit| {
        let at = bit / 8;
        disk.files.get_mut(file).expect("there")[at] = flipped[at];
        match log(disk).and_then(|()| state(disk, node_id)) {
            Err(_) => outcomes.refused += 1,
            Ok(found) => {
                assert!(found == *right, "{file}: bit {bit} gives another state");
                outcomes.same += 1;
            }
        }
        disk.files.get_mut(file).expect("there")[at] = flipped[at] ^ 1 << (bit % 8);
    });
    outcomes
}
