//! Bytes as datagrams; see `bodies/packets.rs`.
#![no_main]

#[path = "../bodies/packets.rs"]
mod packets;
#[path = "../bodies/pair.rs"]
mod pair;

libfuzzer_sys::fuzz_target!(|data: &[u8]| packets::run(data));
