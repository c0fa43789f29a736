//! Why a command was refused. Every replica refuses alike.

use crate::codec::{DecodeError, Reader, Sink};
use crate::config::{COUNT_EXPIRED_MAX, SCAN_KEYS_MAX};
use std::fmt;
use trine_keys::Fingerprint;

/// A command was refused and changed nothing.
#[derive(Copy, Clone, Eq, PartialEq, Debug)]
pub enum StoreError {
    /// The key is longer than the limit.
    KeyTooLong {
        /// The limit in bytes.
        limit: u32,
    },
    /// The value is, or would become, longer than the limit.
    ValueTooLong {
        /// The limit in bytes.
        limit: u32,
    },
    /// The live items would take more logical bytes than the limit.
    Full {
        /// The limit in logical bytes.
        limit: u64,
    },
    /// The value is not a signed 64-bit decimal number.
    NotANumber,
    /// The sum does not fit a signed 64-bit number.
    Overflow,
    /// The command needs a key that is not there.
    KeyMissing,
    /// Only reads can be answered without the replicated order.
    NotReadOnly,
    /// This command cannot be an operation of an EXEC.
    NotInExecute,
    /// A list in the command is longer than [`crate::config::LIST_ITEMS_MAX`].
    ListTooLong,
    /// The answer would be longer than [`crate::config::LIST_RESPONSE_BYTES_MAX`].
    ResponseTooLarge,
    /// The command belongs to a state-machine version that the group has not switched to.
    VersionNotActive {
        /// The version of the command.
        required: u8,
        /// The version that the group runs.
        active: u8,
    },
    /// The same, and all members understand the version: the group switches to it later.
    SwitchWaits {
        /// The version of the command.
        required: u8,
        /// The version that the group runs.
        active: u8,
        /// Seconds until the leader switches by itself; `None` if only an operator switches.
        seconds: Option<u32>,
    },
    /// A state-machine version can only be raised, and only to one that this build understands.
    BadVersion {
        /// The version asked for.
        asked: u8,
    },
    /// Limits that no store can hold to.
    BadLimits,
    /// Undoing the command would take more than [`crate::config::UNDO_BYTES_MAX`].
    ExecuteTooLarge,
    /// A cache does not know this command.
    NotInCache,
    /// The memory limit cannot become less than what the items take.
    MemoryInUse {
        /// What they take, in logical bytes.
        used: u64,
    },
    /// There is a user with this name.
    UserExists,
    /// There is no user with this name.
    UnknownUser,
    /// The group has as many users as it can have.
    TooManyUsers {
        /// How many those are.
        limit: u32,
    },
    /// The prefix is longer than a user's can be.
    PrefixTooLong {
        /// The limit in bytes.
        limit: u32,
    },
    /// No user has this role with this prefix.
    BadRole,
    /// The group's users have keys of another cluster key file.
    OtherClusterKey {
        /// The user root of the file that they have.
        root: Fingerprint,
    },
    /// Every number and generation was given.
    NumbersUsed,
    /// The command needs the ordered index.
    NotOrdered {
        /// Whether one is being built.
        building: bool,
    },
    /// The range ends before it begins.
    RangeReversed,
    /// A page cannot have this many keys, or a range is to lose none.
    BadKeyCount {
        /// The number that was asked for.
        asked: u32,
    },
    /// With an ordered index the items would take more logical bytes than the limit.
    NoRoomForIndex {
        /// What they would take.
        needed: u64,
    },
    /// Too many keys have expired and are not swept yet: the range cannot be counted now.
    SweepBehind,
    /// The command only reads, and its answer is not the same on every replica: it is sent as a read.
    OnlyRead,
    /// The client or the group has as many pins as it can have.
    TooManyPins {
        /// How many those are.
        limit: u32,
    },
    /// The clients of the user have as many pins as a user can have.
    TooManyPinsOfUser {
        /// How many those are.
        limit: u32,
    },
    /// There is no such pin, or it is another client's.
    PinEnded,
    /// This replica has not kept the state of the pin.
    PinNotHere,
}

