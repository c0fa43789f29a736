//! `trine scan`, `count` and `rm`, and the index that they need: turned on, counted, refused.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::Value;

use crate::common::terminal::AtTerminal;
use crate::common::{Cluster, command, script_of_pages, trine, wait_for};

fn filled(options: &[&str]) -> Cluster {
    let cluster = Cluster::start(options);
    let lines: String = (0..1_000)
        .map(|number| format!("put a/{number:04} {number}\nput b/{number:04} {number}\n"))
        .collect();
    trine(&[], &cluster.group.peers(), lines.as_bytes()).expect_status(0);
    cluster
}

/// How many reads each replica has answered that see all that was acknowledged.
fn reads(cluster: &Cluster) -> Vec<u64> {
    let reports = cluster.survey();
    let counts = reports.iter().map(|report| {
        let status = report.status().expect("it answers");
        status.counters.reads_linearizable
    });
    counts.collect()
}

/// Only `trine backup` read from a replica by its node id.
fn each_replica_reads_when_it_is_named(cluster: &Cluster) {
    for node_id in 1..=3 {
        let id = node_id.to_string();
        let before = reads(cluster);
        for (words, answer) in [
            (&["get", "a/0001"][..], "1"),
            (&["scan", "b/000", "--limit", "1"], "b/0000\t0\n"),
            (&["count", "a/"], "1000\n"),
        ] {
            let words = [words, &["--replica", &id]].concat();
            assert_eq!(text(cluster, &words), answer);
        }
        let after = reads(cluster);
        for (index, (before, after)) in before.iter().zip(&after).enumerate() {
            match index + 1 == node_id {
                true => assert!(*after >= before + 3, "{node_id}: {before} {after}"),
                false => assert_eq!(before, after, "replica {} for {node_id}", index + 1),
            }
        }
    }
    let nobody = cluster.run(&["get", "a/0001", "--replica", "9"]);
    nobody.expect_error(3, &["no replica 9 answers", "trine status"]);
    let wrong = cluster.run(&["count", "--replica", "next"]);
    wrong.expect_error(2, &["or the node id of a replica"]);
}

fn text(cluster: &Cluster, arguments: &[&str]) -> String {
    String::from_utf8(cluster.ok(arguments)).expect("text")
}

#[test]
fn ranges_are_scanned_counted_and_deleted() {
    let cluster = filled(&["--ordered"]);
    let keys = text(&cluster, &["scan", "a/", "--keys-only"]);
    let keys: Vec<&str> = keys.lines().collect();
    assert_eq!(
        (keys.len(), keys[0], keys[999]),
        (1_000, "a/0000", "a/0999")
    );
    let last = text(&cluster, &["scan", "--reverse", "--limit", "2"]);
    assert_eq!(last, "b/0999\t999\nb/0998\t998\n");
    let range = ["scan", "--from", "a/0998", "--to", "b/0001"];
    assert_eq!(
        text(&cluster, &range),
        "a/0998\t998\na/0999\t999\nb/0000\t0\n"
    );
    for replica in [
        &["--replica", "follower"][..],
        &["--replica", "any"],
        &["--stale"],
    ] {
        let range = [&["scan", "b/000", "--limit", "1"][..], replica].concat();
        assert_eq!(text(&cluster, &range), "b/0000\t0\n");
    }
    each_replica_reads_when_it_is_named(&cluster);
    let json = text(&cluster, &["scan", "a/000", "--limit", "1", "--json"]);
    let lines: Vec<Value> = json
        .lines()
        .map(|line| serde_json::from_str(line).expect("JSON"))
        .collect();
    assert_eq!(lines[0]["key"], "a/0000");
    assert_eq!(lines[0]["value"], "0");
    assert!(lines[0]["version"].is_u64() && lines[1]["position"].is_u64());
    assert_eq!(lines[1]["keys"], 1);
    assert_eq!(text(&cluster, &["count", "a/"]), "1000\n");
    assert_eq!(text(&cluster, &["count"]), "2000\n");
    let shell = trine(
        &[],
        &cluster.group.peers(),
        b"range b/ 2\ncount b/\nrange a/0001\n",
    );
    let shell = shell.expect_status(0);
    assert_eq!(shell.stdout, b"b/0000\t0\nb/0001\t1\n1000\na/0001\t1\n");
    assert!(shell.stderr.contains("more keys follow, from b/0002 on"));
    cluster
        .run(&["rm", "a/"])
        .expect_error(2, &["nothing was deleted", "--yes"]);
    // A variable that is not set removed all keys.
    cluster
        .run(&["rm", "", "--yes"])
        .expect_error(2, &["all keys", "nothing was deleted", "trine flush"]);
    let removed = cluster.run(&["rm", "a/", "--yes", "--json"]);
    assert_eq!(removed.expect_status(0).json()["deleted"], 1_000);
    assert_eq!(text(&cluster, &["count", "a/"]), "0\n");
    assert_eq!(text(&cluster, &["count"]), "1000\n");
}

