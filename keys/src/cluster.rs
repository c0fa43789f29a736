//! The cluster key file: the roots of a group's keys, as text.
//!
//! ```text
//! # Cluster key of a trine group ...
//! trine-cluster-key = 1
//! group = 16 digits
//! member-root = 64 digits
//! next-member-root = 64 digits           only between the first and the second step of a change of the member root
//! last-member-root = 64 digits           only between the second and the third step
//! user-root = 64 digits
//! check = 16 digits                      of all lines before it that are no comment
//! ```

mod rotation;

pub use self::rotation::{NotNext, OutOfOrder, Rotation};

use std::fmt::Write as _;

use zeroize::Zeroizing;

use crate::config::{CLUSTER_KEY_RANDOM_BYTES, GROUP_ID_BYTES, KEY_BYTES};
use crate::derive::{Purpose, check, derive};
use crate::fingerprint::{Fingerprint, GroupId, Issuer};
use crate::hex;
use crate::key_id::KeyId;
use crate::name::UserName;
use crate::secret::{Psk, Secret};
use crate::user::UserKey;

const COMMENT: &str = "\
# Cluster key of a trine group. Its holder is an administrator of the group and can make every user's key.
# Keep it secret (chmod 600). Each replica and each administrator needs a copy; users get keys of `trine user add`.
";
const VERSION: &str = "trine-cluster-key";
const GROUP: &str = "group";
const MEMBER: &str = "member-root";
const NEXT: &str = "next-member-root";
const LAST: &str = "last-member-root";
const USER: &str = "user-root";
const CHECK: &str = "check";
const CHECK_BYTES: usize = 8;

/// The roots of a group's keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClusterKey {
    group: GroupId,
    member: Secret,
    second: Second,
    user: Secret,
}

/// Another root that members may come with.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
enum Second {
    #[default]
    None,
    /// The one that will be used.
    Next(Secret),
    /// The one that was used.
    Last(Secret),
}

impl Second {
    fn root(&self) -> Option<&Secret> {
        match self {
            Self::None => None,
            Self::Next(root) | Self::Last(root) => Some(root),
        }
    }
}

/// Why a text is no cluster key file. No variant shows a part of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ClusterKeyError {
    /// No line but comments.
    #[error("no key is in the file; was it cut off? `trine key new FILE` makes a new one")]
    Empty,
    /// A user's key.
    #[error("line {line}: this is a user's key, and a cluster key file is needed")]
    UserKey {
        /// From 1.
        line: usize,
    },
    /// A line without a name.
    #[error(
        "line {line} is not `name = value`: was the file cut off, or is it none of `trine key new`?"
    )]
    NotALine {
        /// From 1.
        line: usize,
    },
    /// A name that such files do not have.
    #[error("line {line} has an unknown name: is it a cluster key file of `trine key new`?")]
    UnknownName {
        /// From 1.
        line: usize,
    },
    /// The version does not come first.
    #[error(
        "line {line}: the first line is `{VERSION} = 1` in a cluster key file of `trine key new`"
    )]
    NoVersion {
        /// From 1.
        line: usize,
    },
    /// Made by a later release.
    #[error("line {line}: this release reads version 1 of cluster key files: use a later release")]
    UnknownVersion {
        /// From 1.
        line: usize,
    },
    /// A name for the second time.
    #[error(
        "line {line}: `{name}` occurs twice: keep one of the lines, the other belongs to another \
         file"
    )]
    Twice {
        /// From 1.
        line: usize,
        /// The name.
        name: &'static str,
    },
    /// Roots of two steps of a change.
    #[error(
        "line {line}: `{NEXT}` and `{LAST}` exclude each other: lines of two files were mixed, copy the file again"
    )]
    TwoSteps {
        /// From 1.
        line: usize,
    },
    /// Not as many digits as the value has.
    #[error(
        "line {line}: `{name}` has {digits} digits 0-9 a-f; was the file cut off or changed? Copy it again"
    )]
    BadValue {
        /// From 1.
        line: usize,
        /// The name.
        name: &'static str,
        /// What it should have.
        digits: usize,
    },
    /// The text ends early.
    #[error("line {line}: the file ends and `{name}` is missing: it was cut off, copy it again")]
    Missing {
        /// The line behind the last, from 1.
        line: usize,
        /// The first name that is missing.
        name: &'static str,
    },
    /// Something behind the end.
    #[error("line {line} follows `check`, which ends the file: remove what was appended")]
    AfterCheck {
        /// From 1.
        line: usize,
    },
    /// A digit was changed.
    #[error(
        "line {line}: `check` does not match the lines before it: a character was changed, copy the file again"
    )]
    WrongCheck {
        /// From 1.
        line: usize,
    },
}