impl StoreError {
    pub(crate) fn write(self, sink: &mut impl Sink) {
        let (kind, first, second): (u8, u64, u8) = match self {
            Self::KeyTooLong { limit } => (1, u64::from(limit), 0),
            Self::ValueTooLong { limit } => (2, u64::from(limit), 0),
            Self::Full { limit } => (3, limit, 0),
            Self::NotANumber => (4, 0, 0),
            Self::Overflow => (5, 0, 0),
            Self::KeyMissing => (6, 0, 0),
            Self::NotReadOnly => (7, 0, 0),
            Self::NotInExecute => (8, 0, 0),
            Self::ListTooLong => (9, 0, 0),
            Self::ResponseTooLarge => (10, 0, 0),
            Self::VersionNotActive { required, active } => (11, u64::from(required), active),
            Self::BadVersion { asked } => (12, u64::from(asked), 0),
            Self::BadLimits => (13, 0, 0),
            Self::ExecuteTooLarge => (14, 0, 0),
            Self::NotInCache => (15, 0, 0),
            Self::MemoryInUse { used } => (16, used, 0),
            Self::UserExists => (17, 0, 0),
            Self::UnknownUser => (18, 0, 0),
            Self::TooManyUsers { limit } => (19, u64::from(limit), 0),
            Self::PrefixTooLong { limit } => (20, u64::from(limit), 0),
            Self::BadRole => (21, 0, 0),
            Self::OtherClusterKey { root } => (22, u64::from(u32::from_le_bytes(root.0)), 0),
            Self::NumbersUsed => (23, 0, 0),
            Self::NotOrdered { building } => (24, u64::from(building), 0),
            Self::RangeReversed => (25, 0, 0),
            Self::BadKeyCount { asked } => (26, u64::from(asked), 0),
            Self::NoRoomForIndex { needed } => (27, needed, 0),
            Self::SweepBehind => (28, 0, 0),
            Self::OnlyRead => (30, 0, 0),
            Self::TooManyPins { limit } => (34, u64::from(limit), 0),
            Self::PinEnded => (35, 0, 0),
            Self::PinNotHere => (36, 0, 0),
            Self::TooManyPinsOfUser { limit } => (37, u64::from(limit), 0),
            Self::SwitchWaits {
                required,
                active,
                seconds,
            } => {
                let seconds = seconds.map_or(0, |seconds| u64::from(seconds) + 1);
                (38, seconds << 8 | u64::from(required), active)
            }
        };
        sink.put_u8(kind);
        sink.put_u64(first);
        sink.put_u8(second);
    }

    fn switch_waits(first: u64, active: u8) -> Result<Self, DecodeError> {
        let seconds = u32::try_from(first >> 8);
        Ok(Self::SwitchWaits {
            required: (first & 0xff) as u8,
            active,
            seconds: seconds
                .map_err(|_| DecodeError::BadField { field: "seconds" })?
                .checked_sub(1),
        })
    }

    /// The error with this code. `None` if this release does not know the code.
    fn of_code(kind: u8, first: u64, second: u8) -> Result<Option<Self>, DecodeError> {
        let short = || u32::try_from(first).map_err(|_| DecodeError::BadField { field: "limit" });
        let byte = || u8::try_from(first).map_err(|_| DecodeError::BadField { field: "version" });
        if !is_known(kind) {
            return Ok(None);
        }
        if (second != 0 && !matches!(kind, 11 | 38))
            || (first != 0
                && !matches!(
                    kind,
                    1..=3 | 11 | 12 | 16 | 19 | 20 | 22 | 24 | 26 | 27 | 34 | 37 | 38
                ))
        {
            return Err(DecodeError::BadField { field: "error" });
        }
        Ok(Some(match kind {
            1 => Self::KeyTooLong { limit: short()? },
            2 => Self::ValueTooLong { limit: short()? },
            3 => Self::Full { limit: first },
            4 => Self::NotANumber,
            5 => Self::Overflow,
            6 => Self::KeyMissing,
            7 => Self::NotReadOnly,
            8 => Self::NotInExecute,
            9 => Self::ListTooLong,
            10 => Self::ResponseTooLarge,
            11 => Self::VersionNotActive {
                required: byte()?,
                active: second,
            },
            12 => Self::BadVersion { asked: byte()? },
            13 => Self::BadLimits,
            14 => Self::ExecuteTooLarge,
            15 => Self::NotInCache,
            16 => Self::MemoryInUse { used: first },
            17 => Self::UserExists,
            18 => Self::UnknownUser,
            19 => Self::TooManyUsers { limit: short()? },
            20 => Self::PrefixTooLong { limit: short()? },
            21 => Self::BadRole,
            22 => Self::OtherClusterKey {
                root: Fingerprint(short()?.to_le_bytes()),
            },
            23 => Self::NumbersUsed,
            24 => Self::NotOrdered {
                building: match first {
                    0 => false,
                    1 => true,
                    _ => return Err(DecodeError::BadField { field: "building" }),
                },
            },
            25 => Self::RangeReversed,
            26 => Self::BadKeyCount { asked: short()? },
            27 => Self::NoRoomForIndex { needed: first },
            28 => Self::SweepBehind,
            30 => Self::OnlyRead,
            34 => Self::TooManyPins { limit: short()? },
            35 => Self::PinEnded,
            36 => Self::PinNotHere,
            37 => Self::TooManyPinsOfUser { limit: short()? },
            38 => Self::switch_waits(first, second)?,
            kind => return Err(DecodeError::UnknownKind { kind }),
        }))
    }
}

