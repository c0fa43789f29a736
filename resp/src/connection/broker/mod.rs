//! The broker tells clients of changes: those that track keys, and those that subscribe to channels of keys.
//!
//! One broker serves all connections of a server. It takes the changes of the store in their order, from the history of
//! one replica. Values come from the leader, and changes may come later or earlier than they. So a key is noted before its
//! read is sent. An answer says up to where it has seen the store, and each change behind that is told.
//!
//! Invariant: a client is a tracker, has prefixes and is subscribed here exactly as its connection says.
//!
//! ```text
//!               on_begin                          on_gap
//! no stream ---------------> following <----------------------- following
//!     ^                         |  ^
//!     |         on_lost         |  | on_resume: nothing was missed
//!     +-------------------------+--+
//! ```
//! While there is no stream, nothing is noted. Each answer to a client that tracks is followed by its invalidation then, so
//! that the client keeps nothing that may grow old unnoticed.

mod classes;
mod names;
mod prefixes;
mod table;

use std::collections::{BTreeMap, BTreeSet};

use trine_commands::Pattern;
use trine_kvstore::history::Change;
use trine_kvstore::{Kind, Position};

use super::Connection;
use super::late::Late;
use crate::limits::{PATTERNS_MAX, PREFIXES_MAX, TRACKED_KEYS_MAX};
pub use classes::Classes;
use names::names;
use prefixes::Prefixes;
use table::Table;

/// Messages about keys.
const KEYSPACE: &[u8] = b"__keyspace@0__:";
/// Messages about events.
const KEYEVENT: &[u8] = b"__keyevent@0__:";
/// Invalidations of clients that speak RESP2.
pub(crate) const INVALIDATE: &[u8] = b"__redis__:invalidate";

/// The connections, by their numbers.
pub trait Clients {
    /// Calls `tell` with a connection, if it is there.
    fn with(&mut self, client: u64, tell: &mut dyn FnMut(&mut Connection));
}

/// One change of the store.
#[derive(Clone, Copy, Debug)]
pub struct KeyChange<'a> {
    /// The position of the change.
    pub position: Position,
    /// The kind of command that did it, if it is known.
    pub command: Option<Kind>,
    /// What has happened.
    pub change: Change<'a>,
}

/// Counts of a broker, for INFO and metrics.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct BrokerCounts {
    /// Clients that track keys.
    pub tracking_clients: usize,
    /// Keys in the table of the default mode.
    pub tracked_keys: usize,
    /// Pairs of such a key and a client.
    pub tracked_items: usize,
    /// Prefixes of clients that track by broadcast.
    pub prefixes: usize,
    /// Channels with subscribers.
    pub channels: usize,
    /// Patterns with subscribers.
    pub patterns: usize,
}

/// Who is told of what.
#[derive(Debug)]
pub struct Broker {
    /// All changes behind the present reads come.
    is_following: bool,
    /// Clients whose command waits until that is so.
    waiting: BTreeSet<u64>,
    classes: Classes,
    /// With 0 the bytes of the table are its only limit.
    keys_max: usize,
    trackers: BTreeSet<u64>,
    table: Table,
    prefixes: Prefixes,
    channels: BTreeMap<Box<[u8]>, BTreeSet<u64>>,
    patterns: BTreeMap<Box<[u8]>, Subscribed>,
    /// Keys that have changed since the last broadcast, by prefix.
    changed: BTreeMap<Box<[u8]>, ChangedKeys>,
}

/// Keys, each with its last change.
type ChangedKeys = BTreeMap<Box<[u8]>, Position>;

/// A pattern and its subscribers.
#[derive(Debug)]
struct Subscribed {
    pattern: Pattern,
    clients: BTreeSet<u64>,
}

impl Broker {
    /// A broker that tells events of these classes.
    #[must_use]
    pub fn new(classes: Classes) -> Self {
        Self {
            is_following: false,
            waiting: BTreeSet::new(),
            classes,
            keys_max: TRACKED_KEYS_MAX,
            trackers: BTreeSet::new(),
            table: Table::default(),
            prefixes: Prefixes::default(),
            channels: BTreeMap::new(),
            patterns: BTreeMap::new(),
            changed: BTreeMap::new(),
        }
    }

