//! As whom does a client act? As nobody yet, as the default user, or as a user of the group.
//!
//! AUTH and HELLO name a user. The default user's password is compared here. A user of the group is found out outside,
//! and the connection waits for that as for an answer of the store. From there on each call names the user's number, and
//! the replica that does the call checks the rights. So nothing here goes stale when a user is removed.

use super::answer::{NO_ANSWER, failure_text};
use super::life::Cause;
use super::{Connection, Environment, Failure, Submit, Waiting};
use crate::errors::SYNTAX;
use crate::table::{Spec, Verb};
use trine_kvstore::integer;

/// The user of clients that have named no other.
pub(super) const DEFAULT: &str = "default";
/// Wrong passwords and keys of one connection, after which it is ended.
const AUTH_FAILURES_MAX: u64 = 16;

const NOAUTH_HELLO: &str = "NOAUTH HELLO must be called with the client already authenticated, otherwise the HELLO \
    <proto> AUTH <user> <pass> option can be used to authenticate the client and select the RESP protocol version at \
    the same time";
const WRONGPASS: &str = "WRONGPASS invalid username-password pair or user is disabled.";
const NO_PASSWORD: &str = "ERR AUTH <password> called without any password configured for the default user. Are you \
    sure your configuration is correct?";

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

/// As whom a client acts.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Standing {
    Stranger,
    Default,
    User(Box<Identity>),
}

impl Standing {
    /// What all keys begin with that the client may know of.
    pub(super) fn key_prefix(&self) -> &[u8] {
        match self {
            Self::User(identity) => &identity.prefix,
            Self::Stranger | Self::Default => &[],
        }
    }
}

/// What follows once the client is known.
#[derive(Debug)]
pub(super) enum Then {
    /// OK.
    Ok,
    /// The reply of HELLO.
    Welcome { resp3: bool, name: Option<Vec<u8>> },
}

/// The words of HELLO.
#[derive(Default)]
struct Hello<'a> {
    resp3: Option<bool>,
    auth: Option<(&'a [u8], &'a [u8])>,
    name: Option<&'a [u8]>,
}

impl<'a> Hello<'a> {
    fn parse(words: &[&'a [u8]]) -> Result<Self, String> {
        let mut hello = Self::default();
        let mut words = words;
        if let [version, rest @ ..] = words {
            hello.resp3 = match integer(version) {
                Some(2) => Some(false),
                Some(3) => Some(true),
                Some(_) => return Err("NOPROTO unsupported protocol version".to_owned()),
                None => {
                    return Err("ERR Protocol version is not an integer or out of range".to_owned());
                }
            };
            words = rest;
        }
        while let [option, rest @ ..] = words {
            words = match rest {
                [user, secret, rest @ ..] if option.eq_ignore_ascii_case(b"auth") => {
                    hello.auth = Some((*user, *secret));
                    rest
                }
                [asked, rest @ ..] if option.eq_ignore_ascii_case(b"setname") => {
                    hello.name = Some(*asked);
                    rest
                }
                _ => {
                    let option = String::from_utf8_lossy(option);
                    return Err(format!("ERR Syntax error in HELLO option '{option}'"));
                }
            };
        }
        Ok(hello)
    }
}

impl Connection {
    /// Whether the client may do more than say who it is.
    pub(super) fn is_known(&self) -> bool {
        self.standing != Standing::Stranger
    }

    /// Whose rights the client's commands have, if not those of this server.
    pub(super) fn on_behalf(&self) -> Option<OnBehalf> {
        match &self.standing {
            Standing::User(identity) => Some(identity.on_behalf),
            Standing::Stranger | Standing::Default => None,
        }
    }

    /// What all keys begin with that the client may know of.
    pub(super) fn key_prefix(&self) -> &[u8] {
        self.standing.key_prefix()
    }

    /// The name of the user as whom the client acts.
    #[must_use]
    pub fn user(&self) -> &str {
        match &self.standing {
            Standing::User(identity) => &identity.name,
            Standing::Stranger | Standing::Default => DEFAULT,
        }
    }

    /// The user of the group as whom the client acts, if it does.
    #[must_use]
    pub fn identity(&self) -> Option<&Identity> {
        match &self.standing {
            Standing::User(identity) => Some(identity),
            Standing::Stranger | Standing::Default => None,
        }
    }

    /// Wrong passwords and keys so far.
    #[must_use]
    pub fn auth_failures(&self) -> u64 {
        self.auth_failures
    }

    /// The client is as new.
    pub(super) fn forget_standing(&mut self, environment: &Environment<'_>) {
        self.standing = match environment.requires_auth {
            true => Standing::Stranger,
            false => Standing::Default,
        };
    }

