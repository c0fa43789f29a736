//! Limits of one connection.

/// Bytes of a line: an inline command, or the length in front of a part.
pub(crate) const LINE_BYTES_MAX: usize = 64 * 1024;
/// Parts of one request: more than the longest list that the store takes.
pub(crate) const PARTS_MAX: i64 = 64 * 1024;
/// Parts of a request of a client that has still to give the password.
pub(crate) const STRANGER_PARTS_MAX: i64 = 10;
/// Bytes of a part of such a request.
pub(crate) const STRANGER_PART_BYTES_MAX: i64 = 16 * 1024;

/// Bytes of a client's name, and of the name and the version of its library. Each
/// connection keeps them, and they are repeated in replies whenever a client asks.
pub(crate) const NAME_BYTES_MAX: usize = 1024;
/// Bytes that a part of a queued command counts beside its own: the vector that keeps
/// it, its allocation, and its share of EXEC's work. Parts may be empty, and a
/// request may have 65,536 of them.
pub(crate) const QUEUED_PART_CHARGE_BYTES: usize = 48;

/// Bytes that a watched key counts beside its own: its entry and its allocation.
pub(crate) const WATCHED_KEY_CHARGE_BYTES: usize = 64;

/// Patterns of one CONFIG GET.
pub(crate) const SETTING_PATTERNS_MAX: usize = 256;

/// Keys in the table of tracking, unless CONFIG SET tracking-table-max-keys says otherwise.
pub(crate) const TRACKED_KEYS_MAX: usize = 1_000_000;
/// Bytes of that table. Beyond either limit keys are pushed out, and those who track them are told.
pub(crate) const TRACKED_BYTES_MAX: usize = 128 << 20;
/// Bytes that a tracked key counts beside its own, and each client that tracks it.
pub(crate) const TRACKED_KEY_CHARGE_BYTES: usize = 96;
/// See [`TRACKED_KEY_CHARGE_BYTES`].
pub(crate) const TRACKED_CLIENT_CHARGE_BYTES: usize = 64;
/// Prefixes that one client tracks.
pub(crate) const CLIENT_PREFIXES_MAX: usize = 256;
/// Different prefixes that all clients track.
pub(crate) const PREFIXES_MAX: usize = 65_536;
/// Bytes that a prefix counts beside its own.
pub(crate) const PREFIX_CHARGE_BYTES: usize = 128;
/// Bytes of invalidations that wait for an answer; beyond them, all that the client knows is invalid.
pub(crate) const LATE_BYTES_MAX: usize = 64 << 10;
/// Bytes that such a key counts beside its own.
pub(crate) const LATE_KEY_CHARGE_BYTES: usize = 32;
/// A client's own writes that are known to be its own.
pub(crate) const OWN_POSITIONS_MAX: usize = 64;
/// Channels and patterns of one client.
pub(crate) const SUBSCRIPTIONS_MAX: usize = 4_096;
/// Different patterns of all clients: each of them is compared with each event.
pub(crate) const PATTERNS_MAX: usize = 1_024;
/// Bytes that a subscription counts beside its own.
pub(crate) const SUBSCRIPTION_CHARGE_BYTES: usize = 160;
/// Bytes of unread output at which a client that is sent more without having asked is disconnected.
pub const PUSHED_BYTES_MAX: usize = 8 << 20;

/// Limits of one connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// Bytes received and not yet answered; a request that needs more ends the
    /// connection. The same limit applies to the commands queued for one EXEC, and to
    /// the replies in it of commands that need no store.
    pub query_bytes: usize,
    /// Bytes received ahead while earlier commands wait for their answers.
    pub ahead_bytes: usize,
    /// Bytes of one part of a request.
    pub part_bytes: usize,
    /// Commands that are answered together; further commands of a pipeline wait for
    /// them.
    pub pipeline_commands: usize,
    /// Commands of one transaction.
    pub transaction_commands: usize,
    /// Bytes of replies that wait for their reader; at this limit no more commands
    /// are taken.
    pub output_bytes: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            query_bytes: 8 << 20,
            ahead_bytes: 64 << 10,
            part_bytes: trine_kvstore::config::VALUE_BYTES_MAX as usize,
            pipeline_commands: 256,
            transaction_commands: 4_096,
            output_bytes: 1 << 20,
        }
    }
}