/// Codes from here on are followed by a sentence. Fixed by the first release: a reader that does not know the code relies
/// on it.
pub(crate) const CODES_WITH_TEXT: u8 = 64;

const fn is_known(code: u8) -> bool {
    matches!(code, 1..=28 | 30 | 34..=38)
}

/// A command was refused and changed nothing, for a reason that is younger than this release.
#[derive(Copy, Clone, Eq, PartialEq, Debug)]
pub struct OtherError<'a> {
    /// The error's code.
    pub code: u8,
    /// The number behind the code.
    pub first: u64,
    /// The second number.
    pub second: u8,
    /// The server's sentence. Empty for a code below 64.
    pub text: &'a str,
    /// The place of the refused operation, if an EXEC was undone for it.
    pub index: Option<u32>,
}

impl OtherError<'_> {
    pub(crate) fn write(&self, sink: &mut impl Sink) {
        sink.put_u8(self.code);
        sink.put_u64(self.first);
        sink.put_u8(self.second);
        if self.code >= CODES_WITH_TEXT {
            sink.put_bytes(self.text.as_bytes());
        }
    }
}

impl fmt::Display for OtherError<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(index) = self.index {
            write!(formatter, "operation {index}: ")?;
        }
        let code = self.code;
        match self.text {
            "" => write!(formatter, "the group refused it with error {code}")?,
            text => write!(formatter, "{text} (error {code})")?,
        }
        write!(
            formatter,
            ", which release {} does not know; nothing was changed",
            env!("CARGO_PKG_VERSION")
        )
    }
}

/// An error as it was read.
pub(crate) enum ReadError<'a> {
    Known(StoreError),
    Other(OtherError<'a>),
}

impl<'a> ReadError<'a> {
    pub(crate) fn read(reader: &mut Reader<'a>) -> Result<Self, DecodeError> {
        let (code, first, second) = (reader.u8()?, reader.u64()?, reader.u8()?);
        if let Some(error) = StoreError::of_code(code, first, second)? {
            return Ok(Self::Known(error));
        }
        let text = match code >= CODES_WITH_TEXT {
            true => std::str::from_utf8(reader.bytes()?),
            false => Ok(""),
        };
        Ok(Self::Other(OtherError {
            code,
            first,
            second,
            text: text.map_err(|_| DecodeError::BadField { field: "text" })?,
            index: None,
        }))
    }
}

/// Seconds for people: `23 h 59 min`, `59 min 3 s`, `7 s`.
struct InWords(u32);

impl fmt::Display for InWords {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (hours, minutes, seconds) = (self.0 / 3600, self.0 / 60 % 60, self.0 % 60);
        match (hours, minutes) {
            (0, 0) => write!(formatter, "{seconds} s"),
            (0, _) => write!(formatter, "{minutes} min {seconds} s"),
            _ => write!(formatter, "{hours} h {minutes} min"),
        }
    }
}

