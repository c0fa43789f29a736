//! Large zeroed memory from the operating system, in huge pages where the system gives them.
//!
//! The one module in which the store talks to the memory manager. A region is an ordinary slice to its
//! users; everything above it is safe code with bounds checks.

#![allow(unsafe_code)]

use std::fmt;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;

use zerocopy::FromBytes;

/// The size of a huge page, and the alignment of every region.
pub const HUGE_PAGE_BYTES: usize = 2 * 1024 * 1024;

/// The address space that a run begins with; it costs nothing until it is used.
const RESERVED_BYTES_FIRST: usize = 64 * 1024 * 1024;

/// A run that outgrows its reservation moves to one of this size. Large runs then need not move
/// again: moving gigabytes of page tables takes milliseconds.
const RESERVED_BYTES_WIDE: usize = 64 * 1024 * 1024 * 1024;

/// Types that a region of zeroed memory may hold: every pattern of bits is a value, and nothing is dropped.
pub trait Plain: FromBytes + Copy {}

impl<T: FromBytes + Copy> Plain for T {}

/// A growing run of `T` that starts out zeroed and is aligned to a huge page.
///
/// Address space is reserved ahead; memory is taken only where it is written. A run that outgrows
/// its reservation moves by its page tables, so growth copies nothing.
pub struct Region<T: Plain> {
    start: NonNull<T>,
    /// Usable values, all of them readable and writable memory.
    count: usize,
    /// Bytes of address space from `start` on; 0 before the first growth.
    reserved: usize,
    owned: PhantomData<T>,
}

impl<T: Plain> Region<T> {
    /// Values end where huge pages do.
    const FITS: () = assert!(
        size_of::<T>() > 0
            && HUGE_PAGE_BYTES.is_multiple_of(size_of::<T>())
            && align_of::<T>() <= HUGE_PAGE_BYTES
    );

    /// Holds nothing and takes nothing.
    #[must_use]
    pub const fn empty() -> Self {
        const { Self::FITS };
        Self {
            start: NonNull::dangling(),
            count: 0,
            reserved: 0,
            owned: PhantomData,
        }
    }

    /// Makes room for `count` values in all; the new ones are zero.
    ///
    /// # Panics
    /// If the system has no memory left. A replica stops then: clients are answered by the logical
    /// limit, and running out below it is a fault of this machine alone.
    pub fn grow_to(&mut self, count: usize) {
        let (old, new) = (self.bytes(), count * size_of::<T>());
        assert!(
            new >= old && new.is_multiple_of(HUGE_PAGE_BYTES),
            "regions grow by whole huge pages"
        );
        let grown = self.reserve(new) && make_usable(self.start.cast(), old, new);
        assert!(
            grown,
            "the system gave no {new} bytes of memory for the store: {}",
            std::io::Error::last_os_error()
        );
        self.count = count;
    }

    /// Gives the memory of a range back; its values are zero again. The range is whole huge pages.
    pub fn give_back(&mut self, first: usize, count: usize) {
        let range = &mut self[first..first + count];
        let (start, bytes) = (range.as_mut_ptr(), size_of_val(range));
        assert!(
            (start as usize).is_multiple_of(HUGE_PAGE_BYTES)
                && bytes.is_multiple_of(HUGE_PAGE_BYTES)
        );
        // SAFETY: the range was just borrowed from this region, so it is mapped, private and
        // exclusively ours; without its pages it reads as zeros, which is valid for `T: Plain`.
        let result = unsafe { libc::madvise(start.cast(), bytes, libc::MADV_DONTNEED) };
        assert_eq!(result, 0, "giving back mapped pages cannot fail");
    }

    /// Gives the memory of the last `count` values back and ends before them. These are whole huge pages.
    pub fn shrink_by(&mut self, count: usize) {
        let left = self.count - count;
        self.give_back(left, count);
        self.count = left;
    }

    fn bytes(&self) -> usize {
        self.count * size_of::<T>()
    }

