//! A group of three replicas and a client, each on a host of its own, and what it has to be able to do.

use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use serde_json::Value;
use trine_testnet::Hosts;

use crate::common::{Ran, TempFile, finish, program, state, trine, wait_for};

const REPLICAS: usize = 3;
/// The host of all clients.
const CLIENT: usize = 3;
const PORT: u16 = 7_471;
/// Values on both sides of each limit of a packet, and of many packets.
const VALUES: [usize; 8] = [1_000, 1_150, 1_232, 1_300, 1_500, 5_000, 100_000, 1 << 20];
/// No client may be left without an answer for longer when a link changes its size. The machine is shared with other
/// tests, so that this is more than the second that it may take by itself.
pub(super) const GAP_MAX: Duration = Duration::from_secs(3);

/// How replicas and clients are started.
#[derive(Copy, Clone, Debug)]
pub(super) struct Options {
    pub(super) is_v6: bool,
    pub(super) is_sealed: bool,
    /// `--mtu` of the three replicas and of the client.
    pub(super) mtu: [Option<u16>; 4],
}

pub(super) struct Group<'a> {
    hosts: &'a Hosts,
    options: Options,
    peers: String,
    key: Option<TempFile>,
    replicas: std::cell::RefCell<Vec<Replica>>,
}

struct Replica {
    process: Child,
    log: TempFile,
}

impl Drop for Replica {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        if std::thread::panicking() {
            let log = std::fs::read_to_string(&self.log.0).unwrap_or_default();
            eprintln!("--- a replica's log:\n{log}");
        }
    }
}

impl<'a> Group<'a> {
    pub(super) fn start(hosts: &'a Hosts, options: Options) -> Self {
        let key = options.is_sealed.then(|| {
            let file = TempFile::new("packet-sizes.key");
            let made = Command::new(program())
                .args(["key", "new", "--out", file.path()])
                .output();
            assert!(made.expect("the program runs").status.success());
            file
        });
        let mut group = Self {
            hosts,
            options,
            peers: String::new(),
            key,
            replicas: std::cell::RefCell::new(Vec::new()),
        };
        let addresses = (0..REPLICAS).map(|host| group.address(host));
        group.peers = addresses.collect::<Vec<_>>().join(",");
        for host in 0..REPLICAS {
            let replica = group.start_replica(host, host == 0);
            group.replicas.borrow_mut().push(replica);
        }
        group.wait_until_whole();
        group
    }

    fn address(&self, host: usize) -> String {
        let ip = self.hosts.address(host, self.options.is_v6);
        SocketAddr::new(ip, PORT).to_string()
    }

    /// Replica 1 says so if its own interface carries less than its `--mtu`.
    pub(super) fn warned_of_its_interface(&self, is_told_too_much: bool) {
        let log = std::fs::read_to_string(&self.replicas.borrow()[0].log.0).expect("a log");
        let warned = log.contains("than the interface towards");
        assert_eq!(warned, is_told_too_much, "{log}");
    }

    /// The sizes that the replicas have agreed on: the smaller of both, or what every path carries after a black hole.
    fn agrees_on_the_smaller_size(&self, status: &Value) {
        let own = |host: usize| self.options.mtu[host].unwrap_or(1_232);
        for (from, report) in status["replicas"]
            .as_array()
            .expect("reports")
            .iter()
            .enumerate()
        {
            for link in report["status"]["links"].as_array().expect("links") {
                let Some(bytes) = link["packet_bytes"].as_u64() else {
                    continue;
                };
                let mut to = 0..REPLICAS;
                let to = to.find(|host| link["address"] == self.address(*host));
                let agreed = own(from).min(own(to.expect("a link to a replica")));
                assert!([agreed, 1_232].map(u64::from).contains(&bytes), "{link}");
            }
        }
    }

    pub(super) fn takes_values_of_every_size(&self) {
        for bytes in VALUES {
            let (key, value) = (format!("k{bytes}"), vec![b'v'; bytes]);
            self.run(&["put", &key, "-"], &value).expect_status(0);
            let got = self.run(&["get", &key], b"").expect_status(0).stdout;
            assert!(got == value, "{bytes} bytes came back changed");
        }
    }

    /// Status, doctor, backup and watch.
    pub(super) fn answers_everything_else(&self) {
        self.agrees_on_the_smaller_size(&self.status());

        let mut watch = self.client(&["watch", "--limit", "1", "--keys-only", "watched"]);
        let mut watch = watch.stdout(Stdio::piped()).spawn().expect("it starts");
        let lines = BufReader::new(watch.stdout.take().expect("piped"));
        wait_for("a change that the watcher sees", || {
            self.run(&["put", "watched", "-"], &vec![b'w'; 20_000])
                .expect_status(0);
            watch.try_wait().expect("wait")
        });
        assert!(lines.lines().count() > 0);

        let file = TempFile::new("packet-sizes.backup");
        self.run(&["backup", file.path()], b"").expect_status(0);
        let verified = ["backup", "verify", file.path()];
        trine(&verified, "", b"").expect_status(0);
    }

    /// Small packets of many clients share datagrams.
    pub(super) fn takes_small_values_of_many_clients(&self) {
        let before = self.packets();
        let bench = [
            "bench",
            "--clients",
            "16",
            "--for",
            "2s",
            "--warmup",
            "100ms",
            "--keys",
            "1000",
            "--json",
        ];
        self.run(&bench, b"").expect_status(0);
        let after = self.packets();
        let (sent, again) = (after.0 - before.0, after.1 - before.1);
        eprintln!("    16 clients: {sent} packets of replicas, {again} of them again");
        assert!(sent > 1_000, "{sent} packets");
    }

