//! Redis clients as users of a group that requires keys: their rights, and what those without them are told.

use std::collections::BTreeMap;
use std::fs::Permissions;
use std::io::Read;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::sync::{Arc, Mutex};

use trine_base::ports::free_addresses;
use trine_keys::{ClusterKey, Existing};
use trine_local::{Group, GroupConfig};

use super::tls::Certificates;
use super::wire::Wire;
use crate::common::terminal::AtTerminal;
use crate::common::{command, program, signal, trine, wait_for};

const WRONGPASS: &str = "-WRONGPASS invalid username-password pair or user is disabled.";

/// Three replicas that require keys, and let Redis clients do nothing before AUTH.
pub(super) struct Guarded {
    group: Group,
    addresses: Arc<Mutex<BTreeMap<usize, SocketAddr>>>,
    files: Certificates,
}

impl Guarded {
    pub(super) fn start(name: &str) -> Self {
        Self::start_with(name, |_| Vec::new())
    }

    /// The same, with more options, which may name files.
    fn start_with(name: &str, more: impl Fn(&Certificates) -> Vec<String>) -> Self {
        let files = Certificates::new(name);
        let more = more(&files);
        let key = ClusterKey::draw().expect("random bytes");
        let path = files.text("group.key");
        key.write(path.as_ref(), Existing::Keep).expect("written");
        let addresses: Arc<Mutex<BTreeMap<usize, SocketAddr>>> = Arc::default();
        let told = Arc::clone(&addresses);
        let sink = move |node_id: usize, _, line: &str| {
            if let Some(address) = line.strip_prefix("serves Redis clients at ") {
                let address = address.parse().expect("an address");
                told.lock().expect("unpoisoned").insert(node_id, address);
            }
        };
        let options = ["--key", &path, "--resp", "0", "--resp-require-auth"];
        let group = Group::start(GroupConfig {
            program: program(),
            addresses: free_addresses(3).expect("free ports"),
            serve_args: options
                .iter()
                .chain(&["--resp-timeout", "30s"])
                .map(Into::into)
                .chain(more.iter().map(Into::into))
                .collect(),
            sink: Some(Arc::new(sink)),
        });
        Self {
            group: group.expect("processes"),
            addresses,
            files,
        }
    }

    pub(super) fn connect(&self, node_id: usize) -> Wire {
        Wire::connect(wait_for("the line that names the port", || {
            let addresses = self.addresses.lock().expect("unpoisoned");
            addresses.get(&node_id).copied()
        }))
    }

    /// `trine user ...`; returns the key that it prints, if it does.
    pub(super) fn user(&self, words: &[&str]) -> String {
        let path = self.files.text("group.key");
        let args = [
            &["user"],
            words,
            &["--key", &path, "--json", "--timeout", "30s"],
        ]
        .concat();
        let ran = trine(&args, &self.group.peers(), b"").expect_status(0);
        let key = ran.json()["key"].as_str().map(str::to_owned);
        key.unwrap_or_default()
    }
}

