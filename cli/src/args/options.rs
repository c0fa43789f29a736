//! Holds docs/options.md: one table of all options, in which each name has one form and one meaning in every command.

use std::any::TypeId;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Arg, Command};

/// The table that the tests compare with the command line.
const TABLE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/options.md");
/// The table begins after this line.
const HEAD: &str = "| option | meaning | commands |\n|---|---|---|\n";
/// Set to any value, the test writes the table instead of comparing it.
const WRITE: &str = "TRINE_WRITE_OPTIONS";
/// Every command that sends packets has this option.
const OF_SENDERS: &str = "transport";

/// Options whose help differs between commands, because each command adds what is special about it. The meaning beside the name
/// is what all of them have in common. A name that is not here says the same everywhere.
const SPECIAL: &[(&str, &str)] = &[
    ("address", "Address at which the others reach the replica."),
    ("clients", "Number of concurrent clients."),
    (
        "config",
        "The settings file of `trine serve` and `trine up`.",
    ),
    ("connect", "Address of the server."),
    ("cpu", "The processor that a thread runs on."),
    ("data-dir", "The data directory of a replica."),
    (
        "fault-injection",
        "Allow faults to be injected while the replicas run.",
    ),
    ("for", "How long to measure or to run."),
    ("html", "Write a report to this file."),
    (
        "expiry",
        "Whether the time since the backup is subtracted from times to live.",
    ),
    ("id", "The node id of the replica."),
    (
        "if-version",
        "Execute only if the key has this version; otherwise exit with status 1.",
    ),
    (
        "in-process",
        "Measure without a network: packets go through memory.",
    ),
    (
        "insecure",
        "Accept callers without a key at addresses that other machines can reach.",
    ),
    ("keys", "Number of keys that the command uses."),
    ("limit", "Stop after this many results."),
    ("listen", "Address at which the server is reached."),
    ("link", "Only the link to this node or address."),
    ("memory", "Memory limit of the store."),
    (
        "metrics-password-file",
        "The first line of this file is the password of the metrics endpoint.",
    ),
    ("peers", "Addresses of the replicas."),
    ("pipeline", "Requests that a client keeps in flight."),
    ("rounds", "Number of measurements."),
    ("seed", "Seed for all random choices."),
    (
        "speculative",
        "Use requests of four bytes, without sessions.",
    ),
    ("spin", "How long a thread polls before it sleeps."),
    ("target", "Systems to measure."),
    ("threads", "Number of threads."),
    ("timeout", "Give up after this long."),
    ("warmup", "How long to run before measuring."),
];

/// One option of one command.
struct Use {
    command: String,
    value: String,
    form: String,
    sentence: String,
}

/// All that the command line says of the options, by name.
fn uses() -> BTreeMap<String, Vec<Use>> {
    let mut line = super::command_line();
    line.build();
    let mut found = BTreeMap::new();
    walk(&line, "", &mut found);
    found
}

fn walk(command: &Command, path: &str, found: &mut BTreeMap<String, Vec<Use>>) {
    let shown = command.get_arguments().filter(|arg| !arg.is_hide_set());
    for arg in shown {
        let Some(name) = arg.get_long() else { continue };
        let inherited = path.is_empty() != arg.is_global_set() && matches!(name, "json" | "output");
        if inherited || matches!(name, "help" | "version") {
            continue;
        }
        found.entry(name.to_owned()).or_default().push(Use {
            command: path.to_owned(),
            value: value(arg),
            form: form(arg),
            sentence: sentence(arg),
        });
    }
    for command in command.get_subcommands() {
        if command.get_name() != "help" && !command.is_hide_set() {
            let path = format!("{path} {}", command.get_name());
            walk(command, path.trim_start(), found);
        }
    }
}

/// The name of an option's value; empty for a switch.
fn value(arg: &Arg) -> String {
    match arg.get_action().takes_values() {
        true => arg
            .get_value_names()
            .map(|names| {
                names
                    .iter()
                    .map(ToString::to_string)
                    .collect::<Vec<_>>()
                    .join(" ")
            })
            .unwrap_or_else(|| arg.get_id().as_str().to_uppercase()),
        false => String::new(),
    }
}

/// How a value is read. All whole numbers are one form.
fn form(arg: &Arg) -> String {
    let id = arg.get_value_parser().type_id();
    let is = |types: &[TypeId]| types.iter().any(|known| id == *known);
    if is(&[
        TypeId::of::<u32>(),
        TypeId::of::<u64>(),
        TypeId::of::<usize>(),
    ]) {
        return "number".to_owned();
    }
    if is(&[TypeId::of::<String>(), TypeId::of::<OsString>()]) {
        return "text".to_owned();
    }
    if is(&[TypeId::of::<PathBuf>()]) {
        return "file".to_owned();
    }
    format!("{id:?}")
}

