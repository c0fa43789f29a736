//! AUTH and HELLO, which say who the client is.
//!
//! The default user's password is compared here. A user of the group is found out outside, and the connection waits for
//! that as for an answer of the store.

use trine_commands::acl::DEFAULT;
use trine_commands::errors::NO_ANSWER;
use trine_commands::errors::SYNTAX;
use trine_commands::hello::{Hello, welcome};

use super::Executor;
use crate::connection::life::Cause;
use crate::connection::run::{Then, Waiting};
use crate::connection::standing::{Identity, NotKnown, is_same_secret};
use crate::connection::{Environment, Failure, Submit};

const NOAUTH_HELLO: &str = "NOAUTH HELLO must be called with the client already authenticated, otherwise the HELLO \
    <proto> AUTH <user> <pass> option can be used to authenticate the client and select the RESP protocol version at \
    the same time";
const NO_PASSWORD: &str = "ERR AUTH <password> called without any password configured for the default user. Are you \
    sure your configuration is correct?";

impl Executor {
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
        match is_default_secret(environment, secret) {
            true => {
                self.standing.become_default();
                self.greet(then);
            }
            false => self.go_on_knowing(then, Err(NotKnown::Wrong)),
        }
    }

    /// It is known who the client is, or why not.
    pub(in crate::connection) fn on_known(&mut self, result: Result<Identity, NotKnown>) {
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
            Err(why) => {
                if why == NotKnown::Wrong && self.standing.on_wrong_secret() {
                    self.life.end(Cause::Farewell);
                }
                self.replies.error(&why.text());
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
        let (id, protocol) = (self.profile.id(), self.replies.protocol());
        welcome(id, protocol, &mut self.replies.writer());
    }
}

/// Whether this is the secret of the default user.
fn is_default_secret(environment: &Environment<'_>, secret: &[u8]) -> bool {
    match environment.password {
        // The server takes no empty password. It would be what clients show that have none.
        Some(password) => !password.is_empty() && is_same_secret(password, secret),
        None => !environment.requires_auth,
    }
}
