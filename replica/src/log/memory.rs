//! The log of memory mode: a ring of entries after a base whose term is remembered.

use std::cell::Cell;
use std::collections::VecDeque;

use raft::eraftpb::{ConfState, Entry, EntryType, HardState, Snapshot};
use raft::{Error, GetEntriesContext, RaftState, Storage, StorageError};

use super::bytes::ByteQueue;
use super::{Log, MoveEntry};
use crate::config::LOG_PIECE_BYTES;
use crate::state_machine::entry::moved_member;

/// The cost of an entry besides its bytes. It covers its record in the ring, up to twice when the ring has just grown.
/// It also covers some of what raft and the disk need for it while it is new.
const ENTRY_OVERHEAD: usize = 96;

/// An entry as it is kept; its bytes are in the log's queue.
#[derive(Clone, Copy, Debug)]
struct Kept {
    term: u64,
    /// Position of its data; its context follows the data.
    at: u64,
    data: u32,
    context: u32,
    entry_type: i32,
}

impl Kept {
    const fn length(&self) -> usize {
        self.data as usize + self.context as usize
    }

    /// Its size in [`Log::bytes`].
    const fn bytes(&self) -> usize {
        self.length() + ENTRY_OVERHEAD
    }
}

/// Entries in DRAM. Nothing survives the process, which is why a restarted replica has to be a new identity.
#[derive(Debug, Default)]
pub(crate) struct MemoryLog {
    /// Index of the last entry that is not held any more; the snapshot under this log ends there.
    base_index: u64,
    base_term: u64,
    /// `entries[i]` is the one at index `base_index + 1 + i`.
    entries: VecDeque<Kept>,
    /// Data and context of all of them, one after the other.
    held: ByteQueue<LOG_PIECE_BYTES>,
    /// Sum of [`Kept::bytes`] over `entries`.
    bytes: usize,
    /// Those of them that say where a member is. There are few.
    moves: VecDeque<MoveEntry>,
    hard_state: HardState,
    conf_state: ConfState,
    offered: Option<Snapshot>,
    /// Set by `Storage::snapshot`, which gets `&self`.
    snapshot_wanted: Cell<bool>,
}

impl MemoryLog {
    /// An empty log of a replica that belongs to no configuration yet: it can only receive a snapshot.
    #[must_use]
    pub(crate) fn new() -> Self {
        Self::default()
    }

    /// A log that begins after an entry which every voter has by construction: the group's first one.
    #[must_use]
    pub(crate) fn with_base(index: u64, term: u64, voters: Vec<u64>) -> Self {
        let hard_state = HardState {
            term,
            vote: 0,
            commit: index,
        };
        let conf_state = ConfState {
            voters,
            ..ConfState::default()
        };
        Self {
            base_index: index,
            base_term: term,
            hard_state,
            conf_state,
            ..Self::default()
        }
    }

    /// The log that a disk has kept: `entries` follow the base.
    #[must_use]
    pub(crate) fn restored(
        base: (u64, u64),
        conf_state: ConfState,
        hard_state: HardState,
        entries: Vec<Entry>,
    ) -> Self {
        let mut log = Self {
            base_index: base.0,
            base_term: base.1,
            hard_state,
            conf_state,
            ..Self::default()
        };
        // The log on disk may be as large as the store: each entry is dropped as soon as it is copied.
        for entry in entries {
            log.append(std::slice::from_ref(&entry));
        }
        log
    }

    fn last(&self) -> u64 {
        self.base_index + self.entries.len() as u64
    }

    fn truncate_from(&mut self, index: u64) {
        while self.last() >= index {
            // `last` is above the base as long as the ring is not empty, and `append` asserts index > base.
            let Some(entry) = self.entries.pop_back() else {
                break;
            };
            self.bytes -= entry.bytes();
            self.held.truncate(entry.at);
        }
        self.moves.retain(|entry| entry.index < index);
    }

