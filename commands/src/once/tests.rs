//! The words of TRINE.DO, and which commands can have a sequence.

use trine_kvstore::{Command, SetCondition, SetExpiry, SetOptions};

use super::*;
use crate::plan::in_one;

const TOKEN: &str = "00000000000400000123456789abcdef";

fn parts(line: &str) -> Vec<&[u8]> {
    line.split(' ').map(str::as_bytes).collect()
}

/// Hands `check` the one command that the store is given.
#[track_caller]
fn planned(command: &str, unix_ms: i64, check: impl FnOnce(&Command<'_>)) {
    let line = format!("trine.do {TOKEN} 7 3 {command}");
    let parts = parts(&line);
    let once = Once::read(&parts).expect("its words are right");
    let plan = once
        .plan(unix_ms)
        .unwrap_or_else(|why| panic!("{command}: {why}"));
    let (operations, items) = plan.split();
    assert_eq!(items.len(), 1, "{command}");
    let commands = operations.commands();
    check(&in_one(&commands));
}

#[track_caller]
fn refused(line: &str, begin: &str) {
    let parts = parts(line);
    let why = Once::read(&parts).and_then(|once| once.plan(0).map(drop));
    let why = why.expect_err(line);
    assert!(why.starts_with(begin), "{line}: {why}");
    assert!(!why.contains(TOKEN), "{line}: {why}");
}

#[test]
fn a_token_is_32_hex_digits_and_shows_itself_to_nobody_else() {
    let token = Token {
        client: 0x0004_0000,
        number: 0x0123_4567_89ab_cdef,
    };
    assert_eq!(token.to_text(), TOKEN);
    assert_eq!(Token::parse(TOKEN.as_bytes()), Some(token));
    assert_eq!(Token::parse(TOKEN.to_uppercase().as_bytes()), Some(token));
    assert_eq!(format!("{token:?}"), "Token(..)");
    let long = format!("{TOKEN}0");
    let signed = format!("+{}", &TOKEN[1..]);
    for bad in [
        "",
        &TOKEN[1..],
        &long,
        &signed,
        "g0000000000400000123456789abcdef",
    ] {
        assert_eq!(Token::parse(bad.as_bytes()), None, "{bad}");
    }
    for random in [0, 1, 2, u64::MAX] {
        for is_user in [false, true] {
            let number = Token::number_of(random, is_user);
            assert_ne!(number, 0);
            assert_eq!(Token { client: 1, number }.is_of_user(), is_user);
        }
    }
}

#[test]
fn the_words_in_front_of_the_command_are_checked() {
    let line = format!("trine.do {TOKEN} 70 7 incr n");
    let read = parts(&line);
    let numbered = Once::read(&read).expect("right").numbered();
    assert_eq!((numbered.sequence, numbered.lowest), (70, 7));
    assert!(!numbered.is_closing() && Numbered::closing(numbered.token).is_closing());
    for sequence in [
        "0",
        "-1",
        "+1",
        "x",
        "",
        "1.0",
        "18446744073709551615",
        "99999999999999999999",
    ] {
        refused(
            &format!("trine.do {TOKEN} {sequence} 1 incr n"),
            NOT_A_SEQUENCE,
        );
    }
    for lowest in ["0", "-1", "8", "x", ""] {
        refused(
            &format!("trine.do {TOKEN} 7 {lowest} incr n"),
            NOT_THE_LOWEST,
        );
    }
    refused(&format!("trine.do {TOKEN} 65 1 incr n"), "WINDOW ");
    refused("trine.do nonsense 1 1 incr n", NOT_A_TOKEN);
    let last = "18446744073709551614";
    let line = format!("trine.do {TOKEN} {last} {last} incr n");
    assert!(Once::read(&parts(&line)).is_ok());
}

#[test]
fn what_only_reads_or_is_no_write_has_no_sequence() {
    for (command, why) in [
        (
            "get k",
            "ERR TRINE.DO takes one write, and this 'get' only reads",
        ),
        (
            "getex k",
            "ERR TRINE.DO takes one write, and this 'getex' only reads",
        ),
        (
            "trine.getv k",
            "ERR TRINE.DO takes one write, and this 'trine.getv' only reads",
        ),
        (
            "multi",
            "ERR TRINE.DO takes one write, and 'multi' belongs to a transaction",
        ),
        ("exec", "ERR TRINE.DO takes one write, and 'exec' belongs"),
        (
            "watch k",
            "ERR TRINE.DO takes one write, and 'watch' belongs",
        ),
        ("ping", "ERR TRINE.DO takes one write, and 'ping' is none"),
        (
            "subscribe c",
            "ERR TRINE.DO takes one write, and 'subscribe' is none",
        ),
        (
            "trine.session",
            "ERR TRINE.DO takes one write, and 'trine.session' is none",
        ),
        ("blpop k 1", "ERR unknown command 'blpop'"),
        ("eval x 0", "ERR unknown command 'eval'"),
        ("incr", "ERR wrong number of arguments for 'incr' command"),
        ("incrby k x", "ERR value is not an integer"),
    ] {
        refused(&format!("trine.do {TOKEN} 1 1 {command}"), why);
    }
    let nested = format!("trine.do {TOKEN} 1 1 trine.do {TOKEN} 1 1 incr n");
    refused(
        &nested,
        "ERR TRINE.DO takes one write, and 'trine.do' is none",
    );
}

#[test]
fn a_write_becomes_one_command_of_the_store() {
    let is = |command: &str, expected: Command<'_>| {
        planned(command, 0, |command| assert_eq!(*command, expected));
    };
    let key = b"k".as_slice();
    is("incr k", Command::Increment { key, delta: 1 });
    is("del k", Command::Delete { key });
    is("flushall async", Command::Flush);
    let options = SetOptions {
        condition: SetCondition::Always,
        expiry: SetExpiry::After(1_000_000_000),
        return_previous: false,
    };
    let value = b"v".as_slice();
    is(
        "set k v px 1000",
        Command::Set {
            key,
            value,
            options,
        },
    );
    for several in ["del a b c", "getex k ex 5", "trine.cas k 5 v px 7"] {
        planned(several, 0, |command| {
            assert!(
                matches!(command, Command::Execute { .. }),
                "{several}: {command:?}"
            );
        });
    }
}

