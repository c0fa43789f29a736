//! Seeds of the simulator: each passes, and each replays byte for byte.

use trine_chaos::sim::{SimConfig, SimReport, Trace, rpc, run};
use trine_transport::time::Duration;

const GROUP_SEEDS: std::ops::Range<u64> = 1_000..1_006;
const RPC_SEEDS: std::ops::Range<u64> = 1_000..1_002;

/// A third of what a seed stands for on the command line: tests are built without optimization.
fn simulate(seed: u64) -> SimReport {
    let mut config = SimConfig::from_seed(seed);
    config.faulty = Duration::from_secs(10);
    config.operations_min = 300;
    run(config, Trace::Off).expect("seeds stand for sound configurations")
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
    config.operations_min = 1_000_000;
    let report = run(config, Trace::Off).expect("a sound configuration");
    assert!(!report.verdict.is_pass(), "{report}");
}

/// After all faults the lead went on changing hands, several times a second. A session had two
/// credits and 32 slots. Two appends that waited in the receiver's reorder buffer for an earlier
/// one kept both credits; the earlier one, and every heartbeat, could not be sent until their
/// deadlines passed. A session is now never granted more slots than credits.
#[test]
fn appends_that_wait_do_not_starve_the_one_they_wait_for() {
    let report = run(SimConfig::from_seed(40_070), Trace::Off).expect("a sound configuration");
    assert!(report.verdict.is_pass(), "{report}");
}
