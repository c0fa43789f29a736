//! IPv6 longest-prefix match with prefixes of 48 to 64 bits: a table for the first 24 bits
//! and one of 256 entries for each further byte.

use crate::keys::Draw;
use crate::lookups::{Case, LANES, SETS};
use std::future::Future;
use trine_kvstore::interleave::{batch, fetch, prefetch};
use trine_kvstore::memory::Region;
use trine_report::Report;

/// The name of a case and its prefixes: the paper's number, and a table that no cache holds.
const CASES: [(&str, usize); 2] = [("ipv6", 200_000), ("ipv6_1m", 1_000_000)];
const LOOKUPS: usize = 1 << 20;
const FIRST_BITS: u32 = 24;
const GROUP: usize = 256;

/// An entry that leads to a group instead of naming a next hop.
const LINK: u32 = 1 << 31;

/// The first table, then the groups. An entry is 0, a next hop with the length of its prefix in
/// bits 24 to 31, or a link to a group.
struct Tables {
    entries: Region<u32>,
    used: usize,
}

pub(crate) fn measure(report: &mut Report) {
    for (name, prefixes) in CASES {
        measure_one(report, name, prefixes);
    }
}

fn measure_one(report: &mut Report, name: &'static str, count: usize) {
    let mut draw = Draw(9);
    let prefixes: Vec<(u64, u32)> = (0..count)
        .map(|_| (draw.next(), 48 + draw.below(17) as u32))
        .collect();
    let mut tables = Tables::empty();
    for (hop, &(address, length)) in prefixes.iter().enumerate() {
        tables.add(address, length, hop as u32 + 1);
    }
    // Only the upper half of an address matters to prefixes of at most 64 bits.
    let mut address = || {
        let (address, length) = prefixes[draw.below(count as u64) as usize];
        let low = u64::MAX.checked_shr(length).unwrap_or(0);
        address & !low | draw.next() & low
    };
    let sets: Vec<Vec<u64>> = (0..SETS)
        .map(|_| (0..LOOKUPS).map(|_| address()).collect())
        .collect();
    let case = Case {
        name,
        count: LOOKUPS,
        naive: &|set| naive(&tables, &sets[set]),
        by_hand: &|set| by_hand(&tables, &sets[set]),
        batch: &|set| {
            let addresses = &sets[set];
            let mut sum = 0;
            batch::<LANES, _>(
                LOOKUPS,
                |i| find(&tables, addresses[i]),
                |_, hop| sum += u64::from(hop),
            );
            sum
        },
    };
    case.measure(report);
}

impl Tables {
    fn empty() -> Self {
        let mut entries = Region::empty();
        entries.grow_to(1 << FIRST_BITS);
        Self {
            entries,
            used: 1 << FIRST_BITS,
        }
    }

    fn add(&mut self, address: u64, length: u32, hop: u32) {
        let (mut base, mut bits, mut width) = (0, 0, FIRST_BITS);
        loop {
            let index = (address << bits >> (64 - width)) as usize;
            bits += width;
            if length <= bits {
                let span = 1 << (bits - length);
                let first = base + index / span * span;
                for entry in first..first + span {
                    self.fill(entry, length, hop);
                }
                return;
            }
            base = self.group_behind(base + index);
            width = 8;
        }
    }

    /// Enters a hop where no longer prefix is, also below a link.
    fn fill(&mut self, entry: usize, length: u32, hop: u32) {
        let old = self.entries[entry];
        if old & LINK != 0 {
            let group = (old & !LINK) as usize * GROUP;
            (group..group + GROUP).for_each(|entry| self.fill(entry, length, hop));
        } else if old >> 24 <= length {
            self.entries[entry] = length << 24 | hop;
        }
    }

    /// The group that an entry leads to, made if there is none.
    fn group_behind(&mut self, entry: usize) -> usize {
        let old = self.entries[entry];
        if old & LINK != 0 {
            return (old & !LINK) as usize * GROUP;
        }
        if self.used == self.entries.len() {
            self.entries.grow_to(self.used + (1 << 24));
        }
        let group = self.used;
        self.used += GROUP;
        self.entries[group..self.used].fill(old);
        self.entries[entry] = LINK | (group / GROUP) as u32;
        group
    }

    #[inline(always)]
    fn first(&self, address: u64) -> &u32 {
        &self.entries[(address >> (64 - FIRST_BITS)) as usize]
    }

    /// The entry that a link leads to for the first byte of what is left of the address.
    #[inline(always)]
    fn behind(&self, link: u32, rest: u64) -> &u32 {
        &self.entries[(link & !LINK) as usize * GROUP + (rest >> 56) as usize]
    }
}

#[inline(always)]
fn hop(entry: u32) -> u32 {
    entry & 0xff_ffff
}

#[inline(never)]
fn naive(tables: &Tables, addresses: &[u64]) -> u64 {
    let find = |&address: &u64| {
        let (mut entry, mut rest) = (*tables.first(address), address << FIRST_BITS);
        while entry & LINK != 0 {
            entry = *tables.behind(entry, rest);
            rest <<= 8;
        }
        u64::from(hop(entry))
    };
    addresses.iter().map(find).sum()
}

#[inline(never)]
fn by_hand(tables: &Tables, addresses: &[u64]) -> u64 {
    let mut sum = 0;
    for group in addresses.chunks(LANES) {
        let mut at = [tables.first(0); LANES];
        let mut lanes = [0; LANES];
        let mut live = group.len();
        for (lane, &address) in group.iter().enumerate() {
            at[lane] = tables.first(address);
            prefetch(at[lane]);
            lanes[lane] = lane;
        }
        let mut bits = FIRST_BITS;
        while live > 0 {
            let mut kept = 0;
            for index in 0..live {
                let lane = lanes[index];
                let entry = *at[lane];
                if entry & LINK == 0 {
                    sum += u64::from(hop(entry));
                    continue;
                }
                at[lane] = tables.behind(entry, group[lane] << bits);
                prefetch(at[lane]);
                lanes[kept] = lane;
                kept += 1;
            }
            live = kept;
            bits += 8;
        }
    }
    sum
}

#[inline(always)]
fn find(tables: &Tables, address: u64) -> impl Future<Output = u32> {
    async move {
        let mut at = tables.first(address);
        let mut rest = address << FIRST_BITS;
        loop {
            fetch(at).await;
            let entry = *at;
            if entry & LINK == 0 {
                return hop(entry);
            }
            at = tables.behind(entry, rest);
            rest <<= 8;
        }
    }
}
