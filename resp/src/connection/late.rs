//! Invalidations that have to follow the answer that a client waits for.
//!
//! A change may be told before the answer with the value from before it. The client would keep that value. So what is
//! told meanwhile is remembered, and repeated behind the answer unless the answer has seen it.

use std::collections::VecDeque;

use trine_kvstore::Position;

use crate::limits::{LATE_BYTES_MAX, LATE_KEY_CHARGE_BYTES, OWN_POSITIONS_MAX};

/// Invalidations that have come while a call is under way.
#[derive(Default, Debug)]
pub(super) struct Meanwhile {
    /// The keys that the call reads, for the table of tracking.
    read: Vec<Box<[u8]>>,
    /// It has commands that only read.
    has_reads: bool,
    /// Changes of keys that were told, and are repeated unless the answer has seen them.
    keys: Vec<(Box<[u8]>, Position)>,
    /// Changes that were not told, because they may be the client's own.
    held: Vec<(Box<[u8]>, Position)>,
    bytes: usize,
    /// A change of all keys, or of too many.
    all: Option<Position>,
    /// Where this client's last writes were applied.
    own: VecDeque<Position>,
}

/// The invalidations that follow an answer.
#[derive(Default, Debug)]
pub(crate) struct Late {
    /// The keys that the call has read.
    pub(crate) read: Vec<Box<[u8]>>,
    /// The client tracks by broadcast: the table knows nothing of these keys.
    pub(crate) broadcast: bool,
    /// The values in the answer are as of this position.
    pub(crate) seen: Position,
    /// Everything that the client knows is invalid.
    pub(crate) all: bool,
    /// These keys are.
    pub(crate) keys: Vec<Box<[u8]>>,
}

impl Meanwhile {
    /// The call that is about to begin reads this key.
    pub(super) fn reads(&mut self, key: &[u8]) {
        self.read.push(key.into());
    }

    /// The call that is about to begin reads something.
    pub(super) fn note_reads(&mut self) {
        self.has_reads = true;
    }

    /// A new call reads other keys.
    pub(super) fn begin(&mut self) {
        self.read.clear();
        self.has_reads = false;
    }

    /// A key has changed while the call is under way. The client was told.
    pub(super) fn note(&mut self, key: &[u8], at: Position) {
        match self.has_room(key) {
            true => self.keys.push((key.into(), at)),
            false => self.note_all(at),
        }
    }

    /// A key has changed while the call is under way. The client was not told.
    pub(super) fn hold(&mut self, key: &[u8], at: Position) {
        match self.has_room(key) {
            true => self.held.push((key.into(), at)),
            false => self.note_all(Position::from_u64(u64::MAX)),
        }
    }

    fn has_room(&mut self, key: &[u8]) -> bool {
        self.bytes += key.len() + LATE_KEY_CHARGE_BYTES;
        self.bytes <= LATE_BYTES_MAX
    }

    /// All keys may have changed while the call is under way.
    pub(super) fn note_all(&mut self, at: Position) {
        self.all = self.all.max(Some(at));
    }

    /// Whether a change is this client's own.
    pub(super) fn is_own(&self, at: Position) -> bool {
        self.own.contains(&at)
    }

    /// A write of this client was applied here.
    pub(super) fn note_own(&mut self, at: Position) {
        if self.own.len() == OWN_POSITIONS_MAX {
            self.own.pop_front();
        }
        self.own.push_back(at);
    }

    /// The call is over, and its answer has seen the store as of `position`. `writes`: it was applied there.
    pub(super) fn end(&mut self, position: Position, writes: bool) -> Late {
        // A call may have read something before its own writes.
        let seen = match writes && self.has_reads {
            true => Position::from_u64(position.as_u64().saturating_sub(1)),
            false => position,
        };
        let keys = std::mem::take(&mut self.keys);
        let held = std::mem::take(&mut self.held);
        let repeated = keys.into_iter().filter(|(_, at)| *at > seen);
        let foreign = held.into_iter().filter(|(_, at)| !self.own.contains(at));
        let keys = repeated.chain(foreign).map(|(key, _)| key).collect();
        self.bytes = 0;
        Late {
            read: std::mem::take(&mut self.read),
            broadcast: false,
            seen,
            all: self.all.take().is_some_and(|at| at > seen),
            keys,
        }
    }

    /// Bytes that it holds.
    pub(super) fn held_bytes(&self) -> usize {
        let read: usize = self.read.iter().map(|key| key.len() + 16).sum();
        read + self.bytes
    }
}
