//! What a connection holds, and what it refuses: memory, other protocols, commands that are too large.

use trine_commands::limits::PATTERN_BYTES_MAX;

use super::*;
use crate::limits::SETTING_PATTERNS_MAX;

/// Written bytes were dropped only when nothing was left to write. A client that read, but never all of it, made the
/// connection keep all replies since its beginning: 268 MiB with a documented limit of 1 MiB.
#[test]
fn a_reader_that_is_always_behind_holds_only_what_it_has_not_read() {
    let limits = Limits {
        output_bytes: 1 << 20,
        ..Limits::default()
    };
    let mut bench = Bench::with(limits, None);
    let value = "v".repeat(200_000);
    bench.says(&format!("SET k {}", &value[..60_000]), "+OK\r\n");
    let mut most = 0;
    for round in 0..2_000 {
        bench.connection.on_bytes(b"GET k\r\n");
        for call in bench.advance() {
            bench.answer(&call);
        }
        most = most.max(bench.connection.held_bytes());
        // It never reads the last bytes.
        let unread = bench.connection.output().len();
        assert!(round < 1 || unread > 100, "something is always left");
        bench.connection.on_written(unread.saturating_sub(100));
    }
    assert!(most < 1 << 20, "{most} bytes for replies of 60,000");
}

#[test]
fn an_empty_buffer_gives_its_memory_back() {
    let mut bench = Bench::new();
    let fresh = bench.connection.held_bytes();
    bench.says(&format!("SET k {}", "v".repeat(60_000)), "+OK\r\n");
    bench.send(b"GET k\r\n");
    assert!(bench.connection.held_bytes() > fresh + 60_000);
    bench.connection.release();
    assert!(bench.connection.held_bytes() < fresh + PARSER_BYTES);
    // 60,000 parts left a megabyte of ranges behind, which nobody counted.
    let request = ["$0\r\n\r\n"; 60_000].concat();
    bench.send(format!("*60000\r\n{request}").as_bytes());
    bench.connection.on_written(bench.connection.output().len());
    bench.connection.release();
    assert!(bench.connection.held_bytes() < fresh + PARSER_BYTES);
}

/// More than a parser keeps between requests.
const PARSER_BYTES: usize = 8 << 10;

/// Part of a reply had left, and EXEC collected its replies in an empty buffer: CLIENT INFO measured the unread bytes from
/// where the earlier reply had been written to, beyond the end, and the panic took the replica with it.
#[test]
fn a_client_that_has_read_half_a_reply_may_ask_about_itself_in_a_transaction() {
    for asks in ["CLIENT INFO", "CLIENT LIST"] {
        let mut bench = Bench::new();
        bench.says(&format!("SET k {}", "v".repeat(1_000)), "+OK\r\n");
        bench.connection.on_bytes(b"GET k\r\n");
        for call in bench.advance() {
            bench.answer(&call);
        }
        bench.connection.on_written(500);
        let unread = bench.connection.output().len();
        let replies = bench.send(format!("MULTI\r\n{asks}\r\nEXEC\r\n").as_bytes());
        let own = &replies[unread..];
        assert!(own.starts_with("+OK\r\n+QUEUED\r\n*1\r\n$"), "{own}");
        assert!(own.contains("id=7 "), "{own}");
    }
}

/// A browser can be made to send such requests, and the lines of their bodies were done as commands.
#[test]
fn a_request_of_http_ends_the_connection_without_a_word() {
    for words in [
        "POST / HTTP/1.1",
        "post",
        "Host: localhost",
        "*1\r\n$4\r\nPoSt",
    ] {
        let mut bench = Bench::new();
        bench.connection.on_bytes(b"SET k before\r\n");
        let replies = bench.send(format!("{words}\r\nSET k evil\r\n").as_bytes());
        assert_eq!(replies, "+OK\r\n", "{words}: what came before is done");
        assert!(bench.connection.is_over() && bench.connection.is_attack());
        assert!(!bench.connection.is_broken(), "there is nothing to tell");
        assert_eq!(bench.calls, 1, "{words}");
    }
    let mut bench = Bench::new();
    bench.says("MULTI", "+OK\r\n");
    bench.says("Host: localhost", "");
    assert!(bench.connection.is_over());
}