    /// What there is.
    #[must_use]
    pub fn counts(&self) -> BrokerCounts {
        BrokerCounts {
            tracking_clients: self.trackers.len(),
            tracked_keys: self.table.keys(),
            tracked_items: self.table.items(),
            prefixes: self.prefixes.len(),
            channels: self.channels.len(),
            patterns: self.patterns.len(),
        }
    }

    /// Whether a client needs the stream of changes.
    #[must_use]
    pub fn needs_stream(&self) -> bool {
        let subscribed = !self.channels.is_empty() || !self.patterns.is_empty();
        subscribed || !self.trackers.is_empty() || !self.waiting.is_empty()
    }

    /// Whether a client's command waits for the stream.
    #[must_use]
    pub fn is_awaited(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// The events that are told.
    #[must_use]
    pub fn classes(&self) -> Classes {
        self.classes
    }

    pub(crate) fn set_classes(&mut self, classes: Classes) {
        self.classes = classes;
    }

    pub(crate) fn keys_max(&self) -> usize {
        self.keys_max
    }

    pub(crate) fn set_keys_max(&mut self, keys_max: usize) {
        self.keys_max = keys_max;
    }

    /// Whether the stream is there.
    pub(crate) fn is_following(&self) -> bool {
        self.is_following
    }

    /// Whether the stream is there. If not, the client is told when it is.
    pub(crate) fn is_following_for(&mut self, client: u64) -> bool {
        if !self.is_following {
            self.waiting.insert(client);
        }
        self.is_following
    }

    /// The stream has begun: what happens behind a read from now on comes.
    pub fn on_begin(&mut self, clients: &mut dyn Clients) {
        self.is_following = true;
        // Who tracks by broadcast may have read something meanwhile, and reads now.
        self.tell_all_trackers(Position::from_u64(u64::MAX), true, clients);
        self.end_waiting(&Ok(()), clients);
    }

    /// The stream goes on where it was lost.
    pub fn on_resume(&mut self, clients: &mut dyn Clients) {
        self.is_following = true;
        self.end_waiting(&Ok(()), clients);
    }

    /// The stream is lost for now, or events of it are.
    pub fn on_lost(&mut self, clients: &mut dyn Clients) {
        if !std::mem::replace(&mut self.is_following, false) {
            return;
        }
        self.table.clear();
        self.changed.clear();
        self.tell_all_trackers(Position::from_u64(u64::MAX), false, clients);
    }

    /// Commands that wait for the stream fail.
    pub fn on_refused(&mut self, why: &str, clients: &mut dyn Clients) {
        self.end_waiting(&Err(why.to_owned()), clients);
    }

    fn end_waiting(&mut self, result: &Result<(), String>, clients: &mut dyn Clients) {
        for client in std::mem::take(&mut self.waiting) {
            clients.with(client, &mut |connection| {
                connection.executor().on_stream(self, result.clone());
            });
        }
    }

    /// Whatever they know is invalid, and what they are about to hear as of before `at`.
    fn tell_all_trackers(&mut self, at: Position, broadcast_only: bool, clients: &mut dyn Clients) {
        for &client in &self.trackers {
            let mut is_meant = false;
            clients.with(client, &mut |connection| {
                is_meant = connection.executor().note_all_invalid(at, broadcast_only);
            });
            if is_meant {
                invalidate(client, None, clients);
            }
        }
    }

    /// Something has changed.
    pub fn on_change(&mut self, change: &KeyChange<'_>, clients: &mut dyn Clients) {
        let at = change.position;
        let key = match change.change {
            Change::Written { key, .. } | Change::Removed { key } | Change::Expired { key } => key,
            Change::Flushed => {
                self.table.clear();
                self.changed.clear();
                return self.tell_all_trackers(at, false, clients);
            }
        };
        let mut told = Vec::new();
        self.table.change(key, at, &mut told);
        for client in told {
            tell(client, &[(key, at)], clients);
        }
        let mut prefixes = Vec::new();
        self.prefixes.find(key, &mut prefixes);
        for prefix in prefixes {
            let changed = self.changed.entry(prefix.into()).or_default();
            changed.insert(key.into(), at);
        }
        for (class, name) in names(change.command, &change.change).into_iter().flatten() {
            self.publish_event(class, name, key, clients);
        }
    }

    /// The changes that came together have come: they are broadcast, in one message for each prefix.
    pub fn on_changes_end(&mut self, clients: &mut dyn Clients) {
        for (prefix, keys) in std::mem::take(&mut self.changed) {
            let keys: Vec<(&[u8], Position)> =
                keys.iter().map(|(key, at)| (&key[..], *at)).collect();
            for client in self.prefixes.clients(&prefix) {
                tell(client, &keys, clients);
            }
        }
        self.trim(clients);
    }

    /// Brings the table back to its limits.
    pub fn trim(&mut self, clients: &mut dyn Clients) {
        while self.table.is_beyond(self.keys_max)
            && let Some((key, told)) = self.table.evict()
        {
            for client in told {
                invalidate(client, Some(&[&key]), clients);
            }
        }
    }

    /// Whether the table has more than its limits.
    #[must_use]
    pub fn is_beyond(&self) -> bool {
        self.table.is_beyond(self.keys_max)
    }

    /// The call of a client is over: its replies are written, and `position` is what its answer has seen. Invalidations
    /// that came too early are repeated.
    pub fn on_answer(&mut self, client: u64, position: Position, clients: &mut dyn Clients) {
        if !self.trackers.contains(&client) {
            return;
        }
        let mut late = Late::default();
        clients.with(client, &mut |connection| {
            late = connection.executor().take_late(position)
        });
        let Late {
            read,
            broadcast,
            seen,
            all,
            keys,
        } = late;
        let uncovered: Vec<&[u8]> = read
            .iter()
            .map(|key| &key[..])
            .filter(|key| match broadcast {
                // If the stream has come meanwhile, it tells of every change since it was lost.
                true => !self.is_following,
                false => !self.table.settle(key, client, seen),
            })
            .collect();
        if all {
            return invalidate(client, None, clients);
        }
        for key in uncovered {
            invalidate(client, Some(&[key]), clients);
        }
        for key in &keys {
            invalidate(client, Some(&[key]), clients);
        }
    }

    /// A connection has ended. If another one was told instead of it, nobody notes any more which keys the client keeps: that
    /// one is told that all of them are invalid.
    pub fn on_end(&mut self, ended: &mut Connection, clients: &mut dyn Clients) {
        let redirection = ended.executor().redirection();
        ended.leave(self);
        assert!(
            !self.trackers.contains(&ended.id()),
            "who has gone is told of nothing"
        );
        let Some((target, user)) = redirection else {
            return;
        };
        clients.with(target, &mut |connection| {
            if connection.executor().acts_as(user) {
                connection.executor().push_invalidation(None, true);
            }
        });
    }

    /// A client that tracks is about to read a key.
    pub(crate) fn register(&mut self, key: &[u8], client: u64) {
        if self.is_following {
            self.table.register(key, client);
        }
    }

    pub(crate) fn track(&mut self, client: u64, prefixes: &[Vec<u8>]) {
        self.trackers.insert(client);
        for prefix in prefixes {
            self.prefixes.add(prefix, client);
        }
    }

    /// Whether there is room for prefixes of a client that has none of them yet.
    pub(crate) fn has_room_for_prefixes(&self, count: usize) -> bool {
        self.prefixes.len() + count <= PREFIXES_MAX
    }

    pub(crate) fn untrack<'a>(&mut self, client: u64, prefixes: impl Iterator<Item = &'a Vec<u8>>) {
        prefixes.for_each(|prefix| self.prefixes.remove(prefix, client));
        assert!(self.trackers.remove(&client), "the client tracks");
        if self.trackers.is_empty() {
            assert_eq!(self.prefixes.len(), 0, "prefixes are those of trackers");
            // The remaining entries belong to clients that have gone.
            self.table.clear();
        }
    }

