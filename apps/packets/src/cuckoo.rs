//! A cuckoo table of 64-bit entries: two buckets a key, eight slots a bucket, a cache line each.
//!
//! The caller knows the meaning of an entry and its other bucket. 0 is an empty slot. Entries are inserted before
//! lookups begin; a failed insertion changes nothing.

use crate::config::KICKS_MAX;
use crate::error::TableError;
use trine_kvstore::memory::{HUGE_PAGE_BYTES, Region};
use trine_transport::prng::Prng;

/// Entries of a bucket.
pub const SLOTS: usize = 8;

/// The buckets.
pub struct Cuckoo {
    slots: Region<u64>,
    /// One less than the number of buckets, a power of two.
    mask: usize,
}

impl Cuckoo {
    /// Room for `entries` at a load of at most 90 %.
    #[must_use]
    pub fn with_room_for(entries: usize) -> Self {
        let buckets = (entries.max(1) * 10 / 9)
            .div_ceil(SLOTS)
            .next_power_of_two();
        let mut slots = Region::empty();
        slots.grow_to((buckets * SLOTS).next_multiple_of(HUGE_PAGE_BYTES / size_of::<u64>()));
        Self {
            slots,
            mask: buckets - 1,
        }
    }

    /// The bucket that a hash chooses by its low bits.
    #[inline(always)]
    #[must_use]
    pub fn bucket_of(&self, hash: u64) -> usize {
        hash as usize & self.mask
    }

    /// One less than the number of buckets, a power of two.
    #[inline(always)]
    #[must_use]
    pub fn mask(&self) -> usize {
        self.mask
    }

    /// The entries of a bucket, whose number is one of [`Cuckoo::bucket_of`].
    #[inline(always)]
    #[must_use]
    pub fn bucket(&self, bucket: usize) -> &[u64; SLOTS] {
        self.slots[bucket * SLOTS..]
            .first_chunk()
            .expect("a bucket has eight slots")
    }

    /// A bit for each slot of a bucket whose entry is wanted. All slots are looked at: no jump depends on which one it is.
    #[inline(always)]
    #[must_use]
    pub fn matching(&self, bucket: usize, is_wanted: impl Fn(u64) -> bool) -> u32 {
        let slots = self.bucket(bucket).iter().enumerate();
        slots.fold(0, |bits, (slot, entry)| {
            bits | u32::from(is_wanted(*entry)) << slot
        })
    }

    /// Enters `entry`, which is not there yet, into bucket `first` or its other one. `other` names the other bucket of an
    /// entry that is in a given one.
    ///
    /// # Errors
    ///
    /// [`TableError::Full`]; the table is as it was.
    pub fn insert(
        &mut self,
        entry: u64,
        first: usize,
        other: impl Fn(u64, usize) -> usize,
        prng: &mut Prng,
    ) -> Result<(), TableError> {
        assert_ne!(entry, 0, "0 is an empty slot");
        if self.place(first, entry) || self.place(other(entry, first), entry) {
            return Ok(());
        }
        let (mut carried, mut bucket) = (entry, first);
        let mut path = Vec::with_capacity(KICKS_MAX);
        while path.len() < KICKS_MAX {
            let slot = bucket * SLOTS + prng.below(SLOTS as u64) as usize;
            std::mem::swap(&mut self.slots[slot], &mut carried);
            path.push(slot);
            bucket = other(carried, bucket);
            if self.place(bucket, carried) {
                return Ok(());
            }
        }
        for slot in path.into_iter().rev() {
            std::mem::swap(&mut self.slots[slot], &mut carried);
        }
        assert_eq!(carried, entry, "every displacement is undone");
        Err(TableError::Full { kicks: KICKS_MAX })
    }

    /// Replaces an entry of a bucket; whether it was there.
    pub fn replace(&mut self, bucket: usize, old: u64, new: u64) -> bool {
        let slots = &mut self.slots[bucket * SLOTS..][..SLOTS];
        let slot = slots.iter_mut().find(|slot| **slot == old);
        slot.map(|slot| *slot = new).is_some()
    }

    fn place(&mut self, bucket: usize, entry: u64) -> bool {
        self.replace(bucket, 0, entry)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hash::mix;

    fn other(table: &Cuckoo) -> impl Fn(u64, usize) -> usize + use<> {
        let mask = table.mask;
        move |entry, bucket| (bucket ^ (mix(entry) as usize | 1)) & mask
    }

    /// A table that is filled until it refuses holds everything that it took, and nothing else.
    #[test]
    fn a_full_table_refuses_and_keeps_what_it_has() {
        let mut prng = Prng::new(3);
        let mut table = Cuckoo::with_room_for(200);
        let other = other(&table);
        let (mut taken, mut refused) = (Vec::new(), 0);
        for entry in 1..=400_u64 {
            let first = table.bucket_of(mix(entry ^ 7));
            match table.insert(entry, first, &other, &mut prng) {
                Ok(()) => taken.push((entry, first)),
                Err(error) => {
                    assert_eq!(error, TableError::Full { kicks: KICKS_MAX });
                    refused += 1;
                }
            }
        }
        let slots = (table.mask + 1) * SLOTS;
        assert!(
            refused > 0 && taken.len() > slots * 9 / 10,
            "{}",
            taken.len()
        );
        for &(entry, first) in &taken {
            let both = [first, other(entry, first)];
            let is_in = |bucket: &usize| table.bucket(*bucket).contains(&entry);
            assert!(both.iter().any(is_in), "{entry}");
        }
        let held = (0..=table.mask).flat_map(|bucket| table.bucket(bucket));
        assert_eq!(held.filter(|entry| **entry != 0).count(), taken.len());
    }
}
