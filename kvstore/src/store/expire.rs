//! Group time, and keys that expire.
//!
//! An item whose expiry has come is absent for every command from then on. Its memory is freed by a
//! sweep that is part of the replicated order: each step of group time removes some, and so does a
//! command that lacks room. The memory limit must see the same items on every replica.

use super::Store;
use crate::arena::{ItemView, Stamp};
use crate::command::{ExpireCondition, Kind, SWEEP_VERSION};
use crate::config::{
    COUNT_EXPIRED_MAX, ROOM_ENTRY_ITEMS_MAX, ROOM_ITEMS_MAX, SWEEP_ITEMS_MAX, SWEEP_ITEMS_MIN,
};
use crate::error::StoreError;
use crate::expiry::is_over;
use crate::history::History;
use crate::items::KeyLookup;
use crate::position::Position;
use crate::response::Response;
use trine_canary as canary;

/// What a sweep has removed.
#[derive(Copy, Clone, Eq, PartialEq, Default, Debug)]
pub struct Swept {
    /// Items that were removed.
    pub items: u32,
    /// Bytes that their events take in a watch history, whether or not this store keeps one.
    pub event_bytes: u64,
}

/// Items that commands of a log entry have removed to make room. No snapshot has this: none begins within an entry.
#[derive(Default, Debug)]
pub(super) struct RoomMade {
    entry: u64,
    items: u32,
}

impl RoomMade {
    fn in_entry(&mut self, at: Position) -> &mut u32 {
        if self.entry != at.index() {
            (self.entry, self.items) = (at.index(), 0);
        }
        &mut self.items
    }
}

impl Store {
    /// Moves group time forward, never back, and removes up to [`SWEEP_ITEMS_MIN`] expired items.
    /// Every replica calls this with the same times between the same commands.
    pub fn set_group_time(&mut self, group_time_ns: u64) {
        self.step_group_time(group_time_ns, 0);
    }

    /// The same for a log entry that asks for up to `asked` items to be removed. The number is clamped to
    /// [`SWEEP_ITEMS_MIN`] and [`SWEEP_ITEMS_MAX`]; a group that runs an older version than [`SWEEP_VERSION`] ignores it.
    pub fn step_group_time(&mut self, group_time_ns: u64, asked: u16) -> Swept {
        let ignores_version = canary::planted("a sweep's number without the state version");
        let most = match self.state_version >= SWEEP_VERSION || ignores_version {
            true => u32::from(asked).clamp(SWEEP_ITEMS_MIN, SWEEP_ITEMS_MAX),
            false => SWEEP_ITEMS_MIN,
        };
        self.group_time_ns = self.group_time_ns.max(group_time_ns);
        self.expire_pins();
        // A sweep stands between two commands: behind every pin so far, and before the next one.
        self.items.changes_at = self.applied.next();
        self.sweep(most)
    }

    /// Whether commands of this entry may still remove expired items.
    pub(super) fn may_make_room(&mut self) -> bool {
        self.state_version >= SWEEP_VERSION
            && *self.room_made.in_entry(self.applied) < ROOM_ENTRY_ITEMS_MAX
    }

    /// Removes expired items so that the running command finds room. Returns whether it removed any.
    pub(super) fn make_room(&mut self) -> bool {
        if !self.may_make_room() {
            return false;
        }
        let made = *self.room_made.in_entry(self.applied);
        let most = (ROOM_ENTRY_ITEMS_MAX - made).min(ROOM_ITEMS_MAX);
        // Watchers see the same event for an item that expired, whoever removes it.
        let running = self.running();
        self.begin_operation(Kind::Expire);
        let items = self.sweep(most).items;
        self.begin_operation(running);
        *self.room_made.in_entry(self.applied) += items;
        items > 0
    }

    fn sweep(&mut self, most: u32) -> Swept {
        let mut swept = Swept::default();
        while swept.items < most
            && let Some((expiry_ns, hash)) = self.items.expiries.first()
            && self.has_expired(expiry_ns)
        {
            let history = &mut self.history;
            self.items.remove_expired(hash, expiry_ns, |key| {
                swept.event_bytes += History::expired_bytes(key);
                if let Some(history) = history {
                    history.swept(key);
                }
            });
            swept.items += 1;
        }
        swept
    }

    /// Whether more than [`COUNT_EXPIRED_MAX`] items have expired and are not removed yet: while that is so, nothing that
    /// has to leave them out is counted.
    #[must_use]
    pub fn is_sweep_behind(&self) -> bool {
        let mut due = self.items.expiries.due(self.group_time_ns);
        due.nth(COUNT_EXPIRED_MAX).is_some()
    }

