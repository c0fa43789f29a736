//! What a benchmark has shown: a table, and one document for programs.

use serde_json::{Value, json};

use super::driver::Measured;
use crate::bench::median;
use crate::index::args::IndexBenchArguments;
use trine_base::output::{Output, Table};
use trine_base::units::{plural, show_count, show_ns};

/// A part of a round.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) enum RoundPart {
    /// GETs alone in a closed loop.
    Gets,
    /// GETs and scans in a closed loop.
    Mixed,
    /// The same in an open loop at so many percent of the first part's rate.
    Open(u32),
}

/// The figures of one part.
#[derive(Copy, Clone, Debug)]
struct Figures {
    rate: f64,
    get: [f64; 2],
    /// p99 of GETs in the middle one of the part's slices of a millisecond.
    get_slice: f64,
    scan: [f64; 2],
}

/// The figures of all rounds.
#[derive(Default)]
pub(super) struct Rounds {
    rows: Vec<ResultRow>,
}

/// A rate of the open loop in percent, and the ratios at it: of whole parts, and within a millisecond.
type Ratios = (u32, [Option<f64>; 2]);

struct ResultRow {
    setup: &'static str,
    part: RoundPart,
    rounds: Vec<Figures>,
}

impl ResultRow {
    fn median(&self, figure: impl Fn(&Figures) -> f64) -> f64 {
        median(self.rounds.iter().map(figure))
    }

    fn to_json(&self) -> Value {
        let (kind, percent) = match self.part {
            RoundPart::Gets => ("gets", None),
            RoundPart::Mixed => ("mixed", None),
            RoundPart::Open(percent) => ("open", Some(percent)),
        };
        let whole = |value: f64| value.round() as u64;
        json!({
            "setup": self.setup,
            "load": kind,
            "percent": percent,
            "requests_per_s": whole(self.median(|figures| figures.rate)),
            "get_p50_ns": whole(self.median(|figures| figures.get[0])),
            "get_p99_ns": whole(self.median(|figures| figures.get[1])),
            "get_p99_of_a_ms_ns": whole(self.median(|figures| figures.get_slice)),
            "scan_p50_ns": whole(self.median(|figures| figures.scan[0])),
            "scan_p99_ns": whole(self.median(|figures| figures.scan[1])),
        })
    }

    fn cells(&self) -> [String; 8] {
        let load = match self.part {
            RoundPart::Gets => "GETs alone, closed".to_owned(),
            RoundPart::Mixed => "mixed, closed".to_owned(),
            RoundPart::Open(percent) => format!("mixed, open, {percent} %"),
        };
        let time = |figure: fn(&Figures) -> f64| match self.median(figure) {
            0.0 => "-".to_owned(),
            ns => show_ns(ns.round() as u64),
        };
        [
            self.setup.to_owned(),
            load,
            show_count(self.median(|figures| figures.rate).round() as u64),
            time(|figures| figures.get[0]),
            time(|figures| figures.get[1]),
            time(|figures| figures.get_slice),
            time(|figures| figures.scan[0]),
            time(|figures| figures.scan[1]),
        ]
    }
}

impl Rounds {
    pub(super) fn add(
        &mut self,
        setup: &'static str,
        part: RoundPart,
        seconds: f64,
        measured: &Measured,
    ) {
        let of = |latencies: &trine_base::latency::Latencies| match latencies.count() {
            0 => [0.0; 2],
            _ => [0.5, 0.99].map(|quantile| latencies.at(quantile) as f64),
        };
        let figures = Figures {
            rate: measured.in_time as f64 / seconds,
            get: of(&measured.gets),
            get_slice: measured.slices.median_p99_ns(),
            scan: of(&measured.scans),
        };
        let known = |row: &&mut ResultRow| row.setup == setup && row.part == part;
        match self.rows.iter_mut().find(known) {
            Some(row) => row.rounds.push(figures),
            None => self.rows.push(ResultRow {
                setup,
                part,
                rounds: vec![figures],
            }),
        }
    }

