//! SCAN, COUNT and DELETE of ranges, and the ordered index that they need.

mod at;

use super::Store;
use crate::codec::{Field, List};
use crate::command::{KeyRange, ScanOptions, after_prefix};
use crate::config::{
    COUNT_EXPIRED_MAX, DELETE_RANGE_ENTRY_KEYS_MAX, DELETE_RANGE_KEY_BYTES, DELETE_RANGE_KEYS_MAX,
    KEY_BYTES_MAX, SCAN_EXPIRED_MAX, SCAN_KEYS_MAX, SCAN_PAGE_BYTES,
};
use crate::error::StoreError;
use crate::interleave::LANES;
use crate::ordered::{Index, Ordered};
use crate::position::Position;
use crate::response::{RangeItem, Response, Versioned};
use std::borrow::Cow;
use std::ops::Bound;
use trine_canary as canary;
use trine_index::{KeyTree, Keys};

/// The ends of a range in the tree of keys.
struct Span<'a> {
    start: &'a [u8],
    end: Option<Cow<'a, [u8]>>,
}

impl Span<'_> {
    fn bounds(&self) -> (Bound<&[u8]>, Bound<&[u8]>) {
        let end = self
            .end
            .as_deref()
            .map_or(Bound::Unbounded, Bound::Excluded);
        (Bound::Included(self.start), end)
    }

    fn holds(&self, key: &[u8]) -> bool {
        key >= self.start && self.end.as_deref().is_none_or(|end| key < end)
    }
}

/// A page that is being filled.
#[derive(Default)]
struct PageBuilder {
    items: Vec<u8>,
    count: u32,
    /// The last key that was looked at, in the page or expired.
    last: Vec<u8>,
    /// Keys that were passed by.
    expired: u32,
}

/// How many keys DELETEs of ranges have looked at in a log entry. A batch may hold many of them, and no other command runs
/// meanwhile. No snapshot has this: none begins within an entry.
#[derive(Default, Debug)]
pub(super) struct Deletions {
    entry: u64,
    keys: u32,
}

impl Deletions {
    /// How many keys a DELETE at this position may look at.
    fn left(&self, at: Position) -> u32 {
        let done = match self.entry == at.index() {
            true => self.keys,
            false => 0,
        };
        (DELETE_RANGE_ENTRY_KEYS_MAX - done).min(DELETE_RANGE_KEYS_MAX)
    }

    fn note(&mut self, at: Position, keys: u32) {
        if self.entry != at.index() {
            (self.entry, self.keys) = (at.index(), 0);
        }
        self.keys += keys;
    }
}

/// Why a page takes no further key.
struct Full;

impl Store {
    /// Adds a part of the items to an ordered index that is being built. Every replica calls this once for each log
    /// entry, so that the index is whole at the same position everywhere.
    pub fn build_index(&mut self) {
        self.items.build_index();
    }

    /// A group that begins with an ordered index. The store has no items yet.
    #[must_use]
    pub fn with_ordered(mut self) -> Self {
        self.items.begin_with_index(Ordered::On);
        self
    }

