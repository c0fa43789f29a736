//! A chaos run as one self-contained HTML page. It shows the events at clients and replicas, and on a violation the
//! operations that prove it.

use trine_chaos::checker::{Verdict, Violation};
use trine_chaos::fault::{Fault, Look};
use trine_chaos::history::{History, Operation, Outcome};
use trine_transport::time::Instant;

use super::minimal::minimal;
use super::report::LiveReport;
use super::timeline::{Done, Timeline};
use trine_base::html::bars::{Bar, Bars, Row};
use trine_base::html::page::{Page, table};
use trine_base::html::svg::{Line, Plot, Scale, escape, seconds_marks};
use trine_base::units::{show_count, show_ns};

/// Points of a plot over time.
const BUCKETS: usize = 300;
/// The most clients that get a row.
const CLIENTS_SHOWN: u64 = 32;
/// The most operations in one client's row: the longest, and those without an answer.
const BARS_MAX: usize = 400;
/// An operation shorter than this share of the run gets no bar.
const BAR_LEAST: f64 = 1.0 / 1_000.0;
/// Colours for: usual, wrong, leading, lossy, cut off, paused.
const USUAL: usize = 0;
const WRONG: usize = 5;
const LEADS: usize = 2;
const LOSSY: usize = 7;
const CUT: usize = 1;
const STILL: usize = 3;

/// The whole page.
pub(super) fn page(report: &LiveReport<'_>) -> String {
    let verdict = if report.passed() { "PASS" } else { "FAIL" };
    let title = format!("trine chaos: {verdict}, seed {}", report.arguments.seed);
    let mut page = Page::new(&title, &report.seed_line());
    let verdicts = &report.verdicts;
    for violation in [&verdicts.linearizability.verdict, &verdicts.exactly_once]
        .into_iter()
        .filter_map(|verdict| match verdict {
            Verdict::Violation(violation) => Some(violation),
            _ => None,
        })
    {
        page.heading("What is wrong");
        page.push(&violated(report.history, violation));
    }
    if let Some(why) = &report.aborted {
        page.heading("Why the run was broken off");
        page.push(&format!("<pre>{}</pre>\n", escape(why.message())));
    }
    summary(report, &mut page);
    let (history, timeline) = (report.history, report.timeline);
    let span = Span::of(history, timeline);
    page.heading("Replicas, faults, and who led");
    page.push(&replicas(report.addresses, timeline, &span));
    page.push(&legend());
    page.heading("Clients: operations that took long, and those without an answer");
    page.push(&clients(history, timeline, &span));
    page.heading("Operations answered over time");
    page.push(&throughput(history, &span));
    page.heading("The slowest operation over time");
    page.push(&slowest(history, &span));
    faults(history, timeline, &mut page);
    page.finish()
}

/// The run from the start of the clients' work to the last observation, in nanoseconds of the run's clock.
struct Span {
    from: u64,
    to: u64,
}

impl Span {
    fn of(history: &History, timeline: &Timeline) -> Self {
        let operations = history.operations().iter();
        let last = operations.map(|operation| operation.return_ns.unwrap_or(operation.call_ns));
        let faults = timeline.faults.iter().map(|done| done.whole.as_nanos());
        let from = timeline.begun.as_nanos();
        let to = last.chain(faults).max().unwrap_or(from).max(from + 1);
        Self { from, to }
    }

    /// Seconds from the beginning.
    fn at(&self, ns: u64) -> f64 {
        ns.saturating_sub(self.from) as f64 / 1e9
    }

    fn seconds(&self) -> (f64, f64) {
        (0.0, self.at(self.to))
    }

    fn bucket(&self, ns: u64) -> usize {
        let share = ns.saturating_sub(self.from) as f64 / (self.to - self.from) as f64;
        ((share * BUCKETS as f64) as usize).min(BUCKETS - 1)
    }

    fn bucket_seconds(&self) -> f64 {
        self.seconds().1 / BUCKETS as f64
    }
}

fn show_seconds(seconds: f64) -> String {
    format!("{seconds:.1} s")
}

