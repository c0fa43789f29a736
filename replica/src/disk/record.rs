//! The content of a log frame: records one after the other, each made of items.
//!
//! ```text
//! | kind (u8) | bytes (u32) | ...
//!   1 hard state: term, vote, commit
//!   2 entry: index, term, type (u8), context (u32 length), data to the end
//!   3 restore: index of the snapshot that the log stands on from here on
//! ```
//! Each record says the hard state, so the newest segment alone has it.

use raft::eraftpb::{Entry, HardState};

use crate::state_machine::codec::{Cursor, StateError, put_bytes, put_u32, put_u64};

const HARD_STATE: u8 = 1;
const ENTRY: u8 = 2;
const RESTORE: u8 = 3;

/// One round of raft's ready loop, for the disk.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Record {
    pub(crate) bytes: Vec<u8>,
    /// The last entry in it, zero without any.
    pub(crate) last_index: u64,
}

/// One item of a record.
#[derive(Clone, PartialEq, Debug)]
pub(crate) enum Item {
    HardState(HardState),
    Entry(Entry),
    Restore(u64),
}

impl Record {
    /// Up to where it says that the log is committed.
    #[cfg(test)]
    pub(crate) fn committed(&self) -> u64 {
        let mut committed = 0;
        let note = |item| {
            if let Item::HardState(state) = item {
                committed = state.commit;
            }
        };
        decode(&self.bytes, note).expect("it was just made");
        committed
    }

    pub(crate) fn hard_state(&mut self, state: &HardState) {
        self.bytes.push(HARD_STATE);
        put_u32(&mut self.bytes, 24);
        put_u64(&mut self.bytes, state.term);
        put_u64(&mut self.bytes, state.vote);
        put_u64(&mut self.bytes, state.commit);
    }

    pub(crate) fn entries(&mut self, entries: &[Entry]) {
        for entry in entries {
            let len = 8 + 8 + 1 + 4 + entry.context.len() + entry.data.len();
            self.bytes.push(ENTRY);
            put_u32(&mut self.bytes, len as u32);
            put_u64(&mut self.bytes, entry.index);
            put_u64(&mut self.bytes, entry.term);
            self.bytes.push(entry.entry_type as u8);
            put_bytes(&mut self.bytes, &entry.context);
            self.bytes.extend_from_slice(&entry.data);
            self.last_index = entry.index;
        }
    }

    /// The log's base is the snapshot up to `index`, and the log holds nothing after it.
    pub(crate) fn rebase(index: u64, state: &HardState) -> Self {
        let mut record = Self::default();
        record.restore(index);
        record.hard_state(state);
        record
    }

    pub(crate) fn restore(&mut self, index: u64) {
        self.bytes.push(RESTORE);
        put_u32(&mut self.bytes, 8);
        put_u64(&mut self.bytes, index);
    }
}

/// Reads the records of a frame.
///
/// # Errors
/// The bytes are none; a checksum has covered them, so they were written like this.
pub(crate) fn decode(bytes: &[u8], mut each: impl FnMut(Item)) -> Result<(), StateError> {
    let mut cursor = Cursor::new(bytes, "a record of the log");
    while !cursor.is_at_end() {
        let kind = cursor.u8()?;
        let body = cursor.bytes()?;
        let mut inner = Cursor::new(body, "an item of the log");
        match kind {
            HARD_STATE => {
                let (term, vote, commit) = (inner.u64()?, inner.u64()?, inner.u64()?);
                inner.finish()?;
                each(Item::HardState(HardState { term, vote, commit }));
            }
            ENTRY => each(Item::Entry(entry(&mut inner, body)?)),
            RESTORE => {
                let index = inner.u64()?;
                inner.finish()?;
                each(Item::Restore(index));
            }
            _ => return Err(cursor.error()),
        }
    }
    Ok(())
}

fn entry(cursor: &mut Cursor<'_>, body: &[u8]) -> Result<Entry, StateError> {
    let (index, term) = (cursor.u64()?, cursor.u64()?);
    let entry_type = i32::from(cursor.u8()?);
    if raft::eraftpb::EntryType::from_i32(entry_type).is_none() {
        return Err(cursor.error());
    }
    let context = cursor.bytes()?.to_vec();
    let data = body[8 + 8 + 1 + 4 + context.len()..].to_vec();
    Ok(Entry {
        entry_type,
        term,
        index,
        data,
        context,
        ..Entry::default()
    })
}
