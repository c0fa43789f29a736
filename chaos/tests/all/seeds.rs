//! Seeds of the simulator: each passes, and each replays byte for byte.

use trine_chaos::checker::Verdict;
use trine_chaos::fault::Fault;
use trine_chaos::shrink::shrink;
use trine_chaos::sim::{Report as _, Run as _, SimConfig, SimReport, Trace, rpc, run, run_while};
use trine_transport::time::Duration;

use super::short;

const GROUP_SEEDS: std::ops::Range<u64> = 1_000..1_006;
const RPC_SEEDS: std::ops::Range<u64> = 1_000..1_002;

fn simulate(seed: u64) -> SimReport {
    short::simulate(seed, |_| {})
}

#[test]
fn seeds_pass_and_replay_byte_for_byte() {
    for seed in GROUP_SEEDS {
        let report = simulate(seed);
        assert!(report.verdict.is_pass(), "{report}");
        let again = simulate(seed);
        assert_eq!(
            report.history.to_text(),
            again.history.to_text(),
            "seed {seed} does not replay"
        );
        assert_eq!(
            (report.packets, report.turns),
            (again.packets, again.turns),
            "seed {seed} does not replay"
        );
    }
}

#[test]
fn different_seeds_are_different_runs() {
    assert_ne!(simulate(1).hash, simulate(2).hash);
}

#[test]
fn the_transport_keeps_its_promises_and_replays() {
    for seed in RPC_SEEDS {
        let config = rpc::RpcConfig {
            faulty: Duration::from_millis(500),
            quiet: Duration::from_millis(500),
            ..rpc::RpcConfig::new(seed)
        };
        let report = rpc::run(&config, Trace::Off);
        assert!(report.verdict.is_pass(), "seed {seed}: {}", report.verdict);
        assert_eq!(
            report.hash,
            rpc::run(&config, Trace::Off).hash,
            "seed {seed} does not replay"
        );
    }
}

#[test]
fn a_run_that_completes_too_little_is_not_a_pass() {
    let mut config = SimConfig::from_seed(3);
    config.faulty = Duration::from_secs(1);
    config.ask_for_less(1_000_000);
    let report = run(config, Trace::Off).expect("a sound configuration");
    assert!(!report.verdict.is_pass(), "{report}");
}

fn why_not(config: SimConfig) -> String {
    let report = run(config, Trace::Off).expect("a sound configuration");
    match report.verdict {
        Verdict::Violation(violation) => violation.explanation,
        verdict => panic!("{verdict}"),
    }
}

/// Everything else about these runs is in order: many operations, all of them answered as they should be.
#[test]
fn a_run_whose_faults_are_too_few_in_kind_is_not_a_pass() {
    let mut config = SimConfig::from_seed(3);
    // These would be a fault from the first packet on.
    config.small_paths = false;
    config.faulty = Duration::ZERO;
    config.ask_for_less(300);
    let none = "nothing proved: 0 kinds of fault fired, 3 are needed";
    assert_eq!(why_not(config.clone()), none);
    config.faults = Some(["loss".parse().expect("a fault")].into());
    let loss = "nothing proved: the fault `loss` was requested and never fired";
    assert_eq!(why_not(config), loss);
}

#[test]
fn a_run_of_less_than_a_minute_is_not_a_pass() {
    let mut config = SimConfig::from_seed(3);
    config.faulty = Duration::from_secs(10);
    config.operations_min = 300;
    let why = why_not(config);
    assert!(
        why.ends_with("ns passed, at least 60000000000 are needed"),
        "{why}"
    );
}

#[test]
fn a_run_that_is_interrupted_is_not_a_pass_and_nothing_to_shrink() {
    let config = SimConfig::from_seed(3);
    let report = run_while(config.clone(), Trace::Off, || false).expect("a sound configuration");
    assert!(report.ended_early, "{report}");
    assert!(
        matches!(report.verdict, Verdict::Undecided { .. }),
        "{report}"
    );
    assert!(shrink(&config, 1, || false).is_none());
}

/// A measured run without faults lasted for a fixed time, and a seed with wide sessions called millions of operations
/// in it: `sim --measure` did not end.
#[test]
fn the_load_that_is_measured_is_a_number_of_operations() {
    for seed in [1, 4] {
        let mut config = SimConfig::measured_without_faults(seed);
        config.pace.rush = 2_000;
        config.ask_for_less(2_000);
        let report = run(config, Trace::Off).expect("a sound configuration");
        assert!(report.verdict.is_pass(), "{report}");
        assert!(report.tally.called < 4_000, "{report}");
    }
}

/// After all faults leadership kept changing, several times a second. A session had two credits and 32 slots. Two
/// appends that waited in the receiver's reorder buffer for an earlier one kept both credits; the earlier one, and
/// every heartbeat, could not be sent until their deadlines passed. A session is now never granted more slots than
/// credits.
#[test]
fn appends_that_wait_do_not_starve_the_one_they_wait_for() {
    let report = run(SimConfig::from_seed(40_070), Trace::Off).expect("a sound configuration");
    assert!(report.verdict.is_pass(), "{report}");
}

/// A panic in a run of the transport ended all runs, and named no seed.
#[test]
fn a_panic_of_the_transport_is_a_finding_about_its_seed() {
    let sink = Trace::To(Box::new(|_| panic!("planted")));
    let report = rpc::run(&rpc::RpcConfig::new(1), sink);
    assert_eq!(report.verdict, Verdict::violation("panic: planted"));
}

#[test]
fn a_run_of_the_transport_that_is_interrupted_is_not_a_pass_and_nothing_to_shrink() {
    let config = rpc::RpcConfig::new(1);
    let report = rpc::run_while(&config, Trace::Off, || false);
    assert!(report.ended_early, "{report}");
    let undecided = matches!(report.verdict, Verdict::Undecided { .. });
    assert!(undecided, "{report}");
    assert!(shrink(&config, 1, || false).is_none());
}

#[test]
fn a_run_of_the_transport_with_fewer_faults_has_only_those() {
    let mut config = rpc::RpcConfig::new(1);
    config.faults = Some([Fault::Loss, Fault::Pause].into());
    let loses = |report: &rpc::RpcReport| report.faults.get(&Fault::Loss).copied();
    let report = rpc::run(&config, Trace::Off);
    assert!(report.verdict.is_pass(), "{report}");
    assert!(loses(&report) > Some(0), "{report}");
    let fewer = config.with_faults([Fault::Pause].into());
    let report = rpc::run(&fewer, Trace::Off);
    assert_eq!(loses(&report), None);
    let command = report.replay_command();
    assert!(command.ends_with("sim --rpc --seed 1 --faults pause --trace"));
}
