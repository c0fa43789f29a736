//! WALK: the items in the order of their reversed hashes, a page at a time.
//!
//! The place of a key in this order never changes: growth only divides the ranges of buckets, and every replica has the
//! same order. So a walk that goes on where a page has ended passes every key once that is there all the time. It goes
//! on at any replica, and needs nothing to be kept. At a pin all pages are the state of that one position. A page ends
//! before a place whose upper 52 bits are the cursor.

use super::Store;
use crate::arena::{ItemView, Location};
use crate::codec::{Field, List};
use crate::command::WalkContent;
use crate::config::{LIST_RESPONSE_BYTES_MAX, WALK_BUCKETS_MAX, WALK_BYTES_MAX, WALK_ITEMS_MAX};
use crate::cursor::{Cursor, DROPPED_BITS, Permutation};
use crate::error::StoreError;
use crate::hash::KeyHash;
use crate::interleave::LANES;
use crate::items::Items;
use crate::pins::Pin;
use crate::position::Position;
use crate::response::{Entry, Found, Page, Response};
use std::borrow::Cow;
use trine_canary as canary;

/// Which items a walk returns, and what of each.
pub(super) struct WalkSelection<'p> {
    content: WalkContent,
    prefix: &'p [u8],
    now_ns: u64,
    /// The position that is read, if it is not the present one.
    pin: Option<&'p Pin>,
}

impl<'p> WalkSelection<'p> {
    pub(super) fn new(content: WalkContent, prefix: &'p [u8], now_ns: u64) -> Self {
        Self {
            content,
            prefix,
            now_ns,
            pin: None,
        }
    }

    fn at(content: WalkContent, prefix: &'p [u8], pin: &'p Pin) -> Self {
        Self {
            content,
            prefix,
            now_ns: pin.time_ns(),
            pin: Some(pin),
        }
    }

    /// Appends what the walk returns of an item.
    fn write(&self, item: ItemView<'_>, bytes: &mut Vec<u8>) {
        let ItemView { key, value, stamp } = item;
        if self.content == WalkContent::Keys {
            return key.write_field(bytes);
        }
        // A key that is there has at least one nanosecond left, as for TTL.
        let left = stamp.expiry_ns.saturating_sub(self.now_ns).max(1);
        let entry = Entry {
            key,
            value,
            version: stamp.version,
            remaining_ns: (stamp.expiry_ns != 0).then_some(left),
        };
        entry.write_field(bytes);
    }
}

/// The page that is being filled.
#[derive(Default)]
struct Open {
    bytes: Vec<u8>,
    count: u32,
    looked_at: u32,
}

impl Open {
    fn response(self, position: Position, content: WalkContent, next: Cursor) -> Response<'static> {
        if self.bytes.len() > LIST_RESPONSE_BYTES_MAX {
            return Response::Error(StoreError::ResponseTooLarge);
        }
        let bytes = Cow::Owned(self.bytes);
        Response::Page(Page {
            position,
            next,
            found: match content {
                WalkContent::Keys => Found::Keys(List::from_encoded(self.count, bytes)),
                WalkContent::Items => Found::Items(List::from_encoded(self.count, bytes)),
            },
        })
    }
}

impl Store {
    pub(super) fn walk_at(
        &self,
        position: Position,
        from: Cursor,
        count: u32,
        (content, prefix): (WalkContent, &[u8]),
    ) -> Response<'static> {
        match self.served_pin(position) {
            Ok(pin) => self.walk(from, count, &WalkSelection::at(content, prefix, pin)),
            Err(error) => Response::Error(error),
        }
    }

    pub(super) fn walk(
        &self,
        from: Cursor,
        count: u32,
        selection: &WalkSelection<'_>,
    ) -> Response<'static> {
        let position = selection.pin.map_or(self.applied, Pin::position);
        let count = match count {
            0 => WALK_ITEMS_MAX,
            count => count.min(WALK_ITEMS_MAX),
        };
        let permutation = Permutation::new(self.hash_seed());
        let mut order = permutation.place(from) << DROPPED_BITS;
        let (mut page, mut bucket) = (Open::default(), Vec::new());
        for step in 0..WALK_BUCKETS_MAX {
            if step.is_multiple_of(LANES as u32) {
                self.items.warm_ranges(order);
            }
            let bits = self.items.bucket_from(order, selection.pin, &mut bucket);
            let stop = self.add_bucket(&mut page, count, selection, &bucket);
            if stop.is_some() && canary::planted("a walk forgets the rest of a bucket") {
                order = KeyHash::behind_range(order, bits).unwrap_or(0);
                break;
            }
            match stop.or_else(|| KeyHash::behind_range(order, bits)) {
                None => return page.response(position, selection.content, Cursor::START),
                Some(next) => order = next,
            }
            if stop.is_some() {
                break;
            }
        }
        let next = permutation.cursor(order >> DROPPED_BITS);
        page.response(position, selection.content, next)
    }

    /// The item in a block, if the walk returns it.
    fn walked(&self, selection: &WalkSelection<'_>, location: Location) -> Option<ItemView<'_>> {
        let (item, has_expired) = match selection.pin {
            None => {
                let item = self.items.arena.item(location);
                (item, self.has_expired(item.stamp.expiry_ns))
            }
            Some(pin) => {
                let item = self.items.item_at(location, pin.position())?;
                (item, pin.has_expired(item.stamp.expiry_ns))
            }
        };
        (!has_expired && item.key.starts_with(selection.prefix)).then_some(item)
    }

    /// Adds a bucket's items to the page; the place of the first one that found no room.
    fn add_bucket(
        &self,
        page: &mut Open,
        count: u32,
        selection: &WalkSelection<'_>,
        bucket: &[(u64, Location)],
    ) -> Option<u64> {
        // Items that a cursor cannot tell apart stay together.
        for group in
            bucket.chunk_by(|left, right| left.0 >> DROPPED_BITS == right.0 >> DROPPED_BITS)
        {
            if page.looked_at >= count {
                return Some(group[0].0);
            }
            let before = (page.bytes.len(), page.count);
            for &(_, location) in group {
                if let Some(item) = self.walked(selection, location) {
                    selection.write(item, &mut page.bytes);
                    page.count += 1;
                }
            }
            if page.bytes.len() > WALK_BYTES_MAX && before.1 > 0 {
                page.bytes.truncate(before.0);
                page.count = before.1;
                return Some(group[0].0);
            }
            page.looked_at += group.len() as u32;
        }
        None
    }
}

impl Items {
    /// The items of the bucket that this place of the order is in, of now or of a pin, from the place on and in order. Also how
    /// many hash bits that bucket covers.
    fn bucket_from(&self, order: u64, pin: Option<&Pin>, found: &mut Vec<(u64, Location)>) -> u32 {
        found.clear();
        let hash = KeyHash::from_order(order);
        self.table
            .for_each_in_chain(self.table.home(hash), |location| {
                let is_there = match pin {
                    None => !self.arena.is_shadowed(location),
                    Some(pin) => self.item_at(location, pin.position()).is_some(),
                };
                if !is_there {
                    return;
                }
                let place = self.hasher.key(self.arena.item(location).key).order();
                if place >= order {
                    found.push((place, location));
                }
            });
        let key = |location: Location| self.arena.item(location).key;
        found.sort_unstable_by(|left, right| {
            left.0
                .cmp(&right.0)
                .then_with(|| key(left.1).cmp(key(right.1)))
        });
        self.table.home_bits(hash)
    }
}
