//! The table of stations: a cuckoo table whose entry is an Ethernet address and a port.

use crate::cuckoo::{Cuckoo, SLOTS};
use crate::error::TableError;
use crate::hash::mix;
use std::future::Future;
use trine_kvstore::interleave::fetch;
use trine_transport::prng::Prng;

/// A station.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Station {
    /// Its address, a number of 48 bits.
    pub mac: u64,
    /// The output port that it is behind.
    pub port: u8,
}

/// An entry is an address, then the port and 1 in the low 16 bits.
const PORT_BITS: u32 = 16;

/// The table. It is built once and then read.
pub struct Stations {
    table: Cuckoo,
    seed: u64,
}

impl Stations {
    /// Enters stations. Of two with the same address the later one counts.
    ///
    /// # Errors
    ///
    /// [`TableError`] if there is no room, or if an address is no station's.
    pub fn build(stations: &[Station], prng: &mut Prng) -> Result<Self, TableError> {
        let mut built = Self {
            table: Cuckoo::with_room_for(stations.len()),
            seed: prng.next_u64(),
        };
        for station in stations {
            built.enter(*station, prng)?;
        }
        Ok(built)
    }

    fn enter(&mut self, station: Station, prng: &mut Prng) -> Result<(), TableError> {
        if station.mac >> 48 != 0 || station.mac >> 40 & 1 != 0 {
            return Err(TableError::Key(
                "a station's address has 48 bits and is no group's",
            ));
        }
        let entry = (station.mac << PORT_BITS) | (u64::from(station.port) + 1);
        let [first, second] = self.buckets(station.mac);
        for bucket in [first, second] {
            let slots = self.table.bucket(bucket);
            let old = slots
                .iter()
                .copied()
                .find(|slot| slot >> PORT_BITS == station.mac && *slot != 0);
            if old.is_some_and(|old| self.table.replace(bucket, old, entry)) {
                return Ok(());
            }
        }
        let (seed, mask) = (self.seed, self.table.mask());
        let other = |entry: u64, bucket: usize| {
            let [first, second] = buckets_of(seed, mask, entry >> PORT_BITS);
            if bucket == first { second } else { first }
        };
        self.table.insert(entry, first, other, prng)
    }

    /// The two buckets in which an address may be.
    #[inline(always)]
    #[must_use]
    pub fn buckets(&self, mac: u64) -> [usize; 2] {
        buckets_of(self.seed, self.table.mask(), mac)
    }

    /// The table itself.
    #[inline(always)]
    #[must_use]
    pub fn table(&self) -> &Cuckoo {
        &self.table
    }

    /// The port that a bucket names for an address.
    #[inline(always)]
    #[must_use]
    pub fn find_in(&self, bucket: usize, mac: u64) -> Option<u8> {
        let is_wanted = |entry: u64| entry >> PORT_BITS == mac && entry != 0;
        let matching = self.table.matching(bucket, is_wanted);
        if matching == 0 {
            return None;
        }
        let entry = self.table.bucket(bucket)[matching.trailing_zeros() as usize % SLOTS];
        Some((entry as u16 - 1) as u8)
    }

    /// The port of a station.
    #[inline(always)]
    pub fn find<const N: usize>(&self, mac: u64) -> impl Future<Output = Option<u8>> {
        async move {
            let [first, second] = self.buckets(mac);
            fetch(self.table.bucket(first)).await;
            if let Some(port) = self.find_in(first, mac) {
                return Some(port);
            }
            fetch(self.table.bucket(second)).await;
            self.find_in(second, mac)
        }
    }
}

#[inline(always)]
fn buckets_of(seed: u64, mask: usize, mac: u64) -> [usize; 2] {
    let hash = mix(mac ^ seed);
    [hash as usize & mask, (hash >> 32) as usize & mask]
}
