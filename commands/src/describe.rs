//! COMMAND: what commands there are, from the table. Help texts of commands with subcommands.

use crate::arguments;
use crate::errors::{Refusal, SYNTAX, wrong_arity};
use crate::glob::{self, Case};
use crate::limits::{DESCRIBED_BYTES_MAX, REPEATED_BYTES_MAX};
use crate::pattern::require_short;
use crate::reply::Writer;
use crate::table::{self, Spec};

/// COMMAND.
pub fn command(words: &[&[u8]], writer: &mut Writer<'_>) {
    let before = writer.len();
    let end = before + DESCRIBED_BYTES_MAX;
    write_commands(words, end, writer);
    // The same command can be named often.
    if writer.len() > end {
        writer.truncate(before);
        writer.error("ERR the answer would be too large: ask for fewer commands");
    }
}

/// Writes the answer, but does not go on beyond `end`.
fn write_commands(words: &[&[u8]], end: usize, writer: &mut Writer<'_>) {
    let subcommand = words.first().map(|word| word.to_ascii_lowercase());
    let named = words.get(1..).unwrap_or_default();
    let all = table::all();
    match subcommand.as_deref() {
        None => {
            writer.array(all.len());
            all.iter().for_each(|spec| write_spec(spec, writer));
        }
        Some(b"count") => writer.integer(all.len() as i64),
        Some(b"list") => match listed(named) {
            Ok(names) => {
                writer.array(names.len());
                names.iter().for_each(|name| writer.bulk(name.as_bytes()));
            }
            Err(text) => writer.error(&text),
        },
        Some(b"info") if named.is_empty() => {
            writer.array(all.len());
            all.iter().for_each(|spec| write_spec(spec, writer));
        }
        Some(b"info") => {
            writer.array(named.len());
            for name in named {
                if writer.len() > end {
                    break;
                }
                match table::find(name) {
                    Some(spec) => write_spec(spec, writer),
                    None => writer.null(),
                }
            }
        }
        Some(b"docs") => {
            let known: Vec<&Spec> = match named.is_empty() {
                true => all,
                false => named.iter().filter_map(|name| table::find(name)).collect(),
            };
            writer.map(known.len());
            for spec in known {
                if writer.len() > end {
                    break;
                }
                write_docs(spec, writer);
            }
        }
        Some(b"getkeys") => match keys_in(named) {
            Ok(keys) => {
                writer.array(keys.len());
                keys.iter().for_each(|key| writer.bulk(key));
            }
            Err(text) => writer.error(text),
        },
        Some(b"help") => help(writer, "COMMAND", &COMMAND_HELP),
        Some(_) => writer.error(SYNTAX),
    }
}

/// The keys of a request, or Redis's error.
fn keys_in<'a>(parts: &[&'a [u8]]) -> Result<Vec<&'a [u8]>, &'static str> {
    let spec = parts.first().and_then(|name| table::find(name));
    let spec = spec.ok_or("ERR Invalid command specified")?;
    if !spec.has_keys() {
        return Err("ERR The command has no key arguments");
    }
    if !spec.takes(parts.len()) {
        return Err("ERR Invalid number of arguments specified for command");
    }
    let keys: Vec<&[u8]> = spec.keys_of(parts).collect();
    match keys.is_empty() {
        true => Err("ERR The command has no key arguments"),
        false => Ok(keys),
    }
}

/// The help text of a command with subcommands, in Redis's form: it lists this server's subcommands alone.
pub fn help(writer: &mut Writer<'_>, command: &str, lines: &[&str]) {
    let first = format!("{command} <subcommand> [<arg> [value] [opt] ...]. Subcommands are:");
    writer.array(lines.len() + 3);
    writer.simple(&first);
    lines.iter().for_each(|line| writer.simple(line));
    writer.simple("HELP");
    writer.simple("    Print this help.");
}

/// The command of a request whose number of parts, and whose subcommand, are known.
pub fn known_command(parts: &[&[u8]]) -> Result<&'static Spec, Refusal> {
    let spec = table::find(parts[0]).ok_or_else(|| unknown_command(parts))?;
    if !spec.takes(parts.len()) {
        return Err(wrong_arity(spec.name));
    }
    match wrong_subcommand(spec, parts) {
        Some(text) => Err(text),
        None => Ok(spec),
    }
}

const NO_PUBLISH: &str = "ERR clients cannot publish here: channels carry events of keys (notify-keyspace-events) and \
    invalidations alone";

/// Whether a command passes on messages of clients.
fn is_publishing(name: &[u8]) -> bool {
    [&b"publish"[..], b"spublish", b"ssubscribe"]
        .iter()
        .any(|known| name.eq_ignore_ascii_case(known))
}

