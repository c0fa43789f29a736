//! Defaults and hard limits of the command line.

use std::time::Duration;

/// The first port of `trine up`; its other replicas take the ones that follow.
pub(crate) const BASE_PORT: u16 = 7471;
/// What client commands talk to when neither `--peers` nor `TRINE_PEERS` says otherwise.
pub(crate) const DEFAULT_PEERS: &str = "127.0.0.1:7471,127.0.0.1:7472,127.0.0.1:7473";
/// Where `trine cache serve` listens, and its clients look for it, unless told otherwise.
pub(crate) const CACHE_ADDRESS: &str = "127.0.0.1:7481";
/// Most threads of one cache.
pub(crate) const CACHE_THREADS_MAX: u32 = 256;
/// Most replicas that a peer list may name.
pub(crate) const PEERS_MAX: usize = trine_replica::config::PLACES_MAX;

/// How long a freshly started group may take until every replica votes.
pub(crate) const START_LIMIT: Duration = Duration::from_secs(20);
/// How long a group may take to elect a new leader, or to take a replica in again.
pub(crate) const RECOVERY_LIMIT: Duration = Duration::from_secs(60);
/// How long `trine up` waits before it starts a replica again that died, doubling up to the maximum.
pub(crate) const RESTART_PAUSE: Duration = Duration::from_millis(200);
pub(crate) const RESTART_PAUSE_MAX: Duration = Duration::from_secs(10);
/// A replica that ran this long before it died is started again without a longer pause.
pub(crate) const RESTART_PAUSE_RESET: Duration = Duration::from_secs(30);
/// How often a supervisor looks after its replicas.
pub(crate) const SUPERVISE_EVERY: Duration = Duration::from_millis(200);

/// Announcements of a server that wait to be written; more are dropped and counted.
pub(crate) const ANNOUNCEMENTS_MAX: usize = 1024;
/// The same of lines of its log.
pub(crate) const LOG_LINES_MAX: usize = 8192;
/// How long a server that ends waits for who reads its last lines, and whoever drew a bar for the terminal.
pub(crate) const LAST_LINES_LIMIT: Duration = Duration::from_secs(1);

/// Most clients that `trine bench` and `trine chaos` run at once.
pub(crate) const CLIENTS_MAX: u32 = 4096;
/// A chaos run that completed fewer operations proves nothing.
pub(crate) const CHAOS_OPERATIONS_LEAST: u64 = 1_000;

/// Lines of `trine stat` between two headers.
pub(crate) const STAT_HEADER_EVERY: u64 = 20;
/// Between two pairs of probes of `trine latency`, and between two looks at the links.
pub(crate) const PROBE_EVERY: Duration = Duration::from_millis(2);
pub(crate) const PROBE_LOOK_EVERY: Duration = Duration::from_millis(100);
/// The probes' key goes by itself after this.
pub(crate) const PROBE_EXPIRY: Duration = Duration::from_secs(60);
/// How often `trine top` looks for keys and news.
pub(crate) const TOP_KEYS_EVERY: Duration = Duration::from_millis(50);
/// How many looks its plot remembers: more than a terminal is wide.
pub(crate) const TOP_HISTORY: usize = 512;
/// How long a transfer of the lead may take.
pub(crate) const TOP_TRANSFER_LIMIT: Duration = Duration::from_secs(10);

/// Lines of the shell's history.
pub(crate) const HISTORY_LINES_MAX: usize = 1_000;
/// The longest line that the shell reads: a value of the largest size, each byte an escape, and what stands around it.
pub(crate) const SHELL_LINE_BYTES_MAX: u64 = 8 << 20;

/// Latencies are recorded from 1 ns up to this, with three significant digits.
pub(crate) const LATENCY_MAX: Duration = Duration::from_secs(120);
pub(crate) const LATENCY_DIGITS: u8 = 3;
