//! The paper's algorithm for IPv6, that of DPDK's library: the first 24 bits of an address are an index, and each further
//! byte of a longer prefix leads through 256 entries.

use crate::config::{HOPS_MAX, IPV6_GROUPS_MAX};
use crate::error::TableError;
use std::future::Future;
use trine_kvstore::interleave::fetch;
use trine_kvstore::memory::Region;

/// Bits that the first table covers.
const FIRST_BITS: u32 = 24;
const GROUP: usize = 256;
/// An entry that leads to a group. The others are 0 for no route, or a next hop and 1.
const LINK: u32 = 1 << 31;
/// Groups for which room is made at a time, 2 MiB.
const GROUPS_STEP: usize = 2_048;

/// A prefix and its next hop.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Route6 {
    /// An address with the prefix. Its further bits mean nothing.
    pub address: u128,
    /// Bits of the prefix.
    pub length: u8,
    /// The number of the next hop.
    pub hop: u16,
}

impl Route6 {
    /// The first address with the prefix.
    #[must_use]
    pub fn start(&self) -> u128 {
        let host = 128 - u32::from(self.length);
        self.address & u128::MAX.checked_shl(host).unwrap_or(0)
    }
}

/// The first table, then the groups. It is built once and then read.
pub struct Table6 {
    entries: Region<u32>,
    used: usize,
}

impl Table6 {
    /// Enters routes. Of two with the same prefix the later one counts.
    ///
    /// # Errors
    ///
    /// [`TableError`] if a route is none, or if there are too many long prefixes.
    pub fn build(routes: &[Route6]) -> Result<Self, TableError> {
        let mut entries = Region::empty();
        entries.grow_to(1 << FIRST_BITS);
        let used = 1 << FIRST_BITS;
        let mut table = Self { entries, used };
        let mut sorted: Vec<&Route6> = routes.iter().collect();
        // A longer prefix overwrites a part of a shorter one, so no entry that is overwritten is a link.
        sorted.sort_by_key(|route| route.length);
        for route in sorted {
            table.enter(route)?;
        }
        Ok(table)
    }

    fn enter(&mut self, route: &Route6) -> Result<(), TableError> {
        if route.length > 128 {
            let length = route.length;
            return Err(TableError::PrefixTooLong { length, most: 128 });
        }
        if route.hop > HOPS_MAX {
            let (hop, most) = (route.hop, HOPS_MAX);
            return Err(TableError::HopTooLarge { hop, most });
        }
        let (start, length) = (route.start(), u32::from(route.length));
        let mut from = (start >> (128 - FIRST_BITS)) as usize;
        let mut bits = FIRST_BITS;
        while length > bits {
            let group = self.group(from)?;
            from = group + (start >> (120 - bits)) as usize % GROUP;
            bits += 8;
        }
        let entries = &mut self.entries[from..from + (1 << (bits - length))];
        entries.fill(u32::from(route.hop) + 1);
        Ok(())
    }

    /// The first entry of the group behind an entry, which is made if there is none.
    fn group(&mut self, entry: usize) -> Result<usize, TableError> {
        let old = self.entries[entry];
        if old & LINK != 0 {
            return Ok((old & !LINK) as usize * GROUP);
        }
        let group = self.used;
        if (group >> 8) >= (1 << (FIRST_BITS - 8)) + IPV6_GROUPS_MAX {
            return Err(TableError::TooManyGroups {
                bits: FIRST_BITS,
                most: IPV6_GROUPS_MAX,
            });
        }
        if group == self.entries.len() {
            self.entries.grow_to(group + GROUPS_STEP * GROUP);
        }
        self.used += GROUP;
        self.entries[group..self.used].fill(old);
        self.entries[entry] = LINK | (group / GROUP) as u32;
        Ok(group)
    }

    /// Bytes of the table.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.used * size_of::<u32>()
    }

    /// The entry for the first 24 bits.
    #[inline(always)]
    #[must_use]
    pub fn first(&self, address: u64) -> &u32 {
        &self.entries[(address >> (64 - FIRST_BITS)) as usize]
    }

    /// The entry behind a link for the first byte of what is left of an address.
    #[inline(always)]
    #[must_use]
    pub fn behind(&self, link: u32, rest: u8) -> &u32 {
        &self.entries[(link & !LINK) as usize * GROUP + usize::from(rest)]
    }

    /// Whether an entry leads to a group.
    #[inline(always)]
    #[must_use]
    pub fn is_link(entry: u32) -> bool {
        entry & LINK != 0
    }

    /// The next hop in an entry that is no link.
    #[inline(always)]
    #[must_use]
    pub fn hop(entry: u32) -> Option<u16> {
        entry.checked_sub(1).map(|hop| hop as u16)
    }

    /// The next hop of the longest prefix of an address.
    #[inline(always)]
    pub fn find<const N: usize>(&self, address: u128) -> impl Future<Output = Option<u16>> {
        async move {
            // A counter is cheaper to keep while others run than what is left of the address.
            let bytes = address.to_be_bytes();
            let mut next = FIRST_BITS as usize / 8;
            let mut place = self.first((address >> 64) as u64);
            loop {
                fetch(place).await;
                let entry = *place;
                if !Self::is_link(entry) {
                    return Self::hop(entry);
                }
                place = self.behind(entry, bytes[next]);
                next += 1;
            }
        }
    }
}
