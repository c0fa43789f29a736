//! Groups with their logs on disk: every process dies at once, and what was acknowledged is there; and what is left of
//! a lost majority becomes a group of its own.

mod common;

use std::path::PathBuf;

use common::trine;

struct Directory(PathBuf);

impl Directory {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("trine-disk-{}-{name}", std::process::id()));
        Self(path)
    }

    fn text(&self) -> &str {
        self.0.to_str().expect("a path of plain letters")
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[test]
fn all_replicas_are_killed_at_once_and_a_majority_is_lost_later() {
    let directory = Directory::new("blackout");
    let chaos = [
        "chaos",
        "--log",
        "disk",
        "--data-dir",
        directory.text(),
        "--kill-all-every",
        "1s",
        "--for",
        "4s",
        "--clients",
        "16",
    ];
    let ran = trine(&chaos, "", b"").expect_status(0);
    let said = String::from_utf8_lossy(&ran.stdout).into_owned();
    assert!(said.contains("killed all replicas"), "{said}");

    let left = directory.0.join("replica-2");
    let left = left.to_str().expect("a path of plain letters");
    let recover = [
        "recover",
        "--data-dir",
        left,
        "--id",
        "2",
        "--address",
        "127.0.0.1:7471",
    ];
    let refused = trine(&recover, "", b"").expect_status(2);
    let said = refused.stderr;
    assert!(said.contains("--i-accept-data-loss"), "{said}");
    let accepted = [&recover[..], &["--i-accept-data-loss", "--json"]].concat();
    let document = trine(&accepted, "", b"").expect_status(0).json();
    assert_ne!(document["cluster"], document["old_cluster"]);
    assert!(document["last_index"].as_u64() > Some(1), "{document}");

    // It belongs to another place than the one that is asked for here.
    let other = [
        "serve",
        "--id",
        "1",
        "--peers",
        "127.0.0.1:17471",
        "--log",
        "disk",
        "--data-dir",
        left,
    ];
    let refused = trine(&other, "", b"").expect_status(2);
    let said = refused.stderr;
    assert!(said.contains("belongs to place 2"), "{said}");
}