    pub(crate) fn subscribe(&mut self, channel: &[u8], client: u64) {
        let clients = self.channels.entry(channel.into()).or_default();
        clients.insert(client);
    }

    pub(crate) fn unsubscribe(&mut self, channel: &[u8], client: u64) {
        let clients = self.channels.get_mut(channel);
        let clients = clients.expect("a client has subscribed to it");
        assert!(clients.remove(&client), "this client has");
        if clients.is_empty() {
            self.channels.remove(channel);
        }
    }

    /// False if there are as many patterns as there may be: each is compared with each event.
    pub(crate) fn subscribe_pattern(&mut self, pattern: Pattern, text: &[u8], client: u64) -> bool {
        if self.patterns.len() >= PATTERNS_MAX && !self.patterns.contains_key(text) {
            return false;
        }
        let subscribed = self.patterns.entry(text.into());
        let subscribed = subscribed.or_insert_with(|| Subscribed {
            pattern,
            clients: BTreeSet::new(),
        });
        subscribed.clients.insert(client);
        true
    }

    pub(crate) fn unsubscribe_pattern(&mut self, text: &[u8], client: u64) {
        let subscribed = self.patterns.get_mut(text);
        let clients = &mut subscribed.expect("a client has subscribed to it").clients;
        assert!(clients.remove(&client), "this client has");
        if clients.is_empty() {
            self.patterns.remove(text);
        }
    }

