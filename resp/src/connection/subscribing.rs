//! SUBSCRIBE and its relatives, and what a subscriber may do. Channels carry events of keys and invalidations; there is no
//! PUBLISH.

use std::collections::BTreeSet;

use super::broker::{Broker, can_have_messages, has_messages};
use super::run::OnStream;
use super::{Connection, Environment};
use crate::limits::{SUBSCRIPTION_CHARGE_BYTES, SUBSCRIPTIONS_MAX};
use crate::pattern::Pattern;
use crate::table::{Spec, Verb};

const NO_MESSAGES: &str = "carries no messages: there is no PUBLISH, and channels are __keyspace@0__:KEY, \
    __keyevent@0__:EVENT and __redis__:invalidate";

/// The subscriptions of a client.
#[derive(Default, Debug)]
pub(super) struct Subscriptions {
    channels: BTreeSet<Vec<u8>>,
    patterns: BTreeSet<Vec<u8>>,
    /// What all of them are charged with.
    bytes: usize,
}

/// Bytes that a subscription is charged with: its name is here and with the broker.
fn charge(name: &[u8]) -> usize {
    2 * name.len() + SUBSCRIPTION_CHARGE_BYTES
}

impl Subscriptions {
    pub(super) fn count(&self) -> usize {
        self.channels.len() + self.patterns.len()
    }

    /// How many channels and how many patterns.
    pub(super) fn counts(&self) -> [usize; 2] {
        [self.channels.len(), self.patterns.len()]
    }

    pub(super) fn held_bytes(&self) -> usize {
        self.bytes
    }

    /// How many of these names are not among the subscriptions yet, and the bytes that they would be charged with.
    fn without(&mut self, names: &[&[u8]], patterns: bool) -> (usize, usize) {
        let known = self.of(patterns);
        let new: BTreeSet<&[u8]> = names
            .iter()
            .copied()
            .filter(|&name| !known.contains(name))
            .collect();
        (new.len(), new.iter().map(|name| charge(name)).sum())
    }

    fn add(&mut self, name: Vec<u8>, patterns: bool) {
        let bytes = charge(&name);
        if self.of(patterns).insert(name) {
            self.bytes += bytes;
        }
    }

    /// Whether there was such a subscription.
    fn remove(&mut self, name: &[u8], patterns: bool) -> bool {
        let was_there = self.of(patterns).remove(name);
        if was_there {
            self.bytes -= charge(name);
        }
        was_there
    }

    fn of(&mut self, patterns: bool) -> &mut BTreeSet<Vec<u8>> {
        match patterns {
            true => &mut self.patterns,
            false => &mut self.channels,
        }
    }
}

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

impl Connection {
    /// Whether the client may only subscribe and unsubscribe: before RESP3 it could not tell messages from replies.
    pub(super) fn is_only_subscriber(&self) -> bool {
        !self.replies.is_resp3() && self.subscriptions.count() > 0
    }

    /// Why a subscriber may not do this, if so.
    pub(super) fn not_as_subscriber(&self, spec: &Spec, parts: &[&[u8]]) -> Option<String> {
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
        if is_allowed || !self.is_only_subscriber() {
            return None;
        }
        let sub = match (spec.subcommands().is_empty(), parts.get(1)) {
            (false, Some(word)) => format!("|{}", String::from_utf8_lossy(word).to_lowercase()),
            _ => String::new(),
        };
        Some(format!(
            "ERR Can't execute '{}{sub}': only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT / RESET are allowed in \
             this context",
            spec.name
        ))
    }

    /// SUBSCRIBE and PSUBSCRIBE.
    pub(super) fn subscribe(
        &mut self,
        names: &[&[u8]],
        patterns: bool,
        environment: &Environment<'_>,
    ) {
        if let Err(text) = self.may_subscribe(names, patterns, environment) {
            return self.replies.error(&text);
        }
        let mut broker = environment.broker.borrow_mut();
        let names = names.iter().map(|name| name.to_vec()).collect();
        match broker.is_following_for(self.profile.id()) {
            true => self.subscribe_to(names, patterns, &mut broker),
            false => self.wait_for_stream(OnStream::Subscribe { names, patterns }),
        }
    }

    fn may_subscribe(
        &mut self,
        names: &[&[u8]],
        patterns: bool,
        environment: &Environment<'_>,
    ) -> Result<(), String> {
        for name in names {
            let shown = String::from_utf8_lossy(&name[..name.len().min(128)]);
            let carries = match patterns {
                false => has_messages(name),
                true => {
                    let pattern = Pattern::new(name).map_err(|why| format!("ERR {why}"))?;
                    can_have_messages(pattern.prefix())
                }
            };
            if !carries {
                return Err(format!("ERR '{shown}' {NO_MESSAGES}"));
            }
        }
        let (count, bytes) = self.subscriptions.without(names, patterns);
        if self.subscriptions.count() + count > SUBSCRIPTIONS_MAX
            || self.subscriptions.held_bytes() + bytes > environment.limits.query_bytes
        {
            return Err(format!(
                "ERR too many subscriptions: at most {SUBSCRIPTIONS_MAX} of a client"
            ));
        }
        Ok(())
    }

