//! The common report of all benchmarks of the project: a table and a JSON file.
//!
//! `target/bench/<crate>.json` holds the measurements as a list of `{name, value, unit, against, ratio, goal, met}`.
//! The goals are in `cli/bench/goals.json`, by crate and name. Only `Goal::met` decides whether a goal is met.

pub mod pin;

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

/// The fewest alternating pairs behind a timed ratio.
pub const PAIRS_MIN: usize = 8;

/// The measurements of one crate.
pub struct Report {
    crate_name: &'static str,
    goals: Value,
    rows: Vec<ReportRow>,
}

/// A limit for the ratio of a measurement, or for its value if it has no comparison.
#[derive(Copy, Clone, Debug, PartialEq)]
pub enum Goal {
    /// Smaller is better.
    AtMost(f64),
    /// Larger is better.
    AtLeast(f64),
}

/// The result of alternating runs of two things.
#[derive(Clone, Debug)]
pub struct Pairs {
    /// The median of our runs.
    pub ours: f64,
    /// The median of the runs for comparison.
    pub theirs: f64,
    /// The median of the ratios of neighbouring runs.
    pub ratio: f64,
    /// The smallest and the largest of these ratios.
    pub range: (f64, f64),
}

struct ReportRow {
    name: String,
    value: f64,
    unit: &'static str,
    against: Option<String>,
    ratio: Option<f64>,
    range: Option<(f64, f64)>,
    goal: Option<Goal>,
}

impl Goal {
    /// The only place that decides whether a goal is met.
    pub fn met(self, measured: f64) -> bool {
        match self {
            Self::AtMost(limit) => measured <= limit,
            Self::AtLeast(limit) => measured >= limit,
        }
    }

    fn read(entry: &Value) -> Option<Self> {
        let at_most = entry
            .get("at_most")
            .and_then(Value::as_f64)
            .map(Self::AtMost);
        at_most.or_else(|| {
            entry
                .get("at_least")
                .and_then(Value::as_f64)
                .map(Self::AtLeast)
        })
    }

    fn to_json(self) -> Value {
        match self {
            Self::AtMost(limit) => json!({ "at_most": limit }),
            Self::AtLeast(limit) => json!({ "at_least": limit }),
        }
    }

    fn text(self) -> String {
        match self {
            Self::AtMost(limit) => format!("<= {}", number(limit)),
            Self::AtLeast(limit) => format!(">= {}", number(limit)),
        }
    }
}

impl Pairs {
    /// Runs `ours` and `theirs` alternately, after one unmeasured run of each, and compares neighbours. So a machine
    /// whose speed drifts spoils no ratio.
    pub fn run(
        pairs: usize,
        mut ours: impl FnMut() -> f64,
        mut theirs: impl FnMut() -> f64,
    ) -> Self {
        assert!(
            pairs >= PAIRS_MIN,
            "a ratio needs at least {PAIRS_MIN} alternating pairs"
        );
        ours();
        theirs();
        let runs: Vec<(f64, f64)> = (0..pairs).map(|_| (ours(), theirs())).collect();
        let ratios: Vec<f64> = runs.iter().map(|(ours, theirs)| ours / theirs).collect();
        Self {
            ours: median(runs.iter().map(|run| run.0)),
            theirs: median(runs.iter().map(|run| run.1)),
            ratio: median(ratios.iter().copied()),
            range: (
                ratios.iter().copied().fold(f64::INFINITY, f64::min),
                ratios.iter().copied().fold(f64::NEG_INFINITY, f64::max),
            ),
        }
    }
}

impl Report {
    /// An empty report of `crate_name`, whose goals are read from `cli/bench/goals.json`.
    pub fn new(crate_name: &'static str) -> Self {
        let path = workspace().join("cli/bench/goals.json");
        let text =
            fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let goals: Value = serde_json::from_str(&text).expect("goals.json is JSON");
        let goals = goals.get(crate_name).cloned().unwrap_or(Value::Null);
        Self {
            crate_name,
            goals,
            rows: Vec::new(),
        }
    }

    /// Adds a figure without a comparison; a goal applies to `value`.
    pub fn value(&mut self, name: &str, value: f64, unit: &'static str) {
        self.add(name, value, unit, None, None, None);
    }

    /// Adds a figure of ours and another one, timed in alternating pairs; a goal applies to the ratio.
    pub fn pairs(&mut self, name: &str, unit: &'static str, against: &str, pairs: &Pairs) {
        let against = format!("{against} ({} {unit})", number(pairs.theirs));
        self.add(
            name,
            pairs.ours,
            unit,
            Some(against),
            Some(pairs.ratio),
            Some(pairs.range),
        );
    }

