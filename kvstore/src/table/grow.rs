//! Growth without a stop: a few splits with each insertion.

use super::{BucketId, LEVEL_FIRST, PAGE_BUCKETS, SLOTS, Table};
use crate::arena::Location;
use crate::hash::KeyHash;

/// The most buckets that one command may split.
pub(crate) const MOVES_PER_COMMAND_MAX: u32 = 8;

/// Splits of one insertion while the table grows: it is done long before the next growth is due.
const MOVES_PER_INSERTION: u32 = 4;

const _: () = assert!(MOVES_PER_INSERTION <= MOVES_PER_COMMAND_MAX);

/// Growth begins when more than this share of the main buckets' slots is in use, and doubles the
/// table. Chains take what exceeds a bucket. At this load, just before growth, one key in ten lies
/// behind a link; at three quarters of it one in fifty.
const LOAD_MAX: (u64, u64) = (29, 32);

/// The most entries that a table is prepared for: an announced number may be wrong.
const PRESIZE_MAX: u64 = 1 << 26;

/// The largest number of hash bits that bucket numbers may use.
const LEVEL_MAX: u32 = 30;

impl Table {
    /// Splits a few buckets if growth is due or has begun. `hash_of` reads an item's key.
    ///
    /// Lookups are fastest while all buckets use the same number of hash bits. So growth, once
    /// begun, continues until that is so again.
    pub(crate) fn grow(&mut self, hash_of: impl Fn(Location) -> KeyHash) {
        let mut moves = 0;
        while (self.split != 0 || self.is_loaded()) && moves < MOVES_PER_INSERTION {
            self.split_one(&hash_of);
            moves += 1;
        }
        assert!(moves <= MOVES_PER_COMMAND_MAX, "growth stays incremental");
    }

    /// Gives an empty table the buckets for `count` entries, or for [`PRESIZE_MAX`] of them.
    pub(super) fn presize(&mut self, count: u64) {
        debug_assert_eq!(self.entries, 0);
        let slots = (count.min(PRESIZE_MAX) * LOAD_MAX.1).div_ceil(LOAD_MAX.0);
        let buckets = slots
            .div_ceil(u64::from(SLOTS))
            .clamp(1 << LEVEL_FIRST, 1 << LEVEL_MAX)
            .next_power_of_two() as u32;
        self.level = buckets.ilog2();
        self.mask = buckets - 1;
        self.main
            .grow_to((buckets as usize).next_multiple_of(PAGE_BUCKETS));
    }

    fn is_loaded(&self) -> bool {
        let slots = u64::from(self.buckets()) * u64::from(SLOTS);
        self.entries * LOAD_MAX.1 > slots * LOAD_MAX.0 && self.level < LEVEL_MAX
    }

    fn split_one(&mut self, hash_of: &impl Fn(Location) -> KeyHash) {
        let old = BucketId::main(self.split);
        let new = self.buckets();
        if new as usize == self.main.len() {
            self.main.grow_to(self.main.len() + PAGE_BUCKETS);
        }
        let mut moving = std::mem::take(&mut self.moving);
        self.for_each_in_chain(old, |location| moving.push((hash_of(location), location)));
        self.clear_chain(old);
        self.split += 1;
        if self.split == 1 << self.level {
            self.level += 1;
            self.mask = (1 << self.level) - 1;
            self.split = 0;
        }
        for (hash, location) in moving.drain(..) {
            let home = self.home(hash);
            debug_assert!(home == old || home == BucketId::main(new));
            self.append(home, hash, location);
        }
        self.moving = moving;
    }
}
