//! The table of commands: kind byte, version, access, keys and fields of each.
//!
//! Encoder, decoder and all that depends on the kind of a command is made from it. The kind bytes are
//! part of the replicated log: never reuse one. A new command has a new version, so that a group with
//! older members refuses it.

use super::fields::{
    Condition, ExecuteMode, ExpireCondition, Keys, Pair, Prefix, SetOptions, WalkContent,
};
use super::range::{KeyRange, ScanOptions};
use super::row::{Access, Placement, Row, commands};
use crate::codec::{DecodeError, Field, List, Reader, Sink};
use crate::cursor::Cursor;
use crate::limits::Limits;
use crate::position::Position;
use crate::users::Rights;
use trine_keys::{Issuer, UserName};

/// The newest state-machine version that this build understands.
pub const STATE_VERSION: u8 = 9;

/// The version whose commands are GET, PUT, DELETE and the administrative ones.
pub const STATE_VERSION_FIRST: u8 = 1;

/// The version that brought all other commands, except those that came later still.
pub const STATE_VERSION_SECOND: u8 = 2;

/// The version that brought the ordered index with its commands.
pub const ORDERED_VERSION: u8 = Kind::SetOrdered.row().version;

/// The version from which on a log entry says how many expired items it removes, and a command that lacks room removes some.
pub const SWEEP_VERSION: u8 = 7;

/// Every version that a row names is known.
const _: () = {
    let mut index = 0;
    while index < Kind::ALL.len() {
        let version = Kind::ALL[index].row().version;
        assert!(version >= STATE_VERSION_FIRST && version <= STATE_VERSION);
        index += 1;
    }
};

