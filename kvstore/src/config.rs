//! Hard limits of the store and their relations.
//!
//! The limits that may change an answer are replicated state ([`crate::Limits`]); the numbers
//! here bound what those may be set to, and the work of a single command.

/// The longest key that any limits may allow.
pub const KEY_BYTES_MAX: u32 = 64 * 1024;

/// The longest value that any limits may allow.
pub const VALUE_BYTES_MAX: u32 = 1024 * 1024;

/// Bytes that an item counts beside its key and value: its index entry and its header.
pub const ITEM_CHARGE_BYTES: u64 = 32;

/// Bytes that an item counts beyond that while the group keeps an ordered index, beside those for its key
/// ([`crate::limits::ordered_charge`]).
pub const ORDERED_CHARGE_BYTES: u64 = 32;

/// Bytes of a key that can lie in a node of the ordered index, where some room is always left. They count half as much
/// again.
pub const ORDERED_NODE_KEY_BYTES: usize = 128;

/// Keys and values in a page of a scan, in bytes, unless a single item has more.
pub const SCAN_PAGE_BYTES: usize = 256 * 1024;

/// The most keys that a page of a scan can have.
pub const SCAN_KEYS_MAX: u32 = LIST_ITEMS_MAX;

/// The most expired keys that a page of a scan passes by.
pub const SCAN_EXPIRED_MAX: u32 = 1_024;

/// The most keys that are looked at one by one to count a range in which some have expired.
pub const COUNT_EXPIRED_MAX: usize = 4 * 1024;

/// The most keys that one COUNT at a pin looks at.
pub const COUNT_AT_KEYS_MAX: u32 = 4 * 1024;

/// The most keys that one DELETE of a range looks at.
pub const DELETE_RANGE_KEYS_MAX: u32 = 1_024;

/// The most keys that all DELETEs of ranges in one log entry look at together. Those that come too late remove nothing, and
/// say where to go on.
pub const DELETE_RANGE_ENTRY_KEYS_MAX: u32 = 4 * DELETE_RANGE_KEYS_MAX;

/// A DELETE of a range ends behind the key with which its keys have this many bytes.
pub const DELETE_RANGE_KEY_BYTES: usize = 256 * 1024;

/// Items that one log entry adds to an ordered index that is being built, about.
pub const INDEX_STEP_KEYS: u64 = 256;

/// The most elements in a list of keys, pairs, conditions or operations.
pub const LIST_ITEMS_MAX: u32 = 16 * 1024;

/// The most bytes a list response may have; a command that would exceed it is refused.
pub const LIST_RESPONSE_BYTES_MAX: usize = 4 * 1024 * 1024;

/// The most bytes of overwritten items that an EXEC or MSET may have to put back.
pub const UNDO_BYTES_MAX: usize = 16 * 1024 * 1024;

/// Expired items that a step of group time removes if its log entry names no number. Before version
/// [`SWEEP_VERSION`](crate::command::SWEEP_VERSION) every step removes up to this many.
pub const SWEEP_ITEMS_MIN: u32 = 64;

/// The most expired items that a step of group time removes, whatever its log entry says.
pub const SWEEP_ITEMS_MAX: u32 = 4_096;

/// Expired items that a command removes before it is refused for want of room.
pub const ROOM_ITEMS_MAX: u32 = 1_024;

/// Expired items that all commands of a log entry together remove to make room.
pub const ROOM_ENTRY_ITEMS_MAX: u32 = 2_048;

/// The body of a snapshot chunk, unless a single item is larger.
pub const CHUNK_BODY_BYTES: usize = 64 * 1024;

/// The most bytes that a snapshot chunk can have.
pub const CHUNK_BYTES_MAX: usize = 64 + KEY_BYTES_MAX as usize + VALUE_BYTES_MAX as usize;

/// A running snapshot may keep at least this many bytes of overwritten items; a larger store allows
/// half of its live bytes.
pub const SNAPSHOT_KEPT_BYTES_MIN: u64 = 64 * 1024 * 1024;

