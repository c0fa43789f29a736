//! Clients watch keys while faults happen: each stream is exactly what the log has changed, and planted bugs of watches are
//! found.

#[cfg(debug_assertions)]
use trine_chaos::checker::Verdict;
use trine_chaos::sim::{SimConfig, SimReport, Trace, run};
use trine_transport::time::Duration;

/// A third of a seed's run on the command line: tests are built without optimization.
fn simulate(seed: u64) -> SimReport {
    let mut config = SimConfig::from_seed(seed);
    config.watches = true;
    config.faulty = Duration::from_secs(10);
    config.ask_for_less(300);
    run(config, Trace::Off).expect("seeds stand for sound configurations")
}

#[test]
fn each_stream_is_what_the_log_has_changed() {
    let (mut streams, mut events, mut moves) = (0, 0, 0);
    for report in (1..6).map(simulate) {
        assert!(report.verdict.is_pass(), "{report}");
        streams += report.watched.streams;
        events += report.watched.events;
        moves += report.watched.moves;
    }
    assert!(
        streams > 30 && events > 3_000 && moves > 3,
        "{streams} {events} {moves}"
    );
}

#[cfg(debug_assertions)]
#[track_caller]
fn finds(bug: &'static str, words: &str) {
    let _bug = trine_canary::plant(bug);
    let found = (1..40)
        .map(simulate)
        .find_map(|report| match report.verdict {
            Verdict::Violation(violation) if violation.explanation.contains(words) => {
                Some((report.seed, violation))
            }
            _ => None,
        });
    let (seed, violation) = found.expect("no seed has found it");
    println!("seed {seed}: {violation}");
}

#[test]
#[cfg(debug_assertions)]
fn an_event_that_is_lost_at_failover_is_found() {
    finds("event lost at failover", "a change was lost");
}

#[test]
#[cfg(debug_assertions)]
fn an_event_that_comes_twice_is_found() {
    finds("event twice", "a change came twice");
}
