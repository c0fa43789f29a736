//! Which key a connection uses, in clear.
//!
//! ```text
//! byte 0       kind: 1 member, 2 admin, 3 user
//! byte 1 .. 5  fingerprint: of the member root for members, of the user root for admins and users
//! of a user: byte 5 .. 9   generation, u32 little-endian, at least 1
//!            byte 9 ..     name
//! ```

use std::fmt;

use crate::config::FINGERPRINT_BYTES;
use crate::fingerprint::Fingerprint;
use crate::name::{NameError, UserName};

const MEMBER: u8 = 1;
const ADMIN: u8 = 2;
const USER: u8 = 3;

/// Which key. It is sent in the clear.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum KeyId {
    /// A member's: derived from a member root.
    Member {
        /// The member root.
        root: Fingerprint,
    },
    /// An administrator's who has the cluster key file.
    Admin {
        /// The user root of the file.
        root: Fingerprint,
    },
    /// A user's.
    User {
        /// The user root that the key is derived from.
        root: Fingerprint,
        /// Who.
        name: UserName,
        /// Which of the user's keys, from 1. Each `trine user rotate` makes the next.
        generation: u32,
    },
}

/// Why bytes are no key id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeyIdError {
    /// They end early, or go on.
    #[error("a key id of this kind has another length")]
    Length,
    /// No such kind.
    #[error("no key id has kind {kind}")]
    UnknownKind {
        /// The byte.
        kind: u8,
    },
    /// Generations are counted from 1.
    #[error("a user's key has no generation 0")]
    Generation,
    /// The name is none.
    #[error(transparent)]
    Name(#[from] NameError),
}

impl KeyId {
    /// The bytes that a CONNECT carries, at most [`crate::config::KEY_ID_BYTES_MAX`].
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let (kind, root) = match self {
            Self::Member { root } => (MEMBER, root),
            Self::Admin { root } => (ADMIN, root),
            Self::User { root, .. } => (USER, root),
        };
        let mut bytes = vec![kind];
        bytes.extend_from_slice(&root.0);
        if let Self::User {
            name, generation, ..
        } = self
        {
            assert!(*generation > 0, "generations are counted from 1");
            bytes.extend_from_slice(&generation.to_le_bytes());
            bytes.extend_from_slice(name.as_bytes());
        }
        assert!(
            bytes.len() <= crate::config::KEY_ID_BYTES_MAX,
            "it fits into a CONNECT"
        );
        bytes
    }

    /// Reads it again.
    ///
    /// # Errors
    ///
    /// If no key id has these bytes.
    pub fn decode(bytes: &[u8]) -> Result<Self, KeyIdError> {
        let (&kind, rest) = bytes.split_first().ok_or(KeyIdError::Length)?;
        let (&root, rest) = rest
            .split_first_chunk::<FINGERPRINT_BYTES>()
            .ok_or(KeyIdError::Length)?;
        let root = Fingerprint(root);
        match kind {
            MEMBER | ADMIN if !rest.is_empty() => Err(KeyIdError::Length),
            MEMBER => Ok(Self::Member { root }),
            ADMIN => Ok(Self::Admin { root }),
            USER => {
                let (&generation, name) =
                    rest.split_first_chunk::<4>().ok_or(KeyIdError::Length)?;
                let generation = u32::from_le_bytes(generation);
                if generation == 0 {
                    return Err(KeyIdError::Generation);
                }
                let name = UserName::new(name)?;
                Ok(Self::User {
                    root,
                    name,
                    generation,
                })
            }
            kind => Err(KeyIdError::UnknownKind { kind }),
        }
    }
}

/// `member 3f2a91c0`, `admin 3f2a91c0`, `user alice generation 2`.
impl fmt::Display for KeyId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Member { root } => write!(formatter, "member {root}"),
            Self::Admin { root } => write!(formatter, "admin {root}"),
            Self::User {
                name, generation, ..
            } => write!(formatter, "user {name} generation {generation}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::KEY_ID_BYTES_MAX;
    use proptest::prelude::*;

    const ROOT: Fingerprint = Fingerprint([0x3f, 0x2a, 0x91, 0xc0]);

    fn user(name: &str, generation: u32) -> KeyId {
        KeyId::User {
            root: ROOT,
            name: name.parse().expect("a name"),
            generation,
        }
    }

    #[test]
    fn key_ids_have_these_bytes_and_texts() {
        let member = KeyId::Member { root: ROOT };
        assert_eq!(member.encode(), [1, 0x3f, 0x2a, 0x91, 0xc0]);
        assert_eq!(member.to_string(), "member 3f2a91c0");
        let admin = KeyId::Admin { root: ROOT };
        assert_eq!(admin.encode(), [2, 0x3f, 0x2a, 0x91, 0xc0]);
        assert_eq!(admin.to_string(), "admin 3f2a91c0");
        let alice = user("alice", 2);
        assert_eq!(alice.encode(), b"\x03\x3f\x2a\x91\xc0\x02\0\0\0alice");
        assert_eq!(alice.to_string(), "user alice generation 2");
    }

    #[test]
    fn the_longest_fits_into_a_connect() {
        let longest = user(&"x".repeat(32), u32::MAX).encode();
        assert!(longest.len() <= KEY_ID_BYTES_MAX);
        assert_eq!(KeyId::decode(&longest), Ok(user(&"x".repeat(32), u32::MAX)));
    }

    #[test]
    fn what_is_no_key_id_is_refused() {
        let error = |bytes: &[u8]| KeyId::decode(bytes).expect_err("no key id");
        assert_eq!(error(b""), KeyIdError::Length);
        assert_eq!(error(b"\x01abc"), KeyIdError::Length);
        assert_eq!(error(b"\x01abcde"), KeyIdError::Length);
        assert_eq!(error(b"\x02abcde"), KeyIdError::Length);
        assert_eq!(error(b"\x03abcd\x01\0\0"), KeyIdError::Length);
        assert_eq!(error(b"\x03abcd\0\0\0\0alice"), KeyIdError::Generation);
        assert_eq!(
            error(b"\x03abcd\x01\0\0\0"),
            KeyIdError::Name(NameError::Empty)
        );
        assert_eq!(
            error(b"\x03abcd\x01\0\0\0aLice"),
            KeyIdError::Name(NameError::BadCharacter { at: 2 })
        );
        assert_eq!(
            error(format!("\x03abcd\x01\0\0\0{}", "x".repeat(33)).as_bytes()),
            KeyIdError::Name(NameError::TooLong { bytes: 33 })
        );
        assert_eq!(error(b"\x04abcd"), KeyIdError::UnknownKind { kind: 4 });
    }

    proptest! {
        #[test]
        fn what_is_read_is_written_alike(bytes in prop::collection::vec(any::<u8>(), 0..60), kind in 0_u8..5) {
            let mut bytes = bytes;
            if let Some(first) = bytes.first_mut() {
                *first = kind;
            }
            if let Ok(id) = KeyId::decode(&bytes) {
                prop_assert_eq!(id.encode(), bytes);
            }
        }

        #[test]
        fn what_is_written_is_read_alike(name in "[a-z0-9._-]{1,32}", generation in 1_u32.., root in any::<[u8; 4]>()) {
            let id = KeyId::User { root: Fingerprint(root), name: name.parse().expect("a name"), generation };
            prop_assert_eq!(KeyId::decode(&id.encode()), Ok(id));
        }
    }
}
