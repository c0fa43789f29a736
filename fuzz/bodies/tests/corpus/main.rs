//! Replays the corpora of the fuzz targets, and mutations of them, through the
//! same functions as the fuzzers, with the stable compiler.

mod chaos;
mod cli;
mod index;
mod keys;
mod kvstore;
mod packets;
mod replica;
mod resp;
mod sequencer;
mod transport;
