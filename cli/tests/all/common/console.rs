//! Runs the `console` blocks of a document, line by line, each in a shell.
//!
//! In expected output `...` stands for any lines and `[..]` for anything within a line. A command that ends with `&`
//! runs until the end of the document. It counts as started once it has printed the expected output. Later lines call
//! the first such command `%1`, as in a shell. Documents show the default ports; the test replaces them by free ones.
//!
//! Every other command must end with exit status 0, unless the document shows its error.

use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};

use trine_base::ports::free_addresses;

use super::{LIMIT, finish_group, program, signal, tcp_ports, wait_for};

/// The ports that a document may show: first and count of replicas, and of services over TCP.
const REPLICA_PORTS: (u16, u16) = (7471, 6);
const METRICS_PORTS: (u16, u16) = (9471, 4);
const REDIS_PORTS: (u16, u16) = (7101, 4);

/// A command and its output according to the document.
#[derive(Debug, PartialEq)]
pub struct Example {
    pub command: String,
    pub expected: Vec<String>,
}

/// Runs all examples and returns how many commands ran in the background. At the end Ctrl-C stops these, and they must
/// end successfully unless an example has killed them.
pub fn run_all(examples: &[Example], shell: &Shell) -> usize {
    let mut servers: Vec<Background> = Vec::new();
    for example in examples {
        let line = with_pids(&example.command, &servers);
        // A reader's shell waits for its own child. Here every line has a shell of its own, so the test waits below.
        let line = line.split("; wait ").next().unwrap_or_default();
        match line.strip_suffix('&') {
            Some(command) => servers.push(Background::start(shell, command.trim(), example)),
            None => {
                let (printed, status) = shell.run(line);
                assert_printed(example, &printed, status);
            }
        }
        let kills = ["kill -9 ", "kill -TERM ", "kill -INT "];
        if kills.iter().any(|kill| line.starts_with(kill)) {
            let is_meant = |server: &&mut Background| server.is_named_in(line);
            servers
                .iter_mut()
                .filter(is_meant)
                .for_each(Background::wait);
        }
    }
    let count = servers.len();
    // They stop in reverse order, so that replicas that joined a group end before the group itself.
    servers.into_iter().rev().for_each(Background::stop);
    count
}

/// `%1` is the process that was started first.
fn with_pids(line: &str, servers: &[Background]) -> String {
    let mut line = line.to_owned();
    for (index, server) in servers.iter().enumerate() {
        line = line.replace(&format!("%{}", index + 1), &server.child.id().to_string());
    }
    line
}

/// The examples in the `console` blocks, in order.
pub fn examples(text: &str) -> Vec<Example> {
    let mut found: Vec<Example> = Vec::new();
    let mut in_block = false;
    for line in text.lines() {
        match (in_block, line) {
            (false, "```console") => in_block = true,
            (true, "```") => in_block = false,
            (true, line) => match line.strip_prefix("$ ") {
                Some(command) => found.push(Example {
                    command: command.into(),
                    expected: vec![],
                }),
                None => found
                    .last_mut()
                    .expect("a command first")
                    .expected
                    .push(line.into()),
            },
            (false, _) => {}
        }
    }
    found
}

/// The environment of the commands: `trine` is the program under test, and its ports are free ones.
pub struct Shell {
    directory: PathBuf,
    path: String,
    base_port: u16,
    peers: String,
    /// Of a cache, an index or a sequencer: no document starts two of them.
    cache: String,
    ports: Vec<(String, String)>,
}

impl Shell {
    /// A shell in `directory`.
    pub fn new(directory: PathBuf) -> Self {
        let programs = program()
            .parent()
            .expect("a directory")
            .display()
            .to_string();
        // The ports serve a group and the replicas that join it, then a cache, an index or a sequencer of two threads.
        let group = usize::from(REPLICA_PORTS.1);
        let addresses = free_addresses(group + 2).expect("free ports");
        let peers: Vec<String> = addresses[..3].iter().map(ToString::to_string).collect();
        let base_port = addresses[0].port();
        let ports = renamed(REPLICA_PORTS, base_port)
            .chain(renamed(METRICS_PORTS, tcp_ports(METRICS_PORTS.1)))
            .chain(renamed(REDIS_PORTS, tcp_ports(REDIS_PORTS.1)))
            .collect();
        Self {
            directory,
            path: format!("{programs}:{}", std::env::var("PATH").unwrap_or_default()),
            base_port,
            peers: peers.join(","),
            cache: addresses[group].to_string(),
            ports,
        }
    }

    fn command(&self, line: &str) -> Command {
        let mut line = line.replace("cargo run --release -- ", "trine ");
        for (shown, real) in &self.ports {
            line = line.replace(shown, real);
        }
        let mut command = Command::new("sh");
        command
            .args(["-c", &format!("exec 2>&1; {line}")])
            .current_dir(&self.directory)
            .env("PATH", &self.path)
            .env("XDG_STATE_HOME", super::state())
            .env("TRINE_BASE_PORT", self.base_port.to_string())
            .env("TRINE_PEERS", &self.peers)
            .env("TRINE_CACHE", &self.cache)
            .env("TRINE_INDEX", &self.cache)
            .env("TRINE_SEQUENCER", &self.cache)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    }

    /// The output of a line and its exit status.
    fn run(&self, line: &str) -> (String, Option<i32>) {
        let mut command = self.command(line);
        // Whatever the shell has started can be ended with it.
        command.process_group(0);
        let ran = finish_group(command.spawn().expect("a shell"));
        let printed = self.as_shown(&String::from_utf8_lossy(&ran.stdout));
        (printed, ran.status)
    }

