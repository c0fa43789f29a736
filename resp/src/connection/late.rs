//! Which invalidations have to follow the answer that a client waits for?
//!
//! A change may be told before the answer with the value from before it. The client would keep that value. So what is
//! told meanwhile is remembered, and repeated behind the answer unless the answer has seen it.

use std::collections::VecDeque;

use trine_kvstore::Position;

use crate::limits::{LATE_BYTES_MAX, LATE_KEY_CHARGE_BYTES, OWN_POSITIONS_MAX};

/// What is known of invalidations while a call is under way.
#[derive(Default, Debug)]
pub(super) struct Meanwhile {
    /// The keys that the call reads, for the table of tracking.
    read: Vec<Box<[u8]>>,
    /// Changes of keys.
    keys: Vec<(Box<[u8]>, Position)>,
    bytes: usize,
    /// A change of all keys, or of too many.
    all: Option<Position>,
    /// Where this client's last writes were applied.
    own: VecDeque<Position>,
}

/// What follows an answer.
#[derive(Default, Debug)]
pub(crate) struct Late {
    /// The keys that the call has read.
    pub(crate) read: Vec<Box<[u8]>>,
    /// What the values in the answer are as of.
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

    /// A new call reads other keys.
    pub(super) fn begin(&mut self) {
        self.read.clear();
    }

    /// A key has changed while the call is under way.
    pub(super) fn note(&mut self, key: &[u8], at: Position) {
        self.bytes += key.len() + LATE_KEY_CHARGE_BYTES;
        if self.bytes > LATE_BYTES_MAX {
            self.note_all(at);
        } else {
            self.keys.push((key.into(), at));
        }
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

    /// The call is over, and its values are as of `seen`.
    pub(super) fn end(&mut self, seen: Position) -> Late {
        let own = std::mem::take(&mut self.own);
        let keys = std::mem::take(&mut self.keys);
        let is_late = |at: &Position| *at > seen && !own.contains(at);
        let late = Late {
            read: std::mem::take(&mut self.read),
            seen,
            all: self.all.take().is_some_and(|at| at > seen),
            keys: keys
                .into_iter()
                .filter(|(_, at)| is_late(at))
                .map(|(key, _)| key)
                .collect(),
        };
        (self.own, self.bytes) = (own, 0);
        late
    }

    /// Bytes that it holds.
    pub(super) fn held_bytes(&self) -> usize {
        let read: usize = self.read.iter().map(|key| key.len() + 16).sum();
        read + self.bytes
    }
}
