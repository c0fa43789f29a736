//! Index and arena as one map that keeps count: of items, logical bytes, expiries and the sum
//! that the state hash is made of.

mod kept;

use crate::arena::{Arena, ItemView, Location, Stamp, Usage};
use crate::expiry::Expiries;
use crate::flushed::{Flushed, Old};
use crate::hash::{Hasher, KeyHash};
use crate::limits::{item_charge, ordered_charge};
use crate::ordered::{Index, Ordered};
use crate::position::Position;
use crate::shadows::Shadows;
use crate::snapshot::progress::SnapshotProgress;
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
    pub(crate) snapshot: Option<SnapshotProgress>,
    /// What is kept for snapshots and pins.
    pub(crate) shadows: Shadows,
    /// A block of a newer version is needed by no snapshot and no pin. Most of the time every version is newer.
    keep_through: Position,
    /// The position of the changes that come. What they replace ends there.
    pub(crate) changes_at: Position,
    /// The most bytes of shadows for pins, if an operator has set one.
    pub(crate) retain_bytes: Option<u64>,
    /// The keys in their order, if the group keeps an index of them. Boxed: without one a change tests a pointer.
    index: Option<Box<Index>>,
    /// What earlier items took and was not freed yet.
    pub(crate) flushed: Flushed,
    count: u64,
    logical_bytes: u64,
    /// Logical bytes that the items count more with an index than without one. Kept without an index, too: turning it on
    /// has to know them.
    index_charge: u64,
    sum: u128,
}

/// What happens to a block.
#[derive(Copy, Clone, Eq, PartialEq, Debug)]
enum BlockChange {
    Overwritten,
    Removed,
    /// Removed because its time is over.
    Swept,
}

