//! AUTH and HELLO, which say who the client is.
//!
//! The default user's password is compared here. A user of the group is found out outside, and the connection waits for
//! that as for an answer of the store.

use trine_kvstore::integer;

use super::answer::{NO_ANSWER, failure_text};
use super::life::Cause;
use super::standing::{DEFAULT, Identity, NotKnown, is_same_secret};
use super::{Connection, Environment, Failure, Submit, Waiting};
use crate::errors::SYNTAX;
use crate::table::{Spec, Verb};

const NOAUTH_HELLO: &str = "NOAUTH HELLO must be called with the client already authenticated, otherwise the HELLO \
    <proto> AUTH <user> <pass> option can be used to authenticate the client and select the RESP protocol version at \
    the same time";
const WRONGPASS: &str = "WRONGPASS invalid username-password pair or user is disabled.";
const NO_PASSWORD: &str = "ERR AUTH <password> called without any password configured for the default user. Are you \
    sure your configuration is correct?";

/// The release, which HELLO names.
const VERSION: &str = env!("CARGO_PKG_VERSION");

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
            None if self.standing.is_known() => self.greet(then),
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
                Ok(()) => self.run.begin(Waiting::Auth(then), true),
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
                self.standing.become_default();
                self.greet(then);
            }
            false => self.go_on_knowing(then, Err(NotKnown::Wrong)),
        }
    }

    /// It is known who the client is, or why not.
    pub fn on_known(&mut self, result: Result<Identity, NotKnown>) {
        let is_auth = |waiting: &Waiting| matches!(waiting, Waiting::Auth(_));
        if let Some((Waiting::Auth(then), _)) = self.run.take_if(is_auth) {
            self.go_on_knowing(then, result);
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
                self.standing.become_user(identity);
                self.greet(then);
            }
            Err(NotKnown::Wrong) => {
                if self.standing.on_wrong_secret() {
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
        if let Some(name) = name
            && let Err(text) = self.profile.set_name(&name)
        {
            return self.replies.error(&text);
        }
        self.replies.switch(resp3);
        self.welcome();
    }

    fn welcome(&mut self) {
        let (id, protocol) = (self.profile.id() as i64, self.replies.protocol());
        let mut writer = self.replies.writer();
        writer.map(7);
        for (field, value) in [("server", "trine"), ("version", VERSION)] {
            writer.bulk(field.as_bytes());
            writer.bulk(value.as_bytes());
        }
        for (field, value) in [("proto", protocol), ("id", id)] {
            writer.bulk(field.as_bytes());
            writer.integer(value);
        }
        for (field, value) in [("mode", "standalone"), ("role", "master")] {
            writer.bulk(field.as_bytes());
            writer.bulk(value.as_bytes());
        }
        writer.bulk(b"modules");
        writer.array(0);
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
