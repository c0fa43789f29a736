//! Shared parts of the tests with real processes: a group, and ways to run the program.
#![allow(dead_code, unreachable_pub)] // each test file uses its part

pub mod console;
pub mod serving;
pub mod terminal;
pub mod up;

use std::io::{Read, Write};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process_group};
use trine_base::network::Udp;
use trine_base::ports::free_addresses;
use trine_base::survey::ask;
use trine_client::{Report, leader_of, voters_in_step};
use trine_local::{Group, GroupConfig};

/// The time limit of a test for any expected event.
pub const LIMIT: Duration = Duration::from_secs(60);

/// The program under test.
pub fn program() -> PathBuf {
    PathBuf::from(env!("CARGO_BIN_EXE_trine"))
}

/// The path of a file, or of a directory with all that is in it, that is removed when this is dropped.
pub struct TempFile(pub PathBuf);

impl TempFile {
    /// Nothing is there yet.
    pub fn new(name: &str) -> Self {
        static FILES: AtomicU32 = AtomicU32::new(0);
        let number = FILES.fetch_add(1, Ordering::Relaxed);
        let file = format!("trine-test-{}-{number}-{name}", std::process::id());
        let path = std::env::temp_dir().join(file);
        let _ = std::fs::remove_file(&path);
        Self(path)
    }

    /// A file with a text in it.
    pub fn holding(name: &str, text: &str) -> Self {
        let file = Self::new(name);
        std::fs::write(&file.0, text).expect("written");
        file
    }

    pub fn path(&self) -> &str {
        self.0.to_str().expect("text")
    }
}

impl Drop for TempFile {
    fn drop(&mut self) {
        if std::fs::remove_file(&self.0).is_err() {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }
}

/// A group of three real replicas on free ports, all voting.
pub struct Cluster {
    pub group: Group,
}

impl Cluster {
    pub fn start(serve_args: &[&str]) -> Self {
        let addresses = free_addresses(3).expect("free ports");
        let serve_args = serve_args.iter().map(Into::into).collect();
        let config = GroupConfig {
            program: program(),
            addresses,
            serve_args,
            sink: None,
        };
        let mut cluster = Self {
            group: Group::start(config).expect("processes"),
        };
        cluster.wait_for_voters(3);
        cluster
    }

    /// The present reports of all replicas.
    pub fn survey(&self) -> Vec<Report> {
        let limit = trine_transport::time::Duration::from_millis(500);
        ask(&Udp::default(), self.group.addresses(), limit).expect("a socket")
    }

    /// The node id of the leader, once there is one.
    pub fn leader(&mut self) -> usize {
        self.answer("a leader", |group, reports| {
            group.node_id_of(leader_of(reports)?.address)
        })
    }

    pub fn wait_for_voters(&mut self, count: usize) {
        let what = format!("{count} voters in step");
        self.wait(&what, |reports| voters_in_step(reports) == Some(count));
    }

    /// Waits until the reports of the replicas fulfil `condition`.
    pub fn wait(&mut self, what: &str, condition: impl Fn(&[Report]) -> bool) {
        self.answer(what, |_, reports| condition(reports).then_some(()));
    }

    /// Waits until the reports of the replicas give an answer.
    fn answer<T>(&mut self, what: &str, of: impl Fn(&Group, &[Report]) -> Option<T>) -> T {
        let limit = trine_transport::time::Duration::from_millis(500);
        let answered = self.group.wait_until(what, LIMIT, |group| {
            let reports = ask(&Udp::default(), group.addresses(), limit).expect("a socket");
            of(group, &reports)
        });
        answered.unwrap_or_else(|error| panic!("{error}"))
    }

    /// Runs a client command against this group.
    pub fn run(&self, args: &[&str]) -> Ran {
        trine(args, &self.group.peers(), b"")
    }

    /// Runs a client command that must succeed; returns its standard output.
    pub fn ok(&self, args: &[&str]) -> Vec<u8> {
        self.run(args).expect_status(0).stdout
    }
}

/// The result of a run of the program.
#[derive(Debug)]
pub struct Ran {
    pub status: Option<i32>,
    pub stdout: Vec<u8>,
    pub stderr: String,
}

impl Ran {
    #[track_caller]
    pub fn expect_status(self, status: i32) -> Self {
        let out = String::from_utf8_lossy(&self.stdout);
        assert_eq!(
            self.status,
            Some(status),
            "stdout: {out}\nstderr: {}",
            self.stderr
        );
        self
    }

    #[track_caller]
    pub fn expect_error(self, status: i32, parts: &[&str]) -> Self {
        let ran = self.expect_status(status);
        for part in parts {
            assert!(
                ran.stderr.contains(part),
                "{part:?} is missing in: {}",
                ran.stderr
            );
        }
        ran
    }

