//! SCAN, KEYS, RANDOMKEY and the flushes.

use trine_commands::limits::{KEYS_BYTES_MAX, PATTERN_BYTES_MAX};

use super::*;
use std::collections::BTreeSet;

const NOT_INSIDE: &str = "-ERR Command not allowed inside a transaction\r\n";

/// The bulk strings of a reply, in order.
fn strings(reply: &str) -> Vec<String> {
    let mut lines = reply.split("\r\n");
    let mut found = Vec::new();
    while let Some(line) = lines.next() {
        if line.starts_with('$') {
            found.push(lines.next().expect("the string").to_owned());
        }
    }
    found
}

impl Bench {
    fn fill(&mut self, prefix: &str, count: usize) {
        for number in 0..count {
            self.says(&format!("SET {prefix}{number} v"), "+OK\r\n");
        }
    }

    /// All keys that SCAN tells, and the number of its replies.
    fn scan(&mut self, words: &str) -> (Vec<String>, usize) {
        let (mut found, mut cursor, mut replies) = (Vec::new(), "0".to_owned(), 0);
        loop {
            let reply = self.send(format!("SCAN {cursor} {words}\r\n").as_bytes());
            assert!(reply.starts_with("*2\r\n"), "{reply}");
            let mut strings = strings(&reply);
            cursor = strings.remove(0);
            found.extend(strings);
            replies += 1;
            if cursor == "0" {
                return (found, replies);
            }
        }
    }
}

fn set(keys: &[String]) -> BTreeSet<String> {
    let set: BTreeSet<String> = keys.iter().cloned().collect();
    assert_eq!(set.len(), keys.len(), "each comes once");
    set
}

#[test]
fn scan_tells_every_key_once_and_only_what_fits() {
    let mut bench = Bench::new();
    bench.says("SCAN 0", "*2\r\n$1\r\n0\r\n*0\r\n");
    bench.fill("user:", 300);
    bench.fill("other:", 200);
    let (all, replies) = bench.scan("");
    assert_eq!(set(&all).len(), 500);
    assert!((50..=60).contains(&replies), "ten keys a reply: {replies}");
    let (all, replies) = bench.scan("COUNT 100000");
    assert_eq!((set(&all).len(), replies), (500, 1));
    let (users, _) = bench.scan("MATCH user:*");
    assert_eq!(set(&users).len(), 300);
    let (few, _) = bench.scan("count 7 match *:1?");
    assert_eq!(set(&few).len(), 20);
    assert_eq!(set(&bench.scan("TYPE STRING").0).len(), 500);
    assert!(bench.scan("TYPE hash").0.is_empty());
    assert!(bench.scan("MATCH USER:*").0.is_empty());
    // Also in the other protocol.
    bench.send(b"HELLO 3\r\n");
    assert_eq!(set(&bench.scan("COUNT 33").0).len(), 500);
}

/// The replies of redis-server 7.0.15.
#[test]
fn mistakes_in_scan_have_the_errors_of_redis() {
    let mut bench = Bench::new();
    let syntax = "-ERR syntax error\r\n";
    let no_number = "-ERR value is not an integer or out of range\r\n";
    let cursor = "-ERR invalid cursor\r\n";
    for (request, reply) in [
        (
            "SCAN",
            "-ERR wrong number of arguments for 'scan' command\r\n",
        ),
        ("SCAN x", cursor),
        ("SCAN 1x COUNT 0", cursor),
        ("SCAN 99999999999999999999", cursor),
        ("SCAN 0 COUNT", syntax),
        ("SCAN 0 COUNT 0", syntax),
        ("SCAN 0 COUNT -5", syntax),
        ("SCAN 0 COUNT x", no_number),
        ("SCAN 0 COUNT 9223372036854775808", no_number),
        ("SCAN 0 FOO 1", syntax),
        ("SCAN 0 MATCH a COUNT", syntax),
        (
            "KEYS",
            "-ERR wrong number of arguments for 'keys' command\r\n",
        ),
        ("FLUSHALL NOW", syntax),
        ("FLUSHALL ASYNC SYNC", syntax),
        ("FLUSHDB x", syntax),
        (
            "RANDOMKEY x",
            "-ERR wrong number of arguments for 'randomkey' command\r\n",
        ),
    ] {
        bench.says(request, reply);
    }
    // More than a cursor of any group has.
    bench.says("SCAN 4503599627370496", cursor);
    let long = "a".repeat(PATTERN_BYTES_MAX + 1);
    for request in [format!("KEYS {long}"), format!("SCAN 0 MATCH {long}")] {
        let refused = format!("-ERR the pattern is longer than {PATTERN_BYTES_MAX} bytes\r\n");
        bench.says(&request, &refused);
    }
}

#[test]
fn keys_asks_for_pages_until_it_has_all() {
    let mut bench = Bench::new();
    bench.says("KEYS *", "*0\r\n");
    bench.fill("k", 3_000);
    bench.fill("other", 10);
    let before = bench.calls;
    let all = strings(&bench.send(b"KEYS *\r\n"));
    assert_eq!(set(&all).len(), 3_010);
    assert!(bench.calls - before >= 3, "a page has at most 1,024 keys");
    assert_eq!(set(&strings(&bench.send(b"KEYS k[12]?\r\n"))).len(), 20);
    bench.says("KEYS other3", "*1\r\n$6\r\nother3\r\n");
    bench.says("KEYS nosuch*", "*0\r\n");
    // What was sent behind it waits for its reply.
    let replies = bench.send(b"KEYS other7\r\nGET k1\r\nPING\r\n");
    assert_eq!(replies, "*1\r\n$6\r\nother7\r\n$1\r\nv\r\n+PONG\r\n");
}

