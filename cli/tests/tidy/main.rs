//! The rules of the sources that a machine can check. (Crate edges, no hidden I/O, clock or randomness in core
//! modules, where `unsafe` may be, file headers, function lengths, no circles of imports.)

mod cycles;
mod edges;
mod imports;
mod log_parts;
mod modules;
mod names;

use std::fs;
use std::path::{Component, Path, PathBuf};

use self::edges::EDGES;

/// The modules that may hold `unsafe`. None of them has it silently: each has its own `allow(unsafe_code)` and a proof
/// at each use.
const UNSAFE_MODULES: &[&str] = &[
    "transport/src/buf/",
    "transport/src/backend/clock.rs",
    "transport/src/backend/udp/",
    "transport/dpdk/src/",
    "transport/verbs/src/",
    "transport/dpdk-sys/",
    "transport/src/backend/wake.rs",
    "transport/src/wire/crc.rs",
    "transport/src/prefetch.rs",
    // Baselines that use the operating system as a C program would, and tests that drop rights.
    "transport/benches/",
    "transport/dpdk/benches/",
    "transport/verbs/benches/",
    "kvstore/benches/",
    "transport/dpdk/tests/",
    "corpus/allocations/src/lib.rs",
    // A page that the kernel empties in children, and descriptors that a child gives up.
    "transport/origin/src/",
    // Tests that fork.
    "corpus/child/src/lib.rs",
    "kvstore/src/memory.rs",
    "kvstore/src/machine.rs",
    "kvstore/src/interleave.rs",
    // One system call that no crate wraps.
    "base/src/placement/numa.rs",
    // A mutex that another process waits for. No crate of robust mutexes is kept well.
    "server/src/companion/life_lock.rs",
];

/// Directories and files of code that gets time, packets and randomness from its caller, and owns none.
const CORE: &[&str] = &[
    "transport/seal/src/",
    "transport/src/wire/",
    "transport/src/session/",
    "transport/src/rpc/",
    "transport/src/congestion/",
    "transport/src/timing_wheel.rs",
    "transport/src/endpoint",
    "transport/src/prng.rs",
    "transport/src/time.rs",
    "transport/verbs/src/one_sided/",
    "kvstore/src/",
    "index/src/",
    "sequencer/src/",
    "keys/src/",
    "commands/src/",
    "resp/src/",
    "replica/src/",
    "replica/protocol/src/",
    "replica/client/src/",
    "chaos/src/sim/",
    "chaos/src/checker/",
    "chaos/src/workload.rs",
    "chaos/src/fault.rs",
];
/// The exceptions: parts that are the boundary to the machine. They are the client library's front that owns a thread,
/// the directory and the thread of disk mode, the descriptors it keeps, what was set aside there, the memory that the store asks the operating system for, and the
/// files and random bytes of keys.
const CORE_EXCEPT: &[&str] = &[
    "replica/client/src/asynchronous.rs",
    "replica/client/src/watcher/asynchronous.rs",
    "replica/src/disk/descriptors.rs",
    "replica/src/disk/directory.rs",
    "replica/src/disk/leftovers.rs",
    "replica/src/disk/unfinished.rs",
    "replica/src/disk/spare.rs",
    "replica/src/disk/thread.rs",
    "kvstore/src/memory.rs",
    "keys/src/draw.rs",
    "keys/src/file.rs",
    "keys/src/own_file.rs",
];
/// Names that are forbidden in core code.
const FORBIDDEN_IN_CORE: &[&str] = &[
    "Instant::now",
    "SystemTime",
    "std::fs",
    "std::io",
    "std::thread",
    "std::process",
    "std::env",
    "UdpSocket",
    "TcpStream",
    "TcpListener",
    "ToSocketAddrs",
    "getrandom",
    "thread_rng",
    "rand::",
    "RandomState",
    "MonotonicClock",
];
/// Names that are also forbidden in the deterministic store: floats, and maps with random order.
const FORBIDDEN_IN_STORE: &[&str] = &["f32", "f64", "HashMap", "HashSet", "std::net"];

/// A longer function needs a comment with the reason, which begins with `LONG_FUNCTION_REASON`.
const FUNCTION_LINES_MAX: usize = 70;
/// The same limit for tests, which may tell a long story.
const TEST_FUNCTION_LINES_MAX: usize = 120;
const LONG_FUNCTION_REASON: &str = "// Long because";
/// A longer file answers more than one question.
const FILE_LINES_MAX: usize = 900;

