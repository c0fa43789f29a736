//! The client's side: which key its connections use.

use crate::cluster::{ClusterKey, ClusterKeyError};
use crate::key_id::KeyId;
use crate::secret::Psk;
use crate::user::{UserKey, UserKeyError};

/// A key that connections are made with, and how they name it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Presented {
    key_id: KeyId,
    psk: Psk,
}

/// Why a text gives no key to connect with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PresentedError {
    /// It is meant to be a cluster key file.
    #[error(transparent)]
    Cluster(#[from] ClusterKeyError),
    /// It is meant to be a user's key.
    #[error(transparent)]
    User(#[from] UserKeyError),
}

impl Presented {
    /// As a member of the group.
    #[must_use]
    pub fn member(cluster: &ClusterKey) -> Self {
        Self::from(cluster.member())
    }

    /// As an administrator who has the cluster key file.
    #[must_use]
    pub fn admin(cluster: &ClusterKey) -> Self {
        Self::from(cluster.admin())
    }

    /// As a user.
    #[must_use]
    pub fn user(key: &UserKey) -> Self {
        Self::from((key.key_id(), key.psk()))
    }

    /// What a text gives: an administrator's key if it is a cluster key file, and a user's otherwise.
    ///
    /// # Errors
    ///
    /// If it is neither; names what is wrong with it.
    pub fn parse(text: &str) -> Result<Self, PresentedError> {
        let is_line = |line: &&str| !line.trim().is_empty() && !line.trim().starts_with('#');
        let first = text.lines().find(is_line).unwrap_or_default();
        if first.trim().starts_with("trine-cluster-key") {
            return Ok(Self::admin(&ClusterKey::parse(text)?));
        }
        Ok(Self::user(&UserKey::parse(text)?))
    }

    /// How connections name it, in clear.
    #[must_use]
    pub fn key_id(&self) -> KeyId {
        self.key_id
    }

    /// The key of their handshakes.
    #[must_use]
    pub fn psk(&self) -> &Psk {
        &self.psk
    }
}

impl From<(KeyId, Psk)> for Presented {
    fn from((key_id, psk): (KeyId, Psk)) -> Self {
        Self { key_id, psk }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fingerprint::GroupId;

    #[test]
    fn a_text_says_itself_whose_key_it_is() {
        let cluster = ClusterKey::new(GroupId([1; 8]), [1; 32], [2; 32]);
        let user = cluster.user_key("alice".parse().expect("a name"), 1);
        assert_eq!(
            Presented::parse(&cluster.to_text()),
            Ok(Presented::admin(&cluster))
        );
        assert_eq!(
            Presented::parse(&user.to_text()),
            Ok(Presented::user(&user))
        );
        assert_eq!(
            Presented::parse(&user.to_file_text()),
            Ok(Presented::user(&user))
        );
        let error = Presented::parse("trine-cluster-key = 1\n").expect_err("cut off");
        assert_eq!(
            error.to_string(),
            "line 2: the file ends and `group` is missing: it was cut off, copy it again"
        );
        let error = Presented::parse("password").expect_err("no key");
        assert!(
            error.to_string().starts_with("it is not a user's key"),
            "{error}"
        );
    }
}
