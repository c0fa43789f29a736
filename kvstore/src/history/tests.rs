//! The events of the history against what the store holds, and what the ring forgets.

use super::{Change, Event, History, Place};
use crate::command::{Command, ExecuteMode, Kind, Pair, SetExpiry, SetOptions};
use crate::config::HISTORY_VALUE_BYTES_MAX;
use crate::{KeyRange, Limits, List, Position, Response, Store};
use proptest::collection::vec;
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};

const LIMITS: Limits = Limits {
    memory_bytes: 4_000,
    key_bytes: 40,
    value_bytes: 60_000,
};

fn store(history_bytes: usize) -> Store {
    let mut store = Store::new(LIMITS, [1, 2]).with_ordered();
    store.keep_history(history_bytes, Position::ZERO);
    store
}

fn at(index: u64) -> Position {
    Position::new(index, 0)
}

fn put<'a>(key: &'a [u8], value: &'a [u8]) -> Command<'a> {
    Command::Put { key, value }
}

/// The changes behind a position, in words.
fn told(store: &Store, after: Position) -> Vec<String> {
    let history = store.history().unwrap();
    history.after(after).unwrap().map(in_words).collect()
}

fn in_words(event: Event<'_>) -> String {
    let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
    let change = match event.change {
        Change::Written {
            key,
            value,
            value_bytes,
            remaining_ns,
        } => {
            let value = value.map_or(format!("{value_bytes} bytes"), text);
            let remaining = remaining_ns.map_or(String::new(), |ns| format!(" for {ns}"));
            format!("{}={value}{remaining}", text(key))
        }
        Change::Removed { key } => format!("{} removed", text(key)),
        Change::Expired { key } => format!("{} expired", text(key)),
        Change::Flushed => "flushed".to_owned(),
    };
    format!("{} {:?}: {change}", event.position, event.command)
}

#[test]
fn an_event_names_its_command_and_what_has_become_of_the_key() {
    let mut store = store(1 << 20);
    store.begin_entry(at(1));
    let _ = store.apply(at(1), &put(b"a", b"1"));
    let delta = 41;
    let _ = store.apply(at(2), &Command::Increment { key: b"a", delta });
    let after_ns = 500;
    let _ = store.apply(
        at(3),
        &Command::Expire {
            key: b"a",
            after_ns,
        },
    );
    let _ = store.apply(at(4), &Command::Delete { key: b"a" });
    let _ = store.apply(at(5), &Command::Delete { key: b"a" });
    let _ = store.apply(at(6), &Command::Get { key: b"a" });
    assert_eq!(
        told(&store, Position::ZERO),
        [
            "1.0 Put: a=1",
            "2.0 Increment: a=42",
            "3.0 Expire: a=42 for 500",
            "4.0 Delete: a removed"
        ]
    );
    assert_eq!(told(&store, at(3)), ["4.0 Delete: a removed"]);
    assert!(told(&store, at(6)).is_empty());
}

#[test]
fn an_undone_exec_gives_no_event_and_a_done_one_gives_the_net_effect() {
    let mut store = store(1 << 20);
    let _ = store.apply(at(1), &put(b"a", b"1"));
    let _ = store.apply(at(2), &put(b"n", b"no number"));
    let twice = [
        put(b"a", b"2"),
        put(b"b", b"1"),
        Command::Delete { key: b"b" },
        Command::Append {
            key: b"a",
            value: b"x",
        },
        Command::Delete { key: b"n" },
    ];
    let done = Command::Execute {
        mode: ExecuteMode::AllOrNothing,
        conditions: List::default(),
        operations: List::from(&twice),
    };
    let failing = [
        put(b"a", b"3"),
        Command::Increment {
            key: b"a",
            delta: 1,
        },
        Command::Increment {
            key: b"c",
            delta: 1,
        },
    ];
    let failing = |mode| Command::Execute {
        mode,
        conditions: List::default(),
        operations: List::from(&failing),
    };
    let _ = store.apply(at(3), &done);
    assert_eq!(
        told(&store, at(2)),
        ["3.0 Append: a=2x", "3.0 Delete: n removed"]
    );
    // "n" does not count any more, so that the second operation fails.
    let _ = store.apply(at(4), &put(b"a", b"z"));
    let fails = [
        put(b"a", b"3"),
        Command::Append {
            key: b"a",
            value: b"y",
        },
        Command::Increment {
            key: b"a",
            delta: 1,
        },
    ];
    let undone = Command::Execute {
        mode: ExecuteMode::AllOrNothing,
        conditions: List::default(),
        operations: List::from(&fails),
    };
    assert!(matches!(
        store.apply(at(5), &undone),
        Response::Aborted { .. }
    ));
    assert!(told(&store, at(4)).is_empty());
    let _ = store.apply(at(6), &failing(ExecuteMode::Independent));
    assert_eq!(
        told(&store, at(5)),
        ["6.0 Increment: a=4", "6.0 Increment: c=1"]
    );
}

