//! Callers connected to this node, by what the keys of their sessions prove; counted only when a status is requested.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use trine_keys::{Credential, UserName};
use trine_protocol::node_status::{KeysStatus, SessionsByRole, UserSessions};
use trine_transport::Cx;
use trine_transport::backend::Route;
use trine_transport::keys::{KeyId, Stage};

use super::config::USERS_SHOWN_MAX;

/// The stage of this endpoint, and the sessions that others have opened.
pub(super) fn keys_status<R: Route>(cx: &Cx<'_, R>) -> KeysStatus {
    let unsealed = cx.unsealed_callers().count() as u64;
    counted(cx.key_stage(), cx.sealed_callers(), unsealed)
}

fn counted(
    stage: Option<Stage>,
    callers: impl Iterator<Item = KeyId>,
    unsealed: u64,
) -> KeysStatus {
    let mut sessions = SessionsByRole {
        none: unsealed,
        ..SessionsByRole::default()
    };
    let mut users: BTreeMap<UserName, u64> = BTreeMap::new();
    for key in callers {
        match Credential::parse(&key) {
            Some(Credential::Member) => sessions.member += 1,
            Some(Credential::Admin) => sessions.admin += 1,
            Some(Credential::User { name, .. }) => {
                sessions.user += 1;
                *users.entry(name).or_default() += 1;
            }
            // It proves nothing: the key ring finds none such.
            None => sessions.none += 1,
        }
    }
    let mut users: Vec<(UserName, u64)> = users.into_iter().collect();
    // It is stable: users with as many sessions stay in the order of their names.
    users.sort_by_key(|&(_, sessions)| Reverse(sessions));
    users.truncate(USERS_SHOWN_MAX);
    let shown = users.into_iter().map(|(name, sessions)| UserSessions {
        name: name.to_string(),
        sessions,
    });
    KeysStatus {
        stage: stage_name(stage).to_owned(),
        sessions,
        users: shown.collect(),
    }
}

fn stage_name(stage: Option<Stage>) -> &'static str {
    match stage {
        None => "none",
        Some(Stage::Accept) => "accept",
        Some(Stage::Require) => "require",
    }
}

#[cfg(test)]
mod tests {
    use trine_keys::{Fingerprint, KeyId as Named};

    use super::*;

    const ROOT: Fingerprint = Fingerprint([7; 4]);

    fn key(named: Named) -> KeyId {
        KeyId::new(&named.encode()).expect("an id")
    }

    fn user(name: &str, generation: u32) -> KeyId {
        key(Named::User {
            root: ROOT,
            name: name.parse().expect("a name"),
            generation,
        })
    }

    #[test]
    fn sessions_are_counted_by_what_their_keys_prove() {
        let member = key(Named::Member { root: ROOT });
        let admin = key(Named::Admin { root: ROOT });
        let nobody = KeyId::new(b"everybody").expect("an id");
        let callers = [
            member,
            user("bob", 1),
            admin,
            member,
            user("alice", 1),
            user("bob", 2),
            nobody,
        ];
        let status = counted(Some(Stage::Accept), callers.into_iter(), 3);
        assert_eq!(status.stage, "accept");
        let expected = SessionsByRole {
            member: 2,
            admin: 1,
            user: 3,
            none: 4,
        };
        assert_eq!(status.sessions, expected);
        let users: Vec<(&str, u64)> = status
            .users
            .iter()
            .map(|user| (user.name.as_str(), user.sessions))
            .collect();
        assert_eq!(users, [("bob", 2), ("alice", 1)]);
    }

    /// All are counted, and those with most sessions are named.
    #[test]
    fn the_list_of_users_is_bounded() {
        let many = (0..100).map(|number| user(&format!("user-{number:03}"), 1));
        let busy = (0..5).map(|_| user("zoe", 1));
        let status = counted(Some(Stage::Require), many.chain(busy), 0);
        assert_eq!(status.stage, "require");
        assert_eq!(status.sessions.user, 105);
        assert_eq!(status.users.len(), USERS_SHOWN_MAX);
        assert_eq!(
            (status.users[0].name.as_str(), status.users[0].sessions),
            ("zoe", 5)
        );
        assert_eq!(status.users[1].name, "user-000");
        assert_eq!(counted(None, [].into_iter(), 0).stage, "none");
    }
}
