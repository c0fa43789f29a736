//! CLIENT TRACKING of a real group: beside redis-server, while leaders die, and with clients that keep what they read.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use trine_transport::prng::Prng;

use super::differential::RedisServer;
use super::played::play;
use super::wire::Wire;
use super::{RedisGroup, counter, has_tool};
use crate::common::{LIMIT, wait_for};

const ALL_INVALID: &str = ">[\"invalidate\" _]";

fn invalid(key: &str) -> String {
    format!(">[\"invalidate\" *[\"{key}\"]]")
}

/// A connection that tracks what it reads.
fn tracker(group: &RedisGroup, node_id: usize, options: &str) -> Wire {
    let mut wire = group.connect(node_id);
    wire.ask("HELLO 3");
    let tracking = format!("CLIENT TRACKING ON {options}");
    assert_eq!(wire.ask(tracking.trim_end()), "+OK");
    wire
}

#[test]
fn invalidations_are_those_of_redis() {
    if !has_tool("redis-server") {
        return;
    }
    let (redis, group) = (RedisServer::start(), RedisGroup::start(&[]));
    let reads = [
        "0 CLIENT TRACKINGINFO",
        "0 CLIENT GETREDIR",
        "0 CLIENT TRACKING ON",
        "0 CLIENT TRACKINGINFO",
        "0 CLIENT GETREDIR",
        "0 GET k",
        "1 SET k 1",
        "1 SET k 2",
        "0 MGET k l",
        "1 MSET l 1 k 2 m 3",
        "0 EXISTS k",
        "1 EXPIRE k 1000",
        "0 TTL k",
        "1 PERSIST k",
        "0 STRLEN k",
        "1 APPEND k x",
        "0 TYPE k",
        "1 DEL k nosuch",
        "0 GET k;GET l;GET k",
        "1 SET k 1",
        "1 SET l 1 EX 1000",
        "0 GET k",
        "0 SET k 5",
        "0 GET k",
        "1 FLUSHALL",
        "1 SET k 1",
        "0 MULTI;GET k;GET l;EXEC",
        "1 MSET k 1 l 1",
        "0 GET k",
        "0 CLIENT TRACKING OFF",
        "1 SET k 2",
    ];
    play(&redis, &group, &[true, false], &reads);
    let opt = [
        "0 CLIENT CACHING YES",
        "0 CLIENT TRACKING ON OPTIN",
        "0 CLIENT CACHING NO",
        "0 CLIENT TRACKING ON OPTOUT",
        "0 CLIENT CACHING YES;CLIENT TRACKINGINFO",
        "0 CLIENT CACHING YES;GET k;GET l",
        "1 MSET k 1 l 1",
        "0 CLIENT CACHING YES;MULTI;GET k;GET l;EXEC",
        "1 MSET k 1 l 1",
        "0 CLIENT CACHING YES;PING;GET k",
        "1 SET k 1",
        "0 CLIENT TRACKING OFF",
        "0 CLIENT TRACKING ON OPTOUT",
        "0 CLIENT CACHING NO;GET k;GET l",
        "1 MSET k 1 l 1",
    ];
    play(&redis, &group, &[true, false], &opt);
    let broadcast = [
        "0 CLIENT TRACKING ON BCAST PREFIX a PREFIX b",
        "0 CLIENT TRACKINGINFO",
        "1 SET a1 1",
        "1 MSET b2 x a2 x c2 x b1 x",
        "0 CLIENT TRACKING ON BCAST PREFIX c",
        "1 MSET b2 x a2 x c2 x b1 x",
        "0 CLIENT TRACKING ON BCAST PREFIX ab",
        "0 CLIENT TRACKING ON",
        "0 SET a1 1",
        "1 DEL a1 a2 a3",
        "1 FLUSHALL",
        "0 CLIENT TRACKING OFF",
        "1 SET a1 1",
        "0 CLIENT TRACKING ON BCAST NOLOOP",
        "0 CLIENT TRACKINGINFO",
        "0 SET x 1",
        "1 SET x 1",
    ];
    play(&redis, &group, &[true, false], &broadcast);
    let redirected = [
        "2 SUBSCRIBE __redis__:invalidate",
        "0 CLIENT TRACKING ON REDIRECT {id2}",
        "0 GET k",
        "1 SET k 1",
        "0 GET k",
        "1 DEL k",
        "2 UNSUBSCRIBE __redis__:invalidate",
        "0 GET k",
        "1 SET k 2",
    ];
    play(&redis, &group, &[false, false, false], &redirected);
    play(&redis, &group, &[false, false, true], &redirected);
}

