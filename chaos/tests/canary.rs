//! A checker that never found anything proves nothing: with the planted bug switched on, a replica
//! answers reads from its own store, and the simulation must find a stale read; with it switched
//! off the same seeds must pass. `cargo test -p trine-chaos --features canary-stale-read --test
//! canary` switches it on.

use std::collections::BTreeSet;
use trine_chaos::checker::Verdict;
use trine_chaos::fault::Fault;
use trine_chaos::sim::{SimConfig, SimReport, Trace, run};
use trine_transport::time::Duration;

const SEEDS: u64 = 6;

/// Half a minute in which leaders are cut off from their followers, now and then with a client.
fn simulate(seed: u64) -> SimReport {
    let mut config = SimConfig::from_seed(seed);
    config.replicas = 3;
    config.faulty = Duration::from_secs(15);
    config.faults = Some(BTreeSet::from([Fault::Partition]));
    config.operations_min = 500;
    config.forming = Duration::from_millis(1_500);
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
