//! Sealed groups: keys change, users come and go, and somebody forges packets. Nobody gets more than its rights.

#[cfg(debug_assertions)]
use trine_chaos::checker::Verdict;
use trine_chaos::fault::{Fault, FaultSet};
use trine_chaos::sim::{Plan, SimConfig, SimReport, Trace, run};
use trine_transport::time::Duration;

const KINDS: [Fault; 3] = [Fault::Forged, Fault::RotateKeys, Fault::Users];
const SEEDS: std::ops::RangeInclusive<u64> = 1..=3;

/// A few seconds of a group with keys, whatever the seed draws.
fn config(seed: u64) -> SimConfig {
    let plan = Plan {
        seed,
        faults: Some(FaultSet([Fault::Loss].into_iter().chain(KINDS).collect())),
        faulty: Some(Duration::from_secs(8)),
        clients_per_machine: Some(1),
        ..Plan::default()
    };
    plan.config().expect("a sound configuration")
}

fn simulate(seed: u64) -> SimReport {
    run(config(seed), Trace::Off).expect("a sound configuration")
}

#[test]
fn a_sealed_group_holds_while_keys_change_and_packets_are_forged() {
    for seed in SEEDS {
        let report = simulate(seed);
        assert!(report.verdict.is_pass(), "{report}");
        for fault in KINDS {
            assert!(report.faults[&fault] > 0, "{fault}: {report}");
        }
        let (answered, denied) = report.users_calls;
        assert!(answered > 20 && denied > 20, "{report}");
    }
    assert_eq!(simulate(1).hash, simulate(1).hash);
}

#[cfg(debug_assertions)]
fn is_found_as(bug: &'static str, words: &str) -> bool {
    let _bug = trine_canary::plant(bug);
    SEEDS.map(simulate).any(|report| {
        matches!(&report.verdict, Verdict::Violation(found) if found.explanation.contains(words))
    })
}

#[test]
#[cfg(debug_assertions)]
fn a_user_that_keeps_its_session_is_found() {
    let (bug, words) = (
        "a revoked user keeps its session",
        "session of a removed user",
    );
    assert!(is_found_as(bug, words));
}

#[test]
#[cfg(debug_assertions)]
fn a_session_that_answers_another_user_is_found() {
    let (bug, words) = ("a session answers another user", "of somebody else");
    assert!(is_found_as(bug, words));
}

/// Sealed packets are doubled by the network, too: a window that takes them again shows without an attacker.
#[test]
#[cfg(debug_assertions)]
fn a_packet_that_is_opened_twice_is_found() {
    let (bug, words) = ("window ignores replays", "opened twice");
    assert!(is_found_as(bug, words));
}
