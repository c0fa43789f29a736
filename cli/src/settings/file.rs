//! Parses a settings file.

use std::fmt::Write;
use std::ops::Range;
use std::path::{Path, PathBuf};

use toml::de::{DeTable, DeValue};

use super::key::SettingKey;
use trine_base::failure::Failure;
use trine_base::placement::GONE_HINT;
use trine_server::private::keeps_out_others;

/// A longer file is no settings file.
const FILE_BYTES_MAX: u64 = 1 << 20;
/// An unknown key is compared with all known ones. A less similar one is not worth naming.
const SIMILARITY_LEAST: f64 = 0.7;

/// A settings file that has no mistakes.
#[derive(Clone, Debug)]
pub(crate) struct SettingsFile {
    pub(crate) path: PathBuf,
    pub(crate) entries: Vec<FileLine>,
}

/// One line of the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FileLine {
    pub(crate) name: String,
    pub(crate) value: String,
    pub(crate) line: usize,
}

impl SettingsFile {
    /// Reads and checks a file; reports all of its mistakes at once.
    pub(crate) fn read(path: &Path, keys: &[SettingKey]) -> Result<Self, Failure> {
        let (file, mistakes) = Self::read_with_mistakes(path, keys)?;
        file.without(mistakes)
    }

    /// Returns the file, and the mistakes that are visible line by line.
    pub(crate) fn read_with_mistakes(
        path: &Path,
        keys: &[SettingKey],
    ) -> Result<(Self, Vec<Mistake>), Failure> {
        let shown = path.display();
        let cannot = |why: String| {
            Failure::usage(
                format!("cannot read the settings file {shown}: {why}"),
                "name it with --config or TRINE_CONFIG; `trine config default` prints one to start \
                 from",
            )
        };
        let about = std::fs::metadata(path).map_err(|error| cannot(error.to_string()))?;
        let length = about.len();
        if length > FILE_BYTES_MAX {
            return Err(cannot(format!(
                "it has {length} bytes, more than settings need"
            )));
        }
        let text = std::fs::read_to_string(path).map_err(|error| cannot(error.to_string()))?;
        let (entries, mut mistakes) = parse(&text, keys);
        if !keeps_out_others(&about) {
            let secrets = entries.iter().filter(|entry| is_secret(entry, keys));
            mistakes.extend(secrets.map(readable_secret));
        }
        let path = path.to_owned();
        Ok((Self { path, entries }, mistakes))
    }

    /// Returns the file, if there are no mistakes.
    pub(crate) fn without(self, mut mistakes: Vec<Mistake>) -> Result<Self, Failure> {
        mistakes.sort_by_key(|mistake| mistake.line);
        match mistakes.is_empty() {
            true => Ok(self),
            false => Err(failure_of(&self.path, &mistakes)),
        }
    }

    /// A mistake in a setting, or in a missing setting that others need.
    pub(crate) fn mistake(&self, key: &str, what: String) -> Mistake {
        let entry = self.entries.iter().find(|entry| entry.name == key);
        Mistake {
            line: entry.map_or(1, |entry| entry.line),
            what: format!("{key}: {what}"),
        }
    }
}

fn is_secret(entry: &FileLine, keys: &[SettingKey]) -> bool {
    let mut of_entry = keys.iter().filter(|key| key.name == entry.name);
    of_entry.any(SettingKey::is_secret)
}

/// A secret in a file that others than its owner can read.
fn readable_secret(entry: &FileLine) -> Mistake {
    let name = &entry.name;
    Mistake {
        line: entry.line,
        what: format!(
            "{name}: others can read this file; write the secret into a file of its own and name it with {name}-file, \
             or let only the user of the replica read this one"
        ),
    }
}

/// A mistake on a line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Mistake {
    line: usize,
    what: String,
}

fn failure_of(path: &Path, mistakes: &[Mistake]) -> Failure {
    let mut message = String::new();
    for (number, Mistake { line, what }) in mistakes.iter().enumerate() {
        let separator = if number == 0 { "" } else { "\n  " };
        // Writing to a string cannot fail.
        let _ = write!(message, "{separator}{}:{line}: {what}", path.display());
    }
    Failure::usage(
        message,
        "`trine config reference` explains every setting, `trine config check FILE` looks without starting anything",
    )
}

