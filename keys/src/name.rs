//! Names of users.

use std::fmt;
use std::str::FromStr;

use crate::config::NAME_BYTES_MAX;

/// A user's name: 1 to 32 of the characters `a-z`, `0-9`, `.`, `_` and `-`.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct UserName {
    bytes: [u8; NAME_BYTES_MAX],
    len: u8,
}

/// Why a text is no name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    /// It has no character.
    #[error("a user's name has at least one character")]
    Empty,
    /// It has too many.
    #[error(
        "a user's name has at most {NAME_BYTES_MAX} characters, and this one has {bytes} bytes"
    )]
    TooLong {
        /// What it has.
        bytes: usize,
    },
    /// It has a character that names do not have.
    #[error("character {at} is not one of a-z 0-9 . _ - which a user's name may have")]
    BadCharacter {
        /// Which character, from 1.
        at: usize,
    },
}

impl UserName {
    /// The name of these bytes.
    ///
    /// # Errors
    ///
    /// If names do not look like that.
    pub fn new(name: &[u8]) -> Result<Self, NameError> {
        if name.is_empty() {
            return Err(NameError::Empty);
        }
        if name.len() > NAME_BYTES_MAX {
            return Err(NameError::TooLong { bytes: name.len() });
        }
        let may = |byte: &u8| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'.' | b'_' | b'-');
        if let Some(index) = name.iter().position(|byte| !may(byte)) {
            return Err(NameError::BadCharacter { at: index + 1 });
        }
        let mut bytes = [0; NAME_BYTES_MAX];
        bytes[..name.len()].copy_from_slice(name);
        Ok(Self {
            bytes,
            len: name.len() as u8,
        })
    }

    /// Its bytes.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }

    /// The same as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        std::str::from_utf8(self.as_bytes()).expect("names are ASCII")
    }
}

impl PartialOrd for UserName {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for UserName {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.as_bytes().cmp(other.as_bytes())
    }
}

impl FromStr for UserName {
    type Err = NameError;

    fn from_str(name: &str) -> Result<Self, NameError> {
        Self::new(name.as_bytes())
    }
}

impl fmt::Display for UserName {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(self.as_str())
    }
}

impl fmt::Debug for UserName {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{:?}", self.as_str())
    }
}
