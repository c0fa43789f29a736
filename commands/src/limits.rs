//! Limits of one command.

/// Operations of the store in one command: keys of an MGET, pairs of an MSET, commands of a transaction.
pub const OPERATIONS_MAX: usize = trine_kvstore::config::LIST_ITEMS_MAX as usize;
/// Bytes of the arguments that the error text for an unknown command repeats.
pub const REPEATED_BYTES_MAX: usize = 128;
/// Bytes of a pattern: that of keys is compared with every key of a walk, others with the names of commands, settings and
/// channels.
pub const PATTERN_BYTES_MAX: usize = 512;
/// Bytes of the reply to COMMAND. Its words can name the same command again and again.
pub(crate) const DESCRIBED_BYTES_MAX: usize = 4 << 20;
/// Sequences of one session, from the lowest awaited one on. The group has the same number.
pub const SESSION_WINDOW: u64 = 64;
/// Milliseconds after which an idle session may go, even if there is room. The group has the same number.
pub const SESSION_TTL_MS: i64 = 60_000;
/// Bytes of the reply to KEYS.
pub const KEYS_BYTES_MAX: usize = 8 << 20;
