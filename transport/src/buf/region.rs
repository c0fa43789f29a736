//! Where pool memory comes from: the heap by default, a device's registered memory otherwise.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::ptr::NonNull;

/// One contiguous piece of pool memory.
#[derive(Copy, Clone, Debug)]
pub struct Region {
    /// First byte, aligned to at least [`Region::ALIGN`].
    pub base: NonNull<u8>,
    /// Length in bytes.
    pub len: usize,
    /// The device's key for this memory (the verbs lkey); zero where that means nothing.
    pub key: u32,
}

impl Region {
    /// Alignment of every region: a page, which devices like, and a multiple of a cache line.
    pub const ALIGN: usize = 4096;
}

/// Hands out memory that a backend's device can read and write.
///
/// # Safety
///
/// `allocate` must return memory that is zeroed, aligned to [`Region::ALIGN`], and `len >= bytes`
/// long. It must be valid for reads and writes by any thread until `release` is called with the
/// same region, and not reachable through any other pointer.
pub unsafe trait RegionAllocator: Send + Sync + 'static {
    /// A region of at least `bytes` bytes, or `None` when there is no more memory.
    fn allocate(&self, bytes: usize) -> Option<Region>;

    /// Takes back a region of this allocator.
    ///
    /// # Safety
    ///
    /// `region` came from `allocate` of this same value and nothing refers to it any more.
    unsafe fn release(&self, region: Region);

    /// Gives the physical memory of these bytes back to the system. They stay valid and hold anything initialized
    /// afterwards, such as zeros. False, and nothing happens, if the allocator cannot: memory that a device has registered
    /// is pinned.
    ///
    /// # Safety
    ///
    /// The bytes begin at a page, are whole pages, and lie in one region of this allocator. The caller alone uses them,
    /// and nothing refers to their contents.
    unsafe fn discard(&self, start: NonNull<u8>, bytes: usize) -> bool {
        let _ = (start, bytes);
        false
    }
}

/// Regions from the process heap. For backends whose kernel or peer copies.
#[derive(Copy, Clone, Default, Debug)]
pub struct HeapRegions;

fn layout(bytes: usize) -> Option<Layout> {
    Layout::from_size_align(bytes, Region::ALIGN)
        .ok()
        .filter(|layout| layout.size() > 0)
}

// SAFETY: the global allocator's memory is zeroed by `alloc_zeroed`, aligned as the layout asks,
// and exclusively ours until `dealloc`.
unsafe impl RegionAllocator for HeapRegions {
    fn allocate(&self, bytes: usize) -> Option<Region> {
        let layout = layout(bytes)?;
        // SAFETY: `layout` rejects a size of zero.
        let base = unsafe { alloc_zeroed(layout) };
        Some(Region {
            base: NonNull::new(base)?,
            len: bytes,
            key: 0,
        })
    }

    unsafe fn release(&self, region: Region) {
        let layout = layout(region.len).expect("allocate built the same layout");
        // SAFETY: by the caller's promise the region came from `allocate`, which used this layout,
        // and nothing refers to it any more.
        unsafe { dealloc(region.base.as_ptr(), layout) }
    }

    unsafe fn discard(&self, start: NonNull<u8>, bytes: usize) -> bool {
        // SAFETY: by the caller's promise these are whole pages of a live allocation that only the caller uses. They are
        // private anonymous memory, as all of the heap: the next access finds zeros, which are initialized bytes. The
        // heap's own records lie outside of an allocation.
        let result = unsafe { libc::madvise(start.as_ptr().cast(), bytes, libc::MADV_DONTNEED) };
        result == 0
    }
}
