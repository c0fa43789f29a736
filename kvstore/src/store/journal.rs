//! What a command that may be undone has overwritten. It puts that back, and it says what has changed in the end.

use super::Store;
use crate::arena::{ItemView, Stamp};
use crate::command::Kind;
use crate::config::UNDO_BYTES_MAX;
use crate::error::StoreError;
use crate::hash::KeyHash;
use crate::items::KeyLookup;
use std::ops::Range;

/// Memory of entries, and of bytes, that a journal keeps between commands.
const RESTING_BYTES: usize = 64 * 1024;

/// The items that the running command has overwritten, oldest first. Keys and values stand in one buffer that is used again,
/// so an entry allocates nothing.
#[derive(Default, Debug)]
pub(super) struct Journal {
    is_open: bool,
    /// A write was refused for want of room since the journal was opened.
    pub(super) lacked_room: bool,
    entries: Vec<JournalEntry>,
    bytes: Vec<u8>,
    /// Bytes that count against the limit: those of restored items, too.
    counted: usize,
    /// The entries' numbers in the order of their hashes. Reused.
    by_hash: Vec<(KeyHash, u32)>,
}

/// A key that was about to change.
#[derive(Copy, Clone, Debug)]
struct JournalEntry {
    hash: KeyHash,
    /// Where its key begins in the journal's bytes; the earlier value stands behind the key.
    start: usize,
    key_bytes: u32,
    /// Bytes of the earlier value, and its stamp; none if the key was absent.
    previous: Option<(u32, Stamp)>,
    /// The operation that is about to change it.
    by: Kind,
    /// The command has changed the key before.
    is_repeated: bool,
}

impl JournalEntry {
    fn key_range(&self) -> Range<usize> {
        self.start..self.start + self.key_bytes as usize
    }

    fn key<'a>(&self, bytes: &'a [u8]) -> &'a [u8] {
        &bytes[self.key_range()]
    }

    fn value<'a>(&self, bytes: &'a [u8], length: u32) -> &'a [u8] {
        let start = self.key_range().end;
        &bytes[start..start + length as usize]
    }
}

/// What became of a key.
pub(super) struct NetChange<'a> {
    pub(super) hash: KeyHash,
    pub(super) key: &'a [u8],
    /// The stamp that it had before; none if it was absent.
    pub(super) before: Option<Stamp>,
    /// The last operation that changed it.
    pub(super) by: Kind,
}

impl Journal {
    /// Whether a command runs that may have to be undone.
    #[inline]
    pub(super) fn is_open(&self) -> bool {
        self.is_open
    }

    fn open(&mut self) {
        debug_assert!(!self.is_open);
        self.is_open = true;
        self.lacked_room = false;
    }

    fn close(&mut self) {
        self.is_open = false;
        self.counted = 0;
        self.entries.clear();
        self.bytes.clear();
        self.by_hash.clear();
        self.bytes.shrink_to(RESTING_BYTES);
        self.entries
            .shrink_to(RESTING_BYTES / size_of::<JournalEntry>());
        self.by_hash
            .shrink_to(RESTING_BYTES / size_of::<JournalEntry>());
    }

    fn add(
        &mut self,
        hash: KeyHash,
        key: &[u8],
        previous: Option<ItemView<'_>>,
        by: Kind,
    ) -> Result<(), StoreError> {
        let value = previous.as_ref().map_or(&[][..], |item| item.value);
        self.counted += key.len() + value.len();
        if self.counted > UNDO_BYTES_MAX {
            return Err(StoreError::ExecuteTooLarge);
        }
        let start = self.bytes.len();
        self.bytes.extend_from_slice(key);
        self.bytes.extend_from_slice(value);
        self.entries.push(JournalEntry {
            hash,
            start,
            key_bytes: key.len() as u32,
            previous: previous.map(|item| (item.value.len() as u32, item.stamp)),
            by,
            is_repeated: false,
        });
        Ok(())
    }

