//! `trine key` and `trine user`: files, the group's table of users, and what is said of mistakes.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::common::{Cluster, Ran, command, finish, trine};

/// A directory that is removed with the value.
struct Directory(PathBuf);

impl Directory {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("trine-user-{}-{name}", std::process::id()));
        fs::create_dir_all(&path).expect("a directory");
        Self(path)
    }

    fn path(&self, name: &str) -> String {
        self.0.join(name).display().to_string()
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// A command that needs no group.
fn alone(arguments: &[&str]) -> Ran {
    trine(arguments, "", b"")
}

fn new_key(directory: &Directory, name: &str) -> String {
    let path = directory.path(name);
    alone(&["key", "new", "--out", &path]).expect_status(0);
    path
}

fn mode(path: &str) -> u32 {
    let metadata = fs::metadata(path).expect("there");
    metadata.permissions().mode() & 0o777
}

#[test]
fn a_key_file_is_made_shown_and_guarded() {
    let directory = Directory::new("key");
    let path = new_key(&directory, "cluster.key");
    assert_eq!(mode(&path), 0o600);
    alone(&["key", "new", "--out", &path]).expect_error(2, &["exists and was left alone"]);
    let before = fs::read(&path).expect("read");
    alone(&["key", "new", "--if-missing", "--out", &path]).expect_status(0);
    assert_eq!(fs::read(&path).expect("read"), before);
    let made = directory.path("missing.key");
    alone(&["key", "new", "--if-missing", "--out", &made]).expect_status(0);
    assert_eq!(mode(&made), 0o600);
    let shown = alone(&["key", "show", &path, "--json"])
        .expect_status(0)
        .json();
    assert_eq!(shown["kind"], "cluster");
    let text = fs::read_to_string(&path).expect("read");
    assert!(text.contains(shown["group"].as_str().expect("a group")));
    let for_people = alone(&["key", "show", &path]).expect_status(0);
    let for_people = String::from_utf8(for_people.stdout).expect("text");
    for line in text.lines().filter(|line| line.contains("root = ")) {
        let (_, secret) = line.split_once(" = ").expect("a value");
        assert!(!for_people.contains(secret) && !shown.to_string().contains(secret));
    }
    let printed = alone(&["key", "new"]).expect_status(0).stdout;
    assert!(
        String::from_utf8(printed)
            .expect("text")
            .contains("member-root = ")
    );
    fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).expect("changed");
    let chmod = format!("run `chmod 600 {path}`");
    alone(&["key", "show", &path]).expect_error(2, &["can be read by others (mode 0644)", &chmod]);
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).expect("changed");
    let until = text.find("user-root").expect("a line");
    fs::write(&path, &text[..until]).expect("cut off");
    alone(&["key", "show", &path]).expect_error(2, &["line ", "cut off"]);
    alone(&["key", "new", "--if-missing", "--out", &path]).expect_error(2, &["line ", "cut off"]);
    alone(&["key", "show", &directory.path("absent")])
        .expect_error(2, &["cannot read the key file"]);
}

#[test]
fn users_come_get_new_keys_and_go() {
    let directory = Directory::new("user");
    let file = new_key(&directory, "cluster.key");
    let cluster = Cluster::start(&[]);
    let none = cluster.run(&["user", "list"]).expect_status(0);
    assert!(
        String::from_utf8(none.stdout)
            .expect("text")
            .starts_with("no users")
    );

    let out = directory.path("alice.key");
    let add = ["user", "add", "alice", "--role", "write", "--prefix", "a/"];
    let with = |more: &[&str]| cluster.run(&[&add[..], &["--cluster-key", &file], more].concat());
    let added = with(&["--out", &out, "--json"]).expect_status(0).json();
    assert_eq!(
        (added["number"].as_u64(), added["generation"].as_u64()),
        (Some(1), Some(1))
    );
    assert_eq!(
        (added["prefix"].as_str(), added["key"].as_str()),
        (Some("a/"), None)
    );
    assert_eq!(mode(&out), 0o600);
    let shown = alone(&["key", "show", &out]).expect_status(0).stdout;
    assert!(
        String::from_utf8(shown)
            .expect("text")
            .contains("user alice generation 1")
    );

    with(&["--out", &out]).expect_error(2, &["exists and was left alone", "nothing was changed"]);
    with(&[]).expect_error(
        1,
        &[
            "user alice",
            "there is a user with this name already",
            "trine user rotate",
        ],
    );

    let rotate = ["user", "rotate", "alice", "--cluster-key", &file, "--json"];
    let rotated = cluster.run(&rotate).expect_status(0).json();
    assert_eq!(rotated["generation"].as_u64(), Some(2));
    let key = rotated["key"].as_str().expect("a key");
    assert!(key.starts_with("trine-key-1:alice:2:"), "{key}");
    assert!(!fs::read_to_string(&out).expect("read").contains(key));

    let listed = cluster
        .run(&["user", "list", "--json"])
        .expect_status(0)
        .json();
    assert_eq!(listed["users"][0]["name"], "alice");
    assert_eq!(listed["users"][0]["role"], "write");
    let table = cluster.run(&["user", "list"]).expect_status(0).stdout;
    assert!(String::from_utf8(table).expect("text").contains("keys a/*"));

    cluster.run(&["user", "remove", "alice"]).expect_status(0);
    let unknown = ["there is no user with this name", "trine user list"];
    cluster
        .run(&["user", "remove", "alice"])
        .expect_error(1, &unknown);
    cluster
        .run(&["user", "rotate", "alice", "--cluster-key", &file])
        .expect_error(1, &unknown);
    let again = with(&["--json"]).expect_status(0).json();
    assert_eq!(
        again["generation"].as_u64(),
        Some(3),
        "an old key must stay void"
    );
}

