//! Frames, announcements and addresses; see `bodies/frames.rs`.
#![no_main]

#[path = "../bodies/frames.rs"]
mod frames;

// The name by which `verbs/route.rs` knows it.
use trine_transport::backend;

libfuzzer_sys::fuzz_target!(|data: &[u8]| frames::run(data));
