//! A removed replica learns of it. It ends, or waits to be taken in again, depending on its options.

use std::ffi::OsString;
use std::net::SocketAddr;
use std::time::Duration;

use crate::common::{Cluster, program, trine, wait_for};
use trine_base::ports::free_addresses;
use trine_local::Process;

/// A replica with a node id and an address that the group's list does not name.
fn serve(node_id: usize, listen: SocketAddr, peers: &str, more: &[&str]) -> Process {
    let (id, listen) = (node_id.to_string(), listen.to_string());
    let mut args = vec!["serve", "--id", &id, "--listen", &listen, "--peers", peers];
    args.extend(more);
    let args: Vec<OsString> = args.into_iter().map(OsString::from).collect();
    Process::start(&program(), &args, node_id, None).expect("starts")
}

fn said(process: &Process, part: &str) -> bool {
    process.tail().iter().any(|line| line.contains(part))
}

/// The node id is not in the list, and seven more ids are missing in between.
#[test]
fn a_removed_replica_says_so_and_ends() {
    let cluster = Cluster::start(&[]);
    let address = free_addresses(1).expect("a port")[0];
    let mut ninth = serve(9, address, &cluster.group.peers(), &[]);
    cluster.ok(&["member", "add", "9", "--address", &address.to_string()]);
    cluster.ok(&["member", "remove", "9"]);
    let ended = ninth.wait_at_most(Duration::from_secs(30)).expect("wait");
    let tail = ninth.tail();
    assert_eq!(ended.and_then(|status| status.code()), Some(1), "{tail:?}");
    for part in ["node 9 was removed from cluster", "trine member add 9"] {
        assert!(said(&ninth, part), "{tail:?}");
    }
    cluster.ok(&["put", "key", "value"]);
}

#[test]
fn a_removed_replica_that_was_told_to_rejoin_waits_to_be_added() {
    let cluster = Cluster::start(&[]);
    let address = free_addresses(1).expect("a port")[0];
    let fourth = serve(4, address, &cluster.group.peers(), &["--rejoin"]);
    cluster.ok(&["member", "add", "4", "--address", &address.to_string()]);
    cluster.ok(&["member", "remove", "4"]);
    wait_for("a new incarnation", || {
        said(&fourth, "continuing as a new replica").then_some(())
    });
    cluster.ok(&["member", "add", "4", "--address", &address.to_string()]);
    let list = String::from_utf8(cluster.ok(&["member", "list"])).expect("text");
    assert!(list.contains(&address.to_string()), "{list}");
    cluster.ok(&["put", "key", "value"]);
}

/// In disk mode it ended, with and without `--rejoin`. Only a directory that was found damaged at a start was set
/// aside.
#[test]
fn in_disk_mode_a_removed_replica_sets_its_files_aside_and_waits_to_be_added() {
    let name = format!("trine-rejoin-{}", std::process::id());
    let directory = std::env::temp_dir().join(name);
    let data = directory.join("4");
    let data_dir = data.to_str().expect("a path of plain letters");
    let cluster = Cluster::start(&[]);
    let address = free_addresses(1).expect("a port")[0];
    let more = ["--rejoin", "--log", "disk", "--data-dir", data_dir];
    let fourth = serve(4, address, &cluster.group.peers(), &more);
    cluster.ok(&["member", "add", "4", "--address", &address.to_string()]);
    cluster.ok(&["put", "key", "value"]);
    cluster.ok(&["member", "remove", "4"]);
    wait_for("a new incarnation", || {
        said(&fourth, "joins its group as a new one").then_some(())
    });
    // The message said that the memory was lost, although the disk had kept everything.
    let why = "does not go on with its files: ";
    assert!(said(&fourth, why), "{:?}", fourth.tail());
    cluster.ok(&["member", "add", "4", "--address", &address.to_string()]);
    let set_aside = std::fs::read_dir(&data).expect("the directory");
    let names: Vec<_> = set_aside
        .map(|entry| entry.expect("a name").file_name())
        .collect();
    let lost = |name: &&OsString| name.to_string_lossy().starts_with("lost-");
    assert!(names.iter().any(|name| lost(&name)), "{names:?}");
    assert!(names.iter().any(|name| name == "identity"), "{names:?}");
    // What they are, and how they go away, was only in a document for developers.
    let told = cluster.run(&["doctor", "--data-dir", data_dir, "--json"]);
    let findings = told.json();
    let findings = findings["findings"].as_array().expect("findings");
    let old = findings.iter().find(|found| found["check"] == "old files");
    let hint = format!("trine recover --remove-lost --data-dir {data_dir}");
    assert_eq!(old.expect("a finding")["hint"], hint);
    let args: Vec<&str> = hint.split(' ').skip(1).collect();
    let removed = cluster.run(&[&args[..], &["--json"]].concat());
    let removed = removed.expect_status(0).json();
    assert!(!removed["removed"].as_array().expect("names").is_empty());
    let left = std::fs::read_dir(&data).expect("the directory");
    let left: Vec<_> = left
        .map(|entry| entry.expect("a name").file_name())
        .collect();
    assert!(!left.iter().any(|name| lost(&name)), "{left:?}");
    assert!(left.iter().any(|name| name == "identity"), "{left:?}");
    drop(fourth);
    std::fs::remove_dir_all(&directory).expect("it is there");
}

/// With the logs on disk, too: the old replica runs until it is replaced, and is told to go only when nobody needs its vote.
/// Its leader dies as soon as it says that it is a member no more.
#[test]
fn a_live_replica_on_disk_is_replaced_at_another_address_and_the_leader_may_die() {
    let name = format!("trine-replaced-{}", std::process::id());
    let directory = std::env::temp_dir().join(name);
    let data = format!("{}/{{node_id}}", directory.to_str().expect("plain letters"));
    let mut cluster = Cluster::start(&["--log", "disk", "--data-dir", &data]);
    cluster.ok(&["put", "key", "value"]);
    let leader = cluster.leader();
    let (old, third) = (leader % 3 + 1, (leader + 1) % 3 + 1);
    let others = [leader, third].map(|node| cluster.group.addresses()[node - 1].to_string());
    let address = free_addresses(1).expect("a port")[0];
    let moved = directory.join("moved");
    let moved = moved.to_str().expect("plain letters");
    let more = ["--log", "disk", "--data-dir", moved];
    let new = serve(old, address, &others.join(","), &more);
    let node = old.to_string();
    cluster.ok(&[
        "member",
        "replace",
        &node,
        "--address",
        &address.to_string(),
    ]);
    let list = String::from_utf8(cluster.ok(&["member", "list"])).expect("text");
    assert_eq!(
        list.matches("voter").count() + list.matches("leader").count(),
        3,
        "{list}"
    );
    assert!(
        !list.contains("learner") && list.contains(&address.to_string()),
        "{list}"
    );
    cluster.group.kill(leader).expect("it runs");
    let peers = format!("{},{address}", others[1]);
    trine(&["put", "key", "after", "--timeout", "20s"], &peers, b"").expect_status(0);
    let read = trine(&["get", "key", "--timeout", "20s"], &peers, b"").expect_status(0);
    assert_eq!(read.stdout, b"after");
    drop(new);
    std::fs::remove_dir_all(&directory).expect("it is there");
}
