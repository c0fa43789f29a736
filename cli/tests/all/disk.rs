//! Groups with their logs on disk. Every process dies at once, and acknowledged writes survive. The rest of a lost
//! majority becomes a new group. A disk runs full. Files are damaged, of a newer release, or of another group.

use std::ffi::OsString;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::common::{Cluster, Ran, leave_out, program, tcp_ports, trine, wait_for};
use trine_base::ports::free_addresses;
use trine_local::Process;

struct Directory(PathBuf);

impl Directory {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("trine-disk-{}-{name}", std::process::id()));
        Self(path)
    }

    fn text(&self) -> &str {
        self.0.to_str().expect("a path of plain letters")
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[test]
fn all_replicas_are_killed_at_once_and_a_majority_is_lost_later() {
    let directory = Directory::new("blackout");
    let chaos = [
        "chaos",
        "--log",
        "disk",
        "--data-dir",
        directory.text(),
        "--kill-all-every",
        "1s",
        "--for",
        "4s",
        "--clients",
        "16",
    ];
    let ran = trine(&chaos, "", b"").expect_status(0);
    let said = String::from_utf8_lossy(&ran.stdout).into_owned();
    assert!(said.contains("killed all replicas"), "{said}");

    let left = directory.0.join("replica-2");
    let left = left.to_str().expect("a path of plain letters");
    let recover = [
        "recover",
        "--data-dir",
        left,
        "--id",
        "2",
        "--address",
        "127.0.0.1:7471",
    ];
    let refused = trine(&recover, "", b"").expect_status(2);
    let said = refused.stderr;
    assert!(said.contains("--i-accept-data-loss"), "{said}");
    let accepted = [&recover[..], &["--i-accept-data-loss", "--json"]].concat();
    let document = trine(&accepted, "", b"").expect_status(0).json();
    assert_ne!(document["cluster"], document["old_cluster"]);
    assert!(document["last_index"].as_u64() > Some(1), "{document}");

    // It belongs to another node than the requested one.
    let other = [
        "serve",
        "--id",
        "1",
        "--peers",
        "127.0.0.1:17471",
        "--log",
        "disk",
        "--data-dir",
        left,
    ];
    let refused = trine(&other, "", b"").expect_status(2);
    let said = refused.stderr;
    assert!(said.contains("belongs to node 2"), "{said}");
}

/// A small file system, where the test may create one.
struct SmallDisk(PathBuf);

impl SmallDisk {
    fn mount(path: &Path, size: &str) -> Option<Self> {
        std::fs::create_dir_all(path).expect("a directory");
        let options = format!("size={size}");
        let mounted = run("mount", &["-t", "tmpfs", "-o", &options, "tmpfs"], path);
        mounted.then(|| Self(path.to_owned()))
    }

    fn make_room(&self, size: &str) {
        let options = format!("remount,size={size}");
        assert!(run("mount", &["-o", &options], &self.0));
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        run("umount", &["-l"], &self.0);
    }
}

fn run(program: &str, args: &[&str], path: &Path) -> bool {
    let status = Command::new(program).args(args).arg(path).status();
    status.is_ok_and(|status| status.success())
}

fn disk_cluster(directory: &Directory) -> Cluster {
    disk_cluster_with(directory, &[])
}

fn disk_cluster_with(directory: &Directory, more: &[&str]) -> Cluster {
    let data = format!("{}/replica-{{node_id}}", directory.text());
    let args = [
        "--log",
        "disk",
        "--data-dir",
        &data,
        "--log-segment",
        "1MiB",
    ];
    Cluster::start(&[&args[..], more].concat())
}

fn incarnation(cluster: &Cluster, node_id: u32) -> Option<String> {
    let reports = cluster.survey();
    let mut known = reports.iter().filter_map(|report| report.status());
    known
        .find(|status| status.node_id == node_id)
        .map(|status| status.incarnation.clone())
}

/// A file `lock` stayed in the home directory of somebody who had mistyped an option.
#[test]
fn a_directory_of_somebody_else_is_refused_and_stays_as_it_is() {
    let directory = Directory::new("foreign");
    let path = directory.text();
    std::fs::create_dir_all(path).expect("made");
    std::fs::write(format!("{path}/thesis.txt"), "text").expect("written");
    let serve = ["serve", "--id", "1", "--bootstrap", "--log", "disk"];
    let recover = ["recover", "--id", "1", "--address", "127.0.0.1:1"];
    let lift = ["recover", "--quarantined"];
    let refused = "thesis.txt is no file of trine's";
    for (words, more, status, why) in [
        (&serve[..], &[][..], 2, refused),
        (&recover, &["--i-accept-data-loss"], 2, refused),
        (&lift, &[], 1, "is not in quarantine"),
    ] {
        let words = [words, &["--data-dir", path], more].concat();
        trine(&words, "127.0.0.1:1", b"").expect_error(status, &[why]);
        let names = std::fs::read_dir(path).expect("a directory");
        let names: Vec<_> = names
            .map(|entry| entry.expect("an entry").file_name())
            .collect();
        assert_eq!(names, ["thesis.txt"], "{words:?}");
    }
}

/// The leader's disk runs full under writes. Its process ends with an error that names the file, and the others
/// continue. With room again the replica returns with the same identity. With one other replica it then answers for
/// every acknowledged write.
#[test]
fn a_disk_that_runs_full_loses_nothing_that_was_acknowledged() {
    let directory = Directory::new("full");
    let Some(disk) = SmallDisk::mount(&directory.0.join("replica-3"), "8m") else {
        let why = "no file system can be mounted here, which root may";
        leave_out(why, "TRINE_NEED_SANDBOX");
        return;
    };
    let mut cluster = disk_cluster(&directory);
    wait_for("the lead of the replica whose disk is small", || {
        cluster.run(&["leader", "transfer", "3"]);
        (cluster.leader() == 3).then_some(())
    });
    let before = incarnation(&cluster, 3).expect("it answers");
    let value = "v".repeat(100_000);
    let mut acknowledged = Vec::new();
    let exit = (0..200).find_map(|n| {
        let key = format!("key-{n}");
        if cluster.run(&["put", &key, &value]).status == Some(0) {
            acknowledged.push(key);
        }
        cluster.group.take_exits().expect("wait").pop()
    });
    let exit = exit.expect("20 MB do not fit into 8 MiB");
    assert_eq!(
        (exit.node_id, exit.status.code()),
        (3, Some(1)),
        "{:?}",
        exit.tail
    );
    let said = exit.tail.join("\n");
    let file = directory.0.join("replica-3");
    for part in [
        "No space left on device",
        file.to_str().expect("plain letters"),
        "start it again",
    ] {
        assert!(said.contains(part), "{part:?} is missing in {said}");
    }
    cluster.ok(&["put", "meanwhile", "v"]);

    disk.make_room("64m");
    cluster.group.restart(3).expect("starts");
    cluster.wait_for_voters(3);
    assert_eq!(
        incarnation(&cluster, 3).as_ref(),
        Some(&before),
        "the same member"
    );
    cluster.group.kill(1).expect("it is alive");
    cluster.leader();
    assert!(acknowledged.len() > 10, "{acknowledged:?}");
    for key in &acknowledged {
        assert_eq!(cluster.ok(&["get", key]).len(), value.len(), "{key}");
    }
    drop(cluster);
    drop(disk);
}

/// CRC32C, bit by bit.
fn crc32c(bytes: &[u8]) -> u32 {
    let step = |crc: u32, _| (crc >> 1) ^ (0x82F6_3B78 & (crc & 1).wrapping_neg());
    !bytes
        .iter()
        .fold(!0, |crc, &byte| (0..8).fold(crc ^ u32::from(byte), step))
}

fn flip(path: &Path, at: usize) {
    let mut bytes = std::fs::read(path).expect("it is there");
    bytes[at] ^= 0xFF;
    std::fs::write(path, bytes).expect("written");
}

/// The first file of the directory whose name begins like this.
fn file(directory: &Path, begins: &str) -> PathBuf {
    let entries = std::fs::read_dir(directory).expect("a directory");
    let paths = entries.map(|entry| entry.expect("a name").path());
    let mut found: Vec<_> = paths
        .filter(|path| {
            let name = path.file_name().and_then(|name| name.to_str());
            name.is_some_and(|name| name.starts_with(begins))
        })
        .collect();
    found.sort();
    found
        .into_iter()
        .next()
        .unwrap_or_else(|| panic!("no {begins}*"))
}

/// The line that starts node 3 on the files of `data`.
fn serve_third(cluster: &Cluster, data: &Path) -> Vec<String> {
    serve_line(cluster, 3, data)
}

fn serve_line(cluster: &Cluster, node_id: usize, data: &Path) -> Vec<String> {
    let data = data.to_str().expect("plain letters");
    let (id, peers) = (node_id.to_string(), cluster.group.peers());
    let line = ["serve", "--id", &id, "--peers", &peers, "--log", "disk"];
    let data = ["--data-dir", data];
    line.iter().chain(&data).map(ToString::to_string).collect()
}

fn as_words(line: &[String]) -> Vec<&str> {
    line.iter().map(String::as_str).collect()
}

/// Starts node 3 on the files of `data`, which it has to refuse.
fn refused(cluster: &Cluster, data: &Path) -> Ran {
    trine(&as_words(&serve_third(cluster, data)), "", b"").expect_status(2)
}

/// The test damages a log, then a snapshot, which came with the re-joining. Both are refused with file and byte, and
/// set aside only on demand. Files of a newer release are refused and left unchanged.
#[test]
fn damaged_and_newer_files_are_refused_in_words() {
    let directory = Directory::new("damage");
    let mut cluster = disk_cluster(&directory);
    let value = "v".repeat(100_000);
    for n in 0..15 {
        cluster.ok(&["put", &format!("key-{n}"), &value]);
    }
    cluster.group.kill(3).expect("it is alive");
    let data = directory.0.join("replica-3");
    flip(&file(&data, "segment-"), 500_000);
    refused(&cluster, &data).expect_error(
        2,
        &["segment-0000000000000001.log: damaged at byte", "--rejoin"],
    );

    let mut rejoin = serve_third(&cluster, &data);
    rejoin.push("--rejoin".to_owned());
    let mut child = crate::common::command(&as_words(&rejoin), "")
        .stderr(std::process::Stdio::null())
        .stdout(std::process::Stdio::null())
        .spawn()
        .expect("starts");
    cluster.wait_for_voters(3);
    child.kill().expect("it is alive");
    child.wait().expect("ended");
    let snapshot = file(&data, "snapshot-");
    flip(&snapshot, 1_000_000);
    refused(&cluster, &data).expect_error(2, &["snapshot-", "damaged before byte", "--rejoin"]);

    let identity = data.join("identity");
    let mut newer = std::fs::read(&identity).expect("it is there");
    newer[8] = 9;
    let body = newer.len() - 4;
    let sum = crc32c(&newer[..body]).to_le_bytes();
    newer[body..].copy_from_slice(&sum);
    std::fs::write(&identity, &newer).expect("written");
    refused(&cluster, &data).expect_error(2, &["identity has format 9", "reads formats up to"]);
    assert_eq!(std::fs::read(&identity).expect("it is there"), newer);
}

/// Forged state reports could put all directories of a group into quarantine, and there was no way back. `trine recover
/// --i-accept-data-loss` refused such a directory and recommended itself.
#[test]
fn a_quarantine_is_refused_in_words_and_can_be_lifted() {
    let directory = Directory::new("quarantine");
    let mut cluster = disk_cluster(&directory);
    cluster.ok(&["put", "key", "value"]);
    cluster.group.kill(3).expect("it is alive");
    let data = directory.0.join("replica-3");
    let why = "its state behind entry 1024 differs from the majority's";
    std::fs::write(data.join("condemned"), why).expect("written");
    let way_out = ["in quarantine", why, "--rejoin", "recover --quarantined"];
    refused(&cluster, &data).expect_error(2, &way_out);

    let data = data.to_str().expect("plain letters").to_owned();
    let recover = ["recover", "--data-dir", &data];
    let group = [
        "--id",
        "3",
        "--address",
        "127.0.0.1:9",
        "--i-accept-data-loss",
    ];
    trine(&[&recover[..], &group].concat(), "", b"").expect_error(2, &way_out);
    let lift = [&recover[..], &["--quarantined"]].concat();
    trine(&[&lift[..], &group[..2]].concat(), "", b"").expect_status(2);
    let lifted = trine(&lift, "", b"").expect_status(0);
    let said = String::from_utf8_lossy(&lifted.stdout).into_owned();
    assert!(
        said.contains("no longer in quarantine") && said.contains(why),
        "{said}"
    );
    trine(&lift, "", b"").expect_error(1, &["not in quarantine", "nothing was changed"]);

    let third = as_words(&serve_third(&cluster, Path::new(&data)))
        .into_iter()
        .map(OsString::from)
        .collect::<Vec<_>>();
    let _third = Process::start(&program(), &third, 3, None).expect("starts");
    cluster.wait_for_voters(3);
    assert_eq!(cluster.ok(&["get", "key"]), b"value");
}

/// A replica at a free port, which its directory has to stop.
fn serve_on(data: &str) -> Ran {
    let address = free_addresses(1).expect("a port")[0].to_string();
    let serve = ["serve", "--id", "1", "--peers", &address, "--log", "disk"];
    trine(&[&serve[..], &["--data-dir", data]].concat(), "", b"")
}

/// Whatever was wrong with the directory, the advice was "stop the other process".
#[test]
fn a_data_directory_that_cannot_be_made_is_told_from_one_in_use() {
    let scratch = Directory::new("unmade");
    std::fs::create_dir_all(&scratch.0).expect("made");
    let file = scratch.0.join("file");
    std::fs::write(&file, b"text").expect("written");
    let below = file.join("replica-1");
    // Even root cannot create one there.
    let nowhere = PathBuf::from("/proc/trine/replica-1");
    let no_file = format!("{} is not a directory", file.display());
    let cures: [(&Path, &[&str]); 3] = [
        (&file, &[&no_file, "give a directory"]),
        (&below, &[&no_file, "give a directory"]),
        (
            &nowhere,
            &[
                "cannot create the directory /proc/trine/replica-1",
                "write in /proc (",
            ],
        ),
    ];
    for (path, parts) in cures {
        let data = path.to_str().expect("plain letters");
        let ran = serve_on(data).expect_error(2, parts);
        assert!(!ran.stderr.contains("other process"), "{}", ran.stderr);
        let up = trine(&["up", "--log", "disk", "--data-dir", data], "", b"");
        let up = up.expect_error(2, parts);
        assert!(up.stdout.is_empty(), "before any replica: {up:?}");
    }
    assert_eq!(std::fs::read(&file).expect("it is there"), b"text");

    let _cluster = disk_cluster(&scratch);
    let data = scratch.0.join("replica-3");
    let ran = serve_on(data.to_str().expect("plain letters"));
    ran.expect_error(
        2,
        &[
            "another process uses this directory",
            "stop the other process",
        ],
    );
}

/// A group whose third replica is dead, and in `others` the files of a group that has ended.
fn two_of_three(mine: &Directory, others: &Directory) -> Cluster {
    let other = disk_cluster(others);
    other.ok(&["put", "key", "theirs"]);
    drop(other);
    let mut cluster = disk_cluster(mine);
    cluster.ok(&["put", "key", "mine"]);
    cluster.group.kill(3).expect("it is alive");
    cluster
}

/// A replica may start on another group's files with the right number and address. It then harms neither group. It is
/// not taken in, and it answers no client in the name of the files' group.
#[test]
fn files_of_another_group_are_not_taken_for_this_ones() {
    let (mine, others) = (Directory::new("mine"), Directory::new("others"));
    let mut cluster = two_of_three(&mine, &others);
    let data = mine.0.join("replica-3");
    std::fs::remove_dir_all(&data).expect("it is there");
    std::fs::rename(others.0.join("replica-3"), &data).expect("renamed");
    cluster.group.restart(3).expect("starts");
    // It waited silently, also with --rejoin.
    let belongs = format!("the directory {} to cluster", data.display());
    let parts = [
        " belong to cluster ",
        &belongs,
        "start it with an empty directory",
    ];
    wait_for("its own words", || {
        let tail = cluster
            .group
            .process(3)
            .expect("it is up")
            .tail()
            .join("\n");
        parts.iter().all(|part| tail.contains(part)).then_some(())
    });
    wait_for("what its status says of it", || {
        let said = cluster.run(&["status"]).stdout;
        let said = String::from_utf8_lossy(&said).into_owned();
        said.contains("belongs to another group").then_some(())
    });
    assert_eq!(cluster.ok(&["get", "key"]), b"mine");
    cluster.ok(&["put", "key", "mine again"]);
    let third = cluster.group.addresses()[2].to_string();
    let alone = ["get", "key", "--peers", &third, "--timeout", "1s"];
    let ran = trine(&alone, "", b"").expect_error(3, &["not reachable", "the group has no leader"]);
    assert!(ran.stdout.is_empty(), "{ran:?}");

    cluster.group.kill(3).expect("it is alive");
    let mut line = serve_third(&cluster, &data);
    line.push("--rejoin".to_owned());
    let args: Vec<OsString> = line.iter().map(OsString::from).collect();
    let third = Process::start(&program(), &args, 3, None).expect("starts");
    wait_for("a word about --rejoin", || {
        let tail = third.tail().join("\n");
        let said = |part: &&str| tail.contains(*part);
        parts
            .iter()
            .chain(&["--rejoin sets aside only"])
            .all(said)
            .then_some(())
    });
}

/// An operator gave a follower an old copy of its directory. The leader counted on entries that this copy lacks, so the
/// follower refused every heartbeat and stayed a silent candidate for ever.
#[test]
fn a_follower_with_an_old_copy_of_its_directory_ends_and_says_what_to_do() {
    let directory = Directory::new("rolled-back");
    let mut cluster = disk_cluster_with(&directory, &["--election-timeout", "3s"]);
    let (leader, follower, data) = put_an_old_copy_back(&mut cluster, &directory);
    assert_eq!(cluster.leader(), leader, "it has led all along");
    let ended = refused_at(&cluster, follower, &data);
    ended.expect_error(
        1,
        &[
            "its files are older than what it has promised",
            &format!("node {leader} at"),
            "start it with --rejoin",
        ],
    );
    // Otherwise it would vote after a restart.
    refused_at(&cluster, follower, &data).expect_error(2, &["in quarantine", "--rejoin"]);
    assert_eq!(cluster.ok(&["get", "behind-19"]), b"2");
}

/// A follower's machine was rolled back while another replica came to lead. That one found the end of the follower's log by
/// raft's probes and sent what was missing, so nothing told the follower that it had forgotten what it had acknowledged: it
/// joined without a word, and could have voted before it had those entries, also a second time in one term. The leader of
/// before remembers.
#[test]
fn an_old_copy_of_a_directory_takes_no_part_though_another_replica_leads_by_then() {
    let directory = Directory::new("older-copy");
    let mut cluster = disk_cluster(&directory);
    let (before, follower, data) = put_an_old_copy_back(&mut cluster, &directory);
    let other = 6 - before - follower;
    cluster.ok(&["leader", "transfer", &other.to_string()]);
    wait_for("the other one leads", || {
        (cluster.leader() == other).then_some(())
    });
    let ended = refused_at(&cluster, follower, &data);
    let remembers = format!("node {before} at ");
    ended.expect_error(
        1,
        &[
            "its files are older than what it has promised",
            &remembers,
            "start it with --rejoin",
        ],
    );
    let why = [
        "in quarantine",
        &remembers,
        "--rejoin",
        "recover --quarantined",
    ];
    refused_at(&cluster, follower, &data).expect_error(2, &why);

    let mut line = serve_line(&cluster, follower, &data);
    line.push("--rejoin".to_owned());
    let args: Vec<OsString> = line.iter().map(OsString::from).collect();
    let _follower = Process::start(&program(), &args, follower, None).expect("starts");
    cluster.wait_for_voters(3);
    assert_eq!(cluster.ok(&["get", "behind-19"]), b"2");
}

/// Copies a follower's directory, lets it acknowledge more, ends it, and puts the copy back. Returns the leader, the follower and
/// its directory.
fn put_an_old_copy_back(cluster: &mut Cluster, directory: &Directory) -> (usize, usize, PathBuf) {
    let leader = cluster.leader();
    let follower = leader % 3 + 1;
    cluster.ok(&["put", "before", "1"]);
    cluster.wait_for_voters(3);
    cluster.group.kill(follower).expect("it is alive");
    let data = directory.0.join(format!("replica-{follower}"));
    let copy = directory.0.join("copy");
    copy_files(&data, &copy);
    cluster.group.restart(follower).expect("starts");
    cluster.wait_for_voters(3);
    for number in 0..20 {
        cluster.ok(&["put", &format!("behind-{number}"), "2"]);
    }
    cluster.wait_for_voters(3);

    cluster.group.kill(follower).expect("it is alive");
    std::fs::remove_dir_all(&data).expect("removed");
    copy_files(&copy, &data);
    (leader, follower, data)
}

fn copy_files(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).expect("made");
    for file in std::fs::read_dir(from).expect("a directory") {
        let file = file.expect("an entry").path();
        let name = file.file_name().expect("a name");
        std::fs::copy(&file, to.join(name)).expect("copied");
    }
}

