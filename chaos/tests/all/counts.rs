//! Clients count ranges while faults happen: each answer has to be the number of keys at its position.

use trine_chaos::sim::{OrderedFrom, SimConfig, SimReport, Trace, run};
use trine_transport::time::Duration;

/// A third of a seed's run on the command line: tests are built without optimization.
fn simulate(seed: u64) -> SimReport {
    let mut config = SimConfig::from_seed(seed);
    config.first_state_version = config.replica.state_version;
    config.ordered = Some(OrderedFrom::Beginning);
    config.replica.ordered = true;
    (config.counts, config.walks) = (true, false);
    config.faulty = Duration::from_secs(10);
    config.ask_for_less(300);
    run(config, Trace::Off).expect("seeds stand for sound configurations")
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
