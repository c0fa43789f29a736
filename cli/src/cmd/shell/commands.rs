//! The shell's commands: their syntax and their purpose. Help and completion use this list.

/// One command.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) name: &'static str,
    /// The arguments after the name.
    pub(super) form: &'static str,
    pub(super) what: &'static str,
    pub(super) example: &'static str,
}

const fn entry(
    name: &'static str,
    form: &'static str,
    what: &'static str,
    example: &'static str,
) -> Entry {
    Entry {
        name,
        form,
        what,
        example,
    }
}

/// All commands, in the order of the help.
pub(super) const COMMANDS: &[Entry] = &[
    entry("get", "KEY", "read a value", "get greeting"),
    entry(
        "put",
        "KEY VALUE",
        "write a value",
        "put greeting 'hello world'",
    ),
    entry(
        "set",
        "KEY VALUE [nx|xx] [ex SECONDS|px MS|keepttl] [get]",
        "write under a condition, with an expiry, returning what was there",
        "set lock me nx ex 30",
    ),
    entry("del", "KEY", "delete a key", "del greeting"),
    entry("getdel", "KEY", "read a value and delete it", "getdel job"),
    entry(
        "version",
        "KEY",
        "the version that cas compares with",
        "version greeting",
    ),
    entry(
        "cas",
        "KEY VERSION VALUE",
        "write if the version is still this one",
        "cas greeting 458752 hi",
    ),
    entry(
        "incr",
        "KEY [BY]",
        "add 1, or BY, to a number",
        "incr hits 10",
    ),
    entry(
        "decr",
        "KEY [BY]",
        "take 1, or BY, from a number",
        "decr stock",
    ),
    entry(
        "append",
        "KEY VALUE",
        "add to the end of a value",
        "append log '\\n'",
    ),
    entry("mget", "KEY...", "read several values", "mget a b c"),
    entry(
        "mput",
        "KEY VALUE [KEY VALUE]...",
        "write several values, all or none",
        "mput a 1 b 2",
    ),
    entry(
        "expire",
        "KEY SECONDS",
        "let a key expire",
        "expire session 3600",
    ),
    entry(
        "persist",
        "KEY",
        "take a key's expiry away",
        "persist session",
    ),
    entry("ttl", "KEY", "seconds until a key expires", "ttl session"),
    entry("count", "", "how many keys there are", "count"),
    entry("help", "[COMMAND]", "this list, or one command", "help cas"),
    entry("quit", "", "end the shell; so does Ctrl-D", "quit"),
    entry(
        "\\watch",
        "SECONDS COMMAND",
        "repeat a command until Ctrl-C",
        "\\watch 1 get hits",
    ),
    entry(
        "\\status",
        "",
        "the group, as trine status shows it",
        "\\status",
    ),
    entry(
        "\\net",
        "show | set ID FAULTS [--link ID] [--direction out|in] | clear [ID]",
        "faults of the network, as trine net shows and sets them",
        "\\net set 1 loss=20% --link 2",
    ),
    entry(
        "\\timing",
        "[on|off]",
        "say after each command how long it took",
        "\\timing on",
    ),
];

/// The command of that name, in upper or lower case.
pub(super) fn find(name: &[u8]) -> Option<&'static Entry> {
    COMMANDS
        .iter()
        .find(|entry| entry.name.as_bytes().eq_ignore_ascii_case(name))
}

/// The command whose name is most similar to a mistyped `name`.
pub(super) fn nearest(name: &str) -> Option<&'static str> {
    let name = name.to_ascii_lowercase();
    let distance = |entry: &&Entry| strsim::damerau_levenshtein(entry.name, &name);
    let best = COMMANDS.iter().min_by_key(distance)?;
    (distance(&best) <= 2).then_some(best.name)
}

/// The help: all commands, or one with its example.
pub(super) fn help(of: Option<&'static Entry>) -> String {
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
    for entry in COMMANDS {
        let line = format!("{} {}", entry.name, entry.form);
        match line.len() {
            0..=30 => text.push_str(&format!("  {line:<30}  {}\n", entry.what)),
            _ => text.push_str(&format!("  {line}\n  {:<30}  {}\n", "", entry.what)),
        }
    }
    text.push_str(
        "Words: 'as it stands', \"with \\n \\t \\x00 escapes\"; # begins a comment.\n\
         help COMMAND shows an example. Ctrl-C gives a line or a command up, Ctrl-D ends.",
    );
    text
}
