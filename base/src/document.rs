//! The one JSON document that a process prints for programs. The process may be a command or a server.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use serde::Serialize;

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
    text.expect("our documents have string keys") + "\n"
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

    /// `trine serve` with such a data directory panicked at every start but the first one, also without `--json`.
    #[test]
    fn a_path_that_is_no_text_has_a_place_in_a_document() {
        let path = Path::new(OsStr::from_bytes(b"/data/sd\xff"));
        let document = json!({ "directory": path_text(path) });
        assert_eq!(document["directory"], "/data/sd\u{fffd}");
        assert_eq!(path_text(Path::new("/plain")), "/plain");
    }
}