/// Invalid TOML does not hide the valid part, which is read and checked all the same.
fn parse(text: &str, keys: &[SettingKey]) -> (Vec<FileLine>, Vec<Mistake>) {
    let (table, errors) = DeTable::parse_recoverable(text);
    let of_syntax = |error: toml::de::Error| Mistake {
        line: line_of(text, error.span().unwrap_or_default()),
        what: error.message().to_owned(),
    };
    let mut mistakes: Vec<Mistake> = errors.into_iter().map(of_syntax).collect();
    // A line gets only one mistake. The rest of a line with invalid TOML would cause a second one.
    let broken: Vec<usize> = mistakes.iter().map(|mistake| mistake.line).collect();
    mistakes.dedup_by_key(|mistake| mistake.line);
    let mut entries = Vec::new();
    for (name, value) in table.get_ref() {
        let line = line_of(text, name.span());
        if broken.contains(&line) {
            continue;
        }
        match entry(name.get_ref(), value.get_ref(), keys) {
            Ok((name, value)) => entries.push(FileLine { name, value, line }),
            Err(what) => mistakes.push(Mistake { line, what }),
        }
    }
    mistakes.sort_by_key(|mistake| mistake.line);
    entries.sort_by_key(|entry| entry.line);
    (entries, mistakes)
}

/// The name of one key today, and its value in the form of an option.
fn entry(name: &str, value: &DeValue<'_>, keys: &[SettingKey]) -> Result<(String, String), String> {
    let Some(key) = keys.iter().find(|key| key.is_called(name)) else {
        if matches!(value, DeValue::Table(_)) {
            return Err(format!(
                "settings have no sections: remove [{name}], and write its settings without one"
            ));
        }
        return Err(unknown(name, keys));
    };
    let text = text_of(value).ok_or_else(|| {
        let kind = value.type_str();
        format!(
            "{name} is of the kind {kind}; a string, a number, true or false, or a list of \
             those is needed"
        )
    })?;
    match key.check(&text) {
        Ok(()) => Ok((key.name.clone(), text)),
        Err(why) => Err(format!("{name}: {why}")),
    }
}

/// Lists become option values, separated by commas.
fn text_of(value: &DeValue<'_>) -> Option<String> {
    match value {
        DeValue::String(text) => Some(text.to_string()),
        DeValue::Integer(number) if number.radix() == 10 => Some(number.as_str().replace('_', "")),
        DeValue::Integer(number) => i64::from_str_radix(number.as_str(), number.radix())
            .ok()
            .map(|number| number.to_string()),
        DeValue::Float(number) => Some(number.as_str().to_owned()),
        DeValue::Boolean(value) => Some(value.to_string()),
        DeValue::Array(list) => {
            let items: Option<Vec<String>> = list
                .iter()
                .map(|item| match item.get_ref() {
                    DeValue::Array(_) => None,
                    item => text_of(item),
                })
                .collect();
            items.map(|items| items.join(","))
        }
        DeValue::Datetime(_) | DeValue::Table(_) => None,
    }
}

fn unknown(name: &str, keys: &[SettingKey]) -> String {
    // Users of other programs write underscores and capitals.
    let wanted = name.replace('_', "-").to_lowercase();
    if wanted == "allow-remote" {
        return format!("there is no setting {name} any more: {GONE_HINT}");
    }
    let similar = keys
        .iter()
        .map(|key| (strsim::jaro_winkler(&wanted, &key.name), &key.name))
        .max_by(|a, b| a.0.total_cmp(&b.0));
    match similar {
        Some((similarity, known)) if similarity >= SIMILARITY_LEAST => {
            format!("there is no setting {name}; did you mean {known}?")
        }
        _ => format!("there is no setting {name}"),
    }
}

