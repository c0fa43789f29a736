//! The checkers' input and their command line: histories as text, names of faults.

use trine_chaos::fault::FaultSet;
use trine_chaos::history::History;

/// A history that is read is written, and reads back the same, in the same words: its hash names it.
pub fn histories(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else {
        return;
    };
    let history = match History::from_text(text) {
        Ok(history) => history,
        Err(error) => return assert!(!error.to_string().is_empty()),
    };
    assert!(history.len() <= text.lines().count());
    let written = history.to_text();
    let again = History::from_text(&written).expect("what we write can be read");
    assert_eq!(again, history);
    assert_eq!(again.hash(), history.hash());
    assert_eq!(again.to_text(), written);
}

/// Faults as the command line names them.
pub fn faults(bytes: &[u8]) {
    // Comparing a longer name with all known ones is useless.
    let Ok(text) = std::str::from_utf8(&bytes[..bytes.len().min(100)]) else {
        return;
    };
    match text.parse::<FaultSet>() {
        Ok(faults) => assert_eq!(faults.to_string().parse(), Ok(faults)),
        Err(error) => assert!(error.to_string().contains(error.nearest.name())),
    }
}