/// From exact counts a user with a prefix could tell what others write.
#[test]
fn a_user_with_a_prefix_is_told_about_how_much_others_have() {
    let group = Guarded::start("counts");
    let alice = group.user(&["add", "alice", "--role", "write", "--prefix", "a/"]);
    let bob = group.user(&["add", "bob", "--role", "write"]);
    let key_file = group.files.text("alice.key");
    std::fs::write(&key_file, &alice).expect("written");
    std::fs::set_permissions(&key_file, Permissions::from_mode(0o600)).expect("permitted");
    let [mut by_alice, mut by_bob] = [("alice", alice), ("bob", bob)].map(|(name, key)| {
        let mut wire = group.connect(1);
        assert_eq!(wire.ask(&format!("AUTH {name} {key}")), "+OK");
        wire
    });
    for key in 0..3 {
        assert_eq!(by_bob.ask(&format!("SET b/{key} some-value")), "+OK");
    }
    wait_for("the counts of three keys", || {
        let all = by_bob.ask("INFO");
        (all.contains("keys=3,expires=0") && all.contains("connected_clients:2")).then_some(())
    });
    let about = by_alice.ask("INFO");
    assert!(about.contains("keys=1024,expires=1024"), "{about}");
    for exact in [
        "keys=3",
        "connected_clients",
        "total_commands_processed",
        "keyspace_hits",
    ] {
        assert!(!about.contains(exact), "{exact}: {about}");
    }
    for wire in [&mut by_alice, &mut by_bob] {
        assert!(wire.ask("INFO memory").contains("maxmemory:"));
    }
    let statuses = |key: &str| {
        let words = ["status", "--json", "--key", &group.files.text(key)];
        let report = trine(&words, &group.group.peers(), b"")
            .expect_status(0)
            .json();
        let replicas = report["replicas"].as_array().expect("a list").clone();
        replicas.into_iter().map(|one| one["status"].clone())
    };
    for whole in statuses("group.key") {
        assert_eq!(whole["store"]["keys"], 3, "{whole}");
        assert_ne!(whole["store"]["hash"], serde_json::json!([0, 0]), "{whole}");
    }
    for part in statuses("alice.key") {
        let store = &part["store"];
        assert_eq!(
            (&store["keys"], &store["logical_bytes"]),
            (&1024.into(), &1024.into())
        );
        assert_eq!(store["hash"], serde_json::json!([0, 0]));
        assert_eq!(part["counters"]["commands_applied"], 0, "{part}");
        assert_eq!(part["members"].as_array().map(Vec::len), Some(3));
    }
}

#[test]
fn users_have_their_rights_and_lose_them_at_once() {
    let group = Guarded::start("users");
    let alice = group.user(&["add", "alice", "--role", "write", "--prefix", "a/"]);
    let bob = group.user(&["add", "bob", "--role", "read"]);
    let mut wire = group.connect(1);
    assert_eq!(wire.ask("GET a/1"), "-NOAUTH Authentication required.");
    assert_eq!(wire.ask(&format!("AUTH bob {alice}")), WRONGPASS);
    assert_eq!(wire.ask("AUTH alice guessed"), WRONGPASS);
    let others = ClusterKey::draw().expect("random bytes");
    let theirs = others
        .user_key("alice".parse().expect("a name"), 1)
        .to_text();
    assert_eq!(
        wire.ask(&format!("AUTH alice {}", theirs.as_str())),
        WRONGPASS
    );
    assert_eq!(wire.ask("GET a/1"), "-NOAUTH Authentication required.");

    assert_eq!(wire.ask(&format!("AUTH alice {alice}")), "+OK");
    assert!(wire.ask("ACL WHOAMI").contains("alice"));
    assert_eq!(wire.ask("MSET a/1 x a/2 y"), "+OK");
    let outside = "-NOPERM user alice may not touch key \"b/1\": its keys begin with \"a/\"";
    for denied in ["GET b/1", "SET b/1 x", "MGET a/1 b/1", "MSET a/1 z b/1 z"] {
        assert_eq!(wire.ask(denied), outside, "{denied}");
    }
    for request in ["MULTI", "SET a/1 z", "SET b/1 z"] {
        wire.ask(request);
    }
    assert_eq!(wire.ask("EXEC"), outside);
    assert_eq!(wire.ask("GET a/1"), "\"x\"");
    assert!(
        wire.ask("DBSIZE")
            .starts_with("-NOPERM user alice has no right to all keys at once")
    );
    let all_keys = "-NOPERM user alice has no right to all keys at once";
    for denied in ["FLUSHALL", "FLUSHDB"] {
        let said = wire.ask(denied);
        assert!(said.starts_with(all_keys), "{denied}: {said}");
    }
    // Another user's keys are not there for this one.
    for asked in ["KEYS *", "KEYS a/*"] {
        let said = wire.ask(asked);
        assert!(said.contains("a/1") && said.contains("a/2"), "{said}");
    }
    assert_eq!(wire.ask("KEYS b/*"), "*[]");
    assert!(wire.ask("SCAN 0 COUNT 100").contains("a/1"));
    assert!(wire.ask("RANDOMKEY").starts_with("\"a/"));
    assert!(
        wire.ask("ACL LIST")
            .starts_with("-NOPERM user alice has role write")
    );

    // The same at another replica, in the other protocol.
    let mut reader = group.connect(2);
    assert!(
        reader
            .ask(&format!("HELLO 3 AUTH bob {bob}"))
            .starts_with('%')
    );
    assert_eq!(reader.ask("GET a/2"), "\"y\"");
    assert_eq!(
        reader.ask("SET a/2 z"),
        "-NOPERM user bob has role read, and role write is needed"
    );

    let again = group.user(&["rotate", "alice"]);
    assert_eq!(
        wire.ask("SET a/1 z"),
        "-NOPERM the key of user alice, generation 1, does not count any more"
    );
    assert_eq!(wire.ask(&format!("AUTH alice {alice}")), WRONGPASS);
    assert_eq!(wire.ask(&format!("AUTH alice {again}")), "+OK");
    assert_eq!(wire.ask("SET a/1 z"), "+OK");
    group.user(&["remove", "alice"]);
    assert_eq!(
        wire.ask("SET a/1 w"),
        "-NOPERM user number 1 does not exist any more"
    );
    assert_eq!(wire.ask(&format!("AUTH alice {again}")), WRONGPASS);
    assert_eq!(reader.ask("GET a/1"), "\"z\"");
}

