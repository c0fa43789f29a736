//! Authentication of Redis clients. A key is compared with the group's key file here, and a password in `checker.rs`. Whether the
//! user still exists is asked of the group, once for each AUTH. From there on the replica that does a command checks the user's rights.

use trine_keys::{KeyRing, Role, UserKey, UserName};
use trine_kvstore::Response;
use trine_resp::{Failure, Identity, NotKnown, OnBehalf};

use super::passwords::{Generation, Password, Verifier};

/// A user whose key or password was shown, before the group was asked.
#[derive(Clone, Debug)]
pub(super) struct Claim {
    name: UserName,
    /// Of the key; none with a password that belongs to all keys of the user.
    generation: Option<u32>,
    /// What the password was compared with, if it was one.
    verifier: Option<Verifier>,
}

impl Claim {
    /// The claim of a client that shows this key, if the key is one of this group's. It costs two hashes, also for
    /// someone who guesses.
    pub(super) fn of(ring: &KeyRing, user: &[u8], secret: &[u8]) -> Option<Self> {
        let name = UserName::new(user).ok()?;
        let key = UserKey::parse(std::str::from_utf8(secret).ok()?).ok()?;
        let claim = Self {
            name,
            generation: Some(key.generation()),
            verifier: None,
        };
        (key.name() == name && ring.holds(&key)).then_some(claim)
    }

    /// The claim of a client whose password is that of this user.
    pub(super) fn with_password(name: UserName, password: &Password) -> Self {
        Self {
            name,
            generation: match password.generation {
                Generation::Only(generation) => Some(generation),
                Generation::Any => None,
            },
            verifier: Some(password.verifier.clone()),
        }
    }

    /// The user and what the password was compared with, if it was one.
    pub(super) fn password(&self) -> Option<(UserName, &Verifier)> {
        Some((self.name, self.verifier.as_ref()?))
    }

    /// The operator is told this if the password was right, and its key does not count any more.
    pub(super) fn void_password(&self, users: &Result<Response<'_>, Failure>) -> Option<String> {
        let (Ok(Response::Users(users)), Some(_)) = (users, &self.verifier) else {
            return None;
        };
        let user = users.iter().find(|user| user.name == self.name)?;
        let stands_for = self.generation.filter(|of| *of != user.generation)?;
        let (name, present) = (self.name, user.generation);
        Some(format!(
            "the password of user {name} is of generation {stands_for}, but generation {present} \
             is valid: `trine user password {name}` makes a line for it"
        ))
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
            prefix: user.prefix.to_vec(),
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

    fn add(name: UserName) -> Command<'static> {
        Command::AddUser {
            issuer: cluster(1).issuer(),
            name,
            rights: Rights {
                role: Role::Write,
                front: false,
                prefix: b"a/",
            },
        }
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
        store.apply(Position::new(1, 0), &add(alice));
        let users = Ok(store.read(&Command::ListUsers));
        let identity = first.check(users).expect("the present key");
        assert_eq!(
            (
                identity.name.as_str(),
                identity.prefix.as_slice(),
                identity.administers
            ),
            ("alice", b"a/".as_slice(), false)
        );
        let users = Ok(store.read(&Command::ListUsers));
        assert_eq!(second.check(users), Err(NotKnown::Wrong));
    }

    #[test]
    fn a_password_goes_with_the_key_that_it_stands_in_for() {
        let alice: UserName = "alice".parse().expect("a name");
        let mut store = Store::new(Limits::default(), [1, 2]);
        store.apply(Position::new(1, 0), &add(alice));
        let verifier = Verifier::of("correct horse battery", &[1; 16]).expect("a good one");
        let by = |name: &str, generation| {
            let verifier = verifier.clone();
            let password = Password {
                generation,
                verifier,
            };
            Claim::with_password(name.parse().expect("a name"), &password)
        };
        let by_password = |name: &str| by(name, Generation::Only(1));
        let users = Ok(store.read(&Command::ListUsers));
        let known = by_password("alice").check(users).expect("there is alice");
        assert_eq!(
            (known.name.as_str(), known.on_behalf.generation),
            ("alice", 1)
        );
        let users = Ok(store.read(&Command::ListUsers));
        assert_eq!(by_password("bob").check(users), Err(NotKnown::Wrong));

        // The password goes with the key that it stands in for.
        let rotate = Command::RotateUser {
            issuer: cluster(1).issuer(),
            name: alice,
        };
        store.apply(Position::new(2, 0), &rotate);
        for (generation, known) in [
            (Generation::Only(1), None),
            (Generation::Only(2), Some(2)),
            (Generation::Any, Some(2)),
        ] {
            let claim = by("alice", generation);
            let users = Ok(store.read(&Command::ListUsers));
            let told = claim.void_password(&users);
            assert_eq!(told.is_some(), known.is_none(), "{told:?}");
            assert!(told.is_none_or(|told| told.contains("generation 2 is valid")));
            let checked = claim.check(users).map(|known| known.on_behalf.generation);
            assert_eq!(checked.ok(), known);
        }
    }
}