/// A token moves between the ends of the range all the time, and each scan of many pages sees it at one place.
#[test]
fn a_scan_of_many_pages_is_one_moment() {
    let cluster = Cluster::start(&["--ordered"]);
    let peers = cluster.group.peers();
    let value = "v".repeat(1_000);
    let mut lines: String = (0..2_000)
        .map(|number| format!("put k/{number:04} {value}\n"))
        .collect();
    lines.push_str("mput k/0 token k/9 none\n");
    trine(&[], &peers, lines.as_bytes()).expect_status(0);
    // Both steps at one position.
    let moves = "mput k/9 token k/0 none\nmput k/0 token k/9 none\n".repeat(400);
    let mover = {
        let peers = peers.clone();
        std::thread::spawn(move || trine(&[], &peers, moves.as_bytes()).expect_status(0))
    };
    let mut scans = 0;
    while scans < 3 || !mover.is_finished() {
        for replica in ["leader", "any"] {
            let json = text(&cluster, &["scan", "k/", "--json", "--replica", replica]);
            assert_eq!(json.matches("\"token\"").count(), 1);
            let last: Value = serde_json::from_str(json.lines().last().unwrap()).unwrap();
            assert_eq!(last["keys"], 2_002);
            assert!(last["position"].as_u64() > Some(0));
        }
        scans += 1;
    }
    mover.join().expect("the mover ends");
    let by_page = text(&cluster, &["scan", "k/", "--no-atomic", "--keys-only"]);
    assert_eq!(by_page.lines().count(), 2_002);
}

/// Each key below one prefix is followed by one below the other, so at any moment the first has as many, or one more.
#[test]
fn several_prefixes_are_counted_as_of_one_moment() {
    let cluster = filled(&["--ordered"]);
    let peers = cluster.group.peers();
    let pairs: String = (0..2_000)
        .map(|number| format!("put a/n{number} 1\nput b/n{number} 1\n"))
        .collect();
    let writer = {
        let peers = peers.clone();
        std::thread::spawn(move || trine(&[], &peers, pairs.as_bytes()).expect_status(0))
    };
    let mut counts = 0;
    while counts < 5 || !writer.is_finished() {
        let ran = cluster.run(&["count", "a/", "b/", "--json"]);
        let told = ran.expect_status(0).json();
        let of = |place: usize| told["counts"][place]["keys"].as_i64().expect("a number");
        assert!((0..=1).contains(&(of(0) - of(1))), "{told}");
        assert_eq!(told["counts"][0]["prefix"], "a/");
        assert!(told["position"].as_u64() > Some(0));
        counts += 1;
    }
    writer.join().expect("the writer ends");
    let lines = text(&cluster, &["count", "a/", "c/", "b/"]);
    assert_eq!(lines, "a/\t3000\nc/\t0\nb/\t3000\n");
    cluster
        .run(&["count", "a/", "b/", "--stale"])
        .expect_error(2, &["as of one moment", "--stale"]);
}

/// A replica that may keep nothing has the state of no pin once something was overwritten.
#[test]
fn a_replica_keeps_no_more_for_scans_than_it_may() {
    let cluster = Cluster::start(&["--ordered", "--retain-bytes", "0"]);
    let peers = cluster.group.peers();
    let lines = script_of_pages();
    trine(&[], &peers, lines.as_bytes()).expect_status(0);
    assert_eq!(
        text(&cluster, &["scan", "k/", "--keys-only"])
            .lines()
            .count(),
        2_000
    );
    // The same writes again, so that a scan goes on having several pages, until one of them has met a write.
    let has_met = Arc::new(AtomicBool::new(false));
    let writer = {
        let (peers, has_met) = (peers.clone(), Arc::clone(&has_met));
        std::thread::spawn(move || {
            while !has_met.load(Ordering::SeqCst) {
                trine(&[], &peers, lines.as_bytes()).expect_status(0);
            }
        })
    };
    let refused = wait_for("a scan that meets a write", || {
        assert!(!writer.is_finished(), "the writer has failed");
        let ran = cluster.run(&["scan", "k/"]);
        (ran.status != Some(0)).then_some(ran)
    });
    has_met.store(true, Ordering::SeqCst);
    writer.join().expect("the writer ends");
    refused.expect_error(1, &["no replica has kept the state", "--no-atomic"]);
    cluster
        .run(&["serve", "--retain-bytes", "7"])
        .expect_error(2, &["0, or at least 1MiB"]);
}

