//! Events of keys over SUBSCRIBE and PSUBSCRIBE, of a real group and beside redis-server.

use super::differential::RedisServer;
use super::played::play;
use super::{RedisGroup, counter, has_tool};
use crate::common::wait_for;

const ON: &str = "0 CONFIG SET notify-keyspace-events KEA";

#[test]
fn events_are_those_of_redis() {
    if !has_tool("redis-server") {
        return;
    }
    let (redis, group) = (RedisServer::start(), RedisGroup::start(&[]));
    let commands = [
        "SET k 1",
        "SET k 1 EX 1000",
        "SET k 2 NX",
        "SETNX k2 x",
        "SETEX k 1000 v",
        "PSETEX k 1000000 v",
        "GETSET k 7",
        "INCR k",
        "DECR k",
        "INCRBY k 5",
        "DECRBY k 5",
        "APPEND k x",
        "INCR k",
        "MSET k 1 m 2",
        "EXPIRE k 1000",
        "PEXPIRE k 1000000",
        "EXPIREAT k 99999999999",
        "EXPIRE k 1000 NX",
        "PERSIST k",
        "PERSIST k",
        "GETEX k EX 1000",
        "GETEX k PERSIST",
        "GETEX k",
        "GETDEL k",
        "DEL k m",
        "UNLINK k2",
        "SET k 1 GET",
        "EXPIRE k -1",
        "SET k 1",
        "TOUCH k",
        "GET k",
        "DEL nosuchkey",
        "FLUSHALL",
    ];
    let commands = commands.map(|command| format!("0 {command}"));
    for resp3 in [[false, false, false], [false, true, true]] {
        // A setting counts for one replica alone.
        let mut lines = vec!["1 CONFIG SET notify-keyspace-events KEA"];
        lines.extend(["2 CONFIG SET notify-keyspace-events KEA", ON]);
        lines.extend(["1 SUBSCRIBE __keyspace@0__:k __keyevent@0__:expire"]);
        lines.extend(["1 SUBSCRIBE __keyevent@0__:set"]);
        lines.extend(["2 PSUBSCRIBE __key*__:*"]);
        lines.extend(commands.iter().map(String::as_str));
        lines.extend([
            "2 PUNSUBSCRIBE",
            "0 SET k 1",
            "1 UNSUBSCRIBE __keyspace@0__:k",
        ]);
        lines.extend(["0 SET k 1", "1 RESET", "0 SET k 1", "0 DEL k"]);
        play(&redis, &group, &resp3, &lines);
    }
}

#[test]
fn classes_choose_events_as_in_redis() {
    if !has_tool("redis-server") {
        return;
    }
    let (redis, group) = (RedisServer::start(), RedisGroup::start(&[]));
    for classes in [
        "KEA", "K$", "Eg", "Kg$", "gKE", "E$xe", "Kxlshz", "", "AK", "Et", "Kd",
    ] {
        let set = format!("CONFIG SET notify-keyspace-events {classes}");
        let lines = [
            &format!("0 {set}"),
            &format!("1 {set}"),
            "0 CONFIG GET notify-keyspace-events",
            "1 PSUBSCRIBE *",
            "0 SET k 1 EX 1000",
            "0 APPEND k 1",
            "0 DEL k",
            "0 FLUSHALL",
        ];
        play(&redis, &group, &[false, false], &lines);
    }
}

#[test]
fn a_subscriber_may_do_what_it_may_in_redis() {
    if !has_tool("redis-server") {
        return;
    }
    let (redis, group) = (RedisServer::start(), RedisGroup::start(&[]));
    let lines = [
        "0 UNSUBSCRIBE",
        "0 PUNSUBSCRIBE",
        "0 UNSUBSCRIBE __keyspace@0__:never",
        "0 SUBSCRIBE",
        "0 PUBSUB",
        "0 SUBSCRIBE __keyspace@0__:k __keyspace@0__:k __keyspace@0__:l",
        "0 PSUBSCRIBE __key*",
        "0 GET k",
        "0 SET k 1",
        "0 CLIENT ID",
        "0 CONFIG GET *",
        "0 MULTI",
        "0 HELLO 3",
        "0 NOSUCHCOMMAND",
        "0 PING a b",
        "1 PUBSUB CHANNELS *:k",
        "1 PUBSUB NUMSUB __keyspace@0__:k other",
        "1 PUBSUB NUMPAT",
        "0 UNSUBSCRIBE __keyspace@0__:k other",
        "0 GET k",
        "0 UNSUBSCRIBE __keyspace@0__:l",
        "0 PUNSUBSCRIBE __key*",
        "0 GET k",
        "0 SUBSCRIBE __keyspace@0__:k",
        "0 RESET",
        "0 GET k",
        "1 PUBSUB CHANNELS",
    ];
    // A list of several channels has no order in Redis.
    play(&redis, &group, &[false, false], &lines);
    // In RESP3 a subscriber may do everything.
    let resp3: Vec<&str> = lines[..9].iter().chain(&lines[13..14]).copied().collect();
    play(&redis, &group, &[true, false], &resp3);
}

