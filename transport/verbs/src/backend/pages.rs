//! The pages that registered memory lies in: those of the heap, or huge ones.
//!
//! A device translates each address that it uses, and keeps the translations of the last pages in a cache. Huge pages
//! need 512 times fewer of them (guideline 3.5).

use std::ptr::NonNull;

use super::VerbsError;
use trine_transport::buf::{HeapRegions, Region, RegionAllocator};

/// The size of a huge page.
const HUGE: usize = 2 << 20;
/// Smaller memory would waste more than half a huge page.
pub(super) const HUGE_FROM: usize = HUGE / 2;

/// Where a region's memory comes from.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) enum Pages {
    Small,
    Huge,
}

impl Pages {
    /// Bytes of a page.
    pub(super) fn bytes(self) -> usize {
        match self {
            Self::Small => Region::ALIGN,
            Self::Huge => HUGE,
        }
    }

    /// A zeroed region of at least `bytes` bytes, as `RegionAllocator::allocate`.
    pub(super) fn allocate(self, bytes: usize) -> Option<Region> {
        match self {
            Self::Small => HeapRegions.allocate(bytes),
            Self::Huge => map_huge(bytes),
        }
    }

    /// Takes back a region of these pages.
    ///
    /// # Safety
    ///
    /// `region` came from `allocate` of the same pages, and nothing refers to it any more.
    pub(super) unsafe fn release(self, region: Region) {
        match self {
            // SAFETY: by the caller's promise.
            Self::Small => unsafe { HeapRegions.release(region) },
            Self::Huge => {
                // SAFETY: by the caller's promise this is all of one mapping, and nothing refers to it.
                unsafe { libc::munmap(region.base.as_ptr().cast(), region.len) };
            }
        }
    }

    /// What to say if there was no memory.
    pub(super) fn refusal(self, bytes: usize) -> VerbsError {
        match self {
            Self::Small => VerbsError::Call {
                call: "allocation of registered memory",
                os_error: libc::ENOMEM,
            },
            Self::Huge => VerbsError::HugePages {
                needed: bytes.div_ceil(HUGE),
            },
        }
    }
}

fn map_huge(bytes: usize) -> Option<Region> {
    let len = bytes.checked_next_multiple_of(HUGE)?;
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_HUGETLB | libc::MAP_HUGE_2MB;
    // SAFETY: a new anonymous mapping replaces nothing.
    let base = unsafe { libc::mmap(std::ptr::null_mut(), len, protection, flags, -1, 0) };
    if base == libc::MAP_FAILED {
        return None;
    }
    Some(Region {
        base: NonNull::new(base.cast())?,
        len,
        key: 0,
    })
}
