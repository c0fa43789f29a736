//! `cargo bench -p trine-kvstore [NAME...]`: see `BENCHMARKS.md`.

#![allow(
    clippy::manual_async_fn,
    reason = "an `async fn` keeps its arguments twice, and every lane of a batch would be larger"
)]

mod chase;
mod cpu;
mod cuckoo;
mod ipv6;
mod keys;
mod lookups;
mod store;

use trine_report::Report;

/// Alternating pairs behind every ratio.
const PAIRS: usize = 8;

/// Measures a group of names.
type Measurement = fn(&mut Report);

fn main() {
    if std::env::args().any(|argument| argument == store::MEMORY_JOB) {
        return store::memory_job();
    }
    // Cargo passes `--bench`; everything else selects groups by a part of their name.
    let wanted: Vec<String> = std::env::args()
        .skip(1)
        .filter(|argument| !argument.starts_with('-'))
        .collect();
    let groups: [(&str, Measurement); 8] = [
        ("get", store::get),
        ("put", store::put),
        ("memory", store::memory),
        ("growth", store::growth),
        ("snapshot", store::snapshot),
        ("cuckoo", cuckoo::measure),
        ("chase", chase::measure),
        ("ipv6", ipv6::measure),
    ];
    let mut report = Report::new("kvstore");
    for (name, measure) in groups {
        if wanted.is_empty() || wanted.iter().any(|part| name.contains(part.as_str())) {
            measure(&mut report);
        }
    }
    report.finish();
}