/// Pins that a group has at most.
pub const PINS_MAX: usize = 64;

/// Pins that a client has at most.
pub const PINS_PER_CLIENT_MAX: usize = 8;

/// Pins that all clients of a user have at most, so that one user does not keep the others from scanning. Callers that are
/// no user share the pins of the group.
pub const PINS_PER_USER_MAX: usize = 16;

/// A pin ends after so much group time, unless it is renewed.
pub const PIN_TTL_NS: u64 = 30_000_000_000;

/// Pins may keep at least this many bytes of what was overwritten or removed; a larger store allows half of its live
/// bytes. What is beyond ends the oldest pin on the replica that has kept it.
pub const PIN_KEPT_BYTES_MIN: u64 = 64 * 1024 * 1024;

/// What a change may leave above that limit, as a part of it, where more blocks are due than it frees. Beyond it the
/// replica gives all its pins up.
pub const PIN_KEPT_EXCESS: u64 = 8;

/// How many blocks that pins have kept a change frees.
pub const PIN_SHADOWS_FREED: u32 = 8;

/// The same for a turn of a replica.
pub const PIN_SHADOWS_FREED_PER_TURN: u32 = 512;

/// The most items that one page of a walk looks at.
pub const WALK_ITEMS_MAX: u32 = 1024;

/// The most buckets that one page of a walk looks at, whatever it finds in them.
pub const WALK_BUCKETS_MAX: u32 = 1024;

/// The most bytes of keys and values in a page of a walk; a single item may be larger.
pub const WALK_BYTES_MAX: usize = 256 * 1024;

/// A piece of the history of changes; a smaller history has eight pieces.
pub const HISTORY_SEGMENT_BYTES: usize = 64 * 1024;

/// The longest value that an event of the history has with it.
pub const HISTORY_VALUE_BYTES_MAX: usize = 16 * 1024;

/// How much memory of a flushed store is given back at a time.
pub const FLUSH_SLICE_BYTES: usize = 16 * 1024 * 1024;

/// How many expiries of a flushed store are forgotten at a time, and how many long keys of its ordered index.
pub const FLUSH_SLICE_EXPIRIES: u32 = 1024;

/// How much memory of an ordered index is given back at a time; a region of its nodes.
pub const FLUSH_SLICE_INDEX_BYTES: u64 = 1024 * 1024;

/// Flushed stores and dropped indexes that wait to be freed, before one more frees slices of the oldest.
pub const FLUSHED_STORES_MAX: usize = 4;

/// How many slices that frees. What was written since the last flush has paid for them.
pub const FLUSH_BEHIND_SLICES: u32 = 4;

/// The most users of a group.
pub const USERS_MAX: usize = 4_096;

/// The longest prefix of a user's keys, in bytes.
pub const USER_PREFIX_BYTES_MAX: usize = 128;

const _: () = assert!(VALUE_BYTES_MAX >= KEY_BYTES_MAX);
const _: () = assert!(LIST_RESPONSE_BYTES_MAX > VALUE_BYTES_MAX as usize);
const _: () = assert!(SCAN_PAGE_BYTES < LIST_RESPONSE_BYTES_MAX);
const _: () = assert!(PINS_PER_CLIENT_MAX <= PINS_PER_USER_MAX && PINS_PER_USER_MAX < PINS_MAX);
const _: () = assert!(WALK_ITEMS_MAX <= LIST_ITEMS_MAX);
const _: () = assert!(WALK_BYTES_MAX < LIST_RESPONSE_BYTES_MAX);
const _: () = assert!(CHUNK_BODY_BYTES <= CHUNK_BYTES_MAX);
// All users fit into one answer: 64 bytes are more than a user has beside the prefix.
const _: () = assert!(USERS_MAX * (USER_PREFIX_BYTES_MAX + 64) < LIST_RESPONSE_BYTES_MAX);
