//! The one JSON document that a process prints for programs. The process may be a command or a server.

use std::sync::atomic::{AtomicBool, Ordering};

use serde::Serialize;

/// Set once the command has answered: standard output holds one document.
static DOCUMENT_PRINTED: AtomicBool = AtomicBool::new(false);

/// Returns the text of the document that a process prints. The caller prints it.
pub fn to_document(document: &impl Serialize) -> String {
    let text = serde_json::to_string_pretty(document).expect("our documents have string keys");
    DOCUMENT_PRINTED.store(true, Ordering::Relaxed);
    text + "\n"
}

/// Whether a document was printed already.
pub fn is_printed() -> bool {
    DOCUMENT_PRINTED.load(Ordering::Relaxed)
}
