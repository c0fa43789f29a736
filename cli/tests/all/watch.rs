//! `trine watch`: every change once and in its order, also over the deaths of replicas; what is refused; how it ends.

use std::io::{BufRead, BufReader};
use std::process::{Child, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use serde_json::{Value, json};

use crate::common::{Cluster, command, finish, signal, trine, wait_for};

/// A `trine watch` that runs.
struct Watch {
    child: Child,
    lines: Receiver<String>,
}

impl Watch {
    fn start(cluster: &Cluster, arguments: &[&str]) -> Self {
        let arguments = [&["watch"], arguments].concat();
        let mut child = command(&arguments, &cluster.group.peers())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the program starts");
        let stdout = BufReader::new(child.stdout.take().expect("piped"));
        let (sender, lines) = channel();
        std::thread::spawn(move || {
            let mut lines = stdout.lines().map_while(Result::ok);
            lines.try_for_each(|line| sender.send(line))
        });
        Self { child, lines }
    }

    fn next(&self) -> String {
        let line = self.lines.recv_timeout(Duration::from_secs(30));
        line.expect("a line comes")
    }

    /// The next change; lines that only say how far the watch is are passed by.
    fn change(&self) -> Value {
        loop {
            let line: Value = serde_json::from_str(&self.next()).expect("JSON");
            if line.get("seen").is_none() {
                return line;
            }
        }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn put(cluster: &Cluster, key: &str, value: &str) -> u64 {
    let put = cluster.run(&["put", key, value, "--json", "--timeout", "30s"]);
    let version = put.expect_status(0).json()["version"].as_u64();
    version.expect("a version")
}

#[test]
fn changes_are_printed_as_they_happen() {
    let cluster = Cluster::start(&["--ordered"]);
    let from = put(&cluster, "begin", "1").to_string();
    let watch = Watch::start(&cluster, &["a/", "--exact", "b", "--since", &from]);
    let at = put(&cluster, "a/1", "one");
    assert_eq!(watch.next(), format!("{at}\twritten\ta/1\tone"));
    put(&cluster, "other", "x");
    let at = put(&cluster, "b", "two\nlines");
    assert_eq!(watch.next(), format!("{at}\twritten\tb\t\"two\\nlines\""));
    cluster.ok(&["del", "a/1"]);
    assert!(watch.next().ends_with("\tdeleted\ta/1"));
    let line = br#"{"key":"a/2","value":"v","expires_in_ms":100}"#;
    trine(&["import"], &cluster.group.peers(), line).expect_status(0);
    assert!(watch.next().ends_with("\twritten\ta/2\tv"));
    assert!(watch.next().ends_with("\texpired\ta/2"));
    cluster.ok(&["flush", "--yes"]);
    assert!(watch.next().ends_with("\tflushed"));
    // The past comes as it was, from whichever replica.
    let past = ["watch", "a/", "--since", &from, "--limit", "2", "--json"];
    let past = String::from_utf8(cluster.ok(&past)).expect("text");
    let past: Vec<Value> = past
        .lines()
        .map(|line| serde_json::from_str(line).expect("JSON"))
        .collect();
    assert_eq!(past[0]["key"], "a/1");
    assert_eq!(past[0]["value"], "one");
    assert_eq!(past[0]["command"], "Put");
    assert_eq!(past[1]["change"], "deleted");
    // So does a part of the keys of a prefix.
    put(&cluster, "a/3", "not in it");
    put(&cluster, "a/2", "again");
    let part = ["watch", "a/", "--after", "a/1", "--to", "a/3"];
    let since = ["--since", &from, "--limit", "4"];
    let part = String::from_utf8(cluster.ok(&[&part[..], &since].concat())).expect("text");
    let changes: Vec<&str> = part
        .lines()
        .filter_map(|line| Some(line.split_once('\t')?.1))
        .collect();
    let expected = [
        "written\ta/2\tv",
        "expired\ta/2",
        "flushed",
        "written\ta/2\tagain",
    ];
    assert_eq!(changes, expected);
    for (wrong, why) in [
        (&["a/", "b/", "--from", "a/1"][..], "a single prefix"),
        (&["--exact", "k", "--to", "z"], "a single prefix"),
        (&["a/", "--to", "2"], "no key can be in this range"),
        (&["--from", "b", "--to", "a"], "ends before it begins"),
    ] {
        let watch = cluster.run(&[&["watch"], wrong].concat());
        watch.expect_error(2, &[why]);
    }
}

#[test]
fn a_watch_from_now_begins_behind_what_was_acknowledged() {
    let cluster = Cluster::start(&[]);
    put(&cluster, "a", "before");
    let mut watch = Watch::start(&cluster, &["--json", "--keys-only", "--limit", "1"]);
    // It is not known when it begins: what it prints first is one of these, and nothing from before.
    let mut number = 0;
    let first = wait_for("a change", || {
        number += 1;
        put(&cluster, "b", &number.to_string());
        watch.lines.try_recv().ok()
    });
    let first: Value = serde_json::from_str(&first).expect("JSON");
    assert_eq!(first["key"], "b");
    assert!(first["value_bytes"].is_u64() && first.get("value").is_none());
    assert!(watch.child.wait().expect("wait").success());
}

/// The replica that serves the watch dies for certain: each of them does, one after the other.
#[test]
fn a_watch_outlives_every_replica_without_a_gap_and_without_an_event_twice() {
    let mut cluster = Cluster::start(&[]);
    let mut expected = Vec::new();
    let from = put(&cluster, "begin", "1").to_string();
    let watch = Watch::start(&cluster, &["a/", "--since", &from, "--json"]);
    let mut write = |cluster: &Cluster, count: usize| {
        for _ in 0..count {
            let key = format!("a/{}", expected.len());
            let at = put(cluster, &key, "v");
            expected.push(json!([at, key]));
        }
    };
    for node_id in 1..=3 {
        write(&cluster, 4);
        cluster.group.kill(node_id).expect("a process");
        write(&cluster, 4);
        cluster.group.restart(node_id).expect("a process");
        cluster.wait_for_voters(3);
    }
    write(&cluster, 4);
    for expected in &expected {
        let change = watch.change();
        assert_eq!(&json!([change["position"], change["key"]]), expected);
    }
    cluster.ok(&["put", "a/last", "v"]);
    assert_eq!(watch.change()["key"], "a/last");
}

#[test]
fn what_cannot_be_watched_is_refused_with_what_would_help() {
    let cluster = Cluster::start(&["--watch-history", "1MiB"]);
    let run = |arguments: &[&str]| cluster.run(&[&["watch"], arguments].concat());
    run(&["--since", "yesterday"]).expect_error(2, &["a position is a number"]);
    let first = put(&cluster, "a", "1");
    let future = (first + (1_000 << 16)).to_string();
    run(&["--since", &future]).expect_error(1, &["of the future", "--since"]);
    let value = "x".repeat(15_000);
    for _ in 0..100 {
        put(&cluster, "a", &value);
    }
    let forgotten = run(&["--since", &first.to_string()]);
    forgotten.expect_error(1, &["are no longer kept", "--since", "--watch-history"]);
    let silent = Cluster::start(&["--watch-history", "0"]);
    silent
        .run(&["watch", "--timeout", "1s"])
        .expect_error(3, &["keeps no history", "--watch-history 0"]);
    trine(&["watch", "--timeout", "1s"], "127.0.0.1:1", b"")
        .expect_error(3, &["no replica serves the watch", "nothing was printed"]);
}

#[test]
fn ctrl_c_says_where_to_go_on_and_a_closed_pipe_ends_it_quietly() {
    let cluster = Cluster::start(&[]);
    let from = put(&cluster, "begin", "1").to_string();
    let arguments = ["watch", "--since", &from, "--json"];
    let mut child = command(&arguments, &cluster.group.peers())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program starts");
    let at = put(&cluster, "a", "1");
    let mut stdout = BufReader::new(child.stdout.take().expect("piped"));
    let mut line = String::new();
    stdout.read_line(&mut line).expect("a line");
    assert!(line.contains(&at.to_string()), "{line}");
    line.clear();
    stdout.read_line(&mut line).expect("a line");
    assert_eq!(line, format!("{{\"seen\":{at}}}\n"));
    child.stdout = Some(stdout.into_inner());
    signal(child.id(), "INT");
    let ran = finish(child).expect_status(0);
    assert!(
        ran.stderr.contains(&format!("`--since {at}` resumes")),
        "{}",
        ran.stderr
    );

    let mut child = command(&arguments, &cluster.group.peers())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program starts");
    drop(child.stdout.take());
    put(&cluster, "a", "2");
    let status = wait_for("the program's end", || child.try_wait().expect("wait"));
    assert!(status.success());
}
