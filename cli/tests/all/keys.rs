//! A group whose packets are sealed: who gets in, what others are told, and how a group without keys gets some.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};

use trine_base::ports::free_addresses;
use trine_keys::{ClusterKey, Existing};

use crate::common::{Ran, command, signal, trine, wait_for};
use crate::names::Serving;

/// A directory with key files, removed at the end.
pub(crate) struct Keys {
    pub(crate) directory: PathBuf,
}

impl Keys {
    pub(crate) fn new(name: &str) -> Self {
        let directory = std::env::temp_dir().join(format!("trine-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&directory);
        std::fs::create_dir_all(&directory).expect("a directory");
        let keys = Self { directory };
        let ours = ClusterKey::draw().expect("random bytes");
        let others = ClusterKey::draw().expect("random bytes");
        let write = |key: &ClusterKey, name| key.write(&keys.path(name), Existing::Keep);
        write(&ours, "ours").expect("written");
        write(&others, "others").expect("written");
        let alice = "alice".parse().expect("a name");
        let user = ours.user_key(alice, 1);
        user.write(&keys.path("alice"), Existing::Keep)
            .expect("written");
        keys
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }

    pub(crate) fn text(&self, name: &str) -> String {
        self.path(name).display().to_string()
    }
}

impl Drop for Keys {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

/// Three replicas that keep their logs on disk, each a process that can be ended and started with other options.
pub(crate) struct Replicas {
    pub(crate) peers: String,
    directory: PathBuf,
    running: Vec<Option<Child>>,
}

impl Replicas {
    pub(crate) fn new(directory: &Path) -> Self {
        let addresses = free_addresses(3).expect("free ports");
        let peers: Vec<String> = addresses.iter().map(ToString::to_string).collect();
        Self {
            peers: peers.join(","),
            directory: directory.to_owned(),
            running: vec![None, None, None],
        }
    }

    /// All three, of which the first one bootstraps a group.
    pub(crate) fn start_all(&mut self, options: &[&str]) {
        for index in 0..3 {
            let first: &[&str] = if index == 0 { &["--bootstrap"] } else { &[] };
            self.start(index, &[options, first].concat());
        }
    }

    pub(crate) fn start(&mut self, index: usize, options: &[&str]) {
        let id = (index + 1).to_string();
        let data = self
            .directory
            .join(format!("replica-{id}"))
            .display()
            .to_string();
        let mut args = vec!["serve", "--id", &id, "--peers", &self.peers];
        args.extend([
            "--log",
            "disk",
            "--data-dir",
            &data,
            "--log-segment",
            "4MiB",
        ]);
        args.extend(options);
        let child = command(&args, "")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        self.running[index] = Some(child.expect("the program starts"));
    }

    pub(crate) fn stop(&mut self, index: usize) {
        let child = self.running[index].take().expect("it runs");
        signal(child.id(), "TERM");
        finish_quiet(child);
    }

    pub(crate) fn client(&self, key: Option<&str>, args: &[&str]) -> Ran {
        let mut all = args.to_vec();
        all.extend(key.iter().flat_map(|path| ["--key", path]));
        trine(&all, &self.peers, b"")
    }

    /// What a command prints.
    fn text(&self, key: Option<&str>, args: &[&str]) -> String {
        let ran = self.client(key, args);
        String::from_utf8_lossy(&ran.stdout).into_owned()
    }

    /// A write and a read, as soon as the group can do them.
    pub(crate) fn works(&self, key: Option<&str>, value: &str) {
        let put = ["put", "k", value, "--timeout", "20s"];
        self.client(key, &put).expect_status(0);
        let got = self
            .client(key, &["get", "k", "--timeout", "20s"])
            .expect_status(0);
        assert_eq!(String::from_utf8_lossy(&got.stdout).trim(), value);
    }

    /// All three are voters in step: the next one may be stopped.
    pub(crate) fn are_whole(&self, key: Option<&str>) {
        wait_for("three voters in step", || {
            let status = self.client(key, &["status", "--json"]);
            let is_whole = || status.json()["voters_in_step"] == 3;
            (status.status == Some(0) && is_whole()).then_some(())
        });
    }

    /// Asks a replica to read its files again.
    pub(crate) fn hang_up(&self, index: usize) {
        let child = self.running[index].as_ref().expect("it runs");
        signal(child.id(), "HUP");
    }

    /// What each replica says about itself.
    pub(crate) fn statuses(&self, key: &str) -> Vec<serde_json::Value> {
        let all = self.client(Some(key), &["status", "--json"]).json();
        let replicas = all["replicas"].as_array().expect("replicas").iter();
        replicas.map(|replica| replica["status"].clone()).collect()
    }

    /// The group's term: a new one follows each loss of leadership.
    pub(crate) fn term(&self, key: &str) -> u64 {
        let all = self.client(Some(key), &["status", "--json"]).json();
        all["term"].as_u64().expect("a leader")
    }
}

fn finish_quiet(mut child: Child) {
    wait_for("the end of a replica", || child.try_wait().expect("wait"));
}

impl Drop for Replicas {
    fn drop(&mut self) {
        for child in self.running.iter_mut().flatten() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

#[test]
fn a_group_with_a_key_serves_only_those_who_hold_one() {
    let keys = Keys::new("sealed-group");
    let ours = keys.text("ours");
    let mut replicas = Replicas::new(&keys.directory);
    replicas.start_all(&["--key", &ours]);
    replicas.works(Some(&ours), "sealed");
    let bench = ["bench", "--for", "100ms", "--warmup", "0s", "--keys", "50"];
    let measured = replicas.client(Some(&ours), &[&bench[..], &["--json"]].concat());
    assert_eq!(measured.expect_status(0).json()["sealed"], true);
    let told = replicas.text(Some(&ours), &bench);
    assert!(told.contains("reads, sealed\n"), "{told}");
    let alice = replicas.client(Some(&keys.text("alice")), &["get", "k", "--timeout", "3s"]);
    alice.expect_error(1, &["user alice", "does not count any more"]);
    let quick = |key: Option<&str>| replicas.client(key, &["get", "k", "--timeout", "3s"]);
    quick(None).expect_error(2, &["takes only callers with a key", "--key PATH"]);
    // Nothing is told of the group either, and not to a user who is not in its table.
    let asked = |key: Option<&str>| replicas.client(key, &["status", "--timeout", "3s"]);
    asked(None).expect_error(3, &["takes only callers with a key", "--key PATH"]);
    let alice = keys.text("alice");
    asked(Some(&alice)).expect_error(3, &["no valid key of this group"]);
    for key in [None, Some(alice.as_str())] {
        let refused = replicas.client(key, &["status", "--json", "--timeout", "3s"]);
        let told = refused.expect_status(3).json();
        assert!(
            told["error"].is_object() && told["replicas"].is_null(),
            "{told}"
        );
    }
    quick(Some(&keys.text("others")))
        .expect_error(2, &["does not know this key", "trine key show"]);
    // Nobody else may read a key file.
    let open = keys.path("alice");
    std::fs::set_permissions(&open, std::fs::Permissions::from_mode(0o644)).expect("chmod");
    quick(Some(&keys.text("alice"))).expect_error(2, &["can be read by others", "chmod 600"]);
    std::fs::write(keys.path("half"), "trine-cluster-key = 1\ngroup = 12\n").expect("written");
    std::fs::set_permissions(keys.path("half"), std::fs::Permissions::from_mode(0o600))
        .expect("chmod");
    quick(Some(&keys.text("half"))).expect_error(2, &["half"]);
    replicas.works(Some(&ours), "still there");
}

#[test]
fn a_replica_without_a_key_cannot_require_one() {
    let args = [
        "serve",
        "--id",
        "1",
        "--peers",
        "127.0.0.1:1",
        "--keys",
        "require",
    ];
    trine(&args, "", b"").expect_error(
        2,
        &["--key-stage require needs the group's key", "trine key new"],
    );
}

/// A replica that takes only callers with a key may listen anywhere. One that takes others, too, may not.
#[test]
fn a_replica_that_requires_keys_may_listen_beyond_loopback() {
    let keys = Keys::new("beyond");
    let ours = keys.text("ours");
    let serve = [
        "serve",
        "--id",
        "1",
        "--peers",
        "192.0.2.1:7471",
        "--key",
        &ours,
    ];
    // The address is used, and this machine does not have it yet.
    let mut allowed = command(&serve, "");
    allowed.stdout(Stdio::piped()).stderr(Stdio::null());
    let waits = Serving::new(allowed.spawn().expect("starts"));
    waits.expect(&["not serving yet", "192.0.2.1 belongs to no interface"]);
    waits.end();
    for stage in ["accept", "none"] {
        let line = [&serve[..], &["--keys", stage]].concat();
        trine(&line, "", b"").expect_error(2, &["not a loopback address", "--insecure"]);
    }
}

/// A user may do what its role and its prefix say, and nothing any more once it is removed.
#[test]
fn users_have_their_rights_and_lose_them() {
    let keys = Keys::new("users");
    let ours = keys.text("ours");
    let mut replicas = Replicas::new(&keys.directory);
    replicas.start_all(&["--key", &ours]);
    replicas.works(Some(&ours), "v");
    let (bob, carol) = (keys.text("bob"), keys.text("carol"));
    let add = [
        "user", "add", "bob", "--role", "write", "--prefix", "b/", "--out", &bob,
    ];
    replicas.client(Some(&ours), &add).expect_status(0);
    let add = ["user", "add", "carol", "--role", "read", "--out", &carol];
    replicas.client(Some(&ours), &add).expect_status(0);
    let bobs = |args: &[&str]| replicas.client(Some(&bob), args);
    bobs(&["put", "b/1", "x"]).expect_status(0);
    bobs(&["get", "b/1"]).expect_status(0);
    bobs(&["get", "k"]).expect_error(1, &["user bob", "k", "b/"]);
    bobs(&["config", "set", "memory", "2GiB"]).expect_error(1, &["user bob", "admin"]);
    bobs(&["leader", "transfer"]).expect_error(1, &["user bob", "role write", "admin"]);
    let carols = |args: &[&str]| replicas.client(Some(&carol), args);
    carols(&["get", "k"]).expect_status(0);
    carols(&["put", "k", "x"]).expect_error(1, &["user carol", "role read", "write"]);
    // Her next session is refused: the key is made of the group's file, and counts no more.
    replicas
        .client(Some(&ours), &["user", "remove", "carol"])
        .expect_status(0);
    let refused = ["not know this key", "removed or replaced"];
    carols(&["get", "k", "--timeout", "3s"]).expect_error(2, &refused);
    // Nor does she get what needs no right: a session of the transport, and who the members are.
    carols(&["status", "--timeout", "1s"]).expect_status(3);
    // A key that was rotated away is refused, and the new one is not.
    let new = keys.text("new-bob");
    let rotate = ["user", "rotate", "bob", "--out", &new];
    replicas.client(Some(&ours), &rotate).expect_status(0);
    bobs(&["get", "b/1", "--timeout", "3s"]).expect_error(2, &refused);
    let bobs = |args: &[&str]| replicas.client(Some(&new), args);
    bobs(&["get", "b/1"]).expect_status(0);
}

/// Each replica is started again twice: first it accepts keys, then it requires them. The group answers all the time.
#[test]
fn a_group_without_keys_gets_them_one_replica_at_a_time() {
    let keys = Keys::new("keyed-later");
    let ours = keys.text("ours");
    let mut replicas = Replicas::new(&keys.directory);
    replicas.start_all(&[]);
    replicas.works(None, "before");
    for index in 0..3 {
        replicas.stop(index);
        replicas.start(index, &["--key", &ours, "--key-stage", "accept"]);
        replicas.are_whole(None);
        replicas.works(None, &format!("accepting {index}"));
    }
    replicas.works(Some(&ours), "with the key");
    for index in 0..3 {
        replicas.stop(index);
        replicas.start(index, &["--key", &ours]);
        replicas.are_whole(Some(&ours));
        replicas.works(Some(&ours), &format!("requiring {index}"));
    }
    let refused = replicas.client(None, &["get", "k", "--timeout", "3s"]);
    refused.expect_error(2, &["takes only callers with a key"]);
}

/// Two of three replicas have the key and accept callers without one. Then all have it, and a user comes.
#[test]
fn status_and_doctor_tell_who_is_let_in_and_who_has_come() {
    let keys = Keys::new("half-keyed");
    let ours = keys.text("ours");
    let mut replicas = Replicas::new(&keys.directory);
    let accept = ["--key", &ours, "--key-stage", "accept"];
    replicas.start(0, &[&accept[..], &["--bootstrap"]].concat());
    replicas.start(1, &accept);
    replicas.start(2, &[]);
    replicas.works(None, "half");
    replicas.are_whole(None);
    let third = replicas.peers.split(',').nth(2).expect("three").to_owned();
    let named = format!("none: replica 3 ({third}); accept: replica 1");
    for key in [None, Some(ours.as_str())] {
        for command in ["status", "doctor"] {
            let told = replicas.text(key, &[command]);
            assert!(told.contains(&named), "{command}: {told}");
        }
    }
    assert!(
        replicas
            .text(None, &["doctor"])
            .contains("--config SETTINGS    # start again: replica 3")
    );
    let all = replicas.client(None, &["status", "--json"]).json();
    let stages = [0, 1, 2].map(|index| all["replicas"][index]["status"]["keys"]["stage"].clone());
    assert_eq!(stages, ["accept", "accept", "none"]);
    replicas.stop(2);
    replicas.start(2, &accept);
    replicas.are_whole(None);
    let doctor = replicas.text(Some(&ours), &["doctor"]);
    for part in [
        "callers without a key are accepted",
        "--key-stage require",
        "its owner's alone",
    ] {
        assert!(doctor.contains(part), "{part}: {doctor}");
    }

    assert!(doctor.contains("3 of 3 replicas answered"), "{doctor}");
    // Where nobody was it found nothing in the way.
    let nobody = trine(&["doctor", "--peers", "127.0.0.1:1", "--json"], "", b"");
    let findings = nobody.expect_status(1).json();
    let of = |finding: &&serde_json::Value| finding["check"] == "replicas";
    let replicas_there = findings["findings"]
        .as_array()
        .and_then(|all| all.iter().find(of));
    assert_eq!(
        replicas_there.expect("a finding")["verdict"],
        "wrong",
        "{findings}"
    );

    let bob = keys.text("bob");
    let add = ["user", "add", "bob", "--role", "read", "--out", &bob];
    replicas.client(Some(&ours), &add).expect_status(0);
    let mut shell = command(&["shell", "--key", &bob], &replicas.peers)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .expect("the program starts");
    let mut lines = shell.stdin.take().expect("a pipe");
    std::io::Write::write_all(&mut lines, b"get k\n").expect("written");
    wait_for("bob among the callers", || {
        let statuses = replicas.statuses(&ours);
        let is_bob = |status: &&serde_json::Value| status["keys"]["users"][0]["name"] == "bob";
        let status = statuses.iter().find(is_bob)?;
        let sessions = &status["keys"]["sessions"];
        assert!(sessions["user"].as_u64() >= Some(1), "{sessions}");
        assert!(sessions["admin"].as_u64() >= Some(1), "{sessions}");
        Some(())
    });
    let told = replicas.text(Some(&ours), &["status"]);
    assert!(told.contains("bob 1"), "{told}");
    // Who may not list the users sees how many they are, and no names.
    let all = replicas.statuses(&bob);
    let shows = |status: &serde_json::Value| status["keys"]["users"].as_array().map(Vec::len);
    assert!(all.iter().all(|status| shows(status) == Some(0)), "{all:?}");
    let counts = |status: &serde_json::Value| status["keys"]["sessions"]["user"].as_u64();
    assert!(
        all.iter().any(|status| counts(status) >= Some(1)),
        "{all:?}"
    );
    drop(lines);
    finish_quiet(shell);

    let open = keys.path("bob");
    std::fs::set_permissions(&open, std::fs::Permissions::from_mode(0o644)).expect("chmod");
    let doctor = replicas.client(Some(&bob), &["doctor"]);
    assert_eq!(doctor.status, Some(1));
    let told = String::from_utf8_lossy(&doctor.stdout);
    assert!(told.contains(&format!("$ chmod 600 {bob}")), "{told}");
}
