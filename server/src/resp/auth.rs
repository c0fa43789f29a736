//! Who is a Redis client? Its key is compared with the group's key file here, and a password in `checker.rs`. Whether the
//! user still exists is asked of the group, once for each AUTH. From there on the replica that does a command checks the user's rights.

use trine_keys::{KeyRing, Role, UserKey, UserName};
use trine_kvstore::Response;
use trine_resp::{Failure, Identity, NotKnown, OnBehalf};

/// A user whose key or password was shown, before the group was asked.
#[derive(Debug)]
pub(super) struct Claim {
    name: UserName,
    /// Of the key; none with a password, which belongs to all keys of the user.
    generation: Option<u32>,
}

impl Claim {
    /// The claim of a client that shows this key, if the key is one of this group's. It costs two hashes, also for
    /// someone who guesses.
    pub(super) fn of(ring: &KeyRing, user: &[u8], secret: &[u8]) -> Option<Self> {
        let name = UserName::new(user).ok()?;
        let key = UserKey::parse(std::str::from_utf8(secret).ok()?).ok()?;
        let generation = Some(key.generation());
        (key.name() == name && ring.holds(&key)).then_some(Self { name, generation })
    }

    /// The claim of a client whose password is that of this user.
    pub(super) fn with_password(name: UserName) -> Self {
        let generation = None;
        Self { name, generation }
    }

    /// Compares it with the group's users.
    pub(super) fn check(&self, users: Result<Response<'_>, Failure>) -> Result<Identity, NotKnown> {
        let unavailable = |why: &str| NotKnown::Unavailable(Failure::NotApplied(why.to_owned()));
        let users = match users {
            Ok(Response::Users(users)) => users,
            Ok(Response::Denied { reason }) => return Err(unavailable(reason)),
            Ok(_) => return Err(unavailable("the group does not tell its users")),
            Err(failure) => return Err(NotKnown::Unavailable(failure)),
        };
        let is_it = |user: &trine_kvstore::User<'_>| {
            let is_current = |generation| user.generation == generation;
            user.name == self.name && self.generation.is_none_or(is_current)
        };
        let user = users.iter().find(is_it).ok_or(NotKnown::Wrong)?;
        Ok(Identity {
            name: user.name.to_string(),
            on_behalf: OnBehalf {
                number: user.number,
                generation: user.generation,
            },
            administers: user.role >= Role::Admin,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use trine_keys::{ClusterKey, GroupId};
    use trine_kvstore::{Command, Limits, Position, Rights, Store};

    fn cluster(root: u8) -> ClusterKey {
        ClusterKey::new(GroupId([root; 8]), [root; 32], [root; 32])
    }

    #[test]
    fn only_the_present_key_of_this_group_and_name_is_taken() {
        let alice = "alice".parse().expect("a name");
        let ring = KeyRing::new([cluster(1)]);
        let text = |root, generation| cluster(root).user_key(alice, generation).to_text();
        let claim = |user: &[u8], secret: &str| Claim::of(&ring, user, secret.as_bytes());
        assert!(claim(b"bob", &text(1, 1)).is_none());
        assert!(claim(b"alice", &text(2, 1)).is_none());
        assert!(claim(b"alice", "a password").is_none());
        assert!(claim(b"Alice", &text(1, 1)).is_none());
        let none = KeyRing::default();
        assert!(Claim::of(&none, b"alice", text(1, 1).as_bytes()).is_none());
        let first = claim(b"alice", &text(1, 1)).expect("a key of this group");
        let second = claim(b"alice", &text(1, 2)).expect("a key of this group");

        let mut store = Store::new(Limits::default(), [1, 2]);
        assert_eq!(
            first.check(Ok(store.read(&Command::ListUsers))),
            Err(NotKnown::Wrong)
        );
        let add = Command::AddUser {
            issuer: cluster(1).issuer(),
            name: alice,
            rights: Rights {
                role: Role::Write,
                front: false,
                prefix: b"a/",
            },
        };
        store.apply(Position::new(1, 0), &add);
        let users = Ok(store.read(&Command::ListUsers));
        let identity = first.check(users).expect("the present key");
        assert_eq!(
            (identity.name.as_str(), identity.administers),
            ("alice", false)
        );
        let users = Ok(store.read(&Command::ListUsers));
        assert_eq!(second.check(users), Err(NotKnown::Wrong));

        let by_password = |name: &str| Claim::with_password(name.parse().expect("a name"));
        let users = Ok(store.read(&Command::ListUsers));
        let known = by_password("alice").check(users).expect("there is alice");
        assert_eq!(
            (known.name.as_str(), known.on_behalf.generation),
            ("alice", 1)
        );
        let users = Ok(store.read(&Command::ListUsers));
        assert_eq!(by_password("bob").check(users), Err(NotKnown::Wrong));
    }
}
