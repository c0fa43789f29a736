//! The answers of the state machine.

mod codec;
mod page;

use crate::codec::List;
use crate::error::{OtherError, StoreError};
use crate::position::Position;
use crate::users::User;
use std::borrow::Cow;

pub use page::{Entry, Found, Page};

/// The answer to one command, borrowing from the store that gave it.
#[derive(Clone, Eq, PartialEq, Debug)]
pub enum Response<'a> {
    /// The value of a key.
    Value {
        /// The value.
        value: &'a [u8],
        /// The position of the key's last change.
        version: Position,
    },
    /// There is no such key.
    NotFound,
    /// The key was written.
    Written {
        /// Its new version.
        version: Position,
    },
    /// DELETE was applied.
    Deleted {
        /// Whether there was a key to delete.
        existed: bool,
    },
    /// INCR was applied.
    Number {
        /// The new number.
        value: i64,
        /// The key's new version.
        version: Position,
    },
    /// APPEND was applied.
    Length {
        /// The length of the new value.
        bytes: u32,
        /// The key's new version.
        version: Position,
    },
    /// A condition on the key did not hold; nothing was changed.
    Conflict {
        /// The key's version, if it is there.
        current: Option<Position>,
    },
    /// SET with `return_previous` was answered.
    Exchanged {
        /// The value before the command.
        previous: Option<Versioned<'a>>,
        /// The new version; none if the condition did not hold.
        written: Option<Position>,
    },
    /// How long a key has to live.
    TimeToLive {
        /// Nanoseconds of group time; none if it does not expire.
        remaining_ns: Option<u64>,
    },
    /// How many keys there are.
    Count {
        /// In a transaction, and before version 7, those that have expired count until they are swept.
        items: u64,
    },
    /// A page of a scan.
    Items {
        /// The items, in the order that was asked for.
        items: List<'a, RangeItem<'a>>,
        /// Where to go on, if anything may be left: the start of what is left, or its end if the scan is in reverse.
        next: Option<Cow<'a, [u8]>>,
    },
    /// How many keys the first part of a range has.
    Counted {
        /// How many.
        items: u64,
        /// The start of what is left of the range.
        next: Option<Cow<'a, [u8]>>,
    },
    /// The first keys of a range were removed.
    RangeDeleted {
        /// How many; keys that had expired do not count.
        removed: u32,
        /// The start of what is left of the range.
        next: Option<Cow<'a, [u8]>>,
    },
    /// One answer for each key or operation, in order.
    List(List<'a, Response<'a>>),
    /// An EXEC changed nothing.
    Aborted {
        /// The first condition that did not hold or operation that failed.
        cause: AbortCause,
    },
    /// An administrative command was applied.
    Done,
    /// A user was added or has a new generation.
    User(User<'a>),
    /// All users, in the order of their names.
    Users(List<'a, User<'a>>),
    /// A part of a walk.
    Page(Page<'a>),
    /// A pin was taken or renewed.
    Pinned {
        /// The position that is read at it.
        position: Position,
    },
    /// The caller has no right to the command, which was not applied. Replicas answer this, not the store.
    Denied {
        /// Who lacks which right, for people.
        reason: &'a str,
    },
    /// The command was refused and changed nothing.
    Error(StoreError),
    /// The same, for a reason that this release does not know. Only a reader meets it: no store answers so.
    OtherError(OtherError<'a>),
}

/// An item of a scan.
#[derive(Copy, Clone, Eq, PartialEq, Debug)]
pub struct RangeItem<'a> {
    /// The key.
    pub key: &'a [u8],
    /// Its value with the version, unless keys alone were asked for.
    pub item: Option<Versioned<'a>>,
}

/// A value with the position of its last change.
#[derive(Copy, Clone, Eq, PartialEq, Debug)]
pub struct Versioned<'a> {
    /// The value.
    pub value: &'a [u8],
    /// The version.
    pub version: Position,
}

/// Why an EXEC changed nothing.
#[derive(Copy, Clone, Eq, PartialEq, Debug)]
pub enum AbortCause {
    /// The condition with this index does not hold.
    Condition {
        /// Counted from 0.
        index: u32,
    },
    /// The operation with this index was refused.
    Refused {
        /// Counted from 0.
        index: u32,
        /// Its error.
        error: StoreError,
    },
    /// The operation with this index found its own condition unmet.
    Conflict {
        /// Counted from 0.
        index: u32,
    },
}
