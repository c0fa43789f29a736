//! The table, and the operations that requests become.

use trine_kvstore::{Command, ExpireCondition, SetCondition, SetExpiry, SetOptions};

use super::*;
use crate::errors::{NOT_AN_INTEGER, SYNTAX};
use crate::plan::{Clock, Plan, Planned, in_one};

const NOW_MS: i64 = 1_000_000;

fn add<'a>(plan: &mut Plan<'a>, parts: &[&'a [u8]]) -> Planned {
    let spec = find(parts[0]).expect("a command");
    let planner = spec.planner().expect("one for the store");
    planner(plan, &spec.asked(parts, Clock::at(NOW_MS)))
}

/// Plans one request and shows its operations to `check`.
fn planned(words: &[&str], check: impl FnOnce(&[Command<'_>], bool)) {
    let parts: Vec<&[u8]> = words.iter().map(|word| word.as_bytes()).collect();
    let mut plan = Plan::default();
    add(&mut plan, &parts).expect("it is planned");
    let (operations, _) = plan.split();
    let commands = operations.commands();
    check(&commands, in_one(&commands).is_read_only());
}

#[track_caller]
fn becomes(words: &[&str], expected: &[Command<'_>]) {
    planned(words, |commands, _| {
        assert_eq!(commands, expected, "{words:?}")
    });
}

#[track_caller]
fn refused(words: &[&str], text: &str) {
    let parts: Vec<&[u8]> = words.iter().map(|word| word.as_bytes()).collect();
    let mut plan = Plan::default();
    assert_eq!(add(&mut plan, &parts), Err(text.to_owned()), "{words:?}");
    assert_eq!(
        (plan.command_count(), plan.operation_count()),
        (0, 0),
        "{words:?}"
    );
}

fn set(condition: SetCondition, expiry: SetExpiry, return_previous: bool) -> Command<'static> {
    let options = SetOptions {
        condition,
        expiry,
        return_previous,
    };
    Command::Set {
        key: b"k",
        value: b"v",
        options,
    }
}

fn with_value(value: &'static [u8], command: Command<'static>) -> Command<'static> {
    match command {
        Command::Set { key, options, .. } => Command::Set {
            key,
            options,
            value,
        },
        other => other,
    }
}

#[test]
fn the_words_behind_a_set() {
    use SetCondition::{Absent, Always, Present};
    use SetExpiry::{After, Keep, Never};
    let second = 1_000_000_000;
    becomes(
        &["SET", "k", "v"],
        &[Command::Put {
            key: b"k",
            value: b"v",
        }],
    );
    becomes(&["set", "k", "v", "nx"], &[set(Absent, Never, false)]);
    becomes(
        &["set", "k", "v", "XX", "GET"],
        &[set(Present, Never, true)],
    );
    becomes(
        &["set", "k", "v", "ex", "10"],
        &[set(Always, After(10 * second), false)],
    );
    becomes(
        &["set", "k", "v", "px", "10", "nx"],
        &[set(Absent, After(second / 100), false)],
    );
    becomes(&["set", "k", "v", "keepttl"], &[set(Always, Keep, false)]);
    becomes(
        &["set", "k", "v", "exat", "1003"],
        &[set(Always, After(3 * second), false)],
    );
    becomes(
        &["set", "k", "v", "pxat", "1000001"],
        &[set(Always, After(second / 1_000), false)],
    );
    becomes(
        &["set", "k", "v", "pxat", "1"],
        // What is deleted at once takes no room.
        &[
            with_value(b"", set(Always, After(1), false)),
            Command::Delete { key: b"k" },
        ],
    );
    becomes(
        &["set", "k", "v", "pxat", "1", "nx"],
        &[set(Absent, After(1), false)],
    );
    for words in [
        ["nx", "xx"].as_slice(),
        &["ex"],
        &["ex", "1", "px", "1"],
        &["keepttl", "ex", "1"],
        &["ex", "1", "keepttl"],
        &["foo"],
    ] {
        refused(&[&["set", "k", "v"], words].concat(), SYNTAX);
    }
    refused(&["set", "k", "v", "ex", "x"], NOT_AN_INTEGER);
    for amount in ["0", "-1", "9223372036854775807"] {
        refused(
            &["set", "k", "v", "ex", amount],
            "ERR invalid expire time in 'set' command",
        );
    }
    refused(
        &["setex", "k", "0", "v"],
        "ERR invalid expire time in 'setex' command",
    );
}

#[test]
fn expiries_that_are_over_delete() {
    let key = b"k".as_slice();
    becomes(
        &["expire", "k", "1"],
        &[Command::Expire {
            key,
            after_ns: 1_000_000_000,
        }],
    );
    becomes(&["expire", "k", "0"], &[Command::Delete { key }]);
    becomes(&["pexpire", "k", "-5"], &[Command::Delete { key }]);
    becomes(&["pexpireat", "k", "1000000"], &[Command::Delete { key }]);
    becomes(&["getex", "k", "pxat", "5"], &[Command::GetDelete { key }]);
    refused(
        &["expire", "k", "9223372036854775807"],
        "ERR invalid expire time in 'expire' command",
    );
    refused(&["expire", "k", "1", "Gtt"], "ERR Unsupported option Gtt");
}

#[test]
fn expire_has_conditions() {
    use ExpireCondition::{Absent, Earlier, Later, Present, PresentAndEarlier};
    let key = b"k".as_slice();
    for (words, condition) in [
        (["nx"].as_slice(), Absent),
        (&["NX", "nx"], Absent),
        (&["xx"], Present),
        (&["gt"], Later),
        (&["xx", "gt"], Later),
        (&["lt"], Earlier),
        (&["LT", "Xx"], PresentAndEarlier),
    ] {
        let after_ns = 7_000_000;
        becomes(
            &[&["pexpire", "k", "7"], words].concat(),
            &[Command::ExpireIf {
                key,
                after_ns,
                condition,
            }],
        );
        let after_ns = 0;
        becomes(
            &[&["expireat", "k", "1"], words].concat(),
            &[Command::ExpireIf {
                key,
                after_ns,
                condition,
            }],
        );
    }
    // The clock at the reading is part of the moment, so a comparison has a margin.
    becomes(
        &["pexpireat", "k", "9000000", "gt"],
        &[Command::ExpireIfBeyond {
            key,
            after_ns: (9_000_000 - NOW_MS).unsigned_abs() * 1_000_000,
            condition: Later,
            margin_ns: 20_000_000,
        }],
    );
    for other in ["xx", "gt", "lt"] {
        refused(
            &["expire", "k", "1", other, "nx"],
            "ERR NX and XX, GT or LT options at the same time are not compatible",
        );
    }
    refused(
        &["expire", "k", "1", "lt", "gt"],
        "ERR GT and LT options at the same time are not compatible",
    );
}

#[test]
fn numbers_are_read_strictly() {
    let key = b"k".as_slice();
    becomes(&["incr", "k"], &[Command::Increment { key, delta: 1 }]);
    becomes(
        &["decrby", "k", "7"],
        &[Command::Increment { key, delta: -7 }],
    );
    refused(&["incrby", "k", "1.0"], NOT_AN_INTEGER);
    refused(
        &["decrby", "k", "-9223372036854775808"],
        "ERR decrement would overflow",
    );
}

#[test]
fn several_keys_are_several_operations_and_reads_are_known_as_reads() {
    let keys = [b"a".as_slice(), b"b"];
    becomes(&["del", "a", "b"], &keys.map(|key| Command::Delete { key }));
    becomes(&["mget", "a", "b"], &keys.map(|key| Command::Get { key }));
    planned(&["exists", "a", "b"], |commands, read_only| {
        assert!(read_only && commands.len() == 2);
    });
    planned(&["getex", "a", "persist"], |_, read_only| {
        assert!(!read_only)
    });
    refused(
        &["mset", "a", "1", "b"],
        "ERR wrong number of arguments for 'mset' command",
    );
}

#[test]
fn a_version_is_compared_and_an_expiry_set_only_then() {
    let (key, value) = (b"k".as_slice(), b"v".as_slice());
    becomes(
        &["trine.cas", "k", "0", "v"],
        &[set(SetCondition::Absent, SetExpiry::Never, false)],
    );
    becomes(
        &["trine.cas", "k", "0", "v", "PX", "7"],
        &[set(
            SetCondition::Absent,
            SetExpiry::After(7_000_000),
            false,
        )],
    );
    let compare = Command::CompareAndSwap {
        key,
        expected: trine_kvstore::Position::from_u64(9),
        value,
    };
    let alone = std::slice::from_ref(&compare);
    becomes(&["trine.cas", "k", "9", "v"], alone);
    planned(&["trine.cas", "k", "9", "v", "px", "7"], |commands, _| {
        let [Command::Execute { operations, .. }] = commands else {
            panic!("{commands:?}")
        };
        let after_ns = 7_000_000;
        let both: Vec<_> = operations.iter().collect();
        assert_eq!(both, [compare, Command::Expire { key, after_ns }]);
    });
    for words in [["px"].as_slice(), &["ex", "1"], &["px", "1", "nx"]] {
        refused(&[&["trine.cas", "k", "9", "v"], words].concat(), SYNTAX);
    }
    for version in ["-1", "x", "18446744073709551616", "", "+1"] {
        let why = "ERR a version is a number that TRINE.GETV has answered, or 0";
        refused(&["trine.cas", "k", version, "v"], why);
    }
    let goes_alone = |line: &str| {
        let parts: Vec<&[u8]> = line.split(' ').map(str::as_bytes).collect();
        find(parts[0]).expect("known").goes_alone(&parts)
    };
    assert!(goes_alone("trine.cas k 9 v px 7"));
    for line in ["trine.cas k 9 v", "trine.cas k 0 v px 7", "set k 9 v px 7"] {
        assert!(!goes_alone(line), "{line}");
    }
}

#[test]
fn commands_are_found_in_any_case_and_their_names_are_in_order() {
    for rows in FAMILIES {
        assert!(rows.windows(2).all(|pair| pair[0].name < pair[1].name));
    }
    let all = all();
    assert!(all.windows(2).all(|pair| pair[0].name < pair[1].name));
    assert!(all.iter().all(|spec| spec.name.len() <= NAME_BYTES_MAX));
    for spec in all {
        let found = find(spec.name.to_uppercase().as_bytes()).expect("it is there");
        assert_eq!(found.name, spec.name);
    }
    assert!(find(b"get\0").is_none());
    assert!(find(b"").is_none() && find(b"nosuchcommandatallanywhere").is_none());
}

#[test]
fn the_keys_of_a_request_stand_where_the_row_says() {
    let keys = |line: &'static str| {
        let parts: Vec<&[u8]> = line.split(' ').map(str::as_bytes).collect();
        let spec = find(parts[0]).expect("known");
        let keys: Vec<&[u8]> = spec.keys_of(&parts).collect();
        String::from_utf8_lossy(&keys.join(&b' ')).into_owned()
    };
    for (line, expected) in [
        ("get a", "a"),
        ("mget a b c", "a b c"),
        ("exists a", "a"),
        ("mset a 1 b 2", "a b"),
        ("dbsize", ""),
        ("set a 1 ex 5", "a"),
        ("trine.do t 1 1 mset a 1 b 2", "a b"),
        ("trine.do t 1 1 nonsense a", ""),
        ("trine.do t 1 1 trine.do t 1 1 incr a", ""),
    ] {
        assert_eq!(keys(line), expected, "{line}");
    }
}

#[test]
fn a_request_has_as_many_parts_as_its_command_takes() {
    let takes = |name: &[u8], parts| find(name).expect("known").takes(parts);
    assert!(takes(b"get", 2) && !takes(b"get", 1) && !takes(b"get", 3));
    assert!(takes(b"del", 2) && takes(b"del", 9) && !takes(b"del", 1));
}
