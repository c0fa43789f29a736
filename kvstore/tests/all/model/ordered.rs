//! What SCAN, COUNT and DELETE of ranges must answer.

use super::{Answer, Item, Model, Pinned, answer};
use std::borrow::Cow;
use trine_kvstore::{
    Command, KeyRange, List, Position, RangeItem, Response, ScanOptions, StoreError, Versioned,
};

/// The index of the model: it has none, it only knows whether the group has one.
#[derive(Copy, Clone, Eq, PartialEq, Debug)]
pub(crate) enum Ordered {
    Off,
    Building,
    On,
}

/// What an item counts for the index: 32, the key, and half of the part of it that can lie in a node.
pub(super) fn for_index(key_bytes: usize) -> u64 {
    (32 + key_bytes + key_bytes.min(128) / 2) as u64
}

impl Model {
    /// With so few items, the next log entry builds the whole index.
    pub(crate) fn build_index(&mut self) {
        if self.ordered == Ordered::Building {
            self.ordered = Ordered::On;
        }
    }

    pub(super) fn apply_ordered(&mut self, command: &Command<'_>) -> Answer {
        let result = match command {
            Command::SetOrdered { on } => self.set_ordered(*on),
            Command::Scan { range, options } => self.scan(range, *options),
            Command::CountRange { range } => self.selected(range).map(|keys| {
                let items = keys.len() as u64;
                answer(Response::Count { items })
            }),
            Command::DeleteRange { range, count } => self.delete_range(range, *count),
            other => panic!("{other:?} is about no range"),
        };
        result.unwrap_or_else(|error| answer(Response::Error(error)))
    }

    pub(super) fn apply_pin(&mut self, at: Position, command: &Command<'_>) -> Answer {
        let is_there = |position| self.pins.iter().position(|pin| pin.position == position);
        let result = match command {
            Command::Pin => self.pin(at),
            Command::RenewPin { position } => match is_there(*position) {
                Some(_) => Ok(Response::Pinned {
                    position: *position,
                }),
                None => Err(StoreError::PinEnded),
            },
            Command::Unpin { position } => match is_there(*position) {
                Some(place) => {
                    self.pins.remove(place);
                    Ok(Response::Done)
                }
                None => Err(StoreError::PinEnded),
            },
            other => panic!("{other:?} is about no pin"),
        };
        answer(result.unwrap_or_else(Response::Error))
    }

    fn pin(&mut self, at: Position) -> Result<Response<'static>, StoreError> {
        if self.pins.len() == 8 {
            return Err(StoreError::TooManyPins { limit: 8 });
        }
        self.pins.push(Pinned {
            position: at,
            items: self.items.clone(),
        });
        Ok(Response::Pinned { position: at })
    }

    /// A page at a pin: the same as a page was then. `known` is false of a replica that has not kept what it needs.
    pub(crate) fn scan_at(
        &self,
        position: Position,
        range: &KeyRange<'_>,
        options: ScanOptions,
        known: bool,
    ) -> Answer {
        let pinned = self.pins.iter().find(|pin| pin.position == position);
        let result = match pinned {
            None => Err(StoreError::PinEnded),
            Some(_) if !known => Err(StoreError::PinNotHere),
            Some(pinned) => {
                let mut then = self.clone();
                then.items = pinned.items.clone();
                then.scan(range, options)
            }
        };
        result.unwrap_or_else(|error| answer(Response::Error(error)))
    }

    /// How many keys a range had at a pin.
    pub(crate) fn count_at(
        &self,
        position: Position,
        range: &KeyRange<'_>,
        known: bool,
    ) -> Result<u64, StoreError> {
        let pinned = self.pins.iter().find(|pin| pin.position == position);
        let pinned = pinned.ok_or(StoreError::PinEnded)?;
        if !known {
            return Err(StoreError::PinNotHere);
        }
        let mut then = self.clone();
        then.items = pinned.items.clone();
        Ok(then.selected(range)?.len() as u64)
    }

    /// What a walk at a pin tells: every key with its value and version.
    pub(crate) fn walk_at(&self, position: Position) -> Vec<(Vec<u8>, Vec<u8>, Position)> {
        let pinned = self.pins.iter().find(|pin| pin.position == position);
        let items = pinned.map(|pin| &pin.items).into_iter().flatten();
        items
            .map(|(key, item)| (key.clone(), item.value.clone(), item.version))
            .collect()
    }

    fn set_ordered(&mut self, on: bool) -> Result<Answer, StoreError> {
        if !on {
            self.ordered = Ordered::Off;
            self.pins.clear();
        } else if self.ordered == Ordered::Off {
            let for_index: u64 = self.items.keys().map(|key| for_index(key.len())).sum();
            let needed = self.logical_bytes() + for_index;
            if needed > self.limits.memory_bytes {
                return Err(StoreError::NoRoomForIndex { needed });
            }
            self.ordered = Ordered::Building;
        }
        Ok(answer(Response::Done))
    }

    /// The keys of a range, by comparing each with it.
    fn selected(&self, range: &KeyRange<'_>) -> Result<Vec<(&Vec<u8>, &Item)>, StoreError> {
        if self.ordered != Ordered::On {
            let building = self.ordered == Ordered::Building;
            return Err(StoreError::NotOrdered { building });
        }
        let limit = self.limits.key_bytes;
        match range {
            KeyRange::Prefix(prefix) if prefix.len() > limit as usize => {
                return Err(StoreError::PrefixTooLong { limit });
            }
            KeyRange::Between {
                start,
                end: Some(end),
            } if end < start => return Err(StoreError::RangeReversed),
            _ => {}
        }
        let is_in = |key: &[u8]| match range {
            KeyRange::Prefix(prefix) => key.starts_with(prefix),
            KeyRange::Between { start, end } => key >= start && end.is_none_or(|end| key < end),
        };
        Ok(self.items.iter().filter(|(key, _)| is_in(key)).collect())
    }

    fn scan(&self, range: &KeyRange<'_>, options: ScanOptions) -> Result<Answer, StoreError> {
        let mut keys = self.selected(range)?;
        if options.limit == 0 || options.limit > 16_384 {
            let asked = options.limit;
            return Err(StoreError::BadKeyCount { asked });
        }
        if options.reverse {
            keys.reverse();
        }
        let limit = options.limit as usize;
        let next = keys.get(limit).map(|(key, _)| match options.reverse {
            true => keys[limit - 1].0.as_slice(),
            false => key.as_slice(),
        });
        let page: Vec<_> = keys
            .iter()
            .take(limit)
            .map(|&(key, item)| RangeItem {
                key,
                item: (!options.keys_only).then_some(Versioned {
                    value: &item.value,
                    version: item.version,
                }),
            })
            .collect();
        Ok(answer(Response::Items {
            items: List::from(page.as_slice()),
            next: next.map(Cow::Borrowed),
        }))
    }

    fn delete_range(&mut self, range: &KeyRange<'_>, count: u32) -> Result<Answer, StoreError> {
        let keys = self.selected(range)?;
        if count == 0 {
            return Err(StoreError::BadKeyCount { asked: 0 });
        }
        let keys: Vec<Vec<u8>> = keys.iter().map(|(key, _)| (*key).clone()).collect();
        let (first, rest) = keys.split_at(keys.len().min(count.min(1_024) as usize));
        first.iter().for_each(|key| drop(self.items.remove(key)));
        Ok(answer(Response::RangeDeleted {
            removed: first.len() as u32,
            next: rest.first().map(|key| Cow::Borrowed(key.as_slice())),
        }))
    }
}
