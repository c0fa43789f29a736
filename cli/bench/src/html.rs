//! The report as one self-contained HTML file: no script, no font, no network.

use super::compare::Compared;
use super::record::Point;
use super::result::RunResult;
use trine_base::html::page::{Page, table};
use trine_base::html::svg::{Line, Plot, Scale, escape, seconds_marks};
use trine_base::latency::Percentiles;
use trine_base::units::{show_count, show_ns};

/// Returns the whole page. `runs` has at least one run; `compared` is the result of `--compare`.
pub(super) fn report(runs: &[RunResult], compared: &[Compared]) -> String {
    let first = &runs[0];
    let names: Vec<&str> = runs.iter().map(|run| run.target.as_str()).collect();
    let title = format!("trine bench: {}", names.join(", "));
    let mut page = Page::new(&title, &format!("{}, {}", first.begun, first.what()));
    for run in runs.iter().filter(|run| run.interrupted) {
        page.push(&format!(
            "<p class=\"note\">{} was interrupted; this is what was measured until then.</p>\n",
            escape(&run.target)
        ));
    }
    summary(runs, &mut page);
    page.heading("Throughput over time");
    page.push(&throughput(runs));
    page.heading("Latency over time");
    page.push(&latency_over_time(runs));
    page.push(match first.settings.rate {
        None => {
            "\n<p class=\"sub\">As measured, without the correction for coordinated omission.</p>\n"
        }
        Some(_) => {
            "\n<p class=\"sub\">Each operation counts from the moment at which it was due.</p>\n"
        }
    });
    page.heading("Latency by percentile");
    page.push(&curve(runs));
    page.push(match first.settings.rate {
        None => "\n<p class=\"sub\">Closed loop. Corrected for coordinated omission, with the mean latency as the interval at which each client asks.</p>\n",
        Some(_) => "\n<p class=\"sub\">Open loop. Each operation counts from the moment at which it was due.</p>\n",
    });
    page.heading("Latency by operation");
    latencies(runs, &mut page);
    if !compared.is_empty() {
        comparison(compared, &mut page);
    }
    settings(first, &mut page);
    page.finish()
}

/// The meaning of the setting of this name.
const CLIENTS: &str = "Clients work at the same time, in one thread of one process. Each keeps up to <em>pipeline</em> \
    operations under way, and in a closed loop it asks again when an answer has come. Of trine a client is a session of \
    the client library, and all share one endpoint. Of Redis it is a TCP connection.";

fn summary(runs: &[RunResult], page: &mut Page) {
    let rows = runs.iter().map(|run| {
        vec![
            run.target.clone(),
            show_count(run.operations_per_second as u64),
            show_ns(run.all_corrected.p50_ns),
            show_ns(run.all_corrected.p99_ns),
            show_ns(run.all_corrected.p999_ns),
            show_count(run.errors),
        ]
    });
    let header = ["target", "operations/s", "p50", "p99", "p99.9", "errors"];
    let header = header.map(
        |name| match name.starts_with('p') && is_corrected(&runs[0]) {
            true => format!("{name}, corrected"),
            false => name.to_owned(),
        },
    );
    page.push(&table(&header.each_ref().map(String::as_str), rows));
}

/// Whether figures called corrected differ from the measured ones.
fn is_corrected(run: &RunResult) -> bool {
    run.settings.rate.is_none()
}

/// The end of the last run, in seconds.
fn last_second(runs: &[RunResult]) -> f64 {
    let points = runs.iter().flat_map(|run| &run.series);
    points.map(|point| point.seconds).fold(0.0, f64::max)
}

/// A line for each run, in its colour.
fn lines(runs: &[RunResult], points: impl Fn(&RunResult) -> Vec<(f64, f64)>) -> Vec<Line> {
    let line = |(colour, run): (usize, &RunResult)| Line {
        name: run.target.clone(),
        colour,
        dashed: false,
        points: points(run),
    };
    runs.iter().enumerate().map(line).collect()
}

fn throughput(runs: &[RunResult]) -> String {
    let lines = lines(runs, |run| {
        let points = run.series.iter();
        points
            .map(|point| (point.seconds, point.operations_per_second))
            .collect()
    });
    let show_y = |y: f64| show_count(y as u64);
    let x_marks = seconds_marks(last_second(runs));
    Plot {
        x_name: "seconds",
        y_name: "operations/s",
        scale: Scale::Linear,
        lines: &lines,
        x_marks,
        show_y,
    }
    .draw()
}

fn latency_over_time(runs: &[RunResult]) -> String {
    let line =
        |(colour, run): (usize, &RunResult), name: &str, dashed, of: fn(&Point) -> u64| Line {
            name: format!("{} {name}", run.target),
            colour,
            dashed,
            points: run
                .series
                .iter()
                .map(|point| (point.seconds, height(point, of)))
                .collect(),
        };
    let lines: Vec<Line> = runs
        .iter()
        .enumerate()
        .flat_map(|run| {
            [
                line(run, "p50", false, |point| point.p50_ns),
                line(run, "p99", true, |point| point.p99_ns),
            ]
        })
        .collect();
    let x_marks = seconds_marks(last_second(runs));
    latency_plot("seconds", x_marks, &lines)
}

/// The height of a point of a latency; no number if nothing was measured.
fn height(point: &Point, of: fn(&Point) -> u64) -> f64 {
    match point.operations_per_second > 0.0 {
        true => of(point) as f64,
        false => f64::NAN,
    }
}

