//! A change of the member root, in three steps: their order, and whether a server may go from one file to another.
//!
//! ```text
//!               members use   and accept
//! Settled       A
//!    | begin
//! Begun         A             B              all members learn B before one of them uses it
//!    | switch
//! Switched      B             A
//!    | finish                                all members use B before one of them forgets A
//! Settled       B
//! ```

use std::fmt;

use super::{ClusterKey, Second};
use crate::config::KEY_BYTES;
use crate::fingerprint::{Fingerprint, GroupId};
use crate::secret::Secret;

/// Where a cluster key file stands in a change of the member root.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rotation {
    /// No change is under way.
    Settled,
    /// The next root is accepted, and the old one used.
    Begun,
    /// The new root is used, and the old one still accepted.
    Switched,
}

/// A step that does not follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}", match at {
    Rotation::Settled => "no change of the member root is under way: `trine key rotate --begin` comes first",
    Rotation::Begun => "the change of the member root has begun: `trine key rotate --switch` comes next",
    Rotation::Switched => "the new member root is in use: `trine key rotate --finish` comes next",
})]
pub struct OutOfOrder {
    /// Where the file stands.
    pub at: Rotation,
}

/// Why a server keeps the key that it has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotNext {
    /// The file of another group.
    #[error(
        "it is the key of group {found}, and this replica has that of group {own}: copy this group's file again"
    )]
    OtherGroup {
        /// The group of the new file.
        found: GroupId,
        /// The group of the key in force.
        own: GroupId,
    },
    /// Another user root: all keys of users would end.
    #[error(
        "its user root is {found} and not {own}, so all keys of users and administrators would end: copy this group's \
         file again; if it is meant, start the replicas again with it"
    )]
    OtherUserRoot {
        /// The user root of the new file.
        found: Fingerprint,
        /// That of the key in force.
        own: Fingerprint,
    },
    /// Members that are a step behind could not connect any more.
    #[error(
        "it is more than one step of a change of the member root away: this replica uses {own}, and the file uses \
         {found}; give all members the file of the step between, or start this replica again, which takes any file"
    )]
    Skipped {
        /// The member root that the new file uses.
        found: Fingerprint,
        /// The one in use.
        own: Fingerprint,
    },
}

impl ClusterKey {
    /// Where it stands in a change of the member root.
    #[must_use]
    pub fn rotation(&self) -> Rotation {
        match self.second {
            Second::None => Rotation::Settled,
            Second::Next(_) => Rotation::Begun,
            Second::Last(_) => Rotation::Switched,
        }
    }

    /// The first step: the new root is accepted beside the old one.
    ///
    /// # Errors
    ///
    /// A change is under way already.
    pub fn accepting(self, new_member_root: [u8; KEY_BYTES]) -> Result<Self, OutOfOrder> {
        let at = self.rotation();
        if at != Rotation::Settled {
            return Err(OutOfOrder { at });
        }
        let second = Second::Next(Secret::new(new_member_root));
        Ok(self.then(self.member.clone(), second))
    }

    /// The second step: the new root is used, and the old one still accepted.
    ///
    /// # Errors
    ///
    /// The first step was not taken, or this one was.
    pub fn switched(self) -> Result<Self, OutOfOrder> {
        let at = self.rotation();
        let Second::Next(new) = &self.second else {
            return Err(OutOfOrder { at });
        };
        let last = Second::Last(self.member.clone());
        Ok(self.then(new.clone(), last))
    }

    /// The last step: only the root in use is left.
    ///
    /// # Errors
    ///
    /// The second step was not taken.
    pub fn settled(self) -> Result<Self, OutOfOrder> {
        let at = self.rotation();
        let Second::Last(_) = self.second else {
            return Err(OutOfOrder { at });
        };
        Ok(self.then(self.member.clone(), Second::None))
    }

    /// The file of the next step. Members with either of the two know each other.
    fn then(&self, member: Secret, second: Second) -> Self {
        let next = Self {
            member,
            second,
            ..self.clone()
        };
        assert_eq!(next.follows(self), Ok(()), "a step cuts no member off");
        assert_eq!(self.follows(&next), Ok(()), "nor does the way back");
        next
    }

    /// The fingerprint of the member root in use.
    #[must_use]
    pub fn member_root(&self) -> Fingerprint {
        Fingerprint::of(self.group, &self.member)
    }

    /// The fingerprint of the second member root, while that changes.
    #[must_use]
    pub fn accepted_root(&self) -> Option<Fingerprint> {
        let root = self.second.root()?;
        Some(Fingerprint::of(self.group, root))
    }

    /// Whether a server with the key `present` may go on with this one while the group serves: each of the two knows the
    /// member root that the other one uses.
    ///
    /// # Errors
    ///
    /// Why not, and what to do.
    pub fn follows(&self, present: &Self) -> Result<(), NotNext> {
        let (found, own) = (self.issuer(), present.issuer());
        if found.group != own.group {
            let (found, own) = (found.group, own.group);
            return Err(NotNext::OtherGroup { found, own });
        }
        if found.root != own.root {
            let (found, own) = (found.root, own.root);
            return Err(NotNext::OtherUserRoot { found, own });
        }
        let (found, own) = (self.member_root(), present.member_root());
        if self.takes_members_of(own) && present.takes_members_of(found) {
            return Ok(());
        }
        Err(NotNext::Skipped { found, own })
    }

    fn takes_members_of(&self, root: Fingerprint) -> bool {
        self.member_root() == root || self.accepted_root() == Some(root)
    }
}

/// `settled`, `begun`, `switched`.
impl fmt::Display for Rotation {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Settled => "settled",
            Self::Begun => "begun",
            Self::Switched => "switched",
        })
    }
}
