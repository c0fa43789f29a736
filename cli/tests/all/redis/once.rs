//! TRINE.DO: a write is applied once, on whatever connection and replica it is repeated, and whoever leads.

use super::RedisGroup;
use super::users::Guarded;
use super::wire::Wire;

/// Opens a session and returns its token.
fn open(wire: &mut Wire) -> String {
    let opened = wire.ask("TRINE.SESSION");
    let token = opened
        .strip_prefix("*[\"")
        .and_then(|rest| rest.split_once('"'));
    let (token, rest) = token.unwrap_or_else(|| panic!("{opened}"));
    assert_eq!((token.len(), rest), (32, " :60000 :64]"));
    token.to_owned()
}

#[track_caller]
fn is(wire: &mut Wire, line: &str, reply: &str) {
    assert_eq!(wire.ask(line), reply, "{line}");
}

#[track_caller]
fn begins(wire: &mut Wire, line: &str, begin: &str) {
    let reply = wire.ask(line);
    assert!(reply.starts_with(begin), "{line}: {reply}");
}

#[test]
fn a_repeated_write_is_applied_once_at_whatever_replica() {
    let group = RedisGroup::start(&[]);
    let mut ports = [1, 2, 3].map(|node_id| group.connect(node_id));
    let token = open(&mut ports[0]);
    let numbered = |sequence: u64, lowest: u64, command: &str| {
        format!("TRINE.DO {token} {sequence} {lowest} {command}")
    };
    for (sequence, command, reply) in [
        (1, "INCR n", ":1"),
        (2, "incr n", ":2"),
        (3, "APPEND s abc", ":3"),
        (4, "SET k v PX 100000 NX", "+OK"),
        (5, "SET k w NX", "$-1"),
        (6, "DEL s none", ":1"),
        (7, "GETEX k EX 100", "\"v\""),
        // In a moment of Unix time that is long over, and far ahead.
        (8, "SET past v EXAT 1000", "+OK"),
        (9, "SET future v EXAT 20000000000", "+OK"),
        (10, "INCR k", "-ERR value is not an integer or out of range"),
        (11, "TRINE.CAS lock 0 me PX 100000", ""),
        (12, "TRINE.CAS lock 1 me", ""),
        (13, "MSET a 1 b 2", "+OK"),
    ] {
        let line = numbered(sequence, 1, command);
        let first = ports[0].ask(&line);
        assert!(reply.is_empty() || first == reply, "{line}: {first}");
        // Each copy at another replica.
        for port in &mut ports {
            is(port, &line, &first);
        }
    }
    let mut wire = group.connect(2);
    is(
        &mut wire,
        "MGET n s k past a b",
        "*[\"2\" $-1 \"v\" $-1 \"1\" \"2\"]",
    );
    begins(&mut wire, &numbered(2, 1, "INCRBY n 7"), "-SEQUENCEUSED ");
    begins(&mut wire, &numbered(70, 1, "INCR n"), "-WINDOW ");
    is(&mut wire, &numbered(70, 7, "INCR n"), ":3");
    begins(&mut wire, &numbered(6, 6, "DEL s none"), "-STALE ");
    is(&mut wire, &numbered(7, 7, "GETEX k EX 100"), "\"v\"");
    // What the replica itself refuses uses up no sequence.
    begins(
        &mut wire,
        &numbered(71, 8, "GET n"),
        "-ERR TRINE.DO takes one write",
    );
    is(&mut wire, &numbered(71, 8, "INCR n"), ":4");
    is(&mut wire, "MULTI", "+OK");
    begins(
        &mut wire,
        &numbered(72, 7, "INCR n"),
        "-ERR TRINE.DO cannot stand",
    );
    begins(&mut wire, "EXEC", "-EXECABORT");

    let made_up = token.replace(|digit: char| digit != '0', "7");
    begins(
        &mut wire,
        &format!("TRINE.DO {made_up} 1 1 INCR n"),
        "-SESSIONLOST ",
    );
    let close = format!("TRINE.SESSION CLOSE {token}");
    for port in &mut ports {
        is(port, &close, "+OK");
    }
    begins(&mut wire, &numbered(71, 8, "INCR n"), "-STALE ");
    begins(&mut wire, &numbered(72, 72, "INCR n"), "-STALE ");
    is(&mut wire, &format!("TRINE.SESSION CLOSE {made_up}"), "+OK");
    is(&mut wire, "GET n", "\"4\"");
}

