//! The shell's commands: their syntax and their purpose. Help and completion use this list.
//!
//! Commands of the store come from the table of the Redis protocol, and so does their help. Written down here are only
//! those that the protocol does not have, or has in another form, and the commands of the shell itself.

use std::sync::LazyLock;

use serde_json::{Value, json};
use trine_commands::StoreCommand;

/// The help on one command.
#[derive(Debug)]
pub(super) struct CommandHelp {
    pub(super) name: &'static str,
    /// The arguments after the name.
    pub(super) form: String,
    pub(super) what: String,
    pub(super) example: &'static str,
    /// The row that says how it is parsed; none if the shell does that.
    pub(super) row: Option<StoreCommand>,
}

/// A command that the shell parses: its name, its form, what it does, an example.
type Own = [&'static str; 4];

const OF_STORE: &[Own] = &[
    [
        "put",
        "KEY VALUE",
        "writes a value",
        "put greeting 'hello world'",
    ],
    ["del", "KEY", "deletes a key", "del greeting"],
    [
        "version",
        "KEY",
        "shows the version that cas compares with",
        "version greeting",
    ],
    [
        "cas",
        "KEY VERSION VALUE",
        "writes if the version is still this one",
        "cas greeting 458752 hi",
    ],
    [
        "incr",
        "KEY [BY]",
        "adds 1, or BY, to a number",
        "incr hits 10",
    ],
    [
        "decr",
        "KEY [BY]",
        "subtracts 1, or BY, from a number",
        "decr stock",
    ],
    [
        "mput",
        "KEY VALUE [KEY VALUE]...",
        "writes several values, all or none",
        "mput a 1 b 2",
    ],
    [
        "count",
        "[PREFIX]...",
        "counts the keys, or those that begin with each PREFIX",
        "count user/",
    ],
    [
        "range",
        "[PREFIX [LIMIT]]",
        "shows keys with values in order, at most LIMIT (100); needs the ordered index",
        "range user/ 10",
    ],
    [
        "keys",
        "PATTERN",
        "lists the keys that match, * for all",
        "keys user:*",
    ],
];

/// Commands of the command line. They take its options, and are read by its definition.
const OF_LINE: &[Own] = &[
    [
        "scan",
        "[PREFIX] [--limit N] [--reverse] [--keys-only]",
        "shows keys with values in order",
        "scan user/ --limit 10",
    ],
    [
        "watch",
        "[PREFIX]... [--from KEY] [--to KEY] [--since POSITION]",
        "prints each change as it happens, until Ctrl-C",
        "watch user/",
    ],
    [
        "rm",
        "PREFIX [--yes]",
        "deletes all keys that begin with PREFIX",
        "rm user/ --yes",
    ],
    ["flush", "[--yes]", "deletes every key", "flush --yes"],
    [
        "export",
        "[FILE] [PREFIX]",
        "writes keys to a file, as JSON lines",
        "export users.jsonl user/",
    ],
    [
        "import",
        "FILE",
        "writes the keys of such a file",
        "import users.jsonl",
    ],
    [
        "backup",
        "FILE",
        "writes all keys and users to a file",
        "backup today.trine",
    ],
    ["status", "", "shows every replica", "status"],
    [
        "stat",
        "[TIME [COUNT]]",
        "prints a line each second, until Ctrl-C",
        "stat 1s 5",
    ],
    [
        "latency",
        "[--for TIME]",
        "measures round trips",
        "latency --for 1s",
    ],
    [
        "member",
        "list | add ID | promote ID | remove ID | replace ID",
        "shows or changes the members of the group",
        "member list",
    ],
    [
        "leader",
        "transfer [ID]",
        "changes who leads",
        "leader transfer 2",
    ],
    [
        "user",
        "list | add | remove | rotate | password",
        "shows and changes users",
        "user list",
    ],
    [
        "config",
        "get [SETTING] | set memory SIZE | set ordered on|off",
        "shows and changes the settings of the group",
        "config get memory",
    ],
    [
        "net",
        "show | set ID FAULTS | clear [ID]",
        "shows and sets faults of the network",
        "net set 1 loss=20% --link 2",
    ],
];

const OF_SHELL: &[Own] = &[
    [
        "help",
        "[COMMAND]",
        "shows this list, or one command",
        "help cas",
    ],
    ["quit", "", "ends the shell; so does Ctrl-D", "quit"],
    [
        "\\watch",
        "SECONDS COMMAND",
        "repeats a command until Ctrl-C",
        "\\watch 1 get hits",
    ],
    ["clear", "", "clears the screen", "clear"],
    [
        "\\timing",
        "[on|off]",
        "prints how long each command took",
        "\\timing on",
    ],
];

/// All commands, in the order of the help: those of the store by name, then those of the shell.
pub(super) static COMMANDS: LazyLock<Vec<CommandHelp>> = LazyLock::new(|| {
    let mut all: Vec<CommandHelp> = OF_STORE.iter().map(own).collect();
    all.extend(OF_LINE.iter().map(own));
    let is_own = |name: &str| {
        let mut own = OF_STORE.iter().chain(OF_LINE);
        own.any(|[own, ..]| *own == name)
    };
    all.extend(
        StoreCommand::all()
            .filter(|command| !is_own(command.name()))
            .map(of_table),
    );
    all.sort_unstable_by_key(|entry| entry.name);
    all.extend(OF_SHELL.iter().map(own));
    all
});

fn own(&[name, form, what, example]: &Own) -> CommandHelp {
    CommandHelp {
        name,
        form: form.to_owned(),
        what: what.to_owned(),
        example,
        row: None,
    }
}

fn of_table(command: StoreCommand) -> CommandHelp {
    let sentence = command.summary().trim_end_matches('.');
    let (first, rest) = sentence.split_at(1);
    CommandHelp {
        name: command.name(),
        form: command.form(),
        what: first.to_lowercase() + rest,
        example: command.example(),
        row: Some(command),
    }
}

/// Examples of the commands that the definition of the command line reads.
#[cfg(test)]
pub(crate) fn examples_of_line() -> impl Iterator<Item = &'static str> {
    OF_LINE.iter().map(|[_, _, _, example]| *example)
}