    /// Output with the ports that the documents show.
    fn as_shown(&self, printed: &str) -> String {
        let back = |text: String, (shown, real): &(String, String)| text.replace(real, shown);
        self.ports.iter().fold(printed.to_owned(), back)
    }
}

/// The number in a document, and its replacement while the document runs.
fn renamed((shown, count): (u16, u16), real: u16) -> impl Iterator<Item = (String, String)> {
    (0..count).map(move |at| ((shown + at).to_string(), (real + at).to_string()))
}

/// A command that runs beside the others. Ctrl-C ends it, also when a test fails.
struct Background {
    child: Child,
}

impl Background {
    /// Starts it and waits until it has printed the expected output.
    fn start(shell: &Shell, line: &str, example: &Example) -> Self {
        let mut child = shell.command(&format!("exec {line}"));
        let mut child = child.spawn().expect("a shell");
        let reader = BufReader::new(child.stdout.take().expect("piped"));
        let (lines, read) = mpsc::channel();
        // A thread reads the rest, because the command would block otherwise.
        std::thread::spawn(move || {
            for line in reader.lines().map_while(Result::ok) {
                let _ = lines.send(line);
            }
        });
        // From here on the command ends with the test.
        let started = Self { child };
        let mut printed = String::new();
        while !matches(&example.expected, &lines_of(&shell.as_shown(&printed))) {
            match read.recv_timeout(LIMIT) {
                Ok(read) => printed += &format!("{read}\n"),
                Err(RecvTimeoutError::Disconnected) => {
                    panic!("`{line}` ended early and printed:\n{printed}")
                }
                Err(RecvTimeoutError::Timeout) => panic!(
                    "`{line}` should print:\n{}\nand printed:\n{printed}",
                    example.expected.join("\n")
                ),
            }
        }
        started
    }

    fn is_named_in(&self, line: &str) -> bool {
        let pid = self.child.id().to_string();
        line.split_whitespace().any(|word| word == pid)
    }

    /// Waits for its end, as a reader does before the next step.
    fn wait(&mut self) {
        wait_for("the end", || self.child.try_wait().expect("wait"));
    }

    /// Ends it with Ctrl-C. If an example has already ended it, any exit status is right.
    fn stop(mut self) {
        if self.child.try_wait().expect("wait").is_some() {
            return;
        }
        signal(self.child.id(), "INT");
        let status = wait_for("the server's end", || self.child.try_wait().expect("wait"));
        assert!(status.success(), "{status}");
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        // This happens only after a failure. The group's replicas end with it.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn lines_of(text: &str) -> Vec<&str> {
    text.lines().collect()
}

#[track_caller]
fn assert_printed(example: &Example, printed: &str, status: Option<i32>) {
    assert!(
        matches(&example.expected, &lines_of(printed)),
        "`{}` should print:\n{}\nbut printed:\n{printed}",
        example.command,
        example.expected.join("\n")
    );
    assert!(
        ends_as_shown(example, status),
        "`{}` ended with {status:?} and printed:\n{printed}",
        example.command
    );
}

/// Whether a reader would expect this exit status. It is 0, unless an error is shown.
fn ends_as_shown(example: &Example, status: Option<i32>) -> bool {
    // This command ends with 1 where the machine has an obstacle.
    if example.command == "trine doctor" {
        return matches!(status, Some(0 | 1));
    }
    // The second is the word of `trine-packets`, and of any command line that cannot be read.
    let is_error = |line: &String| line.starts_with("trine: ") || line.starts_with("error: ");
    // `echo` tells the status of the command before it, and succeeds.
    let is_told = example.command.contains("$?");
    let fails = !is_told && example.expected.iter().any(is_error);
    status.is_some_and(|status| (status != 0) == fails)
}

/// Whether the lines are as expected; a line `...` stands for any number of lines.
pub fn matches(expected: &[String], lines: &[&str]) -> bool {
    match expected.split_first() {
        None => lines.is_empty(),
        Some((first, rest)) if first == "..." => {
            (0..=lines.len()).any(|skip| matches(rest, &lines[skip..]))
        }
        Some((first, rest)) => match lines.split_first() {
            Some((line, others)) => line_matches(first, line) && matches(rest, others),
            None => false,
        },
    }
}

/// Whether the line is as expected; `[..]` stands for anything.
fn line_matches(expected: &str, line: &str) -> bool {
    let line = line.trim_end();
    match expected.split_once("[..]") {
        None => expected == line,
        Some((start, rest)) => line.strip_prefix(start).is_some_and(|tail| {
            let ends = (0..=tail.len()).filter(|at| tail.is_char_boundary(*at));
            ends.into_iter().any(|at| line_matches(rest, &tail[at..]))
        }),
    }
}

#[test]
fn only_a_shown_error_excuses_an_exit_status() {
    let ends = |command: &str, expected: &str, status| {
        let example = Example {
            command: command.into(),
            expected: vec![expected.into()],
        };
        ends_as_shown(&example, Some(status))
    };
    assert!(ends("trine status", "...", 0));
    assert!(!ends("trine status", "...", 3));
    assert!(ends("trine get k", "trine: no such key: k", 1));
    assert!(!ends("trine get k", "trine: no such key: k", 0));
    let told = "trine get k; echo \"exit status $?\"";
    assert!(ends(told, "trine: no such key: k", 0));
    assert!(ends("trine doctor", "...", 1));
    assert!(!ends("trine doctor", "...", 2));
}