    /// Ensures that `bytes` of address space are reserved, and moves the pages if necessary.
    fn reserve(&mut self, bytes: usize) -> bool {
        if bytes <= self.reserved {
            return true;
        }
        let Some((target, reserved)) = reserve_for(bytes) else {
            return false;
        };
        if self.reserved > 0 {
            let Some(gone) = move_contents(self.start.cast(), target, self.bytes()) else {
                unmap(target, reserved);
                return false;
            };
            unmap(behind(self.start.cast(), gone), self.reserved - gone);
        }
        (self.start, self.reserved) = (target.cast(), reserved);
        true
    }
}

impl<T: Plain> Deref for Region<T> {
    type Target = [T];

    #[inline]
    fn deref(&self) -> &[T] {
        // SAFETY: either `start` dangles, aligned, and `count` is 0, or it points to `count` values
        // that this region alone owns. The system mapped them readable and writable and zeroed them
        // (so initialized, `T: Plain`), aligned to a huge page.
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
        if self.reserved > 0 {
            unmap(self.start.cast(), self.reserved);
        }
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

type Address = NonNull<libc::c_void>;

/// Reserves generously for `bytes`, or, if address space is short, as little as is useful.
fn reserve_for(bytes: usize) -> Option<(Address, usize)> {
    let least = bytes.next_power_of_two().max(RESERVED_BYTES_FIRST);
    let wide = if least > RESERVED_BYTES_FIRST {
        least.max(RESERVED_BYTES_WIDE)
    } else {
        least
    };
    [wide, least]
        .into_iter()
        .find_map(|reserved| Some((reserve_aligned(reserved)?, reserved)))
}

/// Reserves `bytes` of address space aligned to a huge page: over-maps by one huge page and gives
/// the ends back.
fn reserve_aligned(bytes: usize) -> Option<Address> {
    let start = map_nothing(bytes + HUGE_PAGE_BYTES)?;
    let misaligned = start.as_ptr() as usize % HUGE_PAGE_BYTES;
    let front = if misaligned == 0 {
        0
    } else {
        HUGE_PAGE_BYTES - misaligned
    };
    let aligned = behind(start, front);
    unmap(start, front);
    unmap(behind(aligned, bytes), HUGE_PAGE_BYTES - front);
    advise_huge(aligned, bytes);
    Some(aligned)
}

/// An address further into a mapping, or at its end.
fn behind(start: Address, bytes: usize) -> Address {
    start.map_addr(|address| {
        address
            .checked_add(bytes)
            .expect("mappings end below the top of memory")
    })
}

/// Maps address space without memory.
fn map_nothing(bytes: usize) -> Option<Address> {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANON | libc::MAP_NORESERVE;
    // SAFETY: an anonymous private mapping at an address of the kernel's choice touches no
    // existing memory.
    let start = unsafe { libc::mmap(std::ptr::null_mut(), bytes, libc::PROT_NONE, flags, -1, 0) };
    if start == libc::MAP_FAILED {
        None
    } else {
        NonNull::new(start)
    }
}

/// Makes the part from `old` to `new` bytes of a reservation readable and writable.
fn make_usable(start: Address, old: usize, new: usize) -> bool {
    let (from, protection) = (behind(start, old), libc::PROT_READ | libc::PROT_WRITE);
    // SAFETY: the range lies in a reservation of at least `new` bytes that the caller owns, and
    // nothing refers to the part that was unusable so far.
    unsafe { libc::mprotect(from.as_ptr(), new - old, protection) == 0 }
}

/// Gives back a range that nothing refers to any more.
fn unmap(start: Address, bytes: usize) {
    if bytes > 0 {
        // SAFETY: every caller owns the range, as a whole mapping or a part of one, in whole pages,
        // and holds no reference into it.
        let result = unsafe { libc::munmap(start.as_ptr(), bytes) };
        assert_eq!(result, 0, "unmapping a range that was mapped cannot fail");
    }
}

/// Moves the contents of a range to a fresh reservation, by page tables if possible, else by
/// copying. Returns how many bytes of the range are no longer mapped.
fn move_contents(from: Address, to: Address, bytes: usize) -> Option<usize> {
    if move_pages(from, to, bytes) {
        return Some(bytes);
    }
    copy(from, to, bytes).then_some(0)
}

#[cfg(target_os = "linux")]
fn move_pages(from: Address, to: Address, bytes: usize) -> bool {
    let flags = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED;
    // SAFETY: `from` is a mapping of at least `bytes` that the caller owns exclusively (`&mut`), so
    // no reference sees it vanish; `to` is a fresh reservation of more than `bytes`, which nothing
    // refers to. Contents and protection move along.
    let moved = unsafe { libc::mremap(from.as_ptr(), bytes, bytes, flags, to.as_ptr()) };
    moved != libc::MAP_FAILED
}

#[cfg(not(target_os = "linux"))]
fn move_pages(_: Address, _: Address, _: usize) -> bool {
    false
}

fn copy(from: Address, to: Address, bytes: usize) -> bool {
    // A move that failed half-way may have unmapped the start of the target: map it again.
    if !map_again(to, bytes) {
        return false;
    }
    // SAFETY: both ranges are readable and writable (`from` holds values, `to` was just mapped so),
    // owned by the caller, and parts of different mappings.
    unsafe {
        std::ptr::copy_nonoverlapping(from.as_ptr().cast::<u8>(), to.as_ptr().cast::<u8>(), bytes)
    };
    true
}

/// Maps readable and writable memory over the start of a reservation.
fn map_again(start: Address, bytes: usize) -> bool {
    let (protection, flags) = (
        libc::PROT_READ | libc::PROT_WRITE,
        libc::MAP_PRIVATE | libc::MAP_ANON,
    );
    // SAFETY: the range belongs to a reservation that the caller owns and nothing refers to. So no
    // reference sees the mapping replaced.
    let mapped = unsafe {
        libc::mmap(
            start.as_ptr(),
            bytes,
            protection,
            flags | libc::MAP_FIXED,
            -1,
            0,
        )
    };
    mapped == start.as_ptr()
}

/// Asks for huge pages; a system without them answers with an error that changes nothing.
fn advise_huge(start: Address, bytes: usize) {
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
    fn a_region_grows_in_place_and_by_moving_and_keeps_its_contents() {
        let mut region = Region::<u8>::empty();
        assert!(region.is_empty());
        for pages in [1, 2, 40, 100] {
            let old = region.len();
            region.grow_to(pages * HUGE_PAGE_BYTES);
            assert_eq!(region.as_ptr() as usize % HUGE_PAGE_BYTES, 0);
            assert!(region[old..].iter().step_by(4096).all(|&byte| byte == 0));
            for page in old / HUGE_PAGE_BYTES..pages {
                region[page * HUGE_PAGE_BYTES] = page as u8 + 1;
            }
            assert!((0..pages).all(|page| region[page * HUGE_PAGE_BYTES] == page as u8 + 1));
        }
        *region.last_mut().expect("the region is not empty") = 9;
    }

    #[test]
    fn contents_can_be_copied_where_pages_cannot_be_moved() {
        let bytes = 2 * HUGE_PAGE_BYTES;
        let [from, to] = [0, 1].map(|_| reserve_aligned(bytes).expect("address space"));
        assert!(map_again(from, bytes));
        let mut source = Region::<u8> {
            start: from.cast(),
            count: bytes,
            reserved: bytes,
            owned: PhantomData,
        };
        source[bytes - 1] = 77;
        assert!(copy(from, to, bytes));
        let target = Region::<u8> {
            start: to.cast(),
            count: bytes,
            reserved: bytes,
            owned: PhantomData,
        };
        assert_eq!((target[0], target[bytes - 1]), (0, 77));
    }

    #[test]
    fn what_is_given_back_is_zero_and_usable_again() {
        let mut region = Region::<u8>::empty();
        region.grow_to(3 * HUGE_PAGE_BYTES);
        region.fill(7);
        region.give_back(HUGE_PAGE_BYTES, HUGE_PAGE_BYTES);
        assert_eq!(region[HUGE_PAGE_BYTES - 1], 7);
        assert!(
            region[HUGE_PAGE_BYTES..2 * HUGE_PAGE_BYTES]
                .iter()
                .all(|&byte| byte == 0)
        );
        region[HUGE_PAGE_BYTES] = 1;
        assert_eq!(region[2 * HUGE_PAGE_BYTES], 7);
    }
}
