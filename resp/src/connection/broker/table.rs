//! The table of tracking's default mode: the keys that clients have read, and up to where they know them.
//!
//! An entry is made before its read goes to the group. So no change behind the read can be missed:
//!
//! ```text
//!              register                 settle (answered at P, not changed behind P)
//! (no entry) ----------> reading ---------------------------------------------------> known up to P
//!      ^                    |                                                               |
//!      |                    | settle (changed behind P, or no entry any more):              | changed behind P:
//!      +--------------------+ the client is told behind its answer                          | the client is told
//!      +------------------------------------------------------------------------------------+
//! ```
//! A change up to P is in the value that the client has, and tells it nothing new.
//!
//! Invariant: each key has a reader. `items` counts the pairs of a key and a reader, and `bytes` what all of them are charged
//! with.

use std::collections::BTreeMap;
use std::ops::Bound;

use trine_kvstore::Position;

use crate::limits::{TRACKED_BYTES_MAX, TRACKED_CLIENT_CHARGE_BYTES, TRACKED_KEY_CHARGE_BYTES};

/// Keys and those who have read them.
#[derive(Default, Debug)]
pub(super) struct Table {
    keys: BTreeMap<Box<[u8]>, Readers>,
    /// Pairs of a key and a client.
    items: usize,
    bytes: usize,
    /// The key that was pushed out last: the next one is behind it.
    hand: Box<[u8]>,
}

/// Most keys have one reader, and no map of their own.
#[derive(Debug)]
enum Readers {
    One(u64, Hold),
    Many(BTreeMap<u64, Hold>),
}

/// The knowledge of a client about a key.
#[derive(Clone, Copy, Default, Debug)]
struct Hold {
    /// It has the value as of here; none before its first answer.
    seen: Option<Position>,
    /// A read is not answered yet.
    reading: bool,
    /// The last change since that read began.
    changed: Option<Position>,
}

impl Hold {
    /// Notes a change. Says whether the client has to be told now, and whether the entry stays.
    fn change(&mut self, at: Position) -> (bool, bool) {
        let told = self.seen.is_some_and(|seen| at > seen);
        if told {
            self.seen = None;
        }
        if self.reading {
            self.changed = self.changed.max(Some(at));
        }
        (told, self.reading || self.seen.is_some())
    }
}

impl Readers {
    fn get_mut(&mut self, client: u64) -> Option<&mut Hold> {
        match self {
            Self::One(only, hold) => (*only == client).then_some(hold),
            Self::Many(all) => all.get_mut(&client),
        }
    }

    /// The client's entry, which is made if there is none. True if it was made.
    fn entry(&mut self, client: u64) -> (&mut Hold, bool) {
        if let Self::One(only, hold) = *self
            && only != client
        {
            *self = Self::Many(BTreeMap::from([(only, hold)]));
        }
        match self {
            Self::One(_, hold) => (hold, false),
            Self::Many(all) => {
                let before = all.len();
                all.entry(client).or_default();
                let is_new = all.len() > before;
                (all.get_mut(&client).expect("it was just made"), is_new)
            }
        }
    }

    /// Removes entries, and says how many there are now.
    fn retain(&mut self, mut keeps: impl FnMut(u64, &mut Hold) -> bool) -> usize {
        match self {
            Self::One(only, hold) => usize::from(keeps(*only, hold)),
            Self::Many(all) => {
                all.retain(|client, hold| keeps(*client, hold));
                all.len()
            }
        }
    }

    fn len(&self) -> usize {
        match self {
            Self::One(..) => 1,
            Self::Many(all) => all.len(),
        }
    }
}

impl Table {
    /// How many keys there are.
    pub(super) fn keys(&self) -> usize {
        self.keys.len()
    }

    /// How many pairs of a key and a client there are.
    pub(super) fn items(&self) -> usize {
        self.items
    }

    /// A client is about to read the key. Far beyond its limit the table takes nothing; the client is told behind the
    /// answer then, as of every key without an entry.
    pub(super) fn register(&mut self, key: &[u8], client: u64) {
        if self.bytes > 2 * TRACKED_BYTES_MAX {
            return;
        }
        if let Some(readers) = self.keys.get_mut(key) {
            let (hold, is_new) = readers.entry(client);
            hold.reading = true;
            if is_new {
                self.items += 1;
                self.bytes += TRACKED_CLIENT_CHARGE_BYTES;
            }
            return;
        }
        let hold = Hold {
            reading: true,
            ..Hold::default()
        };
        self.keys.insert(key.into(), Readers::One(client, hold));
        self.items += 1;
        self.bytes += charge(key) + TRACKED_CLIENT_CHARGE_BYTES;
    }

    /// The read is answered with the value as of `seen`. False if the value is not the last one, or later changes of it
    /// would not be noticed: the client has to be told.
    pub(super) fn settle(&mut self, key: &[u8], client: u64, seen: Position) -> bool {
        let Some(hold) = self
            .keys
            .get_mut(key)
            .and_then(|readers| readers.get_mut(client))
        else {
            return false;
        };
        hold.reading = false;
        if hold.changed.take().is_some_and(|changed| changed > seen) {
            self.retain(key, |other, _| other != client);
            return false;
        }
        hold.seen = hold.seen.max(Some(seen));
        true
    }

    /// The key has changed. Puts those into `told` who have an older value.
    pub(super) fn change(&mut self, key: &[u8], at: Position, told: &mut Vec<u64>) {
        self.retain(key, |client, hold| {
            let (is_told, stays) = hold.change(at);
            if is_told {
                told.push(client);
            }
            stays
        });
    }

