//! The gain of a handler when a batch of packets takes turns at memory.

use crate::PAIRS;
use crate::frames::Frames;
use std::cell::Cell;
use std::hint::black_box;
use trine_packets::application::{Application, handle_all};
use trine_packets::config::{BATCH_DEFAULT, BURST};
use trine_packets::scenario::{
    ApplicationName, OnApplication, TableSettings, on_application, traffic,
};
use trine_packets::verdict::{Reason, Verdict};
use trine_report::pin::cpu_time_ns;
use trine_report::{Pairs, Report};
use trine_transport::prng::Prng;

/// Packets of one run.
const PACKETS: usize = 1 << 19;
/// Sets of packets. Neighbouring runs take different ones, and together they touch more memory than a cache holds where
/// the table is larger than it.
const SETS: usize = 8;
/// Packets that are copied before the clock starts: they stay in the second-level cache.
const COPIES: usize = 16 * BURST;

/// Rows, and the entries of their tables: as in the paper, and more than a cache of 260 MiB holds where the algorithm
/// allows it.
const ROWS: [(&str, ApplicationName, usize); 8] = [
    ("echo_batch_vs_one", ApplicationName::Echo, 0),
    ("ipv4_batch_vs_one", ApplicationName::Ipv4, 500_000),
    ("ipv6_batch_vs_one", ApplicationName::Ipv6, 200_000),
    ("ipv6_large_batch_vs_one", ApplicationName::Ipv6, 800_000),
    ("switch_batch_vs_one", ApplicationName::Switch, 1_000_000),
    (
        "switch_large_batch_vs_one",
        ApplicationName::Switch,
        60_000_000,
    ),
    ("names_batch_vs_one", ApplicationName::Names, 10_000_000),
    ("patterns_batch_vs_one", ApplicationName::Patterns, 23_331),
];

pub(crate) fn measure(report: &mut Report, is_wanted: &dyn Fn(&str) -> bool) {
    for (row, name, entries) in ROWS {
        if is_wanted(row) {
            let settings = TableSettings {
                entries,
                ports: 4,
                seed: 1,
            };
            let packets = match name {
                // Longer, and slow.
                ApplicationName::Patterns => PACKETS / 16,
                _ => PACKETS,
            };
            let traffic = traffic(name, &settings);
            let frames = Frames::draw(&*traffic, packets * SETS, &mut Prng::new(9));
            drop(traffic);
            let work = Handler {
                row,
                frames,
                report,
            };
            on_application(name, &settings, work).expect("a table");
        }
    }
}

struct Handler<'a> {
    row: &'static str,
    frames: Frames,
    report: &'a mut Report,
}

impl OnApplication for Handler<'_> {
    type Output = ();

    fn on<A: Application>(self, application: &A) {
        let runs = Cell::new(0);
        let next = || {
            runs.set(runs.get() + 1);
            runs.get() % SETS
        };
        let pairs = Pairs::run(
            PAIRS,
            || rate::<BATCH_DEFAULT, A>(application, &self.frames, next()),
            || rate::<1, A>(application, &self.frames, next()),
        );
        self.report.pairs(self.row, "M/s", "one at a time", &pairs);
    }
}

/// Millions of packets a second of this thread's processor time. The packets are copied before, so that none is changed
/// twice and all are in the cache, as behind a port.
fn rate<const N: usize, A: Application>(application: &A, frames: &Frames, set: usize) -> f64 {
    let packets = frames.len() / SETS;
    let mut copies: Vec<Vec<u8>> = vec![Vec::new(); COPIES];
    let mut verdicts = [Verdict::Drop(Reason::Short); BURST];
    let mut spent = 0.0;
    for first in (0..packets).step_by(COPIES) {
        for (index, copy) in copies.iter_mut().enumerate() {
            copy.clear();
            copy.extend_from_slice(frames.get(set * packets + first + index));
        }
        let mut slices: Vec<&mut [u8]> = copies.iter_mut().map(Vec::as_mut_slice).collect();
        let start = cpu_time_ns();
        for burst in slices.chunks_exact_mut(BURST) {
            handle_all::<N, A>(application, burst, &mut verdicts);
            black_box(&mut verdicts);
        }
        spent += cpu_time_ns() - start;
    }
    packets as f64 * 1e3 / spent
}
