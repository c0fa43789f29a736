//! Replies that redis-server 7.0.15 gives to the same requests.

use super::*;

/// The name was set, although EXEC was answered with "nothing was done".
#[test]
fn a_transaction_that_was_not_done_has_changed_nothing_at_the_connection() {
    let mut bench = Bench::new();
    bench.says("CLIENT SETNAME before", "+OK\r\n");
    bench.says("WATCH k", "+OK\r\n");
    bench.says("SET k 1", "+OK\r\n");
    bench.says("MULTI", "+OK\r\n");
    bench.says("CLIENT SETNAME inside", "+QUEUED\r\n");
    bench.says("CLIENT SETINFO lib-name x", "+QUEUED\r\n");
    bench.says("GET k", "+QUEUED\r\n");
    bench.says("EXEC", "*-1\r\n");
    bench.says("CLIENT GETNAME", "$6\r\nbefore\r\n");
    assert!(!bench.send(b"CLIENT INFO\r\n").contains("lib-name=x"));
    bench.says("MULTI", "+OK\r\n");
    bench.says("CLIENT SETNAME inside", "+QUEUED\r\n");
    bench.says("CLIENT GETNAME", "+QUEUED\r\n");
    bench.says("EXEC", "*2\r\n+OK\r\n$6\r\ninside\r\n");
    bench.says("CLIENT GETNAME", "$6\r\ninside\r\n");
}

/// As redis-server 7.0.15 does: an EXEC with arguments ends the transaction, other commands only spoil it.
#[test]
fn an_exec_with_arguments_ends_the_transaction() {
    let mut bench = Bench::new();
    let of = |command: &str| format!("wrong number of arguments for '{command}' command\r\n");
    bench.says("MULTI", "+OK\r\n");
    bench.says("SET a 1", "+QUEUED\r\n");
    let aborted = "-EXECABORT Transaction discarded because of: ".to_owned();
    bench.says("EXEC extra", &(aborted + &of("exec")));
    bench.says("EXEC", "-ERR EXEC without MULTI\r\n");
    bench.says("GET a", "$-1\r\n");
    for spoilt in ["DISCARD", "MULTI"] {
        bench.says("MULTI", "+OK\r\n");
        let refused = format!("-ERR {}", of(&spoilt.to_lowercase()));
        bench.says(&format!("{spoilt} extra"), &refused);
        bench.says("EXEC", EXECABORT);
    }
}

/// The replies of redis-server 7.0.15.
#[test]
fn an_option_of_getex_may_come_again() {
    let mut bench = Bench::new();
    bench.says("SET g 1", "+OK\r\n");
    let syntax = "-ERR syntax error\r\n";
    let not_a_number = "-ERR value is not an integer or out of range\r\n";
    for (request, reply) in [
        ("GETEX g EX 10 EX 20", "$1\r\n1\r\n"),
        ("TTL g", ":20\r\n"),
        ("GETEX g PERSIST PERSIST", "$1\r\n1\r\n"),
        ("TTL g", ":-1\r\n"),
        ("GETEX g EX 10 PX 5", syntax),
        ("GETEX g PERSIST EX 5", syntax),
        ("GETEX g EX 10 PERSIST", syntax),
        ("GETEX g EX", syntax),
        ("GETEX g NX", syntax),
        ("GETEX g EX a EX 5", "$1\r\n1\r\n"),
        ("GETEX g EX 5 EX a", not_a_number),
        ("TTL g", ":5\r\n"),
        ("GETEX nokey EX 5 EX a", "$-1\r\n"),
    ] {
        bench.says(request, reply);
    }
}

