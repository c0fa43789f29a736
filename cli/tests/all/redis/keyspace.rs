//! SCAN, KEYS, RANDOMKEY and FLUSHALL of a real group, and beside redis-server.

use std::collections::BTreeSet;

use trine_transport::prng::Prng;

use super::differential::RedisServer;
use super::wire::Wire;
use super::{RedisGroup, has_tool};

const KEYS: usize = 700;

/// The bulk strings of a reply of arrays, in order.
fn strings(reply: &str) -> Vec<String> {
    let quoted = reply.split('"').skip(1).step_by(2);
    quoted.map(str::to_owned).collect()
}

fn set(reply: &str) -> BTreeSet<String> {
    let strings = strings(reply);
    let set: BTreeSet<String> = strings.iter().cloned().collect();
    assert_eq!(set.len(), strings.len(), "each comes once: {reply}");
    set
}

/// All keys that SCAN tells with these words. Redis may tell a key twice.
fn scan(wire: &mut Wire, words: &str) -> BTreeSet<String> {
    let (mut found, mut cursor) = (BTreeSet::new(), "0".to_owned());
    loop {
        let reply = wire.ask(format!("SCAN {cursor} {words}").trim_end());
        let mut strings = strings(&reply);
        assert!(!strings.is_empty(), "{reply}");
        cursor = strings.remove(0);
        found.extend(strings);
        if cursor == "0" {
            return found;
        }
    }
}

fn fill(wires: &mut [&mut Wire]) {
    for number in 0..KEYS {
        let family = ["user", "User", "a*b", "[x]", "note"][number % 5];
        for wire in &mut *wires {
            assert_eq!(wire.ask(&format!("SET {family}:{number} v")), "+OK");
        }
    }
}

/// A walk that one replica begins goes on at the next one, whose leader is another by then.
#[test]
fn a_scan_survives_the_death_of_the_leader() {
    let mut group = RedisGroup::start(&[]);
    let mut wires: Vec<Wire> = (1..=3).map(|node_id| group.connect(node_id)).collect();
    fill(&mut [&mut wires[0]]);
    let (mut found, mut cursor) = (Vec::new(), "0".to_owned());
    for number in 0.. {
        if number == 3 {
            let leader = group.cluster.leader();
            group.cluster.group.kill(leader).expect("killed");
            wires.remove(leader - 1);
        }
        let count = wires.len();
        let reply = wires[number % count].ask(&format!("SCAN {cursor} COUNT 50"));
        let mut strings = strings(&reply);
        assert!(!strings.is_empty(), "{reply}");
        cursor = strings.remove(0);
        found.extend(strings);
        if cursor == "0" {
            break;
        }
    }
    assert_eq!(found.len(), KEYS);
    assert_eq!(found.iter().collect::<BTreeSet<_>>().len(), KEYS);
}

#[test]
fn all_keys_are_those_of_redis() {
    if !has_tool("redis-server") {
        return;
    }
    let redis = RedisServer::start();
    let group = RedisGroup::start(&[]);
    let (mut theirs, mut ours) = (Wire::connect(redis.address()), group.connect(2));
    fill(&mut [&mut theirs, &mut ours]);
    for words in [
        "",
        "COUNT 1",
        "COUNT 1000",
        "MATCH user:*",
        "MATCH U*",
        "match *:1[0-4]? count 33",
        "MATCH a\\*b:*",
        "MATCH \\[x\\]:1?",
        "TYPE string",
        "TYPE hash",
        "MATCH nothing* COUNT 77",
    ] {
        assert_eq!(scan(&mut ours, words), scan(&mut theirs, words), "{words}");
    }
    for pattern in [
        "*",
        "user:*",
        "?ser:1??",
        "[uU]ser:[^1]*",
        "a\\*b:?",
        "x",
        "*9",
    ] {
        let ask = format!("KEYS {pattern}");
        assert_eq!(set(&ours.ask(&ask)), set(&theirs.ask(&ask)), "{pattern}");
    }
    let all = scan(&mut ours, "");
    for _ in 0..20 {
        let key = strings(&ours.ask("RANDOMKEY")).remove(0);
        assert!(all.contains(&key), "{key}");
    }
    for request in [
        "SCAN",
        "SCAN x",
        "SCAN 0 COUNT",
        "SCAN 0 COUNT 0",
        "SCAN 0 COUNT x",
        "SCAN 0 FOO 1",
        "KEYS",
        "KEYS a b",
        "FLUSHALL NOW",
        "FLUSHALL ASYNC SYNC",
        "FLUSHDB 1 2 3",
        "FLUSHALL",
        "DBSIZE",
        "SCAN 0",
        "KEYS *",
        "RANDOMKEY",
        "FLUSHDB ASYNC",
        "FLUSHALL sync",
    ] {
        assert_eq!(ours.ask(request), theirs.ask(request), "{request}");
    }
}

/// Sets and deletes go on meanwhile; a key that stays is told.
#[test]
fn what_stays_is_told_while_others_come_and_go() {
    let group = RedisGroup::start(&[]);
    let (mut wire, mut other) = (group.connect(1), group.connect(3));
    for number in 0..300 {
        assert_eq!(wire.ask(&format!("SET stay:{number} v")), "+OK");
    }
    let (mut found, mut cursor, mut prng) = (Vec::new(), "0".to_owned(), Prng::new(1));
    loop {
        let mut strings = strings(&wire.ask(&format!("SCAN {cursor} COUNT 20")));
        cursor = strings.remove(0);
        found.extend(strings.into_iter().filter(|key| key.starts_with("stay:")));
        if cursor == "0" {
            break;
        }
        for _ in 0..20 {
            let name = prng.below(400);
            let asked = match prng.below(3) {
                0 => format!("DEL pass:{name}"),
                _ => format!("SET pass:{name} v"),
            };
            other.ask(&asked);
        }
    }
    assert_eq!(found.len(), 300);
    assert_eq!(found.iter().collect::<BTreeSet<_>>().len(), 300);
}
