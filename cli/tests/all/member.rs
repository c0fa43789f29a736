//! Members and leadership of a group of real processes, shown and changed from the command line.

use std::ffi::OsString;
use std::net::SocketAddr;

use crate::common::{Cluster, program, trine};
use serde_json::Value;
use trine_base::ports::free_addresses;
use trine_client::leader_of;
use trine_local::Process;

/// A replica beside those of the group, started by hand as an operator would.
fn serve(node_id: usize, peers: &[SocketAddr]) -> Process {
    let list: Vec<String> = peers.iter().map(ToString::to_string).collect();
    let (id, list) = (node_id.to_string(), list.join(","));
    let args = ["serve", "--id", &id, "--peers", &list].map(OsString::from);
    Process::start(&program(), &args, node_id, None).expect("starts")
}

fn one_address() -> SocketAddr {
    free_addresses(1).expect("a free port")[0]
}

/// The members by node id: role and address.
fn members(cluster: &Cluster) -> Vec<(u64, String, String)> {
    // The known members are printed also while there is no leader.
    let document = cluster.run(&["member", "list", "--json"]).json();
    let text = |value: &Value| value.as_str().expect("a text").to_owned();
    let of_one = |member: &Value| {
        let node_id = member["replica"].as_u64().expect("a place");
        (node_id, text(&member["role"]), text(&member["address"]))
    };
    let members = document["members"].as_array().expect("a list");
    members.iter().map(of_one).collect()
}

fn role_at(cluster: &Cluster, node_id: u64) -> Option<String> {
    let mut all = members(cluster).into_iter();
    all.find(|member| member.0 == node_id)
        .map(|member| member.1)
}

fn text(bytes: Vec<u8>) -> String {
    String::from_utf8(bytes).expect("text")
}

#[test]
fn the_list_shows_every_member_and_a_transfer_moves_leadership() {
    let mut cluster = Cluster::start(&[]);
    let leader = cluster.leader();
    let printed = text(cluster.ok(&["member", "list"]));
    for address in cluster.group.addresses() {
        assert!(printed.contains(&address.to_string()), "{printed}");
    }
    let roles: Vec<String> = members(&cluster).into_iter().map(|m| m.1).collect();
    assert_eq!(roles.len(), 3);
    for node_id in 1..=3 {
        let expected = if node_id == leader { "leader" } else { "voter" };
        assert_eq!(roles[node_id - 1], expected);
    }

    let other = leader % 3 + 1;
    let to = other.to_string();
    // One replica that does not lead is enough to find the leader.
    let one = cluster.group.addresses()[other - 1].to_string();
    let said = trine(&["leader", "transfer", &to], &one, b"").expect_status(0);
    assert_eq!(text(said.stdout), format!("node {other} leads\n"));
    assert_eq!(cluster.leader(), other);
    // A second transfer does no harm.
    let ran = cluster.run(&["leader", "transfer", &to, "--json"]);
    let document = ran.expect_status(0).json();
    assert_eq!(document["command"], "transfer");
    assert_eq!(document["replica"], other);
    assert_eq!(cluster.leader(), other);
    // Without a node id the command chooses another replica.
    cluster.ok(&["leader", "transfer"]);
    assert_ne!(cluster.leader(), other);
    cluster.ok(&["put", "key", "value"]);
}