fn summary(report: &LiveReport<'_>, page: &mut Page) {
    let tally = report.history.tally();
    let verdicts = &report.verdicts;
    let first_line = |verdict: &Verdict| {
        let text = verdict.to_string();
        text.lines().next().unwrap_or_default().to_owned()
    };
    let fired = report
        .counts
        .iter()
        .map(|(name, count)| format!("{name} {}", show_count(*count)));
    let row = |name: &str, value: String| vec![name.to_owned(), value];
    page.heading("Summary");
    let mut rows = vec![
        row("operations called", show_count(tally.called)),
        row("completed", show_count(tally.completed)),
        row("of unknown outcome", show_count(tally.unknown)),
        row("failed without effect", show_count(tally.failed)),
        row("writes acknowledged", show_count(tally.acknowledged_writes)),
        row("faults that fired", fired.collect::<Vec<_>>().join(", ")),
        row(
            "linearizable",
            first_line(&verdicts.linearizability.verdict),
        ),
        row("exactly once", first_line(&verdicts.exactly_once)),
        row("coverage", first_line(&verdicts.coverage)),
    ];
    if let Some(upgraded) = &report.upgrade {
        rows.push(row("upgrade", first_line(&upgraded.verdict)));
        rows.extend(upgraded.lines().into_iter().map(|line| row("", line)));
    }
    page.push(&table(&["", ""], rows));
}

/// Draws the leaders and the faults of each replica.
fn replicas(addresses: usize, timeline: &Timeline, span: &Span) -> String {
    let mut rows: Vec<Row> = (1..=addresses)
        .map(|node_id| Row {
            name: format!("replica {node_id}"),
            bars: Vec::new(),
        })
        .collect();
    for (number, led) in timeline.leads.iter().enumerate() {
        let until = timeline
            .leads
            .get(number + 1)
            .map_or(span.to, |next| next.at.as_nanos());
        if let Some(row) = rows.get_mut(led.node_id - 1) {
            row.bars.push(Bar {
                from: span.at(led.at.as_nanos()),
                to: Some(span.at(until)),
                colour: LEADS,
                title: format!("replica {} leads in term {}", led.node_id, led.term),
                words: String::new(),
            });
        }
    }
    for done in &timeline.faults {
        for &node_id in &done.node_ids {
            if let Some(row) = rows.get_mut(node_id - 1) {
                row.bars.push(fault_bar(done, span));
            }
        }
    }
    let marks = fault_marks(timeline, span);
    Bars {
        about: "replicas over time",
        rows: &rows,
        marks: &marks,
        span: span.seconds(),
        show_x: show_seconds,
    }
    .draw()
}

/// What the colours of the replicas' bars stand for.
fn legend() -> String {
    let mut spans = vec![legend_span(LEADS, "leads")];
    for look in [Look::Down, Look::Paused, Look::CutOff, Look::Lossy] {
        let shown = Fault::LIVE
            .into_iter()
            .filter(|&fault| look_of(fault) == look);
        let names: Vec<&str> = shown.map(Fault::name).collect();
        spans.push(legend_span(colour_of(look), &names.join(", ")));
    }
    format!("<p class=\"legend\">{}</p>\n", spans.join(" "))
}

fn legend_span(colour: usize, words: &str) -> String {
    format!("<span><i class=\"b{colour}\"></i>{words}</span>")
}

fn look_of(fault: Fault) -> Look {
    fault.live().map_or(Look::Down, |live| live.look)
}

fn colour_of(look: Look) -> usize {
    match look {
        Look::Down => WRONG,
        Look::Paused => STILL,
        Look::CutOff => CUT,
        Look::Lossy => LOSSY,
    }
}

fn fault_bar(done: &Done, span: &Span) -> Bar {
    Bar {
        from: span.at(done.begun.as_nanos()),
        to: Some(span.at(done.ended.as_nanos())),
        colour: colour_of(look_of(done.planned.kind)),
        title: done.what.clone(),
        words: String::new(),
    }
}

fn fault_marks(timeline: &Timeline, span: &Span) -> Vec<(f64, String)> {
    let faults = timeline.faults.iter();
    faults
        .map(|done| (span.at(done.begun.as_nanos()), done.what.clone()))
        .collect()
}

/// Draws a row for each client, with the operations that are long enough.
fn clients(history: &History, timeline: &Timeline, span: &Span) -> String {
    let mut rows: Vec<Row> = Vec::new();
    let least = (span.to - span.from) as f64 * BAR_LEAST;
    let visible = |operation: &&Operation| match operation.return_ns {
        Some(ended) => {
            (ended - operation.call_ns) as f64 >= least || operation.outcome == Outcome::Failed
        }
        None => true,
    };
    let shown = history
        .operations()
        .iter()
        .filter(|operation| operation.client < CLIENTS_SHOWN);
    for operation in shown.filter(visible) {
        let client = operation.client as usize;
        while rows.len() <= client {
            let name = format!("client {}", rows.len());
            let bars = Vec::new();
            rows.push(Row { name, bars });
        }
        rows[client]
            .bars
            .push(operation_bar(operation, span.from, String::new()));
    }
    for row in &mut rows {
        let length = |bar: &Bar| bar.to.map_or(f64::INFINITY, |to| to - bar.from);
        row.bars.sort_by(|a, b| length(b).total_cmp(&length(a)));
        row.bars.truncate(BARS_MAX);
    }
    let marks = fault_marks(timeline, span);
    Bars {
        about: "clients over time",
        rows: &rows,
        marks: &marks,
        span: span.seconds(),
        show_x: show_seconds,
    }
    .draw()
}