#[test]
fn keys_of_too_many_bytes_names_scan() {
    let mut bench = Bench::new();
    let long = "x".repeat(60_000);
    for number in 0..KEYS_BYTES_MAX / 60_000 + 2 {
        bench.says(&format!("SET {long}{number} v"), "+OK\r\n");
    }
    let said = bench.send(b"KEYS *\r\n");
    assert_eq!(
        said,
        "-ERR the reply to KEYS would be larger than 8388608 bytes: use SCAN\r\n"
    );
    assert_eq!(set(&bench.scan("").0).len(), KEYS_BYTES_MAX / 60_000 + 2);
    assert!(
        bench.connection.held_bytes() < 1 << 20,
        "nothing of it is kept"
    );
}

#[test]
fn a_random_key_is_one_of_them_and_not_always_the_same() {
    let mut bench = Bench::new();
    bench.says("RANDOMKEY", "$-1\r\n");
    bench.says("SET only v", "+OK\r\n");
    for _ in 0..20 {
        bench.says("RANDOMKEY", "$4\r\nonly\r\n");
    }
    bench.fill("k", 200);
    let mut seen = BTreeSet::new();
    for _ in 0..200 {
        seen.extend(strings(&bench.send(b"RANDOMKEY\r\n")));
    }
    assert!(seen.len() > 50, "{}", seen.len());
}

#[test]
fn a_flush_removes_all_keys_and_is_no_read() {
    let mut bench = Bench::new();
    for flush in ["FLUSHALL", "FLUSHDB", "flushall async", "FLUSHDB SYNC"] {
        bench.fill("k", 20);
        bench.says("DBSIZE", ":20\r\n");
        bench.says(flush, "+OK\r\n");
        bench.says("DBSIZE", ":0\r\n");
        bench.says("GET k1", "$-1\r\n");
    }
}

/// The store takes neither walks nor flushes among other operations.
#[test]
fn a_transaction_refuses_what_is_about_all_keys() {
    let mut bench = Bench::new();
    bench.says("SET a 1", "+OK\r\n");
    for request in ["SCAN 0", "KEYS *", "RANDOMKEY", "FLUSHALL", "FLUSHDB"] {
        bench.says("MULTI", "+OK\r\n");
        bench.says("SET a 2", "+QUEUED\r\n");
        bench.says(request, NOT_INSIDE);
        bench.says("EXEC", EXECABORT);
        bench.says("GET a", "$1\r\n1\r\n");
    }
    // A watched key that was flushed has changed.
    bench.says("WATCH a", "+OK\r\n");
    bench.says("FLUSHALL", "+OK\r\n");
    bench.says("MULTI", "+OK\r\n");
    bench.says("SET a 3", "+QUEUED\r\n");
    bench.says("EXEC", "*-1\r\n");
}

/// The prefix of alice is a/: she asks for nothing else, so nothing is denied.
#[test]
fn a_user_with_a_prefix_sees_its_own_keys() {
    let mut bench = Bench::new();
    bench.fill("a/", 100);
    bench.fill("b/", 100);
    bench.says("AUTH alice secret", "+OK\r\n");
    assert_eq!(set(&bench.scan("").0).len(), 100);
    assert_eq!(set(&bench.scan("MATCH a/1*").0).len(), 11);
    assert_eq!(set(&strings(&bench.send(b"KEYS *9\r\n"))).len(), 10);
    for other in ["KEYS b/*", "KEYS b/1", "KEYS z"] {
        let before = bench.calls;
        bench.says(other, "*0\r\n");
        assert_eq!(bench.calls, before, "no key there can fit");
    }
    bench.says("SCAN 0 MATCH b*", "*2\r\n$1\r\n0\r\n*0\r\n");
    for _ in 0..50 {
        let key = strings(&bench.send(b"RANDOMKEY\r\n"));
        assert!(key[0].starts_with("a/"), "{key:?}");
    }
}

#[test]
fn a_page_that_could_not_be_read_ends_the_command() {
    let mut bench = Bench::new();
    bench.fill("k", 2_000);
    bench.connection.on_bytes(b"KEYS *\r\nPING\r\n");
    let call = bench.advance().pop().expect("the first page");
    bench.answer(&call);
    assert!(bench.connection.is_waiting());
    bench.advance().pop().expect("the second page");
    assert!(
        bench.connection.held_bytes() > 1_000 * 8,
        "keys are counted"
    );
    let alone = Failure::NotApplied("alone".to_owned());
    bench.connection.on_answer(Position::ZERO, Err(alone));
    assert_eq!(bench.advance().len(), 0);
    assert_eq!(
        bench.take_output(),
        "-CLUSTERDOWN nothing was read: alone\r\n+PONG\r\n"
    );
}

/// It walked pages of 32 items: the one key of a user cost as many requests as there were pages of others' keys.
#[test]
fn a_random_key_below_a_prefix_takes_large_pages() {
    let mut bench = Bench::new();
    bench.fill("b/", 4_000);
    bench.says("SET a/only v", "+OK\r\n");
    bench.says("AUTH alice secret", "+OK\r\n");
    for _ in 0..5 {
        let before = bench.calls;
        bench.says("RANDOMKEY", "$6\r\na/only\r\n");
        let pages = bench.calls - before;
        assert!(
            pages <= 2 + 2 * 4_001_usize.div_ceil(1_024),
            "{pages} pages"
        );
    }
}
