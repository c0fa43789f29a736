//! DIR-24-8: the first 24 bits of an address are an index, and a longer prefix leads to 256 further entries.

use super::Route4;
use crate::config::{HOPS_MAX, LONG_GROUPS_MAX};
use crate::error::TableError;
use std::future::Future;
use trine_kvstore::interleave::fetch;
use trine_kvstore::memory::Region;

const FIRST_BITS: u32 = 24;
const GROUP: usize = 256;
/// An entry that leads to a group. The others are 0 for no route, or a next hop and 1.
const LINK: u16 = 1 << 15;

/// The table. It is built once and then read.
pub struct Dir24 {
    first: Region<u16>,
    long: Vec<u16>,
}

impl Dir24 {
    /// Enters routes. Of two with the same prefix the later one counts.
    ///
    /// # Errors
    ///
    /// [`TableError`] if a route is none, or if there are too many long prefixes.
    pub fn build(routes: &[Route4]) -> Result<Self, TableError> {
        let mut table = Self {
            first: Region::empty(),
            long: Vec::new(),
        };
        table.first.grow_to(1 << FIRST_BITS);
        let mut sorted: Vec<&Route4> = routes.iter().collect();
        // A longer prefix overwrites a part of a shorter one.
        sorted.sort_by_key(|route| route.length);
        for route in sorted {
            table.enter(route)?;
        }
        Ok(table)
    }

    fn enter(&mut self, route: &Route4) -> Result<(), TableError> {
        if route.length > 32 {
            let length = route.length;
            return Err(TableError::PrefixTooLong { length, most: 32 });
        }
        if route.hop > HOPS_MAX {
            let (hop, most) = (route.hop, HOPS_MAX);
            return Err(TableError::HopTooLarge { hop, most });
        }
        let entry = route.hop + 1;
        let length = u32::from(route.length);
        let start = route.start();
        if length <= FIRST_BITS {
            let from = (start >> 8) as usize;
            self.first[from..from + (1 << (FIRST_BITS - length))].fill(entry);
        } else {
            let group = self.group((start >> 8) as usize)?;
            let from = group + start as usize % GROUP;
            self.long[from..from + (1 << (32 - length))].fill(entry);
        }
        Ok(())
    }

    /// The first entry of the group behind an index, which is made if there is none.
    fn group(&mut self, index: usize) -> Result<usize, TableError> {
        let old = self.first[index];
        if old & LINK != 0 {
            return Ok(usize::from(old & !LINK) * GROUP);
        }
        let from = self.long.len();
        if from / GROUP == LONG_GROUPS_MAX {
            return Err(TableError::TooManyGroups {
                bits: FIRST_BITS,
                most: LONG_GROUPS_MAX,
            });
        }
        self.long.resize(from + GROUP, old);
        self.first[index] = LINK | (from / GROUP) as u16;
        Ok(from)
    }

    /// The entry for the first 24 bits.
    #[inline(always)]
    #[must_use]
    pub fn first(&self, address: u32) -> &u16 {
        &self.first[(address >> 8) as usize]
    }

    /// The entry behind a link.
    #[inline(always)]
    #[must_use]
    pub fn behind(&self, link: u16, address: u32) -> &u16 {
        &self.long[usize::from(link & !LINK) * GROUP + address as usize % GROUP]
    }

    /// Whether an entry leads to a group.
    #[inline(always)]
    #[must_use]
    pub fn is_link(entry: u16) -> bool {
        entry & LINK != 0
    }

    /// The next hop in an entry that is no link.
    #[inline(always)]
    #[must_use]
    pub fn hop(entry: u16) -> Option<u16> {
        entry.checked_sub(1)
    }

    /// The next hop of the longest prefix of an address.
    #[inline(always)]
    pub fn find<const N: usize>(&self, address: u32) -> impl Future<Output = Option<u16>> {
        async move {
            let place = self.first(address);
            fetch(place).await;
            if !Self::is_link(*place) {
                return Self::hop(*place);
            }
            let place = self.behind(*place, address);
            fetch(place).await;
            Self::hop(*place)
        }
    }
}