/// A client that speaks RESP3 could not read some of these as sets, and COMMAND LIST knew no filter. The replies are
/// those of redis-server 7.0.15.
#[test]
fn command_filters_names_and_answers_with_sets() {
    let mut bench = Bench::new();
    bench.says("COMMAND INFO nosuch", "*1\r\n$-1\r\n");
    let transactions =
        "*5\r\n$7\r\ndiscard\r\n$4\r\nexec\r\n$5\r\nmulti\r\n$7\r\nunwatch\r\n$5\r\nwatch\r\n";
    for (words, reply) in [
        ("FILTERBY PATTERN *ttl", "*2\r\n$4\r\npttl\r\n$3\r\nttl\r\n"),
        ("filterby pattern G?T", "*1\r\n$3\r\nget\r\n"),
        ("FILTERBY MODULE json", "*0\r\n"),
        ("FILTERBY ACLCAT transaction", transactions),
        ("FILTERBY ACLCAT nosuch", "*0\r\n"),
        ("FILTERBY", "-ERR syntax error\r\n"),
        ("FILTERBY PATTERN", "-ERR syntax error\r\n"),
        ("FILTERBY PATTERN a b", "-ERR syntax error\r\n"),
        ("FILTERBY FOO x", "-ERR syntax error\r\n"),
        ("FOO PATTERN x", "-ERR syntax error\r\n"),
    ] {
        bench.says(&format!("COMMAND LIST {words}"), reply);
    }
    bench.send(b"HELLO 3\r\n");
    let get = "*10\r\n$3\r\nget\r\n:2\r\n~2\r\n+readonly\r\n+fast\r\n:1\r\n:1\r\n:1\r\n~3\r\n+@string\r\n+@read\r\n+@fast\r\n~0\r\n~0\r\n~0\r\n";
    bench.says("COMMAND INFO get nosuch", &format!("*2\r\n{get}_\r\n"));
}

/// redis-cli makes its hints from the arguments. There were none.
#[test]
fn command_docs_has_arguments_and_subcommands() {
    let mut bench = Bench::new();
    let docs = bench.send(b"COMMAND DOCS get\r\n");
    let key = "*1\r\n*6\r\n$4\r\nname\r\n$3\r\nkey\r\n$4\r\ntype\r\n$3\r\nkey\r\n$14\r\nkey_spec_index\r\n:0\r\n";
    assert!(
        docs.ends_with(&format!("$9\r\narguments\r\n{key}")),
        "{docs}"
    );
    let docs = bench.send(b"COMMAND DOCS set client\r\n");
    for part in [
        "oneof",
        "KEEPTTL",
        "pure-token",
        "+optional",
        "client|setname",
    ] {
        assert!(docs.contains(part), "{part}: {docs}");
    }
    // Every reply is whole: the next one begins where it ends.
    bench.send(b"HELLO 3\r\n");
    let replies = bench.send(b"COMMAND DOCS\r\nPING\r\n");
    assert!(replies.ends_with("\r\n+PONG\r\n"));
    assert_eq!(replies_in(replies.as_bytes()), 2);
}

/// How many replies these bytes are.
fn replies_in(mut bytes: &[u8]) -> usize {
    fn one(bytes: &[u8]) -> &[u8] {
        let end = bytes
            .windows(2)
            .position(|end| end == b"\r\n")
            .expect("a line");
        let count = || {
            std::str::from_utf8(&bytes[1..end])
                .expect("digits")
                .parse::<usize>()
        };
        let rest = &bytes[end + 2..];
        match bytes[0] {
            b'$' => &rest[count().expect("a length") + 2..],
            b'*' | b'~' => (0..count().expect("a count")).fold(rest, |rest, _| one(rest)),
            b'%' => (0..2 * count().expect("a count")).fold(rest, |rest, _| one(rest)),
            _ => rest,
        }
    }
    let mut count = 0;
    while !bytes.is_empty() {
        bytes = one(bytes);
        count += 1;
    }
    count
}

