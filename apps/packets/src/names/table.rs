//! The table of name prefixes and their ports: a cuckoo table of tags, whose entries lead to records with the whole prefix.
//!
//! A record is the port in one byte, a byte of zero, the length in two bytes and the encoded prefix. It lies in one cache
//! line if it fits one. Tags of 24 bits make it rare that a record is read in vain.

use super::Name;
use crate::config::{NAME_BYTES_MAX, NAMES_BYTES_MAX};
use crate::cuckoo::{Cuckoo, SLOTS};
use crate::error::TableError;
use crate::hash::mix;
use std::future::Future;
use trine_kvstore::interleave::{fetch, prefetch};
use trine_kvstore::memory::{HUGE_PAGE_BYTES, Region};
use trine_transport::prng::Prng;

const LINE: usize = 64;
/// Bytes of a record before the prefix.
const HEAD: usize = 4;
/// Records begin at multiples of this.
const STEP: usize = 8;
/// An entry is the tag, then the place of the record in steps, and 1.
const PLACE_BITS: u32 = 40;
const PLACE: u64 = (1 << PLACE_BITS) - 1;

/// An encoded name prefix and the output port of what begins with it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Prefix {
    /// Components in NDN's TLV encoding, see [`super::encode`].
    pub name: Vec<u8>,
    /// The output port.
    pub port: u8,
}

/// The table. It is built once and then read.
pub struct NameTable {
    buckets: Cuckoo,
    records: Region<u8>,
    used: usize,
    longest: usize,
    seed: u64,
}

impl NameTable {
    /// Enters prefixes. Of two with the same name the later one counts.
    ///
    /// # Errors
    ///
    /// [`TableError`] if there is no room, or if a name is malformed, empty or too long.
    pub fn build(prefixes: &[Prefix], prng: &mut Prng) -> Result<Self, TableError> {
        let mut table = Self {
            buckets: Cuckoo::with_room_for(prefixes.len()),
            records: Region::empty(),
            used: 0,
            longest: 0,
            seed: prng.next_u64(),
        };
        for prefix in prefixes {
            table.enter(prefix, prng)?;
        }
        Ok(table)
    }

    fn enter(&mut self, prefix: &Prefix, prng: &mut Prng) -> Result<(), TableError> {
        let malformed = |_| TableError::Key("a name prefix is a list of encoded components");
        let name = Name::of(&prefix.name, self.seed).map_err(malformed)?;
        let components = name.components();
        if components == 0 || name.prefix(components).0.len() != prefix.name.len() {
            return Err(TableError::Key("a name prefix has 1 to 8 components"));
        }
        if prefix.name.len() > NAME_BYTES_MAX {
            let (what, most) = ("a name prefix", NAME_BYTES_MAX);
            return Err(TableError::TooMuch { what, most });
        }
        let (_, hash) = name.prefix(components);
        if let Some(place) = self.place_of(&prefix.name, hash) {
            self.records[place] = prefix.port;
            return Ok(());
        }
        let before = self.used;
        let place = self.append(prefix)?;
        let entry = (tag(hash) << PLACE_BITS) | ((place / STEP) as u64 + 1);
        let mask = self.buckets.mask();
        let other = |entry: u64, bucket| other(mask, entry >> PLACE_BITS, bucket);
        let first = self.buckets.bucket_of(hash);
        let entered = self.buckets.insert(entry, first, other, prng);
        match entered {
            Ok(()) => self.longest = self.longest.max(components),
            Err(_) => self.used = before,
        }
        entered
    }

    fn place_of(&self, name: &[u8], hash: u64) -> Option<usize> {
        self.buckets_of(hash).into_iter().find_map(|bucket| {
            let slots = self.buckets.bucket(bucket).iter();
            let mut places = slots
                .filter(|slot| has_tag(**slot, hash))
                .map(|slot| place(*slot));
            places.find(|place| self.port_at(*place, name).is_some())
        })
    }

