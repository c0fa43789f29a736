//! Sequencers under faults: seeds pass, they reach what they are to show, and planted bugs are found.

#[cfg(debug_assertions)]
use trine_chaos::checker::Verdict;
use trine_chaos::sim::Trace;
use trine_chaos::sim::numbers::{NumbersConfig, NumbersReport, run};

const SEEDS: u64 = 24;

fn simulate(seed: u64) -> NumbersReport {
    run(&NumbersConfig::new(seed), Trace::Off)
}

/// All kinds of keeping pass, some of them beyond 2^32, and a seed replays its run.
#[test]
fn numbers_come_once_and_grow() {
    let reports: Vec<NumbersReport> = (1..=SEEDS).map(simulate).collect();
    for report in &reports {
        assert!(report.verdict.is_pass(), "{report}");
    }
    for keeping in ["a file", "a group, strict", "a group"] {
        assert!(
            reports.iter().any(|report| report.facts.keeping == keeping),
            "no seed keeps them in {keeping}"
        );
    }
    let wrapped = reports.iter().filter(|report| report.facts.wrapped).count();
    assert!(
        wrapped >= 3,
        "{wrapped} seeds pass the wrap of the low half"
    );
    let without: u64 = reports.iter().map(|report| report.facts.without).sum();
    assert!(
        without > 100,
        "servers without numbers answered {without} requests"
    );
    let sum = |of: fn(&NumbersReport) -> u64| reports.iter().map(of).sum::<u64>();
    let speculated = sum(|report| report.facts.speculated);
    let corrected = sum(|report| report.facts.corrected);
    let refused = sum(|report| report.facts.refused);
    let ways = sum(|report| report.facts.ways);
    assert!(
        speculated > 100 * SEEDS
            && [corrected, refused, ways]
                .iter()
                .all(|&count| count > 10 * SEEDS),
        "by four bytes: {speculated}, {corrected} corrected, {refused} refused, {ways} from another endpoint"
    );
    assert_eq!(simulate(1).hash, reports[0].hash);
}

#[test]
#[cfg(debug_assertions)]
fn planted_bugs_are_found() {
    for (bug, words, from) in [
        ("an epoch begins twice", "a number came twice", 1),
        ("a taker waits for nobody", "a number went back", 1),
        ("a lease is looked at too early", "a number went back", 360),
        (
            "a half is joined with a newer guess",
            "a number went back",
            1,
        ),
        ("a request is repeated on its way", "a number went back", 1),
    ] {
        let _planted = trine_canary::plant(bug);
        let found =
            (from..from + 4 * SEEDS)
                .map(simulate)
                .find_map(|report| match report.verdict {
                    Verdict::Violation(violation) if violation.explanation.contains(words) => {
                        Some(report.seed)
                    }
                    _ => None,
                });
        assert!(found.is_some(), "no seed finds `{bug}`");
    }
}
