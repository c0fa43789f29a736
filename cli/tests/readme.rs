//! Does every command that the README shows work, and does it print what the README says?
//!
//! The `console` blocks are run line by line in a shell. In expected output `...` stands for any
//! lines and `[..]` for anything within a line.

mod common;

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use common::{program, signal, wait_for};
use trine_chaos::live::free_addresses;

/// A command and the lines that it prints according to the README.
#[derive(Debug, PartialEq)]
struct Example {
    command: String,
    expected: Vec<String>,
}

#[test]
fn every_command_of_the_readme_works_as_shown() {
    let readme = std::fs::read_to_string(repository().join("README.md")).expect("a README");
    let examples = examples(&readme);
    assert!(
        examples.len() > 8,
        "the README shows {} commands",
        examples.len()
    );
    let shell = Shell::new();
    let mut servers = Vec::new();
    for example in &examples {
        match example.command.strip_suffix('&') {
            Some(command) => servers.push(Background::start(&shell, command.trim(), example)),
            None => {
                let printed = shell.run(&example.command);
                assert_printed(example, &printed);
            }
        }
    }
    assert_eq!(servers.len(), 2, "the README starts a group and a cache");
    for server in servers {
        server.stop();
    }
}

#[test]
fn the_readme_names_the_test_command_for_the_gate() {
    let readme = std::fs::read_to_string(repository().join("README.md")).expect("a README");
    assert!(
        readme
            .lines()
            .any(|line| line.trim() == "cargo test --workspace")
    );
}

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .expect("the workspace")
        .to_path_buf()
}

/// The examples in the `console` blocks, in order.
fn examples(text: &str) -> Vec<Example> {
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

/// Where the commands run: `trine` is the program under test, its ports are free ones.
struct Shell {
    path: String,
    base_port: String,
    peers: String,
    cache: String,
}

impl Shell {
    fn new() -> Self {
        let directory = program()
            .parent()
            .expect("a directory")
            .display()
            .to_string();
        // A group of three, then a cache of two threads.
        let addresses = free_addresses(5).expect("free ports");
        let cache = addresses[3].to_string();
        let base = addresses[0].port();
        let peers: Vec<String> = addresses[..3].iter().map(ToString::to_string).collect();
        let path = format!("{directory}:{}", std::env::var("PATH").unwrap_or_default());
        Self {
            path,
            base_port: base.to_string(),
            peers: peers.join(","),
            cache,
        }
    }

    fn command(&self, line: &str) -> Command {
        let line = line.replace("cargo run --release -- ", "trine ");
        let mut command = Command::new("sh");
        command
            .args(["-c", &format!("exec 2>&1; {line}")])
            .current_dir(repository())
            .env("PATH", &self.path)
            .env("TRINE_BASE_PORT", &self.base_port)
            .env("TRINE_PEERS", &self.peers)
            .env("TRINE_CACHE", &self.cache)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    }

    fn run(&self, line: &str) -> String {
        let ran = common::finish(self.command(line).spawn().expect("a shell"));
        String::from_utf8_lossy(&ran.stdout).into_owned()
    }
}

/// A command that goes on while the others run; ended with Ctrl-C, also when a test fails.
struct Background {
    child: Child,
}

impl Background {
    /// Starts it and waits until it has printed what is expected.
    fn start(shell: &Shell, line: &str, example: &Example) -> Self {
        let mut child = shell.command(&format!(
            "exec {}",
            line.replace("cargo run --release -- ", "trine ")
        ));
        let mut child = child.spawn().expect("a shell");
        let mut reader = std::io::BufReader::new(child.stdout.take().expect("piped"));
        let mut printed = String::new();
        while !matches(&example.expected, &lines_of(&printed)) {
            let read = std::io::BufRead::read_line(&mut reader, &mut printed).expect("output");
            assert!(read > 0, "`{line}` ended early and printed:\n{printed}");
        }
        // The rest has to go somewhere, or the command would block.
        std::thread::spawn(move || std::io::copy(&mut reader, &mut std::io::sink()));
        Self { child }
    }

    fn stop(mut self) {
        signal(self.child.id(), "INT");
        let status = wait_for("the server's end", || self.child.try_wait().expect("wait"));
        assert!(status.success(), "{status}");
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        // Only after a failure: the group's replicas end with it.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn lines_of(text: &str) -> Vec<&str> {
    text.lines().collect()
}

#[track_caller]
fn assert_printed(example: &Example, printed: &str) {
    assert!(
        matches(&example.expected, &lines_of(printed)),
        "`{}` should print:\n{}\nbut printed:\n{printed}",
        example.command,
        example.expected.join("\n")
    );
}

/// Whether the lines are as expected; a line `...` stands for any number of lines.
fn matches(expected: &[String], lines: &[&str]) -> bool {
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
fn the_comparison_bites() {
    let expected = |text: &str| -> Vec<String> { text.lines().map(str::to_owned).collect() };
    assert!(matches(&expected("a\n...\nd"), &["a", "b", "c", "d"]));
    assert!(!matches(&expected("a\n...\nd"), &["a", "b", "c"]));
    assert!(!matches(&expected("a"), &["a", "b"]));
    assert!(matches(
        &expected("took [..] ms, [..] lost"),
        &["took 12 ms, 0 lost"]
    ));
    assert!(!matches(&expected("took [..] ms"), &["took 12 s"]));
    let text = "```console\n$ trine x\nout\n```\n$ not this\n```console\n$ y\n```\n";
    let found = examples(text);
    assert_eq!(found.len(), 2);
    assert_eq!(
        found[0],
        Example {
            command: "trine x".into(),
            expected: vec!["out".into()]
        }
    );
}
