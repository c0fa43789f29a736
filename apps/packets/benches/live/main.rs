//! `cargo bench -p trine-packets --features dpdk --bench live [NAME...]`: applications over memif. See `BENCHMARKS.md`.
//!
//! EAL starts once in a process, so each application is two fresh processes with a core each: this program with a role.
//! One runs the application in all its ways by turns, the other one is generator and sink.

#![allow(
    clippy::manual_async_fn,
    reason = "an `async fn` keeps its arguments twice, and every lane of a batch would be larger"
)]

mod application;
#[path = "../packets/frames.rs"]
mod frames;
mod generator;
mod ports;
mod process;
mod turns;

use crate::process::Process;
use trine_packets::scenario::ApplicationName;
use trine_report::pin::{pin, two_cores};
use trine_report::{Pairs, Report};

/// An application with the entries of its table, as in the paper, and more than a cache of 260 MiB holds where the
/// algorithm allows it.
const CASES: [(&str, ApplicationName, usize); 8] = [
    ("echo", ApplicationName::Echo, 0),
    ("ipv4", ApplicationName::Ipv4, 500_000),
    ("ipv6", ApplicationName::Ipv6, 200_000),
    ("ipv6_large", ApplicationName::Ipv6, 800_000),
    ("switch", ApplicationName::Switch, 1_000_000),
    ("switch_large", ApplicationName::Switch, 60_000_000),
    ("names", ApplicationName::Names, 10_000_000),
    ("patterns", ApplicationName::Patterns, 23_331),
];

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let [role, case, socket, core] = &arguments[..]
        && role.starts_with("role-")
    {
        let &(_, name, entries) = CASES
            .iter()
            .find(|(known, ..)| known == case)
            .expect("a case of this program");
        pin(core.parse().expect("a core"));
        return match role.as_str() {
            "role-application" => application::run(name, entries, socket),
            _ => generator::run(name, entries, socket),
        };
    }
    // Cargo passes `--bench`; everything else selects cases by their names.
    let wanted: Vec<&String> = arguments
        .iter()
        .filter(|argument| !argument.starts_with('-'))
        .collect();
    let mut report = Report::new("packets-live");
    for (case, ..) in CASES {
        if wanted.is_empty() || wanted.iter().any(|name| *name == case) {
            measure(case, &mut report);
        }
    }
    report.finish();
}

/// Runs a case. Neither process polls any more when the first of them ends: memif's driver unmaps the rings of a closed
/// port, even while the other end polls them.
fn measure(case: &str, report: &mut Report) {
    let (ours, theirs) = two_cores();
    let socket = format!("memif:@trine-packets-bench-{}-{case}", std::process::id());
    let start = |role: &str, core: usize| Process::start(&[role, case, &socket, &core.to_string()]);
    let mut application = start("role-application", ours);
    application.expect("ready");
    let mut generator = start("role-generator", theirs);
    generator.expect("ready");
    application.sign();
    loop {
        let line = application.expect("");
        let Some(row) = line.strip_prefix("row ") else {
            assert_eq!(line, "ended", "{case}");
            break;
        };
        let words: Vec<&str> = row.split(' ').collect();
        let [what, against, figures @ ..] = &words[..] else {
            panic!("a row of another form: {row}");
        };
        let figure = |at: usize| figures[at].parse().expect("a number");
        let pairs = Pairs {
            ours: figure(0),
            theirs: figure(1),
            ratio: figure(2),
            range: (figure(3), figure(4)),
        };
        report.pairs(&format!("{case}_{what}"), "M/s", against, &pairs);
    }
    generator.end();
    application.end();
}