#[test]
fn users_with_a_password_come_in_by_it() {
    let password = "correct-horse-battery";
    let line_of = |name: &str| {
        let line = ["user", "password", name, "--generation", "any"];
        let ran = trine(&line, "", password.as_bytes());
        String::from_utf8(ran.expect_status(0).stdout).expect("text")
    };
    let lines = ["alice", "ghost"].map(line_of).concat();
    let group = Guarded::start_with("passwords", |files| {
        let path = files.text("passwords");
        std::fs::write(&path, &lines).expect("written");
        let private = Permissions::from_mode(0o600);
        std::fs::set_permissions(&path, private).expect("ours");
        vec!["--resp-users".to_owned(), path]
    });
    let key = group.user(&["add", "alice", "--role", "write", "--prefix", "a/"]);
    group.user(&["add", "bob", "--role", "read"]);

    let mut wire = group.connect(1);
    for wrong in [
        "AUTH alice wrong-horse-battery".to_owned(),
        // Neither a user without a password nor a password without a user.
        "AUTH bob correct-horse".to_owned(),
        "AUTH nobody correct-horse".to_owned(),
    ] {
        assert_eq!(wire.ask(&wrong), WRONGPASS, "{wrong}");
    }
    let auth = |name: &str| format!("AUTH {name} {password}");
    assert_eq!(wire.ask(&auth("bob")), WRONGPASS);
    assert_eq!(wire.ask(&auth("ghost")), WRONGPASS);
    assert_eq!(wire.ask("GET a/1"), "-NOAUTH Authentication required.");
    assert_eq!(wire.ask(&auth("alice")), "+OK");
    assert!(wire.ask("ACL WHOAMI").contains("alice"));
    assert_eq!(wire.ask("SET a/1 x"), "+OK");
    assert!(wire.ask("SET b/1 x").starts_with("-NOPERM user alice"));

    // SIGHUP makes each replica read the file again. Who has come by a password that is not in it any more has to go.
    let key_file = group.files.text("group.key");
    let path = group.files.text("passwords");
    let read_again = |lines: &str| {
        std::fs::write(&path, lines).expect("written");
        for pid in group.group.pids() {
            signal(pid, "HUP");
        }
    };
    let line_for = |more: &[&str]| {
        let line = [&["user", "password", "alice", "--key", &key_file], more].concat();
        let ran = trine(&line, &group.group.peers(), password.as_bytes());
        String::from_utf8(ran.expect_status(0).stdout).expect("text")
    };
    let comes = |node_id| {
        let mut wire = group.connect(node_id);
        (wire.ask(&auth("alice")) == "+OK").then_some(wire)
    };
    let come = || [1, 2, 3].map(|node_id| wait_for("the password", || comes(node_id)));
    let has_ended = |wire: &Wire| {
        let read = wire.stream().read(&mut [0]);
        assert_eq!(read.expect("an end"), 0);
    };
    let tied = line_for(&[]);
    assert!(tied.starts_with("alice:1:$argon2id$"), "{tied}");
    // Both files have this password. A replica that had not read the new one yet let a client in by the old one, and ended its
    // connection later, in the middle of this test.
    let by_the_old_file = come();
    read_again(&tied);
    has_ended(&wire);
    by_the_old_file.iter().for_each(has_ended);
    let mut wires = come();
    // The key counts as before. Both are void once there is another key.
    let mut other = group.connect(2);
    assert_eq!(other.ask(&format!("AUTH alice {key}")), "+OK");
    assert_eq!(other.ask("GET a/1"), "\"x\"");
    group.user(&["rotate", "alice"]);
    for came in wires.iter_mut().chain([&mut other]) {
        let void = "-NOPERM the key of user alice, generation 1";
        assert!(came.ask("GET a/1").starts_with(void));
        assert_eq!(came.ask(&auth("alice")), WRONGPASS);
    }
    // Bob had the second generation of keys in this group.
    let tied = line_for(&[]);
    assert!(tied.starts_with("alice:3:$argon2id$"), "{tied}");
    read_again(&tied);
    let mut wires = come();
    // A file with a mistake changes nothing.
    read_again("alice:nothing\n");
    for wire in &mut wires {
        assert_eq!(wire.ask("GET a/1"), "\"x\"");
    }
    // A password that is tied to no key outlives a change of it.
    read_again(&line_for(&["--generation", "any"]));
    wires.iter().for_each(has_ended);
    group.user(&["rotate", "alice"]);
    let hello = format!("HELLO 3 AUTH alice {password}");
    assert!(other.ask(&hello).starts_with('%'));
    assert_eq!(other.ask("GET a/1"), "\"x\"");
    let [mut wire, ..] = come();

    // Wrong passwords end a connection, as wrong keys do.
    let mut guesser = group.connect(3);
    for _ in 0..16 {
        assert_eq!(guesser.ask("AUTH alice guessed-password"), WRONGPASS);
    }
    assert_eq!(guesser.try_reply(), None, "the connection is over");
    group.user(&["remove", "alice"]);
    assert_eq!(wire.ask(&auth("alice")), WRONGPASS);
    let line = ["user", "password", "alice", "--key", &key_file];
    let peers = group.group.peers();
    trine(&line, &peers, password.as_bytes())
        .expect_error(1, &["no user alice", "--generation any"]);
}

