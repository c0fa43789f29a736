//! Runs every command of the README and the documents, and compares its output.
//!
//! `common/console.rs` runs their `console` blocks: all commands of one document one after another, with a separate
//! group and separate ports. Different documents run at the same time.

use std::path::{Path, PathBuf};

use crate::common::console::{Example, Shell, examples, matches, run_all};
use crate::common::{leave_out, program};
use crate::redis::RedisGroup;

/// Commands in documents that no test runs, each with its reason.
const NOT_RUN: &[(&str, &str, &str)] = &[
    (
        "docs/benchmarking.md",
        "trine bench --target trine:// --target redis://",
        "needs redis-server",
    ),
    (
        "docs/benchmarking.md",
        "trine cache serve &",
        "the next line measures it",
    ),
    (
        "docs/benchmarking.md",
        "trine cache bench --target cache://",
        "needs memcached and redis-server",
    ),
    (
        "docs/sequencer.md",
        "trine sequencer serve --state numbers.state --transport verbs",
        RDMA,
    ),
    (
        "docs/sequencer.md",
        "trine sequencer next --transport verbs",
        RDMA,
    ),
    (
        "docs/sequencer.md",
        "trine sequencer bench --transport verbs",
        RDMA,
    ),
];
const RDMA: &str = "needs an RDMA device; transport/vm/sequencer-test runs the same";

#[test]
fn every_command_of_the_readme_works_as_shown() {
    let readme = read("README.md");
    let examples = examples(&readme);
    assert!(
        examples.len() > 8,
        "the README shows {} commands",
        examples.len()
    );
    let servers = run_all(&examples, &Shell::new(repository()));
    assert_eq!(servers, 2, "the README starts a group and a cache");
}

/// Runs a document in an empty directory.
#[track_caller]
fn every_command_works(document: &str) {
    let directory = std::env::temp_dir().join(format!(
        "trine-{}-{}",
        document.replace('/', "-"),
        std::process::id()
    ));
    std::fs::create_dir_all(&directory).expect("a directory");
    let examples = examples(&read(document));
    assert!(!examples.is_empty(), "{document} shows no command");
    run_all(&examples, &Shell::new(directory.clone()));
    std::fs::remove_dir_all(&directory).expect("the directory goes");
}

macro_rules! documents {
    ($($test:ident $path:literal,)*) => {
        $(#[test]
        fn $test() {
            every_command_works($path);
        })*

        const RUN: &[&str] = &[$($path),*];
    };
}

documents! {
    quick_start "docs/quick-start.md",
    guarantees "docs/guarantees.md",
    failure_modes "docs/failure-modes.md",
    operations "docs/operations.md",
    backup "docs/backup.md",
    configuration "docs/configuration.md",
    monitoring "docs/monitoring.md",
    redis "docs/redis.md",
    benchmarking "docs/benchmarking.md",
    tuning "docs/tuning.md",
    index "docs/index.md",
    sequencer "docs/sequencer.md",
    ordered "docs/ordered.md",
    watch "docs/watch.md",
    versions "docs/versions.md",
}

/// `trine-packets` is a program of another crate. A test of the whole workspace has built it; one of this crate alone has
/// not.
#[test]
fn packets() {
    let program = program();
    let directory = program.parent().expect("a directory");
    if !directory.join("trine-packets").exists() {
        let mut cargo = std::process::Command::new(env!("CARGO"));
        cargo.args(["build", "--quiet", "--locked", "-p", "trine-packets"]);
        if directory.ends_with("release") {
            cargo.arg("--release");
        }
        let status = cargo.current_dir(repository()).status().expect("cargo");
        assert!(status.success(), "trine-packets is not built");
    }
    every_command_works(PACKETS);
}

const PACKETS: &str = "docs/packets.md";

/// The first page begins with programs of users: each runs with the client library that it names, where that is installed.
#[test]
fn the_programs_of_the_quick_start_print_what_the_page_says() {
    let page = read("docs/quick-start.md");
    let mut group = None;
    for (language, interpreter, option, library) in [
        ("python", "python3", "-c", "import redis"),
        ("javascript", "node", "-e", "require('redis')"),
    ] {
        let run = |program: &str| {
            let mut command = std::process::Command::new(interpreter);
            command.args([option, program]).output()
        };
        if !run(library).is_ok_and(|ran| ran.status.success()) {
            let why = format!("`{interpreter} {option} \"{library}\"` does not work here");
            leave_out(&why, "TRINE_NEED_CLIENTS");
            continue;
        }
        let (_, from) = page
            .split_once(&format!("```{language}\n"))
            .expect("a program");
        let (program, rest) = from.split_once("```\n").expect("its end");
        let (_, prints) = rest.split_once("```text\n").expect("what it prints");
        let (prints, _) = prints.split_once("```").expect("the end of that");
        let group = group.get_or_insert_with(|| RedisGroup::start(&[]));
        let port = group.address(1).port().to_string();
        let ran = run(&program.replace("7101", &port)).expect("it starts");
        let printed = String::from_utf8_lossy(&ran.stdout);
        assert_eq!(printed, prints, "{}", String::from_utf8_lossy(&ran.stderr));
    }
}

#[test]
fn no_document_shows_a_command_that_no_test_runs() {
    let mut excused = 0;
    for path in documents() {
        let text = read(&path);
        let run = !examples(&text).is_empty();
        let listed = RUN.contains(&path.as_str()) || path == PACKETS;
        assert_eq!(run, listed, "{path}: list it above");
        for line in text.lines().filter_map(|line| line.strip_prefix("    ")) {
            let named =
                |(file, start, _): &&(&str, &str, &str)| *file == path && line.starts_with(start);
            match NOT_RUN.iter().find(named) {
                Some(_) => excused += 1,
                None => assert!(
                    !line.trim_start().starts_with("trine "),
                    "{path} shows `{line}` outside of a console block"
                ),
            }
        }
    }
    assert_eq!(excused, NOT_RUN.len(), "every exception is needed");
}

#[test]
fn the_index_names_every_document_and_every_link_leads_somewhere() {
    let index = read("docs/README.md");
    for path in documents() {
        let name = path.strip_prefix("docs/").expect("a document");
        assert!(
            name == "README.md" || index.contains(&format!("({name})")),
            "docs/README.md does not name {name}"
        );
    }
    for path in documents().into_iter().chain(["README.md".into()]) {
        let text = read(&path);
        let beside = repository().join(&path).with_file_name("");
        for link in text.split("](").skip(1) {
            let target = link.split([')', '#']).next().expect("a first part");
            let known = target.is_empty() || target.contains("://") || beside.join(target).exists();
            assert!(known, "{path}: the link to {target} leads nowhere");
        }
    }
}

#[test]
fn the_readme_names_the_test_command_for_the_gate() {
    assert!(
        read("README.md")
            .lines()
            .any(|line| line.trim() == "cargo test --workspace")
    );
}

/// The documents, as paths from the root of the repository.
fn documents() -> Vec<String> {
    let entries = std::fs::read_dir(repository().join("docs")).expect("documents");
    let mut found: Vec<String> = entries
        .map(|entry| entry.expect("an entry").file_name())
        .map(|name| format!("docs/{}", name.to_string_lossy()))
        .filter(|path| path.ends_with(".md"))
        .collect();
    found.sort();
    found
}

fn read(path: &str) -> String {
    std::fs::read_to_string(repository().join(path)).unwrap_or_else(|e| panic!("{path}: {e}"))
}

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .expect("the workspace")
        .to_path_buf()
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
