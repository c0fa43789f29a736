//! Defaults and hard limits of the cache and of the index.

/// The default address of `trine cache serve` and its clients.
pub(crate) const CACHE_ADDRESS: &str = "127.0.0.1:7481";
/// The most threads of one cache.
pub(crate) const CACHE_THREADS_MAX: u32 = 256;

/// The default address of `trine index serve` and its clients.
pub(crate) const INDEX_ADDRESS: &str = "127.0.0.1:7482";
/// The most dispatch threads of one index.
pub(crate) const INDEX_THREADS_MAX: u32 = 256;
/// The most worker threads of one dispatch thread.
pub(crate) const INDEX_WORKERS_MAX: u32 = 64;
/// The most keys of an index, unless an option says otherwise: about 400 MB.
pub(crate) const INDEX_KEYS_MAX: u64 = 10_000_000;
/// The keys of a scan, unless an option says otherwise: those of the paper's experiment.
pub(crate) const INDEX_SCAN_KEYS: u32 = 128;
/// The most keys of a scan. One takes about a millisecond.
pub(crate) const INDEX_SCAN_KEYS_MAX: u32 = 65_536;
/// The most requests in flight of the benchmark's closed loop.
pub(crate) const INDEX_WINDOW_MAX: u32 = 4_096;
/// The most requests in flight of its open loop. Further ones are sent late; their latency counts from their due time.
pub(crate) const INDEX_IN_FLIGHT_MAX: usize = 4_096;