#[test]
fn rm_asks_at_a_terminal() {
    let cluster = Cluster::start(&["--ordered"]);
    cluster.ok(&["put", "a/1", "v"]);
    for (typed, count) in [("n\r", "1\n"), ("y\r", "0\n")] {
        let mut at = AtTerminal::start(command(&["rm", "a/"], &cluster.group.peers()));
        at.expect("delete the keys that begin with a/, 1 at the moment? [y/N]");
        at.press(typed);
        at.expect(if count == "0\n" {
            "1 key deleted"
        } else {
            "nothing was deleted"
        });
        assert_eq!(text(&cluster, &["count", "a/"]), count);
    }
}

#[test]
fn an_index_is_built_while_the_group_serves_and_refusals_say_how() {
    let cluster = filled(&["--memory", "1MiB"]);
    let off = &["keeps no ordered index", "trine config set ordered on"];
    let shell = trine(&[], &cluster.group.peers(), b"range a/\n");
    shell.expect_error(1, off);
    let on = text(&cluster, &["config", "set", "ordered", "on"]);
    assert_eq!(on, "ordered: on\n");
    assert_eq!(text(&cluster, &["count", "a/"]), "1000\n");
    let status = text(&cluster, &["status"]);
    assert!(status.contains("ordered index of"), "{status}");
    let reversed = ["scan", "--from", "b", "--to", "a"];
    cluster
        .run(&reversed)
        .expect_error(2, &["ends before it begins"]);
    cluster
        .run(&["scan", "--limit", "0"])
        .expect_error(2, &["0 is not in"]);
    let long = "k".repeat(70_000);
    cluster
        .run(&["scan", &long])
        .expect_error(2, &["70000 bytes"]);
    cluster.ok(&["config", "set", "ordered", "off"]);
    assert_eq!(
        text(&cluster, &["config", "get", "ordered"]),
        "ordered: off\n"
    );
    trine(&[], &cluster.group.peers(), b"range a/\n").expect_error(1, off);
    // Now a few more bytes would be above the limit.
    let value = vec![b'v'; 455_000];
    for key in ["x", "y"] {
        trine(&["put", key], &cluster.group.peers(), &value).expect_status(0);
    }
    let full = &["with an ordered index the items count", "config set memory"];
    cluster
        .run(&["config", "set", "ordered", "on"])
        .expect_error(1, full);
}

/// Without the ordered index these commands were refused. They walk over all keys, as an export does, and tell the same.
#[test]
fn a_prefix_is_read_counted_and_deleted_without_the_index_as_with_it() {
    let cluster = filled(&[]);
    let lines = |arguments: &[&str]| text(&cluster, arguments);
    let told = || {
        [
            lines(&["scan", "a/", "--limit", "3"]),
            lines(&[
                "scan",
                "--from",
                "a/0998",
                "--to",
                "b/0002",
                "--reverse",
                "--keys-only",
            ]),
            lines(&["scan", "b/", "--after", "b/0997", "--no-atomic"]),
            lines(&["scan", "a/", "--stale", "--keys-only"]),
            lines(&["count", "a/"]),
            lines(&["count", "a/", "c/", "b/"]),
            lines(&["count", "a/", "--after", "a/0009", "--to", "a/0100"]),
            lines(&["count", ""]),
        ]
    };
    let walked = told();
    assert_eq!(walked[0], "a/0000\t0\na/0001\t1\na/0002\t2\n");
    assert_eq!(walked[1], "b/0001\nb/0000\na/0999\na/0998\n");
    assert_eq!(walked[6], "90\n");
    lines(&["config", "set", "ordered", "on"]);
    assert_eq!(walked, told());
    lines(&["config", "set", "ordered", "off"]);
    let part = ["rm", "a/", "--from", "a/0500", "--yes"];
    assert_eq!(lines(&part), "500 keys deleted\n");
    assert_eq!(
        lines(&["scan", "a/", "--reverse", "--limit", "1"]),
        "a/0499\t499\n"
    );
    let rest = cluster.run(&["rm", "a/", "--yes", "--json"]);
    assert_eq!(rest.expect_status(0).json()["deleted"], 500);
    assert_eq!(lines(&["count"]), "1000\n");
    assert_eq!(
        lines(&["rm", "--prefix", "b/", "--yes"]),
        "1,000 keys deleted\n"
    );
    cluster.run(&["rm", "--yes"]).expect_error(2, &["PREFIX"]);
}
