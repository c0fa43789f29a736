//! Files that released programs wrote (`compat/`, docs/versions.md), opened as users open them: replicas start on the
//! data directories, backups are restored, keys let their users in, settings are checked. Every key has the value and the
//! version that the released program told. Flipped bits of directories and backups are tested in `trine-replica`
//! (`disk/golden_tests.rs`, `backup/golden_tests.rs`), those of key files here.

mod captures;

use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Child, Stdio};

use serde_json::Value;
use trine_base::ports::free_addresses;
use trine_corpus::goldens::{Golden, flip_each_bit, goldens};
use trine_keys::{ClusterKey, UserKey};

use crate::common::{Cluster, TempFile, command, trine};

/// A line of an export by its key: the value, the version, and whether it expires.
type Content = BTreeMap<String, (String, u64, bool)>;

fn content(lines: &[u8]) -> Content {
    let text = std::str::from_utf8(lines).expect("text");
    let item = |line: &str| {
        let line: Value = serde_json::from_str(line).expect("JSON");
        let text = |name: &str| match &line[name] {
            Value::Null => line[format!("{name}_base64")].to_string(),
            text => text.to_string(),
        };
        let version = line["version"].as_u64().expect("a version");
        let expires = line.get("expires_at").is_some();
        (text("key"), (text("value"), version, expires))
    };
    text.lines().map(item).collect()
}

/// Whether a document has what one of an earlier release had: fields may have been added, and nothing else.
fn has_all_of(found: &Value, earlier: &Value) -> bool {
    match (found, earlier) {
        (Value::Object(found), Value::Object(earlier)) => earlier
            .iter()
            .all(|(name, earlier)| found.get(name).is_some_and(|it| has_all_of(it, earlier))),
        (Value::Array(found), Value::Array(earlier)) => {
            let mut pairs = found.iter().zip(earlier);
            found.len() == earlier.len() && pairs.all(|(found, earlier)| has_all_of(found, earlier))
        }
        _ => found == earlier,
    }
}

/// A file of a golden for its owner alone, as key files and settings with passwords have to be.
fn private(golden: &Golden, name: &str) -> TempFile {
    let file = TempFile::new(&name.replace('/', "-"));
    std::fs::write(&file.0, golden.bytes(name)).expect("written");
    let mode = std::fs::Permissions::from_mode(0o600);
    std::fs::set_permissions(&file.0, mode).expect("changed");
    file
}

/// The files of a data directory in `path`.
fn unpack(golden: &Golden, name: &str, path: &Path) {
    std::fs::create_dir_all(path).expect("made");
    for (file, bytes) in golden.directory(name) {
        std::fs::write(path.join(file), bytes).expect("written");
    }
}

/// One replica that serves alone.
struct Alone {
    replica: Child,
    address: String,
    key: Option<TempFile>,
}

impl Alone {
    fn start(address: String, id: &str, directory: &Path, key: Option<TempFile>) -> Self {
        let directory = directory.to_str().expect("text");
        let mut serve = vec!["serve", "--id", id, "--listen", &address, "--log", "disk"];
        serve.extend(["--data-dir", directory]);
        serve.extend(key.iter().flat_map(|key| ["--key", key.path()]));
        let mut serve = command(&serve, &address);
        serve.stdout(Stdio::null()).stderr(Stdio::null());
        let replica = serve.spawn().expect("a process");
        Self {
            replica,
            address,
            key,
        }
    }

    /// Runs a client command with the group's key, if there is one.
    fn ok(&self, words: &[&str]) -> Vec<u8> {
        let key = self.key.as_ref().map_or("", |key| key.path());
        let more = ["--key", key, "--timeout", "20s"];
        let ran = trine(&[words, &more].concat(), &self.address, b"");
        ran.expect_status(0).stdout
    }

    fn content(&self) -> Content {
        content(&self.ok(&["export"]))
    }
}

impl Drop for Alone {
    fn drop(&mut self) {
        let _ = self.replica.kill();
        let _ = self.replica.wait();
    }
}

fn free_address() -> String {
    free_addresses(1).expect("a free port")[0].to_string()
}

/// What a directory was said to hold, and what was acknowledged after that. Only the load may be there beyond.
fn assert_holds(golden: &Golden, name: &str, found: &Content) {
    let shows = &golden.files("directories")[name];
    let expected = content(&golden.bytes(shows["content"].as_str().expect("a name")));
    let acknowledged = shows["acknowledged_later"].as_u64().expect("a number");
    for (key, item) in &expected {
        assert_eq!(found.get(key), Some(item), "{name}: {key}");
    }
    for number in 0..acknowledged {
        let (value, _, _) = &found[&format!("\"load/{number:04}\"")];
        assert_eq!(value, &format!("\"value-{number}\""), "{name}");
    }
    let more = found.keys().filter(|key| !expected.contains_key(*key));
    let is_load = |key: &&String| key.starts_with("\"load/");
    let (load, other): (Vec<&String>, _) = more.partition(is_load);
    assert!(other.is_empty(), "{name}: {other:?}");
    assert!(load.len() as u64 >= acknowledged);
    assert!(acknowledged > 0 || load.is_empty(), "{name}: {load:?}");
}

fn node_of(shows: &Value) -> String {
    shows["node"].to_string()
}

/// Each directory by itself: of a member whose group is gone a group of its own is made, as `trine recover` does.
#[test]
fn each_directory_holds_what_it_held() {
    for golden in goldens() {
        for (name, shows) in golden.files("directories") {
            let directory = TempFile::new("golden-alone");
            unpack(&golden, name, &directory.0);
            let (address, id) = (free_address(), node_of(shows));
            let key = shows["key"].as_str().map(|key| private(&golden, key));
            let mut words = vec!["recover", "--id", &id, "--address", &address];
            words.extend(["--i-accept-data-loss", "--data-dir", directory.path()]);
            trine(&words, "", b"").expect_status(0);
            let alone = Alone::start(address, &id, &directory.0, key);
            assert_holds(&golden, name, &alone.content());
        }
    }
}

