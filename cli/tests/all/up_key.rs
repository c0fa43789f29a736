//! `trine up` seals its group without being asked to, and commands of the same user find the key.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use trine_base::ports::free_addresses;

use crate::common::up::Up;
use crate::common::{Ran, children_of, command, finish, is_alive, trine, wait_for};

/// A directory that is removed with the value.
struct Directory(PathBuf);

impl Directory {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("trine-up-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        Self(path)
    }

    fn files(&self) -> Vec<PathBuf> {
        let mut found = Vec::new();
        let mut left = vec![self.0.clone()];
        while let Some(path) = left.pop() {
            match fs::read_dir(&path) {
                Ok(entries) => left.extend(entries.map(|entry| entry.expect("an entry").path())),
                Err(_) => found.push(path),
            }
        }
        found
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).expect("there").mode() & 0o777
}

/// Runs a client command of a user whose state is in `state`.
fn client(state: &Path, peers: &str, args: &[&str]) -> Ran {
    let mut command = command(args, peers);
    command.env("XDG_STATE_HOME", state).stdin(Stdio::null());
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped());
    finish(child.spawn().expect("starts"))
}

const GET: [&str; 4] = ["get", "k", "--timeout", "5s"];

/// The key file that the welcome names.
fn key_in(welcome: &str) -> PathBuf {
    let after = welcome.split("sealed with the key in ").nth(1);
    let path = after.and_then(|rest| rest.split(", which").next());
    PathBuf::from(path.unwrap_or_else(|| panic!("no key in: {welcome}")))
}

#[test]
fn a_group_of_up_is_sealed_and_its_users_commands_find_the_key() {
    let (mine, others) = (Directory::new("mine"), Directory::new("others"));
    let addresses = free_addresses(3).expect("free ports");
    let up = Up::start_with(&addresses, &[], Some(&mine.0));
    let key = key_in(&up.welcome);
    assert_eq!(mode(&key), 0o600);
    for directory in key.ancestors().skip(1).take(2) {
        assert_eq!(mode(directory), 0o700, "{}", directory.display());
    }
    let run = |args: &[&str]| client(&mine.0, &up.peers, args);
    run(&["put", "k", "v"]).expect_status(0);
    assert_eq!(run(&GET).expect_status(0).stdout, b"v");
    run(&["status"]).expect_status(0);
    run(&["leader", "transfer"]).expect_status(0);
    run(&["user", "add", "bob", "--role", "read"]).expect_status(0);
    // One replica of the group is enough to know its key.
    client(&mine.0, &addresses[1].to_string(), &GET).expect_status(0);

    // Others do not find it, and are told what is missing.
    let refused = ["takes only callers with a key", "--key PATH", "TRINE_KEY"];
    client(&others.0, &up.peers, &GET).expect_error(2, &refused);
    let without = [&GET[..], &["--key", ""]].concat();
    run(&without).expect_error(2, &refused);
    let with = [&GET[..], &["--key", key.to_str().expect("text")]].concat();
    client(&others.0, &up.peers, &with).expect_status(0);

    // A second one at the same ports changes nothing.
    let base = addresses[0].port().to_string();
    client(&mine.0, "", &["up", "--base-port", &base]).expect_error(2, &["in use"]);
    run(&GET).expect_status(0);

    // Nor does a group elsewhere.
    let elsewhere = free_addresses(3).expect("free ports");
    let other = Up::start_with(&elsewhere, &[], Some(&mine.0));
    client(&mine.0, &other.peers, &["put", "k", "w"]).expect_status(0);
    assert_eq!(run(&GET).expect_status(0).stdout, b"v");
    other.stop();
    up.stop();
    assert_eq!(mine.files(), [] as [PathBuf; 0], "nothing stays behind");
}

