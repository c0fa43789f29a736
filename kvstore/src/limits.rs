//! The limits that every replica shares, because they can change an answer.
//!
//! The memory limit is a number in the replicated state and bounds logical bytes ([`item_charge`]). It reserves nothing:
//! arena and index take memory as items come (`memory.rs`), and keep it. So a change of the limit is a change of this
//! number at one position of the log. A higher one needs a machine that has the memory once the items are there.

use crate::codec::{DecodeError, Reader, Sink};
use crate::config::{
    ITEM_CHARGE_BYTES, KEY_BYTES_MAX, ORDERED_CHARGE_BYTES, ORDERED_NODE_KEY_BYTES, VALUE_BYTES_MAX,
};
use std::fmt;

/// Replicated limits: set by the first entry of a group, changed by a command.
#[derive(Copy, Clone, Eq, PartialEq, Debug)]
pub struct Limits {
    /// The most logical bytes that the live items may have: key, value and
    /// [`ITEM_CHARGE_BYTES`] for each item.
    pub memory_bytes: u64,
    /// The longest key.
    pub key_bytes: u32,
    /// The longest value.
    pub value_bytes: u32,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            memory_bytes: 1 << 30,
            key_bytes: KEY_BYTES_MAX,
            value_bytes: VALUE_BYTES_MAX,
        }
    }
}

impl Limits {
    /// Whether a store can hold to these limits.
    ///
    /// # Errors
    /// Names the first limit that is out of range.
    pub fn check(&self) -> Result<(), LimitsError> {
        if self.key_bytes == 0 || self.key_bytes > KEY_BYTES_MAX {
            return Err(LimitsError::KeyBytes {
                asked: self.key_bytes,
            });
        }
        if self.value_bytes == 0 || self.value_bytes > VALUE_BYTES_MAX {
            return Err(LimitsError::ValueBytes {
                asked: self.value_bytes,
            });
        }
        if self.memory_bytes == 0 {
            return Err(LimitsError::NoMemory);
        }
        Ok(())
    }

    pub(crate) fn write(&self, sink: &mut impl Sink) {
        sink.put_u64(self.memory_bytes);
        sink.put_u32(self.key_bytes);
        sink.put_u32(self.value_bytes);
    }

    pub(crate) fn read(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let limits = Self {
            memory_bytes: reader.u64()?,
            key_bytes: reader.u32()?,
            value_bytes: reader.u32()?,
        };
        limits
            .check()
            .map_err(|_| DecodeError::BadField { field: "limits" })?;
        Ok(limits)
    }
}

/// The logical size of an item, which is what the memory limit counts. While the group keeps an ordered index, an item
/// counts [`ordered_charge`] more.
#[must_use]
pub const fn item_charge(key_bytes: usize, value_bytes: usize) -> u64 {
    key_bytes as u64 + value_bytes as u64 + ITEM_CHARGE_BYTES
}

/// What an item counts for the ordered index. The index has a copy of the key, and its nodes are not full.
#[must_use]
pub const fn ordered_charge(key_bytes: usize) -> u64 {
    let in_node = match key_bytes > ORDERED_NODE_KEY_BYTES {
        true => ORDERED_NODE_KEY_BYTES,
        false => key_bytes,
    };
    ORDERED_CHARGE_BYTES + key_bytes as u64 + in_node as u64 / 2
}

/// Why limits cannot be used.
#[derive(Copy, Clone, Eq, PartialEq, Debug)]
pub enum LimitsError {
    /// The key limit is zero or above [`KEY_BYTES_MAX`].
    KeyBytes {
        /// The limit that was asked for.
        asked: u32,
    },
    /// The value limit is zero or above [`VALUE_BYTES_MAX`].
    ValueBytes {
        /// The limit that was asked for.
        asked: u32,
    },
    /// The memory limit is zero.
    NoMemory,
}

impl fmt::Display for LimitsError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::KeyBytes { asked } => {
                write!(
                    formatter,
                    "a key limit of {asked} bytes is not between 1 and {KEY_BYTES_MAX}"
                )
            }
            Self::ValueBytes { asked } => {
                write!(
                    formatter,
                    "a value limit of {asked} bytes is not between 1 and {VALUE_BYTES_MAX}"
                )
            }
            Self::NoMemory => write!(
                formatter,
                "a memory limit of 0 bytes leaves no room for an item"
            ),
        }
    }
}

impl std::error::Error for LimitsError {}
