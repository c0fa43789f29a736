//! Several machines of clients repeat each other's writes in shared sessions while faults happen: each is applied once.

use trine_chaos::sim::SimReport;

use super::short;

fn simulate(seed: u64) -> SimReport {
    short::simulate(seed, |config| {
        config.first_state_version = config.replica.state_version;
        config.repeats = true;
    })
}

#[test]
fn all_copies_of_a_write_have_one_answer() {
    let mut repeated = 0;
    for report in (1..5).map(simulate) {
        assert!(report.verdict.is_pass(), "{report}");
        repeated += report.writes_repeated;
    }
    assert!(repeated > 100, "{repeated}");
}
