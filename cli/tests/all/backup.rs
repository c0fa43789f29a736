//! `trine backup`, `trine backup verify`, `trine restore` and `trine up --restore` with real processes.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command as Process, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use trine_base::arguments::{ClientArguments, GroupArguments};
use trine_base::capture::CaptureArguments;
use trine_base::client::{CommandClient, open};
use trine_base::network::Udp;
use trine_base::ports::free_addresses;
use trine_client::{Mode, Report};
use trine_kvstore::{Command, Response};

use crate::common::up::Up;
use crate::common::{Cluster, LIMIT, Ran, command, finish, program, signal, trine, wait_for};

/// A directory that is removed with the value.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Self {
        let name = format!("trine-backup-{name}-{}", std::process::id());
        let path = std::env::temp_dir().join(name);
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(&path).expect("made");
        Self(path)
    }

    fn path(&self, name: &str) -> String {
        self.0.join(name).display().to_string()
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn client(peers: &str) -> CommandClient {
    let arguments = ClientArguments {
        group: GroupArguments {
            peers: peers.to_owned(),
            timeout: LIMIT,
        },
        capture: CaptureArguments::default(),
    };
    open(&Udp::default(), &arguments, |_| {}).expect("a client")
}

/// Keys that the writer writes, one after the other.
const KEYS: u64 = 50;

fn key_of(number: u64) -> Vec<u8> {
    format!("key-{:03}", number % KEYS).into_bytes()
}

/// A value that says which write it is, with some weight.
fn value_of(number: u64, bytes: usize) -> Vec<u8> {
    let mut value = number.to_le_bytes().to_vec();
    value.resize(bytes.max(8), number as u8);
    value
}

fn put(session: &mut CommandClient, number: u64, bytes: usize) {
    let (key, value) = (key_of(number), value_of(number, bytes));
    let put = Command::Put {
        key: &key,
        value: &value,
    };
    session.execute(Mode::Write, &put).expect("written");
}

/// Which write each key has, and whether its value is whole.
fn read_all(peers: &str) -> BTreeMap<Vec<u8>, u64> {
    let mut session = client(peers);
    let mut found = BTreeMap::new();
    for key in (0..KEYS).map(key_of) {
        let answer = session.execute(Mode::Read, &Command::Get { key: &key });
        let answer = answer.expect("read");
        let Ok(Response::Value { value, .. }) = answer.response() else {
            continue;
        };
        let (front, _) = value.split_first_chunk::<8>().expect("a number");
        let number = u64::from_le_bytes(*front);
        assert_eq!(value, value_of(number, value.len()));
        found.insert(key, number);
    }
    found
}

/// The keys after the first `count` writes.
fn model(count: u64) -> BTreeMap<Vec<u8>, u64> {
    (0..count).map(|number| (key_of(number), number)).collect()
}

/// Fills a group with so many bytes in each key.
fn filled(args: &[&str], bytes: usize) -> Cluster {
    let cluster = Cluster::start(args);
    let mut session = client(&cluster.group.peers());
    (0..KEYS).for_each(|number| put(&mut session, number, bytes));
    cluster
}

/// `trine up` in memory with the state of a backup.
fn restored(file: &str, more: &[&str]) -> Up {
    let addresses = free_addresses(3).expect("free ports");
    let args = [&["--insecure", "--restore", file], more].concat();
    Up::start_at(&addresses, &args)
}

/// A backup in the background.
fn start(cluster: &Cluster, args: &[&str]) -> Child {
    let mut command = command(&[&["backup"], args].concat(), &cluster.group.peers());
    let command = command.stdin(Stdio::null()).stdout(Stdio::piped());
    command.stderr(Stdio::piped()).spawn().expect("starts")
}

/// The replica whose image is being read.
fn source(reports: &[Report]) -> Option<u32> {
    let mut known = reports.iter().filter_map(Report::status);
    known
        .find(|status| status.backup.is_some_and(|backup| backup.bytes > 0))
        .map(|status| status.node_id)
}

/// One writer goes on all the time. The backup is the state after one of its writes, and holds all that were
/// acknowledged before the command began.
#[test]
fn a_backup_under_load_is_the_state_after_one_write() {
    let place = Scratch::new("load");
    let file = place.path("file");
    let cluster = filled(&[], 20_000);
    let peers = cluster.group.peers();
    let (acknowledged, stop) = (
        Arc::new(AtomicU64::new(KEYS)),
        Arc::new(AtomicBool::new(false)),
    );
    let writer = {
        let (acknowledged, stop, peers) = (acknowledged.clone(), stop.clone(), peers.clone());
        std::thread::spawn(move || {
            let mut session = client(&peers);
            while !stop.load(Ordering::SeqCst) {
                let number = acknowledged.load(Ordering::SeqCst);
                put(&mut session, number, 20_000);
                acknowledged.store(number + 1, Ordering::SeqCst);
            }
        })
    };
    wait_for("a writer", || {
        (acknowledged.load(Ordering::SeqCst) > KEYS + 20).then_some(())
    });
    let before = acknowledged.load(Ordering::SeqCst);
    let ran = cluster
        .run(&["backup", &file, "--max-rate", "500KiB", "--json"])
        .expect_status(0);
    let after = acknowledged.load(Ordering::SeqCst);
    stop.store(true, Ordering::SeqCst);
    writer.join().expect("the writer ends");
    assert!(after > before, "it wrote meanwhile");
    let document = ran.json();
    assert_eq!(document["keys"], KEYS);
    let verified = trine(&["backup", "verify", &file, "--json"], "", b"").expect_status(0);
    assert_eq!(verified.json()["index"], document["index"]);

    let up = restored(&file, &[]);
    let found = read_all(&up.peers);
    let count = found.values().max().expect("keys") + 1;
    assert!(
        count >= before,
        "{count} writes, {before} were acknowledged"
    );
    assert_eq!(found, model(count), "the state after one write");
    // It is a group like others.
    put(&mut client(&up.peers), count, 10);
    assert_eq!(read_all(&up.peers), model(count + 1));
    up.stop();
}

#[test]
fn a_replica_that_dies_during_the_backup_is_followed_by_another() {
    let place = Scratch::new("killed");
    let file = place.path("file");
    let mut cluster = filled(&[], 40_000);
    let child = start(&cluster, &[&file, "--max-rate", "200KiB"]);
    let reading = wait_for("a source", || source(&cluster.survey()));
    let shown = String::from_utf8_lossy(&cluster.ok(&["status"])).into_owned();
    assert!(shown.contains("read by a backup, "), "{shown}");
    cluster.group.kill(reading as usize).expect("killed");
    // The rest goes faster than the test's patience.
    signal(child.id(), "INT");
    let ran = finish(child);
    assert_eq!(ran.status, Some(130), "{}", ran.stderr);
    let ran = cluster.run(&["backup", &file, "--json"]).expect_status(0);
    assert!(ran.stderr.contains("starting over"), "{}", ran.stderr);
    assert_eq!(ran.json()["resumed"], false);
    assert_ne!(ran.json()["replica"], reading);

    // And in one command.
    let file = place.path("second");
    cluster.group.restart(reading as usize).expect("restarted");
    cluster.wait_for_voters(3);
    let child = start(&cluster, &[&file, "--max-rate", "400KiB"]);
    let reading = wait_for("a source", || source(&cluster.survey()));
    cluster.group.kill(reading as usize).expect("killed");
    let ran = finish(child).expect_status(0);
    assert!(ran.stderr.contains("retrying"), "{}", ran.stderr);
    trine(&["backup", "verify", &file], "", b"").expect_status(0);
}

#[test]
fn an_interrupted_backup_goes_on() {
    let place = Scratch::new("resumed");
    let file = place.path("file");
    let partial = format!("{file}.partial");
    let cluster = filled(&[], 40_000);
    let child = start(&cluster, &[&file, "--max-rate", "200KiB"]);
    wait_for("a source", || source(&cluster.survey()));
    signal(child.id(), "INT");
    let ran = finish(child);
    assert_eq!(ran.status, Some(130), "{}", ran.stderr);
    assert!(
        ran.stderr.contains("the same command resumes it"),
        "{}",
        ran.stderr
    );
    let had = std::fs::metadata(&partial).expect("kept").len();
    assert!(had > 100, "{had} bytes");
    put(&mut client(&cluster.group.peers()), 7 + KEYS, 10);
    let ran = cluster.run(&["backup", &file, "--json"]).expect_status(0);
    assert!(ran.stderr.contains("resuming it"), "{}", ran.stderr);
    assert_eq!(ran.json()["resumed"], true);
    assert!(!Path::new(&partial).exists());
    trine(&["backup", "verify", &file], "", b"").expect_status(0);
    let up = restored(&file, &[]);
    assert_eq!(
        read_all(&up.peers),
        model(KEYS),
        "the state of the first run"
    );
    up.stop();
}

/// The process was killed, and what it had told the replica to drop did not reach the file.
#[test]
fn a_partial_file_that_lost_its_end_begins_again() {
    let place = Scratch::new("lost-end");
    let file = place.path("file");
    let cluster = filled(&[], 40_000);
    let child = start(&cluster, &[&file, "--max-rate", "200KiB"]);
    let reading = wait_for("a source", || source(&cluster.survey())).to_string();
    signal(child.id(), "INT");
    assert_eq!(finish(child).status, Some(130));
    let partial = std::fs::OpenOptions::new()
        .write(true)
        .open(format!("{file}.partial"));
    partial.expect("kept").set_len(100).expect("cut");
    // The old image does not keep the replica from making another one.
    let ran = cluster
        .run(&["backup", &file, "--replica", &reading])
        .expect_status(0);
    assert!(
        ran.stderr.contains("no such piece any more; starting over"),
        "{}",
        ran.stderr
    );
    trine(&["backup", "verify", &file], "", b"").expect_status(0);
}

#[test]
fn damage_is_named_by_its_byte_and_nothing_is_made_of_it() {
    let place = Scratch::new("damage");
    let (file, bad) = (place.path("file"), place.path("bad"));
    let directory = place.path("directory");
    let cluster = filled(&[], 5_000);
    cluster.ok(&["backup", &file, "--replica", "leader"]);
    let whole = std::fs::read(&file).expect("read");
    let restore = |file: &str| {
        let restore = restore_of(file, &directory, "127.0.0.1:7471");
        trine(&restore, "", b"")
    };
    for (change, says) in [
        (
            Box::new(|bytes: &mut Vec<u8>| bytes.truncate(5_000)) as Box<dyn Fn(&mut Vec<u8>)>,
            "byte 5000: the file is cut off here",
        ),
        (
            Box::new(|bytes| bytes[20] ^= 1),
            "byte 0: the header is damaged",
        ),
        (Box::new(|bytes| bytes[9_000] ^= 1), "damaged: its"),
        (
            Box::new(|bytes| bytes.push(0)),
            "there are bytes behind the end",
        ),
        (
            Box::new(|bytes| *bytes = b"hello".to_vec()),
            "byte 0: it is no backup",
        ),
        (
            Box::new(|bytes| bytes[8] = 9),
            "it has format 9, this release reads formats up to 1",
        ),
    ] {
        let mut bytes = whole.clone();
        change(&mut bytes);
        std::fs::write(&bad, &bytes).expect("written");
        trine(&["backup", "verify", &bad], "", b"").expect_error(1, &[says]);
        restore(&bad).expect_error(1, &[says]);
        assert!(!Path::new(&directory).exists());
    }
    trine(&["backup", "verify", &place.path("none")], "", b"").expect_error(2, &["cannot read"]);
    // The right file, and then a directory that is taken.
    restore(&file).expect_status(0);
    restore(&file).expect_error(2, &["is not empty", "nothing was changed"]);
    let wall = [
        "restore",
        &file,
        "--data-dir",
        &place.path("wall"),
        "--address",
        "127.0.0.1:7471",
        "--expiry",
        "wall",
        "--json",
    ];
    let ran = trine(&wall, "", b"").expect_status(0);
    assert!(ran.json()["ttl_passed_ns"].as_u64().expect("a number") > 0);
}

/// `trine up` started its replicas, and ended with 2 and the same error twice, where `trine restore` ends with 1.
#[test]
fn nothing_is_started_with_a_damaged_backup() {
    let place = Scratch::new("damaged");
    let (file, directory) = (place.path("file"), place.path("data"));
    let cluster = filled(&[], 100);
    cluster.ok(&["backup", &file]);
    let mut bytes = std::fs::read(&file).expect("a backup");
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::write(&file, bytes).expect("written");
    let restore = [
        "restore",
        &file,
        "--data-dir",
        &directory,
        "--id",
        "1",
        "--address",
        "127.0.0.1:1",
    ];
    let of_restore = trine(&restore, "", b"").expect_status(1);
    for more in [&[][..], &["--log", "disk", "--data-dir", &directory]] {
        let port = free_addresses(3).expect("ports")[0].port().to_string();
        let up = ["up", "--base-port", &port, "--restore", &file];
        let ran = trine(&[&up, more].concat(), "", b"").expect_status(1);
        assert_eq!(ran.stdout, b"", "{ran:?}");
        let said = ran.stderr.lines().next();
        let same = of_restore.stderr.lines().next();
        assert_eq!(said, same);
    }
}

/// A limit to the size of files is an error as a full disk is, without a device of its own.
#[test]
fn a_full_disk_leaves_no_file() {
    let place = Scratch::new("full");
    let file = place.path("file");
    let cluster = filled(&[], 20_000);
    let line = format!("ulimit -f 200; exec {} backup {file}", program().display());
    let mut shell = Process::new("sh");
    shell
        .args(["-c", &line])
        .env("TRINE_PEERS", cluster.group.peers());
    let shell = shell
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let ran = finish(shell.spawn().expect("starts"));
    let ran = ran.expect_error(
        2,
        &[
            "cannot write",
            "was removed, and no backup was made",
            "free some space",
        ],
    );
    assert!(ran.stderr.contains("File too large"), "{}", ran.stderr);
    let left: Vec<_> = std::fs::read_dir(&place.0).expect("read").collect();
    assert!(left.is_empty(), "{left:?}");
    cluster.ok(&["backup", &file]);
}

#[test]
fn a_group_on_disk_is_backed_up_and_restored_on_disk() {
    let place = Scratch::new("disk");
    let file = place.path("file");
    let own = place.path("old-{node_id}");
    let cluster = filled(&["--log", "disk", "--data-dir", &own], 10_000);
    cluster.ok(&["backup", &file, "--replica", "2"]);
    let none = cluster.run(&["backup", &place.path("none"), "--replica", "9"]);
    none.expect_error(3, &["no replica 9", "nothing was backed up"]);
    drop(cluster);
    let directory = place.path("new");
    let disk = ["--log", "disk", "--data-dir", &directory];
    let up = restored(&file, &disk);
    assert_eq!(read_all(&up.peers), model(KEYS));
    let addresses: Vec<SocketAddr> = up
        .peers
        .split(',')
        .map(|one| one.parse().expect("an address"))
        .collect();
    up.stop();
    // It is there after a restart, and a second group is not begun in its place.
    let base = addresses[0].port().to_string();
    let again = [
        "up",
        "--base-port",
        &base,
        "--insecure",
        "--restore",
        &file,
        "--log",
        "disk",
        "--data-dir",
        &directory,
    ];
    trine(&again, "", b"").expect_error(2, &["holds a group", "nothing was changed"]);
    // Elsewhere, or with more replicas, it waited for a minute: nobody of a restored group has begun it with the others.
    let other = free_addresses(3).expect("free ports")[0].port().to_string();
    let hint = format!("trine up --replicas 3 --base-port {base} --log disk");
    for (replicas, base) in [("3", &other), ("5", &base)] {
        let up = ["up", "--replicas", replicas, "--base-port", base];
        let ran = trine(&[&up[..], &disk].concat(), "", b"");
        ran.expect_error(2, &["holds a group of 3 replicas at", &hint]);
    }
    let up = Up::start_at(&addresses, &[&["--insecure"], &disk[..]].concat());
    assert_eq!(read_all(&up.peers), model(KEYS));
    up.stop();
}

/// Who may read a part, or may not administrate, gets no backup; users come back with their keys.
#[test]
fn a_backup_takes_an_administrator_and_users_come_back() {
    let place = Scratch::new("roles");
    let (file, key) = (place.path("file"), place.path("group.key"));
    trine(&["key", "new", "--out", &key], "", b"").expect_status(0);
    let addresses = free_addresses(3).expect("free ports");
    let up = Up::start_at(&addresses, &["--key", &key]);
    let run = |args: &[&str], peers: &str| -> Ran { trine(args, peers, b"") };
    run(&["put", "k", "v", "--key", &key], &up.peers).expect_status(0);
    for (name, more) in [
        ("reader", &["--role", "read"][..]),
        ("boss", &["--role", "admin"]),
    ] {
        let out = place.path(name);
        let add = [&["user", "add", name, "--out", &out, "--key", &key], more].concat();
        run(&add, &up.peers).expect_status(0);
    }
    let backup = |name: &str| run(&["backup", &file, "--key", &place.path(name)], &up.peers);
    backup("reader").expect_error(
        1,
        &[
            "user reader has role read, and role admin is needed",
            "a user with role admin",
        ],
    );
    assert!(!Path::new(&file).exists() && !Path::new(&format!("{file}.partial")).exists());
    let stranger = run(&["backup", &file, "--key", "none"], &up.peers);
    assert_ne!(stranger.status, Some(0), "{}", stranger.stderr);
    backup("boss").expect_status(0);
    up.stop();
    let again = free_addresses(3).expect("free ports");
    let up = Up::start_at(&again, &["--key", &key, "--restore", &file]);
    let got = run(&["get", "k", "--key", &place.path("reader")], &up.peers).expect_status(0);
    assert_eq!(got.stdout, b"v");
    up.stop();
}

/// A backup that was written by the first release with backups.
fn golden() -> String {
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("../corpus/backup/version-1.trine");
    golden.display().to_string()
}

/// The command line that makes a replica of a backup.
fn restore_of<'a>(file: &'a str, directory: &'a str, address: &'a str) -> [&'a str; 6] {
    [
        "restore",
        file,
        "--data-dir",
        directory,
        "--address",
        address,
    ]
}

