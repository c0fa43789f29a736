//! SCAN and COUNT at a pin: a page of a range as it was at an earlier position, and how many keys it had.
//!
//! The keys of that position are among those of now and the ghosts, which were removed since. Each key is looked up with
//! its shadows. What was written later, and what had expired by then, is passed by.

use super::{Full, PageBuilder, Span};
use crate::arena::ItemView;
use crate::command::{KeyRange, ScanOptions};
use crate::config::{COUNT_AT_KEYS_MAX, SCAN_KEYS_MAX};
use crate::error::StoreError;
use crate::interleave::{LANES, batch};
use crate::items::Items;
use crate::pins::Pin;
use crate::position::Position;
use crate::response::{Response, Versioned};
use crate::store::Store;
use std::borrow::Cow;
use std::cmp::Ordering;
use trine_canary as canary;
use trine_index::{KeyTree, Keys};

/// The keys of two trees in one order, each once.
struct Merged<'a> {
    first: Head<'a>,
    second: Head<'a>,
    reverse: bool,
}

/// A tree's keys with the next one in front.
struct Head<'a> {
    keys: Keys<'a>,
    key: Option<Vec<u8>>,
}

impl<'a> Head<'a> {
    fn of(tree: &'a KeyTree, span: &Span<'_>, reverse: bool) -> Self {
        let mut keys = match reverse {
            true => tree.range_backwards(span.bounds()),
            false => tree.range(span.bounds()),
        };
        let key = keys.next().map(<[u8]>::to_vec);
        Self { keys, key }
    }

    /// Moves the front key to `out`.
    fn take(&mut self, out: &mut Vec<u8>) {
        let Some(key) = &mut self.key else { return };
        std::mem::swap(out, key);
        if !self.keys.next_into(key) {
            self.key = None;
        }
    }

    /// The same without the key after it in front: for a head that no other is compared with any more.
    fn take_alone(&mut self, out: &mut Vec<u8>) -> bool {
        match self.key.take() {
            Some(key) => {
                *out = key;
                true
            }
            None => self.keys.next_into(out),
        }
    }
}

impl<'a> Merged<'a> {
    fn of(items: &'a Items, tree: &'a KeyTree, span: &Span<'_>, reverse: bool) -> Self {
        Self {
            first: Head::of(tree, span, reverse),
            second: Head::of(items.shadows.ghosts(), span, reverse),
            reverse,
        }
    }

    /// Moves the next key to `out`; false at the end.
    fn next(&mut self, out: &mut Vec<u8>) -> bool {
        let order = match (&self.first.key, &self.second.key) {
            (_, None) => return self.first.take_alone(out),
            (None, Some(_)) => Ordering::Greater,
            (Some(first), Some(second)) if self.reverse => second.cmp(first),
            (Some(first), Some(second)) => first.cmp(second),
        };
        if order.is_ge() {
            self.second.take(out);
        }
        if order.is_le() {
            self.first.take(out);
        }
        true
    }
}