impl ClusterKey {
    /// The key of these roots.
    #[must_use]
    pub fn new(group: GroupId, member_root: [u8; KEY_BYTES], user_root: [u8; KEY_BYTES]) -> Self {
        Self {
            group,
            member: Secret::new(member_root),
            second: Second::None,
            user: Secret::new(user_root),
        }
    }

    /// A new key, of random bytes that nobody else knows.
    #[must_use]
    pub fn from_random(random: &[u8; CLUSTER_KEY_RANDOM_BYTES]) -> Self {
        let (group, roots) = random.split_first_chunk().expect("a group id is shorter");
        let (member, user) = roots.split_first_chunk().expect("two roots");
        let user = user.first_chunk().expect("a second root");
        Self::new(GroupId(*group), *member, *user)
    }

    /// What its keys are bound to.
    #[must_use]
    pub fn group(&self) -> GroupId {
        self.group
    }

    /// Whose user keys it makes.
    #[must_use]
    pub fn issuer(&self) -> Issuer {
        Issuer {
            group: self.group,
            root: Fingerprint::of(self.group, &self.user),
        }
    }

    /// Key id and key of a member that comes with the root in use.
    #[must_use]
    pub fn member(&self) -> (KeyId, Psk) {
        self.member_of(&self.member)
    }

    /// The same of the second root, while the member root is changed.
    #[must_use]
    pub fn accepted_member(&self) -> Option<(KeyId, Psk)> {
        self.second.root().map(|root| self.member_of(root))
    }

    fn member_of(&self, root: &Secret) -> (KeyId, Psk) {
        let id = KeyId::Member {
            root: Fingerprint::of(self.group, root),
        };
        let key = derive(&self.group.0, root.bytes(), Purpose::Member, [&[], &[]]);
        (id, Psk::new(key))
    }

    /// Key id and key of an administrator who has this file. They come from the user root, which a change of the member
    /// root leaves alone.
    #[must_use]
    pub fn admin(&self) -> (KeyId, Psk) {
        let id = KeyId::Admin {
            root: self.issuer().root,
        };
        let key = derive(&self.group.0, self.user.bytes(), Purpose::Admin, [&[], &[]]);
        (id, Psk::new(key))
    }

    /// The key of a user.
    #[must_use]
    pub fn user_key(&self, name: UserName, generation: u32) -> UserKey {
        let context = [&generation.to_le_bytes()[..], name.as_bytes()];
        let key = derive(&self.group.0, self.user.bytes(), Purpose::User, context);
        UserKey::new(name, generation, self.issuer().root, Secret::new(key))
    }

    /// The file's text.
    #[must_use]
    pub fn to_text(&self) -> Zeroizing<String> {
        let mut text = Zeroizing::new(String::with_capacity(1_024));
        text.push_str(COMMENT);
        let lines = self.lines();
        text.push_str(&lines);
        write!(text, "{CHECK} = ").expect("a String takes everything");
        hex::write(&check::<CHECK_BYTES>(lines.as_bytes()), &mut text);
        text.push('\n');
        let read = Self::parse(&text);
        assert!(
            read.is_ok_and(|read| read == *self),
            "whoever reads the file has this key"
        );
        text
    }

    /// The lines that the check is of.
    fn lines(&self) -> Zeroizing<String> {
        let mut lines = Zeroizing::new(String::with_capacity(512));
        lines.push_str(VERSION);
        lines.push_str(" = 1\n");
        let second = match &self.second {
            Second::None => None,
            Second::Next(root) => Some((NEXT, &root.bytes()[..])),
            Second::Last(root) => Some((LAST, &root.bytes()[..])),
        };
        let values = [
            Some((GROUP, &self.group.0[..])),
            Some((MEMBER, &self.member.bytes()[..])),
            second,
            Some((USER, &self.user.bytes()[..])),
        ];
        for (name, bytes) in values.into_iter().flatten() {
            lines.push_str(name);
            lines.push_str(" = ");
            hex::write(bytes, &mut lines);
            lines.push('\n');
        }
        lines
    }

