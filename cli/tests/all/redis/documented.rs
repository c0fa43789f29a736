//! Commands and their replies as Redis's documentation describes them (redis.io/commands), by command.

use std::time::Instant;

use super::RedisGroup;

/// A connection's lines, each with its reply. `~` in front of a number allows for a little elapsed time.
const EXAMPLES: &[&[(&str, &str)]] = &[
    // APPEND returns the new length; a missing key counts as empty.
    &[
        ("EXISTS k", ":0"),
        ("APPEND k Hello", ":5"),
        ("APPEND k _World", ":11"),
        ("GET k", "\"Hello_World\""),
    ],
    // DECR, DECRBY, INCR, INCRBY: a missing key counts as 0. A value that is no number, or exceeds 64 bits, is an
    // error.
    &[
        ("SET k 10", "+OK"),
        ("DECR k", ":9"),
        ("DECRBY k 3", ":6"),
        ("INCR k", ":7"),
        ("INCRBY k 5", ":12"),
        ("SET k 234293482390480948029348230948", "+OK"),
        ("DECR k", "-ERR value is not an integer or out of range"),
        ("SET k 9223372036854775807", "+OK"),
        ("INCR k", "-ERR increment or decrement would overflow"),
    ],
    // DEL and UNLINK return how many keys there were.
    &[
        ("SET k Hello", "+OK"),
        ("SET l World", "+OK"),
        ("DEL k l m", ":2"),
        ("UNLINK k", ":0"),
    ],
    // EXISTS counts a key as often as it is named.
    &[
        ("SET k Hello", "+OK"),
        ("EXISTS k", ":1"),
        ("EXISTS k k nosuchkey", ":2"),
    ],
    // EXPIRE, TTL and PERSIST; SET removes the expiry.
    &[
        ("SET k Hello", "+OK"),
        ("EXPIRE k 10", ":1"),
        ("TTL k", "~:10"),
        ("SET k World", "+OK"),
        ("TTL k", ":-1"),
        ("EXPIRE nokey 10", ":0"),
        ("TTL nokey", ":-2"),
        ("EXPIRE k 10", ":1"),
        ("PERSIST k", ":1"),
        ("TTL k", ":-1"),
        ("PERSIST k", ":0"),
    ],
    // NX and XX test whether there is an expiry.
    &[
        ("SET k Hello", "+OK"),
        ("TTL k", ":-1"),
        ("EXPIRE k 10 XX", ":0"),
        ("TTL k", ":-1"),
        ("EXPIRE k 10 NX", ":1"),
        ("TTL k", "~:10"),
        ("EXPIRE k 20 NX", ":0"),
        ("EXPIRE k 20 XX", ":1"),
        ("TTL k", "~:20"),
        ("EXPIRE nokey 10 NX", ":0"),
        ("EXPIRE nokey 10 LT", ":0"),
    ],
    // GT and LT compare; a key without an expiry stays forever.
    &[
        ("SET k Hello", "+OK"),
        ("PEXPIRE k 100000 GT", ":0"),
        ("TTL k", ":-1"),
        ("PEXPIRE k 100000 XX LT", ":0"),
        ("PEXPIRE k 100000 LT", ":1"),
        ("PEXPIRE k 200000 LT", ":0"),
        ("TTL k", "~:100"),
        ("PEXPIRE k 200000 GT", ":1"),
        ("PEXPIRE k 100000 GT", ":0"),
        ("TTL k", "~:200"),
        ("EXPIRE k 100 LT XX", ":1"),
        ("TTL k", "~:100"),
        ("EXPIRE k 300 XX GT", ":1"),
        ("TTL k", "~:300"),
    ],
    // A moment in the past deletes the key if the condition holds, also in a transaction.
    &[
        ("SET k Hello", "+OK"),
        ("EXPIREAT k 1 XX", ":0"),
        ("EXPIREAT k 1 GT", ":0"),
        ("EXISTS k", ":1"),
        ("EXPIREAT k 1 LT", ":1"),
        ("EXISTS k", ":0"),
        ("SET k Hello", "+OK"),
        ("MULTI", "+OK"),
        ("EXPIRE k 10 NX", "+QUEUED"),
        ("EXPIRE k 20 NX", "+QUEUED"),
        ("EXPIRE k -1 XX", "+QUEUED"),
        ("EXEC", "*[:1 :0 :1]"),
        ("GET k", "$-1"),
    ],
    &[
        (
            "EXPIRE k 1 NX GT",
            "-ERR NX and XX, GT or LT options at the same time are not compatible",
        ),
        (
            "EXPIRE k 1 GT LT",
            "-ERR GT and LT options at the same time are not compatible",
        ),
        ("EXPIRE k 1 foo", "-ERR Unsupported option foo"),
    ],
    // A time in the past deletes the key.
    &[("SET k Hello EXAT 1", "+OK"), ("GET k", "$-1")],
    &[
        ("SET k Hello", "+OK"),
        ("EXPIREAT k 1293840000", ":1"),
        ("EXISTS k", ":0"),
    ],
    &[
        ("SET k Hello", "+OK"),
        ("PEXPIRE k 1500", ":1"),
        ("TTL k", "~:2"),
        ("PTTL k", "~:1500"),
    ],
    // GETDEL, GETEX, GETSET.
    &[
        ("SET k Hello", "+OK"),
        ("GETDEL k", "\"Hello\""),
        ("GET k", "$-1"),
        ("GETDEL k", "$-1"),
    ],
    &[
        ("SET k Hello", "+OK"),
        ("GETEX k", "\"Hello\""),
        ("TTL k", ":-1"),
        ("GETEX k EX 60", "\"Hello\""),
        ("TTL k", "~:60"),
        ("GETEX k PERSIST", "\"Hello\""),
        ("TTL k", ":-1"),
        ("GETEX k EX", "-ERR syntax error"),
    ],
    &[
        ("INCR k", ":1"),
        ("GETSET k 0", "\"1\""),
        ("GET k", "\"0\""),
        ("GETSET new v", "$-1"),
    ],
    // MGET, MSET.
    &[
        ("MSET k Hello l World", "+OK"),
        ("MGET k l nonexisting", "*[\"Hello\" \"World\" $-1]"),
        (
            "MSET k",
            "-ERR wrong number of arguments for 'mset' command",
        ),
    ],
    // SET: NX, XX, GET, EX, KEEPTTL.
    &[
        ("SET k Hello EX 60", "+OK"),
        ("SET k World KEEPTTL", "+OK"),
        ("TTL k", "~:60"),
        ("SET k x NX", "$-1"),
        ("SET k y XX GET", "\"World\""),
        ("TTL k", ":-1"),
        ("SET new v XX", "$-1"),
        ("SET new v NX GET", "$-1"),
        ("GET new", "\"v\""),
        ("SET k v EX 0", "-ERR invalid expire time in 'set' command"),
        ("SET k v NX XX", "-ERR syntax error"),
        (
            "SET k v EX ten",
            "-ERR value is not an integer or out of range",
        ),
    ],
    &[
        ("SETNX k Hello", ":1"),
        ("SETNX k World", ":0"),
        ("GET k", "\"Hello\""),
    ],
    &[
        ("SETEX k 10 Hello", "+OK"),
        ("TTL k", "~:10"),
        ("PSETEX k 1000 Hello", "+OK"),
        ("PTTL k", "~:1000"),
        (
            "SETEX k 0 Hello",
            "-ERR invalid expire time in 'setex' command",
        ),
    ],
    &[
        ("SET k Hello_world", "+OK"),
        ("STRLEN k", ":11"),
        ("STRLEN nonexisting", ":0"),
    ],
    // MULTI, EXEC, DISCARD: a wrong command ends the transaction, a failing one does not.
    &[
        ("MULTI", "+OK"),
        ("SET k abc", "+QUEUED"),
        ("INCR k", "+QUEUED"),
        ("SET l 1", "+QUEUED"),
        (
            "EXEC",
            "*[+OK -ERR value is not an integer or out of range +OK]",
        ),
        ("GET l", "\"1\""),
    ],
    &[
        ("SET k 1", "+OK"),
        ("MULTI", "+OK"),
        ("INCR k", "+QUEUED"),
        ("DISCARD", "+OK"),
        ("GET k", "\"1\""),
    ],
    &[
        ("MULTI", "+OK"),
        (
            "INCR a b c",
            "-ERR wrong number of arguments for 'incr' command",
        ),
        (
            "EXEC",
            "-EXECABORT Transaction discarded because of previous errors.",
        ),
    ],
    &[
        ("WATCH k", "+OK"),
        ("SET k 1", "+OK"),
        ("MULTI", "+OK"),
        ("SET k 2", "+QUEUED"),
        ("EXEC", "*-1"),
        ("GET k", "\"1\""),
    ],
    // The connection.
    &[
        ("ECHO hello", "\"hello\""),
        ("PING", "+PONG"),
        ("PING text", "\"text\""),
        ("SELECT 0", "+OK"),
        ("SELECT 99", "-ERR DB index is out of range"),
        ("GET", "-ERR wrong number of arguments for 'get' command"),
        (
            "NOSUCH a",
            "-ERR unknown command 'NOSUCH', with args beginning with: 'a' ",
        ),
    ],
];