/// Starts a replica that is to end by itself, in the foreground.
fn refused_at(cluster: &Cluster, node_id: usize, data: &Path) -> Ran {
    trine(&as_words(&serve_line(cluster, node_id, data)), "", b"")
}

/// The front for Redis clients took the cluster of the replica that answered first. Beside a replica with the files of
/// another group it served its peers' group.
#[test]
fn a_redis_front_serves_the_group_of_its_own_replica_alone() {
    let (mine, others) = (Directory::new("front"), Directory::new("front-others"));
    let cluster = two_of_three(&mine, &others);
    let resp = format!("127.0.0.1:{}", tcp_ports(1));
    let mut line = serve_third(&cluster, &others.0.join("replica-3"));
    line.extend(["--resp", &resp, "--resp-timeout", "1s"].map(str::to_owned));
    let line: Vec<OsString> = line.into_iter().map(OsString::from).collect();
    let _third = Process::start(&program(), &line, 3, None).expect("starts");
    let mut client = wait_for("the front", || TcpStream::connect(&resp).ok());
    client.write_all(b"GET key\r\n").expect("sent");
    client.shutdown(Shutdown::Write).expect("shut");
    let mut reply = String::new();
    client.read_to_string(&mut reply).expect("a reply");
    assert!(reply.starts_with("-CLUSTERDOWN"), "{reply}");
    assert_eq!(cluster.ok(&["get", "key"]), b"mine");
}
