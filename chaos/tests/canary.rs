//! A checker that never found anything proves nothing: with the planted bug switched on, a replica
//! answers reads from its own store, and the simulation must find a stale read; with it switched
//! off the same seeds must pass. `cargo test -p trine-chaos --features canary-stale-read --test
//! canary` switches it on.

use trine_chaos::checker::Verdict;
use trine_chaos::fault::Event;
use trine_chaos::sim::{SimConfig, SimReport, Trace, run};
use trine_replica::ReplicaConfig;
use trine_transport::time::Duration;

const SEEDS: u64 = 4;

/// A few seconds in which the leader is cut off again and again, with some clients beside it, while
/// the others write the same few keys at its successor.
fn simulate(seed: u64) -> SimReport {
    let mut config = SimConfig::from_seed(seed);
    config.replicas = 3;
    config.replica = ReplicaConfig::default();
    (config.client_machines, config.clients_per_machine) = (2, 3);
    config.workload.keys = 2;
    config.workload.value_bytes = 16..=64;
    // Writes at a cut-off leader stay open; there must be room for reads beside them.
    config.pace.open_max = 64;
    config.pace.pause = Duration::from_millis(10);
    config.forming = Duration::from_millis(1_500);
    config.faulty = Duration::from_secs(8);
    config.operations_min = 500;
    let isolate = |number: u64| {
        let event = Event::IsolateLeader {
            with_clients: true,
            span: Duration::from_millis(1_200),
        };
        (Duration::from_millis(500 + 2_000 * number), event)
    };
    config.script = Some((0..4).map(isolate).collect());
    run(config, Trace::Off).expect("a sound configuration")
}

#[test]
fn stale_reads_are_found_exactly_if_they_are_planted() {
    let reports: Vec<SimReport> = (1..=SEEDS).map(simulate).collect();
    if !cfg!(feature = "canary-stale-read") {
        for report in reports {
            assert!(report.verdict.is_pass(), "{report}");
        }
        return;
    }
    let found = reports
        .iter()
        .find(|report| is_not_linearizable(&report.verdict));
    let found = found.expect("no stale read was found among all seeds");
    println!("{found}");
}

fn is_not_linearizable(verdict: &Verdict) -> bool {
    matches!(verdict, Verdict::Violation(violation) if violation.explanation.starts_with("not linearizable"))
}