    /// Channels with subscribers.
    pub(crate) fn channels(&self) -> impl Iterator<Item = &[u8]> {
        self.channels.keys().map(|channel| &channel[..])
    }

    /// How many subscribers a channel has.
    pub(crate) fn subscribers(&self, channel: &[u8]) -> usize {
        self.channels.get(channel).map_or(0, BTreeSet::len)
    }

    /// A client that has gone does not wait any more.
    pub(crate) fn stop_waiting(&mut self, client: u64) {
        self.waiting.remove(&client);
    }

    fn publish_event(
        &self,
        class: Classes,
        name: &'static str,
        key: &[u8],
        clients: &mut dyn Clients,
    ) {
        if !self.classes.has(class) {
            return;
        }
        if self.classes.has(Classes::KEYSPACE) {
            let channel = [KEYSPACE, key].concat();
            self.publish(&channel, name.as_bytes(), key, clients);
        }
        if self.classes.has(Classes::KEYEVENT) {
            let channel = [KEYEVENT, name.as_bytes()].concat();
            self.publish(&channel, key, key, clients);
        }
    }

    /// Sends a message about a key.
    fn publish(&self, channel: &[u8], text: &[u8], key: &[u8], clients: &mut dyn Clients) {
        for &client in self.channels.get(channel).into_iter().flatten() {
            clients.with(client, &mut |connection| {
                connection.executor().push_message(None, channel, text, key);
            });
        }
        for (pattern, subscribed) in &self.patterns {
            if !subscribed.pattern.fits(channel) {
                continue;
            }
            for &client in &subscribed.clients {
                clients.with(client, &mut |connection| {
                    connection
                        .executor()
                        .push_message(Some(pattern), channel, text, key);
                });
            }
        }
    }
}

/// Whether a channel is one that has messages.
pub(crate) fn has_messages(channel: &[u8]) -> bool {
    channel == INVALIDATE || channel.starts_with(KEYSPACE) || channel.starts_with(KEYEVENT)
}

/// Whether a channel can fit that has messages, if all that fit begin like this.
pub(crate) fn can_have_messages(beginning: &[u8]) -> bool {
    let meet = |channel: &[u8]| channel.starts_with(beginning) || beginning.starts_with(channel);
    INVALIDATE.starts_with(beginning) || meet(KEYSPACE) || meet(KEYEVENT)
}

/// Tells a client of changes, as far as they are its.
fn tell(client: u64, keys: &[(&[u8], Position)], clients: &mut dyn Clients) {
    let mut meant = Vec::new();
    clients.with(client, &mut |connection| {
        let is_meant =
            |(key, at): &&(&[u8], Position)| connection.executor().is_to_be_told(key, *at);
        meant = keys.iter().filter(is_meant).map(|(key, _)| *key).collect();
    });
    if !meant.is_empty() {
        invalidate(client, Some(&meant), clients);
    }
}

/// Sends an invalidation of keys, or of all, to where the client wants it.
fn invalidate(client: u64, keys: Option<&[&[u8]]>, clients: &mut dyn Clients) {
    let mut elsewhere = None;
    clients.with(client, &mut |connection| {
        elsewhere = connection.executor().redirection();
        if elsewhere.is_none() {
            connection.executor().push_invalidation(keys, false);
        }
    });
    let Some((target, user)) = elsewhere else {
        return;
    };
    let mut is_there = false;
    clients.with(target, &mut |connection| {
        is_there = connection.executor().acts_as(user);
        if is_there {
            connection.executor().push_invalidation(keys, true);
        }
    });
    if !is_there {
        clients.with(client, &mut |connection| {
            connection.executor().break_redirection();
        });
    }
}

#[cfg(test)]
mod tests;