    /// What a user lacks for a command that shows what others do, if anything.
    pub(super) fn lacks_for(&self, spec: &Spec, parts: &[&[u8]]) -> Option<String> {
        let Standing::User(identity) = &self.standing else {
            return None;
        };
        let shows_others = match spec.verb() {
            Some(Verb::Config | Verb::PubSub) => true,
            Some(Verb::Client) => parts.get(1)?.eq_ignore_ascii_case(b"list"),
            _ => false,
        };
        let name = &identity.name;
        (shows_others && !identity.administers).then(|| {
            format!(
                "NOPERM user {name} may not run '{}': role admin is needed",
                spec.name
            )
        })
    }

    pub(super) fn auth(
        &mut self,
        words: &[&[u8]],
        environment: &Environment<'_>,
        submit: &mut dyn Submit,
    ) {
        let (user, secret): (&[u8], &[u8]) = match words {
            [secret] if environment.password.is_some() => (DEFAULT.as_bytes(), secret),
            [_] => return self.replies.error(NO_PASSWORD),
            [user, secret] => (user, secret),
            _ => return self.replies.error(SYNTAX),
        };
        self.find_out(user, secret, Then::Ok, environment, submit);
    }

    pub(super) fn hello(
        &mut self,
        words: &[&[u8]],
        environment: &Environment<'_>,
        submit: &mut dyn Submit,
    ) {
        let hello = match Hello::parse(words) {
            Ok(hello) => hello,
            Err(text) => return self.replies.error(&text),
        };
        let then = Then::Welcome {
            resp3: hello.resp3.unwrap_or(self.replies.is_resp3()),
            name: hello.name.map(<[u8]>::to_vec),
        };
        match hello.auth {
            Some((user, secret)) => self.find_out(user, secret, then, environment, submit),
            None if self.is_known() => self.greet(then),
            None => self.replies.error(NOAUTH_HELLO),
        }
    }

    /// Whether the client is this user; `then` follows.
    fn find_out(
        &mut self,
        user: &[u8],
        secret: &[u8],
        then: Then,
        environment: &Environment<'_>,
        submit: &mut dyn Submit,
    ) {
        if user != DEFAULT.as_bytes() {
            return match submit.authenticate(user, secret) {
                Ok(()) => self.waiting = Some((Waiting::Auth(then), true)),
                Err(why) => self.go_on_knowing(then, Err(why)),
            };
        }
        let is_right = match environment.password {
            // The server takes no empty password. It would be what clients show that have none.
            Some(password) => !password.is_empty() && is_same_secret(password, secret),
            None => !environment.requires_auth,
        };
        match is_right {
            true => {
                self.standing = Standing::Default;
                self.greet(then);
            }
            false => self.go_on_knowing(then, Err(NotKnown::Wrong)),
        }
    }

    /// It is known who the client is, or why not.
    pub fn on_known(&mut self, result: Result<Identity, NotKnown>) {
        match self.waiting.take() {
            Some((Waiting::Auth(then), _)) => self.go_on_knowing(then, result),
            other => self.waiting = other,
        }
    }

    /// The group was not asked, or did not say.
    pub(super) fn go_on_unknown(&mut self, then: Then, failure: Option<Failure>) {
        let why = failure.unwrap_or(Failure::NotApplied(NO_ANSWER.to_owned()));
        self.go_on_knowing(then, Err(NotKnown::Unavailable(why)));
    }

    fn go_on_knowing(&mut self, then: Then, result: Result<Identity, NotKnown>) {
        match result {
            Ok(identity) => {
                self.standing = Standing::User(Box::new(identity));
                self.greet(then);
            }
            Err(NotKnown::Wrong) => {
                self.auth_failures += 1;
                if self.auth_failures >= AUTH_FAILURES_MAX {
                    self.life.end(Cause::Farewell);
                }
                self.replies.error(WRONGPASS);
            }
            Err(NotKnown::Busy) => {
                let text = "ERR too many passwords are being checked, try again";
                self.replies.error(text);
            }
            Err(NotKnown::Unavailable(why)) => {
                let text = failure_text(&why, true);
                self.replies.error(&text);
            }
        }
    }

    fn greet(&mut self, then: Then) {
        let Then::Welcome { resp3, name } = then else {
            return self.replies.ok();
        };
        if name.is_some_and(|name| !self.try_set_name(&name)) {
            return;
        }
        self.replies.switch(resp3);
        self.welcome();
    }
}

/// Whether the group has to be asked about its users before the request is answered. EXEC does not wait for that.
pub(super) fn asks_about_users(spec: &Spec, parts: &[&[u8]]) -> bool {
    let is_of_group = |user: &[u8]| user != DEFAULT.as_bytes();
    match spec.verb() {
        Some(Verb::Auth) => parts.len() > 2 && is_of_group(parts[1]),
        Some(Verb::Hello) => {
            let hello = Hello::parse(&parts[1..]).unwrap_or_default();
            hello.auth.is_some_and(|(user, _)| is_of_group(user))
        }
        Some(Verb::Acl) => {
            let asked = parts.get(1).map(|word| word.to_ascii_lowercase());
            matches!(asked.as_deref(), Some(b"list" | b"users" | b"getuser"))
        }
        _ => false,
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
