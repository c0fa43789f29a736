//! `trine put` and `trine del` under a condition, and keys that expire.

use super::common::{Cluster, wait_for};

/// The version that `trine put ... --json` has printed.
fn written(cluster: &Cluster, args: &[&str]) -> String {
    let args = [&["put"], args, &["--json"]].concat();
    let document = cluster.run(&args).expect_status(0).json();
    document["version"].as_u64().expect("a number").to_string()
}

#[test]
fn a_write_whose_condition_does_not_hold_changes_nothing_and_says_what_is_there() {
    let cluster = Cluster::start(&[]);
    let first = written(&cluster, &["k", "one", "--if-absent"]);
    let exists = format!("k exists, with version {first}; nothing was changed");
    cluster
        .run(&["put", "k", "two", "--if-absent"])
        .expect_error(1, &[&exists]);
    let second = written(&cluster, &["k", "two", "--if-version", &first]);
    let other = format!("k has version {second}, not {first}; nothing was changed");
    let refused = ["put", "k", "three", "--if-version", &first];
    cluster.run(&refused).expect_error(1, &[&other]);
    // With an expiry it is another command, and the same to the user.
    let with_expiry = [&refused[..], &["--ttl", "1h"]].concat();
    cluster.run(&with_expiry).expect_error(1, &[&other]);
    let document = cluster
        .run(&[&with_expiry[..], &["--json"]].concat())
        .expect_status(1)
        .json();
    assert_eq!(document["written"], false);
    assert_eq!(document["present_version"].to_string(), second);
    assert_eq!(cluster.ok(&["get", "k"]), b"two");
    let third = written(
        &cluster,
        &["k", "three", "--if-version", &second, "--ttl", "1h"],
    );

    let other = format!("k has version {third}, not {second}; nothing was changed");
    cluster
        .run(&["del", "k", "--if-version", &second])
        .expect_error(1, &[&other]);
    assert_eq!(cluster.ok(&["get", "k"]), b"three");
    cluster.ok(&["del", "k", "--if-version", &third]);
    for words in [
        &["del", "k"][..],
        &["put", "k", "v"],
        &["put", "k", "v", "--ttl", "1h"],
    ] {
        let words = [words, &["--if-version", &third]].concat();
        let absent = ["no such key: k; nothing was changed"];
        let ran = cluster.run(&words).expect_error(1, &absent);
        assert!(ran.stdout.is_empty());
        let ran = cluster.run(&[&words[..], &["--json"]].concat());
        assert!(ran.expect_status(1).json()["present_version"].is_null());
    }
}

#[test]
fn a_key_with_a_time_to_live_expires_and_one_without_does_not() {
    let cluster = Cluster::start(&[]);
    cluster.ok(&["put", "lock", "me", "--if-absent", "--ttl", "1h"]);
    cluster
        .run(&["put", "lock", "you", "--if-absent", "--ttl", "1h"])
        .expect_status(1);
    cluster.ok(&["put", "lock", "me", "--ttl", "10ms"]);
    wait_for("the end of the key", || {
        (cluster.run(&["get", "lock"]).status == Some(1)).then_some(())
    });
    cluster.ok(&["put", "lock", "you", "--if-absent"]);
    for (words, part) in [
        (
            &["--if-absent", "--if-version", "1"][..],
            "cannot be used with",
        ),
        (&["--ttl", "0"], "--ttl"),
        (&["--ttl", "600y"], "at most 500 years"),
        (&["--if-version", "first"], "--if-version"),
    ] {
        let words = [&["put", "lock", "v"][..], words].concat();
        cluster.run(&words).expect_error(2, &[part]);
    }
    assert_eq!(cluster.ok(&["get", "lock"]), b"you");
}
