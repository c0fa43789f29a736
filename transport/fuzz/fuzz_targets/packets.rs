#![no_main]
//! Bytes as datagrams; see `bodies/packets.rs`.

#[path = "../bodies/packets.rs"]
mod packets;
#[path = "../bodies/pair.rs"]
mod pair;

libfuzzer_sys::fuzz_target!(|data: &[u8]| packets::run(data));