    /// A replica dies with its memory. It comes back and gets the whole state as a snapshot.
    pub(super) fn takes_a_member_in_again(&self) {
        let last = REPLICAS - 1;
        drop(self.replicas.borrow_mut().pop());
        let replica = self.start_replica(last, false);
        self.replicas.borrow_mut().push(replica);
        self.wait_until_whole();
    }

    /// Clients that write one value after the other until the load is dropped.
    pub(super) fn load(&self) -> Load {
        let progress = Arc::new(Progress::default());
        let clients = (0..2).map(|number| {
            let put = self.client(&["put", &format!("load-{number}"), "-"]);
            let progress = Arc::clone(&progress);
            std::thread::spawn(move || write_on(&put, &progress))
        });
        Load {
            clients: clients.collect(),
            progress,
        }
    }

    fn start_replica(&self, host: usize, begins: bool) -> Replica {
        let log = TempFile::new("packet-sizes.log");
        let file = File::create(&log.0).expect("a log");
        let id = (host + 1).to_string();
        let mut command = self.command(host, &["serve", "--id", &id]);
        if begins {
            command.arg("--bootstrap");
        }
        if self.key.is_none() {
            command.arg("--insecure");
        }
        let process = command
            .stdin(Stdio::null())
            .stdout(file.try_clone().expect("a second handle"))
            .stderr(file)
            .spawn()
            .expect("a replica starts");
        Replica { process, log }
    }

    fn wait_until_whole(&self) {
        wait_for("a group that tolerates a failure", || {
            let status = self.run(&["status"], b"");
            let text = String::from_utf8_lossy(&status.stdout);
            text.contains("tolerates 1 more failure").then_some(())
        });
    }

    /// The status of all replicas. On a busy machine one may take longer than the command waits.
    fn status(&self) -> Value {
        wait_for("the status of all replicas", || {
            let status = self.run(&["status", "--json"], b"").expect_status(0).json();
            let reports = status["replicas"].as_array()?;
            let all = reports.len() == REPLICAS;
            let answered = reports.iter().all(|report| report["status"].is_object());
            (all && answered).then_some(status)
        })
    }

    /// Packets that all replicas have sent, and those that they have sent again.
    fn packets(&self) -> (u64, u64) {
        let status = self.status();
        let replicas = status["replicas"].as_array().expect("reports");
        let sum = |name: &str| {
            let of_one = |report: &Value| {
                let count = &report["status"]["transport"][name];
                count
                    .as_u64()
                    .unwrap_or_else(|| panic!("no {name}: {report}"))
            };
            replicas.iter().map(of_one).sum()
        };
        (sum("packets_sent"), sum("retransmissions"))
    }

    fn run(&self, arguments: &[&str], stdin: &[u8]) -> Ran {
        run(self.client(arguments), stdin)
    }

    fn client(&self, arguments: &[&str]) -> Command {
        let mut command = self.command(CLIENT, arguments);
        command.args(["--timeout", "20s"]);
        command
    }

    fn command(&self, host: usize, arguments: &[&str]) -> Command {
        let mut command = self.hosts.command(host, program());
        command
            .args(arguments)
            .args(["--peers", &self.peers])
            .env("XDG_STATE_HOME", state());
        for name in [
            "TRINE_KEY",
            "TRINE_KEY_STAGE",
            "TRINE_INSECURE",
            "TRINE_PEERS",
            "TRINE_MTU",
        ] {
            command.env_remove(name);
        }
        if let Some(key) = &self.key {
            command.args(["--key", key.path()]);
        }
        if let Some(bytes) = self.options.mtu[host] {
            command.args(["--mtu", &bytes.to_string()]);
        }
        command
    }
}

/// Clients at work.
pub(super) struct Load {
    clients: Vec<JoinHandle<Duration>>,
    progress: Arc<Progress>,
}

#[derive(Default)]
struct Progress {
    answers: AtomicU64,
    is_over: AtomicBool,
}

impl Load {
    /// Waits for so many more answers.
    pub(super) fn wait_for_answers(&self, count: u64) {
        let answers = || self.progress.answers.load(Ordering::Relaxed);
        let enough = answers() + count;
        wait_for("answers", || (answers() >= enough).then_some(()));
    }

    /// Ends it. Returns the longest time for which a client had no answer.
    pub(super) fn longest_gap(self) -> Duration {
        self.progress.is_over.store(true, Ordering::Relaxed);
        let gaps = self.clients.into_iter();
        let gaps = gaps.map(|client| client.join().expect("a client that works"));
        gaps.max().unwrap_or_default()
    }
}

/// Writes values of several sizes, one at a time. Returns the longest time that a command took.
fn write_on(put: &Command, progress: &Progress) -> Duration {
    let mut longest = Duration::ZERO;
    for bytes in [100, 1_300, 5_000].into_iter().cycle() {
        if progress.is_over.load(Ordering::Relaxed) {
            break;
        }
        let asked = Instant::now();
        run(again(put), &vec![b'v'; bytes]).expect_status(0);
        longest = longest.max(asked.elapsed());
        progress.answers.fetch_add(1, Ordering::Relaxed);
    }
    longest
}

/// The same command once more.
fn again(command: &Command) -> Command {
    let mut again = Command::new(command.get_program());
    again.args(command.get_args());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => again.env(name, value),
            None => again.env_remove(name),
        };
    }
    again
}

/// Runs a command to its end.
fn run(mut command: Command, stdin: &[u8]) -> Ran {
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program starts");
    let _ = child.stdin.take().expect("piped").write_all(stdin);
    finish(child)
}
