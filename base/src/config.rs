//! Defaults and hard limits that all programs share.

use std::time::Duration;

/// The addresses for client commands when neither `--peers` nor `TRINE_PEERS` gives any.
pub const DEFAULT_PEERS: &str = "127.0.0.1:7471,127.0.0.1:7472,127.0.0.1:7473";
/// The most replicas that a peer list may name: as many as a group has nodes.
pub const PEERS_MAX: usize = trine_protocol::message::MEMBERS_MAX - 1;

/// Names that are looked up at a time.
pub(crate) const LOOKUPS_MAX: usize = 4;
/// How long lookups of names are waited for while none has brought an address.
pub(crate) const LOOKUP_LIMIT: Duration = Duration::from_secs(15);
/// A command that has no answer for so long looks the names of the replicas up again.
pub(crate) const SILENCE: Duration = Duration::from_secs(1);
/// Between two lookups of one name by a command that runs for long and has no answer.
pub(crate) const LOOKUP_AGAIN: Duration = Duration::from_secs(5);
/// How long the other ones are waited for once one has.
pub const LOOKUP_GRACE: Duration = Duration::from_millis(500);

/// The most announcements of a server that wait to be written; more are dropped and counted.
pub(crate) const ANNOUNCEMENTS_MAX: usize = 1024;
/// The same for lines of its log.
pub(crate) const LOG_LINES_MAX: usize = 8192;
/// How long a server that ends waits for readers of its last lines, and a thread that drew a bar for the terminal.
pub const LAST_LINES_LIMIT: Duration = Duration::from_secs(1);

/// A client that waits looks at least this often whether the user wants to end it.
pub const CLIENT_LOOK: Duration = Duration::from_millis(20);
/// How long operations in flight may still take after a Ctrl-C. What works answers in that time, and nothing is left in doubt.
pub(crate) const INTERRUPT_PATIENCE: Duration = Duration::from_millis(500);

/// Latencies are recorded from 1 ns up to this, with three significant digits.
pub const LATENCY_MAX: Duration = Duration::from_secs(120);
pub(crate) const LATENCY_DIGITS: u8 = 3;

/// The most clients that `trine bench` and `trine chaos` run at once.
pub const CLIENTS_MAX: u32 = 4096;