commands! {
    /// One command. It borrows its keys and values from the sender's bytes, usually from a log entry.
    #[derive(Clone, Eq, PartialEq, Debug)]
    pub enum Command<'a> {
        /// Reads a value.
        kind 1, version 1, Read, Anywhere, keys [key]:
        Get {
            /// The key.
            key: &'a [u8],
        },
        /// Writes a value without a condition; an expiry that the key had is gone.
        kind 2, version 1, Write, Anywhere, keys [key]:
        Put {
            /// The key.
            key: &'a [u8],
            /// The new value.
            value: &'a [u8],
        },
        /// Removes a key.
        kind 3, version 1, Write, Anywhere, keys [key]:
        Delete {
            /// The key.
            key: &'a [u8],
        },
        /// Writes a value under a condition, with an expiry, and can return what was there.
        kind 4, version 2, Write, Anywhere, keys [key]:
        Set {
            /// The key.
            key: &'a [u8],
            /// Condition, expiry and what to return.
            options: SetOptions,
            /// The new value.
            value: &'a [u8],
        },
        /// Removes a key and returns what was there.
        kind 5, version 2, Write, Anywhere, keys [key]:
        GetDelete {
            /// The key.
            key: &'a [u8],
        },
        /// Writes a value if the item's version is still `expected`.
        kind 6, version 2, Write, Anywhere, keys [key]:
        CompareAndSwap {
            /// The key.
            key: &'a [u8],
            /// The version that an earlier answer named.
            expected: Position,
            /// The new value.
            value: &'a [u8],
        },
        /// Adds to a signed 64-bit decimal number; a missing key counts as 0.
        kind 7, version 2, Write, Anywhere, keys [key]:
        Increment {
            /// The key.
            key: &'a [u8],
            /// What to add.
            delta: i64,
        },
        /// Appends to a value; a missing key counts as empty.
        kind 8, version 2, Write, Anywhere, keys [key]:
        Append {
            /// The key.
            key: &'a [u8],
            /// What to append.
            value: &'a [u8],
        },
        /// Reads several values.
        kind 9, version 2, Read, Alone, keys [keys]:
        MultiGet {
            /// The keys.
            keys: List<'a, &'a [u8]>,
        },
        /// Writes several values, all of them or none.
        kind 10, version 2, Write, Anywhere, keys [pairs]:
        MultiPut {
            /// The keys with their values.
            pairs: List<'a, Pair<'a>>,
        },
        /// Lets a key expire when `after_ns` of group time have passed.
        kind 11, version 2, Write, Anywhere, keys [key]:
        Expire {
            /// The key.
            key: &'a [u8],
            /// The time to live in nanoseconds of group time.
            after_ns: u64,
        },
        /// The same under a condition; with a time to live of zero it removes the key.
        kind 16, version 3, Write, Anywhere, keys [key]:
        ExpireIf {
            /// The key.
            key: &'a [u8],
            /// The time to live in nanoseconds of group time.
            after_ns: u64,
            /// When the expiry is changed.
            condition: ExpireCondition,
        },
        /// The same for a moment that was measured, and is a little off: a condition that compares moments has to hold
        /// by more than the margin.
        kind 17, version 4, Write, Anywhere, keys [key]:
        ExpireIfBeyond {
            /// The key.
            key: &'a [u8],
            /// The time to live in nanoseconds of group time.
            after_ns: u64,
            /// When the expiry is changed.
            condition: ExpireCondition,
            /// How far off the moment may be, in nanoseconds.
            margin_ns: u64,
        },
        /// Takes a key's expiry away.
        kind 12, version 2, Write, Anywhere, keys [key]:
        Persist {
            /// The key.
            key: &'a [u8],
        },
        /// Reads how long a key has to live.
        kind 13, version 2, Read, Anywhere, keys [key]:
        TimeToLive {
            /// The key.
            key: &'a [u8],
        },
        /// Reads how many keys there are. In a transaction, and before version 7, those that have expired count until they
        /// are swept.
        kind 15, version 2, Read, Anywhere, keys []:
        Count,
        /// Reads the items of a range in the order of their keys: one page. Needs the ordered index.
        kind 18, version 6, Read, Alone, keys []:
        Scan {
            /// Which keys.
            range: KeyRange<'a>,
            /// How many, in which order, and whether with their values.
            options: ScanOptions,
        },
        /// Reads how many keys a range has; those that have expired do not count. Needs the ordered index.
        kind 19, version 6, Read, Alone, keys []:
        CountRange {
            /// Which keys.
            range: KeyRange<'a>,
        },
        /// Removes the first keys of a range, in their order. Needs the ordered index.
        kind 20, version 6, Write, Alone, keys []:
        DeleteRange {
            /// Which keys.
            range: KeyRange<'a>,
            /// How many at most; more than [`crate::config::DELETE_RANGE_KEYS_MAX`] are that many.
            count: u32,
        },
        /// Reads a page of the keys in the order of their hashes. A key that is there during the whole walk is in exactly
        /// one page. Pages end where this replica's table says, so a walk is answered as a read only.
        kind 22, version 6, Read, Alone, keys [prefix]:
        Walk {
            /// Where the page begins: the start, or where an earlier page has ended.
            from: Cursor,
            /// The most items to look at; 0, or a number that is too large, stands for as many as the store gives.
            count: u32,
            /// What is told of each item.
            content: WalkContent,
            /// Keys that do not begin with this are left out.
            prefix: Prefix<'a>,
        },
        /// Removes all keys. Users, limits and client sessions stay.
        kind 23, version 6, Write, Alone, keys []:
        Flush,
        /// Keeps the state of this position for a while, so that pages of a scan or of a walk can be read at it.
        kind 24, version 6, Write, Alone, keys []:
        Pin,
        /// Keeps the state of a pin for longer. Only the client that has the pin may ask for it.
        kind 25, version 6, Write, Alone, keys []:
        RenewPin {
            /// The pin's position.
            position: Position,
        },
        /// Ends a pin. Only the client that has it may ask for it.
        kind 26, version 6, Write, Alone, keys []:
        Unpin {
            /// The pin's position.
            position: Position,
        },
        /// Reads a page of a range as it was at a pin. Not every replica has kept that state, so it is answered as a read
        /// only.
        kind 27, version 6, Read, Alone, keys []:
        ScanAt {
            /// The pin's position.
            position: Position,
            /// Which keys.
            range: KeyRange<'a>,
            /// How many, in which order, and whether with their values.
            options: ScanOptions,
        },
        /// Reads how many keys a range had at a pin, of its first keys: one part of the range at a time. Answered as a read only.
        kind 28, version 6, Read, Alone, keys []:
        CountAt {
            /// The pin's position.
            position: Position,
            /// Which keys.
            range: KeyRange<'a>,
        },
        /// Reads a page of a walk as it was at a pin. Needs no ordered index. Answered as a read only.
        kind 29, version 6, Read, Alone, keys [prefix]:
        WalkAt {
            /// The pin's position.
            position: Position,
            /// Where the page begins: the start, or where an earlier page has ended.
            from: Cursor,
            /// The most items to look at, as for a walk.
            count: u32,
            /// What is told of each item. Times to live are counted from the pin on.
            content: WalkContent,
            /// Keys that do not begin with this are left out.
            prefix: Prefix<'a>,
        },
        /// Applies operations at one position if every condition holds.
        kind 14, version 2, OfOperations, Alone, keys [conditions, operations]:
        Execute {
            /// The effect of a failing operation on the others.
            mode: ExecuteMode,
            /// All must hold, or nothing is applied.
            conditions: List<'a, Condition<'a>>,
            /// Applied in order; an MGET, an EXEC and administrative commands cannot be operations.
            operations: List<'a, Command<'a>>,
        },
        /// Changes the replicated limits. Items beyond a lowered limit stay; writes are refused.
        kind 64, version 1, Write, Alone, keys []:
        SetLimits {
            /// The new limits.
            limits: Limits,
        },
        /// Changes the memory limit alone. A limit below what the items take at that position is refused.
        kind 66, version 4, Write, Alone, keys []:
        SetMemory {
            /// The new limit in logical bytes.
            memory_bytes: u64,
        },
        /// Adds a user. The key is made from the cluster key file `issuer` and from the generation in the answer.
        kind 67, version 5, Write, Alone, keys []:
        AddUser {
            /// The cluster key file that keys are made from. All users of a group have the same.
            issuer: Issuer,
            /// The name.
            name: UserName,
            /// What the user may do.
            rights: Rights<'a>,
        },
        /// Removes a user, whose keys are void from here on.
        kind 68, version 5, Write, Alone, keys []:
        RemoveUser {
            /// The name.
            name: UserName,
        },
        /// Gives a user a new generation: the keys of earlier ones are void from here on.
        kind 69, version 5, Write, Alone, keys []:
        RotateUser {
            /// The cluster key file that the new key is made from.
            issuer: Issuer,
            /// The name.
            name: UserName,
        },
        /// Reads all users.
        kind 70, version 5, Read, Alone, keys []:
        ListUsers,
        /// Keeps an ordered index of the keys, or no more. It is built a little with each entry of the log.
        kind 71, version 6, Write, Alone, keys []:
        SetOrdered {
            /// Whether there is to be one.
            on: bool,
        },
        /// Switches the group to a newer state-machine version, once every member understands it.
        kind 65, version 1, Write, Alone, keys []:
        RaiseVersion {
            /// The version to switch to.
            version: u8,
        },
    }
}