/// Where a key is or would be. Stale after any change.
#[derive(Copy, Clone, Debug)]
pub(crate) struct KeyLookup {
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
            shadows: Shadows::default(),
            keep_through: Position::ZERO,
            changes_at: Position::ZERO,
            retain_bytes: None,
            index: None,
            flushed: Flushed::default(),
            count: 0,
            logical_bytes: 0,
            index_charge: 0,
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
            Some(_) => ordered_charge(key_bytes),
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
        self.index_charge
    }

    /// From here on every new key gets into an index; those that are there do so with [`Items::build_index`].
    pub(crate) fn begin_index(&mut self) {
        debug_assert!(self.index.is_none());
        self.index = Some(Box::new(Index::over(self.count)));
        self.logical_bytes += self.index_charge();
    }

    /// The index is gone. What it took is freed later, slice by slice.
    pub(crate) fn drop_index(&mut self) {
        if let Some(index) = self.index.take() {
            self.logical_bytes -= self.index_charge();
            self.flushed.add(Old::of_index(index));
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
        let old = self.flushed.remains();
        arena.region_bytes += old.arena;
        (arena, table_bytes + old.table)
    }

    /// Bytes that the ordered index has from the system, and earlier ones that are not freed yet.
    pub(crate) fn ordered_bytes(&self) -> u64 {
        self.index().map_or(0, Index::memory_bytes) + self.flushed.remains().ordered
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
        self.snapshot = old.snapshot.take().map(SnapshotProgress::of_flushed);
        self.retain_bytes = old.retain_bytes;
        self.flushed = std::mem::take(&mut old.flushed);
        self.flushed
            .add(Old::new(old.arena, old.table, old.expiries, old.index));
        self.flushed.add(Old::of_shadows(old.shadows));
        count
    }

    #[inline]
    pub(crate) fn find(&self, key: &[u8]) -> KeyLookup {
        self.find_hashed(self.hasher.key(key), key)
    }

    /// The same with the key's hash, where that is known.
    #[inline]
    pub(crate) fn find_hashed(&self, hash: KeyHash, key: &[u8]) -> KeyLookup {
        KeyLookup {
            hash,
            slot: self
                .table
                .find(hash, |location| self.arena.is_current(location, key)),
        }
    }

    #[inline]
    pub(crate) fn item(&self, found: KeyLookup) -> Option<ItemView<'_>> {
        found.slot.map(|(_, location)| self.arena.item(location))
    }

    /// Writes an item, over the one that was found or as a new one.
    pub(crate) fn put(&mut self, found: KeyLookup, key: &[u8], value: &[u8], stamp: Stamp) {
        match found.slot {
            None => self.insert(found.hash, key, value, stamp),
            Some((slot, location)) => self.replace(found.hash, slot, location, key, value, stamp),
        }
        self.count_in(found.hash, key, value, stamp);
        self.maintain();
    }

    /// Removes the item that was found.
    pub(crate) fn remove(&mut self, found: KeyLookup) {
        self.remove_by(found, BlockChange::Removed);
    }

    fn remove_by(&mut self, found: KeyLookup, change: BlockChange) {
        let Some((slot, location)) = found.slot else {
            return;
        };
        self.count_out(found.hash, location);
        if let Some(index) = &mut self.index {
            index.remove(self.arena.item(location).key);
        }
        if self.shadows.pinned() > 0 {
            self.add_ghost_of(found.hash, location);
        }
        if !self.keep(found.hash, location, change) {
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
            self.remove_by(KeyLookup { hash, slot }, BlockChange::Swept);
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
                && self
                    .shadow_of(location)
                    .is_some_and(|(_, record)| record.version == stamp.version)
        });
        let Some((_, shadow)) = shadow else {
            return self.put(found, key, value, stamp);
        };
        // A snapshot or a pin keeps exactly this item: two of them would be written twice.
        if let Some((slot, location)) = found.slot {
            self.count_out(found.hash, location);
            self.table.remove(found.hash, slot);
            self.arena.remove(location);
        }
        self.revive(shadow);
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
        if self.keep(hash, old, BlockChange::Overwritten) {
            // The new item takes the shadow's slot, so that lookups do not pass the shadow. The
            // index does not grow for shadows: they are gone when the snapshot or the pin is.
            let new = self.arena.add(key, value, stamp);
            self.table.set_location(slot, new);
            self.table.insert(hash, old);
        } else if !self.arena.overwrite(old, key, value, stamp) {
            let new = self.arena.add(key, value, stamp);
            self.table.set_location(slot, new);
            self.arena.remove(old);
        }
    }

    /// Leaves a block in place as a shadow if a snapshot or a pin needs it.
    #[inline(always)]
    fn keep(&mut self, hash: KeyHash, location: Location, change: BlockChange) -> bool {
        self.arena.version(location) <= self.keep_through
            && self.keep_if_needed(hash, location, change)
    }

    fn count_in(&mut self, hash: KeyHash, key: &[u8], value: &[u8], stamp: Stamp) {
        self.count += 1;
        self.logical_bytes += self.charge(key.len(), value.len());
        self.index_charge += ordered_charge(key.len());
        self.sum =
            self.sum.wrapping_add(
                self.hasher
                    .item(hash, stamp.version, stamp.expiry_ns, value),
            );
        self.expiries.add(stamp.expiry_ns, hash);
    }

    fn count_out(&mut self, hash: KeyHash, location: Location) {
        let ItemView { key, value, stamp } = self.arena.item(location);
        self.count -= 1;
        self.logical_bytes -= self.charge(key.len(), value.len());
        self.index_charge -= ordered_charge(key.len());
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
            let shadow = self.shadow_of(from).map(|(_, record)| *record);
            let to = self.arena.relocate(from);
            self.table.set_location(slot, to);
            if let Some(record) = shadow {
                self.shadow_moved(&record, bytes, self.arena.block_bytes(to));
            }
            if bytes >= DEFRAGMENT_LARGE_BYTES {
                break;
            }
        }
        if self
            .snapshot
            .as_ref()
            .is_some_and(SnapshotProgress::is_clearing)
        {
            self.clear_a_little();
        }
        if self.shadows.pinned() > 0 {
            self.mind_shadows();
        }
    }
}
