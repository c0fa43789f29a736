//! Rights of callers: the key of a session says who the caller is, and a list says what users may do.

mod denied;
mod list;

use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};

use serde_json::json;
use trine_base::announce::Announcer;
use trine_base::failure::Failure;
use trine_base::interrupt;
use trine_base::network::Network;
use trine_base::units::plural;
use trine_keys::{Credential, Role};
use trine_transport::backend::Route;
use trine_transport::{Cx, SessionId};

pub(crate) use self::denied::{DENIED_BYTES_MAX, Denied};
use self::list::Users;

/// What callers may do. Without keys that is everything.
#[derive(Clone, Default)]
pub(crate) struct Rights {
    /// The list in force, which all threads share. It is looked at for users alone.
    users: Arc<RwLock<Users>>,
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
                "--users needs the key file from which users' keys are derived, and none is given",
                "give it with --key PATH; `trine key new` creates one",
            ));
        }
        let users = Arc::new(RwLock::new(Users::read(path)?));
        Ok(Self { users })
    }

    /// From now on SIGHUP makes this process read the list at `path` again. It counts from the next request on. A list that
    /// cannot be used leaves the one before in force.
    ///
    /// # Errors
    /// The system does not let this process watch for the signal.
    pub(crate) fn read_at_hangups(
        &self,
        path: Option<PathBuf>,
        announcer: Announcer,
    ) -> Result<(), Failure> {
        let Some(path) = path else { return Ok(()) };
        let rights = self.clone();
        interrupt::at_hangups("users-reload", move || match rights.read_again(&path) {
            Ok(count) => {
                announcer.json_line(&json!({ "users": count }));
                announcer.line(format_args!("users reloaded: {}", plural(count, "user")));
            }
            Err(failure) => {
                let why = failure.in_one_line();
                announcer.json_line(&json!({ "users_not_taken": why }));
                announcer.line(format_args!("the list of users was not changed: {why}"));
            }
        })
    }

    /// Takes what the list says now, and returns how many users it has.
    fn read_again(&self, path: &Path) -> Result<u64, Failure> {
        let found = Users::read(path)?;
        let count = found.count();
        *self.users.write().unwrap_or_else(PoisonError::into_inner) = found;
        Ok(count)
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
                let users = self.users.read().unwrap_or_else(PoisonError::into_inner);
                users.check(name, generation, needed)
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
            users: Arc::new(RwLock::new(users)),
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
                "the key of user bob is not of generation 2, the only one accepted here",
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

    #[test]
    fn a_list_is_read_again_and_a_bad_one_changes_nothing() {
        let path = std::env::temp_dir().join(format!("trine-users-{}", std::process::id()));
        let rights = Rights::default();
        let file = ClusterKey::new(GroupId([1; 8]), [2; 32], [3; 32]);
        let alice = "alice".parse().expect("a name");
        let key = Presented::user(&file.user_key(alice, 1)).key_id().encode();
        // Another thread has the same list.
        let thread = rights.clone();
        let after = |text: &str| {
            std::fs::write(&path, text).expect("written");
            let read = rights.read_again(&path);
            (read, thread.check_key(&key, Role::Write).is_ok())
        };
        assert!(matches!(after("alice write\nbob read\n"), (Ok(2), true)));
        let (read, may) = after("alice write\nbob\n");
        let said = read.expect_err("bob has no role").in_one_line();
        assert!(said.contains("line 2") && may, "{said}");
        assert!(matches!(after("bob read\n"), (Ok(1), false)));
        assert!(matches!(after("alice write\n"), (Ok(1), true)));
        std::fs::remove_file(&path).expect("removed");
        assert!(rights.read_again(&path).is_err());
        assert!(rights.check_key(&key, Role::Write).is_ok());
    }
}
