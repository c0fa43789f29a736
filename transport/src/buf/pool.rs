//! The pool's handles: a program asks them for buffers, and the last of them ends the pool.

use std::fmt;
use std::ptr::NonNull;
use std::sync::Arc;

use super::blocks::{CLASSES, PoolState, class_of, stride_of};
use super::{HeapRegions, MsgBuf, RegionAllocator};

/// The limits of a pool.
#[derive(Copy, Clone, Debug)]
pub struct PoolConfig {
    /// Most bytes of region memory that the pool takes; `alloc` fails beyond.
    pub bytes_max: usize,
}

/// A cheap handle on a frame pool; clones share the pool.
#[derive(Clone)]
pub struct Pool {
    handle: Arc<Handle>,
}

/// A snapshot of a pool's use.
#[derive(Copy, Clone, PartialEq, Eq, Default, Debug)]
pub struct PoolStats {
    /// Region memory taken, in bytes.
    pub region_bytes: usize,
    /// Those of free blocks whose physical memory was given back, but for some pages.
    pub cold_bytes: usize,
    /// Blocks that exist.
    pub blocks: usize,
    /// Blocks in no free list. Exact only while no other thread uses the pool.
    pub blocks_in_use: usize,
    /// Times `alloc` found no memory.
    pub exhausted: u64,
}

/// The blocks of one size.
#[derive(Copy, Clone, PartialEq, Eq, Default, Debug)]
pub struct ClassStats {
    /// Data bytes that a block holds.
    pub capacity: usize,
    /// Region memory that the blocks take, the overhead around their data included.
    pub region_bytes: usize,
    /// Blocks that exist.
    pub blocks: usize,
    /// Blocks in no free list. Exact only while no other thread uses the pool.
    pub blocks_in_use: usize,
}

struct Handle {
    shared: NonNull<PoolState>,
}

// SAFETY: `PoolState` is made of atomics, a mutex and once-cells, and its allocator is `Send + Sync`;
// `RegionEntry`'s pointers are only turned into blocks under the rules of the free lists.
unsafe impl Send for Handle {}
// SAFETY: as for `Send`; every method of `PoolState` takes `&self` and synchronizes itself.
unsafe impl Sync for Handle {}

impl Default for PoolConfig {
    fn default() -> Self {
        Self { bytes_max: 1 << 30 }
    }
}

impl Pool {
    /// A pool on the process heap. No memory is taken before the first `alloc` or `reserve`.
    #[must_use]
    pub fn new(config: PoolConfig) -> Self {
        Self::with_region_allocator(config, HeapRegions)
    }

    /// A pool whose memory comes from `allocator`, as a device that registers memory needs it.
    #[must_use]
    pub fn with_region_allocator(config: PoolConfig, allocator: impl RegionAllocator) -> Self {
        let shared = Box::new(PoolState::new(config.bytes_max, allocator));
        Self {
            handle: Arc::new(Handle {
                shared: NonNull::from(Box::leak(shared)),
            }),
        }
    }

    /// A buffer of `len` bytes with unspecified (but initialized) contents, or `None` when the
    /// pool's memory is used up or `len` exceeds [`MESSAGE_BYTES_MAX`](super::MESSAGE_BYTES_MAX). Its capacity is that of the smallest
    /// class that fits, or of a larger one when the pool may not grow any more.
    #[must_use]
    pub fn alloc(&self, len: usize) -> Option<MsgBuf> {
        let class = class_of(len)?;
        let shared = self.shared();
        let (block, class) = match shared.pop(class) {
            Some(block) => (block, class),
            None => shared.grow(class)?,
        };
        Some(MsgBuf::from_block(block, len, CLASSES[class]))
    }

    /// Makes sure that `count` buffers of `len` bytes are free without taking memory later.
    /// False if the pool may not grow that far.
    pub fn reserve(&self, len: usize, count: usize) -> bool {
        let mut held = Vec::with_capacity(count);
        while held.len() < count {
            match self.alloc(len) {
                Some(buffer) => held.push(buffer),
                None => return false,
            }
        }
        true
    }

    /// Region memory taken so far, in bytes. The addresses are never given back; see [`PoolStats::cold_bytes`].
    #[must_use]
    pub fn region_bytes(&self) -> usize {
        self.shared().growth().bytes
    }

    /// See [`PoolStats::cold_bytes`].
    #[must_use]
    pub fn cold_bytes(&self) -> usize {
        self.shared().cold_bytes()
    }

    /// The pool's use at this moment.
    #[must_use]
    pub fn stats(&self) -> PoolStats {
        let shared = self.shared();
        let growth = shared.growth();
        let total: usize = growth.blocks.iter().sum();
        let free: usize = (0..CLASSES.len())
            .map(|class| shared.count_free(class, growth.blocks[class]))
            .sum();
        PoolStats {
            region_bytes: growth.bytes,
            cold_bytes: shared.cold_bytes(),
            blocks: total,
            blocks_in_use: total.saturating_sub(free),
            exhausted: shared.exhausted(),
        }
    }

    /// Memory of large blocks that was used and is not given back: of all, and of the free ones. Walks the free lists.
    pub(crate) fn warm_bytes(&self) -> (usize, usize) {
        self.shared().warm_bytes()
    }

    /// The first of [`Pool::warm_bytes`], without a walk.
    pub(crate) fn large_warm_bytes(&self) -> usize {
        self.shared().large_warm_bytes()
    }

    /// Gives the physical memory of free large blocks back to the system, of about `bytes`. Returns how much that was; 0
    /// when there is no more, or a device has registered the memory.
    pub(crate) fn cool(&self, bytes: usize) -> usize {
        self.shared().cool(bytes)
    }

    /// The sizes of which there are blocks, smallest first. Walks the free lists: for people, not for each packet.
    pub fn classes(&self) -> impl Iterator<Item = ClassStats> {
        let shared = self.shared();
        let blocks = shared.growth().blocks;
        let existing = (0..CLASSES.len()).filter(move |&class| blocks[class] > 0);
        existing.map(move |class| ClassStats {
            capacity: CLASSES[class],
            region_bytes: blocks[class] * stride_of(class),
            blocks: blocks[class],
            blocks_in_use: blocks[class].saturating_sub(shared.count_free(class, blocks[class])),
        })
    }

    fn shared(&self) -> &PoolState {
        // SAFETY: the pointer came from a leaked box, which is freed only after `close`, which runs
        // when the last handle is dropped; `self` holds one.
        unsafe { self.handle.shared.as_ref() }
    }
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Pool").field(&self.stats()).finish()
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        // SAFETY: this is the last handle and `close` has not run before, so `PoolState` is alive.
        let shared = unsafe { self.shared.as_ref() };
        if shared.close() {
            // SAFETY: `close` said that no block is out and no handle exists any more.
            unsafe { PoolState::free(self.shared) }
        }
    }
}
