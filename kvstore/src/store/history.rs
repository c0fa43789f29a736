//! What a command has changed, for the history.
//!
//! A command that may be undone notes nothing on its way. Once it is done, its journal says which keys it has touched,
//! and the store says what has become of them.

use super::Store;
use super::journal::Journal;
use crate::arena::Stamp;
use crate::command::Kind;
use crate::expiry::is_over;
use crate::history::History;
use crate::position::Position;

impl Store {
    /// Keeps events of the changes behind `after`, in up to `bytes` of memory; with 0 none. It is no part of the
    /// replicated state.
    pub fn keep_history(&mut self, bytes: usize, after: Position) {
        self.history = (bytes > 0).then(|| Box::new(History::new(bytes, after)));
    }

    /// The latest events, if they are kept.
    #[must_use]
    pub fn history(&self) -> Option<&History> {
        self.history.as_deref()
    }

    /// The log entry begins whose first command is at `at`: what the sweep removes has this position.
    pub fn begin_entry(&mut self, at: Position) {
        if let Some(history) = &mut self.history {
            history.begin_entry(at);
        }
    }

    /// A key was written.
    #[inline]
    pub(super) fn note_written(&mut self, key: &[u8], value: &[u8], stamp: Stamp) {
        if let (Some(history), false) = (&mut self.history, self.journal.is_open()) {
            let remaining = remaining_ns(stamp, self.group_time_ns);
            history.written(key, value, remaining);
        }
    }

    /// A key was removed that had this stamp.
    #[inline]
    pub(super) fn note_removed(&mut self, key: &[u8], stamp: Option<Stamp>) {
        let expired = stamp.is_some_and(|stamp| self.has_expired(stamp.expiry_ns));
        if let (Some(history), false) = (&mut self.history, self.journal.is_open()) {
            history.removed(key, expired);
        }
    }

    /// The kind of command that a journal entry is made by.
    pub(super) fn running(&self) -> Kind {
        self.history
            .as_ref()
            .map_or(Kind::Execute, |history| history.command())
    }

    /// An operation of an EXEC begins.
    pub(super) fn begin_operation(&mut self, kind: Kind) {
        if let Some(history) = &mut self.history {
            history.set_command(kind);
        }
    }

    /// A command that could have been undone is done: one event for each key that is another one now.
    pub(super) fn note_journal(&mut self, journal: &mut Journal) {
        let Some(history) = &mut self.history else {
            return;
        };
        for change in journal.net_changes() {
            history.set_command(change.by);
            let found = self.items.find_hashed(change.hash, change.key);
            match (self.items.item(found), change.before) {
                (Some(item), _) => {
                    let remaining = remaining_ns(item.stamp, self.group_time_ns);
                    history.written(change.key, item.value, remaining);
                }
                (None, Some(stamp)) => {
                    let expired = is_over(stamp.expiry_ns, self.group_time_ns);
                    history.removed(change.key, expired);
                }
                (None, None) => {}
            }
        }
    }
}

fn remaining_ns(stamp: Stamp, now_ns: u64) -> Option<u64> {
    match stamp.expiry_ns {
        0 => None,
        expiry_ns => Some(expiry_ns.saturating_sub(now_ns).max(1)),
    }
}