/// `trine restore` made a group that nobody could administrate, and took no notice of a list of addresses, as `trine recover`
/// did.
#[test]
fn the_first_replica_of_a_group_has_one_address_that_others_reach() {
    let golden = golden();
    let place = Scratch::new("address");
    let (none, some) = (place.path("none"), place.path("some"));
    std::fs::create_dir_all(&some).expect("made");
    for (address, part) in [
        ("0.0.0.0:7471", "means every address"),
        ("[::]:7471", "means every address"),
        ("127.0.0.1:7471,127.0.0.1:7472", "it is a list"),
    ] {
        let parts = [part, "write host:port"];
        trine(&restore_of(&golden, &none, address), "", b"").expect_error(2, &parts);
        assert!(!Path::new(&none).exists());
        let recover = ["recover", "--id", "1", "--i-accept-data-loss"];
        let places = ["--data-dir", &some, "--address", address];
        trine(&[recover, places].concat(), "", b"").expect_error(2, &parts);
        let left: Vec<_> = std::fs::read_dir(&some).expect("read").collect();
        assert!(left.is_empty(), "{left:?}");
    }
}

/// It became a file with the name `-`.
#[test]
fn a_dash_is_not_taken_for_a_file() {
    let nowhere = "127.0.0.1:1";
    let backup = trine(&["backup", "-"], nowhere, b"");
    backup.expect_error(2, &["not standard output", "give the name of a file"]);
}

