//! An allocator that counts, for tests alone. Such a test is a program of its own and names the allocator:
//!
//! ```
//! use trine_allocations::{Counting, of_this_thread};
//!
//! #[global_allocator]
//! static ALLOCATOR: Counting = Counting;
//!
//! assert_eq!(of_this_thread(|| drop(Box::new(7))), 1);
//! ```

#![allow(unsafe_code)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);
static LIVE_BYTES: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    static OF_THIS_THREAD: Cell<u64> = const { Cell::new(0) };
}

/// The system's allocator, and counts of what it does.
pub struct Counting;

// SAFETY: every call is handed on unchanged to the system's allocator. The counters are atomics, and a thread-local
// without a destructor: touching them allocates nothing.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count();
        LIVE_BYTES.fetch_add(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller keeps `GlobalAlloc`'s contract, which is the system's.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        LIVE_BYTES.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: as for `alloc`; the pointer came from it.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count();
        LIVE_BYTES.fetch_add(size, Ordering::Relaxed);
        LIVE_BYTES.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: as for `alloc`; the pointer came from it.
        unsafe { System.realloc(pointer, layout, size) }
    }
}

fn count() {
    ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
    OF_THIS_THREAD.set(OF_THIS_THREAD.get() + 1);
}

/// Allocations of all threads so far.
#[must_use]
pub fn allocations() -> u64 {
    ALLOCATIONS.load(Ordering::Relaxed)
}

/// Allocations that this thread makes while it runs `run`.
pub fn of_this_thread(run: impl FnOnce()) -> u64 {
    let before = OF_THIS_THREAD.get();
    run();
    OF_THIS_THREAD.get() - before
}

/// Bytes that are allocated now.
#[must_use]
pub fn live_bytes() -> usize {
    LIVE_BYTES.load(Ordering::Relaxed)
}