/// The whole group starts from its three directories, at other addresses than it had, and goes on.
#[test]
fn the_group_goes_on() {
    for golden in goldens() {
        let place = TempFile::new("golden-group");
        for node in 1..=3 {
            let name = format!("plain/replica-{node}.tar.gz");
            unpack(&golden, &name, &place.0.join(format!("replica-{node}")));
        }
        let data = format!("{}/replica-{{node_id}}", place.path());
        let cluster = Cluster::start(&["--log", "disk", "--data-dir", &data]);
        let found = content(&cluster.ok(&["export"]));
        assert_holds(&golden, "plain/replica-2.tar.gz", &found);
        cluster.ok(&["put", "greeting", "hello again"]);
        assert_eq!(cluster.ok(&["get", "greeting"]), b"hello again");
    }
}

/// A sealed group starts as it was left. Its users come with their keys, and may what they might.
#[test]
fn a_sealed_group_goes_on_with_its_users() {
    for golden in goldens() {
        let directories = golden.files("directories").iter();
        for (name, shows) in directories.filter(|(_, shows)| shows.get("key").is_some()) {
            let directory = TempFile::new("golden-sealed");
            unpack(&golden, name, &directory.0);
            let key = private(&golden, shows["key"].as_str().expect("a name"));
            let alone = Alone::start(free_address(), &node_of(shows), &directory.0, Some(key));
            assert_holds(&golden, name, &alone.content());
            let users: Value =
                serde_json::from_slice(&alone.ok(&["user", "list", "--json"])).expect("JSON");
            assert!(has_all_of(&users, &shows["users"]), "{name}: {users}");
            let by = |key: &str, words: &[&str]| {
                let key = private(&golden, key);
                let words = [words, &["--key", key.path(), "--timeout", "20s"]].concat();
                trine(&words, &alone.address, b"")
            };
            by("keys/ann.key", &["put", "by-ann", "again"]).expect_status(0);
            by("keys/app.key", &["put", "k/by-app", "again"]).expect_status(0);
            by("keys/app.key", &["put", "other", "v"]).expect_error(1, &["app", "k/"]);
            let old = private(&golden, "keys/app-of-generation-1.key");
            let words = [
                "put",
                "k/by-app",
                "v",
                "--key",
                old.path(),
                "--timeout",
                "20s",
            ];
            let refused = ["removed or replaced"];
            trine(&words, &alone.address, b"").expect_error(2, &refused);
        }
    }
}

#[test]
fn each_backup_is_restored() {
    for golden in goldens() {
        for (name, shows) in golden.files("backups") {
            let file = private(&golden, name);
            let verified = trine(&["backup", "verify", file.path(), "--json"], "", b"");
            let verified = verified.expect_status(0).json();
            for what in ["index", "keys", "users"] {
                assert_eq!(verified[what], shows[what], "{name}: {what}");
            }
            let directory = TempFile::new("golden-restored");
            let address = free_address();
            let mut words = vec!["restore", file.path(), "--address", &address];
            words.extend(["--data-dir", directory.path()]);
            trine(&words, "", b"").expect_status(0);
            let key = shows["key"].as_str().map(|key| private(&golden, key));
            let alone = Alone::start(address, "1", &directory.0, key);
            let expected = content(&golden.bytes(shows["content"].as_str().expect("a name")));
            assert_eq!(alone.content(), expected, "{name}");
        }
    }
}

#[test]
fn each_key_file_is_what_it_was() {
    for golden in goldens() {
        for (name, shows) in golden.files("keys") {
            let file = private(&golden, name);
            let shown = trine(&["key", "show", file.path(), "--json"], "", b"");
            let shown = shown.expect_status(0).json();
            assert!(has_all_of(&shown, shows), "{name}: {shown}");
        }
    }
}

/// A character of a comment may change; any other change is found by the key's check.
#[test]
fn no_flipped_bit_gives_another_key() {
    /// What a text gives, if it is a key.
    fn key(text: &[u8]) -> Option<Result<ClusterKey, UserKey>> {
        let text = std::str::from_utf8(text).ok()?;
        let cluster = ClusterKey::parse(text).ok().map(Ok);
        cluster.or_else(|| UserKey::parse(text).ok().map(Err))
    }
    for golden in goldens() {
        for name in golden.files("keys").keys() {
            let mut bytes = golden.bytes(name);
            let right = key(&bytes).expect("a key");
            let (mut refused, mut same) = (0, 0);
            flip_each_bit(&mut bytes, |flipped, bit| match key(flipped) {
                None => refused += 1,
                Some(found) => {
                    assert!(found == right, "{name}: bit {bit} gives another key");
                    same += 1;
                }
            });
            assert!(refused > same && same > 0, "{name}: {refused}, {same}");
            println!("{name}: {refused} refused, {same} the same key");
        }
    }
}

#[test]
fn each_settings_file_is_accepted() {
    for golden in goldens() {
        for (name, settings) in golden.files("settings") {
            let file = private(&golden, name);
            let checked = trine(&["config", "check", file.path()], "", b"").expect_status(0);
            let said = String::from_utf8_lossy(&checked.stdout).into_owned();
            let count = settings.as_array().expect("a list").len();
            assert!(
                said.contains(&format!("{count} settings, no mistakes")),
                "{name}: {said}"
            );
        }
    }
}