/// Every later release restores it.
#[test]
fn the_backup_of_an_earlier_release_is_restored() {
    let golden = golden();
    let document = trine(&["backup", "verify", &golden, "--json"], "", b"")
        .expect_status(0)
        .json();
    assert_eq!(
        (&document["keys"], &document["users"]),
        (&3.into(), &1.into())
    );
    let up = restored(&golden, &[]);
    for (key, value) in [
        ("greeting", "hello"),
        ("farewell", "bye"),
        ("long", &"x".repeat(5_000)),
    ] {
        let got = trine(&["get", key], &up.peers, b"").expect_status(0);
        assert_eq!(got.stdout, value.as_bytes(), "{key}");
    }
    let users = trine(&["user", "list"], &up.peers, b"").expect_status(0);
    assert!(String::from_utf8_lossy(&users.stdout).contains("alice"));
    up.stop();
}

/// `trine up --restore` was killed while it made the first replica, and then before that one had taken the others in.
#[test]
fn an_interrupted_restore_of_a_group_on_disk_goes_on() {
    let golden = golden();
    let place = Scratch::new("up-interrupted");
    let directory = place.path("group");
    let first = format!("{directory}/replica-1");
    let addresses = free_addresses(3).expect("free ports");
    let base = addresses[0].port().to_string();
    let disk = ["--insecure", "--log", "disk", "--data-dir", &directory];
    let up = [&["up", "--base-port", &base], &disk[..]].concat();
    std::fs::create_dir_all(&first).expect("made");
    for (file, text) in [("recovering", "11 making anew"), ("synced", "half")] {
        std::fs::write(format!("{first}/{file}"), text).expect("written");
    }
    std::fs::write(format!("{directory}/restoring"), "").expect("written");
    trine(&up, "", b"").expect_error(2, &["was interrupted before", "--restore FILE"]);
    assert!(Path::new(&format!("{first}/recovering")).exists());

    // The first replica alone is there.
    let address = addresses[0].to_string();
    let restore = restore_of(&golden, &first, &address);
    trine(&restore, "", b"").expect_status(0);
    let again = [&up[..], &["--restore", &golden]].concat();
    trine(&again, "", b"").expect_error(2, &["holds a group", "omit --restore"]);
    let started = Up::start_at(&addresses, &disk);
    let goes_on = "resuming an interrupted restore";
    assert!(started.welcome.contains(goes_on), "{}", started.welcome);
    let got = trine(&["get", "greeting"], &started.peers, b"").expect_status(0);
    assert_eq!(got.stdout, b"hello");
    started.stop();
    assert!(!Path::new(&format!("{directory}/restoring")).exists());
    let started = Up::start_at(&addresses, &disk);
    assert!(!started.welcome.contains(goes_on), "{}", started.welcome);
    started.stop();
}

