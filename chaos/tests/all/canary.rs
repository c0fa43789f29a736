//! A checker that never found anything proves nothing. With a planted bug, replicas answer reads from their own store,
//! and the simulation must find a stale read. Without it the same runs must pass. All the other planted bugs are found
//! by `cargo run --profile sim -- sim --planted-bugs`.

#[cfg(debug_assertions)]
use trine_chaos::checker::Verdict;
use trine_chaos::fault::Event;
#[cfg(debug_assertions)]
use trine_chaos::fault::{Fault, FaultSet};
#[cfg(debug_assertions)]
use trine_chaos::shrink::shrink;
use trine_chaos::sim::{Report as _, SimConfig, SimReport, Trace, run};
use trine_replica::ReplicaConfig;
use trine_transport::time::Duration;

const SEEDS: u64 = 4;

/// A few seconds in which the leader is cut off again and again, with some clients beside it, while
/// the others write the same few keys at its successor.
fn simulate(seed: u64) -> SimReport {
    run(config(seed), Trace::Off).expect("a sound configuration")
}

fn config(seed: u64) -> SimConfig {
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
    config
}

#[test]
fn nothing_is_found_where_nothing_is_planted() {
    for report in (1..=SEEDS).map(simulate) {
        assert!(report.verdict.is_pass(), "{report}");
    }
}

#[test]
#[cfg(debug_assertions)]
fn the_planted_stale_read_is_found() {
    let _bug = trine_canary::plant("read without ReadIndex");
    let found = (1..=SEEDS)
        .map(simulate)
        .find(|report| is_not_linearizable(&report.verdict));
    let found = found.expect("no stale read was found among all seeds");
    println!("{found}");
}

#[cfg(debug_assertions)]
fn is_not_linearizable(verdict: &Verdict) -> bool {
    matches!(verdict, Verdict::Violation(violation) if violation.explanation.starts_with("not linearizable"))
}

/// The same leaders cut off, by a drawn schedule, with unrelated faults and clients beside it.
#[cfg(debug_assertions)]
fn drawn(seed: u64) -> SimConfig {
    let mut config = config(seed);
    config.script = None;
    config.faulty = Duration::from_secs(6);
    config.quiet = trine_chaos::sim::QUIET_MIN;
    config.faults = Some([Fault::Partition, Fault::Duplication, Fault::Delay].into());
    config
}

/// No test had ever shrunk a failing run.
#[test]
#[cfg(debug_assertions)]
fn a_failing_run_is_shrunk_to_one_that_fails_alike() {
    let _bug = trine_canary::plant("read without ReadIndex");
    let fails = |config: &SimConfig| {
        let report = run(config.clone(), Trace::Off).expect("a sound configuration");
        is_not_linearizable(&report.verdict)
    };
    let failing = (1..=4 * SEEDS).map(drawn).find(fails);
    let failing = failing.expect("no stale read was found among all seeds");
    let shrunk = shrink(&failing, 16, || true).expect("it fails");
    let (config, report) = (&shrunk.config, &shrunk.report);
    assert!(is_not_linearizable(&report.verdict), "{report}");
    let faults = |config: &SimConfig| config.faults.clone().expect("named");
    let clients = |config: &SimConfig| config.client_machines * config.clients_per_machine;
    assert!(faults(config).is_subset(&faults(&failing)));
    let fewer_faults = faults(config).len() < faults(&failing).len();
    assert!(
        fewer_faults || clients(config) < clients(&failing),
        "{report}"
    );
    // The printed command leads to the remaining run, and to no other.
    let command = report.replay_command();
    let words: Vec<&str> = command.split(' ').collect();
    let after = |option: &str| {
        let place = words.iter().position(|word| *word == option);
        place.map(|place| words[place + 1])
    };
    let named: FaultSet = after("--faults").expect("named").parse().expect("faults");
    assert_eq!(named.0, faults(config), "{command}");
    let usual = SimConfig::from_seed(config.seed);
    let count = |option: &str, usual: usize| after(option).map_or(usual, |n| n.parse().expect("n"));
    let machines = count("--client-machines", usual.client_machines);
    assert_eq!(machines, config.client_machines, "{command}");
    let each = count("--clients", usual.clients_per_machine);
    assert_eq!(each, config.clients_per_machine, "{command}");
    assert!(fails(config), "it fails again");
    println!("{} runs: {command}", shrunk.tried);
}