fn operation_bar(operation: &Operation, from: u64, words: String) -> Bar {
    let at = |ns: u64| ns.saturating_sub(from) as f64 / 1e9;
    Bar {
        from: at(operation.call_ns),
        to: operation.return_ns.map(at),
        colour: match operation.outcome {
            Outcome::Known(_) => USUAL,
            Outcome::Unknown | Outcome::Failed => WRONG,
        },
        title: operation.to_string(),
        words,
    }
}

fn plot(
    y_name: &str,
    scale: Scale,
    points: Vec<(f64, f64)>,
    show_y: fn(f64) -> String,
    span: &Span,
) -> String {
    let lines = [Line {
        name: y_name.to_owned(),
        points,
        colour: USUAL,
        dashed: false,
    }];
    let x_marks = seconds_marks(span.seconds().1);
    Plot {
        x_name: "seconds",
        y_name,
        scale,
        lines: &lines,
        x_marks,
        show_y,
    }
    .draw()
}

fn answered(history: &History) -> impl Iterator<Item = (u64, u64)> + '_ {
    let known = history
        .operations()
        .iter()
        .filter(|operation| operation.answer().is_some());
    known.filter_map(|operation| Some((operation.call_ns, operation.return_ns?)))
}

fn throughput(history: &History, span: &Span) -> String {
    let mut counts = vec![0_u64; BUCKETS];
    for (_, ended) in answered(history) {
        counts[span.bucket(ended)] += 1;
    }
    let width = span.bucket_seconds();
    let points = counts.iter().enumerate();
    let points = points.map(|(bucket, count)| (bucket as f64 * width, *count as f64 / width));
    plot(
        "operations/s",
        Scale::Linear,
        points.collect(),
        |y| show_count(y as u64),
        span,
    )
}

fn slowest(history: &History, span: &Span) -> String {
    let mut most = vec![None::<u64>; BUCKETS];
    for (called, ended) in answered(history) {
        let bucket = &mut most[span.bucket(called)];
        *bucket = (*bucket).max(Some(ended - called));
    }
    let width = span.bucket_seconds();
    let points = most.iter().enumerate();
    let points = points.filter_map(|(bucket, ns)| Some((bucket as f64 * width, (*ns)? as f64)));
    plot(
        "latency",
        Scale::Logarithmic,
        points.collect(),
        |y| show_ns(y as u64),
        span,
    )
}

fn faults(history: &History, timeline: &Timeline, page: &mut Page) {
    page.heading("Faults");
    let since = |from: Instant, to: Instant| show_ns(to.saturating_since(from).as_nanos());
    let rows = timeline.faults.iter().map(|done| {
        let write = Timeline::first_write(history, done.begun);
        vec![
            done.what.clone(),
            since(timeline.begun, done.begun),
            write.map_or("-".to_owned(), |took| show_ns(took.as_nanos())),
            since(done.begun, done.whole),
        ]
    });
    page.push(&table(
        &["what", "at", "first new write", "whole again"],
        rows,
    ));
}

/// The operations that show a violation, a row each, in the order of their calls.
fn violated(history: &History, violation: &Violation) -> String {
    let explanation = format!("<p class=\"note\">{}</p>\n", escape(&violation.explanation));
    let operations = minimal(history, violation);
    let Some(first) = operations.first() else {
        return explanation;
    };
    let from = first.call_ns;
    let ends = operations
        .iter()
        .map(|operation| operation.return_ns.unwrap_or(operation.call_ns));
    let to = ends.max().unwrap_or(from).max(from + 1);
    // Space behind the last end separates operations without an end from the others.
    let length = (to - from) as f64 / 1e9 * 1.08;
    let row = |operation: &Operation| {
        // The drawing already shows client and times.
        let text = operation.to_string();
        let words = text
            .split_once("] ")
            .map_or(text.as_str(), |(_, words)| words);
        Row {
            name: format!("client {}", operation.client),
            bars: vec![operation_bar(operation, from, words.to_owned())],
        }
    };
    let rows: Vec<Row> = operations.iter().map(row).collect();
    let drawn = Bars {
        about: "the operations that show the violation",
        rows: &rows,
        marks: &[],
        span: (0.0, length),
        show_x: |seconds| show_ns((seconds * 1e9) as u64),
    }
    .draw();
    format!(
        "{explanation}{drawn}\n<p class=\"sub\">Each bar lasts from call to answer; one that fades has none.</p>\n"
    )
}

#[cfg(test)]
mod tests;
