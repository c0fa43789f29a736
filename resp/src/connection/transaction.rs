//! Commands between MULTI and EXEC, and the watched keys on which EXEC depends.
//!
//! ```text
//!               begin                          take, discard, forget
//!     outside --------> queuing -----------------------------------> outside
//!                          |  queue: one more command                  ^
//!                          |                                           |
//!                          +--- refuse ---> broken --------------------+ take: EXECABORT
//! ```
//!
//! Invariant: EXEC is done only if none of its commands was refused and every WATCH before it has its versions. Queued
//! commands and watched keys stay within the limits of a connection.

use std::collections::BTreeMap;

use trine_commands::errors::Refusal;
use trine_kvstore::{Condition, Position};

use crate::limits::{Limits, QUEUED_PART_CHARGE_BYTES, WATCHED_KEY_CHARGE_BYTES};

const EXECABORT: &str = "EXECABORT Transaction discarded because of previous errors.";

/// The transaction of one connection.
#[derive(Default, Debug)]
pub(super) struct Transaction {
    queue: Option<Queue>,
    watched: Versions,
    /// A WATCH was answered with an error: the next EXEC would not have the conditions that its client expects.
    watch_failed: bool,
}

/// Keys with their versions; none for a key that was absent.
type Versions = BTreeMap<Vec<u8>, Option<Position>>;

#[derive(Default, Debug)]
struct Queue {
    commands: Vec<Vec<Vec<u8>>>,
    /// Bytes that the commands count.
    bytes: usize,
    /// A command was refused: EXEC will be, too.
    is_broken: bool,
}

/// What EXEC does.
#[derive(Debug)]
pub(super) struct Ready {
    commands: Vec<Vec<Vec<u8>>>,
    watched: Versions,
}

impl Ready {
    /// The commands, each as its parts.
    pub(super) fn commands(&self) -> Vec<Vec<&[u8]>> {
        let commands = self.commands.iter();
        commands
            .map(|parts| parts.iter().map(Vec::as_slice).collect())
            .collect()
    }

    /// The watched keys are as they were.
    pub(super) fn conditions(&self) -> Vec<Condition<'_>> {
        let watched = self.watched.iter();
        watched
            .map(|(key, version)| match *version {
                Some(version) => Condition::VersionIs { key, version },
                None => Condition::Absent { key },
            })
            .collect()
    }
}

impl Transaction {
    /// Whether commands are queued.
    pub(super) fn is_open(&self) -> bool {
        self.queue.is_some()
    }

    /// MULTI. False if there is a transaction already.
    pub(super) fn begin(&mut self) -> bool {
        let begins = self.queue.is_none();
        self.queue.get_or_insert_default();
        begins
    }

    /// A command was refused; if that was between MULTI and EXEC, the whole transaction is.
    pub(super) fn refuse(&mut self) {
        if let Some(queue) = &mut self.queue {
            queue.is_broken = true;
        }
    }

    /// Keeps a command for EXEC.
    pub(super) fn queue(&mut self, parts: &[&[u8]], limits: &Limits) -> Result<(), Refusal> {
        let queue = self.queue.as_mut().expect("MULTI was said");
        let charge = |part: &&[u8]| part.len() + QUEUED_PART_CHARGE_BYTES;
        let bytes: usize = parts.iter().map(charge).sum();
        if queue.commands.len() >= limits.transaction_commands
            || queue.bytes + bytes > limits.query_bytes
        {
            queue.is_broken = true;
            return Err("ERR the transaction is too large".to_owned());
        }
        queue.bytes += bytes;
        let owned = parts.iter().map(|part| part.to_vec()).collect();
        queue.commands.push(owned);
        Ok(())
    }

    /// DISCARD. False if there is no transaction.
    pub(super) fn discard(&mut self) -> bool {
        let is_open = self.is_open();
        if is_open {
            self.forget();
        }
        is_open
    }

    /// No command is queued and no key is watched any more.
    pub(super) fn forget(&mut self) {
        *self = Self::default();
    }

    /// EXEC: the transaction ends, and this is what it does.
    pub(super) fn take(&mut self) -> Result<Ready, Refusal> {
        if !self.is_open() {
            return Err("ERR EXEC without MULTI".to_owned());
        }
        let ended = std::mem::take(self);
        let queue = ended.queue.expect("it is open");
        match queue.is_broken || ended.watch_failed {
            true => Err(EXECABORT.to_owned()),
            false => Ok(Ready {
                commands: queue.commands,
                watched: ended.watched,
            }),
        }
    }

    /// Whether these keys may be watched, too. They are kept until the transaction ends, and are bounded as its commands
    /// are.
    pub(super) fn may_watch(&mut self, keys: &[&[u8]], limits: &Limits) -> bool {
        let new = || keys.iter().filter(|&&key| !self.watched.contains_key(key));
        let bytes = self.watched.keys().map(Vec::len).sum::<usize>();
        let has_room = self.watched.len() + new().count() <= limits.transaction_commands
            && bytes + new().map(|key| key.len()).sum::<usize>() <= limits.query_bytes;
        self.watch_failed |= !has_room;
        has_room
    }

    /// These keys are watched. One that is watched already counts from the first time.
    pub(super) fn on_watched(&mut self, keys: impl Iterator<Item = (Vec<u8>, Option<Position>)>) {
        for (key, version) in keys {
            self.watched.entry(key).or_insert(version);
        }
    }

    /// The versions of keys that were to be watched are not known.
    pub(super) fn on_watch_failed(&mut self) {
        self.watch_failed = true;
    }

    /// UNWATCH.
    pub(super) fn unwatch(&mut self) {
        self.watched.clear();
        self.watch_failed = false;
    }

    /// How many keys are watched.
    pub(super) fn watched(&self) -> usize {
        self.watched.len()
    }

    /// Bytes that the queued commands and the watched keys count.
    pub(super) fn held_bytes(&self) -> usize {
        let queued = self.queue.as_ref().map_or(0, |queue| queue.bytes);
        let of_key = |key: &Vec<u8>| key.len() + WATCHED_KEY_CHARGE_BYTES;
        queued + self.watched.keys().map(of_key).sum::<usize>()
    }
}
