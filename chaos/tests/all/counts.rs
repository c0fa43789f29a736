//! Clients count ranges while faults happen: each answer has to be the number of keys at its position.

use trine_chaos::sim::{OrderedFrom, SimReport};

use super::short;

fn simulate(seed: u64) -> SimReport {
    short::simulate(seed, |config| {
        config.first_state_version = config.replica.state_version;
        config.ordered = Some(OrderedFrom::Beginning);
        config.replica.ordered = true;
        (config.counts, config.walks) = (true, false);
    })
}

#[test]
fn a_count_is_that_of_one_position() {
    let mut counted = 0;
    for report in (1..5).map(simulate) {
        assert!(report.verdict.is_pass(), "{report}");
        counted += report.ranges_counted;
    }
    assert!(counted > 200, "{counted}");
}