    #[track_caller]
    pub fn json(&self) -> serde_json::Value {
        let text = String::from_utf8_lossy(&self.stdout);
        serde_json::from_slice(&self.stdout).unwrap_or_else(|error| panic!("{error}: {text}"))
    }
}

impl From<Output> for Ran {
    fn from(output: Output) -> Self {
        Self {
            status: output.status.code(),
            stdout: output.stdout,
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }
}

/// A command line of the program, isolated from the caller's environment.
pub fn command(args: &[&str], peers: &str) -> Command {
    let mut command = Command::new(program());
    command
        .args(args)
        .env_remove("TRINE_BASE_PORT")
        .env_remove("TRINE_CACHE")
        .env_remove("TRINE_KEY")
        .env_remove("TRINE_KEY_STAGE")
        .env_remove("TRINE_INSECURE")
        .env_remove("TRINE_PEERS")
        .env("XDG_STATE_HOME", state());
    if !peers.is_empty() {
        command.env("TRINE_PEERS", peers);
    }
    command
}

/// Where the program keeps what it otherwise keeps in the user's home.
pub fn state() -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join("state")
}

/// Runs the program to its end, at most for [`LIMIT`].
pub fn trine(args: &[&str], peers: &str, stdin: &[u8]) -> Ran {
    let mut child = command(args, peers)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program starts");
    // A command that takes no value may end before it has read its input.
    let _ = child.stdin.take().expect("piped").write_all(stdin);
    finish(child)
}

/// Waits for the end of `child` while its output is read. At the limit the child is killed, and the test fails.
#[track_caller]
pub fn finish(child: Child) -> Ran {
    finish_or_kill(child, |child| {
        let _ = child.kill();
    })
}

/// As [`finish`], for a child that leads a process group. At the limit the whole group is killed.
#[track_caller]
pub fn finish_group(child: Child) -> Ran {
    finish_or_kill(child, |child| {
        let _ = kill_process_group(Pid::from_child(child), Signal::KILL);
    })
}

#[track_caller]
fn finish_or_kill(mut child: Child, kill: fn(&mut Child)) -> Ran {
    let mut stdout = child.stdout.take().expect("piped");
    let mut stderr = child.stderr.take().expect("piped");
    let out = std::thread::spawn(move || {
        let mut bytes = Vec::new();
        stdout.read_to_end(&mut bytes).map(|_| bytes)
    });
    let err = std::thread::spawn(move || {
        let mut text = Vec::new();
        stderr.read_to_end(&mut text).map(|_| text)
    });
    let Some(status) = answer_in_time(|| child.try_wait().expect("wait")) else {
        kill(&mut child);
        let _ = child.wait();
        panic!("the program's end did not happen within {LIMIT:?}");
    };
    Ran {
        status: status.code(),
        stdout: out.join().expect("reader").expect("read"),
        stderr: String::from_utf8_lossy(&err.join().expect("reader").expect("read")).into_owned(),
    }
}

/// Repeats a question until there is an answer, at most for [`LIMIT`].
#[track_caller]
pub fn wait_for<T>(what: &str, answer: impl FnMut() -> Option<T>) -> T {
    match answer_in_time(answer) {
        Some(answer) => answer,
        None => panic!("{what} did not happen within {LIMIT:?}"),
    }
}

/// The same, with nothing at the limit.
fn answer_in_time<T>(mut answer: impl FnMut() -> Option<T>) -> Option<T> {
    let until = Instant::now() + LIMIT;
    loop {
        if let Some(answer) = answer() {
            return Some(answer);
        }
        if Instant::now() >= until {
            return None;
        }
        std::thread::park_timeout(Duration::from_millis(5));
    }
}

/// A script of the shell that writes 2,000 keys below `k/`: some two million bytes, which a walk reads in several pages.
pub fn script_of_pages() -> String {
    let value = "v".repeat(1_000);
    let line = |number| format!("put k/{number:04} {value}\n");
    (0..2_000).map(line).collect()
}

/// Says that something is not tested, because this machine cannot do it. Where the environment variable `need` is 1, as
/// in the gate, that is a failure.
#[track_caller]
pub fn leave_out(why: &str, need: &str) {
    let is_needed = std::env::var(need).is_ok_and(|value| value == "1");
    assert!(!is_needed, "{why}, but {need}=1");
    eprintln!("skipped: {why}");
}

/// Whether the process with this id exists and has not ended.
pub fn is_alive(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let state = stat
        .rsplit(')')
        .next()
        .and_then(|rest| rest.trim().chars().next());
    !matches!(state, None | Some('Z' | 'X'))
}

/// The ids of the processes that `parent` has started and that are alive.
pub fn children_of(parent: u32) -> Vec<u32> {
    let of_thread =
        |task: &Path| std::fs::read_to_string(task.join("children")).unwrap_or_default();
    let tasks = std::fs::read_dir(format!("/proc/{parent}/task"))
        .into_iter()
        .flatten()
        .flatten();
    tasks
        .flat_map(|task| {
            let text = of_thread(&task.path());
            text.split_whitespace()
                .filter_map(|pid| pid.parse().ok())
                .collect::<Vec<u32>>()
        })
        .filter(|pid| is_alive(*pid))
        .collect()
}

/// Sends a signal by its name, as a shell would.
pub fn signal(pid: u32, name: &str) {
    let status = Command::new("kill")
        .args(["-s", name, &pid.to_string()])
        .status();
    assert!(status.expect("kill").success());
}

/// Returns the first of `count` consecutive free TCP ports of loopback. They are below the kernel's range for
/// unspecified ports. Each process searches in a different part, so that no other takes one meanwhile.
pub fn tcp_ports(count: u16) -> u16 {
    static TURN: AtomicU32 = AtomicU32::new(0);
    let free = |port| TcpListener::bind(("127.0.0.1", port)).is_ok();
    for _ in 0..1_000 {
        let turn = TURN.fetch_add(1, Ordering::Relaxed);
        let place = (std::process::id().wrapping_mul(7) + turn) % 1_000;
        let first = 20_000 + u16::try_from(place).expect("small") * 8;
        if (first..first + count).all(free) {
            return first;
        }
    }
    panic!("no {count} free ports");
}
