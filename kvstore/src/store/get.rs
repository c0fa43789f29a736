//! GET, one by one and interleaved.

use super::Store;
use crate::arena::{Item, Location};
use crate::interleave::{LANES, batch, fetch};
use crate::response::Versioned;
use std::future::Future;

impl Store {
    /// The value of a key with its version.
    #[inline]
    #[must_use]
    pub fn get(&self, key: &[u8]) -> Option<Versioned<'_>> {
        self.live(self.items.find(key)).map(versioned)
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
            |number| self.items.locate(key(number)),
            |number, location: Option<Location>| {
                let item = location.map(|location| self.items.arena.item(location));
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
fn versioned(item: Item<'_>) -> Versioned<'_> {
    Versioned {
        value: item.value,
        version: item.stamp.version,
    }
}

impl crate::items::Items {
    /// Finds a key, fetching the bucket and the item before it looks at them.
    #[inline(always)]
    pub(crate) fn locate(&self, key: &[u8]) -> impl Future<Output = Option<Location>> {
        let hash = self.hasher.key(key);
        let (table, arena) = (&self.table, &self.arena);
        async move {
            let mut bucket = table.bucket(table.home(hash));
            loop {
                fetch(bucket).await;
                let mut matching = bucket.matching(hash.tag());
                while matching != 0 {
                    let location = bucket.location(matching.trailing_zeros());
                    arena.prefetch_second_line(location);
                    fetch(arena.first_byte(location)).await;
                    if arena.is_current(location, key) {
                        return Some(location);
                    }
                    matching &= matching - 1;
                }
                bucket = table.bucket(bucket.next()?);
            }
        }
    }
}