#[test]
fn the_sweep_comes_before_the_command_and_a_key_has_one_event() {
    let mut store = store(1 << 20);
    let with_life = SetOptions {
        expiry: SetExpiry::After(10),
        ..SetOptions::default()
    };
    for (index, key) in [&b"a"[..], b"b", b"c"].into_iter().enumerate() {
        let set = Command::Set {
            key,
            value: b"1",
            options: with_life,
        };
        let _ = store.apply(at(1 + index as u64), &set);
    }
    store.begin_entry(at(9));
    store.set_group_time(10);
    let _ = store.apply(at(9), &put(b"b", b"2"));
    let _ = store.apply(Position::new(9, 1), &put(b"a", b"2"));
    let mut events = told(&store, at(8));
    events[..2].sort();
    assert!(events[0].ends_with("a expired") && events[1].ends_with("c expired"));
    assert_eq!(events[2..], ["9.0 Put: b=2", "9.1 Put: a=2"]);
}

#[test]
fn a_write_over_an_expired_key_is_one_event_and_a_removal_of_it_says_expired() {
    let mut store = store(1 << 20);
    let limits = Limits {
        memory_bytes: 1 << 20,
        ..LIMITS
    };
    let _ = store.apply(Position::from_u64(1), &Command::SetLimits { limits });
    let options = SetOptions {
        expiry: SetExpiry::After(10),
        ..SetOptions::default()
    };
    // More than one sweep removes.
    for number in 0..200_u64 {
        let key = format!("{number:03}");
        let (key, value) = (key.as_bytes(), &b""[..]);
        let _ = store.apply(
            at(1 + number),
            &Command::Set {
                key,
                value,
                options,
            },
        );
    }
    store.begin_entry(at(300));
    store.set_group_time(10);
    let left = |store: &Store| -> Vec<String> {
        let is_there = |key: &String| store.items.find(key.as_bytes()).slot.is_some();
        (0..200)
            .map(|n| format!("{n:03}"))
            .filter(is_there)
            .collect()
    };
    let left = left(&store);
    assert!(left.len() > 2, "the sweep has left some");
    let _ = store.apply(at(300), &put(left[0].as_bytes(), b"2"));
    let _ = store.apply(
        at(301),
        &Command::Delete {
            key: left[1].as_bytes(),
        },
    );
    let events = told(&store, at(299));
    let last = &events[events.len() - 2..];
    assert_eq!(last[0], format!("300.0 Put: {}=2", left[0]));
    assert_eq!(last[1], format!("301.0 Delete: {} expired", left[1]));
}

#[test]
fn a_flush_is_one_event_and_a_removed_range_one_for_each_key() {
    let mut store = store(1 << 20);
    for (index, key) in [&b"a1"[..], b"a2", b"b1"].into_iter().enumerate() {
        let _ = store.apply(at(1 + index as u64), &put(key, b"v"));
    }
    let range = KeyRange::Prefix(b"a");
    let _ = store.apply(at(4), &Command::DeleteRange { range, count: 9 });
    let _ = store.apply(at(5), &Command::Flush);
    let _ = store.apply(at(6), &Command::Flush);
    assert_eq!(
        told(&store, at(3)),
        [
            "4.0 DeleteRange: a1 removed",
            "4.0 DeleteRange: a2 removed",
            "5.0 Flush: flushed"
        ]
    );
}

#[test]
fn a_large_value_is_left_out() {
    let mut history = History::new(1 << 20, Position::ZERO);
    history.begin(at(1), Kind::Put);
    history.written(b"k", &vec![7; HISTORY_VALUE_BYTES_MAX], None);
    history.begin(at(2), Kind::Put);
    history.written(b"k", &vec![7; HISTORY_VALUE_BYTES_MAX + 1], None);
    let lengths: Vec<_> = history
        .after(Position::ZERO)
        .unwrap()
        .map(|event| match event.change {
            Change::Written {
                value, value_bytes, ..
            } => (value.map(<[u8]>::len), value_bytes),
            _ => unreachable!("it was written"),
        })
        .collect();
    assert_eq!(lengths, [(Some(16_384), 16_384), (None, 16_385)]);
}