#[test]
fn mistakes_have_the_errors_of_redis() {
    if !has_tool("redis-server") {
        return;
    }
    let (redis, group) = (RedisServer::start(), RedisGroup::start(&[]));
    let lines = [
        "0 CLIENT TRACKING",
        "0 CLIENT TRACKING MAYBE",
        "0 CLIENT TRACKING ON FOO",
        "0 CLIENT TRACKING ON REDIRECT",
        "0 CLIENT TRACKING ON REDIRECT x",
        "0 CLIENT TRACKING ON REDIRECT 123456789",
        "0 CLIENT TRACKING ON PREFIX",
        "0 CLIENT TRACKING ON PREFIX a",
        "0 CLIENT TRACKING ON BCAST OPTIN",
        "0 CLIENT TRACKING ON BCAST OPTOUT",
        "0 CLIENT TRACKING ON OPTIN OPTOUT",
        "0 CLIENT TRACKING ON BCAST OPTIN OPTOUT",
        "0 CLIENT TRACKING ON BCAST PREFIX a PREFIX ab",
        "0 CLIENT TRACKING ON BCAST PREFIX ab PREFIX a",
        "0 CLIENT TRACKINGINFO x",
        "0 CLIENT CACHING",
        "0 CLIENT CACHING YES",
        "0 CLIENT TRACKING ON",
        "0 CLIENT CACHING YES",
        "0 CLIENT CACHING NO",
        "0 CLIENT TRACKING ON BCAST",
        "0 CLIENT TRACKING ON OPTIN",
        "0 CLIENT CACHING MAYBE",
        "0 CLIENT TRACKING ON OPTOUT",
        "0 CLIENT TRACKING off",
        "0 CLIENT GETREDIR",
    ];
    play(&redis, &group, &[true], &lines);
}

#[test]
fn a_change_by_any_replica_is_told_by_every_other() {
    let group = RedisGroup::start(&[]);
    let mut writers: Vec<Wire> = (1..=3).map(|node_id| group.connect(node_id)).collect();
    for node_id in 1..=3 {
        let mut reader = tracker(&group, node_id, "");
        for writer in &mut writers {
            for command in ["SET k 1", "APPEND k x", "EXPIRE k 1000", "DEL k"] {
                reader.ask("GET k");
                writer.ask(command);
                assert_eq!(reader.reply(), invalid("k"), "{command}");
            }
            writer.ask("SET k v PX 200");
            assert_eq!(reader.ask("GET k"), "\"v\"");
            assert_eq!(reader.reply(), invalid("k"), "it has expired");
            reader.ask("GET k");
            // A flush of nothing changes nothing.
            writer.ask("SET other 1");
            writer.ask("FLUSHALL");
            assert_eq!(reader.reply(), ALL_INVALID);
        }
        assert_eq!(counter(&mut writers[0], "tracking_gaps"), 0);
    }
}

/// A client that has read a key hears that it has changed, or that everything may have. A leader that dies is no exception.
#[test]
fn a_change_after_a_failover_is_told() {
    let mut group = RedisGroup::start(&[]);
    group.connect(1).ask("SET k 0");
    let mut trackers: Vec<Wire> = Vec::new();
    for node_id in 1..=3 {
        let mut wire = tracker(&group, node_id, "");
        assert_eq!(wire.ask("GET k"), "\"0\"");
        trackers.push(wire);
    }
    let leader = group.cluster.leader();
    group.cluster.group.kill(leader).expect("killed");
    let survivors: Vec<usize> = (1..=3).filter(|node_id| *node_id != leader).collect();
    let mut writer = group.connect(survivors[0]);
    wait_for("a new leader", || {
        (writer.ask("SET k 1") == "+OK").then_some(())
    });
    for node_id in survivors {
        let wire = &mut trackers[node_id - 1];
        let told = wire.reply();
        assert!(told == invalid("k") || told == ALL_INVALID, "{told}");
        // What is read from here on is tracked again, once the stream is back.
        wait_for("tracking that goes on", || {
            wire.send(&["GET", "k"]);
            wire.send(&["PING", "m"]);
            let mut heard = Vec::new();
            while heard.last().is_none_or(|last| last != "\"m\"") {
                heard.push(wire.reply());
            }
            let is_tracked = !heard.iter().any(|heard| heard.starts_with('>'));
            is_tracked.then_some(())
        });
        assert_eq!(writer.ask("SET k 2"), "+OK");
        assert_eq!(wire.reply(), invalid("k"));
    }
}

