//! Commands that need no store: about the connection, the transaction and the replica.

use super::{Connection, Environment, Submit};
use crate::errors::{NOT_AN_INTEGER, SYNTAX, wrong_arity};
use crate::limits::NAME_BYTES_MAX;
use crate::table::{Spec, Verb};
use trine_kvstore::integer;

const NOAUTH: &str = "NOAUTH Authentication required.";
const NOAUTH_HELLO: &str = "NOAUTH HELLO must be called with the client already authenticated, otherwise the HELLO \
    <proto> AUTH <user> <pass> option can be used to authenticate the client and select the RESP protocol version at \
    the same time";
const WRONGPASS: &str = "WRONGPASS invalid username-password pair or user is disabled.";
const NOT_AN_INT: &str = "ERR value is out of range, value must between -2147483648 and 2147483647";
const NO_PASSWORD: &str = "ERR AUTH <password> called without any password configured for the default user. Are you \
    sure your configuration is correct?";

impl Connection {
    /// A request that is more than a plan for the store.
    pub(super) fn local(
        &mut self,
        parts: &[&[u8]],
        environment: &Environment<'_>,
        submit: &mut dyn Submit,
    ) {
        if is_of_http(parts[0]) {
            // As Redis does: no answer, and nothing behind it is read as a command.
            (self.ending, self.is_attack) = (true, true);
            return;
        }
        let Some(spec) = self.known_command(parts) else {
            return;
        };
        if !self.known && !spec.is_for_strangers() {
            return self.refuse(NOAUTH);
        }
        if self.transaction.is_some() && !Self::ends_or_is_outside_of_transaction(spec) {
            return self.queue(parts, environment);
        }
        self.answer_here(spec, parts, environment, submit);
    }

    /// Executes a command that is not for the store.
    pub(super) fn answer_here(
        &mut self,
        spec: &Spec,
        parts: &[&[u8]],
        environment: &Environment<'_>,
        submit: &mut dyn Submit,
    ) {
        let Some(verb) = spec.verb() else {
            return self.writer().error(SYNTAX);
        };
        match verb {
            Verb::Ping => self.ping(parts),
            Verb::Echo => self.writer().bulk(parts[1]),
            Verb::Select => self.select(parts[1]),
            Verb::Quit => {
                self.writer().simple("OK");
                self.ending = true;
            }
            Verb::Reset => self.reset(environment),
            Verb::Auth => self.auth(&parts[1..], environment),
            Verb::Hello => self.hello(&parts[1..], environment),
            Verb::Client => self.client(&parts[1..], environment),
            Verb::Command => self.describe_commands(&parts[1..]),
            Verb::Config => self.config(&parts[1..], environment),
            Verb::Info => {
                let text = environment.host.info(&parts[1..]);
                self.writer().text(&text);
            }
            Verb::Multi => match self.transaction {
                Some(_) => self.writer().error("ERR MULTI calls can not be nested"),
                None => self.begin_transaction(),
            },
            Verb::Exec => self.execute(environment, submit),
            Verb::Discard => self.discard(),
            Verb::Watch => self.watch(parts, environment, submit),
            Verb::Unwatch => {
                self.unwatch();
                self.writer().simple("OK");
            }
        }
    }

    fn ping(&mut self, parts: &[&[u8]]) {
        match parts {
            [_] => self.writer().simple("PONG"),
            [_, text] => self.writer().bulk(text),
            _ => self.refuse(&wrong_arity("ping")),
        }
    }

    fn select(&mut self, database: &[u8]) {
        match integer(database) {
            Some(0) => self.writer().simple("OK"),
            Some(other) if i32::try_from(other).is_err() => self.writer().error(NOT_AN_INT),
            Some(_) => self.writer().error("ERR DB index is out of range"),
            None => self.writer().error(NOT_AN_INTEGER),
        }
    }

    fn reset(&mut self, environment: &Environment<'_>) {
        self.transaction = None;
        self.unwatch();
        self.name.clear();
        self.resp3 = false;
        self.known = environment.password.is_none();
        self.writer().simple("RESET");
    }

    fn auth(&mut self, words: &[&[u8]], environment: &Environment<'_>) {
        let (user, password): (&[u8], &[u8]) = match words {
            [password] if environment.password.is_some() => (b"default", password),
            [_] => return self.writer().error(NO_PASSWORD),
            [user, password] => (user, password),
            _ => return self.writer().error(SYNTAX),
        };
        match self.try_auth(user, password, environment) {
            true => self.writer().simple("OK"),
            false => self.writer().error(WRONGPASS),
        }
    }

    fn try_auth(&mut self, user: &[u8], password: &[u8], environment: &Environment<'_>) -> bool {
        let right = environment
            .password
            .is_none_or(|expected| is_same_secret(expected, password));
        let welcome = user == b"default" && right;
        self.known |= welcome;
        welcome
    }

    fn hello(&mut self, words: &[&[u8]], environment: &Environment<'_>) {
        let mut resp3 = self.resp3;
        let mut words = words;
        if let [version, rest @ ..] = words {
            resp3 = match integer(version) {
                Some(2) => false,
                Some(3) => true,
                Some(_) => {
                    return self.writer().error("NOPROTO unsupported protocol version");
                }
                None => {
                    return self
                        .writer()
                        .error("ERR Protocol version is not an integer or out of range");
                }
            };
            words = rest;
        }
        let mut name = None;
        while let [option, rest @ ..] = words {
            words = match rest {
                [user, password, rest @ ..] if option.eq_ignore_ascii_case(b"auth") => {
                    if !self.try_auth(user, password, environment) {
                        return self.writer().error(WRONGPASS);
                    }
                    rest
                }
                [asked, rest @ ..] if option.eq_ignore_ascii_case(b"setname") => {
                    name = Some(*asked);
                    rest
                }
                _ => {
                    let option = String::from_utf8_lossy(option);
                    let text = format!("ERR Syntax error in HELLO option '{option}'");
                    return self.writer().error(&text);
                }
            };
        }
        if !self.known {
            return self.writer().error(NOAUTH_HELLO);
        }
        if name.is_some_and(|name| !self.try_set_name(name)) {
            return;
        }
        self.resp3 = resp3;
        self.welcome();
    }

    fn welcome(&mut self) {
        let (id, protocol) = (self.id as i64, if self.resp3 { 3 } else { 2 });
        let mut writer = self.writer();
        writer.map(7);
        for (field, value) in [("server", "trine"), ("version", super::describe::VERSION)] {
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

    /// Takes a name, or answers why not.
    pub(super) fn try_set_name(&mut self, name: &[u8]) -> bool {
        if !name.iter().all(|byte| (b'!'..=b'~').contains(byte)) {
            self.writer()
                .error("ERR Client names cannot contain spaces, newlines or special characters.");
            return false;
        }
        if name.len() > NAME_BYTES_MAX {
            let text = format!("ERR Client names cannot be longer than {NAME_BYTES_MAX} bytes.");
            self.writer().error(&text);
            return false;
        }
        self.name = name.to_vec();
        true
    }
}

/// Whether a request begins as one of HTTP does, or as its header that no request goes without.
fn is_of_http(word: &[u8]) -> bool {
    word.eq_ignore_ascii_case(b"post") || word.eq_ignore_ascii_case(b"host:")
}

/// Compares in a time that does not depend on the position of the difference.
fn is_same_secret(expected: &[u8], given: &[u8]) -> bool {
    let difference = expected
        .iter()
        .zip(given.iter().chain(std::iter::repeat(&0)))
        .fold(0, |sum, (left, right)| sum | (left ^ right));
    difference == 0 && expected.len() == given.len()
}