#[test]
fn a_fourth_replica_is_added_promoted_and_removed() {
    let mut cluster = Cluster::start(&[]);
    cluster.ok(&["put", "key", "value"]);
    let mut peers = cluster.group.addresses().to_vec();
    peers.push(one_address());
    let _fourth = serve(4, &peers);
    // A replica cannot admit itself.
    assert_eq!(role_at(&cluster, 4), None);
    let address = peers[3].to_string();
    // An admin command without an address cannot admit it either.
    cluster
        .run(&["member", "add", "4", "--learner"])
        .expect_error(
            1,
            &[
                "where the replica of node 4 will be",
                "--address",
                "nothing was changed",
            ],
        );
    let said = text(cluster.ok(&["member", "add", "4", "--learner", "--address", &address]));
    assert!(said.contains(&peers[3].to_string()), "{said}");
    assert_eq!(role_at(&cluster, 4).as_deref(), Some("learner"));
    cluster
        .run(&["leader", "transfer", "4"])
        .expect_error(1, &["no vote", "promote it first", "nothing was changed"]);
    assert_eq!(
        text(cluster.ok(&["member", "promote", "4"])),
        "node 4 votes\n"
    );
    assert_eq!(role_at(&cluster, 4).as_deref(), Some("voter"));
    cluster.ok(&["leader", "transfer", "4"]);
    assert_eq!(role_at(&cluster, 4).as_deref(), Some("leader"));
    // The list did not name it; the others report it.
    let printed = text(cluster.ok(&["member", "list"]));
    assert!(!printed.contains("no leader answers"), "{printed}");
    let printed = text(cluster.ok(&["status"]));
    assert!(printed.starts_with("replica 4 ("), "{printed}");
    assert_eq!(cluster.ok(&["get", "key"]), b"value");
    // It is the leader, so leadership goes to another one first.
    let said = text(cluster.ok(&["member", "remove", "4"]));
    assert_eq!(said, "node 4 is not a member\n");
    assert_eq!(members(&cluster).len(), 3);
    assert_eq!(cluster.ok(&["get", "key"]), b"value");
    cluster.wait_for_voters(3);
    cluster
        .run(&["member", "remove", "4"])
        .expect_error(1, &["node 4 is not a member", "nothing was changed"]);
}

#[test]
fn a_new_process_replaces_a_live_one_when_an_operator_says_so() {
    let mut cluster = Cluster::start(&[]);
    cluster.ok(&["put", "key", "value"]);
    let node_id = cluster.leader() % 3 + 1;
    let mut peers = cluster.group.addresses().to_vec();
    peers[node_id - 1] = one_address();
    let _new = serve(node_id, &peers);
    let address = peers[node_id - 1].to_string();
    cluster.ok(&[
        "member",
        "replace",
        &node_id.to_string(),
        "--address",
        &address,
    ]);
    let all = members(&cluster);
    assert_eq!(all.len(), 3);
    assert_eq!(all[node_id - 1].2, peers[node_id - 1].to_string());
    assert_eq!(cluster.ok(&["get", "key"]), b"value");
}

/// It waited for as long as the operator did, and said nothing of where the group knows the node.
#[test]
fn a_replacement_that_nobody_comes_for_ends_and_says_why() {
    let mut cluster = Cluster::start(&[]);
    let node_id = cluster.leader() % 3 + 1;
    let (known, named) = (cluster.group.addresses()[node_id - 1], one_address());
    let ran = cluster.run(&[
        "member",
        "replace",
        &node_id.to_string(),
        "--address",
        &named.to_string(),
    ]);
    // A leader before this one may still remember it.
    ran.expect_error(
        3,
        &[
            &format!("no replica with --id {node_id} at {named} has asked for 10 s"),
            &format!("the group knows node {node_id} at {known}"),
            "start the new replica first",
        ],
    );
    assert_eq!(members(&cluster).len(), 3);
}