/// Where a sleep is right: between two polls of a condition, with a bound. The condition gives no wake-up (a process's
/// end, another process's announcement, a device's start).
const SLEEP_ALLOWED: &[&str] = &[
    "server/local/src/",
    "transport/src/backend/announce.rs",
    // A loop that is flooded: see `FLOOD_SLEEP`.
    "transport/src/event_loop.rs",
    "transport/dpdk/src/",
    "cli/tests/dpdk.rs",
    "transport/dpdk/tests/",
    // Nobody wakes the process that tells of a death: these are pauses between datagrams.
    "server/src/companion/teller.rs",
    // Writes at a rate, and many watchers in one thread.
    "replica/benches/",
    // A device that does not say how many datagrams have come; the round trip fails if it was too short.
    "transport/verbs/benches/verbs/instructions.rs",
];

struct Source {
    /// Relative to the repository.
    path: String,
    text: String,
}

impl Source {
    fn is_in(&self, places: &[&str]) -> bool {
        places.iter().any(|place| self.path.starts_with(place))
    }

    /// Its crate: the innermost one whose directory contains it.
    fn crate_directory(&self) -> &'static str {
        let holds = |directory: &&str| {
            self.path
                .strip_prefix(*directory)
                .is_some_and(|rest| rest.starts_with('/'))
        };
        let directories = EDGES.iter().map(|(directory, _)| *directory).filter(holds);
        directories
            .max_by_key(|directory| directory.len())
            .unwrap_or_default()
    }

    /// Whether the file is a test, bench or fuzz target as a whole.
    fn is_test(&self) -> bool {
        let outside_src = !self.path.contains("/src/");
        outside_src || self.path.ends_with("/tests.rs") || self.path.contains("/tests/")
    }

    /// The numbered lines of code: no comments, nothing that only tests contain.
    fn code_lines(&self) -> impl Iterator<Item = (usize, &str)> {
        let lines = self
            .text
            .lines()
            .enumerate()
            .map(|(index, line)| (index + 1, line));
        let mut for_tests = ForTests::default();
        lines
            .filter(|(_, line)| !line.trim_start().starts_with("//"))
            .map(|(number, line)| (number, line.split(" // ").next().unwrap_or(line)))
            .filter(move |(_, line)| !for_tests.take(line))
    }
}

/// Goes through the lines of a file and finds the items under `#[cfg(test)]`, by rustfmt's indentation.
#[derive(Default)]
struct ForTests {
    /// The indentation of the item that has begun.
    depth: Option<usize>,
    /// Its body has begun, too. What stands at the item's depth from there on is its end, or the text of a string.
    in_body: bool,
}

impl ForTests {
    /// Whether the next line belongs to such an item.
    fn take(&mut self, line: &str) -> bool {
        let text = line.trim();
        let indent = line.len() - line.trim_start().len();
        let Some(depth) = self.depth else {
            if text == "#[cfg(test)]" {
                self.depth = Some(indent);
                self.in_body = false;
            }
            return self.depth.is_some();
        };
        if indent == depth {
            let ends = match self.in_body {
                true => text.starts_with('}') && !text.ends_with('{'),
                false => text.ends_with([';', ',', '}']),
            };
            self.in_body |= text.ends_with('{');
            if ends {
                self.depth = None;
            }
        }
        true
    }
}

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .expect("the workspace")
        .to_path_buf()
}

/// Every Rust file of the workspace, without build output.
fn sources() -> Vec<Source> {
    let root = repository();
    let mut found = Vec::new();
    let mut directories: Vec<PathBuf> = EDGES.iter().map(|(name, _)| root.join(name)).collect();
    while let Some(directory) = directories.pop() {
        for entry in fs::read_dir(&directory).expect("a readable directory") {
            let path = entry.expect("an entry").path();
            if path.is_dir() && !path.ends_with("target") {
                directories.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let text = fs::read_to_string(&path).expect("UTF-8 source");
                let relative = path.strip_prefix(&root).expect("inside the repository");
                found.push(Source {
                    path: relative.display().to_string(),
                    text,
                });
            }
        }
    }
    assert!(
        found.len() > 20,
        "the search for sources is broken: {} found",
        found.len()
    );
    found.sort_by(|a, b| a.path.cmp(&b.path));
    found
}

/// Fails with all complaints at once.
fn report(rule: &str, complaints: Vec<String>) {
    assert!(
        complaints.is_empty(),
        "{rule}:\n  {}",
        complaints.join("\n  ")
    );
}

