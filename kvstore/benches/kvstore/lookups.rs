//! The three ways in which a paper's case is run, and the ratios that are reported of them.

use crate::PAIRS;
use crate::cpu::thread_ns;
use std::cell::Cell;
use std::hint::black_box;
use trine_report::{Pairs, Report};

/// Lanes of every batch, by hand and interleaved.
pub(crate) const LANES: usize = trine_kvstore::interleave::LANES;

/// Does all lookups of one set and returns a sum over the results.
pub(crate) type Way<'a> = &'a dyn Fn(usize) -> u64;

/// Sets of lookups. Neighbouring runs take different ones, so a run gains nothing from what the
/// last one brought into the cache.
pub(crate) const SETS: usize = 8;

/// One case: each way does all of its lookups and returns a sum over the results.
pub(crate) struct Case<'a> {
    pub(crate) name: &'static str,
    /// Lookups, or hops, of one run.
    pub(crate) count: usize,
    pub(crate) naive: Way<'a>,
    pub(crate) by_hand: Way<'a>,
    pub(crate) batch: Way<'a>,
}

impl Case<'_> {
    pub(crate) fn measure(&self, report: &mut Report) {
        for way in [self.by_hand, self.batch] {
            assert_eq!(
                way(0),
                (self.naive)(0),
                "{}: every way finds the same",
                self.name
            );
        }
        let runs = Cell::new(0);
        let rate = |way: Way<'_>| {
            runs.set(runs.get() + 1);
            let start = thread_ns();
            black_box(way(runs.get() % SETS));
            self.count as f64 * 1e3 / (thread_ns() - start) as f64
        };
        let mut compare = |what: &str, against: &str, ours: Way<'_>, theirs: Way<'_>| {
            let pairs = Pairs::run(PAIRS, || rate(ours), || rate(theirs));
            report.pairs(&format!("{}_{what}", self.name), "M/s", against, &pairs);
        };
        compare("batch_vs_naive", "naive", self.batch, self.naive);
        compare(
            "batch_vs_by_hand",
            "group prefetching by hand",
            self.batch,
            self.by_hand,
        );
    }
}
