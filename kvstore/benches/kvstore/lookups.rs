//! The four ways in which a paper's case is run, and the ratios that are reported of them.

use crate::PAIRS;
use crate::report::{Pairs, Report};
use std::hint::black_box;
use std::time::Instant;

/// Lanes of every batch, by hand and interleaved.
pub(crate) const LANES: usize = trine_kvstore::interleave::LANES;

/// One case: each way does all of its lookups and returns a sum over the results.
pub(crate) struct Case<'a> {
    pub(crate) name: &'static str,
    /// Lookups, or hops, of one run.
    pub(crate) count: usize,
    pub(crate) naive: &'a dyn Fn() -> u64,
    pub(crate) by_hand: &'a dyn Fn() -> u64,
    pub(crate) batch: &'a dyn Fn() -> u64,
    pub(crate) refill: &'a dyn Fn() -> u64,
}

impl Case<'_> {
    pub(crate) fn measure(&self, report: &mut Report) {
        let expected = (self.naive)();
        for way in [self.by_hand, self.batch, self.refill] {
            assert_eq!(way(), expected, "{}: every way finds the same", self.name);
        }
        let rate = |way: &dyn Fn() -> u64| {
            let start = Instant::now();
            black_box(way());
            self.count as f64 / start.elapsed().as_secs_f64() / 1e6
        };
        let mut compare =
            |what: &str, against: &str, ours: &dyn Fn() -> u64, theirs: &dyn Fn() -> u64| {
                let pairs = Pairs::run(PAIRS, || rate(ours), || rate(theirs));
                report.pairs(&format!("{}_{what}", self.name), "M/s", against, &pairs);
            };
        compare("refill_vs_naive", "naive", self.refill, self.naive);
        compare("batch_vs_naive", "naive", self.batch, self.naive);
        compare(
            "batch_vs_by_hand",
            "group prefetching by hand",
            self.batch,
            self.by_hand,
        );
    }
}
