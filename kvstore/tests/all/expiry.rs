//! Items that expired: how many a step of group time and a command without room remove, and who counts them.

use trine_kvstore::command::{STATE_VERSION, SWEEP_VERSION};
use trine_kvstore::config::{
    COUNT_EXPIRED_MAX, ROOM_ENTRY_ITEMS_MAX, ROOM_ITEMS_MAX, SWEEP_ITEMS_MAX, SWEEP_ITEMS_MIN,
};
use trine_kvstore::history::Change;
use trine_kvstore::limits::item_charge;
use trine_kvstore::{
    AbortCause, Command, ExecuteMode, Limits, List, Pair, Position, Response, SetExpiry,
    SetOptions, Store, StoreError,
};

const DUE_NS: u64 = 1_000;

/// A store with `expired` items of four bytes of key that are over and still there, and room for `room` more.
struct Log {
    store: Store,
    index: u64,
    limit: u64,
}

impl Log {
    fn new(version: u8, expired: u32, room: u32) -> Self {
        let limit = u64::from(expired + room) * item_charge(4, 0);
        let limits = Limits {
            memory_bytes: limit,
            ..Limits::default()
        };
        let store = Store::with_version(limits, [1, 2], version);
        let mut log = Self {
            store,
            index: 0,
            limit,
        };
        log.store.keep_history(1 << 24, Position::ZERO);
        for key in 0..expired {
            let set = Command::Set {
                key: &key.to_le_bytes(),
                value: b"",
                options: SetOptions {
                    expiry: SetExpiry::After(DUE_NS),
                    ..SetOptions::default()
                },
            };
            let answer = log.apply(&set);
            assert!(!matches!(answer, Response::Error(_)), "{answer:?}");
        }
        log
    }