impl fmt::Display for StoreError {
    // Long because each error has an arm.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::KeyTooLong { limit } => write!(
                formatter,
                "the key is longer than the limit of {limit} bytes"
            ),
            Self::ValueTooLong { limit } => {
                write!(
                    formatter,
                    "the value is longer than the limit of {limit} bytes"
                )
            }
            Self::Full { limit } => {
                write!(formatter, "the store is full (limit {limit} bytes)")
            }
            Self::NotANumber => {
                write!(formatter, "the value is not a signed 64-bit decimal number")
            }
            Self::Overflow => write!(formatter, "the result does not fit a signed 64-bit number"),
            Self::KeyMissing => write!(formatter, "there is no such key"),
            Self::NotReadOnly => write!(formatter, "the command writes and was sent as a read"),
            Self::NotInExecute => write!(formatter, "the command is not allowed inside an EXEC"),
            Self::ListTooLong => write!(formatter, "the list has too many elements"),
            Self::ResponseTooLarge => write!(
                formatter,
                "the answer would be too large: ask for fewer keys"
            ),
            Self::VersionNotActive { required, active } => write!(
                formatter,
                "the command needs state-machine version {required}, the group runs {active}: upgrade every member"
            ),
            Self::SwitchWaits {
                required,
                active,
                seconds,
            } => {
                write!(
                    formatter,
                    "the command needs state-machine version {required}, the group runs {active} "
                )?;
                match seconds {
                    Some(seconds) => write!(
                        formatter,
                        "and switches in {}; `trine upgrade finish` switches now",
                        InWords(*seconds)
                    ),
                    None => write!(formatter, "until `trine upgrade finish` switches"),
                }
            }
            Self::BadVersion { asked } => {
                write!(formatter, "cannot switch to state-machine version {asked}")
            }
            Self::BadLimits => write!(formatter, "the limits are out of range"),
            Self::MemoryInUse { used } => write!(
                formatter,
                "the limit cannot be lowered below the size of the items, {used} bytes"
            ),
            Self::UserExists => write!(formatter, "there is a user with this name already"),
            Self::UnknownUser => write!(formatter, "there is no user with this name"),
            Self::TooManyUsers { limit } => {
                write!(formatter, "the group has {limit} users, which is the limit")
            }
            Self::PrefixTooLong { limit } => write!(
                formatter,
                "the prefix is longer than the limit of {limit} bytes"
            ),
            Self::BadRole => write!(
                formatter,
                "a user's role is admin, write or read, and an admin has no prefix"
            ),
            Self::OtherClusterKey { root } => write!(
                formatter,
                "this is not the cluster key file of the group: its users have keys of user root {root}"
            ),
            Self::NumbersUsed => write!(formatter, "the group has no further number for users"),
            Self::NotOrdered { building: false } => write!(
                formatter,
                "the group keeps no ordered index: `trine config set ordered on` builds one"
            ),
            Self::NotOrdered { building: true } => write!(
                formatter,
                "the ordered index is being built: `trine status` shows how far it is"
            ),
            Self::RangeReversed => write!(formatter, "the range ends before it begins"),
            Self::BadKeyCount { asked } => write!(
                formatter,
                "{asked} is not a number of keys from 1 to {SCAN_KEYS_MAX}"
            ),
            Self::NoRoomForIndex { needed } => write!(
                formatter,
                "with an ordered index the items count {needed} bytes, which is above the limit: raise it with \
                 `trine config set memory`"
            ),
            Self::SweepBehind => write!(
                formatter,
                "more than {COUNT_EXPIRED_MAX} keys have expired and are still being removed: the read can be tried again in a moment"
            ),
            Self::OnlyRead => write!(
                formatter,
                "the command only reads and was sent as a write: send it as a read"
            ),
            Self::TooManyPins { limit } => write!(
                formatter,
                "{limit} scans are running, which is the limit: wait for one to end, or read page \
                 by page with `trine scan --no-atomic`"
            ),
            Self::TooManyPinsOfUser { limit } => write!(
                formatter,
                "{limit} scans of this user are running, which is the limit: wait for one to end, \
                 or read page by page with `trine scan --no-atomic`"
            ),
            Self::PinEnded => write!(
                formatter,
                "the position is no longer kept: start the scan again"
            ),
            Self::PinNotHere => write!(
                formatter,
                "this replica has not kept the state of the position: ask another one, or begin the scan again"
            ),
            Self::NotInCache => write!(formatter, "a cache does not know this command"),
            Self::ExecuteTooLarge => write!(
                formatter,
                "the operations change too much at once: split them"
            ),
        }
    }
}

impl std::error::Error for StoreError {}
