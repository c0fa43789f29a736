//! Defaults and hard limits of the cache, of the index and of the sequencer.

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

/// The default address of `trine sequencer serve` and its clients.
pub(crate) const SEQUENCER_ADDRESS: &str = "127.0.0.1:7483";
/// The most threads of one sequencer.
pub(crate) const SEQUENCER_THREADS_MAX: u32 = 256;
/// The name of a sequence, unless an option says otherwise.
pub(crate) const SEQUENCER_NAME: &str = "default";
/// The longest name of a sequence.
pub(crate) const SEQUENCER_NAME_BYTES_MAX: usize = 64;
/// The prefix of a name in the key of its record.
pub(crate) const SEQUENCER_KEY_PREFIX: &str = "trine-sequencer/";
/// The most requests in flight of its benchmark.
pub(crate) const SEQUENCER_WINDOW_MAX: u32 = 4_096;
/// The most requests of its benchmark in one process.
pub(crate) const SEQUENCER_IN_PROCESS_REQUESTS_MAX: u64 = 1 << 32;
/// Endpoints of its client in one process, one after the other, for requests of four bytes.
pub(crate) const SEQUENCER_IN_PROCESS_WAYS: u16 = 64;
/// Several addresses of servers are asked again after this time, while none of them gives out numbers.
pub(crate) const SEQUENCER_AGAIN: std::time::Duration = std::time::Duration::from_millis(20);
/// Each of them has this long at first, before the next one is asked, and four times as long each time that it is asked again.
pub(crate) const SEQUENCER_PATIENCE_FIRST: std::time::Duration =
    std::time::Duration::from_millis(50);
/// The longest of these times is at least this one.
pub(crate) const SEQUENCER_PATIENCE_LEAST: std::time::Duration =
    std::time::Duration::from_millis(200);