/// A copy that comes after the moment was planned as a deletion, and could not be answered with what the first copy's
/// write had been answered.
#[test]
fn a_moment_makes_the_same_operations_before_and_after_it() {
    let shape_of = |command: &str, unix_ms| {
        let mut shape = Vec::new();
        planned(command, unix_ms, |command| match command {
            Command::Execute { operations, .. } => {
                shape.extend(operations.iter().map(|operation| operation.kind()));
            }
            single => shape.push(single.kind()),
        });
        shape
    };
    for command in [
        "set k v pxat 5000",
        "set k v exat 5 nx",
        "getex k pxat 5000",
    ] {
        assert_eq!(shape_of(command, 0), shape_of(command, 9_000), "{command}");
    }
    // Whether it deletes or sets a time, the answer to its one operation is whether the key has changed.
    for command in ["pexpireat k 5000", "expireat k 5", "expireat k 5 lt"] {
        let lengths = [0, 9_000].map(|unix_ms| shape_of(command, unix_ms).len());
        assert_eq!(lengths, [1, 1], "{command}");
    }
}

#[test]
fn copies_have_one_checksum_and_other_commands_another() {
    let sum = |command: &str| {
        let line = format!("trine.do {TOKEN} 7 3 {command}");
        Once::read(&parts(&line))
            .expect("right")
            .numbered()
            .checksum
    };
    assert_eq!(sum("set k v pxat 5000"), sum("SET k v pxat 5000"));
    let different = [
        "set k v",
        "set k w",
        "set kv w",
        "set k v nx",
        "append k v",
        "incr k",
    ];
    let sums: std::collections::BTreeSet<u32> = different.into_iter().map(sum).collect();
    assert_eq!(sums.len(), different.len());
}