    fn apply(&mut self, command: &Command<'_>) -> Response<'_> {
        self.index += 1;
        self.store.apply(Position::new(self.index, 0), command)
    }

    /// Moves group time behind the end of the items.
    fn step(&mut self, asked: u16) -> u32 {
        self.store.step_group_time(DUE_NS, asked).items
    }

    fn items(&self) -> u64 {
        self.store.stats().items
    }
}

fn put(key: u32) -> [u8; 4] {
    (key | 1 << 31).to_le_bytes()
}

#[test]
fn an_entry_says_how_many_items_a_step_removes_within_bounds() {
    let mut log = Log::new(STATE_VERSION, 20_000, 0);
    for (asked, removed) in [
        (0, SWEEP_ITEMS_MIN),
        (1, SWEEP_ITEMS_MIN),
        (64, 64),
        (65, 65),
        (500, 500),
        (4_096, SWEEP_ITEMS_MAX),
        (4_097, SWEEP_ITEMS_MAX),
        (u16::MAX, SWEEP_ITEMS_MAX),
    ] {
        assert_eq!(log.step(asked), removed, "asked for {asked}");
    }
    let left = log.items();
    assert!(left < u64::from(SWEEP_ITEMS_MAX) * 2);
    log.step(u16::MAX);
    log.step(u16::MAX);
    assert_eq!((log.items(), log.step(u16::MAX)), (0, 0));
}

/// Such a group has members that ignore the number.
#[test]
fn a_group_of_an_older_version_ignores_the_number() {
    let mut log = Log::new(SWEEP_VERSION - 1, 1_000, 0);
    for asked in [0, 64, 500, u16::MAX] {
        assert_eq!(log.step(asked), SWEEP_ITEMS_MIN);
    }
    log.apply(&Command::RaiseVersion {
        version: SWEEP_VERSION,
    });
    assert_eq!(log.step(500), 500);
}

#[test]
fn a_step_tells_what_its_events_take_in_a_history() {
    let mut log = Log::new(STATE_VERSION, 100, 0);
    let before = log.store.history().unwrap().end();
    let swept = log.store.step_group_time(DUE_NS, 100);
    assert_eq!(swept.items, 100);
    assert_eq!(swept.event_bytes, 100 * (30 + 4));
    let history = log.store.history().unwrap();
    let events = history.from(before).unwrap();
    let expired = events.filter(|event| matches!(event.change, Change::Expired { .. }));
    assert_eq!(expired.count(), 100);
}

/// 15,000 writes a second of keys that live for a second filled 16 MiB after 24 s, with seven eighths of it expired.
#[test]
fn a_write_without_room_removes_what_has_expired_and_is_tried_again() {
    let mut log = Log::new(STATE_VERSION, 5_000, 0);
    log.step(0);
    let after_step = log.items();
    for key in 0..SWEEP_ITEMS_MIN {
        log.apply(&Command::Put {
            key: &put(key),
            value: b"",
        });
    }
    // Now it is full.
    assert_eq!(log.items(), after_step + u64::from(SWEEP_ITEMS_MIN));
    let answer = log.apply(&Command::Put {
        key: &put(99),
        value: b"",
    });
    assert!(matches!(answer, Response::Written { .. }), "{answer:?}");
    let removed = u64::from(ROOM_ITEMS_MAX);
    assert_eq!(log.items(), 5_000 + 1 - removed);
}

#[test]
fn the_writes_of_one_entry_remove_so_many_together() {
    let mut log = Log::new(STATE_VERSION, 5_000, 0);
    log.store.step_group_time(DUE_NS, 0);
    let index = log.index + 1;
    // Each takes what 1,024 items and more have taken: so each has to make room again.
    let value = vec![0; 1_024 * item_charge(4, 0) as usize];
    let mut answers = Vec::new();
    for place in 0..4 {
        let key = put(u32::from(place));
        let command = Command::Put {
            key: &key,
            value: &value[..value.len() - 100],
        };
        let answer = log.store.apply(Position::new(index, place), &command);
        answers.push(matches!(answer, Response::Written { .. }));
    }
    assert_eq!(answers, [true, true, false, false]);
    let most = u64::from(SWEEP_ITEMS_MIN + ROOM_ENTRY_ITEMS_MAX);
    assert_eq!(log.items(), 5_000 - most + 2);
    // The next entry begins anew.
    log.index = index;
    let answer = log.apply(&Command::Put {
        key: &put(9),
        value: &value[..value.len() - 100],
    });
    assert!(matches!(answer, Response::Written { .. }), "{answer:?}");
}

#[test]
fn a_write_without_room_is_refused_where_nothing_has_expired_or_the_version_is_old() {
    for (version, is_due) in [(STATE_VERSION, false), (SWEEP_VERSION - 1, true)] {
        let mut log = Log::new(version, 200, 0);
        if is_due {
            log.step(0);
            for key in 0..SWEEP_ITEMS_MIN {
                log.apply(&Command::Put {
                    key: &put(key),
                    value: b"",
                });
            }
        }
        let before = log.items();
        let limit = log.limit;
        let key = &put(99);
        let answer = log.apply(&Command::Put { key, value: b"" });
        assert_eq!(answer, Response::Error(StoreError::Full { limit }));
        assert_eq!(log.items(), before, "version {version}");
    }
}

/// The first try had written some of its keys when it found no room. They are put back before anything is removed.
#[test]
fn a_list_of_writes_without_room_is_tried_again_as_a_whole() {
    for (count, fits) in [(1_000, true), (1_200, false)] {
        let keys: Vec<[u8; 4]> = (0..count).map(put).collect();
        let pairs: Vec<Pair<'_>> = keys.iter().map(|key| Pair { key, value: b"" }).collect();
        let operations: Vec<Command<'_>> = keys
            .iter()
            .map(|key| Command::Put { key, value: b"" })
            .collect();
        let multi_put = Command::MultiPut {
            pairs: List::from(pairs.as_slice()),
        };
        let execute = |mode| Command::Execute {
            mode,
            conditions: List::default(),
            operations: List::from(operations.as_slice()),
        };
        for command in [
            multi_put,
            execute(ExecuteMode::AllOrNothing),
            execute(ExecuteMode::Independent),
        ] {
            let mut log = Log::new(STATE_VERSION, 5_000, 0);
            log.step(0);
            let answer = log.apply(&command);
            let done = !matches!(
                answer,
                Response::Error(StoreError::Full { .. })
                    | Response::Aborted {
                        cause: AbortCause::Refused { .. }
                    }
            );
            let independent = matches!(
                command,
                Command::Execute {
                    mode: ExecuteMode::Independent,
                    ..
                }
            );
            assert_eq!(done, fits || independent, "{count} keys");
            let left = 5_000 - u64::from(SWEEP_ITEMS_MIN + ROOM_ITEMS_MAX);
            let room = u64::from(SWEEP_ITEMS_MIN + ROOM_ITEMS_MAX);
            let written = match (fits, independent) {
                (true, _) => u64::from(count),
                (false, true) => room,
                (false, false) => 0,
            };
            assert_eq!(log.items(), left + written);
        }
    }
}

/// Of a key that is swept and written at one position watchers see the write alone.
#[test]
fn a_key_that_makes_room_for_itself_gives_one_event() {
    let mut log = Log::new(STATE_VERSION, 3_000, 0);
    log.store.begin_entry(Position::new(log.index + 1, 0));
    log.step(0);
    let keys: Vec<[u8; 4]> = (0..1_000_u32).map(u32::to_le_bytes).collect();
    let pairs: Vec<Pair<'_>> = keys
        .iter()
        .map(|key| Pair {
            key,
            value: &[1; 20],
        })
        .collect();
    let before = Position::new(log.index, u16::MAX);
    let answer = log.apply(&Command::MultiPut {
        pairs: List::from(pairs.as_slice()),
    });
    assert!(matches!(answer, Response::Written { .. }), "{answer:?}");
    let history = log.store.history().unwrap();
    let mut expired = 0;
    let mut written = std::collections::BTreeSet::new();
    for event in history.after(before).unwrap() {
        match event.change {
            Change::Expired { key } => {
                expired += 1;
                assert!(!keys.iter().any(|own| own == key), "{key:?} came twice");
            }
            Change::Written { key, .. } => assert!(written.insert(key.to_vec())),
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(written.len(), 1_000);
    assert!(expired > 0);
    assert_eq!(log.items(), 3_000 - expired);
}

#[test]
fn a_count_leaves_out_what_has_expired_or_says_that_there_is_too_much() {
    let count = |log: &Log| match log.store.read(&Command::Count) {
        Response::Count { items } => Ok(items),
        Response::Error(error) => Err(error),
        other => panic!("{other:?}"),
    };
    let mut log = Log::new(STATE_VERSION, COUNT_EXPIRED_MAX as u32 + 65, 10);
    log.apply(&Command::Put {
        key: b"stay",
        value: b"",
    });
    assert_eq!(count(&log), Ok(COUNT_EXPIRED_MAX as u64 + 66));
    log.step(0);
    assert!(log.store.is_sweep_behind());
    assert_eq!(count(&log), Err(StoreError::SweepBehind));
    log.step(0);
    assert!(!log.store.is_sweep_behind());
    assert_eq!(count(&log), Ok(1));
    // A transaction may count. All members have to give the same answer, and older ones know no better.
    let mut old = Log::new(SWEEP_VERSION - 1, 100, 0);
    old.step(0);
    assert_eq!(count(&old), Ok(36));
}

/// A transaction of 16,384 counts would walk over 4,096 expired items each time, on every replica: seconds for 80 KB.
#[test]
fn a_transaction_counts_what_is_stored_without_a_walk() {
    let stored = COUNT_EXPIRED_MAX as u32 + 65;
    let mut log = Log::new(STATE_VERSION, stored, 0);
    log.step(0);
    let operations = [Command::Count, Command::Count];
    let transaction = Command::Execute {
        mode: ExecuteMode::AllOrNothing,
        conditions: List::default(),
        operations: List::from(&operations[..]),
    };
    let left = u64::from(stored - SWEEP_ITEMS_MIN);
    let expected = [left, left].map(|items| Response::Count { items });
    let is_expected = |response: Response<'_>| match response {
        Response::List(list) => list.iter().eq(expected.iter().cloned()),
        other => panic!("{other:?}"),
    };
    assert!(is_expected(log.store.read(&transaction)));
    assert!(is_expected(log.apply(&transaction)));
}

#[test]
fn the_text_of_a_read_that_has_to_wait_speaks_of_no_change() {
    let text = StoreError::SweepBehind.to_string();
    assert!(!text.contains("changed"), "{text}");
}