/// A client repeats whatever had no clear answer, at another replica, while leaders die. Without a sequence some of its
/// increments count twice.
#[test]
fn increments_that_are_repeated_over_new_leaders_count_once() {
    const ROUNDS: u64 = 300;
    let mut group = RedisGroup::start(&["--resp-timeout", "2s"]);
    let leader = group.cluster.leader();
    let alive: Vec<usize> = (1..=3).filter(|&node_id| node_id != leader).collect();
    let mut wires: Vec<Wire> = alive
        .iter()
        .map(|&node_id| group.connect(node_id))
        .collect();
    let token = open(&mut wires[0]);
    let mut repeated = 0;
    for sequence in 1..=ROUNDS {
        let line = format!("TRINE.DO {token} {sequence} {sequence} INCR n");
        if sequence == ROUNDS / 3 {
            // The command is on its way, and its client does not wait for the answer.
            let mut gone = group.connect(alive[0]);
            gone.send(&line.split(' ').collect::<Vec<_>>());
            drop(gone);
            group.cluster.group.kill(leader).expect("killed");
        }
        let expected = format!(":{sequence}");
        let mut at = sequence as usize;
        loop {
            let reply = wires[at % 2].ask(&line);
            if reply == expected {
                break;
            }
            let may_be_repeated = reply.starts_with("-CLUSTERDOWN this copy was not applied")
                || reply.starts_with("-UNKNOWNOUTCOME ");
            assert!(may_be_repeated, "{line}: {reply}");
            (at, repeated) = (at + 1, repeated + 1);
            assert!(repeated < 1_000, "no leader comes: {reply}");
        }
        // A copy that was late.
        is(&mut wires[(at + 1) % 2], &line, &expected);
    }
    is(&mut wires[0], "GET n", &format!("\"{ROUNDS}\""));
}

#[test]
fn a_token_is_its_users() {
    let group = Guarded::start("tokens");
    let alice = group.user(&["add", "alice", "--role", "write", "--prefix", "a/"]);
    let bob = group.user(&["add", "bob", "--role", "write"]);
    let carol = group.user(&["add", "carol", "--role", "read"]);
    let connect = |node_id, name: &str, key: &str| {
        let mut wire = group.connect(node_id);
        is(&mut wire, &format!("AUTH {name} {key}"), "+OK");
        wire
    };
    let mut by_alice = connect(1, "alice", &alice);
    let token = open(&mut by_alice);
    let line = format!("TRINE.DO {token} 1 1 INCR a/n");
    is(&mut by_alice, &line, ":1");
    for node_id in 1..=3 {
        is(&mut connect(node_id, "alice", &alice), &line, ":1");
        for (name, key) in [("bob", &bob), ("carol", &carol)] {
            let mut other = connect(node_id, name, key);
            let reply = other.ask(&line);
            let lacks = name == "carol" && reply.starts_with("-NOPERM user carol has role read");
            assert!(
                lacks || reply.starts_with("-SESSIONLOST "),
                "{name}: {reply}"
            );
            is(&mut other, &format!("TRINE.SESSION CLOSE {token}"), "+OK");
        }
    }
    // It is still open.
    is(&mut by_alice, &line, ":1");
    let outside = format!("TRINE.DO {token} 2 1 INCR b/n");
    begins(
        &mut by_alice,
        &outside,
        "-NOPERM user alice may not touch key \"b/n\"",
    );
    is(
        &mut by_alice,
        &format!("TRINE.DO {token} 2 1 INCR a/n"),
        ":2",
    );
    let of_bob = open(&mut connect(2, "bob", &bob));
    begins(
        &mut by_alice,
        &format!("TRINE.DO {of_bob} 1 1 INCR a/n"),
        "-SESSIONLOST ",
    );
    // A user that was removed has no sessions any more, and its key lets nobody in.
    group.user(&["remove", "alice"]);
    begins(
        &mut by_alice,
        &format!("TRINE.DO {token} 3 1 INCR a/n"),
        "-NOPERM ",
    );
    begins(
        &mut by_alice,
        "TRINE.SESSION",
        "-CLUSTERDOWN no session was opened: denied",
    );
}