    /// Reads a file's text. Comments, empty lines and the order of the values do not matter.
    ///
    /// # Errors
    ///
    /// Names the line and what to do.
    pub fn parse(text: &str) -> Result<Self, ClusterKeyError> {
        let mut values = Values::default();
        let mut last = 0;
        for (index, line) in text.lines().enumerate() {
            last = index + 1;
            let line = line.trim();
            if !line.is_empty() && !line.starts_with('#') {
                values.take(last, line)?;
            }
        }
        values.finish(last + 1)
    }
}

/// What the lines so far have said.
#[derive(Default)]
struct Values {
    version: Option<()>,
    group: Option<[u8; GROUP_ID_BYTES]>,
    member: Option<Secret>,
    second: Option<Second>,
    user: Option<Secret>,
    check: Option<([u8; CHECK_BYTES], usize)>,
}

impl Values {
    fn take(&mut self, line: usize, text: &str) -> Result<(), ClusterKeyError> {
        if text.starts_with("trine-key-") {
            return Err(ClusterKeyError::UserKey { line });
        }
        let (name, value) = text
            .split_once('=')
            .ok_or(ClusterKeyError::NotALine { line })?;
        let (name, value) = (name.trim(), value.trim());
        if self.version.is_none() && name != VERSION {
            return Err(ClusterKeyError::NoVersion { line });
        }
        if self.check.is_some() {
            return Err(ClusterKeyError::AfterCheck { line });
        }
        match name {
            VERSION if value == "1" => once(&mut self.version, (), line, VERSION),
            VERSION => Err(ClusterKeyError::UnknownVersion { line }),
            GROUP => once(&mut self.group, digits(value, line, GROUP)?, line, GROUP),
            MEMBER => once(&mut self.member, secret(value, line, MEMBER)?, line, MEMBER),
            NEXT => self.take_second(Second::Next(secret(value, line, NEXT)?), line, NEXT),
            LAST => self.take_second(Second::Last(secret(value, line, LAST)?), line, LAST),
            USER => once(&mut self.user, secret(value, line, USER)?, line, USER),
            CHECK => once(
                &mut self.check,
                (digits(value, line, CHECK)?, line),
                line,
                CHECK,
            ),
            _ => Err(ClusterKeyError::UnknownName { line }),
        }
    }

    fn take_second(
        &mut self,
        second: Second,
        line: usize,
        name: &'static str,
    ) -> Result<(), ClusterKeyError> {
        match (&self.second, &second) {
            (Some(Second::Next(_)), Second::Last(_)) | (Some(Second::Last(_)), Second::Next(_)) => {
                Err(ClusterKeyError::TwoSteps { line })
            }
            _ => once(&mut self.second, second, line, name),
        }
    }

    fn finish(self, line: usize) -> Result<ClusterKey, ClusterKeyError> {
        let missing = |name| ClusterKeyError::Missing { line, name };
        self.version.ok_or(ClusterKeyError::Empty)?;
        let key = ClusterKey {
            group: GroupId(self.group.ok_or(missing(GROUP))?),
            member: self.member.ok_or(missing(MEMBER))?,
            second: self.second.unwrap_or_default(),
            user: self.user.ok_or(missing(USER))?,
        };
        let (sum, line) = self.check.ok_or(missing(CHECK))?;
        if sum != check(key.lines().as_bytes()) {
            return Err(ClusterKeyError::WrongCheck { line });
        }
        Ok(key)
    }
}

fn once<T>(
    place: &mut Option<T>,
    value: T,
    line: usize,
    name: &'static str,
) -> Result<(), ClusterKeyError> {
    if place.is_some() {
        return Err(ClusterKeyError::Twice { line, name });
    }
    *place = Some(value);
    Ok(())
}

fn digits<const BYTES: usize>(
    value: &str,
    line: usize,
    name: &'static str,
) -> Result<[u8; BYTES], ClusterKeyError> {
    let mut bytes = [0; BYTES];
    let digits = 2 * BYTES;
    hex::read(value, &mut bytes).ok_or(ClusterKeyError::BadValue { line, name, digits })?;
    Ok(bytes)
}

fn secret(value: &str, line: usize, name: &'static str) -> Result<Secret, ClusterKeyError> {
    let bytes = Zeroizing::new(digits::<KEY_BYTES>(value, line, name)?);
    Ok(Secret::new(*bytes))
}

#[cfg(test)]
mod tests;
