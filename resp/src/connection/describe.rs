//! CLIENT, COMMAND and CONFIG: information about a connection, the commands and the settings.

use trine_kvstore::integer;

use super::broker::{Broker, Classes};
use super::{Connection, Environment};
use crate::arguments;
use crate::errors::{Refusal, SYNTAX, wrong_arity};
use crate::glob::{self, Case};
use crate::limits::{
    DESCRIBED_BYTES_MAX, PUSHED_BYTES_MAX, REPEATED_BYTES_MAX, SETTING_PATTERNS_MAX,
};
use crate::pattern::require_short;
use crate::reply::Writer;
use crate::table::{self, Spec};

/// The release, which HELLO names.
pub(super) const VERSION: &str = env!("CARGO_PKG_VERSION");

impl Connection {
    pub(super) fn client(&mut self, words: &[&[u8]], environment: &Environment<'_>) {
        let subcommand = words[0].to_ascii_lowercase();
        match (subcommand.as_slice(), &words[1..]) {
            (b"id", []) => self.replies.writer().integer(self.profile.id() as i64),
            (b"getname", []) => match self.profile.name() {
                [] => self.replies.writer().null(),
                name => self.replies.writer().bulk(name),
            },
            (b"setname", [name]) => self.replies.done(self.profile.set_name(name)),
            (b"setinfo", [field, value]) => {
                self.replies.done(self.profile.set_library(field, value));
            }
            (b"info", []) => {
                let line = self.describe(environment.unix_ms);
                self.replies.writer().text(&line);
            }
            (b"list", filter) => match Filter::read(filter) {
                Ok(filter) => {
                    let own = match filter.fits(self) {
                        true => self.describe(environment.unix_ms),
                        false => String::new(),
                    };
                    let fits = |other: &Connection| filter.fits(other);
                    let lines = own + &environment.host.others(&fits);
                    self.replies.writer().text(&lines);
                }
                Err(text) => self.replies.error(&text),
            },
            (b"tracking", [_, ..]) => self.client_tracking(&words[1..], environment),
            (b"caching", [word]) => self.client_caching(word),
            (b"getredir", []) => {
                let redirect = self.redirected_to();
                self.replies.writer().integer(redirect);
            }
            (b"trackinginfo", []) => self.client_tracking_info(),
            (b"help", []) => self.help("CLIENT", &CLIENT_HELP),
            _ => self.replies.error(SYNTAX),
        }
    }

    /// The help text of a command with subcommands, in Redis's form: it lists this server's subcommands alone.
    pub(super) fn help(&mut self, command: &str, lines: &[&str]) {
        let first = format!("{command} <subcommand> [<arg> [value] [opt] ...]. Subcommands are:");
        let mut writer = self.replies.writer();
        writer.array(lines.len() + 3);
        writer.simple(&first);
        lines.iter().for_each(|line| writer.simple(line));
        writer.simple("HELP");
        writer.simple("    Print this help.");
    }

    /// The line of CLIENT LIST.
    #[must_use]
    pub fn describe(&self, unix_ms: i64) -> String {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        format!(
            "id={} addr={} name={} age={} db=0 sub={} psub={} multi={} watch={} qbuf={} obl={} omem={} tot-mem={} user={} redir={} resp={} lib-name={} lib-ver={} tot-cmds={}\n",
            self.profile.id(),
            self.profile.peer(),
            text(self.profile.name()),
            self.profile.age_seconds(unix_ms),
            self.subscriptions.counts()[0],
            self.subscriptions.counts()[1],
            if self.transaction.is_open() { 0 } else { -1 },
            self.transaction.watched(),
            self.input.unanswered(),
            self.replies.unread().len(),
            self.replies.capacity(),
            self.held_bytes(),
            self.standing.name(),
            self.redirected_to(),
            self.replies.protocol(),
            text(&self.profile.library()[0]),
            text(&self.profile.library()[1]),
            self.commands,
        )
    }

    pub(super) fn describe_commands(&mut self, words: &[&[u8]]) {
        let before = self.replies.len();
        let end = before + DESCRIBED_BYTES_MAX;
        self.write_commands(words, end);
        // The same command can be named often.
        if self.replies.len() > end {
            self.replies.truncate(before);
            let text = "ERR the answer would be too large: ask for fewer commands";
            self.replies.error(text);
        }
    }

