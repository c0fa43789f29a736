//! What each position of the log has changed: the reference for watches.
//!
//! It applies the log that the replicas have applied to a store of its own, and compares the items before and behind each
//! position. So it asks nothing that keeps a history of changes.

use siphasher::sip::SipHasher13;
use std::collections::BTreeMap;
use std::hash::Hasher;
use trine_kvstore::{Command, Cursor, Found, Kind, Position, Prefix, Response, Store, WalkContent};
use trine_replica::replay::{AppliedEntry, Replay};

/// What has become of a key.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// It has this value.
    Written {
        /// Of the value: [`digest`].
        value: u64,
        /// Its length.
        bytes: usize,
        /// Its time to live.
        remaining_ns: Option<u64>,
    },
    /// A command has removed it.
    Removed,
    /// The sweep has.
    Expired,
    /// A command has removed all keys.
    Flushed,
}

/// The net effect of one position on one key, or on all of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// Where.
    pub position: u64,
    /// When a replica was first seen to have applied it.
    pub seen_ns: u64,
    /// The key; none for all.
    pub key: Option<Vec<u8>>,
    /// What has become of it.
    pub effect: Effect,
    /// The command. None if it is any of those of an EXEC.
    pub command: Option<Kind>,
}

/// A checksum of a value.
pub fn digest(value: &[u8]) -> u64 {
    let mut hasher = SipHasher13::new();
    hasher.write(value);
    hasher.finish()
}

/// All changes of a group so far.
#[derive(Debug, Default)]
pub struct Changes {
    /// Nothing before the group has begun.
    replay: Option<Replay>,
    book: Book,
}

#[derive(Debug, Default)]
struct Book {
    items: BTreeMap<Vec<u8>, Item>,
    /// When the next item expires.
    soonest_ns: Option<u64>,
    list: Vec<Change>,
    /// All changes up to here are in the list.
    position: u64,
}

/// An item of a store, by what others can see of it.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) struct Item {
    version: Position,
    effect: Effect,
}

impl Changes {
    /// Entries that a replica has applied, one after the other. Those that another one has applied before are known.
    ///
    /// # Panics
    /// If one comes before its predecessor has come from any replica.
    pub fn note(
        &mut self,
        entries: &[AppliedEntry],
        begin: impl FnOnce() -> Option<Replay>,
        now_ns: u64,
    ) {
        if entries.is_empty() {
            return;
        }
        if self.replay.is_none() {
            self.replay = begin();
        }
        let Some(replay) = &mut self.replay else {
            return;
        };
        for entry in entries {
            let next = replay.next_index();
            assert!(entry.index <= next, "entry {} before {next}", entry.index);
            if entry.index == next {
                let book = &mut self.book;
                replay.apply(entry, |at, command, store| {
                    book.step(at.as_u64(), command, store, now_ns);
                });
                book.position = replay.position().as_u64();
            }
        }
    }

    /// The changes, in the order of their positions. Those of one position have no order.
    pub fn list(&self) -> &[Change] {
        &self.book.list
    }

    /// All changes up to here are known.
    pub fn position(&self) -> u64 {
        self.book.position
    }
}

impl Book {
    fn step(&mut self, at: u64, command: Option<&Command<'_>>, store: &Store, now_ns: u64) {
        let has_expired = |soonest: u64| soonest <= store.group_time();
        match command {
            None if self.soonest_ns.is_some_and(has_expired) => {
                self.compare_all((at, now_ns), None, store);
            }
            None => {}
            Some(command) if command.is_read_only() => {}
            Some(command) => match only_key(command) {
                Some(key) => self.compare((at, now_ns), command, key, store),
                None => self.compare_all((at, now_ns), Some(command), store),
            },
        }
        self.soonest_ns = store.next_expiry();
        self.position = at;
    }

    fn compare(&mut self, at: (u64, u64), command: &Command<'_>, key: &[u8], store: &Store) {
        let now = item_of(store, key);
        let version = |item: &Item| item.version;
        if self.items.get(key).map(version) == now.as_ref().map(version) {
            return;
        }
        let effect = now.map_or(Effect::Removed, |item| item.effect);
        self.push(at, Some(command.kind()), Some(key.to_vec()), effect);
        match now {
            Some(item) => drop(self.items.insert(key.to_vec(), item)),
            None => drop(self.items.remove(key)),
        }
    }

