//! Processes of a test: started with a role, watched, and ended whatever happens.
#![allow(unsafe_code)]

use std::env;
use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

const ROLE: &str = "TRINE_DPDK_ROLE";
/// How long any one process may take, on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);
/// The user that unprivileged processes become.
const NOBODY: u32 = 65_534;

/// The role that this process was started for, and its arguments.
pub(crate) fn own_role() -> Option<(String, Vec<String>)> {
    let role = env::var(ROLE).ok()?;
    Some((role, env::args().skip(1).collect()))
}

/// A started process; killed when dropped.
pub(crate) struct Process {
    role: String,
    child: Child,
    output: BufReader<ChildStdout>,
}

/// Starts this program again with a role. Its standard output is read by the director, its errors go to the terminal.
pub(crate) fn start(role: &str, arguments: &[&str]) -> Process {
    let program = env::current_exe().expect("the own program");
    start_command(Command::new(program), role, arguments)
}

/// Like [`start`], inside a network namespace.
#[allow(dead_code, reason = "for the cases with network devices")]
pub(crate) fn start_in(namespace: &str, role: &str, arguments: &[&str]) -> Process {
    let mut command = Command::new("ip");
    command
        .args(["netns", "exec", namespace])
        .arg(env::current_exe().expect("the own program"));
    start_command(command, role, arguments)
}

fn start_command(mut command: Command, role: &str, arguments: &[&str]) -> Process {
    let mut child = command
        .args(arguments)
        .env(ROLE, role)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap_or_else(|error| panic!("cannot start {role}: {error}"));
    let output = BufReader::new(child.stdout.take().expect("piped"));
    Process {
        role: role.to_owned(),
        child,
        output,
    }
}

impl Process {
    /// Waits for a line of output that starts with `word`, and returns what follows.
    pub(crate) fn expect(&mut self, word: &str) -> String {
        loop {
            let mut line = String::new();
            let count = self.output.read_line(&mut line).expect("readable output");
            assert!(count > 0, "{} ended before it said `{word}`", self.role);
            if let Some(rest) = line.strip_prefix(word) {
                return rest.trim().to_owned();
            }
        }
    }

    /// Ends the process's [`wait_for_sign`].
    #[allow(dead_code, reason = "for the benchmarks")]
    pub(crate) fn sign(&mut self) {
        let pipe = self.child.stdin.as_mut().expect("not released yet");
        pipe.write_all(b"\n").expect("a process that listens");
    }

    /// Ends the process's [`wait_for_director`].
    pub(crate) fn release(&mut self) {
        drop(self.child.stdin.take());
    }

    /// Waits until the process ended well, and returns the rest of its output.
    pub(crate) fn finish(mut self) -> String {
        let deadline = Instant::now() + PATIENCE;
        let status = loop {
            if let Some(status) = self.child.try_wait().expect("a child") {
                break status;
            }
            assert!(Instant::now() < deadline, "{} did not end", self.role);
            std::thread::sleep(Duration::from_millis(5));
        };
        let mut rest = String::new();
        self.output
            .read_to_string(&mut rest)
            .expect("readable output");
        assert!(status.success(), "{} failed: {status}\n{rest}", self.role);
        rest
    }

    #[allow(dead_code, reason = "for the cases that send signals")]
    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // A process that a signal ended says nothing itself, and its peer only waits in vain.
        if std::thread::panicking() {
            match self.child.try_wait() {
                Ok(Some(status)) => eprintln!("{} has ended: {status}", self.role),
                Ok(None) => eprintln!("{} still runs", self.role),
                Err(error) => eprintln!("{}: {error}", self.role),
            }
        }
        // Ended already, or stuck: either way it must not outlive the case.
        let _gone = self.child.kill();
        let _status = self.child.wait();
    }
}

/// Blocks until the director calls [`Process::sign`].
#[allow(dead_code, reason = "for the benchmarks")]
pub(crate) fn wait_for_sign() {
    let count = std::io::stdin().read(&mut [0]).expect("a pipe");
    assert_eq!(count, 1, "the director died");
}

/// Blocks until the director calls [`Process::release`].
pub(crate) fn wait_for_director() {
    let count = std::io::stdin().read(&mut [0]).expect("a pipe");
    assert_eq!(count, 0, "the director says nothing, it hangs up");
}

/// Gives up root permanently.
pub(crate) fn become_nobody() {
    if !is_root() {
        return;
    }
    // SAFETY: no group list, of length zero.
    let groups = unsafe { libc::setgroups(0, std::ptr::null()) };
    // SAFETY: takes a number.
    let group = unsafe { libc::setgid(NOBODY) };
    // SAFETY: takes a number.
    let user = unsafe { libc::setuid(NOBODY) };
    assert_eq!((groups, group, user), (0, 0, 0), "giving up root");
    assert!(!is_root(), "still root");
}

pub(crate) fn is_root() -> bool {
    // SAFETY: no arguments.
    unsafe { libc::geteuid() == 0 }
}

/// Repeats `attempt` until it gives something.
pub(crate) fn until<T>(what: &str, mut attempt: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(result) = attempt() {
            return result;
        }
        assert!(Instant::now() < deadline, "in vain: {what}");
        std::thread::yield_now();
    }
}
