//! What callers are told whose key is bad, or does not reach far enough. The group goes on all the time.
//!
//! The other cases of bad keys have tests where they belong: key files in `user.rs`, files that change in
//! `key_changes.rs`, groups of which some members have a key in `keys.rs`, certificates in `redis/tls.rs`.

use std::os::unix::fs::PermissionsExt;

use trine_base::arguments::{ClientArguments, GroupArguments};
use trine_base::capture::CaptureArguments;
use trine_base::client::{CommandClient, open};
use trine_base::network::{EndpointSettings, KeyChoice, Udp};
use trine_client::Mode;
use trine_keys::{ClusterKey, Existing};
use trine_kvstore::{Command, Condition, ExecuteMode, List, Response};

use crate::common::{LIMIT, trine};
use crate::keys::{Keys, Replicas};

/// A group that requires keys, and two users of it: bob may write what begins with b/, and carol may read.
struct Sealed {
    keys: Keys,
    ours: String,
    replicas: Replicas,
}

impl Sealed {
    fn start(name: &str) -> Self {
        let keys = Keys::new(name);
        let ours = keys.text("ours");
        let mut replicas = Replicas::new(&keys.directory);
        // A stall of the machine is no reason for another term, which a test looks at.
        replicas.start_all(&["--key", &ours, "--election-timeout", "3s"]);
        replicas.works(Some(&ours), "v");
        let sealed = Self {
            keys,
            ours,
            replicas,
        };
        sealed.add("bob", &["--role", "write", "--prefix", "b/"]);
        sealed.add("carol", &["--role", "read"]);
        sealed
    }

    fn add(&self, name: &str, rights: &[&str]) {
        let out = self.keys.text(name);
        let add = [&["user", "add", name, "--out", &out], rights].concat();
        self.replicas
            .client(Some(&self.ours), &add)
            .expect_status(0);
    }

    /// A read with this key fails with all of these parts.
    fn refuses(&self, key: &str, status: i32, parts: &[&str]) {
        let get = ["get", "b/1", "--timeout", "3s"];
        let path = self.keys.text(key);
        self.replicas
            .client(Some(&path), &get)
            .expect_error(status, parts);
    }

    /// The library's client with the key of a user.
    fn library(&self, user: &str) -> CommandClient {
        let network = Udp {
            settings: EndpointSettings {
                key: KeyChoice::File(self.keys.path(user)),
                ..EndpointSettings::default()
            },
        };
        let peers = self.replicas.peers.clone();
        let arguments = ClientArguments {
            group: GroupArguments {
                peers,
                timeout: LIMIT,
            },
            capture: CaptureArguments::default(),
        };
        open(&network, &arguments, |_| {}).expect("a client")
    }
}