    fn push(&mut self, entry: &Entry) {
        let kept = Kept {
            term: entry.term,
            at: self.held.back(),
            data: length_of(&entry.data),
            context: length_of(&entry.context),
            entry_type: entry.entry_type,
        };
        self.held.push(&entry.data);
        self.held.push(&entry.context);
        self.bytes += kept.bytes();
        self.entries.push_back(kept);
        if entry.get_entry_type() == EntryType::EntryNormal
            && let Some((member, to)) = moved_member(&entry.data)
        {
            let index = self.last();
            self.moves.push_back(MoveEntry { index, member, to });
        }
    }

    /// The entry at `index` as raft wants it.
    fn entry(&self, index: u64, kept: &Kept) -> Entry {
        let data = self.held.read(kept.at, kept.data as usize);
        let behind = kept.at + u64::from(kept.data);
        Entry {
            entry_type: kept.entry_type,
            term: kept.term,
            index,
            data,
            context: self.held.read(behind, kept.context as usize),
            ..Entry::default()
        }
    }
}

fn length_of(bytes: &[u8]) -> u32 {
    u32::try_from(bytes.len()).expect("an entry is no longer than a message")
}

impl Storage for MemoryLog {
    fn initial_state(&self) -> raft::Result<RaftState> {
        Ok(RaftState::new(
            self.hard_state.clone(),
            self.conf_state.clone(),
        ))
    }

    fn entries(
        &self,
        low: u64,
        high: u64,
        max_size: impl Into<Option<u64>>,
        _context: GetEntriesContext,
    ) -> raft::Result<Vec<Entry>> {
        if low <= self.base_index {
            return Err(Error::Store(StorageError::Compacted));
        }
        assert!(
            high <= self.last() + 1,
            "raft asks for entries up to {high}, the log ends at {}",
            self.last()
        );
        let budget = max_size.into().unwrap_or(u64::MAX);
        let first = (low - self.base_index - 1) as usize;
        let count = (high - low) as usize;
        let mut used = 0_u64;
        let mut taken = Vec::new();
        for (index, kept) in (low..).zip(self.entries.range(first..first + count)) {
            used = used.saturating_add(kept.bytes() as u64);
            if used > budget && !taken.is_empty() {
                break;
            }
            taken.push(self.entry(index, kept));
        }
        Ok(taken)
    }

    fn term(&self, index: u64) -> raft::Result<u64> {
        if index == self.base_index {
            return Ok(self.base_term);
        }
        if index < self.base_index {
            return Err(Error::Store(StorageError::Compacted));
        }
        let offset = (index - self.base_index - 1) as usize;
        self.entries
            .get(offset)
            .map(|kept| kept.term)
            .ok_or(Error::Store(StorageError::Unavailable))
    }

    fn first_index(&self) -> raft::Result<u64> {
        Ok(self.base_index + 1)
    }

    fn last_index(&self) -> raft::Result<u64> {
        Ok(self.last())
    }

    fn snapshot(&self, request_index: u64, to: u64) -> raft::Result<Snapshot> {
        let usable = self.offered.as_ref().filter(|snapshot| {
            let metadata = snapshot.get_metadata();
            // Raft refuses a snapshot in which the receiver is not a member, and the leader would never hear of it.
            let conf = metadata.get_conf_state();
            let knows = conf.voters.contains(&to)
                || conf.learners.contains(&to)
                || conf.voters_outgoing.contains(&to);
            metadata.index >= request_index && metadata.index >= self.base_index && knows
        });
        if let Some(snapshot) = usable {
            return Ok(snapshot.clone());
        }
        self.snapshot_wanted.set(true);
        Err(Error::Store(StorageError::SnapshotTemporarilyUnavailable))
    }
}

impl Log for MemoryLog {
    fn append(&mut self, entries: &[Entry]) {
        let Some(first) = entries.first() else { return };
        assert!(
            first.index > self.base_index,
            "an entry behind the compacted part is never replaced"
        );
        assert!(first.index <= self.last() + 1, "the log has no holes");
        self.truncate_from(first.index);
        for entry in entries {
            assert_eq!(entry.index, self.last() + 1, "entries are contiguous");
            self.push(entry);
        }
    }