    /// Writes a record and returns its place.
    fn append(&mut self, prefix: &Prefix) -> Result<usize, TableError> {
        let bytes = HEAD + prefix.name.len();
        let mut place = self.used.next_multiple_of(STEP);
        if place % LINE + bytes > LINE {
            place = place.next_multiple_of(LINE);
        }
        let end = place + bytes;
        if end > NAMES_BYTES_MAX {
            let (what, most) = ("the records of names", NAMES_BYTES_MAX);
            return Err(TableError::TooMuch { what, most });
        }
        if end > self.records.len() {
            self.records.grow_to(end.next_multiple_of(HUGE_PAGE_BYTES));
        }
        let record = &mut self.records[place..end];
        record[0] = prefix.port;
        record[2..HEAD].copy_from_slice(&(prefix.name.len() as u16).to_le_bytes());
        record[HEAD..].copy_from_slice(&prefix.name);
        self.used = end;
        Ok(place)
    }

    /// The key of the hashes.
    #[inline(always)]
    #[must_use]
    pub fn seed(&self) -> u64 {
        self.seed
    }

    /// Components of the longest prefix.
    #[inline(always)]
    #[must_use]
    pub fn longest(&self) -> usize {
        self.longest
    }

    /// The two buckets in which a prefix with this hash may be.
    #[inline(always)]
    #[must_use]
    pub fn buckets_of(&self, hash: u64) -> [usize; 2] {
        let first = self.buckets.bucket_of(hash);
        [first, other(self.buckets.mask(), tag(hash), first)]
    }

    /// The buckets themselves.
    #[inline(always)]
    #[must_use]
    pub fn buckets(&self) -> &Cuckoo {
        &self.buckets
    }

    /// A bit for each slot of the two buckets whose tag is that of the hash; the second bucket's are the higher ones.
    #[inline(always)]
    #[must_use]
    pub fn matching(&self, [first, second]: [usize; 2], hash: u64) -> u32 {
        let of = |bucket| self.buckets.matching(bucket, |entry| has_tag(entry, hash));
        of(first) | of(second) << SLOTS
    }

    /// The record that the slot with the lowest bit leads to.
    #[inline(always)]
    #[must_use]
    pub fn record(&self, buckets: [usize; 2], matching: u32) -> usize {
        let slot = matching.trailing_zeros() as usize;
        let bucket = buckets[slot / SLOTS % 2];
        place(self.buckets.bucket(bucket)[slot % SLOTS])
    }

    /// The first byte of a record.
    #[inline(always)]
    #[must_use]
    pub fn first_byte(&self, record: usize) -> &u8 {
        &self.records[record]
    }

    /// The port in a record if it is that of this prefix.
    #[inline(always)]
    #[must_use]
    pub fn port_at(&self, record: usize, name: &[u8]) -> Option<u8> {
        let bytes = &self.records[record..];
        let length = usize::from(u16::from_le_bytes([bytes[2], bytes[3]]));
        (bytes[HEAD..HEAD + length] == *name).then(|| bytes[0])
    }

    /// The port of the longest known prefix of a name. Both buckets of a prefix are fetched at once: a lookup of a prefix
    /// that is not there needs both, and one that is there goes on without a guess.
    #[inline(always)]
    pub fn find_longest<const N: usize>(
        &self,
        name: &Name<'_>,
    ) -> impl Future<Output = Option<u8>> {
        async move {
            let mut components = name.components().min(self.longest);
            while components != 0 {
                let buckets = self.buckets_of(name.prefix(components).1);
                prefetch(self.buckets.bucket(buckets[1]));
                fetch(self.buckets.bucket(buckets[0])).await;
                let mut matching = self.matching(buckets, name.prefix(components).1);
                while matching != 0 {
                    let record = self.record(buckets, matching);
                    fetch(self.first_byte(record)).await;
                    if let Some(port) = self.port_at(record, name.prefix(components).0) {
                        return Some(port);
                    }
                    matching &= matching - 1;
                }
                components -= 1;
            }
            None
        }
    }
}

#[inline(always)]
fn tag(hash: u64) -> u64 {
    hash >> PLACE_BITS
}

#[inline(always)]
fn has_tag(entry: u64, hash: u64) -> bool {
    entry >> PLACE_BITS == tag(hash) && entry != 0
}

#[inline(always)]
fn place(entry: u64) -> usize {
    ((entry & PLACE) - 1) as usize * STEP
}

/// The other bucket of an entry with this tag: the same function leads there and back.
#[inline(always)]
fn other(mask: usize, tag: u64, bucket: usize) -> usize {
    (bucket ^ (mix(tag) as usize | 1)) & mask
}
