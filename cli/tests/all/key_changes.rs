//! Keys that change while a group serves: clients that write and read all the time notice nothing.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use serde_json::Value;
use trine_base::arguments::{ClientArguments, GroupArguments};
use trine_base::capture::CaptureArguments;
use trine_base::client::open;
use trine_base::network::{EndpointSettings, KeyChoice, Network, Opened, Udp};
use trine_base::peers::resolve;
use trine_client::{Mode, probe_status};
use trine_keys::{ClusterKey, Existing};
use trine_kvstore::{Command, Response};
use trine_transport::Config;
use trine_transport::backend::MonotonicClock;
use trine_transport::keys::{KeyId, Keys as EndpointKeys, NoKeys, OwnKey, Psk, Stage};

use crate::common::{trine, wait_for};
use crate::keys::{Keys, Replicas};

/// For groups whose term must stay the same under load: a stall of the machine is no reason for an election.
const PATIENT: [&str; 2] = ["--election-timeout", "3s"];

/// Clients that write and read until they are told to stop. An operation that fails, or a value that is not there, fails
/// the test.
struct Load {
    stop: Arc<AtomicBool>,
    done: Arc<AtomicU64>,
    clients: Vec<JoinHandle<()>>,
}

impl Load {
    fn start(peers: &str, key: Option<&str>) -> Self {
        let (stop, done) = (Arc::default(), Arc::default());
        let clients = (0..3).map(|number| {
            let (stop, done) = (Arc::clone(&stop), Arc::clone(&done));
            let (peers, key) = (peers.to_owned(), key.map(Into::into));
            std::thread::spawn(move || work(number, peers, key, &stop, &done))
        });
        Self {
            clients: clients.collect(),
            stop,
            done,
        }
    }

    /// Waits until the clients have done some more.
    fn goes_on(&self) {
        let before = self.done.load(Ordering::SeqCst);
        wait_for("more operations", || {
            let failed = self.clients.iter().any(JoinHandle::is_finished);
            assert!(!failed, "a client has failed");
            (self.done.load(Ordering::SeqCst) >= before + 30).then_some(())
        });
    }

    fn stop(self) {
        self.stop.store(true, Ordering::SeqCst);
        for client in self.clients {
            client.join().expect("no operation failed");
        }
    }
}

fn work(
    number: u64,
    peers: String,
    key: Option<std::path::PathBuf>,
    stop: &AtomicBool,
    done: &AtomicU64,
) {
    let network = Udp {
        settings: EndpointSettings {
            key: key.map_or(KeyChoice::Without, KeyChoice::File),
            ..EndpointSettings::default()
        },
    };
    let timeout = Duration::from_secs(30);
    let arguments = ClientArguments {
        group: GroupArguments { peers, timeout },
        capture: CaptureArguments::default(),
    };
    let mut session = open(&network, &arguments, |_| {}).expect("a client");
    let name = format!("load/{number}");
    for round in 0_u64.. {
        if stop.load(Ordering::SeqCst) {
            return;
        }
        let value = round.to_string();
        let (key, value) = (name.as_bytes(), value.as_bytes());
        session
            .execute(Mode::Write, &Command::Put { key, value })
            .unwrap_or_else(|failure| panic!("write {round} failed: {failure}"));
        let answer = session
            .execute(Mode::Read, &Command::Get { key })
            .unwrap_or_else(|failure| panic!("read {round} failed: {failure}"));
        let read = answer.response().expect("a response");
        assert!(
            matches!(read, Response::Value { value: found, .. } if found == value),
            "{read:?}"
        );
        done.fetch_add(1, Ordering::SeqCst);
    }
}

/// The key file of each replica is a copy, as on different hosts.
fn copy(keys: &Keys, index: usize) -> String {
    let to = keys.path(&format!("copy-{index}"));
    let key = ClusterKey::read(&keys.path("ours")).expect("a key");
    key.write(&to, Existing::Replace).expect("written");
    to.display().to_string()
}

/// Whether replicas take a session of a member with the key in this file.
fn takes_member_of(path: &Path, peers: &str) -> bool {
    let (id, psk) = ClusterKey::read(path).expect("a key").member();
    let own = OwnKey {
        id: KeyId::new(&id.encode()).expect("an id"),
        psk: Psk::new(*psk.bytes()),
    };
    // A server takes no CONNECT whose nonce it has seen.
    static SEED: AtomicU64 = AtomicU64::new(5);
    let seed = SEED.fetch_add(1, Ordering::SeqCst);
    let addresses = resolve(peers).expect("addresses");
    let opened = Udp::default().call(&addresses).expect("a socket");
    let Opened {
        backend,
        endpoint,
        route_of,
        ..
    } = opened;
    let endpoint = Config {
        keys: Some(EndpointKeys {
            stage: Stage::Require,
            ring: Arc::new(NoKeys),
            own: Some(own),
            entropy: Arc::new(move || [seed as u8; 32]),
            key_log: None,
        }),
        ..endpoint
    };
    let limit = trine_transport::time::Duration::from_secs(2);
    let asked = probe_status(
        backend,
        MonotonicClock,
        endpoint,
        &route_of,
        &addresses,
        limit,
        seed,
    );
    let asked = asked.expect("asked");
    let taken = asked.iter().filter(|probed| probed.status.is_ok()).count();
    assert!(taken == 0 || taken == addresses.len(), "{taken} of them");
    taken > 0
}