    /// Writes the answer, but not on behind `end`.
    fn write_commands(&mut self, words: &[&[u8]], end: usize) {
        let subcommand = words.first().map(|word| word.to_ascii_lowercase());
        let named = words.get(1..).unwrap_or_default();
        let all = table::all();
        let mut writer = self.replies.writer();
        match subcommand.as_deref() {
            None => {
                writer.array(all.len());
                all.iter().for_each(|spec| write_spec(spec, &mut writer));
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
                all.iter().for_each(|spec| write_spec(spec, &mut writer));
            }
            Some(b"info") => {
                writer.array(named.len());
                for name in named {
                    if writer.len() > end {
                        break;
                    }
                    match table::find(name) {
                        Some(spec) => write_spec(spec, &mut writer),
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
                    write_docs(spec, &mut writer);
                }
            }
            Some(b"help") => self.help("COMMAND", &COMMAND_HELP),
            Some(_) => writer.error(SYNTAX),
        }
    }

    pub(super) fn config(&mut self, words: &[&[u8]], environment: &Environment<'_>) {
        if words[0].eq_ignore_ascii_case(b"help") {
            return self.help("CONFIG", &CONFIG_HELP);
        }
        if words[0].eq_ignore_ascii_case(b"set") {
            return self.configure(&words[1..], environment);
        }
        let patterns = &words[1..];
        if patterns.len() > SETTING_PATTERNS_MAX {
            let text = format!("ERR at most {SETTING_PATTERNS_MAX} patterns in one command");
            return self.replies.error(&text);
        }
        if let Err(text) = patterns.iter().try_for_each(|pattern| is_short(pattern)) {
            return self.replies.error(&text);
        }
        let asked = |name: &str| {
            let fits = |pattern: &&[u8]| glob::fits(pattern, name.as_bytes(), Case::Ignored);
            patterns.iter().any(fits)
        };
        let mut settings = environment.host.settings();
        settings.extend(broker_settings(&environment.broker.borrow()));
        let found: Vec<_> = settings.iter().filter(|(name, _)| asked(name)).collect();
        let mut writer = self.replies.writer();
        writer.map(found.len());
        for (name, value) in found {
            writer.bulk(name.as_bytes());
            writer.bulk(value.as_bytes());
        }
    }
}

impl Connection {
    /// CONFIG SET: all or nothing.
    fn configure(&mut self, words: &[&[u8]], environment: &Environment<'_>) {
        let mut broker = environment.broker.borrow_mut();
        let (mut classes, mut keys_max) = (broker.classes(), broker.keys_max());
        let is = |word: &[u8], name: &str| word.eq_ignore_ascii_case(name.as_bytes());
        for pair in words.chunks(2) {
            let read = match pair {
                [_] => return self.replies.error(&wrong_arity("config|set")),
                [name, value] if is(name, NOTIFY) => {
                    Classes::parse(value).map(|read| classes = read)
                }
                [name, value] if is(name, TABLE_KEYS) => integer(value)
                    .and_then(|number| usize::try_from(number).ok())
                    .map(|number| keys_max = number)
                    .ok_or("argument couldn't be parsed into an integer".to_owned()),
                [name, ..] if is_known_setting(name, environment) => Err(
                    "it cannot be set here: `trine config` lists the server's options".to_owned(),
                ),
                [name, ..] => {
                    let shown = &name[..name.len().min(REPEATED_BYTES_MAX)];
                    return self.replies.error(&format!(
                        "ERR Unknown option or number of arguments for CONFIG SET - '{}'",
                        String::from_utf8_lossy(shown)
                    ));
                }
                [] => Ok(()),
            };
            if let Err(why) = read {
                let name = String::from_utf8_lossy(pair[0]);
                return self.replies.error(&format!(
                    "ERR CONFIG SET failed (possibly related to argument '{name}') - {why}"
                ));
            }
        }
        broker.set_classes(classes);
        broker.set_keys_max(keys_max);
        self.replies.ok();
    }
}

const NOTIFY: &str = "notify-keyspace-events";
const TABLE_KEYS: &str = "tracking-table-max-keys";

fn is_known_setting(name: &[u8], environment: &Environment<'_>) -> bool {
    let settings = environment.host.settings();
    let mut names = settings.iter().map(|(known, _)| *known);
    names.any(|known| known.as_bytes().eq_ignore_ascii_case(name))
}

/// Why a command with subcommands is refused: there is none of this name, or it takes another number of parts.
pub(super) fn wrong_subcommand(spec: &Spec, parts: &[&[u8]]) -> Option<String> {
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

const CLIENT_HELP: [&str; 20] = [
    "CACHING (YES|NO)",
    "    Enable/disable tracking of the keys for next command in OPTIN/OPTOUT modes.",
    "GETNAME",
    "    Return the name of the current connection.",
    "GETREDIR",
    "    Return the client ID we are redirecting to when tracking is enabled.",
    "ID",
    "    Return the ID of the current connection.",
    "INFO",
    "    Return information about the current client connection.",
    "LIST [TYPE (NORMAL|PUBSUB|MASTER|REPLICA)|ID <id> [<id> ...]]",
    "    Return information about client connections.",
    "SETINFO <option> <value>",
    "    Set client meta attr: LIB-NAME or LIB-VER.",
    "SETNAME <name>",
    "    Assign the name <name> to the current connection.",
    "TRACKING (ON|OFF) [REDIRECT <id>] [BCAST] [PREFIX <prefix> [...]] [OPTIN] [OPTOUT] [NOLOOP]",
    "    Control server assisted client side caching.",
    "TRACKINGINFO",
    "    Report tracking status for the current connection.",
];

const COMMAND_HELP: [&str; 10] = [
    "(no subcommand)",
    "    Return details about all commands.",
    "COUNT",
    "    Return the total number of commands in this server.",
    "DOCS [<command-name> ...]",
    "    Return documentation details about multiple commands, or about all.",
    "INFO [<command-name> ...]",
    "    Return details about multiple commands, or about all.",
    "LIST [FILTERBY (MODULE <module-name>|ACLCAT <category>|PATTERN <pattern>)]",
    "    Return a list of all commands in this server, or of those that fit.",
];

/// The parameters of the broker. The first two can be set.
fn broker_settings(broker: &Broker) -> [(&'static str, String); 3] {
    [
        (NOTIFY, broker.classes().to_string()),
        (TABLE_KEYS, broker.keys_max().to_string()),
        (
            "client-output-buffer-limit",
            format!("normal 0 0 0 slave 0 0 0 pubsub {PUSHED_BYTES_MAX} 0 0"),
        ),
    ]
}

const CONFIG_HELP: [&str; 4] = [
    "GET <pattern> [<pattern> ...]",
    "    Return the parameters whose names fit one of the patterns, and their values.",
    "SET <directive> <value> [<directive> <value> ...]",
    "    Set parameters of this server: notify-keyspace-events and tracking-table-max-keys.",
];

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
fn is_short(pattern: &[u8]) -> Result<(), Refusal> {
    require_short(pattern).map_err(|why| format!("ERR {why}"))
}

/// Which connections CLIENT LIST tells of.
enum Filter {
    All,
    Ids(Vec<u64>),
    /// Those of clients that subscribe, or the others. No connection is one of a replica.
    Type {
        subscribes: Option<bool>,
    },
}

impl Filter {
    fn read(words: &[&[u8]]) -> Result<Self, Refusal> {
        let is = |word: &[u8], name: &str| word.eq_ignore_ascii_case(name.as_bytes());
        match words {
            [] => Ok(Self::All),
            [filter, kind] if is(filter, "type") => {
                let subscribes = match kind.to_ascii_lowercase().as_slice() {
                    b"normal" => Some(false),
                    b"pubsub" => Some(true),
                    b"master" | b"replica" | b"slave" => None,
                    _ => {
                        let shown = &kind[..kind.len().min(REPEATED_BYTES_MAX)];
                        let shown = String::from_utf8_lossy(shown);
                        return Err(format!("ERR Unknown client type '{shown}'"));
                    }
                };
                Ok(Self::Type { subscribes })
            }
            [filter, ids @ ..] if is(filter, "id") && !ids.is_empty() => {
                let read = |id: &&[u8]| integer(id).and_then(|id| u64::try_from(id).ok());
                let mut ids = ids
                    .iter()
                    .map(read)
                    .collect::<Option<Vec<u64>>>()
                    .ok_or("ERR Invalid client ID")?;
                ids.sort_unstable();
                Ok(Self::Ids(ids))
            }
            _ => Err(SYNTAX.to_owned()),
        }
    }

    fn fits(&self, connection: &Connection) -> bool {
        match self {
            Self::All => true,
            Self::Ids(ids) => ids.binary_search(&connection.id()).is_ok(),
            Self::Type { subscribes } => *subscribes == Some(connection.subscriptions.count() > 0),
        }
    }
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
