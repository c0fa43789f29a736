//! Emptying the sparsest region, a few blocks at a time.
//!
//! First a walk takes the region's free blocks out of their lists, so that nothing new is put
//! there. Then a second walk moves its items to other regions, and the region goes back to the
//! system. Freed blocks of a leaving region join their neighbours but enter no list.

use super::block::BlockHeader;
use super::{Arena, Location, REGION_GRANULES};

/// Free blocks taken out of their lists, or blocks skipped, in one step.
const WALK_BLOCKS_MAX: u32 = 32;

/// The arena is defragmented when less than this share of its regions is live, and one region
/// more than that would hold all of it.
const LIVE_SHARE_MIN: (u64, u64) = (7, 8);

#[derive(Copy, Clone, Eq, PartialEq, Debug)]
enum Phase {
    Unlisting,
    Moving,
}

/// The region that is being emptied.
#[derive(Copy, Clone, Debug)]
pub(super) struct Evacuation {
    region: usize,
    phase: Phase,
    /// The granule of the block that the walk visits next; always the start of a block.
    cursor: u64,
}

impl Arena {
    /// Does one bounded step. Returns an item that the caller must move with [`Arena::relocate`]
    /// before it does anything else.
    pub(crate) fn defragment_step(&mut self) -> Option<Location> {
        if self.evacuation.is_none() {
            self.evacuation = self.choose_sparsest();
        }
        let mut evacuation = self.evacuation?;
        for _ in 0..WALK_BLOCKS_MAX {
            if evacuation.cursor == REGION_GRANULES {
                if evacuation.phase == Phase::Moving {
                    self.evacuation = None;
                    self.drop_region(evacuation.region);
                    return None;
                }
                evacuation = Evacuation {
                    phase: Phase::Moving,
                    cursor: 0,
                    ..evacuation
                };
            }
            let location = Location::new(evacuation.region, evacuation.cursor);
            let header = self.header(location);
            evacuation.cursor += header.granules();
            match evacuation.phase {
                Phase::Unlisting if header.is_free() && header.is_listed() => {
                    self.unlist(location);
                    let unlisted = BlockHeader::free(header.granules(), false);
                    self.set_header(location, unlisted.with_before_free(header.before_free()));
                }
                Phase::Moving if !header.is_free() => {
                    self.evacuation = Some(evacuation);
                    return Some(location);
                }
                _ => {}
            }
        }
        self.evacuation = Some(evacuation);
        None
    }

    /// Moves a live block elsewhere; the caller must update all references to it.
    pub(crate) fn relocate(&mut self, from: Location) -> Location {
        let header = self.header(from);
        let bytes = header.granules() as usize * super::GRANULE_BYTES;
        let to = self.allocate(bytes);
        let target = self.header(to);
        assert_ne!(
            from.region(),
            to.region(),
            "a leaving region takes no new blocks"
        );
        self.memory
            .copy_within(from.offset()..from.offset() + bytes, to.offset());
        let moved = header
            .with_granules(target.granules())
            .with_before_free(target.before_free());
        self.set_header(to, moved);
        self.release(from);
        to
    }

    /// Whether the block lies in the region that is being emptied.
    pub(super) fn is_leaving(&self, location: Location) -> bool {
        self.evacuation
            .is_some_and(|evacuation| evacuation.region == location.region())
    }

    /// Keeps the walk on block boundaries when blocks of its region join.
    pub(super) fn joined_in_leaving(&mut self, location: Location, granules: u64) {
        let evacuation = self
            .evacuation
            .as_mut()
            .expect("asked only about the leaving region");
        let (start, end) = (location.granule(), location.granule() + granules);
        if start < evacuation.cursor && evacuation.cursor < end {
            evacuation.cursor = end;
        }
    }

    fn choose_sparsest(&self) -> Option<Evacuation> {
        let total = self.mapped * REGION_GRANULES;
        let needed = (self.live * LIVE_SHARE_MIN.1).div_ceil(LIVE_SHARE_MIN.0) + REGION_GRANULES;
        if total <= needed {
            return None;
        }
        let mapped = self
            .spaces
            .iter()
            .enumerate()
            .filter(|(_, space)| space.mapped);
        let (region, _) = mapped
            .filter(|(_, space)| space.live > 0)
            .min_by_key(|(_, space)| space.live)?;
        Some(Evacuation {
            region,
            phase: Phase::Unlisting,
            cursor: 0,
        })
    }
}