#[test]
fn mistakes_about_users_are_named() {
    let directory = Directory::new("mistakes");
    let (own, other) = (new_key(&directory, "own"), new_key(&directory, "other"));
    let cluster = Cluster::start(&[]);
    let add = |name, more: &[&str]| cluster.run(&[&["user", "add", name], more].concat());
    add("alice", &["--role", "read", "--cluster-key", &own]).expect_status(0);
    let foreign = add("bob", &["--role", "read", "--cluster-key", &other]);
    foreign.expect_error(
        1,
        &["not the cluster key file of the group", "trine key show"],
    );
    let foreign = cluster.run(&["user", "rotate", "alice", "--cluster-key", &other]);
    foreign.expect_error(1, &["not the cluster key file of the group"]);
    let long = "x".repeat(129);
    let prefix = |prefix| {
        add(
            "bob",
            &["--role", "read", "--prefix", prefix, "--cluster-key", &own],
        )
    };
    prefix(&long).expect_error(2, &["129 bytes", "at most 128"]);
    prefix("").expect_error(2, &["omit --prefix"]);
    let admin = ["--role", "admin", "--prefix", "a/", "--cluster-key", &own];
    add("bob", &admin).expect_error(2, &["an admin has no prefix", "nothing was changed"]);
    add("Bob", &["--role", "read", "--cluster-key", &own])
        .expect_error(2, &["character 1 is not one of"]);
    add("bob", &["--role", "member", "--cluster-key", &own]).expect_error(2, &["member"]);
    add("bob", &["--role", "read"]).expect_error(2, &["--cluster-key"]);
    assert!(Path::new(&own).exists());
    let listed = cluster
        .run(&["user", "list", "--json"])
        .expect_status(0)
        .json();
    assert_eq!(listed["users"].as_array().map(Vec::len), Some(1));
}

/// A change of `group.key` removed `group.key.new`, the key of another group, and put a file in the place of a link.
#[test]
fn a_change_of_a_key_file_touches_no_other_file() {
    let directory = Directory::new("rotate");
    let path = new_key(&directory, "group.key");
    let other = new_key(&directory, "group.key.new");
    let before = fs::read(&other).expect("read");
    let link = directory.path("link.key");
    std::os::unix::fs::symlink("group.key", &link).expect("linked");
    for (named, stands) in [(&path, "begun"), (&link, "switched")] {
        alone(&["key", "rotate", "--force", named]).expect_status(0);
        let shown = alone(&["key", "show", &path, "--json"]).expect_status(0);
        assert_eq!(shown.json()["rotation"], stands, "{named}");
    }
    assert_eq!(fs::read(&other).expect("still there"), before);
    assert!(fs::read_link(&link).is_ok(), "it is still a link");
    assert_eq!(mode(&path), 0o600);
    assert_eq!(fs::read_dir(&directory.0).expect("listed").count(), 3);
}