    pub(super) fn set_ordered(&mut self, on: bool) -> Response<'_> {
        match (on, self.items.ordered()) {
            (false, _) => {
                self.end_pins();
                self.items.drop_index();
            }
            (true, Ordered::Off) => {
                let needed = self.items.logical_bytes() + self.items.index_charge();
                if needed > self.limits.memory_bytes {
                    return Response::Error(StoreError::NoRoomForIndex { needed });
                }
                self.items.begin_index();
            }
            (true, _) => {}
        }
        Response::Done
    }

    pub(super) fn scan(&self, range: &KeyRange<'_>, options: ScanOptions) -> Response<'_> {
        match self.try_scan(range, options) {
            Ok((page, next)) => Response::Items {
                items: List::from_encoded(page.count, Cow::Owned(page.items)),
                next: next.map(Cow::Owned),
            },
            Err(error) => Response::Error(error),
        }
    }

    fn try_scan(
        &self,
        range: &KeyRange<'_>,
        options: ScanOptions,
    ) -> Result<(PageBuilder, Option<Vec<u8>>), StoreError> {
        let tree = self.whole_index()?;
        let span = self.span(range)?;
        if !(1..=SCAN_KEYS_MAX).contains(&options.limit) {
            let asked = options.limit;
            return Err(StoreError::BadKeyCount { asked });
        }
        let mut keys = match options.reverse {
            true => tree.range_backwards(span.bounds()),
            false => tree.range(span.bounds()),
        };
        let mut page = PageBuilder::default();
        let next = match self.fill(&mut page, &mut keys, options) {
            // Going on in reverse, the last key that was looked at is the end, which does not belong to the range.
            Some(_) if options.reverse => Some(page.last.clone()),
            next => next,
        };
        Ok((page, next))
    }

    /// Fills a page until it is full or the keys end. Returns the first key that was not looked at.
    fn fill(
        &self,
        page: &mut PageBuilder,
        keys: &mut Keys<'_>,
        options: ScanOptions,
    ) -> Option<Vec<u8>> {
        // Without expired keys, a page of keys needs no item.
        let needs_items = !options.keys_only || self.has_expired_items();
        let mut lanes: [Vec<u8>; LANES] = Default::default();
        loop {
            let mut count = 0;
            while count < LANES && keys.next_into(&mut lanes[count]) {
                count += 1;
            }
            if count == 0 {
                return None;
            }
            let mut found = [None; LANES];
            if needs_items {
                self.get_interleaved(
                    count,
                    |number| &lanes[number],
                    |number, item| found[number] = item,
                );
            }
            for (key, item) in lanes.iter().zip(found).take(count) {
                let taken = match (needs_items, item) {
                    (true, None) => page.pass(key),
                    (_, item) => page.add(key, item.filter(|_| !options.keys_only), options.limit),
                };
                if taken.is_err() {
                    return Some(key.clone());
                }
            }
        }
    }

    pub(super) fn count_range(&self, range: &KeyRange<'_>) -> Response<'_> {
        match self.try_count(range) {
            Ok(items) => Response::Count { items },
            Err(error) => Response::Error(error),
        }
    }

    fn try_count(&self, range: &KeyRange<'_>) -> Result<u64, StoreError> {
        let tree = self.whole_index()?;
        let span = self.span(range)?;
        let all = tree.count(span.bounds());
        if all == 0 || !self.has_expired_items() {
            return Ok(all);
        }
        if all <= COUNT_EXPIRED_MAX as u64 {
            return Ok(self.count_one_by_one(tree.range(span.bounds())));
        }
        // Ahead of the work: a read that waits for the sweep asks again and again.
        if self.is_sweep_behind() {
            return Err(StoreError::SweepBehind);
        }
        let mut expired = 0;
        for (expiry_ns, hash) in self.items.expiries.due(self.group_time_ns) {
            let is_of_range = |key: &[u8]| span.holds(key);
            expired += self.items.count_due(hash, expiry_ns, is_of_range);
        }
        Ok(all - expired)
    }

    fn count_one_by_one(&self, mut keys: Keys<'_>) -> u64 {
        let mut count = 0;
        while let Some(key) = keys.next() {
            count += u64::from(self.get(key).is_some());
        }
        count
    }

    pub(super) fn delete_range(&mut self, range: &KeyRange<'_>, count: u32) -> Response<'_> {
        match self.try_delete_range(range, count) {
            Ok((removed, next)) => Response::RangeDeleted {
                removed,
                next: next.map(Cow::Owned),
            },
            Err(error) => Response::Error(error),
        }
    }

    fn try_delete_range(
        &mut self,
        range: &KeyRange<'_>,
        count: u32,
    ) -> Result<(u32, Option<Vec<u8>>), StoreError> {
        let tree = match canary::planted("range delete before the index is whole") {
            true => self.items.index().map(Index::keys).ok_or(OFF)?,
            false => self.whole_index()?,
        };
        let span = self.span(range)?;
        if count == 0 {
            return Err(StoreError::BadKeyCount { asked: 0 });
        }
        let most = count.min(self.deletions.left(self.applied));
        let mut keys = tree.range(span.bounds());
        let (mut first, mut bytes) = (Vec::new(), 0);
        while first.len() < most as usize
            && bytes < DELETE_RANGE_KEY_BYTES
            && let Some(key) = keys.next()
        {
            bytes += key.len();
            first.push(key.to_vec());
        }
        let next = keys.next().map(<[u8]>::to_vec);
        self.deletions.note(self.applied, first.len() as u32);
        let mut removed = 0;
        for key in first {
            let found = self.items.find(&key);
            removed += u32::from(self.live(found).is_some());
            let stamp = self.items.item(found).map(|item| item.stamp);
            self.items.remove(found);
            self.note_removed(&key, stamp);
        }
        Ok((removed, next))
    }

    /// Whether there are items that no command finds any more. While there are, reads of ranges look at more than they
    /// tell of.
    #[must_use]
    pub fn has_expired_items(&self) -> bool {
        let soonest = self.items.expiries.first();
        soonest.is_some_and(|(expiry_ns, _)| self.has_expired(expiry_ns))
    }

    /// The keys in their order, if they are all there.
    pub(super) fn whole_index(&self) -> Result<&KeyTree, StoreError> {
        let index = self.items.index().ok_or(OFF)?;
        match index.state() {
            Ordered::On => Ok(index.keys()),
            _ => Err(StoreError::NotOrdered { building: true }),
        }
    }

    /// The range in the tree. A bound that is longer than any key can be is a mistake.
    fn span<'r>(&self, range: &KeyRange<'r>) -> Result<Span<'r>, StoreError> {
        let limit = self.limits.key_bytes;
        match *range {
            KeyRange::Prefix(prefix) if prefix.len() > limit as usize => {
                Err(StoreError::PrefixTooLong { limit })
            }
            KeyRange::Prefix(prefix) => Ok(Span {
                start: prefix,
                end: after_prefix(prefix).map(Cow::Owned),
            }),
            // The limit may have been longer when keys were written.
            KeyRange::Between { start, end }
                if start.len().max(end.map_or(0, <[u8]>::len)) > KEY_BYTES_MAX as usize =>
            {
                Err(StoreError::KeyTooLong {
                    limit: KEY_BYTES_MAX,
                })
            }
            KeyRange::Between {
                start,
                end: Some(end),
            } if end < start => Err(StoreError::RangeReversed),
            KeyRange::Between { start, end } => Ok(Span {
                start,
                end: end.map(Cow::Borrowed),
            }),
        }
    }
}

