//! GET, one by one and interleaved.

use super::Store;
use crate::arena::ItemView;
use crate::interleave::{LANES, batch, fetch};
use crate::response::Versioned;
use std::future::Future;

impl Store {
    /// The value of a key with its version.
    #[inline]
    #[must_use]
    pub fn get(&self, key: &[u8]) -> Option<Versioned<'_>> {
        let item = self.items.lookup(key)?;
        if self.has_expired(item.stamp.expiry_ns) {
            None
        } else {
            Some(versioned(item))
        }
    }

    /// Looks up `count` keys in an interleaved way. `found` gets each result with its number, in
    /// no particular order.
    #[inline]
    pub fn get_interleaved<'s, 'k>(
        &'s self,
        count: usize,
        key: impl Fn(usize) -> &'k [u8],
        mut found: impl FnMut(usize, Option<Versioned<'s>>),
    ) {
        batch::<LANES, _>(
            count,
            |number| self.items.lookup_later(key(number)),
            |number, item| {
                found(
                    number,
                    item.filter(|item| !self.has_expired(item.stamp.expiry_ns))
                        .map(versioned),
                );
            },
        );
    }
}

#[inline(always)]
fn versioned(item: ItemView<'_>) -> Versioned<'_> {
    Versioned {
        value: item.value,
        version: item.stamp.version,
    }
}

impl crate::items::Items {
    /// The item of a key.
    #[inline]
    pub(crate) fn lookup(&self, key: &[u8]) -> Option<ItemView<'_>> {
        self.table.lookup(self.hasher.key(key), |location| {
            self.arena.current(location, key)
        })
    }

    /// Finds the item of a key, fetching bucket and block before it reads them.
    #[inline(always)]
    pub(crate) fn lookup_later(&self, key: &[u8]) -> impl Future<Output = Option<ItemView<'_>>> {
        let hash = self.hasher.key(key);
        let (table, arena) = (&self.table, &self.arena);
        let mut bucket = table.home_bucket(hash);
        async move {
            loop {
                fetch(bucket).await;
                let mut matching = bucket.matching(hash.tag());
                while matching != 0 {
                    let location = bucket.location(matching.trailing_zeros());
                    arena.prefetch_second_line(location);
                    fetch(arena.first_byte(location)).await;
                    if let Some(item) = arena.current(location, key) {
                        return Some(item);
                    }
                    matching &= matching - 1;
                }
                bucket = table.bucket(bucket.next()?);
            }
        }
    }
}