#[test]
fn mistakes_with_passwords_are_named() {
    let files = Certificates::new("password-mistakes");
    let made = |name: &str, input: &str| {
        let line = ["user", "password", name, "--generation", "any"];
        trine(&line, "", input.as_bytes())
    };
    made("alice", "too short\n").expect_error(2, &["9 characters", "at least 12"]);
    made("alice", &"x".repeat(2000)).expect_error(2, &["at most 1024 bytes"]);
    made("alice", "two lines of\na password\n").expect_error(2, &["more than one line"]);
    made("default", "correct horse battery").expect_error(2, &["--resp-password-file"]);
    made("Alice", "correct horse battery").expect_error(2, &["character 1"]);
    let line = ["user", "password", "alice", "--generation", "0"];
    trine(&line, "", b"correct horse battery").expect_error(2, &["counts from 1, nor any"]);
    let first = made("alice", "correct horse battery\n").expect_status(0);
    let second = made("alice", "correct horse battery").expect_status(0);
    assert_ne!(first.stdout, second.stdout, "each has a salt of its own");

    let path = files.text("passwords");
    std::fs::write(&path, &first.stdout).expect("written");
    let key = files.text("group.key");
    let drawn = ClusterKey::draw().expect("random bytes");
    drawn.write(key.as_ref(), Existing::Keep).expect("written");
    let serve = |more: &[&str]| {
        let peers = free_addresses(1).expect("a free port")[0].to_string();
        let line = ["serve", "--id", "1", "--peers", &peers, "--bootstrap"];
        trine(&[&line, more].concat(), "", b"")
    };
    let mode = |mode| {
        let permissions = Permissions::from_mode(mode);
        std::fs::set_permissions(&path, permissions).expect("ours");
    };
    let resp = ["--resp", "0", "--resp-users", &path, "--key", &key];
    mode(0o640);
    serve(&resp).expect_error(2, &["can be read by others (mode 0640)", "chmod 600"]);
    let default = ["--resp", "0", "--resp-password-file", &path];
    serve(&default).expect_error(2, &["can be read by others (mode 0640)", "chmod 600"]);
    mode(0o600);
    serve(&resp[..4]).expect_error(2, &["--resp-users", "--key FILE"]);
    serve(&resp[2..]).expect_error(2, &["--resp-users", "add --resp PORT"]);
    std::fs::write(&path, "alice:secret\n").expect("written");
    serve(&resp).expect_error(2, &["line 1", "trine user password NAME"]);
    serve(&["--resp", "0", "--resp-users", "/no/such", "--key", &key])
        .expect_error(2, &["--resp-users", "/no/such"]);
}

