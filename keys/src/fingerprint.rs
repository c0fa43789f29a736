//! Which group and which root: the public names of secrets.

use std::fmt;

use crate::config::{FINGERPRINT_BYTES, GROUP_ID_BYTES};
use crate::derive::{Purpose, derive};
use crate::secret::Secret;

/// What a group's keys are bound to: 8 random bytes in the cluster key file. It is no secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GroupId(pub [u8; GROUP_ID_BYTES]);

/// The public hash of a root, within its group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Fingerprint(pub [u8; FINGERPRINT_BYTES]);

/// Whose user keys: the user root of a cluster key file. A group remembers it with its users, so that a key made from
/// the file of another group is found at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Issuer {
    /// The group of the cluster key file.
    pub group: GroupId,
    /// The fingerprint of its user root.
    pub root: Fingerprint,
}

impl Fingerprint {
    pub(crate) fn of(group: GroupId, root: &Secret) -> Self {
        let hash = derive(&group.0, root.bytes(), Purpose::Fingerprint, [&[], &[]]);
        Self(
            *hash
                .first_chunk()
                .expect("a hash is longer than its fingerprint"),
        )
    }
}

fn hex(bytes: &[u8], formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
    bytes
        .iter()
        .try_for_each(|byte| write!(formatter, "{byte:02x}"))
}

impl fmt::Display for GroupId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        hex(&self.0, formatter)
    }
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        hex(&self.0, formatter)
    }
}

/// `group 1122334455667788, user root 3f2a91c0`.
impl fmt::Display for Issuer {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "group {}, user root {}", self.group, self.root)
    }
}
