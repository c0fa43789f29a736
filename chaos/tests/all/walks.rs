//! Clients walk over all keys and flush them: such runs pass, and planted bugs of walks and flushes are found.

use trine_chaos::history::{Action, Answer, Outcome};
use trine_chaos::sim::SimReport;

use super::short;

const SEEDS: std::ops::Range<u64> = 1..5;

fn simulate(seed: u64) -> SimReport {
    short::simulate(seed, |config| {
        config.walks = true;
        config.first_state_version = config.replica.state_version;
    })
}

#[test]
fn walks_and_flushes_are_linearizable_key_by_key() {
    let (mut flushed, mut absent) = (0, 0);
    for report in SEEDS.map(simulate) {
        assert!(report.verdict.is_pass(), "{report}");
        for operation in report.history.operations() {
            match (&operation.action, &operation.outcome) {
                (Action::Flush, Outcome::Known(Answer::Flushed)) => flushed += 1,
                // Only a walk tells of an absent key without a position.
                (Action::Get, Outcome::Known(Answer::NotFound)) => {
                    absent += u64::from(operation.position.is_none());
                }
                _ => {}
            }
        }
    }
    assert!(flushed > 20 && absent > 100, "{flushed} {absent}");
}

#[cfg(debug_assertions)]
#[track_caller]
fn finds(bug: &'static str, words: &str) {
    short::finds(bug, words, 1..20, simulate);
}

#[test]
#[cfg(debug_assertions)]
fn a_key_that_a_walk_misses_is_found() {
    finds("a walk forgets the rest of a bucket", "not linearizable");
}

#[test]
#[cfg(debug_assertions)]
fn an_expiry_that_outlives_its_item_is_found() {
    finds(
        "a flush keeps expiries",
        "an item with an expiry was counted in",
    );
}