#[test]
fn a_removal_that_would_lose_the_quorum_is_refused_with_its_reason() {
    let mut cluster = Cluster::start(&[]);
    let leader = cluster.leader();
    let (dead, alive) = (leader % 3 + 1, (leader + 1) % 3 + 1);
    cluster.group.kill(dead).expect("kill");
    let silent = |status: &trine_protocol::status::Status| {
        let mut all = status.members.iter();
        let dead = all.find(|member| member.node_id as usize == dead);
        dead.and_then(|member| member.silent_ns)
            .is_some_and(|ns| ns > 1_000_000_000)
    };
    cluster.wait("the leader misses the dead one", |reports| {
        leader_of(reports).is_some_and(silent)
    });
    let refused = cluster.run(&["member", "remove", &alive.to_string()]);
    refused.expect_error(
        1,
        &[
            "only 1 of the 2 voters that would be left are alive, 2 are needed",
            "nothing was changed",
        ],
    );
    let ran = cluster.run(&["member", "remove", &alive.to_string(), "--json"]);
    assert_eq!(ran.expect_status(1).json()["error"]["kind"], "negative");
    assert_eq!(members(&cluster).len(), 3);
    // The dead one may be removed, because the remaining ones are alive.
    cluster.ok(&["member", "remove", &dead.to_string()]);
    assert_eq!(members(&cluster).len(), 2);
    cluster.ok(&["put", "key", "value"]);
}

#[test]
fn a_wrong_node_id_is_named() {
    let cluster = Cluster::start(&[]);
    let table: &[(&[&str], &str)] = &[
        (&["member", "remove", "9"], "node 9 is not a member"),
        (&["member", "promote", "9"], "add it first"),
        (&["member", "replace", "9"], "add it instead"),
        (&["leader", "transfer", "9"], "node 9 is not a member"),
    ];
    for (args, part) in table {
        cluster
            .run(args)
            .expect_error(1, &[part, "nothing was changed"]);
    }
    for args in [
        &["member", "remove", "0"][..],
        &["member", "add"],
        &["member", "add", "4", "--address", "nowhere"],
        &["leader", "transfer", "x"],
    ] {
        cluster.run(args).expect_status(2);
    }
    // The command waits for a node without a replica, and says so.
    cluster
        .run(&[
            "member",
            "add",
            "4",
            "--address",
            "127.0.0.1:9",
            "--timeout",
            "500ms",
        ])
        .expect_error(3, &["outcome unknown", "--id 4", "member list"]);
    assert_eq!(members(&cluster).len(), 3);
}

#[test]
fn nobody_there_is_said_and_nothing_was_changed() {
    let address = one_address().to_string();
    for args in [
        &["member", "remove", "1"][..],
        &["leader", "transfer", "1"],
        &["leader", "transfer"],
    ] {
        let args = [args, &["--timeout", "300ms"]].concat();
        trine(&args, &address, b"").expect_error(3, &["not reachable", "nothing was changed"]);
    }
    let args = ["member", "list", "--timeout", "300ms"];
    trine(&args, &address, b"").expect_error(3, &["no replica answers", "trine up"]);
    // A replica that is in no group yet answers, and says so.
    let alone = one_address();
    let _replica = serve(1, &[alone, one_address()]);
    crate::common::wait_for("an answer from it", || {
        let args = ["member", "promote", "1", "--timeout", "500ms"];
        let ran = trine(&args, &alone.to_string(), b"").expect_status(3);
        ran.stderr.contains("belongs to no group yet").then_some(())
    });
}

#[test]
fn reads_under_a_lease_are_shown_with_their_assumption() {
    let cluster = Cluster::start(&["--reads", "lease", "--lease-drift", "20ms"]);
    cluster.ok(&["put", "key", "value"]);
    assert_eq!(cluster.ok(&["get", "key"]), b"value");
    let printed = text(cluster.ok(&["status"]));
    assert!(
        printed.contains("reads: under a lease of") && printed.contains("at most 20.0 ms"),
        "{printed}"
    );
    let document = cluster.run(&["status", "--json"]).expect_status(0).json();
    for replica in document["replicas"].as_array().expect("a list") {
        assert_eq!(replica["status"]["lease"]["drift_ns"], 20_000_000);
    }

    let address = one_address().to_string();
    let mut args = vec!["serve", "--id", "1", "--peers", &address];
    args.extend(["--reads", "lease", "--lease-drift", "10s"]);
    trine(&args, "", b"").expect_error(2, &["lower the drift"]);
    args[6] = "sometimes";
    trine(&args, "", b"").expect_error(2, &["index, lease"]);
}
