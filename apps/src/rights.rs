//! May the caller of a request do that? The key of its session says who it is, and a list says what users may do.

mod denied;
mod list;

use std::path::Path;
use std::sync::Arc;

use trine_base::failure::Failure;
use trine_base::network::Network;
use trine_keys::{Credential, Role};
use trine_transport::backend::Route;
use trine_transport::{Cx, SessionId};

pub(crate) use self::denied::{DENIED_BYTES_MAX, Denied};
use self::list::Users;

/// What callers may do. Without keys that is everything.
#[derive(Clone, Default)]
pub(crate) struct Rights {
    users: Arc<Users>,
}

impl Rights {
    /// Reads the list of users, if there is one.
    ///
    /// # Errors
    /// The list cannot be used, or there is no key that users' keys could come from.
    pub(crate) fn read<N: Network>(network: &N, list: Option<&Path>) -> Result<Self, Failure> {
        let Some(path) = list else {
            return Ok(Self::default());
        };
        if network.settings().server_key().is_none() {
            return Err(Failure::usage(
                "--users needs the key that the keys of users are made of, and none is given",
                "name its file with --key PATH; `trine key new` makes one",
            ));
        }
        let users = Arc::new(Users::read(path)?);
        Ok(Self { users })
    }

    /// Whether the caller has a role. The transport lets a session without a key in only where none is required.
    #[inline]
    pub(crate) fn check<R: Route>(
        &self,
        cx: &Cx<'_, R>,
        session: SessionId,
        needed: Role,
    ) -> Result<(), Denied> {
        match cx.key(session) {
            None => Ok(()),
            Some(key) => self.check_key(&key, needed),
        }
    }

    fn check_key(&self, key_id: &[u8], needed: Role) -> Result<(), Denied> {
        match Credential::parse(key_id) {
            Some(Credential::Member | Credential::Admin) => Ok(()),
            Some(Credential::User { name, generation }) => {
                self.users.check(name, generation, needed)
            }
            // The key ring finds no such key.
            None => Err(Denied::nobody(needed)),
        }
    }
}

#[cfg(test)]
mod tests {
    use trine_keys::{ClusterKey, GroupId, Presented};

    use super::*;

    #[test]
    fn holders_may_do_everything_and_users_what_the_list_says() {
        let users = Users::parse("alice write\nbob read 2\n", Path::new("users")).expect("a list");
        let listed = Rights {
            users: Arc::new(users),
        };
        let file = ClusterKey::new(GroupId([1; 8]), [2; 32], [3; 32]);
        let may = |rights: &Rights, presented: &Presented, needed| {
            let checked = rights.check_key(&presented.key_id().encode(), needed);
            checked.map_err(|denied| denied.to_string())
        };
        for holder in [Presented::member(&file), Presented::admin(&file)] {
            assert_eq!(may(&Rights::default(), &holder, Role::Write), Ok(()));
            assert_eq!(may(&listed, &holder, Role::Write), Ok(()));
        }
        let user = |name: &str, generation| {
            let name = name.parse().expect("a name");
            Presented::user(&file.user_key(name, generation))
        };
        for (name, generation, needed, denial) in [
            ("alice", 1, Role::Write, ""),
            ("alice", 1, Role::Read, ""),
            ("bob", 2, Role::Read, ""),
            (
                "bob",
                2,
                Role::Write,
                "user bob has role read, and role write is needed",
            ),
            (
                "bob",
                1,
                Role::Read,
                "the key of user bob is not the one of generation 2, which alone counts here",
            ),
            (
                "carol",
                1,
                Role::Read,
                "user carol is not in the server's list of users, and role read is needed",
            ),
        ] {
            let checked = may(&listed, &user(name, generation), needed);
            assert_eq!(checked.err().unwrap_or_default(), denial, "{name}");
        }
        assert!(may(&Rights::default(), &user("alice", 1), Role::Read).is_err());
        assert!(listed.check_key(b"?", Role::Read).is_err());
    }
}
