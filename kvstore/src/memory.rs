//! Large zeroed memory from the operating system, in huge pages where the system gives them.
//!
//! The one place where the store talks to the memory manager. What it hands out is an ordinary
//! slice; everything above it is safe code with bounds checks.

#![allow(unsafe_code)]

use crate::table::Bucket;
use std::fmt;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;

/// The size of a huge page, and the alignment of every region.
pub(crate) const HUGE_PAGE_BYTES: usize = 2 * 1024 * 1024;

/// Types that a region of zeroed memory may hold.
///
/// # Safety
/// All bit patterns, zero among them, are valid values; there is no drop glue; the size divides
/// [`HUGE_PAGE_BYTES`] and the alignment is at most that.
pub(crate) unsafe trait Plain: Copy {}

// SAFETY: every byte is a valid u8, and its size is 1.
unsafe impl Plain for u8 {}
// SAFETY: a bucket is made of integer arrays without padding; its size and alignment are 64.
unsafe impl Plain for Bucket {}

/// A zeroed, huge-page-aligned run of `T`, returned to the system on drop.
pub(crate) struct Region<T: Plain> {
    start: NonNull<T>,
    count: usize,
    owned: PhantomData<T>,
}

impl<T: Plain> Region<T> {
    /// Takes `count` zeroed values from the system.
    ///
    /// # Panics
    /// If the system has no memory left. A replica stops then: the logical limit is what answers
    /// clients, and running out below it is this machine's trouble alone.
    pub(crate) fn zeroed(count: usize) -> Self {
        let bytes = count * size_of::<T>();
        assert!(
            bytes > 0 && bytes.is_multiple_of(HUGE_PAGE_BYTES),
            "regions are whole huge pages"
        );
        let start = map_aligned(bytes).unwrap_or_else(|| {
            panic!(
                "the system gave no {bytes} bytes of memory for the store: {}",
                std::io::Error::last_os_error()
            )
        });
        Self {
            start: start.cast(),
            count,
            owned: PhantomData,
        }
    }
}

impl<T: Plain> Deref for Region<T> {
    type Target = [T];

    #[inline]
    fn deref(&self) -> &[T] {
        // SAFETY: `start` points to `count` values that this region alone owns, mapped and zeroed
        // by the system (so initialized, `T: Plain`), aligned to a huge page, until drop.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.count) }
    }
}

impl<T: Plain> DerefMut for Region<T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut [T] {
        // SAFETY: as in `deref`; `&mut self` excludes every other reference into the region.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.count) }
    }
}

impl<T: Plain> Drop for Region<T> {
    fn drop(&mut self) {
        // SAFETY: the range was mapped by `map_aligned` with exactly this length and belongs to
        // this region alone; no reference into it outlives the region.
        let result =
            unsafe { libc::munmap(self.start.as_ptr().cast(), self.count * size_of::<T>()) };
        assert_eq!(result, 0, "unmapping a range that was mapped cannot fail");
    }
}

// SAFETY: a region owns its memory like a `Vec<T>` does, and `T: Plain` holds no references.
unsafe impl<T: Plain> Send for Region<T> {}
// SAFETY: shared access only reads.
unsafe impl<T: Plain> Sync for Region<T> {}

impl<T: Plain> fmt::Debug for Region<T> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Region of {}", self.count)
    }
}

/// Maps `bytes` aligned to a huge page: over-maps by one huge page and gives the ends back.
fn map_aligned(bytes: usize) -> Option<NonNull<libc::c_void>> {
    let mapped = bytes + HUGE_PAGE_BYTES;
    let start = map(mapped)?;
    let misaligned = start.as_ptr() as usize % HUGE_PAGE_BYTES;
    let front = if misaligned == 0 {
        0
    } else {
        HUGE_PAGE_BYTES - misaligned
    };
    // SAFETY: `front` is less than HUGE_PAGE_BYTES, so the result lies inside the mapping.
    let aligned = unsafe { start.byte_add(front) };
    // SAFETY: `front + bytes` is at most `mapped`, so the result is inside or one past the end.
    let end = unsafe { aligned.byte_add(bytes) };
    unmap(start, front);
    unmap(end, HUGE_PAGE_BYTES - front);
    advise_huge(aligned, bytes);
    Some(aligned)
}

fn map(bytes: usize) -> Option<NonNull<libc::c_void>> {
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANON;
    // SAFETY: an anonymous private mapping at an address of the kernel's choice touches no
    // existing memory.
    let start = unsafe { libc::mmap(std::ptr::null_mut(), bytes, protection, flags, -1, 0) };
    if start == libc::MAP_FAILED {
        None
    } else {
        NonNull::new(start)
    }
}

/// Gives back an end of a fresh mapping; nothing refers to it yet.
fn unmap(start: NonNull<libc::c_void>, bytes: usize) {
    if bytes > 0 {
        // SAFETY: the range is a part of a mapping that `map` just made, nobody has a reference
        // into it, and both ends are multiples of the page size.
        let result = unsafe { libc::munmap(start.as_ptr(), bytes) };
        assert_eq!(result, 0, "unmapping a range that was mapped cannot fail");
    }
}

/// Asks for huge pages; a system without them answers with an error that changes nothing.
fn advise_huge(start: NonNull<libc::c_void>, bytes: usize) {
    #[cfg(target_os = "linux")]
    // SAFETY: the range is mapped and owned by the caller; this advice keeps its contents.
    let _ = unsafe { libc::madvise(start.as_ptr(), bytes, libc::MADV_HUGEPAGE) };
    #[cfg(not(target_os = "linux"))]
    let _ = (start, bytes);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_region_is_zeroed_aligned_and_writable_to_both_ends() {
        let mut region = Region::<u8>::zeroed(2 * HUGE_PAGE_BYTES);
        assert_eq!(region.as_ptr() as usize % HUGE_PAGE_BYTES, 0);
        assert!(region.iter().step_by(4096).all(|&byte| byte == 0));
        *region.first_mut().expect("the region is not empty") = 1;
        *region.last_mut().expect("the region is not empty") = 2;
        assert_eq!((region[0], region[2 * HUGE_PAGE_BYTES - 1]), (1, 2));
    }
}
