//! Runs of a third of a seed's length on the command line, and the search of such runs for a planted bug.

#[cfg(debug_assertions)]
use trine_chaos::checker::Verdict;
use trine_chaos::sim::{SimConfig, SimReport, Trace, run};
use trine_transport::time::Duration;

/// A short run of a seed, with what `set` changes in its configuration.
pub(crate) fn simulate(seed: u64, set: impl FnOnce(&mut SimConfig)) -> SimReport {
    let mut config = SimConfig::from_seed(seed);
    set(&mut config);
    config.faulty = Duration::from_secs(10);
    config.ask_for_less(300);
    run(config, Trace::Off).expect("seeds stand for sound configurations")
}

/// One of these seeds finds the planted bug, in these words.
#[cfg(debug_assertions)]
#[track_caller]
pub(crate) fn finds(
    bug: &'static str,
    words: &str,
    seeds: std::ops::Range<u64>,
    simulate: impl Fn(u64) -> SimReport,
) {
    let _bug = trine_canary::plant(bug);
    let found = seeds.map(simulate).find_map(|report| match report.verdict {
        Verdict::Violation(violation) if violation.explanation.contains(words) => {
            Some((report.seed, violation))
        }
        _ => None,
    });
    let (seed, violation) = found.expect("no seed has found it");
    assert!(!violation.explanation.contains(bug), "{violation}");
    println!("seed {seed}: {violation}");
}