    fn moves(&self) -> &VecDeque<MoveEntry> {
        &self.moves
    }

    fn set_hard_state(&mut self, state: HardState) {
        self.hard_state = state;
    }

    fn set_commit(&mut self, commit: u64) {
        self.hard_state.commit = commit;
    }

    fn set_conf_state(&mut self, state: ConfState) {
        self.conf_state = state;
    }

    fn restore(&mut self, snapshot: &Snapshot) {
        let metadata = snapshot.get_metadata();
        self.base_index = metadata.index;
        self.base_term = metadata.term;
        self.entries.clear();
        self.moves.clear();
        self.held.forget_below(self.held.back());
        self.bytes = 0;
        self.conf_state = metadata.get_conf_state().clone();
        self.hard_state.commit = self.hard_state.commit.max(metadata.index);
        self.hard_state.term = self.hard_state.term.max(metadata.term);
    }

    fn compact(&mut self, through: u64) {
        assert!(
            through <= self.hard_state.commit,
            "only committed entries are compacted"
        );
        while self.base_index < through {
            let Some(entry) = self.entries.pop_front() else {
                break;
            };
            self.bytes -= entry.bytes();
            self.held.forget_below(entry.at + entry.length() as u64);
            self.base_index += 1;
            self.base_term = entry.term;
        }
        let base = self.base_index;
        self.moves.retain(|entry| entry.index > base);
    }

    fn offer_snapshot(&mut self, snapshot: Option<Snapshot>) {
        self.offered = snapshot;
    }

    fn wants_snapshot(&self) -> bool {
        self.snapshot_wanted.get()
    }

    fn take_snapshot_wanted(&mut self) -> bool {
        self.snapshot_wanted.replace(false)
    }

    fn entry_count(&self) -> usize {
        self.entries.len()
    }

    fn bytes(&self) -> usize {
        self.bytes
    }

    fn compaction_point(&self, entries: usize, bytes: usize) -> u64 {
        let mut left = (self.entries.len(), self.bytes);
        let mut point = self.base_index;
        for kept in &self.entries {
            if left.0 <= entries && left.1 <= bytes {
                break;
            }
            left = (left.0 - 1, left.1 - kept.bytes());
            point += 1;
        }
        point
    }
}

#[cfg(test)]
mod tests {
    use trine_protocol::message::Incarnation;

    use super::*;
    use crate::state_machine::entry::move_member;

    fn entry(index: u64, term: u64) -> Entry {
        Entry {
            index,
            term,
            data: vec![0; 100],
            ..Entry::default()
        }
    }

    fn log_of(terms: &[u64]) -> MemoryLog {
        let mut log = MemoryLog::with_base(1, 1, vec![1]);
        let entries: Vec<Entry> = (2..).zip(terms).map(|(i, &term)| entry(i, term)).collect();
        log.append(&entries);
        log
    }

    fn context() -> GetEntriesContext {
        GetEntriesContext::empty(false)
    }

    #[test]
    fn an_entry_comes_back_as_it_went_in() {
        let mut log = MemoryLog::with_base(1, 1, vec![1]);
        let change = Entry {
            entry_type: EntryType::EntryConfChangeV2 as i32,
            index: 3,
            term: 2,
            data: vec![3; 5],
            context: vec![4; 7],
            ..Entry::default()
        };
        let long = Entry {
            data: (0..3 * LOG_PIECE_BYTES).map(|i| i as u8).collect(),
            ..entry(4, 2)
        };
        let empty = Entry {
            data: Vec::new(),
            ..entry(5, 3)
        };
        let all = vec![entry(2, 1), change, long, empty, entry(6, 3)];
        log.append(&all);
        assert_eq!(log.entries(2, 7, None, context()).unwrap(), all);
        log.set_commit(5);
        log.compact(3);
        assert_eq!(log.entries(4, 7, None, context()).unwrap(), all[2..]);
        log.append(&[entry(5, 4)]);
        let behind = log.entries(4, 6, None, context()).unwrap();
        assert_eq!(behind, [all[2].clone(), entry(5, 4)]);
        log.compact(5);
        assert_eq!((log.entry_count(), log.bytes()), (0, 0));
    }