const OFF: StoreError = StoreError::NotOrdered { building: false };

impl PageBuilder {
    /// Takes a key, unless the page is full.
    fn add(&mut self, key: &[u8], item: Option<Versioned<'_>>, limit: u32) -> Result<(), Full> {
        let bytes = key.len() + item.map_or(0, |item| item.value.len());
        let is_too_large = self.count > 0 && self.items.len() + bytes > SCAN_PAGE_BYTES;
        if self.count == limit || is_too_large {
            return Err(Full);
        }
        self.note(key);
        RangeItem { key, item }.write_field(&mut self.items);
        self.count += 1;
        if self.count == LANES as u32 {
            self.reserve(limit);
        }
        Ok(())
    }

    /// Makes room for as many items as are still asked for, if they are like those so far. A page that grew in steps would
    /// be copied at each.
    fn reserve(&mut self, limit: u32) {
        let of_all = self.items.len() / self.count as usize * limit as usize;
        let left = of_all.min(SCAN_PAGE_BYTES).saturating_sub(self.items.len());
        self.items.reserve(left);
    }

    /// Passes an expired key by, unless enough were.
    fn pass(&mut self, key: &[u8]) -> Result<(), Full> {
        if self.expired == SCAN_EXPIRED_MAX {
            return Err(Full);
        }
        self.expired += 1;
        self.note(key);
        Ok(())
    }

    fn note(&mut self, key: &[u8]) {
        self.last.clear();
        self.last.extend_from_slice(key);
    }
}

impl crate::items::Items {
    /// How many of the items with this hash and expiry have a key for which `counts` is true.
    fn count_due(
        &self,
        hash: crate::hash::KeyHash,
        expiry_ns: u64,
        counts: impl Fn(&[u8]) -> bool,
    ) -> u64 {
        let mut count = 0;
        self.table
            .for_each_in_chain(self.table.home(hash), |location| {
                let item = self.arena.item(location);
                let is_due = item.stamp.expiry_ns == expiry_ns
                    && !self.arena.is_shadowed(location)
                    && self.hasher.key(item.key) == hash;
                count += u64::from(is_due && counts(item.key));
            });
        count
    }
}

#[cfg(test)]
mod tests;
