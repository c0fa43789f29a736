//! Redis clients as users of a group that requires keys: their rights, and what those without them are told.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use trine_base::ports::free_addresses;
use trine_keys::{ClusterKey, Existing};
use trine_local::{Group, GroupConfig};

use super::tls::Certificates;
use super::wire::Wire;
use crate::common::{program, trine, wait_for};

const WRONGPASS: &str = "-WRONGPASS invalid username-password pair or user is disabled.";

/// Three replicas that require keys, and let Redis clients do nothing before AUTH.
struct Guarded {
    group: Group,
    addresses: Arc<Mutex<BTreeMap<usize, SocketAddr>>>,
    files: Certificates,
}

impl Guarded {
    fn start(name: &str) -> Self {
        let files = Certificates::new(name);
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
                .collect(),
            sink: Some(Arc::new(sink)),
        });
        Self {
            group: group.expect("processes"),
            addresses,
            files,
        }
    }

    fn connect(&self, node_id: usize) -> Wire {
        Wire::connect(wait_for("the line that names the port", || {
            let addresses = self.addresses.lock().expect("unpoisoned");
            addresses.get(&node_id).copied()
        }))
    }

    /// `trine user ...`; returns the key that it prints, if it does.
    fn user(&self, words: &[&str]) -> String {
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
            .starts_with("-NOPERM user alice may not ask about all keys")
    );
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