    /// Removes readers of a key, and the key with the last one.
    fn retain(&mut self, key: &[u8], keeps: impl FnMut(u64, &mut Hold) -> bool) {
        let Some(readers) = self.keys.get_mut(key) else {
            return;
        };
        let before = readers.len();
        let after = readers.retain(keeps);
        self.items -= before - after;
        self.bytes -= (before - after) * TRACKED_CLIENT_CHARGE_BYTES;
        if after == 0 {
            self.keys.remove(key);
            self.bytes -= charge(key);
        }
        assert!(self.items >= self.keys.len(), "each key has a reader");
        if self.keys.is_empty() {
            assert_eq!(
                (self.items, self.bytes),
                (0, 0),
                "nothing is charged for nothing"
            );
        }
    }

    /// Whether there are more keys than `keys_max`, where 0 is no limit, or too many bytes of them.
    pub(super) fn is_beyond(&self, keys_max: usize) -> bool {
        self.bytes > TRACKED_BYTES_MAX || (keys_max > 0 && self.keys.len() > keys_max)
    }

    /// Removes one of the keys, in turn. Says which one, and who knew a value of it.
    pub(super) fn evict(&mut self) -> Option<(Box<[u8]>, Vec<u64>)> {
        let behind = (Bound::Excluded(&self.hand[..]), Bound::Unbounded);
        let next = self.keys.range::<[u8], _>(behind).next();
        let (key, _) = next.or_else(|| self.keys.first_key_value())?;
        let key = key.clone();
        let mut told = Vec::new();
        self.retain(&key, |client, hold| {
            if hold.seen.is_some() {
                told.push(client);
            }
            false
        });
        self.hand.clone_from(&key);
        Some((key, told))
    }

    /// Removes everything.
    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }
}

fn charge(key: &[u8]) -> usize {
    key.len() + TRACKED_KEY_CHARGE_BYTES
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(index: u64) -> Position {
        Position::new(index, 0)
    }

    fn told(table: &mut Table, key: &[u8], position: u64) -> Vec<u64> {
        let mut told = Vec::new();
        table.change(key, at(position), &mut told);
        told
    }

    #[test]
    fn a_reader_is_told_of_the_first_change_behind_its_value_and_of_no_other() {
        let mut table = Table::default();
        table.register(b"k", 1);
        assert!(table.settle(b"k", 1, at(5)));
        assert_eq!(told(&mut table, b"k", 5), [], "it is in the value");
        assert_eq!(told(&mut table, b"other", 6), []);
        assert_eq!(told(&mut table, b"k", 6), [1]);
        assert_eq!(told(&mut table, b"k", 7), [], "it has not read again");
        assert_eq!((table.keys(), table.items(), table.bytes), (0, 0, 0));
    }

    /// The change came while the read was unanswered. The answer may have an older value, which no later event is about.
    #[test]
    fn a_change_between_the_read_and_its_answer_is_told_behind_the_answer() {
        for (changed, answered, covered) in [(6, 5, false), (6, 6, true), (5, 6, true)] {
            let mut table = Table::default();
            table.register(b"k", 1);
            assert_eq!(told(&mut table, b"k", changed), [], "it has no value yet");
            assert_eq!(
                table.settle(b"k", 1, at(answered)),
                covered,
                "{changed} {answered}"
            );
            let expected: &[u64] = if covered { &[1] } else { &[] };
            assert_eq!(told(&mut table, b"k", 9), expected);
            assert_eq!(table.bytes, 0);
        }
    }

    /// The client has an older value of its own when it reads again: it is told of that one at once.
    #[test]
    fn an_older_value_is_invalid_at_once_while_a_newer_one_is_read() {
        let mut table = Table::default();
        table.register(b"k", 1);
        assert!(table.settle(b"k", 1, at(3)));
        table.register(b"k", 1);
        assert_eq!(told(&mut table, b"k", 4), [1]);
        assert!(!table.settle(b"k", 1, at(3)), "and once more");
    }

    #[test]
    fn without_an_entry_an_answer_is_not_covered() {
        let mut table = Table::default();
        table.register(b"k", 1);
        table.clear();
        assert!(!table.settle(b"k", 1, at(3)));
        table.register(b"k", 1);
        assert!(!table.settle(b"k", 2, at(3)), "it is another's");
    }

    #[test]
    fn keys_are_pushed_out_in_turn_and_their_readers_are_told() {
        let mut table = Table::default();
        for key in [b"a", b"b", b"c"] {
            for client in 1..=2 {
                table.register(key, client);
                assert!(table.settle(key, client, at(1)));
            }
        }
        table.register(b"d", 3);
        assert!(table.is_beyond(3) && !table.is_beyond(4) && !table.is_beyond(0));
        let mut order = Vec::new();
        while let Some((key, told)) = table.evict() {
            order.push((String::from_utf8_lossy(&key).into_owned(), told));
            table.register(b"a", 9);
            if order.len() == 5 {
                break;
            }
        }
        let is = |key: &str, told: &[u64]| (key.to_owned(), told.to_vec());
        assert_eq!(
            order,
            [
                is("a", &[1, 2]),
                is("b", &[1, 2]),
                is("c", &[1, 2]),
                // These readers have no answer yet.
                is("d", &[]),
                is("a", &[]),
            ]
        );
        assert_eq!((table.keys(), table.items()), (1, 1));
    }
}