/// The names of the workspace's own packages, as manifests have them.
fn packages() -> Vec<String> {
    let manifest = fs::read_to_string(repository().join("Cargo.toml")).expect("a manifest");
    let (_, dependencies) = manifest
        .split_once("[workspace.dependencies]\n")
        .expect("dependencies");
    let lines = dependencies
        .lines()
        .take_while(|line| !line.starts_with('['));
    let names = lines.filter_map(|line| line.split(' ').next());
    names
        .filter(|name| name.starts_with("trine-"))
        .map(str::to_owned)
        .collect()
}

#[test]
fn crates_name_only_the_crates_they_may() {
    let (packages, sources) = (packages(), sources());
    let mut complaints = Vec::new();
    for (directory, allowed) in EDGES {
        let manifest = repository().join(directory).join("Cargo.toml");
        let text = fs::read_to_string(&manifest).expect("a manifest");
        let own = format!("trine-{directory}");
        for name in *allowed {
            if !packages.iter().any(|package| package == name) {
                complaints.push(format!("{directory} may name {name}, which is no package"));
            }
        }
        for package in packages
            .iter()
            .filter(|name| **name != own && !allowed.contains(&name.as_str()))
        {
            let is_named = |line: &str| {
                let mut words = line.trim_start().split([' ', '.', '=']);
                words.next() == Some(package.as_str())
            };
            if text.lines().any(is_named) {
                complaints.push(format!("{directory} depends on {package}"));
            }
            let module = package.replace('-', "_");
            let names_it = |(_, line): (usize, &str)| has_word(line, &module);
            for source in sources
                .iter()
                .filter(|source| source.crate_directory() == *directory)
            {
                if source.code_lines().any(names_it) {
                    complaints.push(format!("{} names {module}", source.path));
                }
            }
        }
    }
    report("crate edges", complaints);
}

#[test]
fn versions_of_dependencies_stand_in_the_root_manifest_alone() {
    let mut complaints = Vec::new();
    for (directory, _) in EDGES {
        let text =
            fs::read_to_string(repository().join(directory).join("Cargo.toml")).expect("read");
        let mut in_dependencies = false;
        for line in text.lines().map(str::trim) {
            if line.starts_with('[') {
                in_dependencies = line.contains("dependencies");
            } else if in_dependencies && line.contains('=') && !line.contains("workspace = true") {
                complaints.push(format!("{directory}/Cargo.toml: {line}"));
            }
        }
    }
    report("dependencies without `workspace = true`", complaints);
}

/// Whether the text of a manifest names a crate elsewhere than among the dependencies of its tests.
fn is_more_than_a_test_dependency(manifest: &str, package: &str) -> bool {
    let mut section = "";
    manifest.lines().map(str::trim).any(|line| {
        if line.starts_with('[') {
            section = line;
        }
        let names = line
            .split(['.', ' ', '=', '[', ']', '"'])
            .any(|word| word == package);
        let is_allowed = section.contains("dev-dependencies") || section == "[package]";
        names && !is_allowed
    })
}

/// The replay of corpora panics at what it finds. A program that links it has been given a test's crate.
#[test]
fn the_replay_of_corpora_serves_tests_alone() {
    let complaints = EDGES.iter().filter_map(|(directory, _)| {
        let manifest = repository().join(directory).join("Cargo.toml");
        let text = fs::read_to_string(manifest).expect("a manifest");
        is_more_than_a_test_dependency(&text, "trine-corpus")
            .then(|| format!("{directory}/Cargo.toml"))
    });
    report(
        "crates that use trine-corpus outside of their tests",
        complaints.collect(),
    );
    for (manifest, is_more) in [
        ("[dev-dependencies]\ntrine-corpus.workspace = true", false),
        ("[package]\nname = \"trine-corpus\"", false),
        ("[dependencies]\ntrine-corpus.workspace = true", true),
        ("[dependencies.trine-corpus]\nworkspace = true", true),
        (
            "[build-dependencies]\ntrine-corpus = { workspace = true }",
            true,
        ),
    ] {
        assert_eq!(
            is_more_than_a_test_dependency(manifest, "trine-corpus"),
            is_more,
            "{manifest}"
        );
    }
}

#[test]
fn core_modules_own_no_clock_no_randomness_and_do_no_io() {
    let mut complaints = Vec::new();
    for source in sources() {
        if source.is_test() || !source.is_in(CORE) || source.is_in(CORE_EXCEPT) {
            continue;
        }
        let store = source.is_in(&["kvstore/src/"]);
        let further: &[&str] = if store { FORBIDDEN_IN_STORE } else { &[] };
        for (number, line) in source.code_lines() {
            for word in FORBIDDEN_IN_CORE
                .iter()
                .chain(further)
                .filter(|word| has_word(line, word))
            {
                complaints.push(format!("{}:{number} names {word}", source.path));
            }
        }
    }
    report(
        "time, randomness and I/O are arguments of core code",
        complaints,
    );
}

