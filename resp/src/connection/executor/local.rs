//! Commands that need no store: about the connection, the transaction and the replica.

use trine_commands::acl::{DefaultUser, UsersAsked};
use trine_commands::describe::{command, known_command};
use trine_commands::errors::{NOT_AN_INTEGER, Refusal, SYNTAX, wrong_arity};
use trine_commands::hello::asks_about_users;
use trine_commands::keyspace::{Begun, Walk, flush};
use trine_commands::table::{Spec, Verb};
use trine_kvstore::{Command, integer};

use super::Executor;
use super::config::config;
use super::exec::{ends_or_is_outside_of_transaction, is_about_all_keys, why_not_queued};
use super::listening::{check_as_subscriber, is_about_messages, pubsub};
use crate::connection::life::Cause;
use crate::connection::run::Waiting;
use crate::connection::{Call, Environment, Submit};

const NOAUTH: &str = "NOAUTH Authentication required.";
const NOT_AN_INT: &str = "ERR value is out of range, value must between -2147483648 and 2147483647";

impl Executor {
    /// A request that is more than a plan for the store.
    pub(in crate::connection) fn execute(
        &mut self,
        parts: &[&[u8]],
        environment: &Environment<'_>,
        submit: &mut dyn Submit,
    ) {
        self.counts.commands += 1;
        self.admit(parts, environment, submit);
        if !parts[0].eq_ignore_ascii_case(b"client") {
            self.end_caching();
        }
    }

    /// Executes a request, queues it or refuses it.
    fn admit(&mut self, parts: &[&[u8]], environment: &Environment<'_>, submit: &mut dyn Submit) {
        if is_of_http(parts[0]) {
            // As Redis does: no answer, and nothing behind it is read as a command.
            return self.life.end(Cause::Attack);
        }
        let spec = match known_command(parts) {
            Ok(spec) => spec,
            // Redis ends the transaction with an EXEC that cannot be one.
            Err(text) if parts[0].eq_ignore_ascii_case(b"exec") => return self.abort(&text),
            Err(text) => return self.refuse(&text),
        };
        if !self.standing.is_known() && !spec.is_for_strangers() {
            return self.refuse(NOAUTH);
        }
        if self.is_only_subscriber()
            && let Err(text) = check_as_subscriber(spec, parts)
        {
            return self.refuse(&text);
        }
        if self.transaction.is_open() && !ends_or_is_outside_of_transaction(spec) {
            if asks_about_users(spec, parts) {
                let text = format!(
                    "ERR '{}' asks the group about users, which MULTI does not take",
                    spec.name()
                );
                return self.refuse(&text);
            }
            if is_about_all_keys(spec) || is_about_messages(spec, parts) {
                return self.refuse("ERR Command not allowed inside a transaction");
            }
            return match why_not_queued(spec, parts) {
                Some(text) => self.refuse(text),
                None => self.queue(parts, environment),
            };
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
            Verb::Select => self.replies.done(check_database(parts[1])),
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
            Verb::Unsubscribe => self.unsubscribe(&parts[1..], false, environment),
            Verb::PUnsubscribe => self.unsubscribe(&parts[1..], true, environment),
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
            Verb::Scan | Verb::Keys | Verb::RandomKey => {
                self.walk(verb, parts, environment, submit);
            }
            Verb::Do => self.do_once(parts, environment, submit),
            Verb::Session => self.session(&parts[1..], submit),
            Verb::Flush => self.flush(&parts[1..], submit),
            Verb::Exec => self.exec(environment, submit),
            Verb::Discard => self.discard(),
            Verb::Watch => self.watch(parts, environment, submit),
            Verb::Unwatch => {
                self.transaction.unwatch();
                self.replies.ok();
            }
        }
    }

    /// SCAN, KEYS and RANDOMKEY.
    fn walk(
        &mut self,
        verb: Verb,
        parts: &[&[u8]],
        environment: &Environment<'_>,
        submit: &mut dyn Submit,
    ) {
        let (own, writer) = (self.standing.key_prefix(), &mut self.replies.writer());
        let time = environment.unix_ms.cast_unsigned();
        let seeds = [time, self.profile.id(), self.counts.commands];
        let begun = match verb {
            Verb::Scan => Walk::scan(&parts[1..], own, writer),
            Verb::Keys => Walk::keys(parts[1], own, writer),
            _ => Ok(Begun::Walk(Walk::any(seeds, own))),
        };
        match begun {
            Ok(Begun::Walk(walk)) => self.ask_for_page(walk, submit),
            Ok(Begun::Replied) => {}
            Err(text) => self.replies.error(&text),
        }
    }

    /// Begins the call that follows one that is over, if there is one.
    pub(in crate::connection) fn go_on(&mut self, submit: &mut dyn Submit) -> bool {
        if let Some(key) = self.run.take_look() {
            let bytes = self.run.expected_bytes(1, 1);
            self.call(&Command::Get { key: &key }, bytes, Waiting::Look, submit);
            return true;
        }
        let walk = self.run.take_walk();
        let is_walking = walk.is_some();
        if let Some(walk) = walk {
            self.ask_for_page(walk, submit);
        }
        is_walking
    }

    fn ask_for_page(&mut self, walk: Box<Walk>, submit: &mut dyn Submit) {
        let call = Call {
            command: &walk.command(),
            read_only: true,
            response_bytes: walk.page_bytes(),
            for_user: self.standing.on_behalf(),
            numbered: None,
        };
        let begun = submit.submit(&call);
        self.wait_for(begun, Waiting::Walk(walk), true);
    }

    /// FLUSHALL and FLUSHDB.
    fn flush(&mut self, words: &[&[u8]], submit: &mut dyn Submit) {
        let item = match flush(words) {
            Ok(item) => item,
            Err(text) => return self.replies.error(&text),
        };
        let bytes = self.run.expected_bytes(1, 0);
        self.call(&Command::Flush, bytes, Waiting::Run(vec![item]), submit);
    }

    fn acl(&mut self, words: &[&[u8]], environment: &Environment<'_>, submit: &mut dyn Submit) {
        let has_password = environment.password.is_some();
        let default = DefaultUser::new(has_password, environment.requires_auth);
        let writer = &mut self.replies.writer();
        match UsersAsked::read(words, self.standing.name(), default, writer) {
            Ok(Some(asked)) => {
                let bytes = self.run.expected_bytes(1, 1);
                self.call(&Command::ListUsers, bytes, Waiting::Users(asked), submit);
            }
            Ok(None) => {}
            Err(text) => self.replies.error(&text),
        }
    }

    fn ping(&mut self, parts: &[&[u8]]) {
        match (parts, self.is_only_subscriber()) {
            // It has to look like a message.
            ([_] | [_, _], true) => {
                let mut writer = self.replies.writer();
                writer.array(2);
                writer.bulk(b"pong");
                writer.bulk(parts.get(1).unwrap_or(&&b""[..]));
            }
            ([_], false) => self.replies.writer().simple("PONG"),
            ([_, text], false) => self.replies.writer().bulk(text),
            _ => self.refuse(&wrong_arity("ping")),
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

/// There is database 0 alone.
fn check_database(number: &[u8]) -> Result<(), Refusal> {
    match integer(number) {
        Some(0) => Ok(()),
        Some(other) if i32::try_from(other).is_err() => Err(NOT_AN_INT.to_owned()),
        Some(_) => Err("ERR DB index is out of range".to_owned()),
        None => Err(NOT_AN_INTEGER.to_owned()),
    }
}