/// The replica could not read such a command. It answered that it was another release, and the commands before it in
/// the pipeline had the same error.
#[test]
fn more_keys_than_the_store_takes_are_refused_alone() {
    let mut bench = Bench::new();
    let command = |name: &str, parts: usize| {
        let mut bytes = format!("*{}\r\n${}\r\n{name}\r\n", parts + 1, name.len());
        bytes += &"$1\r\nk\r\n".repeat(parts);
        bytes
    };
    for (name, parts) in [("MGET", 16_385), ("DEL", 16_385), ("EXISTS", 20_000)] {
        let mut bytes = "SET a 1\r\n*2\r\n$3\r\nGET\r\n$1\r\na\r\n".to_owned();
        bytes += &command(name, parts);
        bytes += "GET a\r\n";
        let refused = "-ERR too many keys in one command: at most 16384\r\n";
        let expected = format!("+OK\r\n$1\r\n1\r\n{refused}$1\r\n1\r\n");
        assert_eq!(bench.send(bytes.as_bytes()), expected, "{name}");
    }
    let refused = "-ERR too many pairs in one command: at most 16384\r\n";
    assert_eq!(bench.send(command("MSET", 2 * 16_385).as_bytes()), refused);
    assert_eq!(
        bench.send(command("MSET", 2 * 16_384).as_bytes()),
        "+OK\r\n"
    );
    // Each of them is allowed, and together they would be too many.
    let both = command("EXISTS", 16_384) + &command("EXISTS", 4_000);
    let both = command("EXISTS", 4_000) + &both;
    assert_eq!(bench.send(both.as_bytes()), ":4000\r\n:16384\r\n:4000\r\n");
    bench.says("MULTI", "+OK\r\n");
    for _ in 0..5 {
        assert_eq!(
            bench.send(command("EXISTS", 4_000).as_bytes()),
            "+QUEUED\r\n"
        );
    }
    let why = "too many operations in one command: at most 16384";
    let aborted = format!("-EXECABORT Transaction discarded because of: {why}\r\n");
    bench.says("EXEC", &aborted);
}

/// 33 bytes of a request make 21 kB of a reply, which waits for the store among others. Nobody counted them: 60 clients made
/// a front hold 580 MB with a limit of 64 MiB.
#[test]
fn replies_that_wait_for_the_store_are_counted() {
    let mut bench = Bench::new();
    let docs = bench.send(b"COMMAND DOCS client\r\n").len();
    bench.says("MULTI", "+OK\r\n");
    bench.says("SET k v", "+QUEUED\r\n");
    for _ in 0..100 {
        bench.says("COMMAND DOCS client", "+QUEUED\r\n");
    }
    let before = bench.connection.held_bytes();
    bench.connection.on_bytes(b"EXEC\r\n");
    let calls = bench.advance();
    assert!(bench.connection.is_waiting());
    let held = bench.connection.held_bytes();
    assert!(held > before + 90 * docs, "{held} after {before}");
    bench.answer(&calls[0]);
    assert!(bench.take_output().len() > 100 * docs);
    bench.connection.release();
    assert!(bench.connection.held_bytes() < before);
}

/// 0.8 MB of names made a reply of 200 MB.
#[test]
fn a_command_that_is_named_again_and_again_is_not_described_without_end() {
    for subcommand in ["DOCS", "INFO"] {
        let mut bench = Bench::new();
        let once = bench.send(format!("COMMAND {subcommand} client\r\n").as_bytes());
        assert!(!once.starts_with('-'), "{once}");
        let names = "$6\r\nclient\r\n".repeat(60_000);
        let request = format!("*60002\r\n$7\r\nCOMMAND\r\n$4\r\n{subcommand}\r\n{names}");
        let said = bench.send(request.as_bytes());
        let refused = "-ERR the answer would be too large: ask for fewer commands\r\n";
        assert_eq!(said, refused);
        bench.says("PING", "+PONG\r\n");
    }
}

/// A class of a megabyte is looked through for each byte of a name: a request took seconds, in which no client was served.
#[test]
fn patterns_of_names_are_short() {
    let long = "a".repeat(PATTERN_BYTES_MAX - 1);
    for command in [
        "COMMAND LIST FILTERBY PATTERN",
        "CONFIG GET",
        "PUBSUB CHANNELS",
    ] {
        let mut bench = Bench::new();
        bench.says(&format!("{command} [{long}"), "*0\r\n");
        let refused = format!("-ERR the pattern is longer than {PATTERN_BYTES_MAX} bytes\r\n");
        bench.says(&format!("{command} [{long}a"), &refused);
    }
    let mut bench = Bench::new();
    let many = " s*".repeat(SETTING_PATTERNS_MAX);
    bench.says(
        &format!("CONFIG GET{many}"),
        "*2\r\n$4\r\nsave\r\n$0\r\n\r\n",
    );
    let refused = format!("-ERR at most {SETTING_PATTERNS_MAX} patterns in one command\r\n");
    bench.says(&format!("CONFIG GET{many} x"), &refused);
}
