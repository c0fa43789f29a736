//! `cargo bench -p trine-transport --features dpdk --bench dpdk [NAME...]`: RPCs over memif beside bare DPDK.
//!
//! EAL starts once in a process, and the ports of a closed memif device do not come back. Every run is therefore two
//! fresh processes, pinned to a core each: this program with a role. Runs of ours and of the baseline alternate.

mod bare;
mod datagram;
#[path = "../../tests/dpdk/process.rs"]
#[allow(dead_code, reason = "shared with the tests")]
mod process;
mod rpc;

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use trine_dpdk::{DpdkConfig, Eal, arguments};
use trine_report::pin;
use trine_report::{Pairs, Report};

pub(crate) const SERVER: Ipv4Addr = Ipv4Addr::new(10, 9, 0, 1);
pub(crate) const CLIENT: Ipv4Addr = Ipv4Addr::new(10, 9, 0, 2);
pub(crate) const UDP_PORT: u16 = 7471;
/// Payload of requests and responses.
pub(crate) const SMALL: usize = 32;
/// The parts of a 32-byte RPC on the wire: Ethernet, IPv4 and UDP headers, trine's header, payload.
pub(crate) const FRAME: usize = 42 + 24 + SMALL;
/// Requests under way, issued and answered in batches of three: the C++ eRPC's benchmark.
pub(crate) const WINDOW: usize = 60;
/// See [`WINDOW`].
pub(crate) const BATCH: usize = 3;
pub(crate) const ROUNDS: usize = 100_000;
pub(crate) const SPAN_MS: u64 = 500;
const PAIRS: usize = 10;

/// The work of a process on its core, given its arguments.
type Role = (&'static str, fn(&[String]));

const ROLES: [Role; 11] = [
    ("bare_echo", bare::echo),
    ("bare_ping", bare::ping),
    ("bare_rate", bare::rate),
    ("bare_flood", bare::flood),
    ("flood_copied", bare::flood_copied),
    ("flood_attached", bare::flood_attached),
    ("datagram_echo", datagram::echo),
    ("datagram_ping", datagram::ping),
    ("rpc_server", rpc::server),
    ("rpc_ping", rpc::ping),
    ("rpc_rate", rpc::rate),
];

fn main() {
    if let Some((role, arguments)) = process::own_role() {
        let (_, run) = ROLES
            .iter()
            .find(|(name, _)| *name == role)
            .expect("a role of this program");
        let core = arguments[1].parse().expect("a core");
        pin::pin(core);
        run(&arguments);
        return;
    }
    let wanted: Vec<String> = std::env::args()
        .skip(1)
        .filter(|arg| !arg.starts_with('-'))
        .collect();
    let is_wanted =
        |name: &str| wanted.is_empty() || wanted.iter().any(|part| name.contains(part.as_str()));
    let mut report = Report::new("transport-dpdk");
    if is_wanted("datagram_latency_memif") {
        let pairs = Pairs::run(
            PAIRS,
            || run("datagram_echo", "datagram_ping") / 1e3,
            || run("bare_echo", "bare_ping") / 1e3,
        );
        report.pairs("datagram_latency_memif", "us", "bare ping-pong", &pairs);
    }
    if is_wanted("rpc_latency_memif_32b") {
        let pairs = Pairs::run(
            PAIRS,
            || run("rpc_server", "rpc_ping") / 1e3,
            || run("bare_echo", "bare_ping") / 1e3,
        );
        report.pairs("rpc_latency_memif_32b", "us", "bare ping-pong", &pairs);
    }
    if is_wanted("rpc_rate_memif_32b_b3_window_60") {
        let pairs = Pairs::run(
            PAIRS,
            || run("rpc_server", "rpc_rate"),
            || run("bare_echo", "bare_rate"),
        );
        report.pairs(
            "rpc_rate_memif_32b_b3_window_60",
            "/s",
            "bare two-way echo",
            &pairs,
        );
    }
    if is_wanted("rpc_rate_memif_32b_of_packet_rate") {
        let pairs = Pairs::run(
            PAIRS,
            || run("rpc_server", "rpc_rate"),
            || run("bare_echo", "bare_flood"),
        );
        report.pairs(
            "rpc_rate_memif_32b_of_packet_rate",
            "/s",
            "bare one-way packets",
            &pairs,
        );
    }
    for len in ["64", "256", "1024", "1400"] {
        let name = format!("tx_copied_{len}");
        if is_wanted(&name) {
            let pairs = Pairs::run(
                PAIRS,
                || run_with("bare_echo", "flood_copied", len),
                || run_with("bare_echo", "flood_attached", len),
            );
            report.pairs(&name, "/s", "attached as an external buffer", &pairs);
        }
    }
    report.finish();
}

/// One run: the server on one core, the client on another, and the figure that the client prints.
fn run(server: &str, client: &str) -> f64 {
    run_with(server, client, "")
}

fn run_with(server: &str, client: &str, argument: &str) -> f64 {
    let (ours, theirs) = pin::two_cores();
    let socket = format!("@trine-bench-{}", std::process::id());
    let mut server = process::start(server, &[&socket, &theirs.to_string()]);
    server.expect("ready");
    let mut client = process::start(client, &[&socket, &ours.to_string(), argument]);
    let result = client.expect("result: ").parse().expect("a number");
    // When a peer goes away, memif's driver unmaps its rings even while the other end polls them. It also dislikes both
    // ends closing at once. So the server stops polling, then the client closes, then the server.
    server.sign();
    server.expect("idle");
    client.release();
    client.finish();
    server.release();
    server.finish();
    result
}

/// EAL with a memif device on this core, without huge pages.
pub(crate) fn start_eal(role: &str, arguments: &[String]) -> (Arc<Eal>, DpdkConfig) {
    let (socket, core) = (&arguments[0], &arguments[1]);
    let line =
        format!("--no-pci --no-huge -l {core} --vdev=net_memif0,role={role},socket={socket}");
    let eal = Eal::start(&arguments::split(&line)).unwrap_or_else(|error| panic!("{error}"));
    let config = DpdkConfig::new(if role == "server" { SERVER } else { CLIENT });
    (eal, config)
}

/// Ends the server's loop when the director gives a sign.
pub(crate) struct Hangup(Arc<AtomicBool>);

impl Hangup {
    pub(crate) fn watch() -> Self {
        let flag = Arc::new(AtomicBool::new(false));
        let seen = Arc::clone(&flag);
        std::thread::spawn(move || {
            process::wait_for_sign();
            seen.store(true, Ordering::Relaxed);
        });
        Self(flag)
    }

    pub(crate) fn came(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// Nothing polls any more: waits until the port may be closed.
    pub(crate) fn idle(self) {
        println!("idle");
        process::wait_for_director();
    }
}
