//! As whom a client acts: as nobody yet, as the default user, or as a user of the group.
//!
//! Invariant: a client becomes known by the right secret alone, or because none is asked for. Each call names the user's
//! number, and the replica that does the call checks the rights; so nothing here goes stale when a user is removed.

use trine_commands::acl::DEFAULT;
use trine_commands::answer::failure_text;
use trine_commands::table::{Spec, Verb};

use super::Failure;

/// Wrong passwords and keys of one connection, after which it is ended.
const AUTH_FAILURES_MAX: u64 = 16;

/// A user of the group.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Identity {
    /// The name.
    pub name: String,
    /// How the group finds the user.
    pub on_behalf: OnBehalf,
    /// What the user's keys begin with.
    pub prefix: Vec<u8>,
    /// Whether the user may see what other clients do.
    pub administers: bool,
}

/// How a call names the user whose rights it has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OnBehalf {
    /// The user's number in the group.
    pub number: u32,
    /// The generation of the user's key when the client said who it is.
    pub generation: u32,
}

/// Why a client is not the user that it names.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum NotKnown {
    /// There is no such user, or this is not its key or password.
    Wrong,
    /// Too many ask at the moment. Nothing was compared.
    Busy,
    /// The group could not be asked.
    Unavailable(Failure),
}

impl NotKnown {
    /// The error for the client.
    pub(super) fn text(&self) -> String {
        match self {
            Self::Wrong => {
                "WRONGPASS invalid username-password pair or user is disabled.".to_owned()
            }
            Self::Busy => "ERR too many passwords are being checked, try again".to_owned(),
            Self::Unavailable(why) => failure_text(why, true),
        }
    }
}

/// As whom a client acts, and how often it has tried in vain to be somebody else.
#[derive(Debug)]
pub(super) struct Standing {
    user: ActsAs,
    /// Wrong passwords and keys so far.
    failures: u64,
}

/// As whom a client acts.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum ActsAs {
    Nobody,
    Default,
    User(Box<Identity>),
}

impl ActsAs {
    fn at_first(requires_auth: bool) -> Self {
        match requires_auth {
            true => Self::Nobody,
            false => Self::Default,
        }
    }
}

impl Standing {
    /// A new client. `requires_auth`: it has to give a password or a key first.
    pub(super) fn new(requires_auth: bool) -> Self {
        Self {
            user: ActsAs::at_first(requires_auth),
            failures: 0,
        }
    }

    /// Whether the client may do more than say who it is.
    pub(super) fn is_known(&self) -> bool {
        self.user != ActsAs::Nobody
    }

    /// The user of the group as whom the client acts, if it does.
    pub(super) fn identity(&self) -> Option<&Identity> {
        match &self.user {
            ActsAs::User(identity) => Some(identity),
            ActsAs::Nobody | ActsAs::Default => None,
        }
    }

    /// Whose rights the client's commands have, if not those of this server.
    pub(super) fn on_behalf(&self) -> Option<OnBehalf> {
        self.identity().map(|identity| identity.on_behalf)
    }

    /// What all keys begin with that the client may know of.
    pub(super) fn key_prefix(&self) -> &[u8] {
        self.identity().map_or(&[], |identity| &identity.prefix)
    }

    /// The name of the user as whom the client acts.
    pub(super) fn name(&self) -> &str {
        self.identity().map_or(DEFAULT, |identity| &identity.name)
    }

    /// Wrong passwords and keys so far.
    pub(super) fn failures(&self) -> u64 {
        self.failures
    }

    /// The client has given the password of the default user, or needs none.
    pub(super) fn become_default(&mut self) {
        self.user = ActsAs::Default;
    }

    /// The group knows the client as this user.
    pub(super) fn become_user(&mut self, identity: Identity) {
        self.user = ActsAs::User(Box::new(identity));
    }

    /// The secret was wrong. True if that was once too often.
    pub(super) fn on_wrong_secret(&mut self) -> bool {
        self.failures += 1;
        self.failures >= AUTH_FAILURES_MAX
    }

    /// The client is as new. Its wrong secrets still count.
    pub(super) fn forget(&mut self, requires_auth: bool) {
        self.user = ActsAs::at_first(requires_auth);
    }

    /// As whom the client acts, for [`Standing::restore`].
    pub(super) fn acts_as(&self) -> ActsAs {
        self.user.clone()
    }

    /// The client acts again as it did.
    pub(super) fn restore(&mut self, user: ActsAs) {
        self.user = user;
    }

    /// What a user lacks for a command that shows what others do, if anything.
    pub(super) fn lacks_for(&self, spec: &Spec, parts: &[&[u8]]) -> Option<String> {
        let identity = self.identity()?;
        let shows_others = match spec.verb() {
            Some(Verb::Config | Verb::PubSub) => true,
            Some(Verb::Client) => parts.get(1)?.eq_ignore_ascii_case(b"list"),
            _ => false,
        };
        let name = &identity.name;
        (shows_others && !identity.administers).then(|| {
            format!(
                "NOPERM user {name} may not run '{}': role admin is needed",
                spec.name()
            )
        })
    }
}

/// Compares in a time that does not depend on the position of the difference.
#[must_use]
pub fn is_same_secret(expected: &[u8], given: &[u8]) -> bool {
    let difference = expected
        .iter()
        .zip(given.iter().chain(std::iter::repeat(&0)))
        .fold(0, |sum, (left, right)| sum | (left ^ right));
    difference == 0 && expected.len() == given.len()
}