/// The line number of a position in the text, from 1.
fn line_of(text: &str, span: Range<usize>) -> usize {
    let before = &text.as_bytes()[..span.start.min(text.len())];
    1 + before.iter().filter(|byte| **byte == b'\n').count()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::keys;

    fn mistakes(text: &str) -> Vec<(usize, String)> {
        let (_, found) = parse(text, &keys());
        found
            .into_iter()
            .map(|found| (found.line, found.what))
            .collect()
    }

    #[test]
    fn a_file_says_what_options_would() {
        let text = "# a comment\nid = 2\npeers = [\"a:1\", \"b:2\"]\n\nmemory = \"2GiB\"\nbootstrap = true\n";
        let (entries, mistakes) = parse(text, &keys());
        assert_eq!(mistakes, []);
        let found: Vec<(&str, &str, usize)> = entries
            .iter()
            .map(|entry| (&*entry.name, &*entry.value, entry.line))
            .collect();
        assert_eq!(
            found,
            [
                ("id", "2", 2),
                ("peers", "a:1,b:2", 3),
                ("memory", "2GiB", 5),
                ("bootstrap", "true", 6)
            ]
        );
    }

    #[test]
    fn all_mistakes_are_named_with_their_lines() {
        let found = mistakes(
            "memroy = \"1GiB\"\nlease_drift = \"1ms\"\n\nspin = \"5 parsecs\"\nid = 0\nxyzzy = 1\n[peers]\n",
        );
        let lines: Vec<usize> = found.iter().map(|(line, _)| *line).collect();
        assert_eq!(lines, [1, 2, 4, 5, 6, 7]);
        for ((_, what), part) in found.iter().zip([
            "did you mean memory?",
            "did you mean lease-drift?",
            "spin: ",
            "id: ",
            "no setting xyzzy",
            "peers is of the kind table",
        ]) {
            assert!(what.contains(part), "{part} is missing in: {what}");
        }
        assert!(!found[4].1.contains("did you mean"), "{}", found[4].1);
    }

    #[test]
    fn what_is_no_toml_is_refused_with_its_line() {
        assert_eq!(mistakes("id = 1\nmemory = = 3\n")[0].0, 2);
        let (line, what) = mistakes("id = 1\nid = 2\n").remove(0);
        assert_eq!(line, 2);
        assert!(what.contains("duplicate"), "{what}");
        // The syntax error used to be the only reported mistake.
        let found = mistakes("memroy = 1\nid = = 3\nspin = \"x\"\n");
        let lines: Vec<usize> = found.iter().map(|(line, _)| *line).collect();
        assert_eq!(lines, [1, 2, 3], "{found:?}");
    }

    /// Quotes a text for TOML and escapes all special characters.
    fn quoted(text: &str) -> String {
        let plain = |c: char| c.is_ascii_alphanumeric() || " ,.:-[]/".contains(c);
        let shown = text.chars().map(|c| match plain(c) {
            true => c.to_string(),
            false => format!("\\U{:08x}", u32::from(c)),
        });
        format!("\"{}\"", shown.collect::<String>())
    }

    /// For any file, its entries are settings with allowed values. A second file with only these entries has the same
    /// entries. Every entry and every mistake has a line of the file.
    #[test]
    fn files_of_the_corpus_are_entries_and_mistakes() {
        let keys = keys();
        trine_corpus::replay("cli-settings", 1_000, |bytes| {
            let Ok(text) = std::str::from_utf8(bytes) else {
                return;
            };
            let (entries, mistakes) = parse(text, &keys);
            let mut written = String::new();
            for FileLine { name, value, line } in &entries {
                let key = keys.iter().find(|key| key.name == *name);
                assert_eq!(key.expect("a known key").check(value), Ok(()));
                // The second file has one line each, in the same order.
                let _ = writeln!(written, "{name} = {}", quoted(value));
                assert!((1..=text.split('\n').count()).contains(line));
            }
            for Mistake { line, what } in &mistakes {
                assert!((1..=text.split('\n').count()).contains(line) && !what.is_empty());
            }
            let (again, mistakes) = parse(&written, &keys);
            assert_eq!(mistakes, []);
            let said = |entries: &[FileLine]| {
                let pairs = entries
                    .iter()
                    .map(|entry| (entry.name.clone(), entry.value.clone()));
                pairs.collect::<Vec<_>>()
            };
            assert_eq!(said(&again), said(&entries));
        });
    }
}
