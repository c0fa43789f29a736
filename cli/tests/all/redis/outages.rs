//! Leaders die and majorities are lost: no reply is wrong, and no client waits forever.

use std::time::{Duration, Instant};

use super::RedisGroup;
use crate::common::LIMIT;

/// One client increments counters while the leader is killed. Each answered increment was counted exactly once.
#[test]
fn a_new_leader_takes_over_and_nothing_is_counted_twice() {
    let mut group = RedisGroup::start(&[]);
    let leader = group.cluster.leader();
    let follower = if leader == 1 { 2 } else { 1 };
    let mut wire = group.connect(follower);
    let (mut acknowledged, mut unknown) = (0_i64, 0_i64);
    for round in 0..300 {
        if round == 100 {
            group.cluster.group.kill(leader).expect("killed");
        }
        let reply = wire.ask("INCR n");
        match reply.as_bytes()[0] {
            b':' => acknowledged += 1,
            _ if reply.starts_with("-UNKNOWNOUTCOME") => unknown += 1,
            _ => assert!(reply.starts_with("-CLUSTERDOWN"), "{reply}"),
        }
    }
    assert!(acknowledged >= 200, "{acknowledged} were answered");
    let reply = wire.ask("GET n");
    let count: i64 = reply.trim_matches('"').parse().expect("a number");
    assert!(
        (acknowledged..=acknowledged + unknown).contains(&count),
        "{count} counted, {acknowledged} acknowledged, {unknown} unknown"
    );
}

#[test]
fn without_a_majority_there_is_an_error_in_time() {
    let mut group = RedisGroup::start(&["--resp-timeout", "500ms"]);
    let mut wire = group.connect(1);
    assert_eq!(wire.ask("SET k v"), "+OK");
    for node_id in [2, 3] {
        group.cluster.group.kill(node_id).expect("killed");
    }
    for line in ["GET k", "SET k w", "INCR n", "MGET k n", "TTL k", "WATCH k"] {
        let begun = Instant::now();
        let reply = wire.ask(line);
        assert!(
            begun.elapsed() < Duration::from_millis(500) + LIMIT / 4,
            "{line}"
        );
        let write = line.starts_with("SET") || line.starts_with("INCR");
        let kinds = match write {
            true => &[
                "-CLUSTERDOWN not applied: ",
                "-UNKNOWNOUTCOME the command may have been applied, once: ",
            ][..],
            false => &["-CLUSTERDOWN nothing was read: "],
        };
        // One cause has one text.
        let why = "no leader with a majority of the group has answered in time";
        let honest = kinds.iter().any(|kind| reply == format!("{kind}{why}"));
        assert!(honest, "{line}: {reply}");
    }
    assert_eq!(wire.ask("PING"), "+PONG");
}