fn latency_plot(x_name: &str, x_marks: Vec<(f64, String)>, lines: &[Line]) -> String {
    Plot {
        x_name,
        y_name: "latency",
        scale: Scale::Logarithmic,
        lines,
        x_marks,
        show_y: |y| show_ns(y as u64),
    }
    .draw()
}

fn curve(runs: &[RunResult]) -> String {
    // The scale counts nines: 0 at the left end, 1 at 90 %, 2 at 99 %.
    let nines = |quantile: f64| -(1.0 - quantile).max(1e-6).log10();
    let lines = lines(runs, |run| {
        let below = run.curve.iter().filter(|(quantile, _)| *quantile < 1.0);
        below
            .map(|(quantile, ns)| (nines(*quantile), *ns as f64))
            .collect()
    });
    let marks = [
        (0.0, "0"),
        (0.5, "50 %"),
        (0.9, "90 %"),
        (0.99, "99 %"),
        (0.999, "99.9 %"),
        (0.9999, "99.99 %"),
        (0.99999, "99.999 %"),
    ];
    let x_marks = marks
        .map(|(quantile, text)| (nines(quantile), text.to_owned()))
        .to_vec();
    latency_plot(
        "share of operations that took at most this long",
        x_marks,
        &lines,
    )
}

fn latencies(runs: &[RunResult], page: &mut Page) {
    let rows = runs.iter().flat_map(|run| {
        let of = [
            ("read", &run.read),
            ("scan", &run.scan),
            ("write", &run.write),
            ("read, modify, write", &run.read_modify_write),
            ("all", &run.all),
            ("all, corrected", &run.all_corrected),
        ];
        let done = of
            .into_iter()
            .filter(|(_, percentiles)| percentiles.count > 0);
        done.map(|(name, percentiles)| row(&format!("{} {name}", run.store), percentiles))
            .collect::<Vec<_>>()
    });
    page.push(&table(
        &[
            "operation",
            "count",
            "min",
            "p50",
            "p90",
            "p99",
            "p99.9",
            "max",
        ],
        rows,
    ));
}

fn row(name: &str, p: &Percentiles) -> Vec<String> {
    let times = [p.min_ns, p.p50_ns, p.p90_ns, p.p99_ns, p.p999_ns, p.max_ns].map(show_ns);
    [vec![name.to_owned(), show_count(p.count)], times.to_vec()].concat()
}

fn comparison(compared: &[Compared], page: &mut Page) {
    page.heading("Compared with the earlier result");
    let rows = compared.iter().map(|compared| {
        let show = |value: f64| match compared.more_is_better {
            true => show_count(value as u64),
            false => show_ns(value as u64),
        };
        let figure = format!("{}: {}", compared.target, compared.figure);
        vec![
            figure,
            show(compared.then),
            show(compared.now),
            format!("{:.2}", compared.ratio),
        ]
    });
    page.push(&table(&["figure", "then", "now", "now/then"], rows));
}

fn settings(run: &RunResult, page: &mut Page) {
    page.heading("Settings and machine");
    let settings = serde_json::to_value(&run.settings).expect("plain data");
    let host = serde_json::to_value(&run.host).expect("plain data");
    let pairs = [&settings, &host]
        .into_iter()
        .filter_map(|value| value.as_object())
        .flatten();
    let rows = pairs
        .filter(|(_, value)| !value.is_null())
        .map(|(name, value)| {
            let text = value
                .as_str()
                .map_or_else(|| value.to_string(), str::to_owned);
            let (name, text) = match (name.strip_suffix("_ns"), value.as_u64()) {
                (Some(name), Some(ns)) => (name, show_ns(ns)),
                _ => (name.as_str(), text),
            };
            vec![name.replace('_', " "), text]
        });
    page.push(&table(&["", ""], rows));
    page.push(&format!("<p class=\"sub\">{CLIENTS}</p>\n"));
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::tests::result;
    use trine_base::html::well_formed::assert_well_formed;

    #[test]
    fn the_page_is_well_formed_and_needs_nothing_from_elsewhere() {
        let mut odd = result("redis://<evil>&\"host\":1");
        odd.interrupted = true;
        odd.first_error = Some("<b>".into());
        let runs = [result("trine://"), odd];
        let compared = super::super::compare::compare(&runs, &runs);
        let page = report(&runs, &compared);
        assert_well_formed(&page);
        assert!(!page.contains("<evil>"));
        for outside in ["http://", "https://", "<script", "<link", "@import", "url("] {
            assert!(!page.contains(outside), "{outside}");
        }
        assert_eq!(page.matches("role=\"img\"").count(), 3);
        assert!(page.contains("Compared with") && page.contains("was interrupted"));
        // It had `for ns` and a number of ten digits, and no date.
        assert!(page.contains("<td>for</td><td>4.00 s</td>"));
        assert!(page.contains("2026-01-02T03:04:05Z"));
        // Figures that are corrected, and figures that are not, are said to be so.
        for text in [
            "<th>p99, corrected</th>",
            "As measured, without",
            "Clients work at the same time",
        ] {
            assert!(page.contains(text), "{text}");
        }
        let mut open = result("trine://");
        open.settings.rate = Some(1_000);
        let open = report(&[open], &[]);
        assert!(open.contains("<th>p99</th>") && !open.contains("<th>p99, corrected"));
        assert_well_formed(&open);
        // A result without operations gives a valid page as well.
        let mut empty = result("trine://");
        empty.series.clear();
        empty.curve.clear();
        assert_well_formed(&report(&[empty], &[]));
    }
}