    /// The keys that have not expired.
    pub(super) fn count(&self) -> Response<'_> {
        if self.state_version < SWEEP_VERSION {
            return self.count_stored();
        }
        if self.is_sweep_behind() {
            return Response::Error(StoreError::SweepBehind);
        }
        let expired = self.items.expiries.count_due(self.group_time_ns);
        Response::Count {
            items: self.items.count() - expired,
        }
    }

    /// All keys that are still stored. A transaction counts these: it may count thousands of times, and to leave out what
    /// has expired takes thousands of steps each time.
    pub(super) fn count_stored(&self) -> Response<'static> {
        Response::Count {
            items: self.items.count(),
        }
    }

    /// Group time in nanoseconds.
    #[must_use]
    pub fn group_time(&self) -> u64 {
        self.group_time_ns
    }

    /// When the next item expires, in nanoseconds of group time. By then the leader must have moved
    /// group time.
    #[must_use]
    pub fn next_expiry(&self) -> Option<u64> {
        self.items.expiries.first().map(|(expiry_ns, _)| expiry_ns)
    }

    #[inline]
    pub(super) fn has_expired(&self, expiry_ns: u64) -> bool {
        is_over(expiry_ns, self.group_time_ns)
    }

    pub(super) fn expiry_after(&self, after_ns: u64) -> u64 {
        self.group_time_ns.saturating_add(after_ns.max(1))
    }

    pub(super) fn expire(&mut self, at: Position, key: &[u8], after_ns: u64) -> Response<'_> {
        let found = self.items.find(key);
        if self.live(found).is_none() {
            return Response::NotFound;
        }
        let expiry_ns = self.expiry_after(after_ns);
        self.restamp(at, found, key, expiry_ns)
    }

    pub(super) fn expire_if(
        &mut self,
        at: Position,
        key: &[u8],
        after_ns: u64,
        (condition, margin_ns): (ExpireCondition, u64),
    ) -> Response<'_> {
        let found = self.items.find(key);
        let Some(current) = self.live(found).map(|item| item.stamp) else {
            return Response::NotFound;
        };
        let expiry_ns = self.group_time_ns.saturating_add(after_ns);
        if !condition.holds(current.expiry_ns, expiry_ns, margin_ns) {
            return Response::Conflict {
                current: Some(current.version),
            };
        }
        match after_ns {
            0 => self.delete(key),
            _ => self.restamp(at, found, key, expiry_ns),
        }
    }

    pub(super) fn persist(&mut self, at: Position, key: &[u8]) -> Response<'_> {
        let found = self.items.find(key);
        match self.live(found).map(|item| item.stamp) {
            None => Response::NotFound,
            Some(Stamp {
                version,
                expiry_ns: 0,
            }) => Response::Conflict {
                current: Some(version),
            },
            Some(_) => self.restamp(at, found, key, 0),
        }
    }

    /// A key that is there has at least one nanosecond left.
    pub(super) fn time_to_live(&self, key: &[u8], now_ns: u64) -> Response<'_> {
        let now_ns = now_ns.max(self.group_time_ns);
        match self.live(self.items.find(key)) {
            None => Response::NotFound,
            Some(ItemView {
                stamp: Stamp { expiry_ns: 0, .. },
                ..
            }) => Response::TimeToLive { remaining_ns: None },
            Some(ItemView { stamp, .. }) => Response::TimeToLive {
                remaining_ns: Some(stamp.expiry_ns.saturating_sub(now_ns).max(1)),
            },
        }
    }

    /// Gives an item another expiry and, because that is a change, another version.
    fn restamp(
        &mut self,
        at: Position,
        found: KeyLookup,
        key: &[u8],
        expiry_ns: u64,
    ) -> Response<'_> {
        match self.try_restamp(
            found,
            key,
            Stamp {
                version: at,
                expiry_ns,
            },
        ) {
            Ok(()) => Response::Written { version: at },
            Err(error) => Response::Error(error),
        }
    }

    fn try_restamp(
        &mut self,
        found: KeyLookup,
        key: &[u8],
        stamp: Stamp,
    ) -> Result<(), StoreError> {
        let mut value = std::mem::take(&mut self.scratch);
        value.clear();
        value.extend_from_slice(self.items.item(found).map_or(&[], |item| item.value));
        let noted = self.note_for_undo(found, key);
        if noted.is_ok() {
            self.items.put(found, key, &value, stamp);
            self.note_written(key, &value, stamp);
        }
        self.scratch = value;
        noted
    }
}
