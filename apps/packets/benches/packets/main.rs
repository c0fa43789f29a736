//! `cargo bench -p trine-packets [NAME...]`: see `BENCHMARKS.md`.
//!
//! Handlers with batches against the same handlers with one packet at a time, and lookups against group prefetching that
//! was written by hand. No ports.

mod by_hand;
mod frames;
mod handlers;

use trine_report::Report;
use trine_report::pin::{pin, two_cores};

/// Alternating pairs behind every ratio.
const PAIRS: usize = 8;

fn main() {
    // Cargo passes `--bench`; everything else selects rows by a part of their name.
    let wanted: Vec<String> = std::env::args()
        .skip(1)
        .filter(|argument| !argument.starts_with('-'))
        .collect();
    let is_wanted =
        |name: &str| wanted.is_empty() || wanted.iter().any(|part| name.contains(part.as_str()));
    pin(two_cores().0);
    let mut report = Report::new("packets");
    handlers::measure(&mut report, &is_wanted);
    by_hand::measure(&mut report, &is_wanted);
    report.finish();
}