    /// Each key that was changed, once: in the order of the first changes.
    pub(super) fn net_changes(&mut self) -> impl Iterator<Item = NetChange<'_>> {
        self.join_repeated();
        let first_ones = self.entries.iter().filter(|entry| !entry.is_repeated);
        first_ones.map(|entry| NetChange {
            hash: entry.hash,
            key: entry.key(&self.bytes),
            before: entry.previous.map(|(_, stamp)| stamp),
            by: entry.by,
        })
    }

    /// The first entry of each key learns what changed the key last.
    fn join_repeated(&mut self) {
        let (entries, bytes, by_hash) = (&mut self.entries, &self.bytes, &mut self.by_hash);
        by_hash.clear();
        by_hash.extend(
            (0..)
                .zip(&*entries)
                .map(|(number, entry)| (entry.hash, number)),
        );
        by_hash.sort_unstable();
        for same_hash in by_hash.chunk_by(|(one, _), (other, _)| one == other) {
            for (place, &(_, number)) in same_hash.iter().enumerate().skip(1) {
                let entry = entries[number as usize];
                // Nearly always the one in front: different keys with one hash are rare.
                let first = same_hash[..place]
                    .iter()
                    .find(|(_, earlier)| entries[*earlier as usize].key(bytes) == entry.key(bytes));
                if let Some(&(_, first)) = first {
                    entries[first as usize].by = entry.by;
                    entries[number as usize].is_repeated = true;
                }
            }
        }
    }
}

impl Store {
    /// From here on, overwritten items are kept.
    pub(super) fn begin_undoable(&mut self) {
        self.journal.open();
    }

    /// Forgets what was kept, or puts it back.
    pub(super) fn end_undoable(&mut self, done: bool) {
        if !done {
            self.undo_to(0);
        }
        let mut journal = std::mem::take(&mut self.journal);
        self.note_journal(&mut journal);
        journal.close();
        self.journal = journal;
    }

    /// A write of the running command found no room: undoes the command and removes expired items. Returns whether it
    /// is worth another try.
    pub(super) fn makes_room_to_retry(&mut self) -> bool {
        let may_sweep = self.may_make_room() && self.has_expired_items();
        if !self.journal.lacked_room || !may_sweep {
            return false;
        }
        self.end_undoable(false);
        self.make_room();
        self.begin_undoable();
        true
    }

    /// How many overwritten items are kept: a place to go back to with [`Store::undo_to`].
    pub(super) fn undo_mark(&self) -> usize {
        self.journal.entries.len()
    }

    /// Puts back what was overwritten since the mark. The restored items still count against the
    /// limit.
    pub(super) fn undo_to(&mut self, mark: usize) {
        let journal = &mut self.journal;
        for entry in journal.entries.drain(mark..).rev() {
            let key = entry.key(&journal.bytes);
            match entry.previous {
                Some((length, stamp)) => {
                    let value = entry.value(&journal.bytes, length);
                    self.items.restore(key, value, stamp);
                }
                None => {
                    let found = self.items.find_hashed(entry.hash, key);
                    self.items.remove(found);
                }
            }
        }
    }

    /// Keeps what is about to be overwritten, if the command that runs may have to be undone.
    pub(super) fn note_for_undo(&mut self, found: KeyLookup, key: &[u8]) -> Result<(), StoreError> {
        if !self.journal.is_open() {
            return Ok(());
        }
        let by = self.running();
        self.journal
            .add(found.hash, key, self.items.item(found), by)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::hash::Hasher;

    const KINDS: [Kind; 3] = [Kind::Put, Kind::Delete, Kind::Append];

    proptest! {
        /// Against a search through all entries: each key once, where it changed first, with the last operation.
        #[test]
        fn each_key_comes_once_with_its_last_operation(
            changes in prop::collection::vec((0..12_u8, 0..KINDS.len()), 0..40),
            colliding in any::<bool>(),
        ) {
            let hasher = Hasher::new([1, 2]);
            let mut journal = Journal::default();
            journal.open();
            for (key, kind) in &changes {
                // Keys whose hashes collide are told apart, too.
                let hash = if colliding { KeyHash(7) } else { hasher.key(&[*key]) };
                journal.add(hash, &[*key], None, KINDS[*kind]).expect("it is small");
            }
            let found: Vec<(u8, Kind)> =
                journal.net_changes().map(|change| (change.key[0], change.by)).collect();
            let mut expected: Vec<(u8, Kind)> = Vec::new();
            for (key, kind) in &changes {
                match expected.iter_mut().find(|(known, _)| known == key) {
                    Some((_, by)) => *by = KINDS[*kind],
                    None => expected.push((*key, KINDS[*kind])),
                }
            }
            prop_assert_eq!(found, expected);
        }
    }
}