fn sentence(arg: &Arg) -> String {
    let help = arg.get_help().map(ToString::to_string).unwrap_or_default();
    match super::help::first_sentence(&help) {
        sentence if sentence.ends_with('.') => sentence,
        sentence => format!("{sentence}."),
    }
}

fn table() -> String {
    let mut text = HEAD.to_owned();
    let all_uses = uses();
    let commands_of =
        |uses: &[Use]| -> BTreeSet<String> { uses.iter().map(|of| of.command.clone()).collect() };
    let senders = commands_of(&all_uses[OF_SENDERS]);
    for (name, uses) in &all_uses {
        let special = SPECIAL.iter().find(|(of, _)| of == name);
        let meaning = special.map_or(uses[0].sentence.as_str(), |(_, meaning)| meaning);
        let commands: Vec<_> = uses
            .iter()
            .filter(|of| !of.command.is_empty())
            .map(|of| format!("`{}`", of.command))
            .collect();
        let commands = match commands.len() {
            0 => "all".to_owned(),
            _ if commands_of(uses) == senders => "all that send packets".to_owned(),
            _ => commands.join(", "),
        };
        let option = format!("--{name} {}", uses[0].value);
        let escaped = |text: &str| text.replace('|', "\\|");
        let option = format!("`{}`", escaped(option.trim_end()));
        let cells = [option, escaped(meaning), commands];
        text.push_str(&format!("| {} |\n", cells.join(" | ")));
    }
    text
}

#[test]
fn each_option_has_one_form_and_one_meaning() {
    let mut wrong = Vec::new();
    for (name, uses) in uses() {
        let tell = |of: &Use| format!("{}: {} ({}) {}", of.command, of.value, of.form, of.sentence);
        let forms: BTreeSet<_> = uses.iter().map(|of| (&of.value, &of.form)).collect();
        let sentences: BTreeSet<_> = uses.iter().map(|of| &of.sentence).collect();
        let is_special = SPECIAL.iter().any(|(of, _)| *of == name);
        if forms.len() > 1 || (sentences.len() > 1 && !is_special) {
            let all: BTreeSet<_> = uses.iter().map(tell).collect();
            let all: Vec<_> = all.into_iter().take(6).collect();
            wrong.push(format!("--{name}\n    {}", all.join("\n    ")));
        }
        if sentences.len() == 1 && is_special {
            wrong.push(format!(
                "--{name} says the same everywhere: it is not special"
            ));
        }
    }
    for (name, _) in SPECIAL {
        if !uses().contains_key(*name) {
            wrong.push(format!("--{name} is gone"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// An old name that some other option of the same command has today would change what a script does.
#[test]
fn an_old_name_means_nothing_else() {
    fn walk(command: &Command) {
        let mut names = BTreeSet::new();
        for arg in command.get_arguments() {
            let aliases = arg.get_all_aliases().unwrap_or_default();
            for name in aliases.into_iter().chain(arg.get_long()) {
                assert!(
                    names.insert(name.to_owned()),
                    "{}: --{name}",
                    command.get_name()
                );
            }
        }
        command.get_subcommands().for_each(walk);
    }
    let mut line = super::command_line();
    line.build();
    walk(&line);
}

#[test]
fn the_table_of_options_is_that_of_the_command_line() {
    let page = std::fs::read_to_string(TABLE).expect("docs/options.md");
    let (before, rest) = page.split_once(HEAD).expect("the table's head");
    let rows: String = rest
        .split_inclusive('\n')
        .take_while(|line| line.starts_with('|'))
        .collect();
    let after = &rest[rows.len()..];
    let expected = table();
    if std::env::var_os(WRITE).is_some() {
        std::fs::write(TABLE, format!("{before}{expected}{after}")).expect("docs/options.md");
        return;
    }
    let found = format!("{HEAD}{rows}");
    let differs = expected
        .lines()
        .find(|row| !found.lines().any(|line| line == *row));
    let gone = found
        .lines()
        .find(|row| !expected.lines().any(|line| line == *row));
    assert_eq!(
        expected, found,
        "docs/options.md is not what the command line says; `{WRITE}=1 cargo test -p trine --bin trine options` writes it. \
         Missing: {differs:?}; gone: {gone:?}"
    );
}