#[test]
fn byte_offsets_of_packets_stand_in_the_wire_directory_alone() {
    let packet_code = [
        "transport/src/session/",
        "transport/src/rpc/",
        "transport/src/congestion/",
        "transport/src/endpoint",
        "transport/src/event_loop",
    ];
    let mut complaints = Vec::new();
    for source in sources() {
        if source.is_test() || !source.is_in(&packet_code) {
            continue;
        }
        for (number, line) in source.code_lines() {
            if ["le_bytes(", "be_bytes(", "ne_bytes("]
                .iter()
                .any(|word| line.contains(word))
            {
                complaints.push(format!("{}:{number}: {}", source.path, line.trim()));
            }
        }
    }
    report(
        "bytes become numbers, and numbers bytes, in transport/src/wire",
        complaints,
    );
}

/// Whether `word` is in `line` and is not a part of a longer name.
fn has_word(line: &str, word: &str) -> bool {
    let part_of_name = |c: char| c.is_alphanumeric() || c == '_';
    line.match_indices(word).any(|(at, _)| {
        let before = line[..at].chars().next_back().is_some_and(part_of_name);
        let after = line[at + word.len()..]
            .chars()
            .next()
            .is_some_and(part_of_name);
        !before && (!after || word.ends_with(':'))
    })
}

#[test]
fn unsafe_stands_in_the_listed_modules_alone() {
    let mut complaints = Vec::new();
    for source in sources() {
        // This file lists the forbidden words.
        if source.is_in(UNSAFE_MODULES) || source.path == "cli/tests/tidy/main.rs" {
            continue;
        }
        let code = source.text.lines().enumerate();
        for (index, line) in code.filter(|(_, line)| !line.trim_start().starts_with("//")) {
            if has_word(line, "unsafe") || line.contains("allow(unsafe_code)") {
                complaints.push(format!("{}:{}: {}", source.path, index + 1, line.trim()));
            }
        }
    }
    report("unsafe outside of the listed modules", complaints);
}

#[test]
fn no_path_attribute_leaves_its_crate() {
    let mut complaints = Vec::new();
    for source in sources() {
        let directory = Path::new(source.crate_directory());
        for (number, line) in source.text.lines().enumerate() {
            let Some(target) = path_attribute(line) else {
                continue;
            };
            let file = Path::new(&source.path).with_file_name(target);
            if !normal(&file).starts_with(directory) {
                complaints.push(format!("{}:{}: {target}", source.path, number + 1));
            }
        }
    }
    report(
        "files included from another crate (make a crate of what both need)",
        complaints,
    );
}

/// The file that a `#[path]` attribute names.
fn path_attribute(line: &str) -> Option<&str> {
    let named = line.trim_start().strip_prefix("#[path = \"")?;
    named.split('"').next()
}

/// The path without its `..`.
fn normal(path: &Path) -> PathBuf {
    let mut normal = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => drop(normal.pop()),
            part => normal.push(part),
        }
    }
    normal
}

#[test]
fn every_file_says_first_which_question_it_answers() {
    let without = |source: &Source| !source.text.starts_with("//!");
    let files = sources()
        .into_iter()
        .filter(without)
        .map(|source| source.path)
        .collect();
    report("files that do not begin with a `//!` line", files);
}

#[test]
fn files_are_not_too_long() {
    let long = |source: &Source| source.text.lines().count() > FILE_LINES_MAX;
    let describe =
        |source: Source| format!("{}: {} lines", source.path, source.text.lines().count());
    report(
        "files that are too long",
        sources().into_iter().filter(long).map(describe).collect(),
    );
}

#[test]
fn long_functions_say_why() {
    let mut complaints = Vec::new();
    for source in sources() {
        let most = if source.is_test() {
            TEST_FUNCTION_LINES_MAX
        } else {
            FUNCTION_LINES_MAX
        };
        for (name, start, length, reason) in functions(&source.text) {
            if length > most && !reason {
                complaints.push(format!("{}:{start} {name}: {length} lines", source.path));
            }
        }
    }
    let rule =
        format!("functions over {FUNCTION_LINES_MAX} lines without `{LONG_FUNCTION_REASON}`");
    report(&rule, complaints);
}

