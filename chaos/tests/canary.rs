//! A checker that never found anything proves nothing: with a planted bug, replicas answer reads from their own store,
//! and the simulation must find a stale read; without it the same runs must pass. All the other planted bugs are found
//! by `cargo run --profile sim -p trine-chaos --features canary -- canaries`.

#[cfg(feature = "canary")]
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
    config.ask_for_less(500);
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
fn nothing_is_found_where_nothing_is_planted() {
    for report in (1..=SEEDS).map(simulate) {
        assert!(report.verdict.is_pass(), "{report}");
    }
}

#[test]
#[cfg(feature = "canary")]
fn the_planted_stale_read_is_found() {
    trine_canary::plant(Some("read without ReadIndex"));
    let found = (1..=SEEDS)
        .map(simulate)
        .find(|report| is_not_linearizable(&report.verdict));
    let found = found.expect("no stale read was found among all seeds");
    println!("{found}");
}

#[cfg(feature = "canary")]
fn is_not_linearizable(verdict: &Verdict) -> bool {
    matches!(verdict, Verdict::Violation(violation) if violation.explanation.starts_with("not linearizable"))
}
