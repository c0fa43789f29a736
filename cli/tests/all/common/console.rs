//! Runs the `console` blocks of a document as a person types them: line by line in one interactive bash with job control, at
//! a terminal.
//!
//! In expected output `...` stands for any lines and `[..]` for anything within a line. A command that ends with `&`
//! runs until the end of the document. It counts as started once it has printed the expected output. Documents show the
//! default ports; the test replaces them by free ones.
//!
//! Every other command must end with exit status 0, unless the document shows its error. What commands print goes into files,
//! so it is what they print where it is no terminal.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};

use trine_base::ports::free_addresses;

use super::terminal::AtTerminal;
use super::{program, signal, tcp_ports, wait_for};

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
/// end successfully unless an example has ended them.
pub fn run_all(examples: &[Example], shell: &Shell) -> usize {
    let mut session = Session::start(shell);
    for example in examples {
        match example.command.strip_suffix('&') {
            Some(command) => session.start_beside(shell, command.trim(), example),
            None => {
                let (printed, status) = session.run(shell, &example.command);
                assert_printed(example, &printed, status);
            }
        }
    }
    session.end(shell)
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

    /// A line with the program under test and the ports of this test.
    fn line(&self, line: &str) -> String {
        let line = line.replace("cargo run --profile quick -- ", "trine ");
        let real = |line: String, (shown, real): &(String, String)| line.replace(shown, real);
        self.ports.iter().fold(line, real)
    }

    /// An interactive shell, whose terminal becomes that of its jobs.
    fn command(&self) -> Command {
        let mut command = super::terminal::shell();
        command
            .current_dir(&self.directory)
            .env("PATH", &self.path)
            .env("TRINE_BASE_PORT", self.base_port.to_string())
            .env("TRINE_PEERS", &self.peers)
            .env("TRINE_CACHE", &self.cache)
            .env("TRINE_CACHE_LISTEN", &self.cache)
            .env("TRINE_INDEX_LISTEN", &self.cache)
            .env("TRINE_SEQUENCER_LISTEN", &self.cache)
            .env("TRINE_INDEX", &self.cache)
            .env("TRINE_SEQUENCER", &self.cache);
        command
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

/// A shell at a terminal, and the files of what its commands print.
struct Session {
    shell: AtTerminal,
    files: PathBuf,
    lines: usize,
    /// The processes of commands that run beside the others, in the order of their start.
    beside: Vec<u32>,
}

impl Session {
    fn start(shell: &Shell) -> Self {
        static SESSIONS: AtomicUsize = AtomicUsize::new(0);
        let number = SESSIONS.fetch_add(1, Ordering::Relaxed);
        let name = format!("trine-console-{}-{number}", std::process::id());
        let files = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&files).expect("a directory");
        let beside = Vec::new();
        let shell = AtTerminal::start(shell.command());
        Self {
            shell,
            files,
            lines: 0,
            beside,
        }
    }

    /// The next file, for what a line prints.
    fn file(&mut self) -> PathBuf {
        self.lines += 1;
        self.files.join(self.lines.to_string())
    }

    /// Types a line and returns what `tells` prints after it.
    fn type_line(&mut self, line: &str, tells: &str) -> String {
        let told = self.file();
        let at = told.display();
        self.shell
            .press(&format!("{line}\necho \"{tells}.\" >{at}\n"));
        let told = wait_for(&format!("the end of `{line}`"), || {
            let text = std::fs::read_to_string(&told).unwrap_or_default();
            text.trim_end().strip_suffix('.').map(str::to_owned)
        });
        told.to_owned()
    }

    /// The output of a line and its exit status.
    fn run(&mut self, shell: &Shell, line: &str) -> (String, Option<i32>) {
        let file = self.file();
        let line = format!("{{ {}\n}} >{} 2>&1", shell.line(line), file.display());
        let status = self.type_line(&line, "$?");
        let printed = shell.as_shown(&read(&file));
        (without_jobs(&printed), status.parse().ok())
    }

    /// Starts a command beside the others, and waits until it has printed the expected output.
    fn start_beside(&mut self, shell: &Shell, command: &str, example: &Example) {
        let file = self.file();
        let line = format!("{} >{} 2>&1 &", shell.line(command), file.display());
        let pid = self.type_line(&line, "$!");
        self.beside.push(pid.parse().expect("a process"));
        let what = || {
            let printed = shell.as_shown(&read(&file));
            format!(
                "`{command}` to print:\n{}\nIt printed:\n{printed}",
                example.expected.join("\n")
            )
        };
        let seen = super::answer_in_time(|| {
            let printed = shell.as_shown(&read(&file));
            // Its log, which goes into the same file, may follow.
            let lines = lines_of(&printed);
            let mut beginnings = (0..=lines.len()).map(|count| &lines[..count]);
            beginnings
                .find(|lines| matches(&example.expected, lines))
                .map(drop)
        });
        assert!(seen.is_some(), "waited for {}", what());
    }

    /// Ends what still runs with Ctrl-C, in reverse order, so that replicas that joined a group end before the group itself.
    fn end(mut self, shell: &Shell) -> usize {
        let (running, _) = self.run(shell, "jobs -pr");
        let running: Vec<u32> = running
            .lines()
            .filter_map(|line| line.parse().ok())
            .collect();
        let beside = self.beside.clone();
        for pid in beside.iter().rev().filter(|pid| running.contains(pid)) {
            let (printed, status) = self.run(shell, &format!("kill -INT {pid}; wait {pid}"));
            assert_eq!(status, Some(0), "process {pid}: {printed}");
        }
        beside.len()
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        // After a failure something may still run.
        for &pid in &self.beside {
            if is_ours(pid) {
                signal(pid, "KILL");
            }
        }
        let _ = std::fs::remove_dir_all(&self.files);
    }
}

/// Whether the process is one that a document started: numbers are used again.
fn is_ours(pid: u32) -> bool {
    let program = std::fs::read_link(format!("/proc/{pid}/exe"));
    program.is_ok_and(|path| path.starts_with(program_directory()))
}

fn program_directory() -> PathBuf {
    program().parent().expect("a directory").to_owned()
}

fn read(file: &Path) -> String {
    let bytes = std::fs::read(file).unwrap_or_default();
    String::from_utf8_lossy(&bytes).into_owned()
}

/// What a line has printed, without what the shell says of its jobs.
fn without_jobs(printed: &str) -> String {
    let is_of_job = |line: &&str| {
        let number = line.strip_prefix('[').and_then(|rest| rest.split_once(']'));
        number.is_some_and(|(number, rest)| {
            number.parse::<u32>().is_ok()
                && ["+ ", "- ", "  "].iter().any(|mark| rest.starts_with(mark))
        })
    };
    let lines = printed.split_inclusive('\n');
    lines.filter(|line| !is_of_job(line)).collect()
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

/// A document killed job 6 of a shell that had none, and the next line waited for ever: every line had a shell of its own.
#[test]
fn lines_share_a_shell_with_jobs_as_a_person_has_it() {
    let line = |command: &str, expected: &[&str]| Example {
        command: command.into(),
        expected: expected.iter().map(|&line| line.to_owned()).collect(),
    };
    let shell = Shell::new(std::env::temp_dir());
    let examples = [
        line("sleep 100 &", &[]),
        line("sleeper=$!", &[]),
        line(
            "kill -0 $sleeper; echo \"exit status $?\"",
            &["exit status 0"],
        ),
        line(
            "kill %6; echo \"exit status $?\"",
            &["bash: [..]kill: %6: no such job", "exit status 1"],
        ),
        line(
            "kill %1; wait $sleeper; echo \"exit status $?\"",
            &["exit status 143"],
        ),
        line("tty <&0 | grep -o dev", &["dev"]),
    ];
    assert_eq!(run_all(&examples, &shell), 1);
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
