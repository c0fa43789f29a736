//! Machine operations that the language lacks: prefetching a cache line, and comparing eight lanes
//! with one instruction.

#![allow(unsafe_code)]

/// Starts to load the cache line of `value`.
#[inline(always)]
pub fn prefetch<T: ?Sized>(value: &T) {
    prefetch_address(std::ptr::from_ref(value).cast());
}

/// Starts to load the cache line at `offset` from the start of `bytes`; it may lie behind them.
#[inline(always)]
pub(crate) fn prefetch_at(bytes: &[u8], offset: usize) {
    prefetch_address(bytes.as_ptr().wrapping_add(offset));
}

#[inline(always)]
fn prefetch_address(address: *const u8) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a prefetch is a hint: it reads nothing that a program can see and cannot fault,
    // whatever the address.
    unsafe {
        std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T0 }>(address.cast());
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: as on x86: PRFM is a hint that cannot fault, whatever the address.
    unsafe {
        std::arch::asm!("prfm pldl1keep, [{address}]", address = in(reg) address, options(nostack, preserves_flags, readonly));
    }
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    let _ = address;
}

/// A bit for each lane that equals `wanted`.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
pub(crate) fn lanes_equal(lanes: &[u16; 8], wanted: u16) -> u32 {
    // SAFETY: the function needs SSE2, which belongs to every x86-64 processor.
    unsafe { lanes_equal_sse2(lanes, wanted) }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "sse2")]
#[inline]
fn lanes_equal_sse2(lanes: &[u16; 8], wanted: u16) -> u32 {
    use std::arch::x86_64 as arch;
    let half = |at: usize| {
        i64::from(lanes[at])
            | i64::from(lanes[at + 1]) << 16
            | i64::from(lanes[at + 2]) << 32
            | i64::from(lanes[at + 3]) << 48
    };
    let all = arch::_mm_set_epi64x(half(4), half(0));
    let equal = arch::_mm_cmpeq_epi16(all, arch::_mm_set1_epi16(wanted.cast_signed()));
    let packed = arch::_mm_packs_epi16(equal, arch::_mm_setzero_si128());
    arch::_mm_movemask_epi8(packed).cast_unsigned()
}

/// A bit for each lane that equals `wanted`.
#[cfg(not(target_arch = "x86_64"))]
#[inline(always)]
pub(crate) fn lanes_equal(lanes: &[u16; 8], wanted: u16) -> u32 {
    let mut mask = 0;
    for (lane, &tag) in lanes.iter().enumerate() {
        mask |= u32::from(tag == wanted) << lane;
    }
    mask
}
