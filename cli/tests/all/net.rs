//! `trine net` shows the networks of replicas with fault injection, and changes them while they run.

use crate::common::{Cluster, trine};
use serde_json::Value;

/// The output of `trine net show` for the replica with this node id.
fn shown(cluster: &Cluster, node_id: u64) -> Value {
    let ran = cluster.run(&["net", "show", "--json"]).expect_status(0);
    let document = ran.json();
    let replicas = document["replicas"].as_array().expect("a list").clone();
    let mut replicas = replicas.into_iter();
    replicas
        .find(|replica| replica["replica"] == node_id)
        .expect("the replica")
}

/// The leader is cut off from one follower, then from both, and another one leads. Without the faults all are up to
/// date again.
#[test]
fn links_are_blocked_and_healed_while_the_group_runs() {
    let mut cluster = Cluster::start(&["--fault-injection"]);
    let leader = cluster.leader();
    let node_id = leader.to_string();
    let others: Vec<String> = (1..=3)
        .filter(|other| *other != leader)
        .map(|other| other.to_string())
        .collect();
    cluster.ok(&["put", "before", "1"]);
    let set = ["net", "set", &node_id, "blocked", "--link"];
    cluster.ok(&[&set[..], &[&others[0]]].concat());
    cluster.ok(&["put", "one-link-less", "2"]);
    let text = cluster.ok(&[&set[..], &[&others[1]]].concat());
    let text = String::from_utf8(text).expect("text");
    assert_eq!(text.matches("blocked").count(), 4, "{text}");
    let elsewhere = |report: &trine_client::Report| {
        report.status().is_some_and(|status| {
            status.node_id as usize != leader && status.leader == Some(status.address)
        })
    };
    cluster.wait("another leader", |reports| reports.iter().any(elsewhere));
    assert_eq!(cluster.ok(&["get", "one-link-less"]), b"2");
    let state = shown(&cluster, leader as u64);
    assert_eq!(state["links"][0]["in"], "blocked");
    assert!(state["fired"]["loss"].as_u64() > Some(0), "{state}");

    cluster.ok(&["net", "clear"]);
    cluster.wait_for_voters(3);
    assert_eq!(
        shown(&cluster, leader as u64)["links"],
        serde_json::json!([])
    );

    // This runs in the shell, by direction, and for all links at once.
    let script = format!("\\net set {node_id} delay=1ms --direction in\n\\net clear {node_id}\n");
    let ran = trine(&[], &cluster.group.peers(), script.as_bytes()).expect_status(0);
    let text = String::from_utf8(ran.stdout).expect("text");
    assert_eq!(text.matches("delay=1ms").count(), 1, "{text}");
}

#[test]
fn whoever_has_no_fault_injection_or_asks_for_what_is_not_is_refused() {
    let cluster = Cluster::start(&["--fault-injection"]);
    for (args, status, part) in [
        (&["net", "set", "1", "gremlins=3%"][..], 2, "known are loss"),
        (
            &["net", "set", "1", "blocked", "--link", "1"],
            2,
            "no link to itself",
        ),
        (
            &["net", "set", "1", "blocked", "--link", "9"],
            2,
            "it knows 2",
        ),
        (&["net", "set", "4", "blocked"], 3, "no replica 4"),
        (
            &["net", "set", "1", "blocked", "--direction", "up"],
            2,
            "both",
        ),
        (&["net", "clear", "--link", "2"], 2, "ID"),
    ] {
        cluster.run(args).expect_error(status, &[part]);
    }
    assert_eq!(shown(&cluster, 1)["out"], "");
    drop(cluster);
    let outside = Cluster::start(&[]);
    let refused = outside.run(&["net", "set", "2", "blocked"]);
    refused.expect_error(
        2,
        &[
            "not started with --fault-injection",
            "trine serve --fault-injection",
        ],
    );
}