/// The clock of the replica and group time do not move together. So the same moment was later than itself.
#[test]
fn a_moment_of_unix_time_is_not_later_than_itself() {
    let mut bench = Bench::new();
    bench.says("SET k v", "+OK\r\n");
    bench.says("EXPIREAT k 1000", ":1\r\n");
    // 5 ms of group time have passed, and none of the clock that the requests are read by.
    bench.store.borrow_mut().set_group_time(5_000_000);
    for (request, reply) in [
        ("EXPIREAT k 1000 GT", ":0\r\n"),
        ("EXPIREAT k 1000 LT", ":0\r\n"),
        ("PEXPIREAT k 1000000 GT", ":0\r\n"),
        ("EXPIREAT k 1001 GT", ":1\r\n"),
        ("TTL k", ":1001\r\n"),
        ("EXPIREAT k 1000 GT", ":0\r\n"),
        ("EXPIREAT k 1000 XX LT", ":1\r\n"),
        ("TTL k", ":1000\r\n"),
        ("PEXPIREAT k 1000100 GT", ":1\r\n"),
        ("PTTL k", ":1000100\r\n"),
        ("PERSIST k", ":1\r\n"),
        ("EXPIREAT k 1000 XX LT", ":0\r\n"),
        ("EXPIREAT k 1000 GT", ":0\r\n"),
        ("TTL k", ":-1\r\n"),
        ("EXPIREAT k 1000 LT", ":1\r\n"),
        ("TTL k", ":1000\r\n"),
        // What is answered with 0 has changed nothing. It brought the exact moment, and a new version of the key.
        ("PEXPIREAT k 1000010 GT", ":0\r\n"),
        ("PTTL k", ":1000000\r\n"),
        ("PEXPIREAT k 999990 LT", ":0\r\n"),
        ("PTTL k", ":1000000\r\n"),
        ("PEXPIREAT k 1000100 GT", ":1\r\n"),
        ("EXPIREAT k 1000 LT", ":0\r\n"),
        ("PTTL k", ":1000100\r\n"),
    ] {
        bench.says(request, reply);
    }
}

/// The lines in Redis's arrays: only such requests share a call.
fn packed(lines: &str) -> Vec<u8> {
    let array = |line: &str| {
        let words: Vec<&str> = line.split(' ').collect();
        let parts = words
            .iter()
            .map(|word| format!("${}\r\n{word}\r\n", word.len()));
        format!("*{}\r\n{}", words.len(), parts.collect::<String>())
    };
    lines
        .split("\r\n")
        .map(array)
        .collect::<String>()
        .into_bytes()
}

/// Found by review: commands of one pipeline share a call. One that the group did not know yet, in the middle of an
/// upgrade, failed all of them.
#[test]
fn a_command_that_is_too_new_for_the_group_fails_alone() {
    let mut bench = Bench::new();
    bench.store = RefCell::new(Store::with_version(StoreLimits::default(), [1, 2], 3));
    let replies = bench.send(&packed("SET a 1\r\nEXPIREAT a 1000 GT\r\nGET a"));
    let lines: Vec<&str> = replies.split("\r\n").collect();
    assert_eq!((lines[0], &lines[2..]), ("+OK", &["$1", "1", ""][..]));
    assert!(lines[1].starts_with("-ERR"), "{replies}");
}

/// An error of a later release, about one key of several, was the answer to each command that had been sent along.
#[test]
fn an_unknown_error_about_one_command_leaves_the_others_alone() {
    let mut bench = Bench::new();
    bench.connection.on_bytes(&packed("GET a\r\nGET b"));
    let both = bench.advance();
    let together = Command::decode(&both[0]).expect("a command");
    assert!(matches!(together, Command::Execute { .. }), "{together:?}");
    let mut refusal = Vec::new();
    Response::Denied { reason: "k" }.encode(&mut refusal);
    // An error whose number no release has given out yet.
    refusal[1..].fill(0);
    refusal.resize(40, 0);
    (refusal[1], refusal[2]) = (13, 200);
    let unknown = Response::decode(&refusal).expect("it has a form");
    assert!(matches!(unknown, Response::OtherError(_)), "{unknown:?}");
    bench.connection.on_answer(Position::ZERO, Ok(unknown));
    let first = bench.advance();
    bench.answer(&first[0]);
    assert_eq!(bench.send(b""), "$-1\r\n$-1\r\n");
}