fn roots(status: &Value) -> &Value {
    &status["member_roots"]
}

#[test]
fn the_member_root_changes_under_load() {
    let keys = Keys::new("rotation");
    let ours = keys.text("ours");
    let before = ClusterKey::read(&keys.path("ours")).expect("a key");
    before
        .write(&keys.path("stolen"), Existing::Keep)
        .expect("written");
    let mut replicas = Replicas::new(&keys.directory);
    for index in 0..3 {
        let first: &[&str] = if index == 0 { &["--bootstrap"] } else { &[] };
        let own = copy(&keys, index);
        replicas.start(index, &[&["--key", &own][..], first, &PATIENT].concat());
    }
    replicas.works(Some(&ours), "before");
    replicas.are_whole(Some(&ours));
    assert!(takes_member_of(&keys.path("stolen"), &replicas.peers));
    let term = replicas.term(&ours);
    let load = Load::start(&replicas.peers, Some(&ours));
    load.goes_on();
    let rotate = |arguments: &[&str]| {
        let line = [
            &["key", "rotate", &ours, "--peers", &replicas.peers],
            arguments,
        ]
        .concat();
        trine(&line, "", b"")
    };
    rotate(&["--switch"]).expect_error(2, &["out of order", "--begin"]);
    for (step, stands) in [
        ("--begin", "begun"),
        ("--switch", "switched"),
        ("--finish", "settled"),
    ] {
        let told = rotate(&[step]).expect_status(0);
        assert!(String::from_utf8_lossy(&told.stdout).contains("SIGHUP"));
        if stands != "settled" {
            // Nobody has the file yet.
            rotate(&[]).expect_error(1, &["replica 1", "replica 3", "SIGHUP", "--force"]);
        }
        for index in 0..3 {
            copy(&keys, index);
            replicas.hang_up(index);
            let takes = |status: &Value| {
                roots(status)["step"] == stands && roots(status)["not_taken"].is_null()
            };
            wait_for("the step", || {
                takes(&replicas.statuses(&ours)[index]).then_some(())
            });
            load.goes_on();
            if index == 0 {
                let shown = replicas.client(Some(&ours), &["status"]).expect_status(0);
                let shown = String::from_utf8_lossy(&shown.stdout).into_owned();
                assert!(
                    shown.contains("the member root is being changed"),
                    "{shown}"
                );
            }
        }
        let show = trine(&["key", "show", &ours, "--json"], "", b"").expect_status(0);
        assert_eq!(show.json()["rotation"], stands);
    }
    load.stop();
    assert_eq!(replicas.term(&ours), term, "leadership was lost");
    assert!(!takes_member_of(&keys.path("stolen"), &replicas.peers));
    assert!(takes_member_of(&keys.path("ours"), &replicas.peers));
    let show = replicas.client(Some(&ours), &["status"]).expect_status(0);
    assert!(!String::from_utf8_lossy(&show.stdout).contains("is being changed"));
}

/// What does not fit leaves the keys from before in force, and the replica says so.
#[test]
fn a_key_file_that_does_not_fit_is_not_taken() {
    let keys = Keys::new("misfit");
    let ours = keys.text("ours");
    let own = copy(&keys, 0);
    let mut replicas = Replicas::new(&keys.directory);
    for index in 0..3 {
        let first: &[&str] = if index == 0 { &["--bootstrap"] } else { &[] };
        replicas.start(index, &[&["--key", &own][..], first].concat());
    }
    replicas.works(Some(&ours), "before");
    let says = |part: &str| {
        replicas.hang_up(0);
        wait_for(part, || {
            let statuses = replicas.statuses(&ours);
            let why = roots(&statuses[0])["not_taken"].as_str();
            why.is_some_and(|why| why.contains(part)).then_some(())
        });
        let shown = replicas.client(Some(&ours), &["status"]).expect_status(0);
        assert!(String::from_utf8_lossy(&shown.stdout).contains(part));
    };
    let write = |key: &ClusterKey| {
        key.write(Path::new(&own), Existing::Replace)
            .expect("written")
    };
    write(&ClusterKey::read(&keys.path("others")).expect("a key"));
    says("it is the key of group");
    let present = ClusterKey::read(&keys.path("ours")).expect("a key");
    let ahead = present
        .clone()
        .accepting([7; 32])
        .and_then(ClusterKey::switched);
    write(&ahead.expect("two steps"));
    says("more than one step");
    std::fs::write(&own, "trine-cluster-key = 1\n").expect("written");
    says("cut off");
    replicas.works(Some(&ours), "still there");
    write(&present);
    replicas.hang_up(0);
    wait_for("the key", || {
        roots(&replicas.statuses(&ours)[0])["not_taken"]
            .is_null()
            .then_some(())
    });
}

