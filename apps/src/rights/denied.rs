//! Why a request is denied, and how its answer says so.
//!
//! ```text
//! byte 0       DENIED, which is no verdict of another answer and begins none
//! byte 1       the role that the user has; 0 if none counts
//! byte 2       the role that is needed
//! byte 3 .. 7  the generation of the key that counts, u32 little-endian; 0 if the user is not listed
//! byte 7 ..    the user's name; empty if the key names nobody
//! ```

use std::fmt;

use trine_base::failure::Failure;
use trine_keys::config::NAME_BYTES_MAX;
use trine_keys::{Role, UserName};
use trine_transport::Cx;
use trine_transport::backend::Route;
use trine_transport::buf::MsgBuf;

/// The verdict of an answer that denies a request.
const DENIED: u8 = 6;
const HEAD_BYTES: usize = 7;
/// No such answer is longer.
pub(crate) const DENIED_BYTES_MAX: usize = HEAD_BYTES + NAME_BYTES_MAX;

/// A request that its caller has no right to.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) struct Denied {
    user: Option<UserName>,
    why: Why,
    needed: Role,
}

#[derive(Copy, Clone, Debug, PartialEq, Eq)]
enum Why {
    /// The user is not in the list.
    Unlisted,
    /// The key that counts is one of this generation.
    OtherKey(u32),
    /// The user has this role.
    Role(Role),
}

impl Denied {
    pub(super) fn nobody(needed: Role) -> Self {
        Self {
            user: None,
            why: Why::Unlisted,
            needed,
        }
    }

    pub(super) fn unlisted(user: UserName, needed: Role) -> Self {
        Self {
            user: Some(user),
            ..Self::nobody(needed)
        }
    }

    pub(super) fn other_key(user: UserName, generation: u32, needed: Role) -> Self {
        Self {
            why: Why::OtherKey(generation),
            ..Self::unlisted(user, needed)
        }
    }

    pub(super) fn role(user: UserName, role: Role, needed: Role) -> Self {
        Self {
            why: Why::Role(role),
            ..Self::unlisted(user, needed)
        }
    }

    /// The answer to the request, if there is memory for it.
    pub(crate) fn answer<R: Route>(&self, cx: &mut Cx<'_, R>) -> Option<MsgBuf> {
        let mut answer = cx.alloc(HEAD_BYTES + self.name().len())?;
        answer.copy_from_slice(&self.encode()[..HEAD_BYTES + self.name().len()]);
        Some(answer)
    }

    fn name(&self) -> &[u8] {
        self.user.as_ref().map_or(&[], UserName::as_bytes)
    }

    fn encode(&self) -> [u8; DENIED_BYTES_MAX] {
        let (role, generation) = match self.why {
            Why::Unlisted => (0, 0),
            Why::OtherKey(generation) => (0, generation),
            Why::Role(role) => (role.number(), 0),
        };
        let mut bytes = [0; DENIED_BYTES_MAX];
        bytes[..3].copy_from_slice(&[DENIED, role, self.needed.number()]);
        bytes[3..HEAD_BYTES].copy_from_slice(&generation.to_le_bytes());
        bytes[HEAD_BYTES..][..self.name().len()].copy_from_slice(self.name());
        bytes
    }

    /// Reads an answer; `None` if it denies nothing.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let (&[DENIED, role, needed], rest) = bytes.split_first_chunk::<3>()? else {
            return None;
        };
        let (generation, name) = rest.split_first_chunk()?;
        let why = match (role, u32::from_le_bytes(*generation)) {
            (0, 0) => Why::Unlisted,
            (0, generation) => Why::OtherKey(generation),
            (role, _) => Why::Role(Role::from_number(role)?),
        };
        let user = match name {
            [] => None,
            name => Some(UserName::new(name).ok()?),
        };
        let needed = Role::from_number(needed)?;
        Some(Self { user, why, needed })
    }

    /// The failure of the command that was denied.
    pub(crate) fn failure(&self) -> Failure {
        let hint = "use a key with that right (--key), or change the server's --users FILE and \
             send the server SIGHUP";
        Failure::negative(format!("denied: {self}; nothing was done"), hint)
    }
}

impl fmt::Display for Denied {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { user, why, needed } = self;
        let Some(user) = user else {
            return write!(f, "the key belongs to no user, and role {needed} is needed");
        };
        match why {
            Why::Unlisted => write!(
                f,
                "user {user} is not in the server's list of users, and role {needed} is needed"
            ),
            Why::OtherKey(generation) => write!(
                f,
                "the key of user {user} is not of generation {generation}, the only one accepted \
                 here"
            ),
            Why::Role(role) => {
                write!(
                    f,
                    "user {user} has role {role}, and role {needed} is needed"
                )
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_survives_and_no_other_bytes_are_one() {
        let longest: UserName = "n".repeat(NAME_BYTES_MAX).parse().expect("a name");
        for denied in [
            Denied::nobody(Role::Read),
            Denied::unlisted(longest, Role::Write),
            Denied::other_key(longest, u32::MAX, Role::Read),
            Denied::role(longest, Role::Read, Role::Write),
        ] {
            let bytes = denied.encode();
            let bytes = &bytes[..HEAD_BYTES + denied.name().len()];
            assert_eq!(Denied::decode(bytes), Some(denied));
            for length in 0..HEAD_BYTES {
                assert_eq!(Denied::decode(&bytes[..length]), None, "{length} bytes");
            }
            assert_eq!(Denied::decode(&[bytes, b"N"].concat()), None);
        }
        for other in [
            &b"TRCH\x01\0\0\0\0\x01\0\0\0"[..],
            b"{\"shard\":0}",
            b"",
            &[0; 9],
        ] {
            assert_eq!(Denied::decode(other), None);
        }
        assert_eq!(Denied::decode(&[DENIED, 9, 1, 0, 0, 0, 0, b'a']), None);
        assert_eq!(Denied::decode(&[DENIED, 0, 0, 0, 0, 0, 0, b'a']), None);
    }
}