#[test]
fn what_a_killed_up_left_is_in_nobodys_way() {
    let state = Directory::new("killed");
    let addresses = free_addresses(1).expect("a free port");
    let up = Up::start_with(&addresses, &["--replicas", "1"], Some(&state.0));
    let peers = up.peers.clone();
    let path = key_in(&up.welcome);
    let old = fs::read(&path).expect("read");
    let replicas = children_of(up.child.id());
    up.kill();
    wait_for("the end of the replica", || {
        (!replicas.iter().any(|pid| is_alive(*pid))).then_some(())
    });
    assert!(path.exists(), "it had no time to remove anything");

    // A replica without a key takes the port. Its clients do not come with the old key.
    let serve = ["serve", "--id", "1", "--peers", &peers, "--bootstrap"];
    let mut replica = command(&serve, "")
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("starts");
    client(&state.0, &peers, &["put", "k", "v"]).expect_status(0);
    replica.kill().expect("killed");
    replica.wait().expect("ended");

    // A new group is made, and with it a new key: users' names and generations begin again.
    let up = Up::start_with(&addresses, &["--replicas", "1"], Some(&state.0));
    assert_ne!(fs::read(key_in(&up.welcome)).expect("read"), old);
    client(&state.0, &peers, &["put", "k", "v"]).expect_status(0);
    up.stop();
}

#[test]
fn a_group_on_disk_keeps_its_key_and_its_files_to_itself() {
    let data = Directory::new("kept-key");
    let addresses = free_addresses(3).expect("free ports");
    let disk = [
        "--log",
        "disk",
        "--data-dir",
        data.0.to_str().expect("text"),
    ];
    let up = Up::start_at(&addresses, &disk);
    let path = data.0.join("group.key");
    assert_eq!(key_in(&up.welcome), path);
    let key = fs::read(&path).expect("read");
    trine(&["put", "k", "v"], &up.peers, b"").expect_status(0);
    for path in data.files() {
        assert_eq!(mode(&path), 0o600, "{}", path.display());
        assert_eq!(mode(path.parent().expect("a directory")), 0o700);
    }
    up.stop();
    let up = Up::start_at(&addresses, &disk);
    assert_eq!(fs::read(&path).expect("read"), key);
    assert_eq!(trine(&GET, &up.peers, b"").expect_status(0).stdout, b"v");
    up.kill();

    // A key that others can read is not used, and what mends it is said.
    let permissions = |mode| std::os::unix::fs::PermissionsExt::from_mode(mode);
    fs::set_permissions(&path, permissions(0o644)).expect("changed");
    let base = addresses[0].port().to_string();
    let args = [&["up", "--base-port", &base], &disk[..]].concat();
    let chmod = format!("chmod 600 {}", path.display());
    trine(&args, "", b"").expect_error(2, &["can be read by others", &chmod]);
}

#[test]
fn without_a_place_for_the_key_up_says_what_to_do() {
    let nowhere = Path::new("/proc/no-such-place");
    let addresses = free_addresses(1).expect("a free port");
    let base = addresses[0].port().to_string();
    let up = ["up", "--replicas", "1", "--base-port", &base];
    let mut refused = command(&up, "");
    refused.env_remove("XDG_RUNTIME_DIR");
    refused.env("XDG_STATE_HOME", nowhere).stdin(Stdio::null());
    let refused = refused.stdout(Stdio::piped()).stderr(Stdio::piped());
    finish(refused.spawn().expect("starts")).expect_error(
        2,
        &[
            "/proc/no-such-place",
            "XDG_STATE_HOME",
            "--key FILE",
            "--insecure",
        ],
    );
    // Without a key it needs no place, and says what that means. So it does for both ways to say it, and for the empty key.
    for more in [
        &["--insecure"][..],
        &["--key-stage", "none"],
        &["--key", ""],
    ] {
        let args = [&["--replicas", "1"], more].concat();
        let up = Up::start_with(&addresses, &args, Some(nowhere));
        assert!(up.welcome.contains("not sealed"), "{}", up.welcome);
        trine(&["put", "k", "v"], &up.peers, b"").expect_status(0);
        up.stop();
    }
}
