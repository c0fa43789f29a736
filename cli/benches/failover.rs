//! How long a group of three real processes has no leader that writes. This measures `kill -9` and SIGSTOP of the
//! leader, with the default settings and with an `--election-timeout` of 20 and 10 ms.
//!
//! One client writes. The leader is hit between two of its writes, and the time runs until the next one is
//! acknowledged. Afterwards the group is made whole again. `TRINE_ROUNDS` changes the 30 rounds.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use trine_base::network::Udp;
use trine_base::ports::free_addresses;
use trine_base::survey::ask;
use trine_client::{BlockingClient, ClientConfig};
use trine_client::{leader_of, voters_in_step};
use trine_local::{Group, GroupConfig};
use trine_protocol::endpoint_config;
use trine_report::Report;
use trine_transport::backend::{MonotonicClock, UdpBackend, UdpConfig};
use trine_transport::time::Duration as Nanos;

const ROUNDS: usize = 30;
/// The time limit for a group to be whole again.
const LIMIT: Duration = Duration::from_secs(60);
/// For so long there are writes before each hit. Every session is established then, and the replica that has come back votes:
/// it gives no vote within an election timeout of its start.
const WARM_UP: Duration = Duration::from_millis(400);

#[derive(Clone, Copy)]
enum Strike {
    Kill,
    Stop,
}

/// One configuration of replicas and client.
struct Setting {
    name: &'static str,
    serve_args: &'static [&'static str],
    /// How long the client tolerates a leader's silence before it asks the others.
    suspect_after: Option<Nanos>,
}

const SETTINGS: [Setting; 3] = [
    Setting {
        name: "default",
        serve_args: &[],
        suspect_after: None,
    },
    Setting {
        name: "election_timeout_20ms",
        serve_args: &["--election-timeout", "20ms"],
        suspect_after: Some(Nanos::from_micros(2_500)),
    },
    Setting {
        name: "election_timeout_10ms",
        serve_args: &["--election-timeout", "10ms"],
        suspect_after: Some(Nanos::from_micros(1_250)),
    },
];

type Client = BlockingClient<UdpBackend, MonotonicClock>;

fn main() {
    // Under `cargo test --benches` there is nothing to measure.
    if !std::env::args().any(|argument| argument == "--bench") {
        return;
    }
    let rounds = std::env::var("TRINE_ROUNDS").ok();
    let rounds = rounds.and_then(|text| text.parse().ok()).unwrap_or(ROUNDS);
    let mut report = Report::new("failover");
    for setting in &SETTINGS {
        for (name, strike) in [("kill", Strike::Kill), ("stop", Strike::Stop)] {
            let mut found: Vec<f64> = measure(setting, strike, rounds)
                .into_iter()
                .map(|took| took.as_secs_f64() * 1_000.0)
                .collect();
            found.sort_by(f64::total_cmp);
            let (least, most) = (found[0], found[found.len() - 1]);
            println!("{name}, {}: {least:.0} to {most:.0} ms", setting.name);
            let name = format!("{name}_{}", setting.name);
            report.value(&name, found[found.len() / 2], "ms");
        }
    }
    report.finish();
}

fn measure(setting: &Setting, strike: Strike, rounds: usize) -> Vec<Duration> {
    let addresses = free_addresses(3).expect("free ports");
    let config = GroupConfig {
        program: PathBuf::from(env!("CARGO_BIN_EXE_trine")),
        addresses,
        serve_args: setting.serve_args.iter().map(Into::into).collect(),
        sink: None,
    };
    let mut group = Group::start(config).expect("processes");
    (0..rounds)
        .map(|round| strike_once(&mut group, setting, strike, round as u64))
        .collect()
}

/// The time from the hit to the next acknowledged write.
fn strike_once(group: &mut Group, setting: &Setting, strike: Strike, seed: u64) -> Duration {
    let leader = whole(group);
    let mut client = client(group, setting, seed + 1);
    let begun = Instant::now();
    while begun.elapsed() < WARM_UP {
        client.put(b"key", b"value").expect("a write");
    }
    let struck = Instant::now();
    match strike {
        Strike::Kill => group.kill(leader).expect("SIGKILL"),
        Strike::Stop => {
            let process = group.process(leader).expect("it runs");
            process.pause().expect("SIGSTOP");
        }
    }
    client.put(b"key", b"value").expect("a new leader");
    let took = struck.elapsed();
    match strike {
        Strike::Kill => group.restart(leader).expect("a process"),
        Strike::Stop => {
            let process = group.process(leader).expect("it runs");
            process.resume().expect("SIGCONT");
        }
    }
    took
}

/// Waits until three voters are up to date; returns the node id of their leader.
fn whole(group: &mut Group) -> usize {
    let survey = |group: &mut Group| {
        let reports =
            ask(&Udp::default(), group.addresses(), Nanos::from_millis(500)).expect("a socket");
        if voters_in_step(&reports) != Some(3) {
            return None;
        }
        let leader = leader_of(&reports)?.address;
        group.node_id_of(leader)
    };
    group
        .wait_until("three voters in step", LIMIT, survey)
        .unwrap_or_else(|error| panic!("{error}"))
}

fn client(group: &Group, setting: &Setting, seed: u64) -> Client {
    let local = std::net::SocketAddr::from(([127, 0, 0, 1], 0));
    let backend = UdpBackend::bind(local, &UdpConfig::default()).expect("a socket");
    let mut config = ClientConfig::new(group.addresses().to_vec());
    config.operation_timeout = Nanos::from_secs(30);
    if let Some(suspect_after) = setting.suspect_after {
        config.suspect_after = suspect_after;
    }
    let route_of = Box::new(Some);
    let transport = endpoint_config();
    BlockingClient::new(backend, MonotonicClock, config, transport, route_of, seed)
        .expect("the settings are sound")
}
