//! The report as one HTML file that needs nothing else: no script, no font, no network.

use std::fmt::Write;

use super::compare::Compared;
use super::record::Point;
use super::result::RunResult;
use super::svg::{Line, Plot, Scale, escape};
use crate::latency::Percentiles;
use crate::units::{show_count, show_ns};

const STYLE: &str = "\
:root{--ink:#1d2430;--soft:#5b6678;--line:#d9dee7;--back:#fff;--a:#2563eb;--b:#d9480f;--c:#2b8a3e;--d:#9c36b5;--e:#0b7285;--f:#a61e4d;--g:#5f3dc4;--h:#e67700}
@media(prefers-color-scheme:dark){:root{--ink:#e6eaf2;--soft:#9aa6b8;--line:#323b4a;--back:#151a22;--a:#74a9ff;--b:#ff9b66;--c:#69db7c;--d:#da77f2;--e:#66d9e8;--f:#faa2c1;--g:#b197fc;--h:#ffc078}}
body{font:15px/1.5 system-ui,sans-serif;color:var(--ink);background:var(--back);max-width:820px;margin:2em auto;padding:0 1em}
h1{font-size:1.5em;margin-bottom:0}h2{font-size:1.15em;margin-top:2em}p.sub,footer{color:var(--soft)}
table{border-collapse:collapse;width:100%;font-variant-numeric:tabular-nums}th,td{padding:.25em .6em;text-align:right;border-bottom:1px solid var(--line)}
th:first-child,td:first-child{text-align:left}th{color:var(--soft);font-weight:600}
svg{width:100%;height:auto}svg text{font-size:11px;fill:var(--soft)}svg .grid{stroke:var(--line)}svg polyline{fill:none;stroke-width:1.8}
.legend span{margin-right:1.2em;font-size:.9em}.legend i{display:inline-block;width:1.1em;height:.25em;margin-right:.4em;vertical-align:middle}
.c0{stroke:var(--a)}.c1{stroke:var(--b)}.c2{stroke:var(--c)}.c3{stroke:var(--d)}.c4{stroke:var(--e)}.c5{stroke:var(--f)}.c6{stroke:var(--g)}.c7{stroke:var(--h)}
.dashed{stroke-dasharray:5 4}.legend .dashed{opacity:.5}
.b0{background:var(--a)}.b1{background:var(--b)}.b2{background:var(--c)}.b3{background:var(--d)}.b4{background:var(--e)}.b5{background:var(--f)}.b6{background:var(--g)}.b7{background:var(--h)}
.note{border-left:3px solid var(--b);padding-left:.8em}";

/// The whole page. `runs` has at least one; `compared` is what `--compare` gave.
pub(super) fn report(runs: &[RunResult], compared: &[Compared]) -> String {
    let first = &runs[0];
    let names: Vec<&str> = runs.iter().map(|run| run.target.as_str()).collect();
    // Writing to a string cannot fail.
    let mut page = String::new();
    let title = escape(&format!("trine bench: {}", names.join(", ")));
    let _ = write!(
        page,
        "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"/><meta name=\"viewport\" content=\"width=device-width\"/><title>{title}</title><style>{STYLE}</style></head><body>\n"
    );
    let _ = writeln!(
        page,
        "<h1>{title}</h1>\n<p class=\"sub\">{}</p>",
        escape(&first.what())
    );
    for run in runs.iter().filter(|run| run.interrupted) {
        let _ = writeln!(
            page,
            "<p class=\"note\">{} was interrupted; this is what was measured until then.</p>",
            escape(&run.target)
        );
    }
    summary(runs, &mut page);
    page.push_str("<h2>Throughput over time</h2>\n");
    page.push_str(&throughput(runs));
    page.push_str("\n<h2>Latency over time</h2>\n");
    page.push_str(&latency_over_time(runs));
    page.push_str("\n<h2>Latency by percentile</h2>\n");
    page.push_str(&curve(runs));
    page.push_str(match first.settings.rate {
        None => "\n<p class=\"sub\">Closed loop. Corrected for coordinated omission, with the mean latency as the interval at which each client asks.</p>\n",
        Some(_) => "\n<p class=\"sub\">Open loop. Each operation counts from the moment at which it was due.</p>\n",
    });
    page.push_str("<h2>Latency by operation</h2>\n");
    latencies(runs, &mut page);
    if !compared.is_empty() {
        comparison(compared, &mut page);
    }
    settings(first, &mut page);
    page.push_str("</body></html>\n");
    page
}

fn table(header: &[&str], rows: impl IntoIterator<Item = Vec<String>>, page: &mut String) {
    let cells = |tag: &str, cells: &mut dyn Iterator<Item = String>| {
        cells
            .map(|cell| format!("<{tag}>{}</{tag}>", escape(&cell)))
            .collect::<String>()
    };
    // Writing to a string cannot fail.
    let _ = write!(
        page,
        "<table><tr>{}</tr>",
        cells("th", &mut header.iter().map(ToString::to_string))
    );
    for row in rows {
        let _ = write!(page, "<tr>{}</tr>", cells("td", &mut row.into_iter()));
    }
    page.push_str("</table>\n");
}

fn summary(runs: &[RunResult], page: &mut String) {
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
    table(
        &["target", "operations/s", "p50", "p99", "p99.9", "errors"],
        rows,
        page,
    );
}

fn seconds_marks(runs: &[RunResult]) -> Vec<(f64, String)> {
    let last = runs
        .iter()
        .flat_map(|run| &run.series)
        .map(|point| point.seconds)
        .fold(0.0, f64::max);
    (0..=5)
        .map(|index| f64::from(index) / 5.0 * last)
        .map(|at| (at, format!("{at:.1}")))
        .collect()
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
    let x_marks = seconds_marks(runs);
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
                .map(|point| (point.seconds, of(point) as f64))
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
    let x_marks = seconds_marks(runs);
    let show_y = |y: f64| show_ns(y as u64);
    Plot {
        x_name: "seconds",
        y_name: "latency",
        scale: Scale::Logarithmic,
        lines: &lines,
        x_marks,
        show_y,
    }
    .draw()
}

fn curve(runs: &[RunResult]) -> String {
    // Nines: 0 at the median's left, 1 at 90 %, 2 at 99 %.
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
    let show_y = |y: f64| show_ns(y as u64);
    Plot {
        x_name: "share of operations that took at most this long",
        y_name: "latency",
        scale: Scale::Logarithmic,
        lines: &lines,
        x_marks,
        show_y,
    }
    .draw()
}

fn latencies(runs: &[RunResult], page: &mut String) {
    let rows = runs.iter().flat_map(|run| {
        let of = [
            ("read", &run.read),
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
    table(
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
        page,
    );
}

fn row(name: &str, p: &Percentiles) -> Vec<String> {
    let times = [p.min_ns, p.p50_ns, p.p90_ns, p.p99_ns, p.p999_ns, p.max_ns].map(show_ns);
    [vec![name.to_owned(), show_count(p.count)], times.to_vec()].concat()
}

fn comparison(compared: &[Compared], page: &mut String) {
    page.push_str("<h2>Compared with the earlier result</h2>\n");
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
    table(&["figure", "then", "now", "now/then"], rows, page);
}

fn settings(run: &RunResult, page: &mut String) {
    page.push_str("<h2>Settings and machine</h2>\n");
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
            vec![name.replace('_', " "), text]
        });
    table(&["", ""], rows, page);
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::cmd::bench::tests::result;

    /// Whether every element is closed in the order in which it was opened, every attribute is quoted, and no bare
    /// character stands where it would mean something: what an XML parser would ask for.
    fn assert_well_formed(page: &str) {
        let mut open: Vec<&str> = Vec::new();
        let body = page.strip_prefix("<!DOCTYPE html>\n").expect("a doctype");
        let mut rest = body;
        while let Some(at) = rest.find('<') {
            let text = &rest[..at];
            assert!(
                !text.contains('>') || open.last() == Some(&"style"),
                "{text}"
            );
            for after in text.split('&').skip(1) {
                assert!(
                    ["amp;", "lt;", "gt;", "quot;"]
                        .iter()
                        .any(|entity| after.starts_with(entity)),
                    "{after}"
                );
            }
            let end = at + rest[at..].find('>').expect("a tag's end");
            let tag = &rest[at + 1..end];
            rest = &rest[end + 1..];
            match tag.strip_prefix('/') {
                Some(name) => assert_eq!(open.pop(), Some(name)),
                None => {
                    assert_eq!(tag.matches('"').count() % 2, 0, "{tag}");
                    let name = tag.split([' ', '/']).next().unwrap_or_default();
                    assert!(
                        !name.is_empty() && name.bytes().all(|c| c.is_ascii_alphanumeric()),
                        "{tag}"
                    );
                    if !tag.ends_with('/') {
                        open.push(name);
                    }
                }
            }
        }
        assert!(open.is_empty(), "{open:?} stay open");
    }

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
        assert_eq!(page.matches("<svg").count(), 3);
        assert!(page.contains("Compared with") && page.contains("was interrupted"));
        // Nothing measured is a page as well.
        let mut empty = result("trine://");
        empty.series.clear();
        empty.curve.clear();
        assert_well_formed(&report(&[empty], &[]));
    }
}
