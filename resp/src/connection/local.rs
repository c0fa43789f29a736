//! Commands that need no store: about the connection, the transaction and the replica.

use super::auth::asks_about_users;
use super::command::command;
use super::config::config;
use super::keyspace::is_about_all_keys;
use super::life::Cause;
use super::listening::{is_about_messages, pubsub};
use super::{Connection, Environment, Submit};
use crate::errors::{NOT_AN_INTEGER, SYNTAX, wrong_arity};
use crate::table::{Spec, Verb};
use trine_kvstore::integer;

const NOAUTH: &str = "NOAUTH Authentication required.";
const NOT_AN_INT: &str = "ERR value is out of range, value must between -2147483648 and 2147483647";

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
            return self.life.end(Cause::Attack);
        }
        let Some(spec) = self.known_command(parts) else {
            return;
        };
        if !self.standing.is_known() && !spec.is_for_strangers() {
            return self.refuse(NOAUTH);
        }
        if let Some(text) = self.not_as_subscriber(spec, parts) {
            return self.refuse(&text);
        }
        if self.transaction.is_open() && !Self::ends_or_is_outside_of_transaction(spec) {
            if asks_about_users(spec, parts) {
                let text = format!(
                    "ERR '{}' asks the group about users, which MULTI does not take",
                    spec.name
                );
                return self.refuse(&text);
            }
            if is_about_all_keys(spec) || is_about_messages(spec, parts) {
                return self.refuse("ERR Command not allowed inside a transaction");
            }
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
            return self.replies.error(SYNTAX);
        };
        if let Some(text) = self.standing.lacks_for(spec, parts) {
            return self.refuse(&text);
        }
        match verb {
            Verb::Ping => self.ping(parts),
            Verb::Echo => self.replies.writer().bulk(parts[1]),
            Verb::Select => self.select(parts[1]),
            Verb::Quit => {
                self.replies.ok();
                self.life.end(Cause::Farewell);
            }
            Verb::Reset => self.reset(environment),
            Verb::Acl => self.acl(&parts[1..], environment, submit),
            Verb::Auth => self.auth(&parts[1..], environment, submit),
            Verb::Hello => self.hello(&parts[1..], environment, submit),
            Verb::Client => self.client(&parts[1..], environment),
            Verb::Command => command(&parts[1..], &mut self.replies.writer()),
            Verb::Config => config(&parts[1..], environment, &mut self.replies.writer()),
            Verb::Subscribe => self.subscribe(&parts[1..], false, environment),
            Verb::PSubscribe => self.subscribe(&parts[1..], true, environment),
            Verb::Unsubscribe => {
                self.unsubscribe(&parts[1..], false, &mut environment.broker.borrow_mut());
            }
            Verb::PUnsubscribe => {
                self.unsubscribe(&parts[1..], true, &mut environment.broker.borrow_mut());
            }
            Verb::PubSub => {
                let broker = environment.broker.borrow();
                pubsub(&parts[1..], &broker, &mut self.replies.writer());
            }
            Verb::Info => {
                let prefix = self.standing.identity().map(|identity| &identity.prefix);
                let has_prefix = prefix.is_some_and(|prefix| !prefix.is_empty());
                let text = environment.host.info(&parts[1..], has_prefix);
                self.replies.writer().text(&text);
            }
            Verb::Multi => self.begin_transaction(),
            Verb::Scan => self.scan(&parts[1..], submit),
            Verb::Keys => self.keys(parts[1], submit),
            Verb::RandomKey => self.random_key(environment, submit),
            Verb::Flush => self.flush(&parts[1..], submit),
            Verb::Exec => self.execute(environment, submit),
            Verb::Discard => self.discard(),
            Verb::Watch => self.watch(parts, environment, submit),
            Verb::Unwatch => {
                self.transaction.unwatch();
                self.replies.ok();
            }
        }
    }

    fn ping(&mut self, parts: &[&[u8]]) {
        if self.is_only_subscriber() && parts.len() <= 2 {
            // It has to look like a message.
            let mut writer = self.replies.writer();
            writer.array(2);
            writer.bulk(b"pong");
            return writer.bulk(parts.get(1).unwrap_or(&&b""[..]));
        }
        match parts {
            [_] => self.replies.writer().simple("PONG"),
            [_, text] => self.replies.writer().bulk(text),
            _ => self.refuse(&wrong_arity("ping")),
        }
    }

    fn select(&mut self, database: &[u8]) {
        match integer(database) {
            Some(0) => self.replies.ok(),
            Some(other) if i32::try_from(other).is_err() => self.replies.error(NOT_AN_INT),
            Some(_) => self.replies.error("ERR DB index is out of range"),
            None => self.replies.error(NOT_AN_INTEGER),
        }
    }

    fn reset(&mut self, environment: &Environment<'_>) {
        self.transaction.forget();
        self.leave(&mut environment.broker.borrow_mut());
        self.profile.clear_name();
        self.replies.switch(false);
        self.standing.forget(environment.requires_auth);
        self.replies.writer().simple("RESET");
    }
}

/// Whether a request begins as one of HTTP does, or as its header that no request goes without.
fn is_of_http(word: &[u8]) -> bool {
    word.eq_ignore_ascii_case(b"post") || word.eq_ignore_ascii_case(b"host:")
}