    /// Without a command it was the sweep.
    fn compare_all(&mut self, at: (u64, u64), command: Option<&Command<'_>>, store: &Store) {
        let items = items_of(store);
        let before = std::mem::replace(&mut self.items, items.clone());
        let kind = match command {
            None => Some(Kind::Expire),
            Some(Command::Execute { .. }) => None,
            Some(command) => Some(command.kind()),
        };
        if matches!(command, Some(Command::Flush)) {
            if items.is_empty() && !before.is_empty() {
                self.push(at, kind, None, Effect::Flushed);
            }
            return;
        }
        let gone = match command {
            None => Effect::Expired,
            Some(_) => Effect::Removed,
        };
        for key in before.keys().filter(|key| !items.contains_key(*key)) {
            self.push(at, kind, Some(key.clone()), gone);
        }
        for (key, item) in &items {
            if before
                .get(key)
                .is_none_or(|old| old.version != item.version)
            {
                self.push(at, kind, Some(key.clone()), item.effect);
            }
        }
    }

    fn push(
        &mut self,
        (position, seen_ns): (u64, u64),
        command: Option<Kind>,
        key: Option<Vec<u8>>,
        effect: Effect,
    ) {
        // The sweep of an entry shares the position of its first command: if that writes a swept key, the write is the net
        // effect.
        if matches!(effect, Effect::Written { .. }) {
            let of_this = self
                .list
                .partition_point(|change| change.position < position);
            let swept = self.list[of_this..]
                .iter()
                .position(|change| change.key == key && change.effect == Effect::Expired);
            if let Some(swept) = swept {
                self.list.remove(of_this + swept);
            }
        }
        self.list.push(Change {
            position,
            seen_ns,
            key,
            effect,
            command,
        });
    }
}

/// The key of a command that can change no other one.
fn only_key<'a>(command: &Command<'a>) -> Option<&'a [u8]> {
    match command {
        Command::Put { key, .. }
        | Command::Delete { key }
        | Command::Set { key, .. }
        | Command::GetDelete { key }
        | Command::CompareAndSwap { key, .. }
        | Command::Increment { key, .. }
        | Command::Append { key, .. }
        | Command::Expire { key, .. }
        | Command::ExpireIf { key, .. }
        | Command::ExpireIfBeyond { key, .. }
        | Command::Persist { key } => Some(key),
        _ => None,
    }
}

fn item_of(store: &Store, key: &[u8]) -> Option<Item> {
    let Response::Value { value, version } = store.read(&Command::Get { key }) else {
        return None;
    };
    let Response::TimeToLive { remaining_ns } = store.read(&Command::TimeToLive { key }) else {
        return None;
    };
    Some(item(value, version, remaining_ns))
}

/// All items of a store, found by a walk.
pub(super) fn items_of(store: &Store) -> BTreeMap<Vec<u8>, Item> {
    let mut items = BTreeMap::new();
    walk(store, |key, value, version, remaining_ns| {
        items.insert(key.to_vec(), item(value, version, remaining_ns));
    });
    items
}

/// Shows each item: key, value, version, and the time that it has left.
pub fn walk(store: &Store, mut show: impl FnMut(&[u8], &[u8], Position, Option<u64>)) {
    let mut from = Cursor::START;
    loop {
        let walk = Command::Walk {
            from,
            count: 0,
            content: WalkContent::Items,
            prefix: Prefix(b""),
        };
        let Response::Page(page) = store.read(&walk) else {
            panic!("a walk is answered with a page");
        };
        let Found::Items(found) = &page.found else {
            panic!("items were asked for");
        };
        for entry in found.iter() {
            show(entry.key, entry.value, entry.version, entry.remaining_ns);
        }
        if page.next == Cursor::START {
            return;
        }
        from = page.next;
    }
}