    #[test]
    fn a_conflicting_tail_is_replaced() {
        let mut log = log_of(&[1, 1, 2, 2]);
        log.append(&[entry(4, 3)]);
        assert_eq!(log.last_index().unwrap(), 4);
        assert_eq!(log.term(4).unwrap(), 3);
        assert_eq!(log.term(3).unwrap(), 1);
        assert_eq!(log.bytes(), 3 * (100 + ENTRY_OVERHEAD));
    }

    #[test]
    fn compaction_keeps_the_term_of_the_base_and_forgets_what_is_below() {
        let mut log = log_of(&[1, 2, 2, 3]);
        log.set_commit(5);
        log.compact(4);
        assert_eq!(log.first_index().unwrap(), 5);
        assert_eq!(log.term(4).unwrap(), 2);
        assert_eq!(log.term(3), Err(Error::Store(StorageError::Compacted)));
        assert_eq!(
            log.entries(4, 5, None, context()),
            Err(Error::Store(StorageError::Compacted))
        );
        assert_eq!(log.entries(5, 6, None, context()).unwrap().len(), 1);
    }

    #[test]
    fn the_size_limit_of_a_read_lets_one_entry_pass() {
        let log = log_of(&[1, 1, 1]);
        assert_eq!(log.entries(2, 5, 0, context()).unwrap().len(), 1);
        assert_eq!(
            log.entries(2, 5, 2 * (100 + ENTRY_OVERHEAD as u64), context())
                .unwrap()
                .len(),
            2
        );
        assert_eq!(log.entries(2, 5, None, context()).unwrap().len(), 3);
    }

    #[test]
    fn the_compaction_point_leaves_both_limits_kept() {
        let log = log_of(&[1; 10]);
        assert_eq!(log.compaction_point(10, usize::MAX), 1);
        assert_eq!(log.compaction_point(4, usize::MAX), 7);
        assert_eq!(log.compaction_point(10, 2 * (100 + ENTRY_OVERHEAD)), 9);
    }

    #[test]
    fn a_snapshot_is_wanted_until_one_is_offered_that_knows_the_receiver() {
        let mut log = log_of(&[1, 1]);
        assert!(log.snapshot(0, 9).is_err());
        assert!(log.take_snapshot_wanted());
        let mut snapshot = Snapshot::default();
        snapshot.mut_metadata().index = 3;
        snapshot.mut_metadata().mut_conf_state().voters = vec![1];
        log.offer_snapshot(Some(snapshot.clone()));
        assert!(log.snapshot(0, 9).is_err());
        snapshot.mut_metadata().mut_conf_state().learners = vec![9];
        log.offer_snapshot(Some(snapshot));
        log.take_snapshot_wanted();
        assert!(log.snapshot(0, 9).is_ok());
        assert!(!log.take_snapshot_wanted());
    }

    #[test]
    fn places_are_known_until_they_are_replaced_or_compacted() {
        let (of, to) = (Incarnation(2), "10.0.0.2:7".parse().unwrap());
        let mut log = MemoryLog::with_base(1, 1, vec![1]);
        let moving = |index, term| Entry {
            data: move_member(1, of, to),
            ..entry(index, term)
        };
        let known =
            |log: &MemoryLog| -> Vec<u64> { log.moves().iter().map(|entry| entry.index).collect() };
        log.append(&[entry(2, 1), moving(3, 1), moving(4, 1)]);
        assert_eq!(known(&log), [3, 4]);
        assert_eq!((log.moves()[0].member, log.moves()[0].to), (of, to));
        log.append(&[entry(4, 2), moving(5, 2)]);
        assert_eq!(known(&log), [3, 5]);
        log.set_commit(3);
        log.compact(3);
        assert_eq!(known(&log), [5]);
    }
}