/// Of six at once one reported a root, and the file held another one that nobody had reported.
#[test]
fn of_changes_of_a_key_file_at_once_one_is_done() {
    let directory = Directory::new("rotate-at-once");
    let path = new_key(&directory, "group.key");
    let rotate = ["key", "rotate", "--begin", "--force", "--json", &path];
    let start = |_: u32| {
        command(&rotate, "")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("starts")
    };
    let running: Vec<_> = (0..6).map(start).collect();
    let ran: Vec<Ran> = running.into_iter().map(finish).collect();
    let done: Vec<&Ran> = ran.iter().filter(|ran| ran.status == Some(0)).collect();
    let refused = ran.iter().filter(|ran| ran.status == Some(2)).count();
    assert_eq!((done.len(), refused), (1, 5), "{ran:?}");
    let shown = alone(&["key", "show", &path, "--json"]).expect_status(0);
    let accepted = &shown.json()["accepted_member"];
    assert!(accepted.is_string(), "{accepted}");
    assert_eq!(&done[0].json()["accepted_member"], accepted);
}

/// A command that can write no file, as on a full disk.
fn without_room(command: &Command) -> Command {
    let mut shell = Command::new("sh");
    shell.args(["-c", "ulimit -f 0; exec \"$0\" \"$@\""]);
    shell.arg(command.get_program()).args(command.get_args());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => shell.env(name, value),
            None => shell.env_remove(name),
        };
    }
    shell
}

/// `trine user rotate --out` made the old key void before it noticed that it could not write the new one. And a key that a
/// full disk had swallowed was not said to be lost.
#[test]
fn a_key_that_cannot_be_written_is_noticed_in_time_or_said_to_be_lost() {
    let directory = Directory::new("lost");
    let file = new_key(&directory, "cluster.key");
    let cluster = Cluster::start(&[]);
    let line = |arguments: &[&str]| {
        let line = [arguments, &["--cluster-key", &file]].concat();
        command(&line, &cluster.group.peers())
    };
    let run = |arguments: &[&str]| -> Ran {
        let mut command = line(arguments);
        let done = command.stdin(Stdio::null()).output();
        done.expect("the program runs").into()
    };
    let generations = || {
        let listed = cluster.run(&["user", "list", "--json"]).expect_status(0);
        let users = listed.json()["users"].as_array().expect("a list").clone();
        let generation = |user: &serde_json::Value| {
            let name = user["name"].as_str().expect("a name").to_owned();
            (name, user["generation"].as_u64().expect("a number"))
        };
        users.iter().map(generation).collect::<Vec<_>>()
    };
    let of = |name: &str, generation: u64| (name.to_owned(), generation);
    run(&["user", "add", "carl", "--role", "read"]).expect_status(0);

    // What can be known before is known before.
    for out in ["/proc/key", &directory.path("absent/key")] {
        let parts = ["cannot write the key file", out, "nothing was changed"];
        run(&["user", "add", "bob", "--role", "read", "--out", out]).expect_error(2, &parts);
        run(&["user", "rotate", "carl", "--out", out]).expect_error(2, &parts);
    }
    assert_eq!(generations(), [of("carl", 1)]);
    let out = directory.path("out.key");
    run(&["user", "rotate", "bob", "--out", &out])
        .expect_error(1, &["there is no user with this name"]);
    assert!(!Path::new(&out).exists(), "the group has refused");

    // What can not be known before is said.
    let on_full_disk = |arguments: &[&str]| -> Ran {
        let full = fs::File::options().write(true).open("/dev/full");
        let mut command = line(arguments);
        command.stdin(Stdio::null()).stdout(full.expect("there"));
        command.output().expect("the program runs").into()
    };
    let lost = ["the new key is lost: it could not be printed", "No space"];
    let added = on_full_disk(&["user", "add", "dora", "--role", "read"]).expect_error(1, &lost);
    let rotated = on_full_disk(&["user", "rotate", "carl", "--json"]).expect_error(1, &lost);
    let mut unwritten = without_room(&line(&["user", "rotate", "carl", "--out", &out]));
    let unwritten = unwritten.stdin(Stdio::null()).output();
    let unwritten = Ran::from(unwritten.expect("the program runs"));
    let unwritten = unwritten.expect_error(1, &["the new key is lost: cannot write the key file"]);
    for (ran, user, fact) in [
        (added, "dora", "the group has user dora now"),
        (rotated, "carl", "the old key of user carl is void now"),
        (unwritten, "carl", "the old key of user carl is void now"),
    ] {
        let advice = format!("`trine user rotate {user}` creates another");
        ran.expect_error(1, &[fact, &advice]);
    }
    assert!(!Path::new(&out).exists(), "half a key is of no use");
    // The group counts the keys of all users.
    assert_eq!(generations(), [of("carl", 4), of("dora", 2)]);
    run(&["user", "rotate", "carl", "--out", &out]).expect_status(0);
    let shown = alone(&["key", "show", &out, "--json"]).expect_status(0);
    assert_eq!(shown.json()["generation"], 5);
}
