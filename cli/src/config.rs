//! Defaults and hard limits of the command line.

use std::time::Duration;

/// The first port of `trine up`; its other replicas take the following ones.
pub(crate) const BASE_PORT: u16 = 7471;

/// The pause of `trine up` before it restarts a dead replica. It doubles up to the maximum.
pub(crate) const RESTART_PAUSE: Duration = Duration::from_millis(200);
pub(crate) const RESTART_PAUSE_MAX: Duration = Duration::from_secs(10);
/// A replica that ran this long before it died is restarted without a longer pause.
pub(crate) const RESTART_PAUSE_RESET: Duration = Duration::from_secs(30);
/// The interval at which a supervisor checks its replicas.
pub(crate) const SUPERVISE_EVERY: Duration = Duration::from_millis(200);

/// Lines of `trine stat` between two headers.
pub(crate) const STAT_HEADER_EVERY: u64 = 20;
/// The interval between two pairs of probes of `trine latency`, and between two polls of the links.
pub(crate) const PROBE_EVERY: Duration = Duration::from_millis(2);
pub(crate) const PROBE_POLL_INTERVAL: Duration = Duration::from_millis(100);
/// The probes' key expires after this.
pub(crate) const PROBE_EXPIRY: Duration = Duration::from_secs(60);
/// The interval at which `trine top` checks for keys and news.
pub(crate) const TOP_KEYS_EVERY: Duration = Duration::from_millis(50);
/// The number of polls in its plot: more than a terminal is wide.
pub(crate) const TOP_HISTORY: usize = 512;
/// The time limit of a leadership transfer.
pub(crate) const TOP_TRANSFER_LIMIT: Duration = Duration::from_secs(10);

/// A walk without the ordered index that takes longer says why.
pub(crate) const UNORDERED_NOTE_AFTER: Duration = Duration::from_secs(2);
/// Keys that `trine rm` deletes with one command where there is no ordered index.
pub(crate) const UNORDERED_DELETES: usize = 256;
/// Bytes of keys and values that `trine scan` sorts itself where there is no ordered index.
pub(crate) const UNORDERED_SCAN_BYTES_MAX: usize = 256 << 20;

/// Lines of the shell's history.
pub(crate) const HISTORY_LINES_MAX: usize = 1_000;
/// The longest line that the shell reads: a value of the largest size with each byte an escape, and the text around it.
pub(crate) const SHELL_LINE_BYTES_MAX: u64 = 8 << 20;
/// How long Tab waits for keys: less than a user notices.
pub(crate) const COMPLETION_WAIT_MAX: Duration = Duration::from_millis(250);
/// Keys that Tab offers.
pub(crate) const COMPLETION_KEYS_MAX: usize = 100;