/// A replica that hears of no leader may miss changes: its clients have to forget what they have read.
#[test]
fn a_replica_without_a_leader_lets_its_clients_forget() {
    let mut group = RedisGroup::start(&["--resp-timeout", "1s"]);
    let mut wire = tracker(&group, 1, "");
    let mut broadcast = tracker(&group, 1, "BCAST");
    assert_eq!(wire.ask("GET k"), "_");
    for node_id in 2..=3 {
        group.cluster.group.kill(node_id).expect("killed");
    }
    assert_eq!(wire.reply(), ALL_INVALID);
    assert_eq!(broadcast.reply(), ALL_INVALID);
    let mut late = group.connect(1);
    late.ask("HELLO 3");
    let refused = late.ask("CLIENT TRACKING ON");
    let expected = "-ERR this server has no stream of changes: ";
    assert!(refused.starts_with(expected), "{refused}");
}

/// A replica that hears its leader, but is not heard, gets no more entries after a while, and cannot know. What its clients keep must
/// not stay old: docs/redis.md says for how long it may. Here is room for a busy machine, so this finds a replica that never tells.
#[test]
fn a_replica_that_is_not_heard_lets_its_clients_forget() {
    const KEYS: usize = 2_000;
    const BOUND: Duration = Duration::from_secs(2);
    let mut group = RedisGroup::start(&["--fault-injection"]);
    let leader = group.cluster.leader();
    let follower = leader % 3 + 1;
    let mut writer = group.connect(leader);
    let mut wire = tracker(&group, follower, "");
    for key in 0..KEYS {
        assert_eq!(wire.ask(&format!("GET k{key}")), "_");
    }
    let (follower, leader) = (follower.to_string(), leader.to_string());
    let cut = ["net", "set", &follower, "blocked", "--link", &leader];
    group
        .cluster
        .ok(&[&cut[..], &["--direction", "out"]].concat());
    let (over, is_over) = channel();
    let (written, told, ended) = std::thread::scope(|scope| {
        let listening = scope.spawn(|| {
            let mut told = 0;
            loop {
                let heard = wire.reply();
                if heard == ALL_INVALID {
                    over.send(()).expect("the writer waits for it");
                    return (told, Instant::now());
                }
                assert_eq!(heard, invalid(&format!("k{told}")));
                told += 1;
            }
        });
        let mut written = Vec::new();
        let pause = Duration::from_millis(4);
        while written.len() < KEYS && is_over.recv_timeout(pause).is_err() {
            assert_eq!(writer.ask(&format!("SET k{} v", written.len())), "+OK");
            written.push(Instant::now());
        }
        let (told, ended) = listening.join().expect("it hears of the end");
        (written, told, ended)
    });
    // The oldest change that it was not told of.
    let Some(&untold) = written.get(told) else {
        return;
    };
    let old = ended.saturating_duration_since(untold);
    assert!(
        old < BOUND + LIMIT / 4,
        "{old:?} old, {told} of {} told",
        written.len()
    );
}

/// A history that holds too little forgets changes before they are told. Clients then forget everything, and go on.
#[test]
fn forgotten_changes_let_clients_forget_everything() {
    let group = RedisGroup::start(&["--watch-history", "1MiB"]);
    let mut wire = tracker(&group, 1, "");
    let mut writer = group.connect(1);
    wire.ask("GET k0");
    let value = "v".repeat(1_024);
    let pairs: String = (0..2_000)
        .map(|number| format!(" k{number} {value}"))
        .collect();
    assert_eq!(writer.ask(&format!("MSET{pairs}")), "+OK");
    assert_eq!(wire.reply(), ALL_INVALID);
    assert!(counter(&mut writer, "tracking_gaps") > 0);
    wait_for("tracking that goes on", || {
        wire.ask("GET k0");
        // Without a stream the answer is followed by its invalidation.
        let (asked, told) = (wire.ask("PING a"), invalid("k0"));
        assert!(
            asked == "\"a\"" || asked == told && wire.reply() == "\"a\"",
            "{asked}"
        );
        (asked != told).then_some(())
    });
    assert_eq!(writer.ask("SET k0 w"), "+OK");
    assert_eq!(wire.reply(), invalid("k0"));
}

#[test]
fn a_replica_without_a_history_says_so() {
    let group = RedisGroup::start(&["--watch-history", "0"]);
    let mut wire = group.connect(1);
    for request in ["CLIENT TRACKING ON", "SUBSCRIBE __keyspace@0__:k"] {
        let reply = wire.ask(request);
        assert!(reply.contains("--watch-history 0"), "{reply}");
    }
    assert_eq!(wire.ask("SET k 1"), "+OK");
}

/// A client that keeps what it reads until it is told that it is invalid.
struct Caching {
    wire: Wire,
    values: BTreeMap<String, String>,
    told: u64,
}

impl Caching {
    fn new(mut wire: Wire) -> Self {
        let stream = wire.stream().try_clone().expect("the same socket");
        stream.set_read_timeout(Some(LIMIT)).expect("a timeout");
        assert!(wire.ask("PING") == "+PONG");
        Self {
            wire,
            values: BTreeMap::new(),
            told: 0,
        }
    }