    /// Adds a figure of ours and another one, where counting leaves no noise; a goal applies to the ratio.
    pub fn ratio(
        &mut self,
        name: &str,
        value: f64,
        unit: &'static str,
        against: &str,
        theirs: f64,
    ) {
        let against = format!("{against} ({} {unit})", number(theirs));
        self.add(name, value, unit, Some(against), Some(value / theirs), None);
    }

    /// Prints the table and writes `target/bench/<crate>.json`.
    pub fn finish(self) {
        self.print();
        let target = std::env::var_os("CARGO_TARGET_DIR")
            .map_or_else(|| workspace().join("target"), PathBuf::from);
        let directory = target.join("bench");
        let path = directory.join(format!("{}.json", self.crate_name));
        let rows: Vec<Value> = self.rows.iter().map(ReportRow::to_json).collect();
        let text = serde_json::to_string_pretty(&rows).expect("numbers and strings are JSON");
        fs::create_dir_all(&directory)
            .unwrap_or_else(|error| panic!("{}: {error}", directory.display()));
        fs::write(&path, text + "\n").unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        println!("written to {}", path.display());
    }

    fn add(
        &mut self,
        name: &str,
        value: f64,
        unit: &'static str,
        against: Option<String>,
        ratio: Option<f64>,
        range: Option<(f64, f64)>,
    ) {
        let goal = self.goals.get(name).and_then(Goal::read);
        let row = ReportRow {
            name: name.to_owned(),
            value,
            unit,
            against,
            ratio,
            range,
            goal,
        };
        eprintln!("{}", row.cells().join("  "));
        self.rows.push(row);
    }

    fn print(&self) {
        let head = ["name", "value", "against", "ratio", "range", "goal", "met"].map(str::to_owned);
        let table: Vec<[String; 7]> = std::iter::once(head)
            .chain(self.rows.iter().map(ReportRow::cells))
            .collect();
        let mut widths = [0; 7];
        for cells in &table {
            for (width, cell) in widths.iter_mut().zip(cells) {
                *width = (*width).max(cell.chars().count());
            }
        }
        println!();
        for cells in &table {
            let line: Vec<String> = cells
                .iter()
                .zip(widths)
                .map(|(cell, width)| format!("{cell:<width$}"))
                .collect();
            println!("{}", line.join("  ").trim_end());
        }
        println!();
    }
}

impl ReportRow {
    fn met(&self) -> Option<bool> {
        self.goal
            .map(|goal| goal.met(self.ratio.unwrap_or(self.value)))
    }

    fn to_json(&self) -> Value {
        json!({
            "name": self.name,
            "value": self.value,
            "unit": self.unit,
            "against": self.against,
            "ratio": self.ratio,
            "goal": self.goal.map(Goal::to_json),
            "met": self.met(),
        })
    }

    fn cells(&self) -> [String; 7] {
        [
            self.name.clone(),
            format!("{} {}", number(self.value), self.unit),
            self.against.clone().unwrap_or_default(),
            self.ratio.map(number).unwrap_or_default(),
            self.range
                .map(|(least, most)| format!("{}..{}", number(least), number(most)))
                .unwrap_or_default(),
            self.goal.map(Goal::text).unwrap_or_default(),
            self.met()
                .map(|met| if met { "yes" } else { "NO" }.to_owned())
                .unwrap_or_default(),
        ]
    }
}

/// The middle value, or the mean of the two middle ones.
pub fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    assert!(!values.is_empty(), "the median of nothing");
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    if values.len() % 2 == 1 {
        values[middle]
    } else {
        f64::midpoint(values[middle - 1], values[middle])
    }
}

/// Formats three significant digits, with a unit prefix for large numbers.
fn number(value: f64) -> String {
    let (scaled, suffix) = match value.abs() {
        magnitude if magnitude >= 1e9 => (value / 1e9, " G"),
        magnitude if magnitude >= 1e6 => (value / 1e6, " M"),
        magnitude if magnitude >= 1e4 => (value / 1e3, " k"),
        _ => (value, ""),
    };
    let digits = match scaled.abs() {
        magnitude if magnitude >= 100.0 => 0,
        magnitude if magnitude >= 10.0 => 1,
        _ => 2,
    };
    format!("{scaled:.digits$}{suffix}")
}

fn workspace() -> PathBuf {
    // This crate is `report`, a directory of the workspace.
    let mut above = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors();
    above.nth(1).expect("the workspace's directory").to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The benchmarks of every crate ended with "no such file" after this file had become a crate of its own.
    #[test]
    fn the_goals_are_where_a_report_reads_them() {
        drop(Report::new("transport"));
    }
}