#[test]
fn replies_are_the_documented_ones_at_every_replica() {
    let group = RedisGroup::start(&[]);
    for (index, lines) in EXAMPLES.iter().enumerate() {
        // The result does not depend on the leader.
        let mut wire = group.connect(1 + index % 3);
        wire.ask("DEL k l m new a nokey");
        for (line, expected) in *lines {
            let reply = wire.ask(line);
            assert!(
                is_as(&reply, expected),
                "{line}: {reply} instead of {expected}"
            );
        }
    }
    let mut wire = group.connect(1);
    assert!(wire.ask("HELLO 3").starts_with("%["), "a map");
    assert_eq!(wire.ask("GET none"), "_");
    assert_eq!(wire.ask("CONFIG GET save"), "%[\"save\" \"\"]");
}

/// The same moment twice was a later one the second time, by the time that passed between two clocks.
#[test]
fn a_moment_is_not_later_than_itself() {
    let group = RedisGroup::start(&[]);
    for node_id in 1..=3 {
        let mut wire = group.connect(node_id);
        wire.ask("SET k v");
        for (line, expected) in [
            ("EXPIREAT k 9999999999", ":1"),
            ("EXPIREAT k 9999999999 GT", ":0"),
            ("EXPIREAT k 9999999999 LT", ":0"),
            ("EXPIREAT k 10000000000 GT", ":1"),
            ("EXPIREAT k 9999999999 GT", ":0"),
            ("EXPIREAT k 9999999999 LT", ":1"),
            ("EXPIREAT k 9999999998 XX LT", ":1"),
            ("PERSIST k", ":1"),
            ("EXPIREAT k 9999999999 GT", ":0"),
            ("EXPIREAT k 9999999999 LT", ":1"),
            ("EXPIRE k 100", ":1"),
            ("EXPIREAT k 9999999999 NX", ":0"),
            ("EXPIREAT k 9999999999 XX", ":1"),
        ] {
            assert_eq!(wire.ask(line), expected, "{line} at {node_id}");
        }
    }
}

