//! What `trine up` keeps of a group on disk that syncs nothing before an orderly end.

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::common::up::Up;
use crate::common::{children_of, command, finish, is_alive, signal, tcp_ports, trine, wait_for};
use trine_base::ports::free_addresses;

struct Directory(PathBuf);

impl Directory {
    fn new(name: &str) -> Self {
        let name = format!("trine-up-kept-{}-{name}", std::process::id());
        Self(std::env::temp_dir().join(name))
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

/// A start that ended early killed the replicas. By then they had marked their directories as unsynced, so the next
/// start took them for lost: a Ctrl-C at the wrong moment, or a port in use, destroyed a group that had ended in order.
#[test]
fn a_start_that_ends_early_loses_nothing_of_a_group_without_syncs() {
    let directory = Directory::new("early");
    let data = directory.text();
    let disk = ["--log", "disk", "--fsync", "none", "--data-dir", data];
    let addresses = free_addresses(3).expect("free ports");
    let up = Up::start_at(&addresses, &disk);
    trine(&["put", "key", "value"], &up.peers, b"").expect_status(0);
    up.stop();

    let base = addresses[0].port().to_string();
    let line = [&["up", "--base-port", &base], &disk[..]].concat();
    let mut early = command(&line, "");
    let early = early.stdin(Stdio::null()).stdout(Stdio::piped());
    let early = early.stderr(Stdio::piped()).spawn().expect("starts");
    let mark = directory.0.join("replica-1/unsynced");
    wait_for("a directory in use", || mark.exists().then_some(()));
    signal(early.id(), "INT");
    finish(early).expect_status(0);
    assert!(!mark.exists(), "the replica was killed");

    let first = tcp_ports(3);
    let _taken = TcpListener::bind(("127.0.0.1", first + 1)).expect("a free port");
    let resp = format!("127.0.0.1:{first}");
    let ran = trine(&[&line[..], &["--resp", &resp]].concat(), "", b"");
    ran.expect_error(2, &["replica 2 ended"]);
    assert!(!mark.exists(), "the replica was killed");

    let up = Up::start_at(&addresses, &disk);
    assert!(!up.welcome.contains("set aside"), "{}", up.welcome);
    let got = trine(&["get", "key"], &up.peers, b"").expect_status(0);
    assert_eq!(got.stdout, b"value");
    up.stop();
}

/// The program was replaced meanwhile. The replica that could not be started again ended `trine up`, and so the memory of
/// the others.
#[test]
fn a_replica_that_cannot_be_started_again_does_not_end_the_others() {
    let place = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let place = Directory(place.join(format!("up-moved-{}", std::process::id())));
    std::fs::create_dir_all(&place.0).expect("made");
    let (program, away) = (place.0.join("trine"), place.0.join("away"));
    let usual = command(&[], "");
    std::fs::hard_link(usual.get_program(), &program).expect("linked");
    let mut moved = Command::new(&program);
    for (name, value) in usual.get_envs() {
        match value {
            Some(value) => moved.env(name, value),
            None => moved.env_remove(name),
        };
    }
    let addresses = free_addresses(3).expect("free ports");
    let up = Up::start_by(moved, &addresses, &[]);
    trine(&["put", "key", "value"], &up.peers, b"").expect_status(0);
    std::fs::rename(&program, &away).expect("moved");
    let replicas = children_of(up.child.id());
    signal(replicas[0], "KILL");
    up.wait_for_line("was not started: ");
    let get = ["get", "key", "--timeout", "30s"];
    let got = trine(&get, &up.peers, b"").expect_status(0);
    assert_eq!(got.stdout, b"value");
    std::fs::rename(&away, &program).expect("moved back");
    up.wait_for_line("all replicas vote again");
    up.stop();
}

/// `up` left out the first line of each replica, and that was the one about its files. It began an empty group without
/// a word.
#[test]
fn a_group_that_lost_all_of_its_files_says_so_before_it_is_ready() {
    let directory = Directory::new("lost");
    let data = directory.text();
    let disk = ["--log", "disk", "--fsync", "none", "--data-dir", data];
    let one = [&["--replicas", "1"], &disk[..]].concat();
    let addresses = free_addresses(1).expect("a free port");
    let up = Up::start_at(&addresses, &one);
    trine(&["put", "key", "value"], &up.peers, b"").expect_status(0);
    let replicas = children_of(up.child.id());
    up.kill();
    wait_for("the end of the replica", || {
        (!replicas.iter().any(|pid| is_alive(*pid))).then_some(())
    });

    let up = Up::start_at(&addresses, &one);
    let kept = format!("{data}/replica-1/lost-");
    let (before, _) = up.welcome.split_once("ready after").expect("it is ready");
    for part in ["warning: the group starts without data", &kept] {
        assert!(before.contains(part), "{part}: {}", up.welcome);
    }
    let why = "does not go on with its files: ";
    assert!(up.welcome.contains(why), "{}", up.welcome);
    trine(&["get", "key"], &up.peers, b"").expect_status(1);
    up.stop();

    // After an orderly end it goes on, and there is nothing to say.
    let up = Up::start_at(&addresses, &one);
    assert!(!up.welcome.contains("warning: "), "{}", up.welcome);
    assert!(!up.welcome.contains(why), "{}", up.welcome);
    up.stop();
}