/// (signature, first line, length, has a reason) of every function, by rustfmt's indentation. A function ends with the
/// first closing brace at the depth of its signature.
fn functions(text: &str) -> Vec<(String, usize, usize, bool)> {
    let lines: Vec<&str> = text.lines().collect();
    let mut found = Vec::new();
    for (index, line) in lines.iter().enumerate() {
        let trimmed = line.trim_start();
        let indent = line.len() - trimmed.len();
        let is_function = [
            "fn ",
            "pub fn ",
            "pub(crate) fn ",
            "pub(super) fn ",
            "const fn ",
            "pub const fn ",
        ]
        .iter()
        .any(|start| trimmed.starts_with(start));
        if !is_function || trimmed.ends_with(';') || trimmed.ends_with('}') {
            continue;
        }
        let closes = |line: &str| line.trim_end() == format!("{}}}", " ".repeat(indent));
        let ends_declaration = |line: &str| line.trim_end() == format!("{});", " ".repeat(indent));
        let body = &lines[index..];
        let end = body
            .iter()
            .position(|line| closes(line) || ends_declaration(line));
        let Some(length) = end else { continue };
        let near = &lines[index.saturating_sub(6)..index + length.min(6)];
        let reason = near
            .iter()
            .any(|line| line.trim_start().starts_with(LONG_FUNCTION_REASON));
        found.push((trimmed.to_owned(), index + 1, length + 1, reason));
    }
    found
}

#[test]
fn nothing_sleeps_where_it_should_wait_for_a_condition() {
    let mut complaints = Vec::new();
    for source in sources() {
        if source.is_in(SLEEP_ALLOWED) || source.path == "cli/tests/tidy/main.rs" {
            continue;
        }
        for (index, line) in source.text.lines().enumerate() {
            if line.contains("thread::sleep") {
                complaints.push(format!("{}:{}", source.path, index + 1));
            }
        }
    }
    report("bare sleeps", complaints);
}

/// A release contains the simulator with its findings, and the gate looks for the bugs' names in it.
#[test]
fn names_of_planted_bugs_stand_in_no_other_text() {
    let sources = sources();
    let names: Vec<&str> = sources
        .iter()
        .filter(|source| !source.path.starts_with("canary/") && !source.is_test())
        .flat_map(|source| source.text.split("canary::planted(\"").skip(1))
        .filter_map(|rest| rest.split('"').next())
        .filter(|name| name.starts_with(char::is_alphabetic))
        .collect();
    assert!(
        names.len() > 10,
        "the search for names is broken: {names:?}"
    );
    let mut complaints = Vec::new();
    for source in sources.iter().filter(|source| !source.is_test()) {
        for (number, line) in source.code_lines() {
            let longer =
                |name: &&&str| line.contains(**name) && !line.contains(&format!("\"{name}\""));
            if let Some(name) = names.iter().find(longer) {
                complaints.push(format!("{}:{number}: {name}", source.path));
            }
        }
    }
    report("names of planted bugs in other texts", complaints);
}

#[test]
fn the_rules_bite() {
    let text = "fn long() {\n    body();\n}\n\nfn short() {}\n";
    assert_eq!(functions(text), [("fn long() {".to_owned(), 1, 3, false)]);
    assert!(has_word("let x = Instant::now();", "Instant::now"));
    assert!(has_word("x: f64,", "f64"));
    assert!(!has_word("from_f64x(", "f64"));
    assert!(!has_word("let operand::x", "rand::"));
    let up = "#[path = \"../../base/src/units.rs\"]";
    assert_eq!(path_attribute(up), Some("../../base/src/units.rs"));
    let file = normal(Path::new("cli/src/../../base/src/units.rs"));
    assert_eq!(file, Path::new("base/src/units.rs"));
    let source = Source {
        path: "x/src/y.rs".into(),
        text: "a // unsafe\n// b\n#[cfg(test)]\nmod tests {\n    c();\n}\n".into(),
    };
    assert_eq!(source.code_lines().collect::<Vec<_>>(), [(1, "a")]);
    // The rules hold for the code behind an item of tests.
    for item in [
        "mod x;",
        "pub(crate) use a::{\n    b,\n};",
        "const A: [u8; 2] = [\n    1,\n    2,\n];",
        "#[track_caller]\n/// Says;\nfn f(\n    a: u8,\n) {\n    b(\"\nc;\n\");\n}",
        "A {\n    b: u8,\n},",
    ] {
        let source = Source {
            path: "x/src/y.rs".into(),
            text: format!("#[cfg(test)]\n{item}\nlet now = Instant::now();\n"),
        };
        let lines: Vec<&str> = source.code_lines().map(|(_, line)| line).collect();
        assert_eq!(lines, ["let now = Instant::now();"], "{item}");
    }
}