fn item(value: &[u8], version: Position, remaining_ns: Option<u64>) -> Item {
    let effect = Effect::Written {
        value: digest(value),
        bytes: value.len(),
        remaining_ns,
    };
    Item { version, effect }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use trine_kvstore::{ExecuteMode, Limits, List, SetExpiry, SetOptions};

    /// The changes of commands on a store, each the first of an entry at the group time in front of it.
    pub(crate) fn changes_of(commands: &[(u64, Command<'_>)]) -> Changes {
        let mut store = Store::new(Limits::default(), [1, 2]);
        let mut book = Book::default();
        for (index, (time_ns, command)) in (1..).zip(commands) {
            let at = Position::new(index, 0);
            store.set_group_time(*time_ns);
            book.step(at.as_u64(), None, &store, index);
            store.apply(at, command);
            book.step(at.as_u64(), Some(command), &store, index);
        }
        Changes { replay: None, book }
    }

    fn told(commands: &[(u64, Command<'_>)]) -> Vec<(u64, String)> {
        let changes = changes_of(commands);
        let words = |change: &Change| {
            let key = change.key.as_deref().unwrap_or(b"all");
            let effect = match change.effect {
                Effect::Written { bytes, .. } => format!("has {bytes}"),
                other => format!("{other:?}"),
            };
            let text = format!("{} {effect}", String::from_utf8_lossy(key));
            (change.position >> 16, text)
        };
        changes.list().iter().map(words).collect()
    }

    fn put(key: &'static [u8]) -> Command<'static> {
        Command::Put { key, value: b"v" }
    }

    fn put_for(key: &'static [u8], after_ns: u64) -> Command<'static> {
        let expiry = SetExpiry::After(after_ns);
        Command::Set {
            key,
            value: b"vw",
            options: SetOptions {
                expiry,
                ..SetOptions::default()
            },
        }
    }

    #[test]
    fn what_changes_nothing_is_no_change() {
        let commands = [
            (1, put(b"a")),
            (1, Command::Delete { key: b"b" }),
            (1, Command::Get { key: b"a" }),
            (1, Command::Delete { key: b"a" }),
            (1, Command::Flush),
        ];
        let expected = [(1, "a has 1".to_owned()), (4, "a Removed".to_owned())];
        assert_eq!(told(&commands), expected);
        // A key that is not written has less time left all the same.
        let kept = [
            (1, put_for(b"a", 90)),
            (
                2,
                Command::Append {
                    key: b"b",
                    value: b"v",
                },
            ),
        ];
        let conflict = Command::CompareAndSwap {
            key: b"a",
            expected: Position::ZERO,
            value: b"",
        };
        let told = told(&[kept[0].clone(), kept[1].clone(), (3, conflict)]);
        assert_eq!(told.len(), 2, "{told:?}");
    }

    #[test]
    fn a_swept_key_that_is_written_at_once_was_written() {
        let commands = [
            (1, put_for(b"a", 10)),
            (1, put_for(b"b", 10)),
            (20, put(b"a")),
            (21, Command::Flush),
        ];
        let expected = [
            (1, "a has 2"),
            (2, "b has 2"),
            (3, "b Expired"),
            (3, "a has 1"),
            (4, "all Flushed"),
        ]
        .map(|(index, words)| (index, words.to_owned()));
        assert_eq!(told(&commands), expected);
    }

    #[test]
    fn an_exec_has_one_change_for_each_key_that_is_another_one() {
        fn exec<'a>(operations: &'a [Command<'a>]) -> Command<'a> {
            Command::Execute {
                mode: ExecuteMode::AllOrNothing,
                conditions: List::default(),
                operations: List::from(operations),
            }
        }
        let operations = [
            put(b"a"),
            put(b"b"),
            Command::Delete { key: b"b" },
            put(b"a"),
        ];
        assert_eq!(told(&[(1, exec(&operations))]), [(1, "a has 1".to_owned())]);
        let undone = [
            put(b"a"),
            Command::CompareAndSwap {
                key: b"c",
                expected: Position::ZERO,
                value: b"",
            },
        ];
        assert_eq!(told(&[(1, exec(&undone))]), []);
    }
}
