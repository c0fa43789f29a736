//! The state machine's whole input language.

mod decode;
mod encode;

use crate::codec::List;
use crate::config::{STATE_VERSION, STATE_VERSION_FIRST, STATE_VERSION_SECOND};
use crate::limits::Limits;
use crate::position::Position;

/// One command. It borrows its keys and values from the sender's bytes, usually from a log entry.
#[derive(Clone, Eq, PartialEq, Debug)]
pub enum Command<'a> {
    /// Reads a value.
    Get {
        /// The key.
        key: &'a [u8],
    },
    /// Writes a value without a condition; an expiry that the key had is gone.
    Put {
        /// The key.
        key: &'a [u8],
        /// The new value.
        value: &'a [u8],
    },
    /// Removes a key.
    Delete {
        /// The key.
        key: &'a [u8],
    },
    /// Writes a value under a condition, with an expiry, and can return what was there.
    Set {
        /// The key.
        key: &'a [u8],
        /// The new value.
        value: &'a [u8],
        /// Condition, expiry and what to return.
        options: SetOptions,
    },
    /// Removes a key and returns what was there.
    GetDelete {
        /// The key.
        key: &'a [u8],
    },
    /// Writes a value if the item's version is still `expected`.
    CompareAndSwap {
        /// The key.
        key: &'a [u8],
        /// The version that an earlier answer named.
        expected: Position,
        /// The new value.
        value: &'a [u8],
    },
    /// Adds to a signed 64-bit decimal number; a missing key counts as 0.
    Increment {
        /// The key.
        key: &'a [u8],
        /// What to add.
        delta: i64,
    },
    /// Appends to a value; a missing key counts as empty.
    Append {
        /// The key.
        key: &'a [u8],
        /// What to append.
        value: &'a [u8],
    },
    /// Reads several values.
    MultiGet {
        /// The keys.
        keys: List<'a, &'a [u8]>,
    },
    /// Writes several values, all of them or none.
    MultiPut {
        /// The keys with their values.
        pairs: List<'a, Pair<'a>>,
    },
    /// Lets a key expire when `after_ns` of group time have passed.
    Expire {
        /// The key.
        key: &'a [u8],
        /// The time to live in nanoseconds of group time.
        after_ns: u64,
    },
    /// The same under a condition; with a time to live of zero it removes the key.
    ExpireIf {
        /// The key.
        key: &'a [u8],
        /// The time to live in nanoseconds of group time.
        after_ns: u64,
        /// When the expiry is changed.
        condition: ExpireCondition,
    },
    /// Takes a key's expiry away.
    Persist {
        /// The key.
        key: &'a [u8],
    },
    /// Reads how long a key has to live.
    TimeToLive {
        /// The key.
        key: &'a [u8],
    },
    /// Reads how many keys there are; those that have expired count until they are swept.
    Count,
    /// Applies operations at one position if every condition holds.
    Execute {
        /// The effect of a failing operation on the others.
        mode: ExecuteMode,
        /// All must hold, or nothing is applied.
        conditions: List<'a, Condition<'a>>,
        /// Applied in order; an MGET, an EXEC and administrative commands cannot be operations.
        operations: List<'a, Command<'a>>,
    },
    /// Changes the replicated limits. Items beyond a lowered limit stay; writes are refused.
    SetLimits {
        /// The new limits.
        limits: Limits,
    },
    /// Switches the group to a newer state-machine version, once every member understands it.
    RaiseVersion {
        /// The version to switch to.
        version: u8,
    },
}

/// A key with its value.
#[derive(Copy, Clone, Eq, PartialEq, Debug)]
pub struct Pair<'a> {
    /// The key.
    pub key: &'a [u8],
    /// The value.
    pub value: &'a [u8],
}

/// The effects of SET beside writing.
#[derive(Copy, Clone, Eq, PartialEq, Default, Debug)]
pub struct SetOptions {
    /// When the value is written.
    pub condition: SetCondition,
    /// The effect on the expiry.
    pub expiry: SetExpiry,
    /// Whether the answer carries the value that was there.
    pub return_previous: bool,
}

/// When SET writes.
#[derive(Copy, Clone, Eq, PartialEq, Default, Debug)]
pub enum SetCondition {
    /// In any case.
    #[default]
    Always,
    /// Only if the key is absent (Redis: NX).
    Absent,
    /// Only if the key is present (Redis: XX).
    Present,
}

/// The effect of SET on the expiry.
#[derive(Copy, Clone, Eq, PartialEq, Default, Debug)]
pub enum SetExpiry {
    /// The key does not expire.
    #[default]
    Never,
    /// An expiry that the key had stays (Redis: KEEPTTL).
    Keep,
    /// The key expires after this many nanoseconds of group time.
    After(u64),
}

