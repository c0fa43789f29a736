//! The line editor: completion, hints, and the history that outlives the shell.

use std::path::PathBuf;

use rustyline::completion::Completer;
use rustyline::config::Config;
use rustyline::highlight::Highlighter;
use rustyline::hint::{Hinter, HistoryHinter};
use rustyline::history::FileHistory;
use rustyline::validate::{ValidationContext, ValidationResult, Validator};
use rustyline::{Context, Editor, Event, EventHandler, Helper};

use super::commands::{COMMANDS, find};
use super::paste::Pastes;
use crate::config::HISTORY_LINES_MAX;
use trine_base::words::{Splitter, show};

/// Finds keys by what they begin with.
type FindKeys = dyn Fn(&[u8]) -> Vec<Vec<u8>>;

/// The editor's helper while a line is typed.
pub(super) struct Assistant {
    find_keys: Box<FindKeys>,
}

impl Helper for Assistant {}
impl Highlighter for Assistant {}

impl Validator for Assistant {
    /// Enter in quotes begins another line of the same word.
    fn validate(&self, context: &mut ValidationContext<'_>) -> rustyline::Result<ValidationResult> {
        Ok(match open_quote(context.input()) {
            Some(_) => ValidationResult::Incomplete,
            None => ValidationResult::Valid(None),
        })
    }
}

/// The quote that has no end in what was typed.
fn open_quote(typed: &str) -> Option<char> {
    let mut splitter = Splitter::default();
    for byte in typed.bytes() {
        splitter.push(byte);
    }
    splitter.open_quote()
}

impl Completer for Assistant {
    type Candidate = String;

    fn complete(
        &self,
        line: &str,
        position: usize,
        _context: &Context<'_>,
    ) -> rustyline::Result<(usize, Vec<String>)> {
        Ok(complete(&line[..position], &*self.find_keys))
    }
}

impl Hinter for Assistant {
    type Hint = String;

    /// The hint: the arguments of the command, else the last line with the same beginning.
    fn hint(&self, line: &str, position: usize, context: &Context<'_>) -> Option<String> {
        if position < line.len() {
            return None;
        }
        if line.ends_with('\n') {
            return open_quote(line)
                .map(|quote| format!("  (the quote {quote} is still open; Ctrl-C drops all)"));
        }
        match line.strip_suffix(' ') {
            Some(name) => find(name.as_bytes()).map(|entry| entry.form.clone()),
            None => HistoryHinter::new().hint(line, position, context),
        }
    }
}

/// Returns where the current word begins, and its completions. Names of commands are completed at the beginning of a line,
/// after `help` and after `\watch SECONDS`; keys where the command has one.
fn complete(line: &str, find_keys: &FindKeys) -> (usize, Vec<String>) {
    let start = line.rfind(' ').map_or(0, |space| space + 1);
    let words: Vec<&str> = line[..start].split_whitespace().collect();
    let named = matches!(words.as_slice(), [] | ["help"] | ["\\watch", _]);
    let typed = &line[start..];
    if !named && is_key(&words) {
        return (start, keys(typed, find_keys));
    }
    let candidates = COMMANDS
        .iter()
        .filter(|entry| named && entry.name.starts_with(typed))
        .map(|entry| {
            format!(
                "{}{}",
                entry.name,
                if entry.form.is_empty() { "" } else { " " }
            )
        })
        .collect();
    (start, candidates)
}

/// Whether the word behind these ones is a key, or the beginning of keys.
fn is_key(words: &[&str]) -> bool {
    let words = match words {
        ["\\watch", _, command @ ..] => command,
        words => words,
    };
    let Some((name, arguments)) = words.split_first() else {
        return false;
    };
    find(name.as_bytes()).is_some_and(|entry| is_key_in(&entry.form, arguments.len()))
}

/// Whether the argument with this number is a key in a form such as `KEY VALUE [KEY VALUE]...`.
fn is_key_in(form: &str, number: usize) -> bool {
    let tokens: Vec<&str> = form.split(' ').collect();
    let repeated = tokens.last().is_some_and(|last| last.ends_with("..."));
    let token = match tokens.get(number) {
        None if repeated => {
            let opens = |token: &&str| token.starts_with('[');
            let first = tokens.iter().rposition(opens);
            let first = first.unwrap_or(tokens.len() - 1);
            tokens[first..][(number - first) % (tokens.len() - first)]
        }
        None => return false,
        Some(token) => token,
    };
    let word = token.trim_matches(|c| "[].".contains(c));
    matches!(word, "KEY" | "PREFIX")
}

