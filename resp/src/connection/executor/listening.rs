//! SUBSCRIBE, CLIENT TRACKING and their relatives, what a subscriber may do, and how the broker tells a client of changes.

use trine_commands::Pattern;
use trine_commands::Writer;
use trine_commands::describe::help;
use trine_commands::errors::{Refusal, SYNTAX};
use trine_commands::table::{Spec, Verb};
use trine_kvstore::Position;

use super::Executor;
use crate::connection::broker::Broker;
use crate::connection::late::Late;
use crate::connection::run::{LastCall, OnStream, Waiting};
use crate::connection::tracking::Options;
use crate::connection::{Environment, OnBehalf};

/// Whether a command changes what the connection is told, at once: a transaction cannot have it.
pub(super) fn is_about_messages(spec: &Spec, parts: &[&[u8]]) -> bool {
    let second = parts.get(1).map(|word| word.to_ascii_lowercase());
    matches!(
        (spec.verb(), second.as_deref()),
        (
            Some(Verb::Subscribe | Verb::PSubscribe | Verb::Unsubscribe | Verb::PUnsubscribe),
            _
        ) | (Some(Verb::Client), Some(b"tracking" | b"caching"))
            | (Some(Verb::Config), Some(b"set"))
    )
}

impl Executor {
    /// Whether the client may only subscribe and unsubscribe: before RESP3 it could not tell messages from replies.
    pub(super) fn is_only_subscriber(&self) -> bool {
        !self.replies.is_resp3() && self.subscriptions.count() > 0
    }

    /// SUBSCRIBE and PSUBSCRIBE.
    pub(super) fn subscribe(
        &mut self,
        names: &[&[u8]],
        patterns: bool,
        environment: &Environment<'_>,
    ) {
        let bytes_max = environment.limits.query_bytes;
        if let Err(text) = self.subscriptions.check(names, patterns, bytes_max) {
            return self.replies.error(&text);
        }
        let names = names.iter().map(|name| name.to_vec()).collect();
        self.once_following(OnStream::Subscribe { names, patterns }, environment);
    }

    /// CLIENT TRACKING.
    pub(super) fn client_tracking(&mut self, words: &[&[u8]], environment: &Environment<'_>) {
        let (id, user) = (self.profile.id(), self.standing.name());
        let finds = |other| other == id || environment.host.is_there(other, user);
        let options = match Options::read(&words[1..], &finds) {
            Ok(options) => options,
            Err(text) => return self.replies.error(&text),
        };
        match words[0].to_ascii_lowercase().as_slice() {
            b"on" => match self.tracker.check(&options) {
                Ok(()) => self.once_following(OnStream::Track(options), environment),
                Err(text) => self.replies.error(&text),
            },
            b"off" => {
                self.tracker
                    .turn_off(id, &mut environment.broker.borrow_mut());
                self.replies.ok();
            }
            _ => self.replies.error(SYNTAX),
        }
    }

    /// What needs the stream of changes is done, at once or when the stream is there.
    fn once_following(&mut self, then: OnStream, environment: &Environment<'_>) {
        let mut broker = environment.broker.borrow_mut();
        match broker.is_following_for(self.profile.id()) {
            true => self.on_following(then, &mut broker),
            false => self.run.begin(Waiting::Stream(then), true),
        }
    }

    /// The stream of changes is there, or why it is not.
    pub(in crate::connection) fn on_stream(
        &mut self,
        broker: &mut Broker,
        result: Result<(), String>,
    ) {
        let is_stream = |waiting: &Waiting| matches!(waiting, Waiting::Stream(_));
        let Some((Waiting::Stream(then), _)) = self.run.take_if(is_stream) else {
            return;
        };
        match result {
            Ok(()) => self.on_following(then, broker),
            Err(why) => self.replies.error(&format!("ERR {why}")),
        }
    }

    fn on_following(&mut self, then: OnStream, broker: &mut Broker) {
        let id = self.profile.id();
        match then {
            OnStream::Track(options) => {
                self.replies.done(self.tracker.turn_on(id, options, broker));
            }
            OnStream::Subscribe { names, patterns } => {
                let mut writer = self.replies.writer();
                for name in names {
                    self.subscriptions
                        .subscribe(&name, patterns, id, broker, &mut writer);
                }
            }
        }
    }

    /// UNSUBSCRIBE and PUNSUBSCRIBE, of all if none is named.
    pub(super) fn unsubscribe(
        &mut self,
        names: &[&[u8]],
        patterns: bool,
        environment: &Environment<'_>,
    ) {
        let (id, mut broker) = (self.profile.id(), environment.broker.borrow_mut());
        let writer = &mut self.replies.writer();
        self.subscriptions
            .unsubscribe(names, patterns, id, &mut broker, writer);
    }

    /// The client hears of nothing any more.
    pub(in crate::connection) fn leave(&mut self, broker: &mut Broker) {
        let id = self.profile.id();
        broker.stop_waiting(id);
        self.tracker.turn_off(id, broker);
        self.subscriptions.end(id, broker);
    }

    /// Whether the client is told of keys without asking.
    pub(in crate::connection) fn is_listening(&self) -> bool {
        self.tracker.is_on() || self.subscriptions.count() > 0
    }

    /// Notes the keys that a command reads, before it is sent, if the client tracks them.
    pub(super) fn note_reads(
        &mut self,
        spec: &Spec,
        parts: &[&[u8]],
        environment: &Environment<'_>,
    ) {
        if self.tracker.is_on() {
            let (id, prefix) = (self.profile.id(), self.standing.key_prefix());
            let mut broker = environment.broker.borrow_mut();
            self.tracker
                .note_reads(spec, parts, id, prefix, &mut broker);
        }
    }

