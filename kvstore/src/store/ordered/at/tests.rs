//! Scans at a pin against the state of that pin, whatever happens meanwhile; nothing stays behind.

use crate::codec::List;
use crate::config::{PIN_TTL_NS, SCAN_KEYS_MAX};
use crate::store::ordered::tests::copy;
use crate::{
    Command, Condition, ExecuteMode, KeyRange, Limits, PinOwner, Position, Response, ScanOptions,
    SetCondition, SetExpiry, SetOptions, SnapshotReader, SnapshotStep, Store, StoreError,
};
use proptest::collection::vec;
use proptest::prelude::*;
use std::collections::BTreeMap;

const ALL: KeyRange<'static> = KeyRange::Prefix(b"");

type State = BTreeMap<Vec<u8>, (Vec<u8>, Position)>;

/// A store that gets its commands one log entry each.
struct LoggedStore {
    store: Store,
    index: u64,
}

impl LoggedStore {
    fn new() -> Self {
        Self {
            store: Store::new(Limits::default(), [1, 2]).with_ordered(),
            index: 0,
        }
    }

    fn apply(&mut self, command: &Command<'_>) -> Response<'_> {
        self.index += 1;
        self.store.apply(Position::new(self.index, 0), command)
    }

    fn put(&mut self, key: &[u8], value: &[u8]) {
        let response = self.apply(&Command::Put { key, value });
        assert!(matches!(response, Response::Written { .. }), "{response:?}");
    }

    fn pin(&mut self) -> Position {
        match self.apply(&Command::Pin) {
            Response::Pinned { position } => position,
            other => panic!("{other:?}"),
        }
    }

    fn unpin(&mut self, position: Position) {
        assert_eq!(self.apply(&Command::Unpin { position }), Response::Done);
    }

    /// All items of a range at a pin, or now, page by page.
    fn state(
        &self,
        pin: Option<Position>,
        (limit, reverse): (u32, bool),
    ) -> Result<State, StoreError> {
        let (mut state, mut next) = (State::new(), None::<Vec<u8>>);
        loop {
            let range = match (&next, reverse) {
                (None, _) => ALL,
                (Some(next), false) => KeyRange::Between {
                    start: next,
                    end: None,
                },
                (Some(next), true) => KeyRange::Between {
                    start: b"",
                    end: Some(next),
                },
            };
            match self.store.read(&scan(pin, range, limit, reverse)) {
                Response::Items { items, next: more } => {
                    for item in items.iter() {
                        let found = item.item.expect("values were asked for");
                        let entry = (found.value.to_vec(), found.version);
                        let twice = state.insert(item.key.to_vec(), entry);
                        assert_eq!(twice, None, "a key is in one page");
                    }
                    next = more.map(|more| more.into_owned());
                }
                Response::Error(error) => return Err(error),
                other => panic!("{other:?}"),
            }
            if next.is_none() {
                return Ok(state);
            }
        }
    }

    fn now(&self) -> State {
        self.state(None, (SCAN_KEYS_MAX, false)).expect("an index")
    }

    fn at(&self, pin: Position) -> Result<State, StoreError> {
        self.state(Some(pin), (3, false))
    }

    fn kept(&self) -> u64 {
        self.store.pin_usage().1
    }
}

fn scan(pin: Option<Position>, range: KeyRange<'_>, limit: u32, reverse: bool) -> Command<'_> {
    let options = ScanOptions {
        limit,
        reverse,
        keys_only: false,
    };
    match pin {
        Some(position) => Command::ScanAt {
            position,
            range,
            options,
        },
        None => Command::Scan { range, options },
    }
}

#[test]
fn a_page_at_a_pin_sees_nothing_that_came_later() {
    let mut log = LoggedStore::new();
    for number in 0..20_u8 {
        log.put(&[number], b"before");
    }
    let expire = Command::Expire {
        key: &[3],
        after_ns: 50,
    };
    log.apply(&expire);
    let before = log.now();
    let pin = log.pin();
    log.put(&[1], b"later");
    log.put(&[1], b"later still");
    log.put(&[100], b"new");
    log.apply(&Command::Delete { key: &[2] });
    log.apply(&Command::Delete { key: &[4] });
    log.put(&[4], b"again");
    log.apply(&Command::DeleteRange {
        range: KeyRange::Prefix(&[5]),
        count: 1,
    });
    // Overwritten first, then removed: the state at the pin is two changes away.
    log.put(&[6], b"later");
    log.apply(&Command::Delete { key: &[6] });
    log.store.set_group_time(60);
    assert!(!log.now().contains_key(&[3][..]), "its time is over");
    for page in [(1, false), (2, true), (7, false), (SCAN_KEYS_MAX, true)] {
        assert_eq!(log.state(Some(pin), page), Ok(before.clone()), "{page:?}");
    }
    let keys_only = ScanOptions {
        keys_only: true,
        ..ScanOptions::default()
    };
    let command = Command::ScanAt {
        position: pin,
        range: KeyRange::Between {
            start: &[2],
            end: Some(&[5]),
        },
        options: keys_only,
    };
    match log.store.read(&command) {
        Response::Items { items, next: None } => {
            assert!(
                items
                    .iter()
                    .map(|item| item.key.to_vec())
                    .eq([[2], [3], [4]])
            );
        }
        other => panic!("{other:?}"),
    }
    log.unpin(pin);
    assert_eq!(log.at(pin), Err(StoreError::PinEnded));
    assert!(log.store.free_shadows());
    assert_eq!(log.kept(), 0);
    assert!(log.store.items.shadows.ghosts().is_empty());
}

/// What had expired at the pin is not there, though it is only swept later.
#[test]
fn expiry_is_judged_by_the_time_of_the_pin() {
    let mut log = LoggedStore::new();
    for number in 0..100_u8 {
        log.put(&[number], b"v");
        log.apply(&Command::Expire {
            key: &[number],
            after_ns: 10,
        });
    }
    log.put(b"stays", b"v");
    let first = log.pin();
    // 64 are swept with this step of group time.
    log.store.set_group_time(10);
    let second = log.pin();
    log.store.set_group_time(11);
    assert_eq!(log.at(first).expect("it is kept").len(), 101);
    assert_eq!(log.at(second).expect("it is kept").len(), 1);
}

#[test]
fn an_undone_command_leaves_the_state_of_a_pin_as_it_was() {
    let mut log = LoggedStore::new();
    for number in 0..4_u8 {
        log.put(&[number], b"before");
    }
    let (before, pin) = (log.now(), log.pin());
    log.put(&[3], b"later");
    let now = log.now();
    let (value, options) = (
        &b"x"[..],
        SetOptions {
            condition: SetCondition::Absent,
            ..SetOptions::default()
        },
    );
    let operations = [
        Command::Delete { key: &[0] },
        Command::Put { key: &[0], value },
        Command::Put { key: &[1], value },
        Command::Delete { key: &[2] },
        Command::Delete { key: &[3] },
        Command::Put { key: &[9], value },
        // Fails: the key is there.
        Command::Set {
            key: &[1],
            value,
            options,
        },
    ];
    let conditions: [Condition<'_>; 0] = [];
    let response = log.apply(&Command::Execute {
        mode: ExecuteMode::AllOrNothing,
        conditions: List::from(&conditions[..]),
        operations: List::from(&operations[..]),
    });
    assert!(matches!(response, Response::Aborted { .. }), "{response:?}");
    assert_eq!(log.now(), now);
    assert_eq!(log.at(pin), Ok(before.clone()));
    log.apply(&Command::Delete { key: &[2] });
    assert_eq!(log.at(pin), Ok(before));
}

#[test]
fn too_much_kept_ends_the_oldest_pin_first_and_never_grows() {
    let mut log = LoggedStore::new();
    let value = [7; 1_000];
    (0..200_u8).for_each(|number| log.put(&[number], &value));
    log.store.set_retain_bytes(Some(100_000));
    let first = log.pin();
    (0..60_u8).for_each(|number| log.put(&[number], &value));
    let (second, at_second) = (log.pin(), log.now());
    assert!(log.at(first).is_ok());
    (100..160_u8).for_each(|number| log.put(&[number], &value));
    assert_eq!(log.at(first), Err(StoreError::PinNotHere));
    assert_eq!(log.at(second), Ok(at_second));
    assert_eq!(log.store.pin_usage().0, 2, "the group has both");
    for round in 0..3_u8 {
        (0..200_u8).for_each(|number| log.put(&[number], &[round; 900]));
        assert!(log.kept() <= 102_000, "{}", log.kept());
        log.pin();
    }
    assert_eq!(log.at(second), Err(StoreError::PinNotHere));
}

/// Many small blocks are due once the first pin is given up. The next changes free them; the second pin needs none of them.
#[test]
fn what_is_still_due_ends_no_newer_pin() {
    let mut log = LoggedStore::new();
    (0..2_000_u16).for_each(|number| log.put(&number.to_be_bytes(), b"small"));
    log.put(b"large", &[7; 52_000]);
    log.store.set_retain_bytes(Some(100_000));
    let first = log.pin();
    let mut number = 0_u16;
    while log.kept() < 55_000 {
        log.put(&number.to_be_bytes(), b"later");
        number += 1;
    }
    let (second, at_second) = (log.pin(), log.now());
    // The next change needs more room than it frees small blocks for.
    log.put(b"large", b"");
    assert!(log.kept() > 100_000, "{}", log.kept());
    assert_eq!(log.at(first), Err(StoreError::PinNotHere));
    assert_eq!(log.at(second), Ok(at_second.clone()));
    (0..10_u8).for_each(|number| log.put(&[number], b"new"));
    assert!(log.kept() <= 100_000, "{}", log.kept());
    assert_eq!(log.at(second), Ok(at_second));
}

/// Where large blocks come faster than small ones go, all pins are given up, and nothing grows any further.
#[test]
fn the_limit_holds_where_changes_add_more_than_they_free() {
    let mut log = LoggedStore::new();
    (0..3_000_u16).for_each(|number| log.put(&number.to_be_bytes(), b"small"));
    let large = vec![7; 20_000];
    (0..20_u8).for_each(|number| log.put(&[number, 0, 0], &large));
    log.store.set_retain_bytes(Some(400_000));
    let first = log.pin();
    let mut number = 0_u16;
    while log.kept() < 390_000 && number < 3_000 {
        log.put(&number.to_be_bytes(), b"later");
        number += 1;
    }
    let second = log.pin();
    for number in 0..20_u8 {
        log.put(&[number, 0, 0], &large);
        assert!(log.kept() <= 400_000 * 9 / 8 + 21_000, "{}", log.kept());
    }
    for pin in [first, second] {
        assert_eq!(log.at(pin), Err(StoreError::PinNotHere));
    }
}

/// A limit of half of the live bytes must not grow with what it limits.
#[test]
fn shadows_are_no_live_bytes() {
    let mut log = LoggedStore::new();
    (0..100_u8).for_each(|number| log.put(&[number], &[7; 1_000]));
    let live = log.store.items.item_bytes();
    let pin = log.pin();
    let summary = log.store.begin_snapshot().expect("none is written");
    (0..100_u8).for_each(|number| log.put(&[number], &[8; 1_000]));
    assert!(log.kept() > 100_000);
    assert_eq!(log.store.items.item_bytes(), live);
    assert_eq!(log.store.items.arena.usage().live_bytes, 2 * live);
    log.unpin(pin);
    log.store.abandon_snapshot();
    while !log.store.clear_snapshot() {}
    while !log.store.free_shadows() {}
    assert_eq!(log.store.items.item_bytes(), live);
    assert_eq!(log.store.items.arena.usage().live_bytes, live);
    assert_eq!(summary.items, 100);
}

/// A deleted key stays in a tree of its own while a pin needs it. That is memory as well.
#[test]
fn deleted_keys_count_among_what_pins_keep() {
    let mut log = LoggedStore::new();
    let key = |number: u8| [&[number][..], &[b'k'; 300]].concat();
    (0..100).for_each(|number| log.put(&key(number), b""));
    log.store.set_retain_bytes(Some(60_000));
    let pin = log.pin();
    (0..50).for_each(|number| log.put(&key(number), b"w"));
    let of_blocks = log.kept();
    assert!(log.at(pin).is_ok());
    (0..30).for_each(|number| {
        log.apply(&Command::Delete { key: &key(number) });
    });
    let ghost = crate::limits::ordered_charge(301);
    assert_eq!(log.kept() - of_blocks, 30 * ghost);
    log.put(&key(3), b"again");
    assert!(log.at(pin).is_ok());
    (30..100).for_each(|number| {
        log.apply(&Command::Delete { key: &key(number) });
    });
    assert_eq!(log.at(pin), Err(StoreError::PinNotHere));
    log.unpin(pin);
    while !log.store.free_shadows() {}
    assert_eq!(log.kept(), 0);
}

/// A store with a pin, behind which very many keys were deleted.
fn with_many_ghosts() -> (LoggedStore, Position) {
    let mut log = LoggedStore::new();
    let key = |number: u32| [&number.to_be_bytes()[..], &[b'k'; 60]].concat();
    (0..60_000).for_each(|number| log.put(&key(number), b""));
    let pin = log.pin();
    (0..60_000).for_each(|number| {
        log.apply(&Command::Delete { key: &key(number) });
    });
    assert_eq!(log.store.items.shadows.ghosts().len(), 60_000);
    assert!(log.store.items.shadows.room_bytes() > 4 * 1024 * 1024);
    (log, pin)
}

/// Millions of ghosts, freed by one command, would stop the group.
#[test]
fn a_flush_leaves_what_pins_have_kept_to_be_freed_in_slices() {
    let (mut log, pin) = with_many_ghosts();
    let before = log.store.stats().ordered_bytes;
    log.put(b"k", b"v");
    log.apply(&Command::Flush);
    assert_eq!(log.store.pin_usage(), (0, 0));
    assert_eq!(log.at(pin), Err(StoreError::PinEnded));
    check_slices(&mut log, before + 4 * 1024 * 1024);
}

#[test]
fn the_room_of_many_shadows_goes_back_in_slices() {
    let (mut log, pin) = with_many_ghosts();
    let before = log.store.stats().ordered_bytes;
    log.unpin(pin);
    while !log.store.free_shadows() {}
    assert_eq!(log.store.pin_usage(), (0, 0));
    check_slices(&mut log, before + 4 * 1024 * 1024);
}

fn check_slices(log: &mut LoggedStore, at_least: u64) {
    let mut left = log.store.stats().ordered_bytes;
    assert!(left >= at_least, "{left} of {at_least} bytes");
    for slice in 0.. {
        let is_done = log.store.free_flushed();
        let now = log.store.stats().ordered_bytes;
        assert!(left - now < 3 * 1024 * 1024, "{} at once", left - now);
        left = now;
        if is_done {
            assert!(slice > 4, "{slice} slices");
            return;
        }
    }
}

#[test]
fn a_flush_the_end_of_the_index_and_time_end_pins_everywhere() {
    let mut log = LoggedStore::new();
    log.put(b"k", b"v");
    let pin = log.pin();
    log.apply(&Command::Flush);
    assert_eq!(log.at(pin), Err(StoreError::PinEnded));
    log.put(b"k", b"v");
    let pin = log.pin();
    log.apply(&Command::SetOrdered { on: false });
    assert_eq!(log.at(pin), Err(StoreError::PinEnded));
    log.apply(&Command::SetOrdered { on: true });
    log.store.build_index();
    let pin = log.pin();
    log.store.set_group_time(PIN_TTL_NS - 1);
    assert!(log.at(pin).is_ok());
    log.apply(&Command::RenewPin { position: pin });
    log.store.set_group_time(2 * PIN_TTL_NS - 2);
    assert!(log.at(pin).is_ok());
    log.store.set_group_time(2 * PIN_TTL_NS - 1);
    assert_eq!(log.at(pin), Err(StoreError::PinEnded));
}

/// Walks at a pin need no index. A scan at it does, and finds what was removed before there was one.
#[test]
fn a_pin_from_before_the_index_is_scanned_once_the_index_is_whole() {
    let mut log = LoggedStore::new();
    log.apply(&Command::SetOrdered { on: false });
    (0..9_u8).for_each(|number| log.put(&[number], b"v"));
    let pin = log.pin();
    let off = StoreError::NotOrdered { building: false };
    assert_eq!(log.at(pin), Err(off));
    log.apply(&Command::Delete { key: &[3] });
    log.apply(&Command::SetOrdered { on: true });
    log.apply(&Command::Delete { key: &[4] });
    log.put(&[5], b"w");
    let building = StoreError::NotOrdered { building: true };
    assert_eq!(log.at(pin), Err(building));
    log.store.build_index();
    log.apply(&Command::Delete { key: &[6] });
    let state = log.at(pin).expect("it is kept");
    assert!((0..9_u8).all(|number| state[&[number][..]].0 == b"v"));
    assert_eq!((state.len(), log.now().len()), (9, 6));
}

/// The tree knows how many keys there are now; at a pin they are counted one by one, a part of the range at a time.
#[test]
fn a_count_at_a_pin_has_parts() {
    let mut log = LoggedStore::new();
    let key = |number: u16| number.to_be_bytes();
    (0..9_000).for_each(|number| log.put(&key(number), b"v"));
    let expire = Command::Expire {
        key: &key(17),
        after_ns: 5,
    };
    log.apply(&expire);
    log.store.set_group_time(4);
    let pin = log.pin();
    log.store.set_group_time(9);
    (0..2_000).for_each(|number| {
        let key = key(4 * number);
        log.apply(&Command::Delete { key: &key });
    });
    (9_000..9_500).for_each(|number| log.put(&key(number), b"new"));
    let (mut total, mut parts, mut start) = (0, 0, Vec::new());
    loop {
        let range = KeyRange::Between {
            start: &start,
            end: None,
        };
        let command = Command::CountAt {
            position: pin,
            range,
        };
        let Response::Counted { items, next } = log.store.read(&command) else {
            panic!("a count is answered with one");
        };
        assert!(items <= 4_096, "{items}");
        (total, parts) = (total + items, parts + 1);
        match next.map(std::borrow::Cow::into_owned) {
            None => break,
            Some(next) => start = next,
        }
    }
    assert_eq!((total, parts), (9_000, 3));
    let at = Position::new(50_000, 0);
    let command = Command::CountAt {
        position: pin,
        range: ALL,
    };
    let answer = log.store.apply(at, &command);
    assert_eq!(answer, Response::Error(StoreError::OnlyRead));
}

#[test]
fn a_pin_belongs_to_its_client_and_a_page_at_it_is_no_write() {
    let mut log = LoggedStore::new();
    let of = |client| PinOwner { client, user: 0 };
    let position = Position::new(1, 0);
    let pinned = Response::Pinned { position };
    assert_eq!(log.store.apply_for(of(7), position, &Command::Pin), pinned);
    let ended = Response::Error(StoreError::PinEnded);
    for (index, command) in [Command::Unpin { position }, Command::RenewPin { position }]
        .iter()
        .enumerate()
    {
        let at = Position::new(2 + index as u64, 0);
        assert_eq!(log.store.apply_for(of(8), at, command), ended);
    }
    let at = Position::new(4, 0);
    let answer = log.store.apply(at, &scan(Some(position), ALL, 1, false));
    assert_eq!(answer, Response::Error(StoreError::OnlyRead));
    // A replica that is behind cannot know.
    let later = scan(Some(Position::new(5, 0)), ALL, 1, false);
    let unknown = Response::Error(StoreError::PinNotHere);
    assert_eq!(log.store.read(&later), unknown);
}

/// The pins are part of the state, what they need is not.
#[test]
fn a_store_out_of_a_snapshot_knows_the_pins_and_does_not_serve_them() {
    let mut log = LoggedStore::new();
    log.put(b"k", b"v");
    let pin = log.pin();
    log.put(b"k", b"w");
    let mut copy = LoggedStore {
        store: copy(&mut log.store),
        index: log.index,
    };
    assert_eq!(copy.store.state_hash(), log.store.state_hash());
    assert_eq!(copy.at(pin), Err(StoreError::PinNotHere));
    let (one, other) = (copy.pin(), log.pin());
    assert_eq!(one, other);
    copy.apply(&Command::Delete { key: b"k" });
    log.apply(&Command::Delete { key: b"k" });
    assert_eq!(copy.at(one), log.at(one));
    assert_eq!(copy.at(one).expect("it is kept").len(), 1);
    copy.unpin(pin);
    log.unpin(pin);
    assert_eq!(copy.store.state_hash(), log.store.state_hash());
}

#[derive(Clone, Debug)]
enum StoreOperation {
    Put(u8, u8),
    PutFor(u8, u8),
    Delete(u8),
    DeleteRange(u8),
    /// These keys, some deleted and some written, and all of it undone.
    Undone(Vec<(u8, bool)>),
    Advance(u64),
    Pin,
    Unpin(usize),
    BeginSnapshot,
    Chunk,
    Abandon,
    FreeShadows,
}

fn step() -> impl Strategy<Value = StoreOperation> {
    let key = || 0_u8..24;
    prop_oneof![
        6 => (key(), any::<u8>()).prop_map(|(key, length)| StoreOperation::Put(key, length)),
        2 => (key(), 1_u8..40).prop_map(|(key, after)| StoreOperation::PutFor(key, after)),
        4 => key().prop_map(StoreOperation::Delete),
        1 => key().prop_map(StoreOperation::DeleteRange),
        3 => vec((key(), any::<bool>()), 1..6).prop_map(StoreOperation::Undone),
        2 => (0_u64..30).prop_map(StoreOperation::Advance),
        3 => Just(StoreOperation::Pin),
        2 => (0_usize..8).prop_map(StoreOperation::Unpin),
        1 => Just(StoreOperation::BeginSnapshot),
        2 => Just(StoreOperation::Chunk),
        1 => Just(StoreOperation::Abandon),
        1 => Just(StoreOperation::FreeShadows),
    ]
}

/// A snapshot that is being written, and what has come of it.
type Written = (u128, SnapshotReader);

fn run(log: &mut LoggedStore, written: &mut Option<Written>, step: &StoreOperation) {
    match step {
        StoreOperation::Put(key, length) => log.put(&[*key], &vec![*length; usize::from(*length)]),
        StoreOperation::PutFor(key, after) => {
            let options = SetOptions {
                expiry: SetExpiry::After(u64::from(*after)),
                ..SetOptions::default()
            };
            log.apply(&Command::Set {
                key: &[*key],
                value: &[*after; 9],
                options,
            });
        }
        StoreOperation::Delete(key) => drop(log.apply(&Command::Delete { key: &[*key] })),
        StoreOperation::DeleteRange(start) => {
            let range = KeyRange::Between {
                start: &[*start],
                end: None,
            };
            log.apply(&Command::DeleteRange { range, count: 5 });
        }
        StoreOperation::Undone(keys) => undone(log, keys),
        StoreOperation::Advance(by) => log.store.set_group_time(log.store.group_time() + by),
        StoreOperation::Pin | StoreOperation::Unpin(_) => {}
        StoreOperation::BeginSnapshot => {
            if log.store.begin_snapshot().is_ok() {
                *written = Some((log.store.state_hash(), SnapshotReader::new()));
            }
        }
        StoreOperation::Chunk => chunk(log, written),
        StoreOperation::Abandon => {
            log.store.abandon_snapshot();
            *written = None;
        }
        StoreOperation::FreeShadows => drop(log.store.free_shadows()),
    }
}

fn undone(log: &mut LoggedStore, keys: &[(u8, bool)]) {
    let bytes: Vec<[u8; 1]> = keys.iter().map(|(key, _)| [*key]).collect();
    let mut operations: Vec<Command<'_>> = keys
        .iter()
        .zip(&bytes)
        .map(|((_, deletes), key)| match deletes {
            true => Command::Delete { key },
            false => Command::Put { key, value: b"x" },
        })
        .collect();
    let impossible = Command::CompareAndSwap {
        key: b"never there",
        expected: Position::ZERO,
        value: b"",
    };
    operations.push(impossible);
    let conditions: [Condition<'_>; 0] = [];
    let response = log.apply(&Command::Execute {
        mode: ExecuteMode::AllOrNothing,
        conditions: List::from(&conditions[..]),
        operations: List::from(operations.as_slice()),
    });
    assert!(matches!(response, Response::Aborted { .. }), "{response:?}");
}

fn chunk(log: &mut LoggedStore, written: &mut Option<Written>) {
    let Some((hash, mut reader)) = written.take() else {
        return;
    };
    let mut chunk = Vec::new();
    let step = log.store.snapshot_chunk(&mut chunk).expect("it was begun");
    if step != SnapshotStep::Pending {
        reader.push(&chunk).expect("a sound chunk");
    }
    if step == SnapshotStep::Last {
        let store = reader.finish().expect("all chunks");
        assert_eq!(store.state_hash(), hash);
    } else {
        *written = Some((hash, reader));
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    /// Every pin reads what a scan read right before it, until it ends. Afterwards nothing is left of it.
    #[test]
    fn every_pin_reads_its_own_state(steps in vec(step(), 1..120)) {
        let mut log = LoggedStore::new();
        let (mut pins, mut written) = (Vec::<(Position, State)>::new(), None);
        for step in &steps {
            match step {
                StoreOperation::Pin if pins.len() < 8 => {
                    let state = log.now();
                    pins.push((log.pin(), state));
                }
                StoreOperation::Unpin(number) if !pins.is_empty() => {
                    let (pin, _) = pins.remove(number % pins.len());
                    log.unpin(pin);
                }
                step => run(&mut log, &mut written, step),
            }
            for (number, (pin, state)) in pins.iter().enumerate() {
                let page = (number as u32 * 3 + 1, number % 2 == 1);
                let found = log.state(Some(*pin), page);
                prop_assert_eq!(found.as_ref(), Ok(state), "pin {}", pin);
            }
        }
        pins.iter().for_each(|(pin, _)| log.unpin(*pin));
        log.store.abandon_snapshot();
        while !log.store.clear_snapshot() || !log.store.free_shadows() {}
        prop_assert_eq!(log.kept(), 0);
        prop_assert!(log.store.items.shadows.ghosts().is_empty());
        prop_assert!(log.store.items.shadows.is_empty());
        let copy = copy(&mut log.store);
        let live = |store: &Store| store.stats().arena_live_bytes;
        prop_assert!(live(&log.store) <= live(&copy) + 256 * copy.stats().items);
    }
}
