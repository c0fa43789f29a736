//! The one JSON document that a process prints for programs. The process may be a command or a server.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use serde::Serialize;
use serde_json::Value;

/// Set once the command has answered: standard output holds one document.
static DOCUMENT_PRINTED: AtomicBool = AtomicBool::new(false);
/// Set in a shell, which prints several documents. Programs tell them apart by their lines.
static ONE_A_LINE: AtomicBool = AtomicBool::new(false);

/// From now on each document of this process is one line.
pub fn one_a_line() {
    ONE_A_LINE.store(true, Ordering::Relaxed);
}

/// Returns the text of the document that a process prints. The caller prints it.
pub fn to_document(document: &impl Serialize) -> String {
    let text = match ONE_A_LINE.load(Ordering::Relaxed) {
        true => serde_json::to_string(document),
        false => serde_json::to_string_pretty(document),
    };
    DOCUMENT_PRINTED.store(true, Ordering::Relaxed);
    escaped(text.expect("our documents have string keys") + "\n")
}

/// One document among several, as a line.
pub fn line_of(document: &Value) -> String {
    escaped(format!("{document}\n"))
}

/// The same JSON. serde leaves DEL and the control characters behind it as they are, and terminals may obey them. They can
/// only be within strings.
fn escaped(text: String) -> String {
    let is_left = |c: char| ('\u{7f}'..='\u{9f}').contains(&c);
    if !text.contains(is_left) {
        return text;
    }
    let mut harmless = String::with_capacity(text.len());
    for c in text.chars() {
        match is_left(c) {
            true => harmless.push_str(&format!("\\u{:04x}", u32::from(c))),
            false => harmless.push(c),
        }
    }
    harmless
}

/// Whether a document was printed already.
pub fn is_printed() -> bool {
    DOCUMENT_PRINTED.load(Ordering::Relaxed)
}

/// A path as documents have it. JSON holds text alone, so U+FFFD stands for bytes that are none. A `Path` as it is must not
/// go into a document: serde has no form for one that is no text, and `json!` panics.
pub fn path_text(path: &Path) -> String {
    path.display().to_string()
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;

    use serde_json::json;

    use super::*;

    /// A process on the port of a dead replica could draw over a terminal also with `--json`.
    #[test]
    fn control_characters_are_escaped_and_mean_the_same() {
        let wild = json!({ "reason": "\u{9b}2J \u{7f} \u{1b}[2J gr\u{fc}n" });
        let line = line_of(&wild);
        assert!(line.trim_end().chars().all(|c| !c.is_control()), "{line:?}");
        assert!(line.contains("gr\u{fc}n"), "{line}");
        assert_eq!(serde_json::from_str::<Value>(&line).expect("JSON"), wild);
    }

    /// `trine serve` with such a data directory panicked at every start but the first one, also without `--json`.
    #[test]
    fn a_path_that_is_no_text_has_a_place_in_a_document() {
        let path = Path::new(OsStr::from_bytes(b"/data/sd\xff"));
        let document = json!({ "directory": path_text(path) });
        assert_eq!(document["directory"], "/data/sd\u{fffd}");
        assert_eq!(path_text(Path::new("/plain")), "/plain");
    }
}
