//! Defaults and hard limits of the cache.

/// Where `trine cache serve` listens, and its clients look for it, unless told otherwise.
pub(crate) const CACHE_ADDRESS: &str = "127.0.0.1:7481";
/// Most threads of one cache.
pub(crate) const CACHE_THREADS_MAX: u32 = 256;