    pub(super) fn subscribe_to(
        &mut self,
        names: Vec<Vec<u8>>,
        patterns: bool,
        broker: &mut Broker,
    ) {
        for name in names {
            let has_room = match patterns {
                false => {
                    broker.subscribe(&name, self.profile.id());
                    true
                }
                true => Pattern::new(&name).is_ok_and(|pattern| {
                    broker.subscribe_pattern(pattern, &name, self.profile.id())
                }),
            };
            if !has_room {
                let text = "ERR as many patterns are subscribed to as this server takes";
                self.replies.error(text);
                continue;
            }
            self.subscriptions.add(name.clone(), patterns);
            let kind = if patterns { "psubscribe" } else { "subscribe" };
            self.write_subscription(kind, Some(&name));
        }
    }

    /// UNSUBSCRIBE and PUNSUBSCRIBE, of all if none is named.
    pub(super) fn unsubscribe(&mut self, names: &[&[u8]], patterns: bool, broker: &mut Broker) {
        let kind = match patterns {
            true => "punsubscribe",
            false => "unsubscribe",
        };
        let names: Vec<Vec<u8>> = match names.is_empty() {
            true => self.subscriptions.of(patterns).iter().cloned().collect(),
            false => names.iter().map(|name| name.to_vec()).collect(),
        };
        if names.is_empty() {
            return self.write_subscription(kind, None);
        }
        for name in names {
            self.end_subscription(&name, patterns, broker);
            self.write_subscription(kind, Some(&name));
        }
    }

    fn end_subscription(&mut self, name: &[u8], patterns: bool, broker: &mut Broker) {
        if !self.subscriptions.remove(name, patterns) {
            return;
        }
        match patterns {
            true => broker.unsubscribe_pattern(name, self.profile.id()),
            false => broker.unsubscribe(name, self.profile.id()),
        }
    }

    fn write_subscription(&mut self, kind: &str, name: Option<&[u8]>) {
        let count = self.subscriptions.count() as i64;
        let mut writer = self.replies.writer();
        writer.push(3);
        writer.bulk(kind.as_bytes());
        match name {
            Some(name) => writer.bulk(name),
            None => writer.null(),
        }
        writer.integer(count);
    }

    /// The client hears of nothing any more.
    pub fn leave(&mut self, broker: &mut Broker) {
        broker.stop_waiting(self.profile.id());
        self.untrack(broker);
        let Subscriptions {
            channels, patterns, ..
        } = std::mem::take(&mut self.subscriptions);
        channels
            .iter()
            .for_each(|name| broker.unsubscribe(name, self.profile.id()));
        patterns
            .iter()
            .for_each(|name| broker.unsubscribe_pattern(name, self.profile.id()));
    }

    /// Whether the client is told of keys without asking.
    #[must_use]
    pub fn is_listening(&self) -> bool {
        self.tracking.is_some() || self.subscriptions.count() > 0
    }

    /// PUBSUB.
    pub(super) fn pubsub(&mut self, words: &[&[u8]], environment: &Environment<'_>) {
        let broker = environment.broker.borrow();
        let subcommand = words[0].to_ascii_lowercase();
        match (subcommand.as_slice(), &words[1..]) {
            (b"channels", patterns @ ([] | [_])) => {
                let pattern = match patterns.first().map(|text| Pattern::new(text)).transpose() {
                    Ok(pattern) => pattern,
                    Err(why) => return self.replies.error(&format!("ERR {why}")),
                };
                let fits = |name: &&[u8]| pattern.as_ref().is_none_or(|pattern| pattern.fits(name));
                let found: Vec<&[u8]> = broker.channels().filter(fits).collect();
                let mut writer = self.replies.writer();
                writer.array(found.len());
                found.iter().for_each(|name| writer.bulk(name));
            }
            (b"numpat", []) => {
                let count = broker.counts().patterns as i64;
                self.replies.writer().integer(count);
            }
            (b"numsub", names) => {
                let mut writer = self.replies.writer();
                writer.array(2 * names.len());
                for name in names {
                    writer.bulk(name);
                    writer.integer(broker.subscribers(name) as i64);
                }
            }
            (b"help", []) => {
                drop(broker);
                self.help("PUBSUB", &PUBSUB_HELP);
            }
            _ => self.replies.error(crate::errors::SYNTAX),
        }
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