    /// For each rate of the open loop: p99 of GETs with scans in a worker over that with scans in dispatch. It is the median
    /// of the rounds' ratios, once for whole parts and once within a millisecond. A round without GETs has no ratio, and a
    /// mix may have none in any round.
    fn ratios(&self) -> Vec<Ratios> {
        let row = |setup, part| {
            let is_it = move |row: &&ResultRow| row.setup == setup && row.part == part;
            self.rows.iter().find(is_it)
        };
        let ratio = |worker: &ResultRow| match worker.part {
            RoundPart::Open(percent) if worker.setup == "worker" => {
                let dispatch = row("dispatch", worker.part)?;
                let of = |figure: fn(&Figures) -> f64| {
                    let rounds = worker.rounds.iter().zip(&dispatch.rounds);
                    let figures =
                        rounds.map(|(worker, dispatch)| [figure(worker), figure(dispatch)]);
                    let measured = figures.filter(|both| both.iter().all(|ns| *ns > 0.0));
                    let ratios: Vec<f64> = measured
                        .map(|[worker, dispatch]| worker / dispatch)
                        .collect();
                    (!ratios.is_empty()).then(|| median(ratios.into_iter()))
                };
                let of_all = of(|figures| figures.get[1]);
                Some((percent, [of_all, of(|figures| figures.get_slice)]))
            }
            _ => None,
        };
        self.rows.iter().filter_map(ratio).collect()
    }

    pub(super) fn show(&self, arguments: &IndexBenchArguments, output: Output) {
        let ratios = self.ratios();
        let ratio = |(percent, [all, of_a_ms]): &Ratios| json!({ "percent": percent, "ratio": all, "ratio_of_a_ms": of_a_ms });
        output.document(&json!({
            "in_process": arguments.in_process,
            "keys": arguments.keys,
            "scans_percent": arguments.scans(),
            "scan_keys": arguments.scan_keys,
            "pipeline": arguments.pipeline,
            "rounds": arguments.rounds,
            "loads": self.rows.iter().map(ResultRow::to_json).collect::<Vec<_>>(),
            "get_p99_worker_over_dispatch": ratios.iter().map(ratio).collect::<Vec<_>>(),
        }));
        let mut table = Table::new([
            "scans in",
            "load",
            "requests/s",
            "GET p50",
            "GET p99",
            "of a ms",
            "SCAN p50",
            "SCAN p99",
        ]);
        self.rows.iter().for_each(|row| table.row(row.cells()));
        output.line(format_args!(
            "{}, {} % scans over {}, medians of {}",
            plural(arguments.keys, "key"),
            arguments.scans(),
            plural(arguments.scan_keys.into(), "key"),
            plural(arguments.rounds.into(), "round"),
        ));
        output.line(table);
        for (percent, ratios) in ratios {
            output.line(told(percent, ratios));
        }
    }
}

/// A ratio for people.
fn told(percent: u32, [all, of_a_ms]: [Option<f64>; 2]) -> String {
    let Some(all) = all else {
        return format!("p99 of GETs at {percent} %: there were none to compare");
    };
    // Too few GETs in a millisecond.
    let within = of_a_ms.map_or_else(String::new, |ratio| {
        format!(", {ratio:.2} times within a ms")
    });
    format!("p99 of GETs at {percent} %: {all:.2} times as long with scans in the worker{within}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ratio_is_the_median_of_the_rounds_and_needs_both() {
        let mut rounds = Rounds::default();
        for (worker, dispatch) in [(10, 20), (10, 40), (30, 30)] {
            for (setup, ns) in [("worker", worker), ("dispatch", dispatch)] {
                let mut measured = Measured::default();
                measured.gets.record_ns(ns);
                rounds.add(setup, RoundPart::Open(80), 1.0, &measured);
            }
            rounds.add("worker", RoundPart::Open(50), 1.0, &Measured::default());
        }
        let of_all: Vec<_> = rounds
            .ratios()
            .into_iter()
            .map(|(percent, [all, _])| (percent, all))
            .collect();
        assert_eq!(of_all, [(80, Some(0.5))]);
        assert_eq!(rounds.rows[1].to_json()["get_p50_ns"], 30);
    }

    /// With `--scan-share 100%` it printed "NaN times as long".
    #[test]
    fn a_mix_without_gets_has_no_ratio() {
        let mut rounds = Rounds::default();
        for setup in ["worker", "dispatch"] {
            rounds.add(setup, RoundPart::Open(80), 1.0, &Measured::default());
        }
        assert_eq!(rounds.ratios(), [(80, [None, None])]);
        assert_eq!(
            told(80, [None, None]),
            "p99 of GETs at 80 %: there were none to compare"
        );
        let both = told(80, [Some(0.5), Some(0.25)]);
        assert!(
            both.ends_with("0.50 times as long with scans in the worker, 0.25 times within a ms")
        );
        assert!(told(80, [Some(0.5), None]).ends_with("in the worker"));
    }
}