#[test]
fn the_ring_forgets_whole_positions_and_names_the_oldest_one() {
    let mut history = History::new(8 * 1024, Position::ZERO);
    for index in 1..=2_000 {
        history.begin(at(index), Kind::DeleteRange);
        for key in [b"a", b"b", b"c"] {
            history.removed(key, false);
        }
        assert!(history.memory_bytes() <= 8 * 1024);
        let oldest = history.oldest();
        let events: Vec<_> = history.after(oldest).unwrap().collect();
        assert_eq!(events.len() as u64, 3 * (index - oldest.index()));
        if oldest > Position::ZERO {
            let before = Position::from_u64(oldest.as_u64() - 1);
            assert_eq!(history.after(before).unwrap_err().oldest, oldest);
        }
    }
    assert!(history.oldest() > at(1_800));
}

#[test]
fn an_event_that_is_larger_than_the_history_is_kept_alone() {
    let mut history = History::new(1_024, Position::ZERO);
    for index in 1..=3 {
        history.begin(at(index), Kind::Put);
        history.written(b"key", &[1; 4_000], None);
        assert_eq!(history.oldest(), at(index - 1));
        assert_eq!(history.after(at(index - 1)).unwrap().count(), 1);
    }
}

#[test]
fn a_place_finds_what_came_after_it() {
    let mut history = History::new(8 * 1024, Position::ZERO);
    let mut place: Place = history.end();
    for index in 1..=500 {
        history.begin(at(index), Kind::Delete);
        history.removed(b"key", false);
        let mut events = history.from(place).expect("it was the end a moment ago");
        assert_eq!(events.next().unwrap().position, at(index));
        assert_eq!(events.next(), None);
        place = events.place();
        assert_eq!(place, history.end());
    }
    let old = Place {
        segment: 0,
        offset: 0,
    };
    assert!(history.from(old).is_none());
}

/// A command with everything in it owned.
#[derive(Clone, Debug)]
enum HistoryCommand {
    One(One),
    All(Vec<One>, bool),
    Many(Vec<(u8, u8)>),
    Range(u8, u32),
    Flush,
    Advance(u64),
}

#[derive(Clone, Debug)]
enum One {
    Put(u8, u8),
    Set(u8, u64),
    Delete(u8),
    Append(u8),
    Increment(u8),
    Persist(u8),
}

/// Keys have 1 byte out of a few, so that steps meet.
const KEYS: [[u8; 1]; 6] = [[0], [1], [2], [3], [4], [5]];
const VALUES: [&[u8]; 4] = [b"", b"7", b"value", &[b'x'; 700]];

impl One {
    fn command(&self) -> Command<'static> {
        let key = |number: u8| -> &'static [u8] { &KEYS[usize::from(number) % KEYS.len()] };
        let value = |number: u8| VALUES[usize::from(number) % VALUES.len()];
        match *self {
            Self::Put(k, v) => put(key(k), value(v)),
            Self::Set(k, life) => Command::Set {
                key: key(k),
                value: b"set",
                options: SetOptions {
                    expiry: SetExpiry::After(life),
                    ..SetOptions::default()
                },
            },
            Self::Delete(k) => Command::Delete { key: key(k) },
            Self::Append(k) => Command::Append {
                key: key(k),
                value: &[b'y'; 300],
            },
            Self::Increment(k) => Command::Increment {
                key: key(k),
                delta: 1,
            },
            Self::Persist(k) => Command::Persist { key: key(k) },
        }
    }
}

fn ones() -> impl Strategy<Value = One> {
    prop_oneof![
        (any::<u8>(), any::<u8>()).prop_map(|(k, v)| One::Put(k, v)),
        (any::<u8>(), 1..30_u64).prop_map(|(k, life)| One::Set(k, life)),
        any::<u8>().prop_map(One::Delete),
        any::<u8>().prop_map(One::Append),
        any::<u8>().prop_map(One::Increment),
        any::<u8>().prop_map(One::Persist),
    ]
}

