//! The word that a child of `fork` finds empty. Nothing here takes a lock: another thread may hold it during a fork.
#![allow(unsafe_code)]

use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

/// The word of this process, once somebody has asked for it. A child has it at the same address.
static WORD: AtomicPtr<AtomicU64> = AtomicPtr::new(ptr::null_mut());

/// Numbers given out by this process and its ancestors: a child counts on from its parent's last one.
static NUMBERS: AtomicU64 = AtomicU64::new(0);

/// Stands for the page where the kernel empties none.
static ORDINARY: AtomicU64 = AtomicU64::new(0);

/// The word that holds this process's number, or zero before there is one.
pub(super) fn word() -> &'static AtomicU64 {
    let known = WORD.load(Ordering::Acquire);
    if known.is_null() {
        let new = wiped_page().unwrap_or_else(emptied_by_handler);
        return publish(new);
    }
    // SAFETY: only `publish` stores here, and what it stores lives for ever.
    unsafe { &*known }
}

/// This process's number, which none of its ancestors has.
pub(super) fn number(word: &AtomicU64) -> u64 {
    let number = word.load(Ordering::Relaxed);
    if number != 0 {
        return number;
    }
    let new = NUMBERS.fetch_add(1, Ordering::Relaxed) + 1;
    match word.compare_exchange(0, new, Ordering::Relaxed, Ordering::Relaxed) {
        Ok(_) => new,
        Err(of_another_thread) => of_another_thread,
    }
}

/// Makes `new` the process's word, unless another thread was faster. Its page then stays unused.
fn publish(new: &'static AtomicU64) -> &'static AtomicU64 {
    let place = ptr::from_ref(new).cast_mut();
    let (order, otherwise) = (Ordering::AcqRel, Ordering::Acquire);
    match WORD.compare_exchange(ptr::null_mut(), place, order, otherwise) {
        Ok(_) => new,
        // SAFETY: only this function stores here, and what it stores lives for ever.
        Err(of_another_thread) => unsafe { &*of_another_thread },
    }
}

/// A word alone on a page that the kernel empties in a child. Nothing where it does not do that.
fn wiped_page() -> Option<&'static AtomicU64> {
    // SAFETY: no pointers.
    let bytes = usize::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).ok()?;
    let (access, kind) = (
        libc::PROT_READ | libc::PROT_WRITE,
        libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
    );
    // SAFETY: a new mapping at a place that the kernel chooses touches no memory that is in use.
    let page = unsafe { libc::mmap(ptr::null_mut(), bytes, access, kind, -1, 0) };
    if page == libc::MAP_FAILED {
        return None;
    }
    let advise = |advice| {
        // SAFETY: the page was just mapped and nobody else knows it. Neither advice changes what it holds here.
        unsafe { libc::madvise(page, bytes, advice) == 0 }
    };
    // An emulated kernel that accepts what does not exist would accept this, too, and do nothing.
    if advise(NO_ADVICE) || !advise(libc::MADV_WIPEONFORK) {
        // SAFETY: nothing refers to the page.
        unsafe { libc::munmap(page, bytes) };
        return None;
    }
    // SAFETY: a page begins at a multiple of eight, is longer than a word, readable, writable, and zero, which is a value
    // of an atomic. It is never unmapped. It is used through atomic operations alone; the kernel writes to a child's copy
    // before that child runs.
    Some(unsafe { &*page.cast::<AtomicU64>() })
}

/// An advice that no kernel has.
const NO_ADVICE: libc::c_int = -1;

/// A word of ordinary memory, which a handler empties in children of `fork`.
fn emptied_by_handler() -> &'static AtomicU64 {
    extern "C" fn in_child() {
        ORDINARY.store(0, Ordering::Relaxed);
    }
    // SAFETY: the handler lives as long as the program and does nothing but an atomic store, which may happen at any time.
    let error = unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
    assert!(
        error == 0,
        "no memory for a fork handler (error {error}), without which a child could repeat its parent's packets"
    );
    &ORDINARY
}

#[cfg(test)]
mod tests;
