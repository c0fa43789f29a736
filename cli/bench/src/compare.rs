//! Compares with an earlier result: each figure's ratio, and the reasons against a comparison.

use std::path::Path;

use serde::Serialize;
use serde_json::Value;

use super::result::RunResult;
use trine_base::failure::Failure;
use trine_base::output::{Output, Table};
use trine_base::units::{show_count, show_ns};

/// An earlier figure and the present one.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Compared {
    pub(super) target: String,
    pub(super) figure: &'static str,
    pub(super) then: f64,
    pub(super) now: f64,
    pub(super) ratio: f64,
    /// Whether a larger figure is the better one.
    pub(super) more_is_better: bool,
}

/// Reads the results that `--json` printed.
pub(super) fn read(path: &Path) -> Result<Vec<RunResult>, Failure> {
    let cannot = |why: String| {
        Failure::usage(
            format!("cannot read the results in {}: {why}", path.display()),
            "give --compare a file that `trine bench --json` has printed",
        )
    };
    let text = std::fs::read_to_string(path).map_err(|error| cannot(error.to_string()))?;
    let document: Value = serde_json::from_str(&text).map_err(|error| cannot(error.to_string()))?;
    let runs = match document.get("runs").and_then(Value::as_array) {
        Some(runs) => runs.clone(),
        None => vec![document],
    };
    runs.into_iter()
        .map(|run| serde_json::from_value(run).map_err(|error| cannot(error.to_string())))
        .collect()
}

/// Pairs each result with the earlier one of the same target. A single result matches a single one whatever the
/// targets.
fn pairs<'a>(then: &'a [RunResult], now: &'a [RunResult]) -> Vec<(&'a RunResult, &'a RunResult)> {
    if let ([then], [now]) = (then, now) {
        return vec![(then, now)];
    }
    // A group may be at other addresses then. Of several of a kind nobody knows which one is meant.
    let only = |of: &RunResult, runs: &'a [RunResult]| {
        let mut alike = runs.iter().filter(|run| run.store == of.store);
        alike.next().filter(|_| alike.next().is_none())
    };
    let find = |run: &RunResult| {
        let same = then.iter().find(|then| then.target == run.target);
        same.or_else(|| only(run, now).and(only(run, then)))
    };
    now.iter()
        .filter_map(|now| find(now).map(|then| (then, now)))
        .collect()
}

/// Why the results are not comparable; empty if they are.
pub(super) fn obstacles(then: &[RunResult], now: &[RunResult]) -> Vec<String> {
    let pairs = pairs(then, now);
    if pairs.is_empty() {
        return vec!["no target was measured then and now".to_owned()];
    }
    let mut found: Vec<String> = pairs
        .iter()
        .flat_map(|(then, now)| {
            let mut found = now.host.differences(&then.host);
            found.extend(setting_differences(then, now));
            found
        })
        .collect();
    found.dedup();
    found
}

fn setting_differences(then: &RunResult, now: &RunResult) -> Vec<String> {
    // A file of a former release does not say it.
    let sealed = match (then.sealed, now.sealed) {
        (Some(then), Some(now)) if then != now => Some(format!("sealed: {then} then, {now} now")),
        _ => None,
    };
    let value = |run: &RunResult| serde_json::to_value(&run.settings).expect("plain data");
    let (then, now) = (value(then), value(now));
    let names = now.as_object().into_iter().flat_map(|now| now.keys());
    sealed
        .into_iter()
        .chain(
            names
                .filter(|name| then[name.as_str()] != now[name.as_str()])
                .map(|name| {
                    format!(
                        "{name}: {} then, {} now",
                        then[name.as_str()],
                        now[name.as_str()]
                    )
                }),
        )
        .collect()
}

/// Every figure of every pair.
pub(super) fn compare(then: &[RunResult], now: &[RunResult]) -> Vec<Compared> {
    pairs(then, now)
        .into_iter()
        .flat_map(|(then, now)| figures(then, now))
        .collect()
}

fn figures(then: &RunResult, now: &RunResult) -> Vec<Compared> {
    type Figure = (&'static str, bool, fn(&RunResult) -> f64);
    let figures: [Figure; 8] = [
        ("operations/s", true, |run| run.operations_per_second),
        ("read p50", false, |run| run.read.p50_ns as f64),
        ("read p99", false, |run| run.read.p99_ns as f64),
        ("write p50", false, |run| run.write.p50_ns as f64),
        ("write p99", false, |run| run.write.p99_ns as f64),
        ("all, corrected p50", false, |run| {
            run.all_corrected.p50_ns as f64
        }),
        ("all, corrected p99", false, |run| {
            run.all_corrected.p99_ns as f64
        }),
        ("all, corrected p99.9", false, |run| {
            run.all_corrected.p999_ns as f64
        }),
    ];
    let compared = figures.into_iter().map(|(figure, more_is_better, of)| {
        let (before, after) = (of(then), of(now));
        Compared {
            target: now.target.clone(),
            figure,
            then: before,
            now: after,
            ratio: after / before,
            more_is_better,
        }
    });
    // A kind of operation that neither run executed has no ratio.
    compared
        .filter(|compared| compared.then > 0.0 && compared.now > 0.0)
        .collect()
}

pub(super) fn print(compared: &[Compared], output: Output) {
    let mut table = Table::new(["figure", "then", "now", "now/then", ""]);
    for Compared {
        figure,
        then,
        now,
        ratio,
        more_is_better,
        ..
    } in compared
    {
        let show = |value: f64| match more_is_better {
            true => show_count(value as u64),
            false => show_ns(value as u64),
        };
        let verdict = match (*ratio > 1.0) == *more_is_better {
            true => "better",
            false => "worse",
        };
        table.row([
            (*figure).to_owned(),
            show(*then),
            show(*now),
            format!("{ratio:.2}"),
            verdict.to_owned(),
        ]);
    }
    output.line("");
    output.line(table);
}