/// The keys that begin with what was typed, as the shell reads them. A word in quotes is not completed.
fn keys(typed: &str, find_keys: &FindKeys) -> Vec<String> {
    if typed.contains(['\'', '"', '\\', '#']) {
        return Vec::new();
    }
    let mut keys = find_keys(typed.as_bytes());
    keys.sort_unstable();
    keys.iter().map(|key| show(key) + " ").collect()
}

/// The editor with its earlier history, and the path of the history.
pub(super) fn editor(
    find_keys: Box<FindKeys>,
    pastes: &Pastes,
) -> rustyline::Result<(Editor<Assistant, FileHistory>, Option<PathBuf>)> {
    let config = Config::builder()
        .max_history_size(HISTORY_LINES_MAX)?
        .history_ignore_space(true)
        .build();
    let mut editor = Editor::with_config(config)?;
    editor.set_helper(Some(Assistant { find_keys }));
    let pastes = EventHandler::Conditional(Box::new(pastes.clone()));
    editor.bind_sequence(Event::Any, pastes);
    let variable = |name: &str| std::env::var_os(name).map(PathBuf::from);
    let path = history_path(variable("XDG_STATE_HOME"), variable("HOME"));
    if let Some(path) = &path {
        // A history that cannot be read is an empty one.
        let _ = editor.load_history(path);
    }
    Ok((editor, path))
}

/// Saves the history. An unwritable directory loses only the history.
pub(super) fn keep(editor: &mut Editor<Assistant, FileHistory>, path: Option<&PathBuf>) {
    if let Some(path) = path {
        if let Some(directory) = path.parent() {
            let _ = std::fs::create_dir_all(directory);
        }
        let _ = editor.save_history(path);
    }
}

/// By the XDG base directory specification, which ignores relative paths.
fn history_path(state: Option<PathBuf>, home: Option<PathBuf>) -> Option<PathBuf> {
    let state = state.filter(|path| path.is_absolute());
    let state = state.or_else(|| {
        home.filter(|path| path.is_absolute())
            .map(|home| home.join(".local/state"))
    });
    state.map(|state| state.join("trine/history"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Completes where the group has these keys.
    fn complete(line: &str) -> (usize, Vec<String>) {
        let all: [&[u8]; 4] = [b"user:2", b"user:1", b"visits", b"user: \xff"];
        super::complete(line, &move |prefix| {
            let fits = all.into_iter().filter(|key| key.starts_with(prefix));
            fits.map(<[u8]>::to_vec).collect()
        })
    }

    #[test]
    fn keys_are_completed_where_one_can_stand() {
        let users = ["\"user: \\xff\" ", "user:1 ", "user:2 "].map(str::to_owned);
        for line in [
            "get user",
            "GET user",
            "mget a user",
            "\\watch 1 get user",
            "count user",
        ] {
            let start = line.len() - "user".len();
            assert_eq!(complete(line), (start, users.to_vec()), "{line}");
        }
        for line in [
            "mput a 1 v",
            "mput a 1 b 2 v",
            "put v",
            "mget a b c v",
            "range v",
        ] {
            assert_eq!(complete(line).1, ["visits "], "{line}");
        }
        for line in [
            "put a v",
            "mput a v",
            "expire a v",
            "get a v",
            "\\timing v",
            "get 'v",
            "range a v",
        ] {
            assert!(complete(line).1.is_empty(), "{line}");
        }
    }

    #[test]
    fn names_of_commands_are_completed_where_one_can_stand() {
        assert_eq!(complete("pers"), (0, vec!["persist ".to_owned()]));
        assert_eq!(complete("help ca"), (5, vec!["cas ".to_owned()]));
        assert_eq!(complete("\\watch 1 tt"), (9, vec!["ttl ".to_owned()]));
        assert_eq!(complete("expo"), (0, vec!["export ".to_owned()]));
        assert_eq!(complete("get g"), (4, vec![]));
        assert_eq!(complete("help get u"), (9, vec![]));
        assert!(complete("").1.len() == COMMANDS.len());
    }

    #[test]
    fn the_history_lies_in_the_state_directory() {
        let path = |state: Option<&str>, home: Option<&str>| {
            history_path(state.map(PathBuf::from), home.map(PathBuf::from))
        };
        let expected = Some(PathBuf::from("/s/trine/history"));
        assert_eq!(path(Some("/s"), Some("/h")), expected);
        let expected = Some(PathBuf::from("/h/.local/state/trine/history"));
        assert_eq!(path(None, Some("/h")), expected);
        assert_eq!(path(Some("relative"), Some("/h")), expected);
        assert_eq!(path(None, None), None);
    }
}
