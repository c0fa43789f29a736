//! Asks the processor for memory before it is needed: many sessions are more than its cache holds.
#![allow(unsafe_code)]

const LINE_BYTES: usize = 64;

/// Begins to fetch the first `LINES` cache lines of a value. Changes nothing but time.
#[inline]
pub(crate) fn prefetch<T, const LINES: usize>(value: &T) {
    #[cfg(target_arch = "x86_64")]
    for line in 0..LINES {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        let address = std::ptr::from_ref(value).cast::<i8>();
        let address = address.wrapping_add(line * LINE_BYTES);
        // SAFETY: a prefetch reads nothing that a program sees and faults at no address.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(address) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = value;
}
