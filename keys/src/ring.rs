//! The server's side: the key that a key id names.

use crate::cluster::ClusterKey;
use crate::key_id::KeyId;
use crate::secret::Psk;
use crate::user::UserKey;

/// The keys that a server takes connections with, of one or more cluster key files.
#[derive(Clone, Debug, Default)]
pub struct KeyRing {
    /// Of members and admins: a few, made once.
    fixed: Vec<(KeyId, Psk)>,
    clusters: Vec<ClusterKey>,
}

impl KeyRing {
    /// The keys of these files. The first is the one that this server's own connections use.
    #[must_use]
    pub fn new(clusters: impl IntoIterator<Item = ClusterKey>) -> Self {
        let clusters: Vec<ClusterKey> = clusters.into_iter().collect();
        let fixed = clusters.iter().flat_map(|cluster| {
            let members = [Some(cluster.member()), cluster.accepted_member()];
            members.into_iter().flatten().chain([cluster.admin()])
        });
        let fixed: Vec<(KeyId, Psk)> = fixed.collect();
        assert!(
            fixed.len() >= 2 * clusters.len(),
            "each file has a member's key and an administrator's"
        );
        Self { fixed, clusters }
    }

    /// Whether it has no key at all: the server can take no connection with a key.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.clusters.is_empty()
    }

    /// The file whose keys this server's own connections use.
    #[must_use]
    pub fn first(&self) -> Option<&ClusterKey> {
        self.clusters.first()
    }

    /// The ids of the keys of members and admins.
    pub fn key_ids(&self) -> impl Iterator<Item = KeyId> + '_ {
        self.fixed.iter().map(|(id, _)| *id)
    }

    /// The pre-shared key that these bytes of a CONNECT name. `None` if they are no key id or name an unknown root. A
    /// user's key is derived (two HKDF) without asking whether the user exists: that is for the user table to say, once
    /// the caller has proven to have the key.
    #[must_use]
    pub fn psk(&self, key_id: &[u8]) -> Option<Psk> {
        let id = KeyId::decode(key_id).ok()?;
        match id {
            KeyId::Member { .. } | KeyId::Admin { .. } => {
                let found = self.fixed.iter().find(|(known, _)| *known == id);
                found.map(|(_, psk)| psk.clone())
            }
            KeyId::User { .. } => self.user_key(id).map(|key| key.psk()),
        }
    }

    /// Whether `key` is a key that these files make: for keys that arrive as text (AUTH).
    #[must_use]
    pub fn holds(&self, key: &UserKey) -> bool {
        self.user_key(key.key_id()).is_some_and(|own| own == *key)
    }

    fn user_key(&self, id: KeyId) -> Option<UserKey> {
        let KeyId::User {
            root,
            name,
            generation,
        } = id
        else {
            return None;
        };
        let issuer = self
            .clusters
            .iter()
            .find(|cluster| cluster.issuer().root == root)?;
        let key = issuer.user_key(name, generation);
        assert_eq!(key.key_id(), id, "the key is the one that was named");
        Some(key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::credential::Credential;
    use crate::fingerprint::GroupId;
    use crate::presented::Presented;

    fn cluster(root: u8) -> ClusterKey {
        ClusterKey::new(GroupId([root; 8]), [root; 32], [root + 100; 32])
    }

    fn psk_of(ring: &KeyRing, presented: &Presented) -> Option<Psk> {
        ring.psk(&presented.key_id().encode())
    }

    #[test]
    fn what_a_client_presents_a_server_with_the_file_finds() {
        let ring = KeyRing::new([cluster(1), cluster(2)]);
        let alice = "alice".parse().expect("a name");
        for root in [1, 2] {
            let user = cluster(root).user_key(alice, 7);
            let cases = [
                (Presented::member(&cluster(root)), Credential::Member),
                (Presented::admin(&cluster(root)), Credential::Admin),
                (
                    Presented::user(&user),
                    Credential::User {
                        name: alice,
                        generation: 7,
                    },
                ),
            ];
            for (presented, credential) in cases {
                assert_eq!(psk_of(&ring, &presented).as_ref(), Some(presented.psk()));
                let proven = Credential::parse(&presented.key_id().encode());
                assert_eq!(proven, Some(credential));
            }
            assert!(ring.holds(&user));
        }
        assert_eq!(ring.first(), Some(&cluster(1)));
        assert_eq!(ring.key_ids().count(), 4);
    }

    #[test]
    fn what_belongs_to_another_group_is_not_found() {
        let ring = KeyRing::new([cluster(1)]);
        let user = cluster(2).user_key("alice".parse().expect("a name"), 1);
        for presented in [
            Presented::member(&cluster(2)),
            Presented::admin(&cluster(2)),
            Presented::user(&user),
        ] {
            assert_eq!(psk_of(&ring, &presented), None);
        }
        assert!(!ring.holds(&user));
        assert_eq!(ring.psk(b""), None);
        assert_eq!(Credential::parse(b"\x09"), None);
        assert!(KeyRing::default().is_empty() && !ring.is_empty());
    }

    #[test]
    fn while_the_member_root_changes_both_are_found() {
        let old = cluster(1);
        let both = cluster(1).accepting([50; 32]).expect("settled");
        let new = both.clone().switched().and_then(ClusterKey::settled);
        let new = new.expect("both steps");
        let ring = KeyRing::new([both]);
        for side in [&old, &new] {
            assert!(psk_of(&ring, &Presented::member(side)).is_some());
        }
        let after = KeyRing::new([new]);
        assert_eq!(psk_of(&after, &Presented::member(&old)), None);
        assert!(psk_of(&after, &Presented::admin(&old)).is_some());
    }
}