impl Store {
    pub(in crate::store) fn scan_at(
        &self,
        position: Position,
        range: &KeyRange<'_>,
        options: ScanOptions,
    ) -> Response<'_> {
        match self.try_scan_at(position, range, options) {
            Ok((page, next)) => page.response(next),
            Err(error) => Response::Error(error),
        }
    }

    fn try_scan_at(
        &self,
        position: Position,
        range: &KeyRange<'_>,
        options: ScanOptions,
    ) -> Result<(PageBuilder, Option<Vec<u8>>), StoreError> {
        let pin = self.served_pin(position)?;
        let tree = self.whole_index()?;
        let span = self.span(range)?;
        if !(1..=SCAN_KEYS_MAX).contains(&options.limit) {
            let asked = options.limit;
            return Err(StoreError::BadKeyCount { asked });
        }
        let reverse = options.reverse;
        let mut keys = Merged::of(&self.items, tree, &span, reverse);
        let mut page = PageBuilder::default();
        let next = match self.fill_at(pin, &mut page, &mut keys, options) {
            Some(_) if reverse => Some(page.last.clone()),
            next => next,
        };
        Ok((page, next))
    }

    pub(in crate::store) fn count_at(
        &self,
        position: Position,
        range: &KeyRange<'_>,
    ) -> Response<'static> {
        match self.try_count_at(position, range) {
            Ok((items, next)) => Response::Counted {
                items,
                next: next.map(Cow::Owned),
            },
            Err(error) => Response::Error(error),
        }
    }

    /// Counts the first part of a range. The tree knows how many keys there are now, and no number of then.
    fn try_count_at(
        &self,
        position: Position,
        range: &KeyRange<'_>,
    ) -> Result<(u64, Option<Vec<u8>>), StoreError> {
        let pin = self.served_pin(position)?;
        let tree = self.whole_index()?;
        let mut keys = Merged::of(&self.items, tree, &self.span(range)?, false);
        let mut lanes: [Vec<u8>; LANES] = Default::default();
        let mut items = 0;
        for _ in 0..COUNT_AT_KEYS_MAX as usize / LANES {
            let mut count = 0;
            while count < LANES && keys.next(&mut lanes[count]) {
                count += 1;
            }
            items += self
                .get_all_at(pin, &lanes[..count])
                .iter()
                .flatten()
                .count() as u64;
            if count < LANES {
                return Ok((items, None));
            }
        }
        let next = keys
            .next(&mut lanes[0])
            .then(|| std::mem::take(&mut lanes[0]));
        Ok((items, next))
    }

    /// The pin, if this replica has kept what it needs. A replica that is behind says that it has not, for it cannot know.
    pub(in crate::store) fn served_pin(&self, position: Position) -> Result<&Pin, StoreError> {
        if position > self.applied {
            return Err(StoreError::PinNotHere);
        }
        let pin = self.pins.at(position).ok_or(StoreError::PinEnded)?;
        match self.items.shadows.serves(position) {
            true => Ok(pin),
            false => Err(StoreError::PinNotHere),
        }
    }

    /// Fills a page until it is full or the keys end. Returns the first key that was not looked at.
    fn fill_at(
        &self,
        pin: &Pin,
        page: &mut PageBuilder,
        keys: &mut Merged<'_>,
        options: ScanOptions,
    ) -> Option<Vec<u8>> {
        let mut lanes: [Vec<u8>; LANES] = Default::default();
        loop {
            let mut count = 0;
            while count < LANES && keys.next(&mut lanes[count]) {
                count += 1;
            }
            if count == 0 {
                return None;
            }
            let found = self.get_all_at(pin, &lanes[..count]);
            for (key, item) in lanes.iter().zip(found).take(count) {
                let taken = match item {
                    None => page.pass(key),
                    Some(_) if options.keys_only => page.add(key, None, options.limit),
                    item => page.add(key, item, options.limit),
                };
                if let Err(Full) = taken {
                    return Some(key.clone());
                }
            }
        }
    }

    /// The state of at most [`LANES`] keys at a pin that is served.
    fn get_all_at(&self, pin: &Pin, keys: &[Vec<u8>]) -> [Option<Versioned<'_>>; LANES] {
        let mut found = [None; LANES];
        batch::<LANES, _>(
            keys.len(),
            |number| self.items.lookup_later(&keys[number]),
            |number, current| found[number] = self.at_pin(pin, &keys[number], current),
        );
        found
    }

    /// The state of a key at a pin that is served. Most keys were not written since: their current item is that state.
    fn at_pin<'s>(
        &'s self,
        pin: &Pin,
        key: &[u8],
        current: Option<ItemView<'s>>,
    ) -> Option<Versioned<'s>> {
        if canary::planted("torn scan") {
            return self.get(key);
        }
        let was_there = |item: &ItemView<'_>| item.stamp.version <= pin.position();
        let ItemView { value, stamp, .. } = match current.filter(was_there) {
            Some(item) => item,
            None => self.items.lookup_at(key, pin.position())?,
        };
        (!pin.has_expired(stamp.expiry_ns)).then_some(Versioned {
            value,
            version: stamp.version,
        })
    }
}

impl PageBuilder {
    fn response(self, next: Option<Vec<u8>>) -> Response<'static> {
        Response::Items {
            items: crate::codec::List::from_encoded(self.count, Cow::Owned(self.items)),
            next: next.map(Cow::Owned),
        }
    }
}

#[cfg(test)]
mod tests;
