//! Allocation: segregated fits with immediate joining of free neighbours.

use super::block::{BLOCK_GRANULES_MIN, BlockHeader};
use super::{Arena, GRANULE_BYTES, Location, REGION_BYTES, REGION_GRANULES, Space};

/// Each power of two is divided into this many bins; blocks below it have exact bins.
const STEPS: u64 = 16;
const STEPS_LOG: u32 = STEPS.trailing_zeros();

/// Rows of bins: the exact one, then one for each power of two up to a whole region.
const ROWS: usize = (REGION_GRANULES.ilog2() - STEPS_LOG + 2) as usize;

pub(super) const BINS: usize = ROWS * STEPS as usize;

/// How many blocks of a bin are checked if some of them may be too small.
const SEARCH_MAX: u32 = 8;

/// Which bins have blocks.
#[derive(Clone, Default, Debug)]
pub(super) struct Bitmaps {
    rows: u32,
    steps: [u16; ROWS],
}

const _: () = assert!(ROWS <= 32 && STEPS <= 16);

impl Bitmaps {
    fn set(&mut self, bin: usize) {
        self.rows |= 1 << (bin / STEPS as usize);
        self.steps[bin / STEPS as usize] |= 1 << (bin % STEPS as usize);
    }

    fn clear(&mut self, bin: usize) {
        let row = bin / STEPS as usize;
        self.steps[row] &= !(1 << (bin % STEPS as usize));
        if self.steps[row] == 0 {
            self.rows &= !(1 << row);
        }
    }

    /// The first bin from `bin` on that has a block.
    fn first_from(&self, bin: usize) -> Option<usize> {
        let (row, step) = (bin / STEPS as usize, bin % STEPS as usize);
        if row >= ROWS {
            return None;
        }
        let here = self.steps[row] & (u16::MAX << step);
        if here != 0 {
            return Some(row * STEPS as usize + here.trailing_zeros() as usize);
        }
        let above = self.rows & u32::MAX.checked_shl(row as u32 + 1).unwrap_or(0);
        let row = (above != 0).then(|| above.trailing_zeros() as usize)?;
        Some(row * STEPS as usize + self.steps[row].trailing_zeros() as usize)
    }
}

/// The bin that a block of this size is kept in.
fn bin_of(granules: u64) -> usize {
    if granules < STEPS {
        return granules as usize;
    }
    let power = granules.ilog2() - STEPS_LOG;
    let step = (granules >> power) - STEPS;
    (u64::from(power + 1) * STEPS + step) as usize
}

/// The first bin all of whose blocks are large enough.
fn bin_that_fits(granules: u64) -> usize {
    let bin = bin_of(granules);
    let exact = granules < STEPS || granules.trailing_zeros() >= granules.ilog2() - STEPS_LOG;
    if exact { bin } else { bin + 1 }
}

/// The block size for this many bytes.
pub(super) fn granules_for(bytes: usize) -> u64 {
    (bytes.div_ceil(GRANULE_BYTES) as u64).max(BLOCK_GRANULES_MIN)
}

impl Arena {
    /// A live block of at least `bytes` bytes with an empty item in it.
    pub(super) fn allocate(&mut self, bytes: usize) -> Location {
        let wanted = granules_for(bytes);
        let location = self.take_fitting(wanted).unwrap_or_else(|| {
            self.add_region();
            self.take_fitting(wanted)
                .expect("an item is smaller than a region")
        });
        let found = self.header(location).granules();
        self.cut(location, found, wanted);
        location
    }

    /// Ends a live block.
    pub(super) fn release(&mut self, location: Location) {
        let header = self.header(location);
        debug_assert!(!header.is_free());
        self.count_live(location, -header.granules().cast_signed());
        self.free_and_join(location, header.granules(), header.before_free());
    }

    /// Gives back what a live block has beyond `bytes`, if the rest is large enough for a block.
    pub(super) fn trim(&mut self, location: Location, bytes: usize) {
        let wanted = granules_for(bytes);
        let header = self.header(location);
        let surplus = header.granules() - wanted;
        if surplus < BLOCK_GRANULES_MIN {
            return;
        }
        self.set_header(location, header.with_granules(wanted));
        self.count_live(location, -surplus.cast_signed());
        self.free_and_join(Location(location.0 + wanted), surplus, false);
    }

    /// A block for `wanted` granules, out of its list.
    fn take_fitting(&mut self, wanted: u64) -> Option<Location> {
        let location = self.search_bin(wanted).or_else(|| {
            let bin = self.bitmaps.first_from(bin_that_fits(wanted))?;
            Some(self.heads[bin])
        })?;
        self.unlist(location);
        Some(location)
    }

    /// A block from the bin whose blocks may or may not be large enough.
    fn search_bin(&self, wanted: u64) -> Option<Location> {
        let mut candidate = self.heads[bin_of(wanted)];
        for _ in 0..SEARCH_MAX {
            if candidate == Location::NONE {
                return None;
            }
            if self.header(candidate).granules() >= wanted {
                return Some(candidate);
            }
            candidate = Location(self.word(candidate, 1));
        }
        None
    }

