//! Defaults and hard limits of the cache.

/// The default address of `trine cache serve` and its clients.
pub(crate) const CACHE_ADDRESS: &str = "127.0.0.1:7481";
/// The most threads of one cache.
pub(crate) const CACHE_THREADS_MAX: u32 = 256;
