//! `trine stat`, `trine latency` and `trine put --timing` against real processes.

use std::process::Stdio;

use crate::common::{Cluster, command, finish, signal, trine};

#[test]
fn stat_prints_as_many_lines_as_asked_and_names_what_is_silent() {
    let mut cluster = Cluster::start(&[]);
    let text = String::from_utf8(cluster.ok(&["stat", "0.1", "21"])).expect("text");
    let headers = text.lines().filter(|line| line.contains("writes/s"));
    assert_eq!((text.lines().count(), headers.count()), (23, 2), "{text}");
    let leader = cluster.leader();
    let ran = cluster
        .run(&["stat", "0.1", "1", "--json"])
        .expect_status(0);
    let line = ran.json();
    assert_eq!(
        (&line["leader"], &line["silent"]),
        (&leader.into(), &0.into())
    );
    assert!(line["writes_per_second"].is_number() && line["lag"].is_number());
    trine(&["stat", "0"], "", b"").expect_error(2, &["from 100ms"]);
    trine(&["stat"], "127.0.0.1:1", b"").expect_error(3, &["no replica answers"]);
}

#[test]
fn ctrl_c_ends_stat_and_latency_cleanly() {
    let cluster = Cluster::start(&[]);
    // It ended with 0, as if it had measured for as long as it was asked to.
    let latency = &["latency", "--for", "1h"][..];
    for (args, status, said) in [(&["stat", "0.1"][..], 0, ""), (latency, 130, "interrupted")] {
        let child = command(args, &cluster.group.peers())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the program starts");
        let pid = child.id();
        // The signal is caught once the thread that waits for signals runs.
        let watched = || {
            let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).ok()?;
            let name = |task: std::fs::DirEntry| std::fs::read_to_string(task.path().join("comm"));
            let mut names = tasks.flatten().flat_map(name);
            names.any(|name| name.trim() == "signals").then_some(())
        };
        crate::common::wait_for("the watch for signals", watched);
        signal(pid, "INT");
        let ran = finish(child).expect_status(status);
        match said {
            "" => assert_eq!(ran.stderr, "", "{args:?}"),
            said => assert!(ran.stderr.contains(said), "{}", ran.stderr),
        }
    }
}

#[test]
fn latency_measures_and_leaves_nothing_behind() {
    let cluster = Cluster::start(&[]);
    let ran = cluster.run(&["latency", "--for", "500ms", "--json"]);
    let measured = ran.expect_status(0).json();
    for kind in ["put", "get"] {
        assert!(measured[kind]["count"].as_u64() > Some(5), "{measured}");
        assert!(
            measured[kind]["p50_ns"].as_u64() > Some(1_000),
            "{measured}"
        );
    }
    assert!(!measured["links"].as_array().expect("links").is_empty());
    let text = String::from_utf8(cluster.ok(&["latency", "--for", "100ms"])).expect("text");
    assert!(text.contains("put <") && text.contains('#'), "{text}");
    let peers = cluster.group.peers();
    let left = trine(&[], &peers, b"count\n").expect_status(0);
    assert_eq!(left.stdout, b"0\n");
}

#[test]
fn put_draws_a_bar_for_each_stage() {
    let cluster = Cluster::start(&[]);
    let text = String::from_utf8(cluster.ok(&["put", "k", "v", "--timing"])).expect("text");
    for stage in ["client", "network", "queue", "append", "quorum", "apply"] {
        let named = |line: &&str| line.trim_start().starts_with(stage);
        let line = text.lines().find(named).expect(stage);
        assert!(line.contains('#'), "{text}");
    }
    assert_eq!(cluster.ok(&["get", "k"]), b"v");
    trine(&["top"], &cluster.group.peers(), b"").expect_error(2, &["on a terminal", "trine stat"]);
}
