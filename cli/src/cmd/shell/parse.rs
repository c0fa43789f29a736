//! Parses one line of the shell, and reads nothing but the line.

use std::time::Duration;

use trine_commands::{Pattern, Reading, Refused, StoreCommand};
use trine_kvstore::config::SCAN_KEYS_MAX;
use trine_kvstore::{Command, Cursor, KeyRange, Pair, Position, Prefix, ScanOptions, WalkContent};

use super::commands::{CommandHelp, find, is_of_line, nearest};
use trine_base::words::{WordError, show, split};

/// Keys that `range` shows if the line names no number.
const PAGE_KEYS: u32 = 100;

const WATCH_SECONDS_MAX: f64 = 86_400.0;

/// The request of a line.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum LineRequest {
    /// Nothing: an empty line or a comment.
    Nothing,
    /// A command of the store.
    Store(StoreRequest),
    /// All keys that fit a pattern.
    Keys(Pattern),
    /// The list of commands, or one of them.
    Help(Option<&'static str>),
    /// A command of the command line, in its words.
    Line(Vec<Vec<u8>>),
    /// Clear the screen.
    Clear,
    /// Report how long commands take; without a value, toggle that.
    Timing(Option<bool>),
    /// Repeat a command. Its words are parsed each time: a moment of Unix time comes closer.
    Watch {
        every: Duration,
        words: Vec<Vec<u8>>,
    },
    /// End the shell.
    Quit,
}

/// A command for the store.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct StoreRequest {
    /// [`Command::encode`]d.
    pub(super) command: Vec<u8>,
    pub(super) read_only: bool,
    /// The form of the answer.
    pub(super) shape: ReplyShape,
    /// The key, for error messages.
    pub(super) key: Vec<u8>,
    /// How its row in the table reads the answer; none for commands that the shell parses.
    pub(super) reading: Option<Reading>,
}

/// The part of an answer that is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ReplyShape {
    /// The whole answer.
    Plain,
    /// The version of a value.
    Version,
}

