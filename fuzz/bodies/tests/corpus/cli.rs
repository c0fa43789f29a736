//! The corpora of bytes that scrapers and other servers send the command, and of text that people
//! write.

use trine_fuzz_bodies::cli as bodies;

/// Of each file; the fuzzer makes the rest.
const MUTATIONS: u32 = 1_000;

#[test]
fn answers() {
    trine_corpus::replay("cli-answers", MUTATIONS, bodies::answers);
}

#[test]
fn arguments() {
    trine_corpus::replay("cli-arguments", MUTATIONS, bodies::arguments);
}

#[test]
fn http() {
    trine_corpus::replay("cli-http", MUTATIONS, bodies::http);
}

#[test]
fn memcached() {
    trine_corpus::replay("cli-memcached", MUTATIONS, bodies::memcached);
}

#[test]
fn words() {
    trine_corpus::replay("cli-words", MUTATIONS, bodies::words);
}
