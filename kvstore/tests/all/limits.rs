//! Refusals: exactly at the limit, and without a trace in the state.

use trine_kvstore::command::STATE_VERSION;
use trine_kvstore::config::{LIST_ITEMS_MAX, SWEEP_ITEMS_MIN, UNDO_BYTES_MAX};
use trine_kvstore::limits::item_charge;
use trine_kvstore::{
    AbortCause, Command, Condition, ExecuteMode, ExpireCondition, Limits, List, Pair, Position,
    Response, Store, StoreError,
};

/// A store with the next position to apply at.
struct Applied {
    store: Store,
    index: u64,
}

impl Applied {
    fn new(limits: Limits) -> Self {
        Self {
            store: Store::new(limits, [1, 2]),
            index: 0,
        }
    }

    fn apply(&mut self, command: &Command<'_>) -> Response<'_> {
        self.index += 1;
        self.store.apply(Position::new(self.index, 0), command)
    }

    fn put(&mut self, key: &[u8], value: &[u8]) -> Position {
        match self.apply(&Command::Put { key, value }) {
            Response::Written { version } => version,
            other => panic!("{other:?}"),
        }
    }

    /// The command is refused with this error and nothing has changed.
    fn refused(&mut self, command: &Command<'_>, error: StoreError) {
        let before = self.store.state_hash();
        assert_eq!(self.apply(command), Response::Error(error));
        assert_eq!(self.store.state_hash(), before, "a refusal leaves no trace");
    }
}

#[test]
fn the_memory_limit_is_exact_in_logical_bytes() {
    let memory_bytes = 10 * item_charge(4, 100);
    let mut store = Applied::new(Limits {
        memory_bytes,
        ..Limits::default()
    });
    for key in 0..10_u32 {
        store.put(&key.to_le_bytes(), &[1; 100]);
    }
    assert_eq!(store.store.stats().logical_bytes, memory_bytes);
    let full = StoreError::Full {
        limit: memory_bytes,
    };
    store.refused(
        &Command::Put {
            key: b"",
            value: b"",
        },
        full,
    );
    store.refused(
        &Command::Put {
            key: &[0; 4],
            value: &[1; 101],
        },
        full,
    );
    store.refused(
        &Command::Append {
            key: &[0; 4],
            value: b"1",
        },
        full,
    );
    // The same size and a smaller one fit, and exactly the freed bytes can be used.
    store.put(&[0; 4], &[2; 100]);
    store.put(&[0; 4], &[2; 99]);
    store.put(&1_u32.to_le_bytes(), &[2; 101]);
    store.refused(
        &Command::Put {
            key: &1_u32.to_le_bytes(),
            value: &[2; 102],
        },
        full,
    );
}

#[test]
fn a_lowered_limit_keeps_the_items_and_lets_them_shrink() {
    let mut store = Applied::new(Limits::default());
    store.put(b"key", &[1; 500]);
    let limits = Limits {
        memory_bytes: 100,
        ..Limits::default()
    };
    assert_eq!(store.apply(&Command::SetLimits { limits }), Response::Done);
    store.put(b"key", &[1; 400]);
    store.refused(
        &Command::Put {
            key: b"key",
            value: &[1; 401],
        },
        StoreError::Full { limit: 100 },
    );
    let none = Limits {
        key_bytes: 0,
        ..Limits::default()
    };
    store.refused(&Command::SetLimits { limits: none }, StoreError::BadLimits);
}

/// The limit was fixed at the beginning of a group, although the error of a full store said to raise it.
#[test]
fn the_memory_limit_grows_and_shrinks_down_to_what_is_used() {
    let used = item_charge(1, 100);
    let mut store = Applied::new(Limits {
        memory_bytes: used,
        ..Limits::default()
    });
    store.put(b"a", &[1; 100]);
    let more = Command::Put {
        key: b"b",
        value: &[1; 100],
    };
    store.refused(&more, StoreError::Full { limit: used });
    let to = |memory_bytes| Command::SetMemory { memory_bytes };
    assert_eq!(store.apply(&to(2 * used)), Response::Done);
    store.put(b"b", &[1; 100]);
    let in_use = StoreError::MemoryInUse { used: 2 * used };
    for too_little in [0, used, 2 * used - 1] {
        store.refused(&to(too_little), in_use);
    }
    store.apply(&Command::Delete { key: b"a" });
    assert_eq!(store.apply(&to(used)), Response::Done);
    assert_eq!(
        store.store.limits(),
        Limits {
            memory_bytes: used,
            ..Limits::default()
        }
    );
    store.refused(
        &Command::Put {
            key: b"b",
            value: &[1; 101],
        },
        StoreError::Full { limit: used },
    );
    // Another program may have set a limit below what is used: a raise is allowed then.
    let below = Limits {
        memory_bytes: used / 2,
        ..Limits::default()
    };
    assert_eq!(
        store.apply(&Command::SetLimits { limits: below }),
        Response::Done
    );
    assert_eq!(store.apply(&to(used - 1)), Response::Done);
    store.refused(&to(used - 2), StoreError::MemoryInUse { used });
    store.apply(&Command::Delete { key: b"b" });
    store.refused(&to(0), StoreError::BadLimits);
}

#[test]
fn a_group_of_an_earlier_version_refuses_to_change_its_memory() {
    let mut store = Store::with_version(Limits::default(), [1, 2], 3);
    let before = store.state_hash();
    let command = Command::SetMemory {
        memory_bytes: 1 << 20,
    };
    let error = StoreError::VersionNotActive {
        required: 4,
        active: 3,
    };
    assert_eq!(
        store.apply(Position::new(1, 0), &command),
        Response::Error(error)
    );
    assert_eq!(store.state_hash(), before);
}

#[test]
fn keys_and_values_end_at_their_limits() {
    let mut store = Applied::new(Limits::default());
    let (key, value) = (vec![1; 64 * 1024 + 1], vec![2; 1024 * 1024 + 1]);
    store.put(&key[1..], &value[1..]);
    store.refused(
        &Command::Put {
            key: &key,
            value: b"",
        },
        StoreError::KeyTooLong { limit: 64 * 1024 },
    );
    store.refused(
        &Command::Put {
            key: b"k",
            value: &value,
        },
        StoreError::ValueTooLong { limit: 1024 * 1024 },
    );
    let append = Command::Append {
        key: &key[1..],
        value: b"1",
    };
    store.refused(&append, StoreError::ValueTooLong { limit: 1024 * 1024 });
}

#[test]
fn numbers_and_versions_that_do_not_fit_are_refused() {
    let mut store = Applied::new(Limits::default());
    store.put(b"text", b"12a");
    store.put(b"most", i64::MAX.to_string().as_bytes());
    store.refused(
        &Command::Increment {
            key: b"text",
            delta: 1,
        },
        StoreError::NotANumber,
    );
    store.refused(
        &Command::Increment {
            key: b"most",
            delta: 1,
        },
        StoreError::Overflow,
    );
    let swap = Command::CompareAndSwap {
        key: b"none",
        expected: Position::ZERO,
        value: b"1",
    };
    store.refused(&swap, StoreError::KeyMissing);
    let version = store.put(b"text", b"new");
    let swap = Command::CompareAndSwap {
        key: b"text",
        expected: Position::new(1, 0),
        value: b"1",
    };
    assert_eq!(
        store.apply(&swap),
        Response::Conflict {
            current: Some(version)
        }
    );
}

#[test]
fn an_older_group_refuses_newer_commands_until_it_is_raised() {
    let mut store = Applied {
        store: Store::with_version(Limits::default(), [1, 2], 1),
        index: 0,
    };
    store.put(b"n", b"1");
    let increment = Command::Increment {
        key: b"n",
        delta: 1,
    };
    store.refused(
        &increment,
        StoreError::VersionNotActive {
            required: 2,
            active: 1,
        },
    );
    let operations = [Command::Get { key: b"n" }];
    let execute = Command::Execute {
        mode: ExecuteMode::Independent,
        conditions: List::default(),
        operations: List::from(&operations),
    };
    store.refused(
        &execute,
        StoreError::VersionNotActive {
            required: 2,
            active: 1,
        },
    );
    let unknown = STATE_VERSION + 1;
    store.refused(
        &Command::RaiseVersion { version: unknown },
        StoreError::BadVersion { asked: unknown },
    );
    assert_eq!(
        store.apply(&Command::RaiseVersion { version: 2 }),
        Response::Done
    );
    assert!(matches!(
        store.apply(&increment),
        Response::Number { value: 2, .. }
    ));
    store.refused(
        &Command::RaiseVersion { version: 1 },
        StoreError::BadVersion { asked: 1 },
    );
    // Commands of a newer version stay refused, in a list as well. Another list does not count as
    // the newer version.
    let later = [Command::ExpireIf {
        key: b"n",
        after_ns: 5,
        condition: ExpireCondition::Absent,
    }];
    let error = StoreError::VersionNotActive {
        required: 3,
        active: 2,
    };
    store.refused(&later[0], error);
    let execute_later = Command::Execute {
        mode: ExecuteMode::Independent,
        conditions: List::default(),
        operations: List::from(&later),
    };
    store.refused(&execute_later, error);
    assert!(matches!(store.apply(&execute), Response::List(_)));
    store.apply(&Command::RaiseVersion { version: 3 });
    assert!(matches!(store.apply(&execute_later), Response::List(_)));
}

#[test]
fn all_or_nothing_puts_everything_back() {
    let mut store = Applied::new(Limits::default());
    let version = store.put(b"a", b"1");
    store.put(b"text", b"x");
    let before = store.store.state_hash();
    let operations = [
        Command::Put {
            key: b"a",
            value: b"2",
        },
        Command::Expire {
            key: b"a",
            after_ns: 5,
        },
        Command::Put {
            key: b"new",
            value: b"3",
        },
        Command::Delete { key: b"text" },
        Command::Increment {
            key: b"a",
            delta: 1,
        },
        Command::Append {
            key: b"new",
            value: b"4",
        },
        Command::Increment {
            key: b"new",
            delta: i64::MAX,
        },
    ];
    let mut execute = |mode, conditions: &[Condition<'_>]| {
        let command = Command::Execute {
            mode,
            conditions: List::from(conditions),
            operations: List::from(&operations),
        };
        let mut bytes = Vec::new();
        store.apply(&command).encode(&mut bytes);
        (bytes, store.store.state_hash())
    };
    let (bytes, after) = execute(
        ExecuteMode::AllOrNothing,
        &[Condition::VersionIs { key: b"a", version }],
    );
    let cause = AbortCause::Refused {
        index: 6,
        error: StoreError::Overflow,
    };
    assert_eq!(Response::decode(&bytes), Ok(Response::Aborted { cause }));
    assert_eq!(after, before);
    let (bytes, after) = execute(
        ExecuteMode::AllOrNothing,
        &[Condition::Absent { key: b"a" }],
    );
    let cause = AbortCause::Condition { index: 0 };
    assert_eq!(
        (Response::decode(&bytes), after),
        (Ok(Response::Aborted { cause }), before)
    );
    let (bytes, after) = execute(ExecuteMode::Independent, &[]);
    let Ok(Response::List(list)) = Response::decode(&bytes) else {
        panic!("an answer for each")
    };
    assert_eq!(
        list.iter().last(),
        Some(Response::Error(StoreError::Overflow))
    );
    assert_ne!(after, before);
    assert!(matches!(
        store.store.read(&Command::Get { key: b"a" }),
        Response::Value { value: b"3", .. }
    ));
}

#[test]
fn what_would_take_too_much_at_once_is_refused_whole() {
    let mut store = Applied::new(Limits {
        memory_bytes: 1 << 30,
        ..Limits::default()
    });
    let keys: Vec<[u8; 1]> = (0..20_u8).map(|key| [key]).collect();
    for key in &keys {
        store.put(key, &vec![0; 1024 * 1024]);
    }
    let slices: Vec<&[u8]> = keys.iter().map(<[u8; 1]>::as_slice).collect();
    store.refused(
        &Command::MultiGet {
            keys: List::from(slices.as_slice()),
        },
        StoreError::ResponseTooLarge,
    );
    let pairs: Vec<Pair<'_>> = slices
        .iter()
        .map(|key| Pair {
            key,
            value: b"small",
        })
        .collect();
    assert!(pairs.len() * 1024 * 1024 > UNDO_BYTES_MAX);
    store.refused(
        &Command::MultiPut {
            pairs: List::from(pairs.as_slice()),
        },
        StoreError::ExecuteTooLarge,
    );
    let deletes: Vec<Command<'_>> = slices
        .iter()
        .map(|key| Command::GetDelete { key })
        .collect();
    for mode in [ExecuteMode::AllOrNothing, ExecuteMode::Independent] {
        let execute = Command::Execute {
            mode,
            conditions: List::default(),
            operations: List::from(deletes.as_slice()),
        };
        store.refused(&execute, StoreError::ResponseTooLarge);
    }
    let many = vec![b"k".as_slice(); LIST_ITEMS_MAX as usize + 1];
    store.refused(
        &Command::MultiGet {
            keys: List::from(many.as_slice()),
        },
        StoreError::ListTooLong,
    );
    let nested = [Command::MultiGet {
        keys: List::default(),
    }];
    let execute = Command::Execute {
        mode: ExecuteMode::AllOrNothing,
        conditions: List::default(),
        operations: List::from(&nested),
    };
    let cause = AbortCause::Refused {
        index: 0,
        error: StoreError::NotInExecute,
    };
    assert_eq!(store.apply(&execute), Response::Aborted { cause });
}

#[test]
fn expired_keys_are_gone_at_once_and_swept_a_few_at_a_time() {
    let mut store = Applied::new(Limits::default());
    let count = 3 * SWEEP_ITEMS_MIN + 5;
    for key in 0..count {
        store.put(&key.to_le_bytes(), b"value");
        store.apply(&Command::Expire {
            key: &key.to_le_bytes(),
            after_ns: 100,
        });
    }
    assert_eq!(store.store.next_expiry(), Some(100));
    store.store.set_group_time(99);
    assert_eq!(store.store.stats().items, u64::from(count), "never early");
    for step in 1..=4 {
        store.store.set_group_time(100);
        let left = count.saturating_sub(step * SWEEP_ITEMS_MIN);
        assert_eq!(store.store.stats().items, u64::from(left));
        let absent = (0..count).all(|key| store.store.get(&key.to_le_bytes()).is_none());
        assert!(absent, "gone for every reader at once");
    }
    assert_eq!(
        (store.store.next_expiry(), store.store.group_time()),
        (None, 100)
    );
    store.store.set_group_time(5);
    assert_eq!(store.store.group_time(), 100, "group time does not go back");
}

/// A leader knows a later group time than it has applied. Which keys are there does not depend on it.
#[test]
fn times_to_live_are_as_of_a_later_moment_and_at_least_one_while_the_key_is_there() {
    let mut store = Applied::new(Limits::default());
    store.put(b"key", b"value");
    let after_ns = 100;
    store.apply(&Command::Expire {
        key: b"key",
        after_ns,
    });
    store.store.set_group_time(40);
    let ttl = Command::TimeToLive { key: b"key" };
    let operations = std::slice::from_ref(&ttl);
    let list = Command::Execute {
        mode: ExecuteMode::Independent,
        conditions: List::default(),
        operations: List::from(operations),
    };
    for (now_ns, remaining_ns) in [(0, 60), (40, 60), (90, 10), (100, 1), (500, 1)] {
        let expected = Response::TimeToLive {
            remaining_ns: Some(remaining_ns),
        };
        assert_eq!(store.store.read_at(&ttl, now_ns), expected, "at {now_ns}");
        let Response::List(answers) = store.store.read_at(&list, now_ns) else {
            panic!("a list");
        };
        assert!(answers.iter().eq([expected]), "at {now_ns}, in a list");
    }
    assert!(store.store.get(b"key").is_some());
}
