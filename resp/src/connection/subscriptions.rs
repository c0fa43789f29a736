//! The channels and patterns that a client subscribes to. They carry events of keys and invalidations; there is no PUBLISH.
//!
//! Invariant: the broker has the client at exactly these channels and patterns, and `bytes` is what all of them are charged
//! with.

use std::collections::BTreeSet;

use trine_commands::Pattern;
use trine_commands::Writer;
use trine_commands::errors::Refusal;

use super::broker::{Broker, can_have_messages, has_messages};
use crate::limits::{SUBSCRIPTION_CHARGE_BYTES, SUBSCRIPTIONS_MAX};

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
            assert!(
                self.count() > 0 || self.bytes == 0,
                "nothing is charged for nothing"
            );
        }
        was_there
    }

    /// Whether a client may subscribe to these channels or patterns, too, while all may take so many bytes.
    pub(super) fn check(
        &mut self,
        names: &[&[u8]],
        patterns: bool,
        bytes_max: usize,
    ) -> Result<(), Refusal> {
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
        let (count, bytes) = self.without(names, patterns);
        if self.count() + count > SUBSCRIPTIONS_MAX || self.bytes + bytes > bytes_max {
            return Err(format!(
                "ERR too many subscriptions: at most {SUBSCRIPTIONS_MAX} of a client"
            ));
        }
        Ok(())
    }

    /// The client with number `id` subscribes to a channel or a pattern, and is told so.
    pub(super) fn subscribe(
        &mut self,
        name: &[u8],
        patterns: bool,
        id: u64,
        broker: &mut Broker,
        writer: &mut Writer<'_>,
    ) {
        let (kind, has_room) = match patterns {
            false => {
                broker.subscribe(name, id);
                ("subscribe", true)
            }
            true => {
                let pattern = Pattern::new(name);
                let has_room =
                    pattern.is_ok_and(|pattern| broker.subscribe_pattern(pattern, name, id));
                ("psubscribe", has_room)
            }
        };
        if !has_room {
            return writer.error("ERR as many patterns are subscribed to as this server takes");
        }
        self.add(name.to_vec(), patterns);
        self.write(kind, Some(name), writer);
    }

    /// The client with number `id` subscribes to these channels or patterns no more, or to none if none is named, and is
    /// told so.
    pub(super) fn unsubscribe(
        &mut self,
        names: &[&[u8]],
        patterns: bool,
        id: u64,
        broker: &mut Broker,
        writer: &mut Writer<'_>,
    ) {
        let kind = match patterns {
            true => "punsubscribe",
            false => "unsubscribe",
        };
        let names: Vec<Vec<u8>> = match names.is_empty() {
            true => self.of(patterns).iter().cloned().collect(),
            false => names.iter().map(|name| name.to_vec()).collect(),
        };
        if names.is_empty() {
            return self.write(kind, None, writer);
        }
        for name in names {
            if self.remove(&name, patterns) {
                match patterns {
                    true => broker.unsubscribe_pattern(&name, id),
                    false => broker.unsubscribe(&name, id),
                }
            }
            self.write(kind, Some(&name), writer);
        }
    }

    fn write(&self, kind: &str, name: Option<&[u8]>, writer: &mut Writer<'_>) {
        writer.push(3);
        writer.bulk(kind.as_bytes());
        match name {
            Some(name) => writer.bulk(name),
            None => writer.null(),
        }
        writer.integer(self.count() as i64);
    }

    /// The client with number `id` subscribes to nothing any more.
    pub(super) fn end(&mut self, id: u64, broker: &mut Broker) {
        let ended = std::mem::take(self);
        for name in &ended.channels {
            broker.unsubscribe(name, id);
        }
        for name in &ended.patterns {
            broker.unsubscribe_pattern(name, id);
        }
    }

    fn of(&mut self, patterns: bool) -> &mut BTreeSet<Vec<u8>> {
        match patterns {
            true => &mut self.patterns,
            false => &mut self.channels,
        }
    }
}
