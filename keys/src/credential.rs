//! What a session has proven, once its key id's key has opened a packet.

use crate::key_id::KeyId;
use crate::name::UserName;

/// Who the other end of a session is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Credential {
    /// A member of the group.
    Member,
    /// A holder of the cluster key file.
    Admin,
    /// A user with a key of this generation. Whether the user still exists and has that generation is a matter of the
    /// group's user table.
    User {
        /// Who.
        name: UserName,
        /// Of which key.
        generation: u32,
    },
}

impl Credential {
    /// What the key of these bytes of a CONNECT proves. `None` if they are no key id.
    #[must_use]
    pub fn parse(key_id: &[u8]) -> Option<Self> {
        KeyId::decode(key_id).ok().map(Self::from)
    }
}

impl From<KeyId> for Credential {
    fn from(id: KeyId) -> Self {
        match id {
            KeyId::Member { .. } => Self::Member,
            KeyId::Admin { .. } => Self::Admin,
            KeyId::User {
                name, generation, ..
            } => Self::User { name, generation },
        }
    }
}
