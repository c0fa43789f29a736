//! PUT, SET, CAS and APPEND, and the one function through which every write goes.

use super::Store;
use crate::arena::Stamp;
use crate::codec::length_u32;
use crate::command::{SetCondition, SetExpiry, SetOptions};
use crate::error::StoreError;
use crate::items::KeyLookup;
use crate::position::Position;
use crate::response::{Response, Versioned};

impl Store {
    pub(super) fn put(&mut self, at: Position, key: &[u8], value: &[u8]) -> Response<'_> {
        let found = self.items.find(key);
        match self.write(
            found,
            key,
            value,
            Stamp {
                version: at,
                expiry_ns: 0,
            },
        ) {
            Ok(()) => Response::Written { version: at },
            Err(error) => Response::Error(error),
        }
    }

    pub(super) fn set(
        &mut self,
        at: Position,
        key: &[u8],
        value: &[u8],
        options: SetOptions,
    ) -> Response<'_> {
        let found = self.items.find(key);
        let present = self.live(found).map(|item| item.stamp);
        let previous = if options.return_previous {
            self.depart(found)
        } else {
            None
        };
        let holds = match options.condition {
            SetCondition::Always => true,
            SetCondition::Absent => present.is_none(),
            SetCondition::Present => present.is_some(),
        };
        if holds {
            let expiry_ns = match options.expiry {
                SetExpiry::Never => 0,
                SetExpiry::Keep => present.map_or(0, |stamp| stamp.expiry_ns),
                SetExpiry::After(after_ns) => self.expiry_after(after_ns),
            };
            if let Err(error) = self.write(
                found,
                key,
                value,
                Stamp {
                    version: at,
                    expiry_ns,
                },
            ) {
                return Response::Error(error);
            }
        }
        let written = holds.then_some(at);
        if options.return_previous {
            let previous = previous.map(|version| Versioned {
                value: &self.departing,
                version,
            });
            return Response::Exchanged { previous, written };
        }
        match written {
            Some(version) => Response::Written { version },
            None => Response::Conflict {
                current: present.map(|stamp| stamp.version),
            },
        }
    }

    pub(super) fn compare_and_swap(
        &mut self,
        at: Position,
        key: &[u8],
        expected: Position,
        value: &[u8],
    ) -> Response<'_> {
        let found = self.items.find(key);
        let Some(stamp) = self.live(found).map(|item| item.stamp) else {
            return Response::Error(StoreError::KeyMissing);
        };
        if stamp.version != expected {
            return Response::Conflict {
                current: Some(stamp.version),
            };
        }
        match self.write(
            found,
            key,
            value,
            Stamp {
                version: at,
                ..stamp
            },
        ) {
            Ok(()) => Response::Written { version: at },
            Err(error) => Response::Error(error),
        }
    }

    pub(super) fn append(&mut self, at: Position, key: &[u8], value: &[u8]) -> Response<'_> {
        let found = self.items.find(key);
        let mut whole = std::mem::take(&mut self.scratch);
        whole.clear();
        let mut expiry_ns = 0;
        if let Some(item) = self.live(found) {
            whole.extend_from_slice(item.value);
            expiry_ns = item.stamp.expiry_ns;
        }
        whole.extend_from_slice(value);
        let result = self.write(
            found,
            key,
            &whole,
            Stamp {
                version: at,
                expiry_ns,
            },
        );
        let bytes = whole.len();
        self.scratch = whole;
        match result {
            Ok(()) => Response::Length {
                bytes: length_u32(bytes),
                version: at,
            },
            Err(error) => Response::Error(error),
        }
    }

    /// Checks a write against the limits and does it.
    pub(super) fn write(
        &mut self,
        found: KeyLookup,
        key: &[u8],
        value: &[u8],
        stamp: Stamp,
    ) -> Result<(), StoreError> {
        if key.len() > self.limits.key_bytes as usize {
            return Err(StoreError::KeyTooLong {
                limit: self.limits.key_bytes,
            });
        }
        if value.len() > self.limits.value_bytes as usize {
            return Err(StoreError::ValueTooLong {
                limit: self.limits.value_bytes,
            });
        }
        let mut found = found;
        if !self.has_room(found, key, value) {
            // A command that may be undone starts again instead: what it has kept must not mix with a sweep.
            if self.journal.is_open() || !self.make_room() {
                return Err(self.full());
            }
            found = self.items.find(key);
            if !self.has_room(found, key, value) {
                return Err(self.full());
            }
        }
        self.note_for_undo(found, key)?;
        self.items.put(found, key, value, stamp);
        self.note_written(key, value, stamp);
        Ok(())
    }

    fn has_room(&self, found: KeyLookup, key: &[u8], value: &[u8]) -> bool {
        let before = self.items.item(found).map_or(0, |item| {
            self.items.charge(item.key.len(), item.value.len())
        });
        let after = self.items.charge(key.len(), value.len());
        let total = self.items.logical_bytes() - before + after;
        after <= before || total <= self.limits.memory_bytes
    }

    fn full(&mut self) -> StoreError {
        self.journal.lacked_room = true;
        StoreError::Full {
            limit: self.limits.memory_bytes,
        }
    }

    /// Keeps a live item's value for the response, because the command is about to end it.
    pub(super) fn depart(&mut self, found: KeyLookup) -> Option<Position> {
        let mut departing = std::mem::take(&mut self.departing);
        departing.clear();
        let version = self.live(found).map(|item| {
            departing.extend_from_slice(item.value);
            item.stamp.version
        });
        self.departing = departing;
        version
    }
}