/// When EXPIRE changes the expiry of a key that is there.
#[derive(Copy, Clone, Eq, PartialEq, Debug)]
pub enum ExpireCondition {
    /// Only if the key has no expiry (Redis: NX).
    Absent,
    /// Only if the key has an expiry (Redis: XX).
    Present,
    /// Only if the key then expires later; without an expiry it stays forever (Redis: GT).
    Later,
    /// Only if the key then expires earlier; without an expiry it does (Redis: LT).
    Earlier,
    /// Only if the key has an expiry and then expires earlier (Redis: XX LT).
    PresentAndEarlier,
}

impl ExpireCondition {
    /// Whether `expiry_ns` may replace `current_ns`, which is 0 for none.
    pub(crate) fn holds(self, current_ns: u64, expiry_ns: u64) -> bool {
        let (has_one, earlier) = (current_ns != 0, expiry_ns < current_ns);
        match self {
            Self::Absent => !has_one,
            Self::Present => has_one,
            Self::Later => has_one && expiry_ns > current_ns,
            Self::Earlier => !has_one || earlier,
            Self::PresentAndEarlier => has_one && earlier,
        }
    }
}

/// A condition of EXEC.
#[derive(Copy, Clone, Eq, PartialEq, Debug)]
pub enum Condition<'a> {
    /// The key is absent.
    Absent {
        /// The key.
        key: &'a [u8],
    },
    /// The key is present.
    Present {
        /// The key.
        key: &'a [u8],
    },
    /// The key is present with this version.
    VersionIs {
        /// The key.
        key: &'a [u8],
        /// The version.
        version: Position,
    },
}

impl<'a> Condition<'a> {
    /// The key that the condition checks.
    #[must_use]
    pub fn key(&self) -> &'a [u8] {
        match self {
            Self::Absent { key } | Self::Present { key } | Self::VersionIs { key, .. } => key,
        }
    }
}

/// The effect of a failing operation on the others of its EXEC.
#[derive(Copy, Clone, Eq, PartialEq, Debug)]
pub enum ExecuteMode {
    /// It undoes them all.
    AllOrNothing,
    /// It leaves them alone (Redis's way).
    Independent,
}

impl<'a> Command<'a> {
    /// Whether the command changes nothing, so that it can be answered by [`crate::Store::read`].
    #[must_use]
    pub fn is_read_only(&self) -> bool {
        match self {
            Self::Get { .. } | Self::MultiGet { .. } | Self::TimeToLive { .. } | Self::Count => {
                true
            }
            Self::Execute { operations, .. } => {
                operations.iter().all(|operation| operation.is_read_only())
            }
            _ => false,
        }
    }

    /// The one key of the command; none for lists and administrative commands.
    #[must_use]
    pub fn key(&self) -> Option<&'a [u8]> {
        match self {
            Self::Get { key }
            | Self::Put { key, .. }
            | Self::Delete { key }
            | Self::Set { key, .. }
            | Self::GetDelete { key }
            | Self::CompareAndSwap { key, .. }
            | Self::Increment { key, .. }
            | Self::Append { key, .. }
            | Self::Expire { key, .. }
            | Self::ExpireIf { key, .. }
            | Self::Persist { key }
            | Self::TimeToLive { key } => Some(key),
            Self::MultiGet { .. }
            | Self::MultiPut { .. }
            | Self::Count
            | Self::Execute { .. }
            | Self::SetLimits { .. }
            | Self::RaiseVersion { .. } => None,
        }
    }

    /// The state-machine version that introduced the command; an older group refuses it.
    #[must_use]
    pub fn version(&self) -> u8 {
        match self {
            Self::Get { .. }
            | Self::Put { .. }
            | Self::Delete { .. }
            | Self::SetLimits { .. }
            | Self::RaiseVersion { .. } => STATE_VERSION_FIRST,
            Self::ExpireIf { .. } => STATE_VERSION,
            // A list's elements have to be understood, too.
            Self::Execute { operations, .. } => operations
                .iter()
                .map(|operation| operation.version())
                .fold(STATE_VERSION_SECOND, u8::max),
            _ => STATE_VERSION_SECOND,
        }
    }

    /// Whether the command can be an operation of EXEC.
    #[must_use]
    pub fn can_be_operation(&self) -> bool {
        self.key().is_some() || matches!(self, Self::MultiPut { .. } | Self::Count)
    }
}

#[cfg(test)]
mod tests;