/// Whether the definition of the command line reads this command.
pub(super) fn is_of_line(entry: &CommandHelp) -> bool {
    OF_LINE.iter().any(|[name, ..]| *name == entry.name)
}

/// The command of that name, in upper or lower case.
pub(super) fn find(name: &[u8]) -> Option<&'static CommandHelp> {
    COMMANDS
        .iter()
        .find(|entry| entry.name.as_bytes().eq_ignore_ascii_case(name))
}

/// The command whose name is most similar to a mistyped `name`.
pub(super) fn nearest(name: &str) -> Option<&'static str> {
    let name = name.to_ascii_lowercase();
    let distance = |entry: &&CommandHelp| strsim::damerau_levenshtein(entry.name, &name);
    let best = COMMANDS.iter().min_by_key(distance)?;
    (distance(&best) <= 2).then_some(best.name)
}

/// The help: all commands, or one with its example.
pub(super) fn help(of: Option<&'static CommandHelp>) -> String {
    if let Some(entry) = of {
        let line = format!("{} {}", entry.name, entry.form);
        return format!(
            "{}\n  {}\n  example: {}",
            line.trim_end(),
            entry.what,
            entry.example
        );
    }
    let mut text = String::new();
    for entry in COMMANDS.iter() {
        let line = format!("{} {}", entry.name, entry.form);
        match line.len() {
            0..=30 => text.push_str(&format!("  {line:<30}  {}\n", entry.what)),
            _ => text.push_str(&format!("  {line}\n  {:<30}  {}\n", "", entry.what)),
        }
    }
    text.push_str(
        "Words: 'literal', \"with \\n \\t \\x00 escapes\"; # starts a comment.\nhelp COMMAND shows \
         an example. Ctrl-C cancels a line or a command, Ctrl-D ends.",
    );
    text
}

/// The help for programs: all commands, or one.
pub(super) fn document(of: Option<&'static CommandHelp>) -> Value {
    let one = |entry: &CommandHelp| {
        json!({
            "name": entry.name, "form": entry.form, "what": entry.what, "example": entry.example,
        })
    };
    let commands: Vec<Value> = match of {
        Some(entry) => vec![one(entry)],
        None => COMMANDS.iter().map(one).collect(),
    };
    json!({ "commands": commands })
}