/// The old value went, although the new one had been refused.
#[test]
fn the_answer_to_a_set_until_a_moment_in_the_past_is_true_in_a_full_store() {
    let limits = StoreLimits {
        memory_bytes: 4_096,
        ..StoreLimits::default()
    };
    for words in ["PXAT 1", "EXAT 1", "GET PXAT 1"] {
        let mut bench = Bench::new();
        bench.store = RefCell::new(Store::new(limits, [1, 2]));
        bench.unix_ms = 5_000;
        bench.says("SET k precious", "+OK\r\n");
        let long = "v".repeat(8_000);
        let full = bench.send(format!("SET k {long}\r\n").as_bytes());
        assert!(full.starts_with("-OOM"), "{full}");
        // Redis sets the key and deletes it. What counts is that the answer and the key agree.
        let said = bench.send(format!("SET k {long} {words}\r\n").as_bytes());
        assert!(!said.starts_with('-'), "{said}");
        bench.says("GET k", "$-1\r\n");
    }
}

#[test]
fn client_list_tells_of_those_that_are_asked_for() {
    let mut bench = Bench::new();
    for asked in ["", " TYPE normal", " type NORMAL", " ID 3 7", " ID 7 7"] {
        let said = bench.send(format!("CLIENT LIST{asked}\r\n").as_bytes());
        assert!(said.contains("id=7 addr="), "{asked}: {said}");
    }
    for asked in ["TYPE pubsub", "TYPE replica", "TYPE master", "ID 8"] {
        bench.says(&format!("CLIENT LIST {asked}"), "$0\r\n\r\n");
    }
    for (asked, error) in [
        ("bogus", "-ERR syntax error\r\n"),
        ("ID", "-ERR syntax error\r\n"),
        ("TYPE normal x", "-ERR syntax error\r\n"),
        ("TYPE x", "-ERR Unknown client type 'x'\r\n"),
        ("ID x", "-ERR Invalid client ID\r\n"),
        ("ID -1", "-ERR Invalid client ID\r\n"),
    ] {
        bench.says(&format!("CLIENT LIST {asked}"), error);
    }
}

/// The error said that HELLO had done nothing, and the name had changed.
#[test]
fn a_hello_that_a_transaction_refuses_changes_nothing() {
    let mut bench = Bench::new();
    bench.says("MULTI", "+OK\r\n");
    bench.says("HELLO 3 SETNAME bob", "+QUEUED\r\n");
    let said = bench.send(b"EXEC\r\n");
    assert!(said.contains("cannot change the protocol"), "{said}");
    bench.says("CLIENT GETNAME", "$-1\r\n");
}

/// The error of an unknown subcommand says "Try CONFIG HELP", which was answered with the same error.
#[test]
fn help_names_the_subcommands_that_there_are() {
    let mut bench = Bench::new();
    for (command, count, known) in [
        ("CLIENT", 23, &["SETNAME <name>", "GETNAME", "ID"][..]),
        ("COMMAND", 15, &["COUNT", "DOCS [<command-name> ...]"]),
        ("CONFIG", 7, &["GET <pattern> [<pattern> ...]"]),
    ] {
        let reply = bench.send(format!("{command} HELP\r\n").as_bytes());
        let lines: Vec<&str> = reply.lines().collect();
        assert_eq!(lines[0], format!("*{count}"), "{reply}");
        assert_eq!(lines.len(), count + 1, "{reply}");
        assert_eq!(
            lines[1],
            format!("+{command} <subcommand> [<arg> [value] [opt] ...]. Subcommands are:")
        );
        for name in known.iter().chain(&["HELP"]) {
            let line = format!("+{name}");
            assert!(
                lines.contains(&line.as_str()),
                "{name} is missing in {reply}"
            );
        }
        bench.says(
            &format!("{command} HELP me"),
            &format!(
                "-ERR wrong number of arguments for '{}|help' command\r\n",
                command.to_lowercase()
            ),
        );
    }
}