    /// Makes a live block of `wanted` granules out of a free one that is in no list.
    fn cut(&mut self, location: Location, found: u64, wanted: u64) {
        let left = found - wanted;
        let granules = if left < BLOCK_GRANULES_MIN {
            found
        } else {
            wanted
        };
        // The block before cannot be free: it would have been joined with this one.
        self.set_header(location, BlockHeader::live(granules));
        if granules < found {
            let rest = Location(location.0 + granules);
            self.mark_free(rest, left, true);
            self.list(rest, left);
        } else {
            self.tell_behind(location, granules, false);
        }
        self.count_live(location, granules.cast_signed());
    }

    /// Frees a range, joining it with free neighbours.
    fn free_and_join(&mut self, mut location: Location, mut granules: u64, before_free: bool) {
        if let Some(behind) = self.behind(location, granules) {
            let header = self.header(behind);
            if header.is_free() {
                self.unlist_if_listed(behind, header);
                granules += header.granules();
            }
        }
        if before_free {
            let before = self.free_before(location);
            let header = self.header(before);
            self.unlist_if_listed(before, header);
            granules += header.granules();
            location = before;
        }
        let leaving = self.is_leaving(location);
        self.mark_free(location, granules, !leaving);
        if leaving {
            self.joined_in_leaving(location, granules);
        } else {
            self.list(location, granules);
            self.give_back_if_empty(location, granules);
        }
    }

    fn unlist_if_listed(&mut self, location: Location, header: BlockHeader) {
        if header.is_listed() {
            self.unlist(location);
        }
    }

    fn list(&mut self, location: Location, granules: u64) {
        let bin = bin_of(granules);
        let next = self.heads[bin];
        self.set_word(location, 1, next.0);
        self.set_word(location, 2, Location::NONE.0);
        if next != Location::NONE {
            self.set_word(next, 2, location.0);
        }
        self.heads[bin] = location;
        self.bitmaps.set(bin);
    }

    pub(super) fn unlist(&mut self, location: Location) {
        let (next, before) = (
            Location(self.word(location, 1)),
            Location(self.word(location, 2)),
        );
        let bin = bin_of(self.header(location).granules());
        if next != Location::NONE {
            self.set_word(next, 2, before.0);
        }
        if before != Location::NONE {
            self.set_word(before, 1, next.0);
            return;
        }
        self.heads[bin] = next;
        if next == Location::NONE {
            self.bitmaps.clear(bin);
        }
    }

    fn add_region(&mut self) {
        let region = match self.spaces.iter().position(|space| !space.mapped) {
            Some(region) => region,
            None => {
                self.memory.grow_to(self.memory.len() + REGION_BYTES);
                self.spaces.push(Space {
                    mapped: false,
                    live: 0,
                });
                self.spaces.len() - 1
            }
        };
        self.spaces[region].mapped = true;
        self.mapped += 1;
        let whole = Location::new(region, 0);
        self.mark_free(whole, REGION_GRANULES, true);
        self.list(whole, REGION_GRANULES);
    }

    /// Returns a region that has become one free block to the system, if another one is empty too.
    /// Keeping one avoids mapping and unmapping at a size that goes up and down.
    fn give_back_if_empty(&mut self, location: Location, granules: u64) {
        if granules < REGION_GRANULES {
            return;
        }
        let empty_list = self.heads[bin_of(REGION_GRANULES)];
        if Location(self.word(empty_list, 1)) != Location::NONE {
            self.unlist(location);
            self.drop_region(location.region());
        }
    }

    pub(super) fn drop_region(&mut self, region: usize) {
        debug_assert_eq!(self.spaces[region].live, 0);
        self.spaces[region].mapped = false;
        self.memory.give_back(region * REGION_BYTES, REGION_BYTES);
        self.mapped -= 1;
    }

    fn count_live(&mut self, location: Location, change: i64) {
        let space = &mut self.spaces[location.region()];
        space.live = space.live.strict_add_signed(change);
        self.live = self.live.strict_add_signed(change);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bins_are_ordered_and_a_fitting_bin_fits() {
        let mut last = 0;
        for granules in BLOCK_GRANULES_MIN..=REGION_GRANULES {
            let bin = bin_of(granules);
            assert!(
                bin == last || bin == last + 1 || granules == BLOCK_GRANULES_MIN,
                "{granules}"
            );
            last = bin;
            let fits = bin_that_fits(granules);
            assert!(fits == bin || fits == bin + 1);
            // The smallest block of the fitting bin is large enough; that of the bin before is not.
            assert!(
                fits >= BINS
                    || bin_of(
                        granules.next_multiple_of(1 << granules.ilog2().saturating_sub(STEPS_LOG))
                    ) == fits
            );
        }
        assert!(last < BINS);
    }
}
