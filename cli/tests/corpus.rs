//! Replays the fuzz corpora, and mutations of them, through the same functions as the fuzzers. The unit tests of the files
//! that `bodies.rs` includes run here once more.

#[path = "../fuzz/bodies.rs"]
#[allow(dead_code)] // of the included files only the parsers are called
mod bodies;
#[path = "../fuzz/replay.rs"]
mod replay;

// What the command's own files call them.
use bodies::{config, failure};
use replay::replay;

#[test]
fn answers() {
    replay("answers", bodies::answers);
}

#[test]
fn arguments() {
    replay("arguments", bodies::arguments);
}

#[test]
fn http() {
    replay("http", bodies::http);
}

#[test]
fn words() {
    replay("words", bodies::words);
}
