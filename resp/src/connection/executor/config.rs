//! CONFIG: the settings of the process around, and those of the broker, which can be changed.

use trine_commands::Writer;
use trine_commands::describe::{help, is_short};
use trine_commands::errors::{Refusal, wrong_arity};
use trine_commands::glob::{self, Case};
use trine_commands::limits::REPEATED_BYTES_MAX;
use trine_kvstore::integer;

use crate::connection::Environment;
use crate::connection::broker::{Broker, Classes};
use crate::limits::{PUSHED_BYTES_MAX, SETTING_PATTERNS_MAX};

/// CONFIG.
pub(super) fn config(words: &[&[u8]], environment: &Environment<'_>, writer: &mut Writer<'_>) {
    if words[0].eq_ignore_ascii_case(b"help") {
        return help(writer, "CONFIG", &CONFIG_HELP);
    }
    if words[0].eq_ignore_ascii_case(b"set") {
        return writer.done(configure(&words[1..], environment));
    }
    let patterns = &words[1..];
    if patterns.len() > SETTING_PATTERNS_MAX {
        let text = format!("ERR at most {SETTING_PATTERNS_MAX} patterns in one command");
        return writer.error(&text);
    }
    if let Err(text) = patterns.iter().try_for_each(|pattern| is_short(pattern)) {
        return writer.error(&text);
    }
    let asked = |name: &str| {
        let fits = |pattern: &&[u8]| glob::fits(pattern, name.as_bytes(), Case::Ignored);
        patterns.iter().any(fits)
    };
    let mut settings = environment.host.settings();
    settings.extend(broker_settings(&environment.broker.borrow()));
    let found: Vec<_> = settings.iter().filter(|(name, _)| asked(name)).collect();
    writer.map(found.len());
    for (name, value) in found {
        writer.bulk(name.as_bytes());
        writer.bulk(value.as_bytes());
    }
}

/// CONFIG SET: all or nothing.
fn configure(words: &[&[u8]], environment: &Environment<'_>) -> Result<(), Refusal> {
    let mut broker = environment.broker.borrow_mut();
    let (mut classes, mut keys_max) = (broker.classes(), broker.keys_max());
    let is = |word: &[u8], name: &str| word.eq_ignore_ascii_case(name.as_bytes());
    for pair in words.chunks(2) {
        let read = match pair {
            [_] => return Err(wrong_arity("config|set")),
            [name, value] if is(name, NOTIFY) => Classes::parse(value).map(|read| classes = read),
            [name, value] if is(name, TABLE_KEYS) => integer(value)
                .and_then(|number| usize::try_from(number).ok())
                .map(|number| keys_max = number)
                .ok_or("argument couldn't be parsed into an integer".to_owned()),
            [name, ..] if is_known_setting(name, environment) => {
                Err("it cannot be set here: `trine config` lists the server's options".to_owned())
            }
            [name, ..] => {
                let shown = &name[..name.len().min(REPEATED_BYTES_MAX)];
                return Err(format!(
                    "ERR Unknown option or number of arguments for CONFIG SET - '{}'",
                    String::from_utf8_lossy(shown)
                ));
            }
            [] => Ok(()),
        };
        if let Err(why) = read {
            let name = String::from_utf8_lossy(pair[0]);
            return Err(format!(
                "ERR CONFIG SET failed (possibly related to argument '{name}') - {why}"
            ));
        }
    }
    broker.set_classes(classes);
    broker.set_keys_max(keys_max);
    Ok(())
}

const NOTIFY: &str = "notify-keyspace-events";
const TABLE_KEYS: &str = "tracking-table-max-keys";

fn is_known_setting(name: &[u8], environment: &Environment<'_>) -> bool {
    let settings = environment.host.settings();
    let mut names = settings.iter().map(|(known, _)| *known);
    names.any(|known| known.as_bytes().eq_ignore_ascii_case(name))
}

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