/// An expired key is gone for all clients, and not before its time.
#[test]
fn keys_expire() {
    let group = RedisGroup::start(&[]);
    let mut wire = group.connect(2);
    let begun = Instant::now();
    assert_eq!(wire.ask("SET k v PX 300"), "+OK");
    crate::common::wait_for("the end of the key", || {
        (wire.ask("GET k") == "$-1").then_some(())
    });
    assert!(
        begun.elapsed() >= std::time::Duration::from_millis(300),
        "too early"
    );
    assert_eq!(wire.ask("TTL k"), ":-2");
}

/// Nobody writes, so no entry moves group time, and TTL and PTTL stood still.
#[test]
fn times_to_live_go_down_in_a_group_where_nobody_writes() {
    let group = RedisGroup::start(&[]);
    let mut wire = group.connect(1);
    let number = |reply: String| -> i64 { reply[1..].parse().expect("a number") };
    let begun = Instant::now();
    assert_eq!(wire.ask("SET k v PX 60000"), "+OK");
    let written = Instant::now();
    let since = |moment: Instant| moment.elapsed().as_millis() as i64;
    crate::common::wait_for("a second and a half", || {
        let at_least = since(written);
        let left = number(wire.ask("PTTL k"));
        // The leader reads its clock once a turn, and may wait for a processor between that and the read.
        assert!(
            left <= 60_000 - at_least + 500,
            "{left} after {at_least} ms"
        );
        assert!(left >= 60_000 - since(begun) - 2, "{left}");
        (at_least >= 1_500).then_some(())
    });
    wire.ask("SET k v PX 200");
    // As long as the key is there, it has some time left.
    crate::common::wait_for("the end of the key", || {
        wire.send_bytes(b"MULTI\r\nPTTL k\r\nTTL k\r\nGET k\r\nEXEC\r\n");
        let replies: Vec<String> = (0..5).map(|_| wire.reply()).collect();
        let gone = replies[4] == "*[:-2 :-2 $-1]";
        assert!(gone || replies[4].ends_with("\"v\"]"), "{replies:?}");
        assert!(gone || !replies[4].contains(":0"), "{replies:?}");
        gone.then_some(())
    });
}

fn is_as(reply: &str, expected: &str) -> bool {
    let number = |text: &str| {
        text.strip_prefix(':')
            .and_then(|digits| digits.parse::<i64>().ok())
    };
    match expected.strip_prefix('~') {
        // A busy machine may let a second or two pass.
        Some(expected) => {
            let (got, expected) = (number(reply), number(expected));
            let slack = expected.map_or(0, |expected| if expected > 100 { 900 } else { 2 });
            got.zip(expected)
                .is_some_and(|(got, expected)| (expected - slack..=expected).contains(&got))
        }
        None => reply == expected,
    }
}