    fn forget(&mut self, told: &str) {
        self.told += 1;
        if told == ALL_INVALID {
            return self.values.clear();
        }
        let keys = told.split('"').skip(3).step_by(2);
        keys.for_each(|key| drop(self.values.remove(key)));
    }

    /// The reply, behind what was told before it.
    fn reply(&mut self) -> String {
        loop {
            let reply = self.wire.reply();
            if !reply.starts_with('>') {
                return reply;
            }
            self.forget(&reply);
        }
    }

    fn get(&mut self, key: &str) {
        if self.values.contains_key(key) {
            return;
        }
        self.wire.send(&["GET", key]);
        let reply = self.reply();
        if !reply.starts_with('-') {
            self.values.insert(key.to_owned(), reply);
        }
    }

    fn hear(&mut self) {
        self.wire.send(&["PING", "m"]);
        assert_eq!(self.reply(), "\"m\"");
    }
}

/// Clients that keep what they read, others that write, and a leader that is killed: in the end what is kept is what is
/// there.
#[test]
fn caches_are_as_the_store_in_the_end() {
    const KEYS: u64 = 20;
    let mut group = RedisGroup::start(&[]);
    let leader = group.cluster.leader();
    let survivors: Vec<usize> = (1..=3).filter(|node_id| *node_id != leader).collect();
    let modes = ["", "BCAST", "NOLOOP", "BCAST PREFIX k1 PREFIX k2"];
    let caching = (0..8).map(|number| {
        let wire = tracker(&group, survivors[number % 2], modes[number / 2]);
        (number, Caching::new(wire))
    });
    let caching: Vec<_> = caching.collect();
    let writers: Vec<Wire> = (0..3).map(|n| group.connect(survivors[n % 2])).collect();
    let (done, killed) = (AtomicBool::new(false), AtomicBool::new(false));
    let mut caching = std::thread::scope(|scope| {
        let (done, killed) = (&done, &killed);
        let readers: Vec<_> = caching
            .into_iter()
            .map(|(number, mut caching)| {
                scope.spawn(move || {
                    let mut rng = Prng::new(number as u64);
                    while !done.load(Ordering::Relaxed) {
                        let keys = if number / 2 == 3 { 10..20 } else { 0..KEYS };
                        let key = keys.start + rng.below(keys.end - keys.start);
                        caching.get(&format!("k{key}"));
                        if rng.below(4) == 0 {
                            caching.hear();
                        }
                    }
                    caching
                })
            })
            .collect();
        for (number, mut writer) in writers.into_iter().enumerate() {
            scope.spawn(move || {
                let mut rng = Prng::new(1_000 + number as u64);
                let begun = Instant::now();
                let mut after = 0;
                for count in 0.. {
                    let key = format!("k{}", rng.below(KEYS));
                    let reply = match rng.below(12) {
                        0 => writer.ask(&format!("DEL {key}")),
                        1 => writer.ask(&format!("SET {key} {count} PX 30")),
                        2 => writer.ask(&format!("APPEND {key} x")),
                        3 if number == 0 => writer.ask("FLUSHALL"),
                        _ => writer.ask(&format!("SET {key} {number}-{count}")),
                    };
                    after += u64::from(killed.load(Ordering::Relaxed) && !reply.starts_with('-'));
                    if after > 1_000 {
                        return;
                    }
                    assert!(begun.elapsed() < 2 * LIMIT, "the group does not go on");
                }
            });
        }
        let begun = Instant::now();
        wait_for("some writes", || {
            (begun.elapsed() > Duration::from_secs(1)).then_some(())
        });
        group.cluster.group.kill(leader).expect("killed");
        killed.store(true, Ordering::Relaxed);
        // The writers end by themselves; the readers read on for a moment, and are told of the last changes.
        scope.spawn(move || {
            let begun = Instant::now();
            wait_for("more reads", || {
                (begun.elapsed() > Duration::from_secs(4)).then_some(())
            });
            done.store(true, Ordering::Relaxed);
        });
        let joined = readers
            .into_iter()
            .map(|reader| reader.join().expect("no panic"));
        joined.collect::<Vec<_>>()
    });
    let mut other = group.connect(survivors[0]);
    other.ask("HELLO 3");
    for (number, caching) in caching.iter_mut().enumerate() {
        assert!(caching.told > 10, "client {number} was told of changes");
        wait_for("a cache as the store", || {
            caching.hear();
            let differs = caching
                .values
                .iter()
                .find(|(key, value)| other.ask(&format!("GET {key}")) != **value);
            differs.is_none().then_some(())
        });
    }
}
