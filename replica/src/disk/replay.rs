//! From the frames of a log back to raft's state: hard state and entries after a base.

use raft::eraftpb::{Entry, HardState};
use trine_kvstore::Store;
use trine_protocol::message::{ClusterId, Incarnation};

use super::error::LostMemory;
use super::identity::Identity;
use super::record::{Item, Record, decode};
use super::snapshot_file::{self, Loaded};
use crate::state_machine::genesis::{FIRST_INDEX, FIRST_TERM};

/// The disk content of a replica that belonged to a group.
pub struct Restored {
    pub(crate) identity: Identity,
    pub(crate) snapshot: Option<Loaded>,
    pub(crate) hard_state: HardState,
    pub(crate) entries: Vec<Entry>,
    /// An operator has lifted the quarantine: the replica goes on with less than others may remember.
    pub(crate) is_lifted: bool,
}

impl std::fmt::Debug for Restored {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Restored")
            .field("incarnation", &self.identity.incarnation)
            .field("cluster", &self.identity.cluster)
            .field("entries", &self.entries.len())
            .finish_non_exhaustive()
    }
}

impl Restored {
    /// The group that the replica belongs to.
    #[must_use]
    pub fn cluster(&self) -> ClusterId {
        self.identity.cluster
    }

    /// The incarnation that goes on.
    #[must_use]
    pub fn incarnation(&self) -> Incarnation {
        self.identity.incarnation
    }

    /// The last entry that is there, in the log or in the snapshot.
    #[must_use]
    pub fn last_index(&self) -> u64 {
        let (base, _) = base_of(&self.identity, self.snapshot.as_ref()).unwrap_or((0, 0));
        self.entries.last().map_or(base, |entry| entry.index)
    }

    /// For checkers: the store of the snapshot that the replica begins with, if there is one.
    #[must_use]
    pub fn store(&self) -> Option<&Store> {
        let snapshot = self.snapshot.as_ref()?;
        Some(snapshot.state.store())
    }

    /// The last entry that is known to be committed.
    #[must_use]
    pub fn committed(&self) -> u64 {
        self.hard_state.commit
    }
}

/// Index and term at the log's base: the snapshot's, or those of the group's first entry.
pub(crate) fn base_of(identity: &Identity, snapshot: Option<&Loaded>) -> Option<(u64, u64)> {
    match snapshot {
        Some(snapshot) => Some((snapshot.head.index, snapshot.head.term)),
        None => identity.origin.as_ref().map(|_| (FIRST_INDEX, FIRST_TERM)),
    }
}

/// The result of all frames together.
pub(crate) struct Replayed {
    pub(crate) hard_state: HardState,
    /// After the base, contiguous.
    pub(crate) entries: Vec<Entry>,
    /// The log holds entries that the base has replaced, and no record yet that says so.
    superseded: bool,
}

impl Replayed {
    /// The record that is missing in the log, if the log has to name `base` as its base.
    pub(crate) fn rebase(&self, base: Option<(u64, u64)>) -> Option<Record> {
        let (index, _) = base.filter(|_| self.superseded)?;
        Some(Record::rebase(index, &self.hard_state))
    }
}

/// The result of the frames so far.
#[derive(Default)]
pub(crate) struct Replay {
    hard_state: HardState,
    /// Contiguous.
    entries: Vec<Entry>,
    /// The log stood on the snapshot up to there.
    restored: u64,
    /// Greatest index among the entries of the present segment, replaced ones included.
    pub(crate) segment_index_max: u64,
}

impl Replay {
    /// Takes the next frame.
    pub(crate) fn frame(&mut self, bytes: &[u8], file: &str) -> Result<(), LostMemory> {
        let mut whole = true;
        decode(bytes, |item| match item {
            Item::HardState(state) => self.hard_state = state,
            Item::Restore(index) => {
                self.entries.clear();
                self.restored = index;
            }
            Item::Entry(entry) => whole &= self.entry(entry),
        })
        .map_err(|_| LostMemory::new(file, "a record makes no sense"))?;
        if whole {
            return Ok(());
        }
        Err(LostMemory::new(file, "entries are missing"))
    }

    /// Takes an entry, which replaces all earlier ones from its index on; false if it leaves a gap.
    fn entry(&mut self, entry: Entry) -> bool {
        self.segment_index_max = self.segment_index_max.max(entry.index);
        while self
            .entries
            .last()
            .is_some_and(|last| last.index >= entry.index)
        {
            self.entries.pop();
        }
        let follows = self
            .entries
            .last()
            .is_none_or(|last| last.index + 1 == entry.index && last.term <= entry.term);
        self.entries.push(entry);
        follows
    }

    /// The entries after the base.
    pub(crate) fn finish(
        mut self,
        base: Option<(u64, u64)>,
        (first, last): (&str, &str),
    ) -> Result<Replayed, LostMemory> {
        let lost = |file: &str, what: &str| Err(LostMemory::new(file, what));
        let Some((index, term)) = base else {
            // It waits for its first snapshot: a vote may have been given, nothing else.
            return match self.entries.is_empty() && self.restored == 0 {
                true => Ok(self.into_replayed(false)),
                false => lost(first, "the snapshot that the log stands on is missing"),
            };
        };
        if self.restored > index {
            let restored = self.restored;
            let file = snapshot_file::name(restored);
            return lost(&file, "it is missing, and the log stands on it");
        }
        if let Some(begin) = self.entries.first().map(|entry| entry.index)
            && begin > index + 1
        {
            let (from, to) = (index + 1, begin - 1);
            return lost(
                first,
                &format!("entries {from} to {to} are missing in front of it"),
            );
        }
        let superseded = self.cut_behind(index, term);
        let state = &mut self.hard_state;
        if state.term < term {
            // The snapshot was installed, and the record that goes with it had not come through.
            (state.term, state.vote) = (term, 0);
        }
        state.commit = state.commit.max(index);
        let end = self.entries.last().map_or(index, |entry| entry.index);
        if state.commit > end {
            let (from, to) = (end + 1, state.commit);
            return lost(last, &format!("entries {from} to {to} are missing"));
        }
        Ok(self.into_replayed(superseded))
    }

    fn into_replayed(self, superseded: bool) -> Replayed {
        Replayed {
            hard_state: self.hard_state,
            entries: self.entries,
            superseded,
        }
    }

    /// Drops the entries that the base holds. Also drops the entries after it, and reports so, if they belong to a log
    /// that the base has replaced.
    fn cut_behind(&mut self, index: u64, term: u64) -> bool {
        let same = match self.entries.iter().find(|entry| entry.index == index) {
            Some(entry) => entry.term == term,
            None => self
                .entries
                .first()
                .is_some_and(|first| first.index == index + 1 && first.term >= term),
        };
        let superseded = !same && !self.entries.is_empty();
        if same {
            self.entries.retain(|entry| entry.index > index);
        } else {
            self.entries.clear();
        }
        superseded
    }
}
