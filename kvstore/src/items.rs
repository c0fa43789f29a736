//! Index and arena as one map that keeps count: of items, logical bytes, expiries and the sum
//! that the state hash is made of.

use crate::arena::{Arena, Item, Location, Stamp, Usage};
use crate::config::ORDERED_CHARGE_BYTES;
use crate::expiry::Expiries;
use crate::flushed::{Flushed, Old};
use crate::hash::{Hasher, KeyHash};
use crate::limits::item_charge;
use crate::ordered::{Index, Ordered};
use crate::snapshot::Progress;
use crate::table::{Slot, Table};
use trine_canary as canary;

/// How many defragmentation steps a change may make.
const DEFRAGMENT_STEPS_MAX: u32 = 4;

/// A moved block of this size ends the steps of its command.
const DEFRAGMENT_LARGE_BYTES: u64 = 16 * 1024;

/// All items of a store.
#[derive(Debug)]
pub(crate) struct Items {
    pub(crate) table: Table,
    pub(crate) arena: Arena,
    pub(crate) hasher: Hasher,
    pub(crate) expiries: Expiries,
    /// Some exactly while a snapshot is written or what it kept is cleared away.
    pub(crate) snapshot: Option<Progress>,
    /// The keys in their order, if the group keeps an index of them. Boxed: without one a change tests a pointer.
    index: Option<Box<Index>>,
    /// What earlier items took and was not freed yet.
    pub(crate) flushed: Flushed,
    count: u64,
    logical_bytes: u64,
    sum: u128,
}

/// Where a key is or would be. Stale after any change.
#[derive(Copy, Clone, Debug)]
pub(crate) struct Found {
    pub(crate) hash: KeyHash,
    pub(crate) slot: Option<(Slot, Location)>,
}

impl Items {
    pub(crate) fn new(hash_seed: [u64; 2]) -> Self {
        Self::with_table(hash_seed, Table::new())
    }

    /// Prepared for `count` items without growing on the way.
    pub(crate) fn for_count(hash_seed: [u64; 2], count: u64) -> Self {
        Self::with_table(hash_seed, Table::for_entries(count))
    }

    fn with_table(hash_seed: [u64; 2], table: Table) -> Self {
        Self {
            table,
            arena: Arena::new(),
            hasher: Hasher::new(hash_seed),
            expiries: Expiries::default(),
            snapshot: None,
            index: None,
            flushed: Flushed::default(),
            count: 0,
            logical_bytes: 0,
            sum: 0,
        }
    }

    /// Live items.
    pub(crate) fn count(&self) -> u64 {
        self.count
    }

    /// Bytes that the memory limit counts.
    pub(crate) fn logical_bytes(&self) -> u64 {
        self.logical_bytes
    }

    /// The sum of the items' hashes.
    pub(crate) fn sum(&self) -> u128 {
        self.sum
    }

    /// The logical bytes of an item.
    #[inline]
    pub(crate) fn charge(&self, key_bytes: usize, value_bytes: usize) -> u64 {
        let for_index = match self.index {
            None => 0,
            Some(_) => ORDERED_CHARGE_BYTES,
        };
        item_charge(key_bytes, value_bytes) + for_index
    }

    /// The ordered index, whole or not.
    pub(crate) fn index(&self) -> Option<&Index> {
        self.index.as_deref()
    }

    pub(crate) fn ordered(&self) -> Ordered {
        self.index
            .as_ref()
            .map_or(Ordered::Off, |index| index.state())
    }

    /// The index of a store that has no items yet, or none any more.
    pub(crate) fn begin_with_index(&mut self, state: Ordered) {
        debug_assert_eq!(self.count, 0);
        self.index = Index::of_empty(state);
    }

    /// Logical bytes that the items count more with an index than without one.
    pub(crate) fn index_charge(&self) -> u64 {
        self.count * ORDERED_CHARGE_BYTES
    }

    /// From here on every new key gets into an index; those that are there do so with [`Items::build_index`].
    pub(crate) fn begin_index(&mut self) {
        debug_assert!(self.index.is_none());
        self.index = Some(Box::new(Index::over(self.count)));
        self.logical_bytes += self.index_charge();
    }

    /// The index is gone.
    pub(crate) fn drop_index(&mut self) {
        if self.index.take().is_some() {
            self.logical_bytes -= self.index_charge();
        }
    }

