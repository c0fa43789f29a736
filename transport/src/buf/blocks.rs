//! The blocks of a frame pool: size classes of equal blocks, one lock-free free list a class.
//!
//! Allocating and freeing is one compare-and-swap each, from any thread. A pool that may not grow any more
//! gives out free blocks of larger classes than asked for. Blocks never leave their
//! class and regions live as long as the pool, so a stale free-list read always hits mapped memory. The physical
//! memory of large blocks that are not needed can be given back. Such a block keeps its header and waits in a second
//! list of its class.
//!
//! ```text
//! block id (32 bits):   region (10 bits) | index in the region (22 bits)
//! list head (64 bits):  tag (32 bits, grows with each pop) | block id, or NIL, or CLOSED
//! ```
//!
//! Lifetime of the pool: when the last handle goes, every list is closed and its free blocks are
//! counted. A block that comes back later finds its list closed and counts itself. The thread that
//! counts the last block frees the regions.

use std::ptr::NonNull;
use std::sync::atomic::{AtomicI64, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};

use super::{
    HEADER_ROOM, LATER_HEADER_ROOM, MESSAGE_BYTES_MAX, PACKET_DATA_MIN, Region, RegionAllocator,
};

/// Data capacities of the size classes. 1536 holds one packet of the default path MTU.
pub(super) const CLASSES: [usize; 18] = [
    128,
    256,
    512,
    1024,
    1536,
    2048,
    4096,
    8192,
    16 << 10,
    32 << 10,
    64 << 10,
    128 << 10,
    256 << 10,
    512 << 10,
    1 << 20,
    2 << 20,
    4 << 20,
    MESSAGE_BYTES_MAX,
];

/// The first class whose free blocks' physical memory can be given back: all but the pages at their ends.
const LARGE: usize = 8;

const REGIONS_MAX: usize = 1024;
const INDEX_BITS: u32 = 22;
/// The first region of a class is about this large; each further one doubles the class.
const REGION_BYTES_MIN: usize = 64 << 10;
/// No region of several blocks is larger than this.
const REGION_BYTES_MAX: usize = 4 << 20;

/// List head: the list is empty.
const NIL: u32 = u32::MAX;
/// List head: the pool is gone.
const CLOSED: u32 = u32::MAX - 1;

/// Bytes from the start of a block to its data.
pub(super) const DATA_OFFSET: usize = size_of::<Block>() + HEADER_ROOM;

const _: () = assert!(size_of::<Block>() == 16);
const _: () = assert!(DATA_OFFSET == 64, "data starts on a cache line");
const _: () = assert!(CLASSES[LARGE] >= 4 * Region::ALIGN);
const _: () = assert!(REGIONS_MAX == 1 << (32 - INDEX_BITS));

/// The start of every block.
#[repr(C)]
pub(super) struct Block {
    /// One for the `MsgBuf` plus one for each `BodyRef`; zero while the block is free.
    pub(super) refs: AtomicU32,
    /// The block's own id while it is in use, the id of the next free block (or NIL) otherwise.
    link: AtomicU32,
    pool: NonNull<PoolState>,
}

/// Pool state that outlives the handles until the last block has come back.
pub(super) struct PoolState {
    heads: [AtomicU64; CLASSES.len()],
    /// Free blocks of large classes whose physical memory was given back; used when the other list is empty.
    cold: [AtomicU64; CLASSES.len()],
    /// Region memory of the blocks in the `cold` lists.
    cold_bytes: AtomicUsize,
    /// Region memory of the large classes.
    large_bytes: AtomicUsize,
    regions: Box<[OnceLock<RegionEntry>]>,
    growth: Mutex<Growth>,
    exhausted: AtomicU64,
    /// Blocks still out, counted only after the handles are gone; see `PoolState::close`.
    outstanding: AtomicI64,
    allocator: Box<dyn RegionAllocator>,
    /// Most bytes of region memory.
    bytes_max: usize,
}

struct RegionEntry {
    region: Region,
    class: usize,
    stride: usize,
}

