//! Clients watch keys while faults happen: each stream is exactly what the log has changed, and planted bugs of watches are
//! found.

use trine_chaos::sim::SimReport;

use super::short;

fn simulate(seed: u64) -> SimReport {
    short::simulate(seed, |config| config.watches = true)
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
    short::finds(bug, words, 1..40, simulate);
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