/// Each replica is started again once, with the key. Then all require keys, without another restart, but none does so
/// while a member has no key.
#[test]
fn a_group_without_keys_gets_them_under_load() {
    let keys = Keys::new("conversion");
    let ours = keys.text("ours");
    let settings = keys.text("settings.toml");
    let stage = |stage: &str| {
        std::fs::write(&settings, format!("keys = \"{stage}\"\n")).expect("written");
    };
    stage("accept");
    let mut replicas = Replicas::new(&keys.directory);
    for index in 0..3 {
        let first: &[&str] = if index == 0 { &["--bootstrap"] } else { &[] };
        replicas.start(index, &[first, &PATIENT].concat());
    }
    replicas.works(None, "before");
    replicas.are_whole(None);
    let load = Load::start(&replicas.peers, None);
    load.goes_on();
    for index in 0..3 {
        if index == 2 {
            stage("require");
            replicas.hang_up(0);
            wait_for("a refusal", || {
                let status = replicas.client(None, &["status", "--json"]).json();
                let roots = &status["replicas"][0]["status"]["member_roots"];
                let why = roots["not_taken"].as_str().unwrap_or_default().to_owned();
                (why.contains("cannot be required yet") && why.contains("replica 3")).then_some(())
            });
            stage("accept");
            load.goes_on();
        }
        replicas.stop(index);
        let keyed = ["--key", &ours, "--config", &settings];
        replicas.start(index, &[&keyed[..], &PATIENT].concat());
        replicas.are_whole(None);
        load.goes_on();
    }
    load.stop();
    let callers = &replicas.statuses(&ours)[0]["unsealed_callers"];
    assert!(
        callers["sessions"].is_u64() && callers["from"].is_array(),
        "{callers}"
    );
    let term = replicas.term(&ours);
    let load = Load::start(&replicas.peers, Some(&ours));
    load.goes_on();
    stage("require");
    let peers: Vec<String> = replicas.peers.split(',').map(str::to_owned).collect();
    for (index, peer) in peers.iter().enumerate() {
        replicas.hang_up(index);
        wait_for("callers without a key are refused", || {
            let refused = trine(&["get", "k", "--timeout", "1s"], peer, b"");
            refused
                .stderr
                .contains("takes only callers with a key")
                .then_some(())
        });
        load.goes_on();
    }
    load.stop();
    assert_eq!(replicas.term(&ours), term, "leadership was lost");
}

/// What docs/security.md tells the owner of a stolen key file. The data stay, and no key of before counts.
#[test]
fn after_a_theft_of_the_key_file_a_group_on_disk_goes_on_with_another() {
    let keys = Keys::new("stolen-file");
    let (stolen, fresh) = (keys.text("ours"), keys.text("others"));
    let mut replicas = Replicas::new(&keys.directory);
    for index in 0..3 {
        let first: &[&str] = if index == 0 { &["--bootstrap"] } else { &[] };
        replicas.start(index, &[&["--key", &stolen][..], first].concat());
    }
    replicas.works(Some(&stolen), "kept");
    let bob = keys.text("bob");
    let add = ["user", "add", "bob", "--role", "write"];
    let add_to = |out| [&add[..], &["--out", out]].concat();
    replicas
        .client(Some(&stolen), &add_to(&bob))
        .expect_status(0);
    replicas
        .client(Some(&stolen), &["user", "remove", "bob"])
        .expect_status(0);
    for index in 0..3 {
        replicas.stop(index);
    }
    for index in 0..3 {
        replicas.start(index, &["--key", &fresh]);
    }
    replicas.are_whole(Some(&fresh));
    let get = ["get", "k", "--timeout", "3s"];
    let kept = replicas.client(Some(&fresh), &get).expect_status(0).stdout;
    assert_eq!(String::from_utf8_lossy(&kept).trim(), "kept");
    for void in [&stolen, &bob] {
        let refused = replicas.client(Some(void), &get);
        refused.expect_error(2, &["it does not know this key"]);
    }
    let again = keys.text("bob-again");
    replicas
        .client(Some(&fresh), &add_to(&again))
        .expect_status(0);
    replicas.client(Some(&again), &get).expect_status(0);
}
