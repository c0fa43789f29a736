//! `trine key` and `trine user`: files, the group's table of users, and what is said of mistakes.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use crate::common::{Cluster, Ran, trine};

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
    prefix("").expect_error(2, &["leave --prefix out"]);
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
