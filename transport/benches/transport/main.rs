//! `cargo bench -p trine-transport [NAME...]`: see `BENCHMARKS.md`.

mod pin;
mod raw;
#[path = "../../../cli/bench/report.rs"]
#[allow(dead_code)] // each crate uses its part of the shared form
mod report;
mod rpc;

use std::time::Duration;

use report::{Pairs, Report};
use trine_transport::time::Duration as Span;

/// Header of a wire packet: what an RPC carries beyond its 32 bytes, and the baseline too.
const HEADER_BYTES: usize = 24;
const SMALL: usize = 32;
const PAIRS: usize = 10;

/// Measures what its name says.
type Measurement = fn(&mut Report, &str);

fn main() {
    // Cargo passes `--bench`; everything else selects measurements by a part of their name.
    let wanted: Vec<String> = std::env::args()
        .skip(1)
        .filter(|arg| !arg.starts_with('-'))
        .collect();
    let is_wanted =
        |name: &str| wanted.is_empty() || wanted.iter().any(|part| name.contains(part.as_str()));
    let mut report = Report::new("transport");
    let measurements: [(&str, Measurement); 2] = [
        ("rpc_latency_udp_32b", latency_udp),
        ("rpc_rate_udp_32b_window_64", rate_udp),
    ];
    for (name, measure) in measurements {
        if is_wanted(name) {
            measure(&mut report, name);
        }
    }
    report.finish();
}

fn latency_udp(report: &mut Report, name: &str) {
    const ROUNDS: usize = 20_000;
    let (ours, theirs) = pin::two_cores();
    pin::pin(ours);
    // One server runs at a time, so that neither disturbs the other's core.
    let rpc = || {
        let server = rpc::Server::start(theirs, rpc::polling());
        let mut client = rpc::connect(server.address, 1, rpc::polling());
        rpc::ping_pong(&mut client, SMALL, ROUNDS / 10);
        rpc::ping_pong(&mut client, SMALL, ROUNDS) / 1e3
    };
    let bare = || {
        let server = raw::Server::start(theirs, raw::echo_one_by_one);
        raw::ping_pong(server.address, SMALL + HEADER_BYTES, ROUNDS / 10);
        raw::ping_pong(server.address, SMALL + HEADER_BYTES, ROUNDS) / 1e3
    };
    let pairs = Pairs::run(PAIRS, rpc, bare);
    report.pairs(name, "us", "UDP socket ping-pong", &pairs);
}

fn rate_udp(report: &mut Report, name: &str) {
    const SPAN_MS: u64 = 400;
    let (ours, theirs) = pin::two_cores();
    pin::pin(ours);
    let rpc = || {
        let server = rpc::Server::start(theirs, rpc::polling());
        let mut client = rpc::connect(server.address, 8, rpc::polling());
        rpc::rate(&mut client, SMALL, 8, Span::from_millis(SPAN_MS / 10));
        rpc::rate(&mut client, SMALL, 8, Span::from_millis(SPAN_MS))
    };
    let bare = || {
        let server = raw::Server::start(theirs, raw::echo_batches);
        raw::echo_rate(
            server.address,
            SMALL + HEADER_BYTES,
            64,
            Duration::from_millis(SPAN_MS),
        )
    };
    let pairs = Pairs::run(PAIRS, rpc, bare);
    report.pairs(name, "/s", "sendmmsg/recvmmsg echo", &pairs);
}