fn unknown_command(parts: &[&[u8]]) -> String {
    let short = |part: &[u8], room: usize| {
        String::from_utf8_lossy(&part[..part.len().min(room)]).into_owned()
    };
    if is_publishing(parts[0]) {
        return NO_PUBLISH.to_owned();
    }
    let mut text = format!(
        "ERR unknown command '{}', with args beginning with: ",
        short(parts[0], REPEATED_BYTES_MAX)
    );
    let mut repeated = 0;
    for part in &parts[1..] {
        if repeated >= REPEATED_BYTES_MAX {
            break;
        }
        let word = format!("'{}' ", short(part, REPEATED_BYTES_MAX - repeated));
        repeated += word.len();
        text.push_str(&word);
    }
    text
}

/// Why a command with subcommands is refused: there is none of this name, or it takes another number of parts.
fn wrong_subcommand(spec: &Spec, parts: &[&[u8]]) -> Option<String> {
    if spec.subcommands().is_empty() {
        return None;
    }
    let asked = parts.get(1)?;
    let is_asked = |known: &&table::Subcommand| asked.eq_ignore_ascii_case(known.name.as_bytes());
    let Some(known) = spec.subcommands().iter().find(is_asked) else {
        let shown = &asked[..asked.len().min(REPEATED_BYTES_MAX)];
        let shown = String::from_utf8_lossy(shown);
        let command = spec.name.to_uppercase();
        return Some(format!(
            "ERR unknown subcommand '{shown}'. Try {command} HELP."
        ));
    };
    let fits = table::fits(known.arity, parts.len());
    (!fits).then(|| wrong_arity(&format!("{}|{}", spec.name, known.name)))
}

fn write_spec(spec: &Spec, writer: &mut Writer<'_>) {
    writer.array(10);
    writer.bulk(spec.name.as_bytes());
    writer.integer(spec.arity);
    writer.set(spec.flags.len());
    spec.flags.iter().for_each(|flag| writer.simple(flag));
    spec.keys.iter().for_each(|key| writer.integer(*key));
    let categories = spec.categories();
    writer.set(categories.len());
    for category in categories {
        writer.simple(&format!("@{category}"));
    }
    // Tips, key specifications, subcommands: none.
    (0..3).for_each(|_| writer.set(0));
}

/// The names for COMMAND LIST.
fn listed(words: &[&[u8]]) -> Result<Vec<&'static str>, Refusal> {
    let is = |word: &[u8], name: &str| word.eq_ignore_ascii_case(name.as_bytes());
    if let [_, _, pattern] = words {
        is_short(pattern)?;
    }
    let fits: &dyn Fn(&Spec) -> bool = match words {
        [] => &|_| true,
        [filter, kind, _] if is(filter, "filterby") && is(kind, "module") => &|_| false,
        [filter, kind, category] if is(filter, "filterby") && is(kind, "aclcat") => {
            &|spec| spec.categories().iter().any(|own| is(category, own))
        }
        [filter, kind, pattern] if is(filter, "filterby") && is(kind, "pattern") => {
            &|spec| glob::fits(pattern, spec.name.as_bytes(), Case::Ignored)
        }
        _ => return Err(SYNTAX.to_owned()),
    };
    let all = table::all().into_iter().filter(|spec| fits(spec));
    Ok(all.map(|spec| spec.name).collect())
}

/// Refuses a pattern that takes too long to be compared.
pub fn is_short(pattern: &[u8]) -> Result<(), Refusal> {
    require_short(pattern).map_err(|why| format!("ERR {why}"))
}

fn write_docs(spec: &Spec, writer: &mut Writer<'_>) {
    let (arguments, subcommands) = (spec.arguments, spec.subcommands());
    let has = usize::from(!arguments.is_empty()) + usize::from(!subcommands.is_empty());
    writer.bulk(spec.name.as_bytes());
    writer.map(3 + has);
    write_about(spec.summary, spec, writer);
    if !arguments.is_empty() {
        writer.bulk(b"arguments");
        arguments::write(arguments, writer);
    }
    if !subcommands.is_empty() {
        writer.bulk(b"subcommands");
        writer.map(subcommands.len());
        for known in subcommands {
            writer.bulk(format!("{}|{}", spec.name, known.name).as_bytes());
            writer.map(3 + usize::from(!known.arguments.is_empty()));
            write_about(known.summary, spec, writer);
            if !known.arguments.is_empty() {
                writer.bulk(b"arguments");
                arguments::write(known.arguments, writer);
            }
        }
    }
}

fn write_about(summary: &str, spec: &Spec, writer: &mut Writer<'_>) {
    for (field, text) in [
        ("summary", summary),
        ("since", spec.since),
        ("group", spec.group),
    ] {
        writer.bulk(field.as_bytes());
        writer.bulk(text.as_bytes());
    }
}

const COMMAND_HELP: [&str; 12] = [
    "(no subcommand)",
    "    Return details about all commands.",
    "COUNT",
    "    Return the total number of commands in this server.",
    "DOCS [<command-name> ...]",
    "    Return documentation details about multiple commands, or about all.",
    "GETKEYS <full-command>",
    "    Return the keys from a full Redis command.",
    "INFO [<command-name> ...]",
    "    Return details about multiple commands, or about all.",
    "LIST [FILTERBY (MODULE <module-name>|ACLCAT <category>|PATTERN <pattern>)]",
    "    Return a list of all commands in this server, or of those that fit.",
];