/// Why a line is no valid request.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub(super) enum ParseError {
    #[error(transparent)]
    Words(#[from] WordError),
    #[error("no such command: {name}{}", hint(*nearest))]
    Unknown {
        name: String,
        nearest: Option<&'static str>,
    },
    #[error("write: {name} {form}")]
    Form {
        name: &'static str,
        form: &'static str,
    },
    #[error("{name}: {why}")]
    Refused { name: &'static str, why: String },
    #[error("{word} is not {what}")]
    Word { word: String, what: &'static str },
}

fn hint(nearest: Option<&'static str>) -> String {
    match nearest {
        Some(name) => format!("; did you mean {name}?"),
        None => "; help lists them".to_owned(),
    }
}

/// Reads one line, at this moment of Unix time: some commands name a moment at which a key expires.
pub(super) fn parse(line: &[u8], unix_ms: i64) -> Result<LineRequest, ParseError> {
    request(&split(line)?, unix_ms)
}

pub(super) fn request(words: &[Vec<u8>], unix_ms: i64) -> Result<LineRequest, ParseError> {
    let Some((name, arguments)) = words.split_first() else {
        return Ok(LineRequest::Nothing);
    };
    let arguments: Vec<&[u8]> = arguments.iter().map(Vec::as_slice).collect();
    // Names that users know from other shells.
    let name = match name.to_ascii_lowercase().as_slice() {
        b"exit" | b"\\q" => b"quit".to_vec(),
        b"?" | b"\\h" | b"\\?" => b"help".to_vec(),
        // As they were called before.
        b"\\status" => b"status".to_vec(),
        b"\\net" => b"net".to_vec(),
        _ => name.clone(),
    };
    let entry = find(&name).ok_or_else(|| {
        let name = show(&name);
        let nearest = nearest(&name);
        ParseError::Unknown { name, nearest }
    })?;
    if is_of_line(entry) || has_options_of_line(entry, &arguments) {
        let name = entry.name.as_bytes().to_vec();
        let rest = words[1..].iter().cloned();
        return Ok(LineRequest::Line([name].into_iter().chain(rest).collect()));
    }
    if let Some(row) = entry.row {
        return of_table(entry, row, &arguments, unix_ms).map(LineRequest::Store);
    }
    match entry.name {
        "help" => help(entry, &arguments),
        "quit" => alone(entry, &arguments, LineRequest::Quit),
        "clear" => alone(entry, &arguments, LineRequest::Clear),
        "\\timing" => timing(entry, &arguments),
        "\\watch" => watch(entry, words, unix_ms),
        "keys" => keys(entry, &arguments),
        _ => store(entry, &arguments).map(LineRequest::Store),
    }
}

/// Whether one of the quick commands is given an option that only the command line has. What is written can begin with a
/// hyphen, so `put` has none here.
fn has_options_of_line(entry: &CommandHelp, arguments: &[&[u8]]) -> bool {
    match entry.name {
        "count" => !arguments.is_empty(),
        "get" | "del" => arguments.iter().any(|word| word.starts_with(b"--")),
        _ => false,
    }
}

fn form(entry: &'static CommandHelp) -> ParseError {
    let (name, form) = (entry.name, entry.form.as_str());
    ParseError::Form { name, form }
}

fn alone(
    entry: &'static CommandHelp,
    arguments: &[&[u8]],
    request: LineRequest,
) -> Result<LineRequest, ParseError> {
    match arguments {
        [] => Ok(request),
        _ => Err(form(entry)),
    }
}

fn help(entry: &'static CommandHelp, arguments: &[&[u8]]) -> Result<LineRequest, ParseError> {
    match arguments {
        [] => Ok(LineRequest::Help(None)),
        [name] => match find(name) {
            Some(found) => Ok(LineRequest::Help(Some(found.name))),
            None => {
                let name = show(name);
                let nearest = nearest(&name);
                Err(ParseError::Unknown { name, nearest })
            }
        },
        _ => Err(form(entry)),
    }
}

fn timing(entry: &'static CommandHelp, arguments: &[&[u8]]) -> Result<LineRequest, ParseError> {
    match arguments {
        [] => Ok(LineRequest::Timing(None)),
        [b"on"] => Ok(LineRequest::Timing(Some(true))),
        [b"off"] => Ok(LineRequest::Timing(Some(false))),
        _ => Err(form(entry)),
    }
}

fn keys(entry: &'static CommandHelp, arguments: &[&[u8]]) -> Result<LineRequest, ParseError> {
    match arguments {
        [text] => Ok(LineRequest::Keys(pattern(entry, text)?)),
        _ => Err(form(entry)),
    }
}

fn pattern(entry: &'static CommandHelp, text: &[u8]) -> Result<Pattern, ParseError> {
    let name = entry.name;
    Pattern::new(text).map_err(|why| ParseError::Refused { name, why })
}

/// A page of the keys that begin with this.
pub(super) fn page(from: Cursor, count: u32, prefix: &[u8]) -> StoreRequest {
    let command = Command::Walk {
        from,
        count,
        content: WalkContent::Keys,
        prefix: Prefix(prefix),
    };
    encoded(&command, ReplyShape::Plain)
}

fn watch(
    entry: &'static CommandHelp,
    words: &[Vec<u8>],
    unix_ms: i64,
) -> Result<LineRequest, ParseError> {
    let [_, seconds, command @ ..] = words else {
        return Err(form(entry));
    };
    let asked: Option<f64> = text(seconds).parse().ok();
    let valid = asked.filter(|seconds| (0.01..=WATCH_SECONDS_MAX).contains(seconds));
    let every = valid.ok_or_else(|| wrong(seconds, "a number of seconds from 0.01 to 86400"))?;
    match request(command, unix_ms)? {
        LineRequest::Store(_) | LineRequest::Line(_) => Ok(LineRequest::Watch {
            every: Duration::from_secs_f64(every),
            words: command.to_vec(),
        }),
        _ => Err(form(entry)),
    }
}

fn text(word: &[u8]) -> &str {
    std::str::from_utf8(word).unwrap_or_default()
}

fn wrong(word: &[u8], what: &'static str) -> ParseError {
    let word = show(word);
    ParseError::Word { word, what }
}

fn whole(word: &[u8]) -> Result<i64, ParseError> {
    let number = text(word).parse();
    number.map_err(|_| wrong(word, "a whole number of 64 bits"))
}

/// The commands of the table.
fn of_table(
    entry: &'static CommandHelp,
    row: StoreCommand,
    arguments: &[&[u8]],
    unix_ms: i64,
) -> Result<StoreRequest, ParseError> {
    let parts = [&[entry.name.as_bytes()], arguments].concat();
    let request = row.request(&parts, unix_ms).map_err(|why| match why {
        Refused::Form => form(entry),
        Refused::Because(why) => ParseError::Refused {
            name: entry.name,
            why,
        },
    })?;
    Ok(StoreRequest {
        command: request.command,
        read_only: request.read_only,
        shape: ReplyShape::Plain,
        key: request.key.unwrap_or_default(),
        reading: Some(request.reading),
    })
}

/// The commands of the store that the table does not have, or has in another form.
fn store(entry: &'static CommandHelp, arguments: &[&[u8]]) -> Result<StoreRequest, ParseError> {
    let command = match (entry.name, arguments) {
        ("version", &[key]) => Command::Get { key },
        ("put", &[key, value]) => Command::Put { key, value },
        ("del", &[key]) => Command::Delete { key },
        ("cas", &[key, version, value]) => Command::CompareAndSwap {
            key,
            expected: parse_version(version)?,
            value,
        },
        ("incr" | "decr", &[key, ref by @ ..]) => Command::Increment {
            key,
            delta: delta(entry, by)?,
        },
        ("mput", [_, ..]) if arguments.len().is_multiple_of(2) => {
            let pair = |pair: &[&'_ [u8]]| (pair[0].to_vec(), pair[1].to_vec());
            let pairs = arguments.chunks(2).map(pair).collect::<Vec<_>>();
            return Ok(multi_put(&pairs));
        }
        ("count", []) => Command::Count,
        ("range", page) => page_of(entry, page)?,
        _ => return Err(form(entry)),
    };
    let shape = match entry.name {
        "version" => ReplyShape::Version,
        _ => ReplyShape::Plain,
    };
    Ok(encoded(&command, shape))
}

/// One page of `range`.
fn page_of<'a>(
    entry: &'static CommandHelp,
    arguments: &[&'a [u8]],
) -> Result<Command<'a>, ParseError> {
    let (prefix, limit) = match *arguments {
        [] => (&[][..], PAGE_KEYS),
        [prefix] => (prefix, PAGE_KEYS),
        [prefix, limit] => {
            let number = text(limit).parse().ok();
            let number = number.filter(|number| (1..=SCAN_KEYS_MAX).contains(number));
            let number = number.ok_or_else(|| wrong(limit, "a number of keys from 1 to 16384"));
            (prefix, number?)
        }
        _ => return Err(form(entry)),
    };
    Ok(Command::Scan {
        range: KeyRange::Prefix(prefix),
        options: ScanOptions {
            limit,
            ..ScanOptions::default()
        },
    })
}

fn multi_put(pairs: &[(Vec<u8>, Vec<u8>)]) -> StoreRequest {
    let borrowed: Vec<Pair<'_>> = pairs
        .iter()
        .map(|(key, value)| Pair { key, value })
        .collect();
    let command = Command::MultiPut {
        pairs: borrowed.as_slice().into(),
    };
    encoded(&command, ReplyShape::Plain)
}

fn encoded(command: &Command<'_>, shape: ReplyShape) -> StoreRequest {
    let mut bytes = Vec::with_capacity(command.encoded_len());
    command.encode(&mut bytes);
    StoreRequest {
        command: bytes,
        read_only: command.is_read_only(),
        shape,
        key: command.key().unwrap_or_default().to_vec(),
        reading: None,
    }
}

fn delta(entry: &'static CommandHelp, by: &[&[u8]]) -> Result<i64, ParseError> {
    let delta = match by {
        [] => 1,
        [by] => whole(by)?,
        _ => return Err(form(entry)),
    };
    match entry.name {
        "decr" => delta
            .checked_neg()
            .ok_or_else(|| wrong(by[0], "a number that can be subtracted")),
        _ => Ok(delta),
    }
}

fn parse_version(word: &[u8]) -> Result<Position, ParseError> {
    let number = text(word).parse();
    number
        .map(Position::from_u64)
        .map_err(|_| wrong(word, "a version, as the command version shows it"))
}

#[cfg(test)]
mod tests {
    use super::super::commands::COMMANDS;
    use super::*;
    use trine_kvstore::{SetCondition, SetExpiry, SetOptions};
    use trine_transport::prng::Prng;

    fn read(line: &[u8]) -> Result<LineRequest, ParseError> {
        parse(line, 1_000)
    }

    fn command(line: &str) -> StoreRequest {
        match read(line.as_bytes()) {
            Ok(LineRequest::Store(request)) => request,
            other => panic!("{line}: {other:?}"),
        }
    }

    #[test]
    fn every_example_of_the_help_can_be_read() {
        for entry in COMMANDS.iter() {
            let asked = read(entry.example.as_bytes());
            assert!(asked.is_ok(), "{}: {asked:?}", entry.example);
        }
    }

    #[test]
    fn lines_become_the_commands_of_the_store() {
        let decoded = |line: &str| command(line).command;
        let encode = |command: Command<'_>| encoded(&command, ReplyShape::Plain).command;
        let (key, value): (&[u8], &[u8]) = (b"k", b"v w");
        assert_eq!(decoded("GET k"), encode(Command::Get { key }));
        assert_eq!(decoded("put k 'v w'"), encode(Command::Put { key, value }));
        let delta = -5;
        assert_eq!(
            decoded("decr k 5"),
            encode(Command::Increment { key, delta })
        );
        let options = SetOptions {
            condition: SetCondition::Absent,
            expiry: SetExpiry::After(1_500_000_000),
            return_previous: true,
        };
        let set = Command::Set {
            key,
            value,
            options,
        };
        assert_eq!(decoded("set k 'v w' PX 1500 nx get"), encode(set));
        let after_ns = 9_000_000_000;
        assert_eq!(
            decoded("expireat k 10"),
            encode(Command::Expire { key, after_ns })
        );
        let pairs: &[Pair<'_>] = &[Pair { key, value }];
        let pairs = Command::MultiPut {
            pairs: pairs.into(),
        };
        assert_eq!(decoded("mput k 'v w'"), encode(pairs.clone()));
        assert_eq!(decoded("mset k 'v w'"), encode(pairs));
        let range = KeyRange::Prefix(b"v w");
        let options = ScanOptions {
            limit: 7,
            ..ScanOptions::default()
        };
        assert_eq!(
            decoded("range 'v w' 7"),
            encode(Command::Scan { range, options })
        );
        assert!(command("ttl k").read_only && !command("incr k").read_only);
    }

    #[test]
    fn a_mistake_is_named_with_its_hint() {
        let says = |line: &str, part: &str| {
            let error = read(line.as_bytes()).expect_err(line).to_string();
            assert!(error.contains(part), "{line}: {error}");
        };
        says("gte k", "did you mean get?");
        says("frobnicate", "help lists them");
        says("put k", "write: put KEY VALUE");
        says("mput a 1 b", "KEY VALUE [KEY VALUE]");
        says("incr k x", "x is not a whole number");
        says("decr k -9223372036854775808", "can be subtracted");
        says("expire k soon", "expire: value is not an integer");
        says("set k v ex 0", "set: invalid expire time in 'set' command");
        says("strlen", "write: strlen KEY");
        says("mset a 1 b", "KEY VALUE [KEY VALUE]...");
        says("set k v nx xx", "write: set");
        says("set k v ex", "write: set");
        says("\\watch 0 get k", "seconds from 0.01");
        says("\\watch NaN get k", "seconds from 0.01");
        says("\\watch 1 \\watch 1 get k", "write: \\watch");
        says("cas k old new", "a version");
        says("range a 0", "a number of keys from 1");
        says("range a 16385", "a number of keys from 1");
        says("range a 1 2", "write: range [PREFIX [LIMIT]]");
        says("keys", "write: keys PATTERN");
        says("keys a b", "write: keys PATTERN");
    }

    /// `scan` and `watch` are those of the command line, with its options. A value may begin with a hyphen.
    #[test]
    fn commands_of_the_command_line_are_handed_over_in_their_words() {
        let words = |line: &str| -> Vec<Vec<u8>> {
            line.split(' ')
                .map(|word| word.as_bytes().to_vec())
                .collect()
        };
        for line in [
            "scan user/ --limit 10",
            "watch",
            "rm a",
            "count a b",
            "get k --stale",
            "net",
        ] {
            assert_eq!(
                read(line.as_bytes()),
                Ok(LineRequest::Line(words(line))),
                "{line}"
            );
        }
        assert_eq!(read(b"\\status"), Ok(LineRequest::Line(words("status"))));
        for line in ["get k", "count", "put k --value", "incr k -1"] {
            assert!(
                matches!(read(line.as_bytes()), Ok(LineRequest::Store(_))),
                "{line}"
            );
        }
    }

    /// For any typed line, the parser returns a request or an error.
    #[test]
    fn no_line_breaks_the_reader() {
        let mut prng = Prng::new(3);
        let parts: &[&[u8]] = &[
            b"get ",
            b"set ",
            b"\\watch ",
            b"1 ",
            b"'",
            b"\"",
            b"\\x",
            b"\\",
            b"ex ",
            b"-",
            b"9223372036854775808 ",
            b"\xff",
            b"#",
            b"\\timing ",
            b"mput ",
            b"0.5 ",
            b"incr ",
            b" ",
        ];
        let mut complete = 0;
        for _ in 0..50_000 {
            let picks = 1 + prng.below(8);
            let part = |_| parts[prng.below(parts.len() as u64) as usize];
            let line: Vec<u8> = (0..picks).flat_map(part).copied().collect();
            complete += usize::from(read(&line).is_ok());
        }
        assert!(complete > 100, "{complete} lines were read");
    }

    /// The same for the fuzzer's corpus of lines. The words of a parsed line must lead to the same request again. A
    /// replica must be able to read a command of the store.
    /// Found by review: the distance to the moment was measured once, so a key that was watched never expired.
    #[test]
    fn a_watched_command_is_parsed_at_the_time_of_each_repetition() {
        let line = b"\\watch 1 expireat k 100";
        let Ok(LineRequest::Watch { words, .. }) = parse(line, 0) else {
            panic!("a command that can be watched");
        };
        let after_ns = |unix_ms| {
            let Ok(LineRequest::Store(store)) = request(&words, unix_ms) else {
                panic!("a command of the store");
            };
            match Command::decode(&store.command) {
                Ok(Command::Expire { after_ns, .. }) => after_ns,
                other => panic!("{other:?}"),
            }
        };
        assert_eq!(after_ns(0), 100_000_000_000);
        assert_eq!(after_ns(60_000), 40_000_000_000);
    }

    #[test]
    fn lines_of_the_corpus_and_their_words_ask_for_the_same() {
        trine_corpus::replay("cli-words", 1_000, |bytes| {
            for line in bytes.split(|&byte| byte == b'\n') {
                let asked = read(line);
                if let Ok(LineRequest::Store(request)) = &asked {
                    let command = Command::decode(&request.command).expect("a command");
                    assert_eq!(command.is_read_only(), request.read_only);
                    assert_eq!(command.key().unwrap_or_default(), request.key);
                }
                if let Ok(words) = split(line) {
                    let shown: Vec<String> = words.iter().map(|word| show(word)).collect();
                    assert_eq!(read(shown.join(" ").as_bytes()), asked, "{shown:?}");
                }
            }
        });
    }
}