#[test]
fn who_has_a_bad_key_is_told_what_is_wrong_and_what_to_do() {
    let group = Sealed::start("bad-keys");
    let term = group.replicas.term(&group.ours);
    let keys = &group.keys;
    let ours = ClusterKey::read(&keys.path("ours")).expect("a key");
    let write = |key: &ClusterKey, name: &str| {
        key.write(&keys.path(name), Existing::Keep)
            .expect("written")
    };
    let wrong = ClusterKey::new(ours.group(), [8; 32], [9; 32]);
    write(&wrong, "wrong");
    let bob = "bob".parse().expect("a name");
    let of_wrong = wrong.user_key(bob, 1);
    of_wrong
        .write(&keys.path("wrong-bob"), Existing::Keep)
        .expect("written");
    for name in ["wrong", "wrong-bob", "others"] {
        group.refuses(
            name,
            2,
            &[
                "it does not know this key",
                "replaced, or belongs to another group",
                "trine key show",
                "nothing was done",
            ],
        );
    }

    // A key file and a user's key, of which the end is missing.
    for (whole, cut, says) in [
        ("ours", "half-group", "cut off"),
        ("bob", "half-bob", "copy the whole key"),
    ] {
        let text = std::fs::read_to_string(keys.path(whole)).expect("there");
        std::fs::write(keys.path(cut), &text[..text.len() - 20]).expect("written");
        let private = std::fs::Permissions::from_mode(0o600);
        std::fs::set_permissions(keys.path(cut), private).expect("ours");
        group.refuses(cut, 2, &[&keys.text(cut), says]);
    }
    let serve = ["serve", "--id", "1", "--peers", "127.0.0.1:1", "--key"];
    let half = keys.text("half-group");
    trine(&[&serve[..], &[&half]].concat(), "", b"").expect_error(2, &[&half, "cut off"]);
    // A key that others can read is refused by clients and replicas alike.
    for name in ["carol", "others"] {
        let open = std::fs::Permissions::from_mode(0o640);
        std::fs::set_permissions(keys.path(name), open).expect("ours");
        let chmod = format!("run `chmod 600 {}`", keys.text(name));
        let parts = ["can be read by others (mode 0640)", &chmod];
        group.refuses(name, 2, &parts);
        let path = keys.text(name);
        trine(&[&serve[..], &[&path]].concat(), "", b"").expect_error(2, &parts);
        let private = std::fs::Permissions::from_mode(0o600);
        std::fs::set_permissions(keys.path(name), private).expect("ours");
    }

    let bobs = |line: &[&str]| group.replicas.client(Some(&keys.text("bob")), line);
    let carols = |line: &[&str]| group.replicas.client(Some(&keys.text("carol")), line);
    carols(&["put", "k", "x"]).expect_error(
        1,
        &[
            "denied: user carol has role read, and role write is needed",
            "nothing was changed",
            "trine user list",
        ],
    );
    for admins in [
        &["leader", "transfer"][..],
        &["config", "set", "memory", "2GiB"],
        &["user", "list"],
    ] {
        bobs(admins).expect_error(1, &["user bob has role write, and role admin is needed"]);
    }

    let admin = |line: &[&str]| group.replicas.client(Some(&group.ours), line);
    admin(&["user", "remove", "carol"]).expect_status(0);
    let void = ["the key was removed or replaced", "nothing was done"];
    group.refuses("carol", 2, &void);
    admin(&["user", "rotate", "bob"]).expect_status(0);
    group.refuses("bob", 2, &void);
    assert_eq!(group.replicas.term(&group.ours), term);
    group.replicas.works(Some(&group.ours), "still there");
    group.replicas.are_whole(Some(&group.ours));
}

/// The native client sends lists of keys, and transactions. One key too many denies the whole.
#[test]
fn a_key_outside_the_prefix_denies_lists_and_transactions() {
    let group = Sealed::start("outside");
    let (ours, bob) = (&group.ours, group.keys.text("bob"));
    let outside =
        "denied: user bob may not touch key \"k\": its keys begin with \"b/\"; nothing was changed";
    let script = b"put b/1 x\nmget b/1 k\nmput b/1 y k y\nmset b/1 y k y\nexists b/1 k\nget b/1\n";
    let ran = trine(&["--key", &bob], &group.replicas.peers, script);
    let ran = ran.expect_error(1, &[]);
    for line in 2..=5 {
        let part = format!("line {line}: {outside}");
        assert!(ran.stderr.contains(&part), "{part}: {}", ran.stderr);
    }
    assert_eq!(ran.stdout, b"x\n");

    let mut session = group.library("bob");
    let mut denied = |mode, command: &Command<'_>| {
        let answer = session.execute(mode, command).expect("an answer");
        let response = answer.response().expect("a response");
        let reason = "user bob may not touch key \"k\": its keys begin with \"b/\"";
        assert_eq!(response, Response::Denied { reason }, "{command:?}");
    };
    let keys = [&b"b/1"[..], b"k"];
    let keys = List::from(&keys[..]);
    denied(Mode::Read, &Command::MultiGet { keys });
    let put = |key| Command::Put { key, value: b"z" };
    let operations = [put(b"b/1"), put(b"k")];
    let conditions = [Condition::Absent { key: b"k" }];
    let inside = [put(b"b/1")];
    for mode in [ExecuteMode::AllOrNothing, ExecuteMode::Independent] {
        let execute = |conditions, operations| Command::Execute {
            mode,
            conditions,
            operations,
        };
        let none = List::default();
        denied(Mode::Write, &execute(none, List::from(&operations[..])));
        // A condition reads.
        let conditions = List::from(&conditions[..]);
        denied(Mode::Write, &execute(conditions, List::from(&inside[..])));
    }
    // Nothing of it has happened.
    for (key, value) in [("b/1", "x"), ("k", "v")] {
        let got = group.replicas.client(Some(ours), &["get", key]);
        let got = got.expect_status(0).stdout;
        assert_eq!(String::from_utf8_lossy(&got).trim(), value);
    }
}
