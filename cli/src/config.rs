//! Defaults and hard limits of the command line.

use std::time::Duration;

/// The first port of `trine up`; its other replicas take the ones that follow.
pub(crate) const BASE_PORT: u16 = 7471;

/// How long `trine up` waits before it starts a replica again that died, doubling up to the maximum.
pub(crate) const RESTART_PAUSE: Duration = Duration::from_millis(200);
pub(crate) const RESTART_PAUSE_MAX: Duration = Duration::from_secs(10);
/// A replica that ran this long before it died is started again without a longer pause.
pub(crate) const RESTART_PAUSE_RESET: Duration = Duration::from_secs(30);
/// How often a supervisor looks after its replicas.
pub(crate) const SUPERVISE_EVERY: Duration = Duration::from_millis(200);

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