    /// CLIENT CACHING counts for one command, and for a transaction as a whole.
    pub(super) fn end_caching(&mut self) {
        if !self.transaction.is_open() {
            self.tracker.end_caching();
        }
    }

    /// The call is over: what its reads have seen, and which invalidations follow its replies.
    pub(in crate::connection) fn take_late(&mut self, position: Position) -> Late {
        let last = self.run.last();
        // Commands that are sent once more are not answered yet.
        match last == LastCall::Split || self.run.is_busy() {
            true => Late::default(),
            false => self.tracker.take_late(position, last == LastCall::Write),
        }
    }

    /// Whether the client is told of a change now: it may know the key, and the change is not its own.
    pub(in crate::connection) fn is_to_be_told(&mut self, key: &[u8], at: Position) -> bool {
        key.starts_with(self.standing.key_prefix())
            && self.tracker.is_to_be_told(key, at, self.run.call_reads())
    }

    /// All that a client knows is invalid. Says whether it is to be told.
    pub(in crate::connection) fn note_all_invalid(
        &mut self,
        at: Position,
        broadcast_only: bool,
    ) -> bool {
        let has_call = self.run.call_reads().is_some();
        self.tracker.note_all_invalid(at, broadcast_only, has_call)
    }

    /// The connection that is told instead of this one, and as whom that one has to act.
    pub(in crate::connection) fn redirection(&self) -> Option<(u64, Option<OnBehalf>)> {
        Some((self.tracker.redirect()?, self.standing.on_behalf()))
    }

    /// Whether it acts as this user.
    pub(in crate::connection) fn acts_as(&self, user: Option<OnBehalf>) -> bool {
        self.standing.on_behalf() == user
    }

    /// The connection that was told instead has gone.
    pub(in crate::connection) fn break_redirection(&mut self) {
        if let Some(redirect) = self.tracker.break_redirection()
            && self.replies.push_broken_redirection(redirect)
        {
            self.end_if_unread();
        }
    }

    /// Pushes that these keys have changed, or all. `redirected`: another connection has read them.
    pub(in crate::connection) fn push_invalidation(
        &mut self,
        keys: Option<&[&[u8]]>,
        redirected: bool,
    ) {
        let as_message = redirected && self.subscriptions.count() > 0;
        if self.replies.push_invalidation(keys, as_message) {
            self.end_if_unread();
        }
    }

    /// Pushes a message about `key`, because the channel was subscribed to, or the pattern.
    pub(in crate::connection) fn push_message(
        &mut self,
        pattern: Option<&[u8]>,
        channel: &[u8],
        text: &[u8],
        key: &[u8],
    ) {
        if key.starts_with(self.standing.key_prefix()) {
            self.replies.push_message(pattern, channel, text);
            self.end_if_unread();
        }
    }

    /// Ends the connection if it has not read too much. It would miss messages otherwise, without noticing that.
    fn end_if_unread(&mut self) {
        if self.life.is_cut_off() || self.replies.is_beyond_pushing() {
            self.cut_off();
        }
    }
}

/// Whether a client that may only subscribe and unsubscribe may do this.
pub(super) fn check_as_subscriber(spec: &Spec, parts: &[&[u8]]) -> Result<(), Refusal> {
    let is_allowed = matches!(
        spec.verb(),
        Some(
            Verb::Subscribe
                | Verb::PSubscribe
                | Verb::Unsubscribe
                | Verb::PUnsubscribe
                | Verb::Ping
                | Verb::Quit
                | Verb::Reset
        )
    );
    if is_allowed {
        return Ok(());
    }
    let sub = match (spec.has_subcommands(), parts.get(1)) {
        (true, Some(word)) => format!("|{}", String::from_utf8_lossy(word).to_lowercase()),
        _ => String::new(),
    };
    Err(format!(
        "ERR Can't execute '{}{sub}': only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT / RESET are allowed in \
         this context",
        spec.name()
    ))
}

/// PUBSUB.
pub(super) fn pubsub(words: &[&[u8]], broker: &Broker, writer: &mut Writer<'_>) {
    let subcommand = words[0].to_ascii_lowercase();
    match (subcommand.as_slice(), &words[1..]) {
        (b"channels", patterns @ ([] | [_])) => {
            let pattern = match patterns.first().map(|text| Pattern::new(text)).transpose() {
                Ok(pattern) => pattern,
                Err(why) => return writer.error(&format!("ERR {why}")),
            };
            let fits = |name: &&[u8]| pattern.as_ref().is_none_or(|pattern| pattern.fits(name));
            let found: Vec<&[u8]> = broker.channels().filter(fits).collect();
            writer.array(found.len());
            found.iter().for_each(|name| writer.bulk(name));
        }
        (b"numpat", []) => {
            let count = broker.counts().patterns as i64;
            writer.integer(count);
        }
        (b"numsub", names) => {
            writer.array(2 * names.len());
            for name in names {
                writer.bulk(name);
                writer.integer(broker.subscribers(name) as i64);
            }
        }
        (b"help", []) => {
            help(writer, "PUBSUB", &PUBSUB_HELP);
        }
        _ => writer.error(SYNTAX),
    }
}

const PUBSUB_HELP: [&str; 6] = [
    "CHANNELS [<pattern>]",
    "    Return the channels with subscribers, or those that fit the pattern.",
    "NUMPAT",
    "    Return the number of patterns that are subscribed to.",
    "NUMSUB [<channel> ...]",
    "    Return the number of subscribers of each channel.",
];
