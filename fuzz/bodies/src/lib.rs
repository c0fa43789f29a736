//! What the fuzz targets do with their bytes: a module for each crate, a function for each target. The targets in
//! `../fuzz_targets` call it with what libfuzzer makes, `tests/corpus` with the corpora, by everybody's compiler.

#![allow(missing_docs, reason = "each module says what it expects of its bytes")]

pub mod chaos;
pub mod cli;
pub mod kvstore;
pub mod replica;
pub mod resp;
pub mod transport;