fn steps() -> impl Strategy<Value = HistoryCommand> {
    prop_oneof![
        6 => ones().prop_map(HistoryCommand::One),
        3 => (vec(ones(), 0..6), any::<bool>()).prop_map(|(ones, all)| HistoryCommand::All(ones, all)),
        1 => vec((any::<u8>(), any::<u8>()), 0..6).prop_map(HistoryCommand::Many),
        1 => (0..6_u8, 1..4_u32).prop_map(|(start, count)| HistoryCommand::Range(start, count)),
        1 => Just(HistoryCommand::Flush),
        2 => (1..20_u64).prop_map(HistoryCommand::Advance),
    ]
}

/// What a watcher knows: value, version and expiry of each key.
type Mirror = BTreeMap<Vec<u8>, (Vec<u8>, Position, u64)>;

fn follow(mirror: &mut Mirror, event: &Event<'_>, now_ns: u64) {
    match event.change {
        Change::Written {
            key,
            value,
            remaining_ns,
            ..
        } => {
            let expiry_ns = remaining_ns.map_or(0, |remaining| now_ns + remaining);
            let item = (value.unwrap().to_vec(), event.position, expiry_ns);
            mirror.insert(key.to_vec(), item);
        }
        Change::Removed { key } | Change::Expired { key } => {
            let was = mirror.remove(key);
            let (_, _, expiry_ns) = was.expect("what is removed was there");
            let expired = expiry_ns != 0 && expiry_ns <= now_ns;
            assert_eq!(expired, matches!(event.change, Change::Expired { .. }));
        }
        Change::Flushed => {
            assert!(!mirror.is_empty());
            mirror.clear();
        }
    }
}

fn run(store: &mut Store, at: Position, step: &HistoryCommand) {
    match step {
        HistoryCommand::One(one) => drop(store.apply(at, &one.command())),
        HistoryCommand::All(ones, all) => {
            let operations: Vec<_> = ones.iter().map(One::command).collect();
            let mode = match all {
                true => ExecuteMode::AllOrNothing,
                false => ExecuteMode::Independent,
            };
            let execute = Command::Execute {
                mode,
                conditions: List::default(),
                operations: List::from(&operations[..]),
            };
            drop(store.apply(at, &execute));
        }
        HistoryCommand::Many(pairs) => {
            let pairs: Vec<_> = pairs
                .iter()
                .map(|&(k, v)| Pair {
                    key: &KEYS[usize::from(k) % KEYS.len()],
                    value: VALUES[usize::from(v) % VALUES.len()],
                })
                .collect();
            let pairs = List::from(&pairs[..]);
            drop(store.apply(at, &Command::MultiPut { pairs }));
        }
        HistoryCommand::Range(start, count) => {
            let range = KeyRange::Between {
                start: std::slice::from_ref(start),
                end: None,
            };
            let count = *count;
            drop(store.apply(at, &Command::DeleteRange { range, count }));
        }
        HistoryCommand::Flush => drop(store.apply(at, &Command::Flush)),
        HistoryCommand::Advance(_) => {}
    }
}

fn stored(store: &Store) -> Mirror {
    let item = |key: &[u8; 1]| {
        let item = store.items.item(store.items.find(key))?;
        let (version, expiry_ns) = (item.stamp.version, item.stamp.expiry_ns);
        Some((key.to_vec(), (item.value.to_vec(), version, expiry_ns)))
    };
    KEYS.iter().filter_map(item).collect()
}

proptest! {
    /// A reader of the events knows the store after every position, and hears of each key once.
    #[test]
    fn the_events_of_a_position_are_exactly_what_it_has_changed(list in vec((steps(), any::<bool>()), 1..60)) {
        let mut store = store(1 << 20);
        let (mut mirror, mut seen, mut now_ns) = (Mirror::new(), Position::ZERO, 0);
        let mut position = at(1);
        store.begin_entry(position);
        for (step, same_entry) in &list {
            position = match same_entry {
                true => Position::new(position.index(), position.place() + 1),
                false => at(position.index() + 1),
            };
            if let (HistoryCommand::Advance(by), false) = (step, same_entry) {
                now_ns += by;
            }
            if !same_entry {
                store.begin_entry(position);
                store.set_group_time(now_ns);
            }
            run(&mut store, position, step);
            let mut keys = BTreeSet::new();
            for event in store.history().unwrap().after(seen).unwrap() {
                prop_assert_eq!(event.position, position);
                prop_assert!(keys.insert(event.key().map(<[u8]>::to_vec)), "twice: {:?}", event);
                follow(&mut mirror, &event, now_ns);
            }
            seen = position;
            prop_assert_eq!(&mirror, &stored(&store));
        }
    }
}