/// A password that is typed is not shown, and typed twice.
#[test]
fn a_typed_password_stays_hidden() {
    let password = "correct horse battery";
    let line = ["user", "password", "alice", "--generation", "any"];
    let start = || AtTerminal::start(command(&line, ""));
    let mut good = start();
    good.expect("not shown: ");
    good.press(&format!("{password}\n"));
    // A password that the terminal showed would stand before the next prompt.
    good.expect_next("\r\nthe same again: ");
    good.press(&format!("{password}\n"));
    good.expect_next("\r\nalice:$argon2id$");
    let mut bad = start();
    bad.expect("not shown: ");
    bad.press(&format!("{password}\n"));
    bad.expect("again: ");
    bad.press("correct horse battered\n");
    bad.expect("not the same");
}

/// What a user is told lies below its prefix, and ends with the user.
#[test]
fn users_are_told_of_their_keys_alone_and_not_beyond_their_end() {
    let group = Guarded::start_with("told", |_| {
        vec!["--resp-notify-keyspace-events".to_owned(), "KEA".to_owned()]
    });
    let alice = group.user(&["add", "alice", "--role", "write", "--prefix", "a/"]);
    let boss = group.user(&["add", "boss", "--role", "admin"]);
    let connect = |node_id, name: &str, key: &str| {
        let mut wire = group.connect(node_id);
        let hello = wire.ask(&format!("HELLO 3 AUTH {name} {key}"));
        assert!(hello.starts_with("%["), "{hello}");
        wire
    };
    let mut told = connect(2, "alice", &alice);
    assert_eq!(told.ask("PSUBSCRIBE *"), ">[\"psubscribe\" \"*\" :1]");
    let mut tracker = connect(2, "alice", &alice);
    assert_eq!(tracker.ask("CLIENT TRACKING ON BCAST"), "+OK");
    let mut writer = connect(1, "boss", &boss);
    for key in ["b/1", "a/1", "c"] {
        assert_eq!(writer.ask(&format!("SET {key} v")), "+OK");
    }
    assert_eq!(tracker.reply(), ">[\"invalidate\" *[\"a/1\"]]");
    for channel in ["__keyspace@0__:a/1\" \"set", "__keyevent@0__:set\" \"a/1"] {
        let message = format!(">[\"pmessage\" \"*\" \"{channel}\"]");
        assert_eq!(told.reply(), message);
    }
    // A user cannot let another one be told, or see who subscribes to what.
    let id = writer.ask("CLIENT ID");
    let redirect = format!("CLIENT TRACKING ON REDIRECT {}", &id[1..]);
    let mut other = connect(1, "alice", &alice);
    assert_eq!(
        other.ask(&redirect),
        "-ERR The client ID you want redirect to does not exist"
    );
    for request in ["PUBSUB CHANNELS", "CONFIG SET notify-keyspace-events KEA"] {
        assert!(other.ask(request).starts_with("-NOPERM"), "{request}");
    }
    group.user(&["remove", "alice"]);
    assert_eq!(told.try_reply(), None, "it is disconnected");
    assert_eq!(tracker.try_reply(), None, "it is disconnected");
}
