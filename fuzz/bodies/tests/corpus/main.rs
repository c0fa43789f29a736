//! Replays the corpora of the fuzz targets, and mutations of them, through the same functions as the fuzzers, with the compiler
//! that everybody has.

mod chaos;
mod cli;
mod kvstore;
mod replica;
mod resp;
mod transport;
