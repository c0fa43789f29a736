//! The bodies of the fuzz targets: a module for each crate, a function for each target. The targets in
//! `../fuzz_targets` call it with libfuzzer's input, `tests/corpus` with the corpora, under the stable compiler.

#![allow(missing_docs, reason = "each module says what it expects of its bytes")]

pub mod chaos;
pub mod cli;
pub mod index;
pub mod keys;
pub mod kvstore;
pub mod packets;
pub mod replica;
pub mod resp;
pub mod sequencer;
pub mod transport;