/// The memory that a pool has taken so far.
#[derive(Copy, Clone, Default)]
pub(super) struct Growth {
    regions: usize,
    pub(super) bytes: usize,
    pub(super) blocks: [usize; CLASSES.len()],
}

// SAFETY: a `RegionEntry` is plain data; the memory behind it may be used from any thread by
// `RegionAllocator`'s contract.
unsafe impl Send for RegionEntry {}
// SAFETY: as for `Send`; nothing in a `RegionEntry` changes after it was published.
unsafe impl Sync for RegionEntry {}

impl PoolState {
    pub(super) fn new(bytes_max: usize, allocator: impl RegionAllocator) -> Self {
        Self {
            heads: std::array::from_fn(|_| AtomicU64::new(u64::from(NIL))),
            cold: std::array::from_fn(|_| AtomicU64::new(u64::from(NIL))),
            cold_bytes: AtomicUsize::new(0),
            large_bytes: AtomicUsize::new(0),
            regions: (0..REGIONS_MAX).map(|_| OnceLock::new()).collect(),
            growth: Mutex::new(Growth::default()),
            exhausted: AtomicU64::new(0),
            outstanding: AtomicI64::new(0),
            allocator: Box::new(allocator),
            bytes_max,
        }
    }

    pub(super) fn growth(&self) -> Growth {
        *self.growth.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Times that there was no memory.
    pub(super) fn exhausted(&self) -> u64 {
        self.exhausted.load(Ordering::Relaxed)
    }

    #[inline]
    pub(super) fn pop(&self, class: usize) -> Option<NonNull<Block>> {
        self.pop_from(&self.heads[class])
    }

    /// As [`PoolState::pop`], from the blocks whose physical memory was given back.
    fn pop_cold(&self, class: usize) -> Option<NonNull<Block>> {
        let block = self.pop_from(&self.cold[class])?;
        self.cold_bytes
            .fetch_sub(stride_of(class), Ordering::Relaxed);
        Some(block)
    }

    #[inline]
    fn pop_from(&self, head: &AtomicU64) -> Option<NonNull<Block>> {
        let mut seen = head.load(Ordering::Acquire);
        loop {
            let id = seen as u32;
            // Only a handle allocates, and the list is closed by the last handle.
            debug_assert_ne!(id, CLOSED, "allocation from a closed pool");
            if id == NIL {
                return None;
            }
            let block = self.block(id);
            // SAFETY: regions stay mapped and `Block`s initialized while the pool lives. Another
            // thread may own the block by now, so this reads an atomic and trusts it only if the
            // tag below is unchanged. The tag has 32 bits: being fooled takes exactly 2^32 pops
            // between the load and the exchange.
            let next = unsafe { &block.as_ref().link }.load(Ordering::Relaxed);
            let tag = (seen >> 32).wrapping_add(1) << 32;
            match head.compare_exchange_weak(
                seen,
                tag | u64::from(next),
                Ordering::Acquire,
                Ordering::Acquire,
            ) {
                Ok(_) => {
                    // SAFETY: the exchange made this thread the block's only owner.
                    let owned = unsafe { block.as_ref() };
                    owned.link.store(id, Ordering::Relaxed);
                    owned.refs.store(1, Ordering::Relaxed);
                    return Some(block);
                }
                Err(current) => seen = current,
            }
        }
    }

    /// Puts blocks `first..=last`, already linked, in front of a list. False if it is closed.
    fn push(head: &AtomicU64, first: u32, last: &AtomicU32) -> bool {
        let mut seen = head.load(Ordering::Relaxed);
        loop {
            if seen as u32 == CLOSED {
                return false;
            }
            last.store(seen as u32, Ordering::Relaxed);
            let new = (seen >> 32) << 32 | u64::from(first);
            match head.compare_exchange_weak(seen, new, Ordering::Release, Ordering::Relaxed) {
                Ok(_) => return true,
                Err(current) => seen = current,
            }
        }
    }

    fn block(&self, id: u32) -> NonNull<Block> {
        let entry = self.regions[(id >> INDEX_BITS) as usize]
            .get()
            .expect("a block id names a published region");
        entry.block((id & ((1 << INDEX_BITS) - 1)) as usize)
    }

    /// Takes another region for `class` and returns one of its blocks; the rest becomes free. Without room for a region
    /// a free block of a larger class does. Blocks never leave their class, and memory that was once wanted in large
    /// pieces must not be lost to the small ones. Returns the block's own class, to whose list it goes back.
    #[cold]
    pub(super) fn grow(&self, class: usize) -> Option<(NonNull<Block>, usize)> {
        let mut growth = self.growth.lock().unwrap_or_else(PoisonError::into_inner);
        // Another thread may have grown the class while this one waited.
        if let Some(block) = self.pop(class).or_else(|| self.pop_cold(class)) {
            return Some((block, class));
        }
        let Some(region_index) = self.add_region(class, &mut growth) else {
            let free = |class| self.pop(class).or_else(|| self.pop_cold(class));
            let larger = (class + 1..CLASSES.len())
                .find_map(|larger| free(larger).map(|block| (block, larger)));
            if larger.is_none() {
                self.exhausted.fetch_add(1, Ordering::Relaxed);
            }
            return larger;
        };
        let first_id = (region_index as u32) << INDEX_BITS;
        let first = self.block(first_id);
        // SAFETY: `add_region` wrote the block and did not put it into the free list.
        unsafe { first.as_ref() }.refs.store(1, Ordering::Relaxed);
        Some((first, class))
    }

    fn add_region(&self, class: usize, growth: &mut Growth) -> Option<usize> {
        let stride = stride_of(class);
        let wanted = (growth.blocks[class] * stride).clamp(REGION_BYTES_MIN, REGION_BYTES_MAX);
        let affordable = self.bytes_max.saturating_sub(growth.bytes);
        let blocks = (wanted.min(affordable) / stride).max(1);
        let bytes = blocks * stride;
        if bytes > affordable || growth.regions == REGIONS_MAX {
            return None;
        }
        let region = self.allocator.allocate(bytes)?;
        assert!(
            region.len >= bytes,
            "the region allocator returned less than it was asked for"
        );
        assert!(
            region.base.addr().get() % Region::ALIGN == 0,
            "a region is not aligned"
        );
        let index = growth.regions;
        growth.regions += 1;
        growth.bytes += bytes;
        growth.blocks[class] += blocks;
        if class >= LARGE {
            self.large_bytes.fetch_add(bytes, Ordering::Relaxed);
        }
        let entry = self.regions[index].get_or_init(|| RegionEntry {
            region,
            class,
            stride,
        });
        let first_id = (index as u32) << INDEX_BITS;
        for place in 0..blocks {
            let id = first_id + place as u32;
            let link = if place == 0 { id } else { id + 1 };
            let block = Block {
                refs: AtomicU32::new(0),
                link: AtomicU32::new(link),
                pool: NonNull::from(self),
            };
            // SAFETY: the block lies inside the region just allocated, is aligned (stride and base
            // are multiples of 64), and no other code can know it yet.
            unsafe { entry.block(place).write(block) };
        }
        if blocks > 1 {
            let last = entry.block(blocks - 1);
            // SAFETY: written in the loop above, and not yet reachable through a list.
            let last = unsafe { &last.as_ref().link };
            let open = Self::push(&self.heads[class], first_id + 1, last);
            assert!(open, "a pool grew after its last handle was dropped");
        }
        Some(index)
    }

    /// Free blocks of a class, of at most `bound`.
    pub(super) fn count_free(&self, class: usize, bound: usize) -> usize {
        let warm = self.count(&self.heads[class], bound);
        warm + self.count(&self.cold[class], bound - warm)
    }

    /// Blocks in a list, of at most `bound`.
    fn count(&self, head: &AtomicU64, bound: usize) -> usize {
        let mut id = head.load(Ordering::Acquire) as u32;
        let mut count = 0;
        // The list may change underneath; the bound keeps the walk finite then.
        while id != NIL && id != CLOSED && count < bound {
            count += 1;
            let block = self.block(id);
            // SAFETY: blocks stay mapped and initialized while the pool lives; atomic read.
            id = unsafe { &block.as_ref().link }.load(Ordering::Relaxed);
        }
        count
    }

    /// Memory of large blocks that was used and is not given back: of all, and of the free ones. Walks free lists.
    pub(super) fn warm_bytes(&self) -> (usize, usize) {
        let blocks = self.growth().blocks;
        let free = (LARGE..CLASSES.len())
            .map(|class| self.count(&self.heads[class], blocks[class]) * stride_of(class));
        (self.large_warm_bytes(), free.sum())
    }

    /// Memory of large blocks that was used and is not given back.
    pub(super) fn large_warm_bytes(&self) -> usize {
        let cold = self.cold_bytes.load(Ordering::Relaxed);
        self.large_bytes
            .load(Ordering::Relaxed)
            .saturating_sub(cold)
    }

    /// Region memory whose physical memory was given back.
    pub(super) fn cold_bytes(&self) -> usize {
        self.cold_bytes.load(Ordering::Relaxed)
    }

    /// Gives the physical memory of free large blocks back, of about `bytes`. Returns how much that was; 0 when there is
    /// no more, or the memory is a device's.
    pub(super) fn cool(&self, bytes: usize) -> usize {
        let mut cooled = 0;
        for class in (LARGE..CLASSES.len()).rev() {
            let stride = stride_of(class);
            while cooled < bytes {
                let Some(block) = self.pop(class) else {
                    break;
                };
                // SAFETY: `pop` made this thread the block's only owner.
                let owned = unsafe { block.as_ref() };
                let id = owned.link.load(Ordering::Relaxed);
                // SAFETY: `discard` leaves the block's header alone, and nobody refers to its data.
                let was_discarded = unsafe { self.discard(block, stride) };
                owned.refs.store(0, Ordering::Relaxed);
                let list = match was_discarded {
                    true => &self.cold[class],
                    false => &self.heads[class],
                };
                self.cold_bytes
                    .fetch_add(usize::from(was_discarded) * stride, Ordering::Relaxed);
                let open = Self::push(list, id, &owned.link);
                assert!(
                    open,
                    "memory was given back after the pool's last handle was dropped"
                );
                if !was_discarded {
                    return 0;
                }
                cooled += stride;
            }
        }
        cooled
    }

    /// Gives back the pages that lie wholly inside a block's data. The header stays: other threads may still read it, on
    /// their way through a free list. False if the allocator does not do that.
    ///
    /// # Safety
    ///
    /// The caller owns the block, and nothing refers to its data.
    unsafe fn discard(&self, block: NonNull<Block>, stride: usize) -> bool {
        let address = block.as_ptr().addr();
        let from = (address + DATA_OFFSET).next_multiple_of(Region::ALIGN) - address;
        let to = (address + stride) / Region::ALIGN * Region::ALIGN - address;
        // SAFETY: a large block has a whole page behind its header, so `from <= to <= stride`.
        let start = unsafe { block.cast::<u8>().add(from) };
        // SAFETY: these pages lie in this block, which the caller owns; the region is this allocator's.
        unsafe { self.allocator.discard(start, to - from) }
    }

    /// Closes every list; true if all blocks were free, so that the caller frees the pool.
    pub(super) fn close(&self) -> bool {
        let blocks = self
            .growth
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .blocks;
        // Every block is subtracted once: below if its list holds it, by `release` if it comes back
        // to a closed list. The whole sum, and one more, is there before the first list is closed,
        // so the count cannot reach zero early.
        let total: usize = blocks.iter().sum();
        self.outstanding
            .fetch_add(total as i64 + 1, Ordering::AcqRel);
        for head in self.heads.iter().chain(&self.cold) {
            let mut id = head.swap(u64::from(CLOSED), Ordering::AcqRel) as u32;
            let mut free = 0;
            while id != NIL {
                free += 1;
                let block = self.block(id);
                // SAFETY: the swap took the whole list, so its blocks belong to this thread.
                id = unsafe { &block.as_ref().link }.load(Ordering::Relaxed);
            }
            self.outstanding.fetch_sub(free, Ordering::AcqRel);
        }
        self.outstanding.fetch_sub(1, Ordering::AcqRel) == 1
    }

    /// Gives all memory back.
    ///
    /// # Safety
    ///
    /// No handle and no block of the pool is in use, and this is the only call.
    pub(super) unsafe fn free(shared: NonNull<Self>) {
        // SAFETY: the pointer came from `Box::leak` in `with_region_allocator`; the caller promises
        // that no other code uses it.
        let shared = unsafe { Box::from_raw(shared.as_ptr()) };
        for entry in shared.regions.iter().map_while(OnceLock::get) {
            // SAFETY: the region came from this allocator, and no block is in use.
            unsafe { shared.allocator.release(entry.region) };
        }
    }
}

impl RegionEntry {
    fn block(&self, place: usize) -> NonNull<Block> {
        debug_assert!(
            (place + 1) * self.stride <= self.region.len,
            "block beyond its region"
        );
        // SAFETY: ids are made by `add_region`, which keeps `place` below the number of blocks
        // that fit into the region.
        unsafe { self.region.base.add(place * self.stride) }.cast()
    }
}

/// Returns a block to its pool.
///
/// # Safety
///
/// The caller owns the block exclusively (its reference count has just reached zero) and does not
/// touch it afterwards.
pub(super) unsafe fn release(block: NonNull<Block>) {
    // SAFETY: the caller owns the block, so it is initialized and stays so during this call.
    let owned = unsafe { block.as_ref() };
    let id = owned.link.load(Ordering::Relaxed);
    let pool = owned.pool;
    // SAFETY: `PoolState` lives at least until every block has been counted home, and this one has
    // not been.
    let shared = unsafe { pool.as_ref() };
    let class = shared.regions[(id >> INDEX_BITS) as usize]
        .get()
        .expect("a live block's region")
        .class;
    if PoolState::push(&shared.heads[class], id, &owned.link) {
        // From here on another thread may free the pool: nothing may be touched.
        return;
    }
    if shared.outstanding.fetch_sub(1, Ordering::AcqRel) == 1 {
        // SAFETY: the lists are closed, so no handle is left, and this was the last block.
        unsafe { PoolState::free(pool) }
    }
}

/// The device key and region of a live block.
///
/// # Safety
///
/// The caller holds a reference to the block.
pub(super) unsafe fn region_of(block: NonNull<Block>) -> Region {
    // SAFETY: the caller's reference keeps the block and its pool alive.
    let live = unsafe { block.as_ref() };
    let id = live.link.load(Ordering::Relaxed);
    // SAFETY: as above.
    let shared = unsafe { live.pool.as_ref() };
    shared.regions[(id >> INDEX_BITS) as usize]
        .get()
        .expect("a live block's region")
        .region
}

/// The smallest class that holds `len` bytes.
#[inline]
pub(super) fn class_of(len: usize) -> Option<usize> {
    match len {
        0..=128 => Some(0),
        129..=1024 => Some((len - 1).ilog2() as usize - 6),
        1025..=1536 => Some(4),
        1537..=MESSAGE_BYTES_MAX => Some((len - 1).ilog2() as usize - 5),
        _ => None,
    }
}

/// Bytes from one block of the class to the next.
pub(super) const fn stride_of(class: usize) -> usize {
    let capacity = CLASSES[class];
    let later_packets = capacity.div_ceil(PACKET_DATA_MIN) - 1;
    (DATA_OFFSET + capacity + later_packets * LATER_HEADER_ROOM).next_multiple_of(64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_length_gets_the_smallest_class_that_fits() {
        let lengths = (0..5_000).chain(
            CLASSES
                .iter()
                .flat_map(|&capacity| [capacity - 1, capacity]),
        );
        for len in lengths {
            let class = class_of(len).unwrap();
            assert!(CLASSES[class] >= len);
            assert!(class == 0 || CLASSES[class - 1] < len, "{len}");
        }
        assert_eq!(class_of(MESSAGE_BYTES_MAX + 1), None);
    }
}