    /// Adds a slice of the items to an index that is not whole.
    pub(crate) fn build_index(&mut self) {
        let Some(index) = &mut self.index else { return };
        let Some((first, last)) = index.next_slice() else {
            return;
        };
        let mut order = first;
        loop {
            let hash = KeyHash::from_order(order);
            self.table
                .for_each_in_chain(self.table.home(hash), |location| {
                    if self.arena.is_shadowed(location) {
                        return;
                    }
                    let key = self.arena.item(location).key;
                    if (first..=last).contains(&self.hasher.key(key).order()) {
                        index.add(key);
                    }
                });
            let size = 1_u64 << (64 - self.table.home_bits(hash));
            match (order & !(size - 1)).checked_add(size) {
                Some(next) if next <= last => order = next,
                _ => return,
            }
        }
    }

    pub(crate) fn usage(&self) -> (Usage, u64) {
        let (mut arena, table_bytes) = (self.arena.usage(), self.table.memory_bytes());
        let (old_arena_bytes, old_table_bytes) = self.flushed.memory_bytes();
        arena.region_bytes += old_arena_bytes;
        (arena, table_bytes + old_table_bytes)
    }

    /// Ends every item at once and says how many there were. What they took is freed later, slice by slice. A snapshot
    /// that is being written is given up.
    pub(crate) fn flush(&mut self) -> u64 {
        let count = self.count;
        if count == 0 {
            return 0;
        }
        let fresh = Self::new(self.hasher.seed());
        let mut old = std::mem::replace(self, fresh);
        if canary::planted("a flush keeps expiries") {
            std::mem::swap(&mut self.expiries, &mut old.expiries);
        }
        // The group keeps its index, built as far as it was.
        self.begin_with_index(old.ordered());
        self.snapshot = old.snapshot.take().map(Progress::of_flushed);
        self.flushed = std::mem::take(&mut old.flushed);
        self.flushed
            .add(Old::new(old.arena, old.table, old.expiries, old.index));
        count
    }

    #[inline]
    pub(crate) fn find(&self, key: &[u8]) -> Found {
        let hash = self.hasher.key(key);
        Found {
            hash,
            slot: self
                .table
                .find(hash, |location| self.arena.is_current(location, key)),
        }
    }

