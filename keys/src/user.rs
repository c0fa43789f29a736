//! A user's key: a text without spaces that a user keeps in a file or gives to AUTH.
//!
//! ```text
//! trine-key-1:NAME:GENERATION:FINGERPRINT:KEY:CHECK
//! ```
//!
//! The fingerprint is that of the user root, 8 digits. The key has 64, and the check of all before it 8.

use std::fmt::Write as _;
use std::str::FromStr;

use zeroize::Zeroizing;

use crate::config::{FINGERPRINT_BYTES, KEY_BYTES};
use crate::derive::{Purpose, check, derive};
use crate::fingerprint::Fingerprint;
use crate::hex;
use crate::key_id::KeyId;
use crate::name::{NameError, UserName};
use crate::secret::{Psk, Secret};

const COMMENT: &str = "\
# Key of one user of a trine group. Its holder has the rights of the user. Keep it secret (chmod 600).
";
const START: &str = "trine-key-";
const VERSION: &str = "1";
const FIELDS: usize = 6;
const CHECK_BYTES: usize = 4;

/// A user's key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UserKey {
    name: UserName,
    generation: u32,
    root: Fingerprint,
    key: Secret,
}

/// Why a text is no user's key. No variant shows a part of the key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UserKeyError {
    /// Nothing but comments.
    #[error("there is no key: `trine user add NAME` or `trine user rotate NAME` prints one")]
    Empty,
    /// A second line.
    #[error("line {line} is more than the one key that the file of a user has: keep one of them")]
    SecondLine {
        /// From 1.
        line: usize,
    },
    /// A cluster key file.
    #[error("this is a cluster key file, and a user's key is needed")]
    ClusterKey,
    /// It begins with something else.
    #[error("it is not a user's key: such a key begins with `{START}{VERSION}:`")]
    NotAKey,
    /// Made by a later release.
    #[error(
        "this release reads user keys that begin with `{START}{VERSION}:`: use a later release"
    )]
    UnknownVersion,
    /// Parts are missing, or there are more.
    #[error(
        "a user's key has {FIELDS} parts with `:` between them, and this one has {found}: copy the whole key"
    )]
    Fields {
        /// What it has.
        found: usize,
    },
    /// The second part.
    #[error("the second part of the key is not a user's name: {0}")]
    Name(#[from] NameError),
    /// The third part.
    #[error(
        "the third part of the key is not a generation, which is a number from 1 to 4294967295"
    )]
    Generation,
    /// A part with digits.
    #[error("the {part} of the key has {digits} digits 0-9 a-f: copy the whole key")]
    BadDigits {
        /// Which.
        part: &'static str,
        /// What it should have.
        digits: usize,
    },
    /// A character was changed.
    #[error(
        "the check at the key's end does not match: a character was changed, copy the key again"
    )]
    WrongCheck,
}

impl UserKey {
    pub(crate) fn new(name: UserName, generation: u32, root: Fingerprint, key: Secret) -> Self {
        Self {
            name,
            generation,
            root,
            key,
        }
    }

    /// Whose it is.
    #[must_use]
    pub fn name(&self) -> UserName {
        self.name
    }

    /// Which of the user's keys it is, from 1.
    #[must_use]
    pub fn generation(&self) -> u32 {
        self.generation
    }

    /// The user root that it was made from.
    #[must_use]
    pub fn root(&self) -> Fingerprint {
        self.root
    }

    /// How a connection names it.
    #[must_use]
    pub fn key_id(&self) -> KeyId {
        KeyId::User {
            root: self.root,
            name: self.name,
            generation: self.generation,
        }
    }

    /// The key of the user's handshakes.
    #[must_use]
    pub fn psk(&self) -> Psk {
        let key = derive(&[], self.key.bytes(), Purpose::UserSession, [&[], &[]]);
        Psk::new(key)
    }

    /// The one word that people copy.
    #[must_use]
    pub fn to_text(&self) -> Zeroizing<String> {
        let mut text = Zeroizing::new(String::with_capacity(256));
        write!(
            text,
            "{START}{VERSION}:{}:{}:{}:",
            self.name, self.generation, self.root
        )
        .expect("a String takes everything");
        hex::write(self.key.bytes(), &mut text);
        let sum = check::<CHECK_BYTES>(text.as_bytes());
        text.push(':');
        hex::write(&sum, &mut text);
        let read = Self::parse(&text);
        assert!(
            read.is_ok_and(|read| read == *self),
            "whoever reads the word has this key"
        );
        text
    }

    /// The text of a file with the key.
    #[must_use]
    pub fn to_file_text(&self) -> Zeroizing<String> {
        let mut text = Zeroizing::new(String::with_capacity(512));
        text.push_str(COMMENT);
        text.push_str(&self.to_text());
        text.push('\n');
        text
    }

    /// Reads the word, or a file that has it in a line of its own between comments.
    ///
    /// # Errors
    ///
    /// Names the part that is wrong.
    pub fn parse(text: &str) -> Result<Self, UserKeyError> {
        let mut found = None;
        for (index, line) in text.lines().enumerate() {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            if line.starts_with("trine-cluster-key") {
                return Err(UserKeyError::ClusterKey);
            }
            if found.replace(line).is_some() {
                return Err(UserKeyError::SecondLine { line: index + 1 });
            }
        }
        Self::parse_word(found.ok_or(UserKeyError::Empty)?)
    }

    fn parse_word(word: &str) -> Result<Self, UserKeyError> {
        let rest = word.strip_prefix(START).ok_or(UserKeyError::NotAKey)?;
        let fields: Vec<&str> = rest.split(':').collect();
        if fields[0] != VERSION {
            let is_number = !fields[0].is_empty() && fields[0].bytes().all(|b| b.is_ascii_digit());
            let later = UserKeyError::UnknownVersion;
            return Err(if is_number {
                later
            } else {
                UserKeyError::NotAKey
            });
        }
        let &[_, name, generation, root, key, sum] = fields.as_slice() else {
            return Err(UserKeyError::Fields {
                found: fields.len(),
            });
        };
        let name = UserName::from_str(name)?;
        let generation = generation_of(generation).ok_or(UserKeyError::Generation)?;
        let root = digits::<FINGERPRINT_BYTES>(root, "fourth part")?;
        let key = Zeroizing::new(digits::<KEY_BYTES>(key, "fifth part")?);
        let read = Self::new(name, generation, Fingerprint(root), Secret::new(*key));
        let sum = digits::<CHECK_BYTES>(sum, "last part")?;
        let (checked, _) = word.rsplit_once(':').ok_or(UserKeyError::NotAKey)?;
        if sum != check(checked.as_bytes()) {
            return Err(UserKeyError::WrongCheck);
        }
        Ok(read)
    }
}

/// A number from 1 in its one form: no sign, no zero in front.
fn generation_of(text: &str) -> Option<u32> {
    let first = *text.as_bytes().first()?;
    matches!(first, b'1'..=b'9')
        .then(|| text.parse().ok())
        .flatten()
}

fn digits<const BYTES: usize>(text: &str, part: &'static str) -> Result<[u8; BYTES], UserKeyError> {
    let mut bytes = [0; BYTES];
    let digits = 2 * BYTES;
    hex::read(text, &mut bytes).ok_or(UserKeyError::BadDigits { part, digits })?;
    Ok(bytes)
}

#[cfg(test)]
mod tests;