/// A restore that fails removes what it has written, and nothing of whoever came into the directory meanwhile.
#[test]
fn a_restore_touches_no_file_of_others() {
    let golden = golden();
    let place = Scratch::new("others");
    let directory = place.path("directory");
    std::fs::create_dir_all(&directory).expect("made");
    let restore = restore_of(&golden, &directory, "127.0.0.1:7471");
    let lock = std::fs::File::create(format!("{directory}/lock")).expect("made");
    lock.try_lock().expect("free");
    trine(&restore, "", b"").expect_error(2, &["another process uses this directory"]);
    assert!(Path::new(&format!("{directory}/lock")).exists());
    drop(lock);
    std::fs::write(format!("{directory}/identity"), "of a replica").expect("written");
    trine(&restore, "", b"").expect_error(2, &["is not empty: identity is in it"]);
    assert!(Path::new(&format!("{directory}/identity")).exists());
    std::fs::remove_file(format!("{directory}/identity")).expect("removed");
    // It is cut off while it writes, as by a full disk.
    let line = format!(
        "ulimit -f 1; exec {} {}",
        program().display(),
        restore.join(" ")
    );
    let mut shell = Process::new("sh");
    shell.args(["-c", &line]).stdin(Stdio::null());
    let shell = shell.stdout(Stdio::piped()).stderr(Stdio::piped());
    finish(shell.spawn().expect("starts")).expect_error(2, &["nothing was restored"]);
    let left: Vec<_> = std::fs::read_dir(&directory).expect("read").collect();
    assert!(left.is_empty(), "{left:?}");
    trine(&restore, "", b"").expect_status(0);
}