    #[inline]
    pub(crate) fn item(&self, found: Found) -> Option<Item<'_>> {
        found.slot.map(|(_, location)| self.arena.item(location))
    }

    /// Writes an item, over the one that was found or as a new one.
    pub(crate) fn put(&mut self, found: Found, key: &[u8], value: &[u8], stamp: Stamp) {
        match found.slot {
            None => self.insert(found.hash, key, value, stamp),
            Some((slot, location)) => self.replace(found.hash, slot, location, key, value, stamp),
        }
        self.count_in(found.hash, key, value, stamp);
        self.maintain();
    }

    /// Removes the item that was found.
    pub(crate) fn remove(&mut self, found: Found) {
        let Some((slot, location)) = found.slot else {
            return;
        };
        self.count_out(found.hash, location);
        if let Some(index) = &mut self.index {
            index.remove(self.arena.item(location).key);
        }
        if !self.keep_for_snapshot(found.hash, location) {
            self.table.remove(found.hash, slot);
            self.arena.remove(location);
        }
        self.maintain();
    }

    /// Removes every item with this hash and expiry, and names its key.
    pub(crate) fn remove_expired(
        &mut self,
        hash: KeyHash,
        expiry_ns: u64,
        mut removed: impl FnMut(&[u8]),
    ) {
        while self.expiries.first() == Some((expiry_ns, hash)) {
            let slot = self.table.find(hash, |location| {
                let item = self.arena.item(location);
                item.stamp.expiry_ns == expiry_ns
                    && !self.arena.is_shadowed(location)
                    && self.hasher.key(item.key) == hash
            });
            let (_, location) = slot.expect("an item with an expiry was counted in");
            removed(self.arena.item(location).key);
            self.remove(Found { hash, slot });
        }
    }

    /// Puts an item back as it was before the command that is being undone.
    pub(crate) fn restore(&mut self, key: &[u8], value: &[u8], stamp: Stamp) {
        let is_back = self.find(key).slot.is_none();
        self.put_back(key, value, stamp);
        if let Some(index) = &mut self.index {
            match is_back && canary::planted("index missed an undo") {
                true => index.remove(key),
                // A shadow that is an item again is not written, and comes into the index here.
                false => index.add(key),
            }
        }
    }

    fn put_back(&mut self, key: &[u8], value: &[u8], stamp: Stamp) {
        let found = self.find(key);
        let shadow = self.table.find(found.hash, |location| {
            self.arena.is_shadow(location, key)
                && self.arena.item(location).stamp.version == stamp.version
        });
        let Some((_, shadow)) = shadow else {
            return self.put(found, key, value, stamp);
        };
        // The snapshot keeps exactly this item: two of them would be written twice.
        if let Some((slot, location)) = found.slot {
            self.count_out(found.hash, location);
            self.table.remove(found.hash, slot);
            self.arena.remove(location);
        }
        self.arena.set_shadow(shadow, false);
        let bytes = self.arena.block_bytes(shadow);
        self.snapshot
            .as_mut()
            .expect("only a snapshot keeps shadows")
            .forget(bytes);
        self.count_in(found.hash, key, value, stamp);
    }

    fn insert(&mut self, hash: KeyHash, key: &[u8], value: &[u8], stamp: Stamp) {
        let location = self.arena.add(key, value, stamp);
        self.table.insert(hash, location);
        let (arena, hasher) = (&self.arena, &self.hasher);
        self.table
            .grow(|location| hasher.key(arena.item(location).key));
        if let Some(index) = &mut self.index {
            index.add(key);
        }
    }

    fn replace(
        &mut self,
        hash: KeyHash,
        slot: Slot,
        old: Location,
        key: &[u8],
        value: &[u8],
        stamp: Stamp,
    ) {
        self.count_out(hash, old);
        if self.keep_for_snapshot(hash, old) {
            // The new item takes the shadow's slot, so that lookups do not pass the shadow. The
            // index does not grow for shadows: they are gone when the snapshot is.
            let new = self.arena.add(key, value, stamp);
            self.table.set_location(slot, new);
            self.table.insert(hash, old);
        } else if !self.arena.overwrite(old, key, value, stamp) {
            let new = self.arena.add(key, value, stamp);
            self.table.set_location(slot, new);
            self.arena.remove(old);
        }
    }

    /// Leaves an item in place as a shadow if the running snapshot has not passed it yet.
    fn keep_for_snapshot(&mut self, hash: KeyHash, location: Location) -> bool {
        let Some(progress) = &mut self.snapshot else {
            return false;
        };
        let item = self.arena.item(location);
        if !progress.needs(hash, item.key, item.stamp.version) {
            return false;
        }
        progress.keep(
            self.arena.block_bytes(location),
            self.arena.usage().live_bytes,
        );
        self.arena.set_shadow(location, true);
        true
    }

    fn count_in(&mut self, hash: KeyHash, key: &[u8], value: &[u8], stamp: Stamp) {
        self.count += 1;
        self.logical_bytes += self.charge(key.len(), value.len());
        self.sum =
            self.sum.wrapping_add(
                self.hasher
                    .item(hash, stamp.version, stamp.expiry_ns, value),
            );
        self.expiries.add(stamp.expiry_ns, hash);
    }

    fn count_out(&mut self, hash: KeyHash, location: Location) {
        let Item { key, value, stamp } = self.arena.item(location);
        self.count -= 1;
        self.logical_bytes -= self.charge(key.len(), value.len());
        self.sum =
            self.sum.wrapping_sub(
                self.hasher
                    .item(hash, stamp.version, stamp.expiry_ns, value),
            );
        self.expiries.remove(stamp.expiry_ns, hash);
    }

    /// The background work that every change does a little of: defragmentation, and clearing away
    /// what an abandoned snapshot kept.
    fn maintain(&mut self) {
        for _ in 0..DEFRAGMENT_STEPS_MAX {
            let Some(from) = self.arena.defragment_step() else {
                break;
            };
            let bytes = self.arena.block_bytes(from);
            let hash = self.hasher.key(self.arena.item(from).key);
            let slot = self
                .table
                .find_location(hash, from)
                .expect("every live block is in the index");
            let is_shadow = self.arena.is_shadowed(from);
            let to = self.arena.relocate(from);
            self.table.set_location(slot, to);
            if is_shadow {
                self.snapshot
                    .as_mut()
                    .expect("only a snapshot keeps shadows")
                    .moved(bytes, self.arena.block_bytes(to));
            }
            if bytes >= DEFRAGMENT_LARGE_BYTES {
                break;
            }
        }
        if self.snapshot.as_ref().is_some_and(Progress::is_clearing) {
            self.clear_a_little();
        }
    }
}
