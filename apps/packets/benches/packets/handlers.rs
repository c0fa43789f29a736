//! How much faster does a handler become when a batch of packets takes turns at memory?

use crate::PAIRS;
use std::cell::Cell;
use std::hint::black_box;
use trine_packets::application::{Application, handle_all};
use trine_packets::config::{BATCH_DEFAULT, BURST};
use trine_packets::scenario::{Name, OnApplication, Settings, on_application, referee};
use trine_report::pin::cpu_time_ns;
use trine_report::{Pairs, Report};
use trine_transport::prng::Prng;

/// Packets of one run.
const PACKETS: usize = 1 << 16;
/// Sets of packets. Neighbouring runs take different ones, so that none finds what the last one brought into the cache.
const SETS: usize = 4;

/// Entries that make a table larger than the last cache where the algorithm allows it.
fn entries(name: Name) -> usize {
    match name {
        Name::Switch => 30_000_000,
        Name::Names => 4_000_000,
        other => other.entries().0,
    }
}

pub(crate) fn measure(report: &mut Report, is_wanted: &dyn Fn(&str) -> bool) {
    for name in Name::ALL {
        let row = format!("{}_batch_vs_one", name.text());
        if is_wanted(&row) {
            let settings = Settings {
                entries: entries(name),
                ports: 4,
                seed: 1,
            };
            let (_, traffic) = referee(name, &settings);
            let mut prng = Prng::new(9);
            let mut set = || {
                let mut frames = vec![Vec::new(); PACKETS];
                frames
                    .iter_mut()
                    .for_each(|frame| traffic.plain(frame, &mut prng));
                frames
            };
            let sets = (0..SETS).map(|_| set()).collect();
            drop(traffic);
            let work = Handler { row, sets, report };
            on_application(name, &settings, work).expect("a table");
        }
    }
}

struct Handler<'a> {
    row: String,
    sets: Vec<Vec<Vec<u8>>>,
    report: &'a mut Report,
}

impl OnApplication for Handler<'_> {
    type Output = ();

    fn on<A: Application>(self, application: &A) {
        let runs = Cell::new(0);
        let next = || {
            runs.set(runs.get() + 1);
            &self.sets[runs.get() % SETS]
        };
        let pairs = Pairs::run(
            PAIRS,
            || rate::<BATCH_DEFAULT, A>(application, next()),
            || rate::<1, A>(application, next()),
        );
        self.report.pairs(&self.row, "M/s", "one at a time", &pairs);
    }
}

/// Millions of packets a second of this thread's processor time. The packets are copied before, so that none is changed
/// twice and all are in the cache, as behind a port.
fn rate<const N: usize, A: Application>(application: &A, frames: &[Vec<u8>]) -> f64 {
    let mut copies: Vec<Vec<u8>> = vec![Vec::new(); BURST];
    let mut spent = 0.0;
    for burst in frames.chunks(BURST) {
        for (copy, frame) in copies.iter_mut().zip(burst) {
            copy.clone_from(frame);
        }
        let slices = copies[..burst.len()].iter_mut().map(Vec::as_mut_slice);
        let start = cpu_time_ns();
        handle_all::<N, A>(application, slices, |_, verdict| {
            black_box(verdict);
        });
        spent += cpu_time_ns() - start;
    }
    frames.len() as f64 * 1e3 / spent
}
