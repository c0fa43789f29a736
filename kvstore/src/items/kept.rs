//! Blocks kept for snapshots and pins, and which of them is the state of a key at a position.

use super::{BlockChange, Items};
use crate::arena::{ItemView, Location, Stamp};
use crate::config::{PIN_KEPT_BYTES_MIN, PIN_KEPT_EXCESS, PIN_SHADOWS_FREED};
use crate::flushed::Old;
use crate::hash::KeyHash;
use crate::position::Position;
use crate::shadows::{ShadowId, ShadowRecord};
use crate::snapshot::SnapshotProgress;
use trine_canary as canary;

/// Shadows that one change frees at the limit. The next changes go on.
const FREED_AT_THE_LIMIT_MAX: u32 = 64;

impl Items {
    /// The state of a key at a position that is served.
    pub(crate) fn lookup_at(&self, key: &[u8], position: Position) -> Option<ItemView<'_>> {
        self.table.lookup(self.hasher.key(key), |location| {
            let is_of_key = self.arena.item(location).key == key;
            is_of_key
                .then(|| self.item_at(location, position))
                .flatten()
        })
    }

    /// The item in a block, if it is the state of its key at a position that is served.
    pub(crate) fn item_at(&self, location: Location, position: Position) -> Option<ItemView<'_>> {
        let item = self.arena.item(location);
        if !self.arena.is_shadowed(location) {
            return (item.stamp.version <= position).then_some(item);
        }
        let record = self.shadows.get(ShadowId::from_word(item.stamp.version));
        let version = record.version;
        let stamp = Stamp {
            version,
            ..item.stamp
        };
        record.is_of(position).then_some(ItemView { stamp, ..item })
    }

    /// The record of a block that is a shadow.
    pub(super) fn shadow_of(&self, location: Location) -> Option<(ShadowId, &ShadowRecord)> {
        if !self.arena.is_shadowed(location) {
            return None;
        }
        let id = ShadowId::from_word(self.arena.version(location));
        Some((id, self.shadows.get(id)))
    }

    /// Keeps the state at this position, which is the newest.
    pub(crate) fn serve_pin(&mut self, position: Position) {
        self.shadows.serve(position);
        self.set_keep_through();
    }

    /// Keeps the state of no pin but those that live.
    pub(crate) fn retain_pins(&mut self, lives: impl FnMut(Position) -> bool) {
        self.shadows.retain(lives);
        self.set_keep_through();
    }

    /// The newest version that a snapshot or a pin may need.
    pub(crate) fn set_keep_through(&mut self) {
        let snapshot = self
            .snapshot
            .as_ref()
            .filter(|progress| !progress.is_clearing());
        let snapshot = snapshot.map_or(Position::ZERO, SnapshotProgress::position);
        let newest = self.shadows.newest().unwrap_or(Position::ZERO);
        self.keep_through = snapshot.max(newest);
    }

    /// Leaves a block in place as a shadow if a snapshot or a pin needs it.
    #[inline(never)]
    pub(super) fn keep_if_needed(
        &mut self,
        hash: KeyHash,
        location: Location,
        change: BlockChange,
    ) -> bool {
        let item = self.arena.item(location);
        let version = item.stamp.version;
        let is_missed = change == BlockChange::Swept && canary::planted("pin ignored by the sweep");
        let for_pins = self.shadows.newest() >= Some(version) && !is_missed;
        let for_snapshot = self
            .snapshot
            .as_ref()
            .is_some_and(|progress| progress.needs(hash, item.key, version));
        if !for_pins && !for_snapshot {
            return false;
        }
        if for_pins && change != BlockChange::Overwritten {
            self.shadows.add_ghost(item.key);
        }
        let bytes = self.arena.block_bytes(location);
        let record = ShadowRecord {
            version,
            end: self.changes_at,
            hash,
            for_pins,
            for_snapshot,
        };
        let id = self.shadows.add(record, bytes);
        let item_bytes = self.item_bytes();
        if for_snapshot && let Some(progress) = &mut self.snapshot {
            progress.keep(bytes, item_bytes);
        }
        self.arena.set_version(location, id.as_word());
        self.arena.set_shadow(location, true);
        true
    }

    /// Makes a shadow the item of its key again.
    pub(super) fn revive(&mut self, location: Location) {
        let id = ShadowId::from_word(self.arena.version(location));
        let record = *self.shadows.get(id);
        let bytes = self.arena.block_bytes(location);
        if record.for_snapshot {
            self.shadows.release_from_snapshot(id);
            self.snapshot
                .as_mut()
                .expect("the record says that a snapshot needs it")
                .forget(bytes);
        }
        self.shadows.release_from_pins(id, bytes);
        self.shadows.forget(id, bytes);
        self.arena.set_version(location, record.version);
        self.arena.set_shadow(location, false);
        if record.for_pins {
            let key = self.arena.item(location).key.to_vec();
            self.lay_ghost(record.hash, &key);
        }
        self.give_room_back();
    }

    /// A shadow lies in another block now.
    pub(super) fn shadow_moved(&mut self, record: &ShadowRecord, from_bytes: u64, to_bytes: u64) {
        self.shadows.moved(record, from_bytes, to_bytes);
        if record.for_snapshot
            && let Some(progress) = &mut self.snapshot
        {
            progress.moved(from_bytes, to_bytes);
        }
    }

    /// Ends a shadow that the snapshot does not need any more, unless a pin does.
    pub(crate) fn drop_for_snapshot(
        &mut self,
        progress: &mut SnapshotProgress,
        location: Location,
    ) {
        let Some((id, &record)) = self.shadow_of(location) else {
            return;
        };
        if !record.for_snapshot {
            return;
        }
        progress.forget(self.arena.block_bytes(location));
        self.shadows.release_from_snapshot(id);
        if !record.for_pins {
            self.end_shadow(id, record.hash, location);
            self.give_room_back();
        }
    }

    /// Whether the snapshot has to write this block, and the version of what it holds.
    pub(crate) fn version_for_snapshot(&self, location: Location) -> Option<Position> {
        match self.shadow_of(location) {
            None => Some(self.arena.version(location)),
            Some((_, record)) => record.for_snapshot.then_some(record.version),
        }
    }

    /// Frees some of the shadows that no pin needs any more; true once none is left.
    pub(crate) fn free_due_shadows(&mut self, most: u32) -> bool {
        for _ in 0..most {
            let Some(id) = self.shadows.due() else {
                return true;
            };
            self.free_pinned(id);
        }
        self.shadows.due().is_none()
    }

    /// A key is removed of which a pin may need an earlier state.
    #[inline(never)]
    pub(super) fn add_ghost_of(&mut self, hash: KeyHash, location: Location) {
        let key = self.arena.item(location).key;
        if self.has_pinned(hash, key) {
            self.shadows.add_ghost(key);
        }
    }

    fn has_pinned(&self, hash: KeyHash, key: &[u8]) -> bool {
        let pinned = self.table.find(hash, |location| {
            let shadow = self.shadow_of(location);
            shadow.is_some_and(|(_, record)| record.for_pins)
                && self.arena.item(location).key == key
        });
        pinned.is_some()
    }

    /// A little of the work that pins leave behind. The limit holds whatever clients do: what takes too much ends with
    /// the oldest pin, on this replica alone.
    #[inline(never)]
    pub(super) fn mind_shadows(&mut self) {
        self.free_due_shadows(PIN_SHADOWS_FREED);
        let (mut freed, newest) = (0, self.shadows.newest());
        let most = self.pin_bytes_max();
        while self.shadows.pinned_bytes() > most {
            match self.shadows.due() {
                // The newer pins need none of these.
                Some(_) if freed == FREED_AT_THE_LIMIT_MAX => break,
                Some(id) => {
                    freed += 1;
                    self.free_pinned(id);
                }
                None if self.shadows.is_serving() => self.shadows.give_up_oldest(),
                None => break,
            }
        }
        // Changes add more than they free: small blocks are due, and large ones come.
        if self.shadows.pinned_bytes() > most.saturating_add(most / PIN_KEPT_EXCESS) {
            self.shadows.give_up_all();
        }
        if self.shadows.newest() != newest {
            self.set_keep_through();
        }
    }

    /// The most bytes that shadows for pins may take.
    fn pin_bytes_max(&self) -> u64 {
        let usual = PIN_KEPT_BYTES_MIN.max(self.item_bytes() / 2);
        self.retain_bytes.unwrap_or(usual)
    }

    /// Bytes in the blocks of items. A limit that counted shadows as well would grow with them.
    pub(crate) fn item_bytes(&self) -> u64 {
        self.arena.usage().live_bytes - self.shadows.block_bytes()
    }

    /// The room of many shadows is freed like that of flushed items, once none of them is left.
    fn give_room_back(&mut self) {
        if let Some(room) = self.shadows.take_room() {
            self.flushed.add(Old::of_shadows(room));
        }
    }

    fn free_pinned(&mut self, id: ShadowId) {
        let ShadowRecord {
            hash, for_snapshot, ..
        } = *self.shadows.get(id);
        let found = self.table.find(hash, |location| {
            self.arena.is_shadowed(location) && self.arena.version(location) == id.as_word()
        });
        let (_, location) = found.expect("a record has a block");
        self.shadows
            .release_from_pins(id, self.arena.block_bytes(location));
        let has_ghosts = !self.shadows.ghosts().is_empty();
        let key = has_ghosts.then(|| self.arena.item(location).key.to_vec());
        if !for_snapshot {
            self.end_shadow(id, hash, location);
        }
        if let Some(key) = key {
            self.lay_ghost(hash, &key);
        }
        self.give_room_back();
    }

    /// The key is among the ghosts no more unless another shadow of it is left.
    fn lay_ghost(&mut self, hash: KeyHash, key: &[u8]) {
        if self.shadows.ghosts().contains(key) && !self.has_pinned(hash, key) {
            self.shadows.remove_ghost(key);
        }
    }

    fn end_shadow(&mut self, id: ShadowId, hash: KeyHash, location: Location) {
        let slot = self
            .table
            .find_location(hash, location)
            .expect("every live block is in the index");
        self.shadows.forget(id, self.arena.block_bytes(location));
        self.table.remove(hash, slot);
        self.arena.remove(location);
    }
}
