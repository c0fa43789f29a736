//! Disks that hang: syncs neither return nor fail. A library that is loaded ahead of the system's holds them up.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use super::common::{Ran, TempFile, command, finish, signal, tcp_ports, trine, wait_for};
use super::metrics::get;
use trine_base::ports::free_addresses;

/// A group on disk, whose disks hang where the test says so.
struct Group {
    directory: TempFile,
    peers: String,
    metrics: u16,
    replicas: Vec<Child>,
}

impl Group {
    fn start(name: &str) -> Self {
        let directory = TempFile::new(name);
        std::fs::create_dir(&directory.0).expect("made");
        compile(&directory.0.join("hang.so"));
        let addresses = free_addresses(3).expect("ports");
        let peers: Vec<String> = addresses.iter().map(ToString::to_string).collect();
        let mut group = Self {
            directory,
            peers: peers.join(","),
            metrics: tcp_ports(3),
            replicas: Vec::new(),
        };
        for id in 1..=3 {
            let more: &[&str] = if id == 1 { &["--bootstrap"] } else { &[] };
            let replica = group.serve(id, more).spawn().expect("starts");
            group.replicas.push(replica);
        }
        group.wait_for_status("tolerates 1 more failure");
        group
    }

    fn serve(&self, id: u16, more: &[&str]) -> Command {
        let data = self.directory.0.join(format!("data-{id}"));
        let (id_text, metrics) = (id.to_string(), self.endpoint(id).to_string());
        let usual = [
            "serve",
            "--id",
            &id_text,
            "--log",
            "disk",
            "--metrics",
            &metrics,
        ];
        let data = ["--data-dir", data.to_str().expect("text")];
        let mut serve = command(&[&usual[..], &data, more].concat(), &self.peers);
        serve
            .env("LD_PRELOAD", self.directory.0.join("hang.so"))
            .env("TRINE_TEST_HANG", self.switch(id))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        serve
    }

    fn endpoint(&self, id: u16) -> std::net::SocketAddr {
        ([127, 0, 0, 1], self.metrics + id - 1).into()
    }

    /// While this file exists, the disk of the replica hangs.
    fn switch(&self, id: u16) -> PathBuf {
        self.directory.0.join(format!("hang-{id}"))
    }

    fn hang(&self, id: u16) {
        std::fs::write(self.switch(id), "").expect("written");
    }

    fn run(&self, args: &[&str]) -> Ran {
        trine(args, &self.peers, b"")
    }

    fn status(&self) -> String {
        String::from_utf8_lossy(&self.run(&["status"]).stdout).into_owned()
    }

    #[track_caller]
    fn wait_for_status(&self, part: &str) -> String {
        wait_for(part, || {
            Some(self.status()).filter(|text| text.contains(part))
        })
    }

    fn leader(&self) -> u16 {
        let document = self.run(&["status", "--json"]).expect_status(0).json();
        let replicas = document["replicas"].as_array().expect("replicas");
        let leader = replicas
            .iter()
            .find(|replica| replica["replica"] == document["leader"])
            .expect("it answers");
        let id = leader["status"]["replica"].as_u64();
        u16::try_from(id.expect("a number")).expect("small")
    }

    fn metric(&self, id: u16, name: &str) -> f64 {
        let (_, text) = get(self.endpoint(id), "/metrics");
        let line = text.lines().find_map(|line| line.strip_prefix(name));
        let value = line.unwrap_or_else(|| panic!("no {name} in {text}"));
        value.trim().parse().expect("a number")
    }

    /// Asks a replica to end, and returns how it did.
    fn stop(&mut self, id: u16) -> Ran {
        let replica = self.replicas.remove(usize::from(id) - 1);
        signal(replica.id(), "TERM");
        finish(replica)
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        for replica in &mut self.replicas {
            let _ = replica.kill();
            let _ = replica.wait();
        }
    }
}

fn compile(library: &Path) {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/all/hanging_disk.c");
    let status = Command::new("cc")
        .args(["-shared", "-fPIC", "-O1", "-o"])
        .args([library, &source])
        .arg("-ldl")
        .status();
    assert!(status.expect("a C compiler").success());
}

/// The leader's disk hung for 25 s, and so long nobody could write or read, although two other replicas had everything.
/// `/readyz` said 200, and the status that the group tolerates one more failure.
#[test]
fn a_leader_whose_disk_hangs_hands_over_says_so_and_ends_when_it_is_asked_to() {
    let mut group = Group::start("hanging-leader");
    group.run(&["put", "a", "1"]).expect_status(0);
    let leader = group.leader();
    group.hang(leader);
    let begun = Instant::now();
    group.run(&["put", "b", "2"]).expect_status(0);
    let took = begun.elapsed();
    // It takes half a second on an idle machine. Without the handover there is no answer within the deadline of 5 s.
    assert!(took < Duration::from_secs(4), "{took:?}");
    assert_ne!(group.leader(), leader);
    assert!(group.metric(leader, "trine_disk_handovers_total") >= 1.0);

    let endpoint = group.endpoint(leader);
    let (_, why) = wait_for("a replica that is not ready", || {
        Some(get(endpoint, "/readyz"))
            .filter(|(status, why)| *status == 503 && why.contains("its disk hangs"))
    });
    assert!(why.contains("a write has been under way for"), "{why}");
    assert_eq!(get(endpoint, "/livez").0, 200);
    assert!(group.metric(leader, "trine_disk_oldest_write_seconds") > 2.0);
    let status = group.wait_for_status("no further replica may be lost");
    assert!(status.contains("its disk hangs"), "{status}");
    group.run(&["put", "c", "3"]).expect_status(0);

    // Its process ends, with the reason, and when the disk works again nothing is missing.
    let ran = group.stop(leader);
    assert_eq!(ran.status, Some(1), "{}", ran.stderr);
    assert!(
        ran.stderr.contains("the disk has not finished a write"),
        "{}",
        ran.stderr
    );
    std::fs::remove_file(group.switch(leader)).expect("removed");
    let again = group.serve(leader, &[]).spawn().expect("starts");
    group.replicas.push(again);
    group.wait_for_status("tolerates 1 more failure");
    for (key, value) in [("a", "1"), ("b", "2"), ("c", "3")] {
        assert_eq!(
            group.run(&["get", key]).expect_status(0).stdout,
            value.as_bytes()
        );
    }
}

/// Where the disks of a majority hang nobody can do without them: the leader keeps leading, and goes on when they do.
#[test]
fn a_leader_stays_while_the_disks_of_a_majority_hang() {
    let group = Group::start("hanging-majority");
    group.run(&["put", "a", "1"]).expect_status(0);
    let leader = group.leader();
    // The leader's last: nothing is committed without it meanwhile.
    let followers = (1..=3).filter(|id| *id != leader);
    followers.chain([leader]).for_each(|id| group.hang(id));
    let ran = group.run(&["put", "b", "2", "--timeout", "2s"]);
    assert_ne!(ran.status, Some(0), "nothing was durable");
    assert!(group.metric(leader, "trine_disk_handovers_total") == 0.0);
    for id in 1..=3 {
        std::fs::remove_file(group.switch(id)).expect("removed");
    }
    group.wait_for_status("tolerates 1 more failure");
    group.run(&["put", "c", "3"]).expect_status(0);
    assert_eq!(group.run(&["get", "a"]).expect_status(0).stdout, b"1");
}