/// There is no PUBLISH: who subscribes to a channel of clients is told so, and does not wait for ever.
#[test]
fn channels_without_messages_are_refused() {
    let group = RedisGroup::start(&[]);
    let mut wire = group.connect(1);
    for request in [
        "SUBSCRIBE news",
        "PSUBSCRIBE news.*",
        "SUBSCRIBE __keyspace@0__:k news",
    ] {
        let reply = wire.ask(request);
        assert!(reply.starts_with("-ERR 'news"), "{reply}");
        assert!(reply.contains("there is no PUBLISH"), "{reply}");
    }
    let reply = wire.ask("PUBLISH news hello");
    assert!(
        reply.starts_with("-ERR clients cannot publish here"),
        "{reply}"
    );
    assert_eq!(wire.ask("PUBSUB CHANNELS"), "*[]");
    for letter in ["m", "n", "q"] {
        let reply = wire.ask(&format!("CONFIG SET notify-keyspace-events KE{letter}"));
        let begins =
            "-ERR CONFIG SET failed (possibly related to argument 'notify-keyspace-events') - ";
        assert!(reply.starts_with(begins), "{reply}");
    }
    let reply = wire.ask("CONFIG SET maxclients 5");
    assert!(reply.contains("cannot be set here"), "{reply}");
    assert_eq!(
        wire.ask("CONFIG GET notify-keyspace-events"),
        "*[\"notify-keyspace-events\" \"\"]"
    );
}

/// Events come through any replica, in the order of the writes, also of keys that expire.
#[test]
fn events_reach_the_subscribers_of_every_replica() {
    let group = RedisGroup::start(&["--resp-notify-keyspace-events", "KEA"]);
    let mut subscribers: Vec<_> = (1..=3).map(|node_id| group.connect(node_id)).collect();
    for wire in &mut subscribers {
        wire.ask("SUBSCRIBE __keyspace@0__:k");
    }
    let mut writer = group.connect(2);
    for number in 0..200 {
        writer.ask(&format!("SET k {number}"));
        writer.ask("APPEND k x");
    }
    writer.ask("SET k 1 PX 50");
    let message = |event| format!("*[\"message\" \"__keyspace@0__:k\" \"{event}\"]");
    for wire in &mut subscribers {
        for _ in 0..200 {
            assert_eq!(wire.reply(), message("set"));
            assert_eq!(wire.reply(), message("append"));
        }
        for event in ["set", "expire", "expired"] {
            assert_eq!(wire.reply(), message(event));
        }
    }
}

/// A subscriber that does not read holds a bounded amount, and is disconnected.
#[test]
fn a_subscriber_that_does_not_read_is_disconnected() {
    let group = RedisGroup::start(&["--resp-notify-keyspace-events", "KEA"]);
    let mut slow = group.connect(1);
    slow.ask("PSUBSCRIBE *");
    let mut writer = group.connect(1);
    let key = "k".repeat(60_000);
    wait_for("the end of the slow subscriber", || {
        for _ in 0..20 {
            assert_eq!(writer.ask(&format!("SET {key} v")), "+OK");
        }
        (counter(&mut writer, "client_output_buffer_limit_disconnections") == 1).then_some(())
    });
    assert_eq!(counter(&mut writer, "pubsub_patterns"), 0);
    assert_eq!(counter(&mut writer, "connected_clients"), 1);
}
