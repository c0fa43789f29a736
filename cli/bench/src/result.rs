//! The result of one target: as text, and as the JSON that `--compare` reads again.

use std::time::{Duration as StdDuration, SystemTime};

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use trine_transport::time::Duration;

use super::host::HostInfo;
use super::record::{Point, Recorder};
use super::workload::OperationKind;
use trine_base::failure::Failure;
use trine_base::latency::{Latencies, Percentiles, latency_table};
use trine_base::load::LoadEnd;
use trine_base::output::Output;
use trine_base::units::{plural, show_bytes, show_count, show_date, show_ns};

/// Quantiles of the curve in the report.
const CURVE: [f64; 16] = [
    0.0, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.98, 0.99, 0.995, 0.998, 0.999, 0.9995, 0.9999, 0.99999,
    1.0,
];

/// The requested settings; figures of different settings are not comparable.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct RunSettings {
    pub(super) mode: String,
    pub(super) clients: u32,
    pub(super) pipeline: u32,
    pub(super) rate: Option<u64>,
    pub(super) value_bytes: u64,
    pub(super) keys: u64,
    /// A YCSB workload, or `None`.
    pub(super) workload: Option<String>,
    pub(super) read_ratio: String,
    pub(super) distribution: String,
    pub(super) for_ns: u64,
    pub(super) warmup_ns: u64,
    pub(super) seed: u64,
}

/// The result of one target.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct RunResult {
    pub(super) target: String,
    pub(super) store: String,
    /// When, as a date with its time; absent in files of former releases.
    #[serde(default)]
    pub(super) begun: String,
    pub(super) settings: RunSettings,
    pub(super) host: HostInfo,
    /// Whether a key sealed the sessions with a group. Nothing for other stores, and in files of former releases.
    #[serde(default)]
    pub(super) sealed: Option<bool>,
    pub(super) seconds: f64,
    pub(super) interrupted: bool,
    pub(super) operations: u64,
    pub(super) operations_per_second: f64,
    pub(super) errors: u64,
    pub(super) first_error: Option<String>,
    /// The same error as a failure of the command, for a run in which nothing worked.
    #[serde(skip)]
    pub(super) first_failure: Option<Failure>,
    /// Why the measurement ended early.
    #[serde(skip)]
    pub(super) broke: Option<Failure>,
    pub(super) misses: u64,
    pub(super) never_sent: u64,
    /// Operations that were waited for no longer after the end. They are in no percentile.
    #[serde(default)]
    pub(super) unanswered: u64,
    pub(super) read: Percentiles,
    /// Absent in files of releases that had no workload E.
    #[serde(default)]
    pub(super) scan: Percentiles,
    /// Updates and inserts together.
    pub(super) write: Percentiles,
    pub(super) read_modify_write: Percentiles,
    pub(super) all: Percentiles,
    pub(super) all_corrected: Percentiles,
    /// (quantile, nanoseconds) of all operations, corrected.
    pub(super) curve: Vec<(f64, u64)>,
    pub(super) series: Vec<Point>,
    /// Operations a second of each round, where there were several. The other figures are those of the middle round.
    pub(super) rounds: Vec<f64>,
}

impl RunResult {
    pub(super) fn new(
        (target, store): (String, String),
        settings: RunSettings,
        host: HostInfo,
        took: Duration,
        ended: LoadEnd,
        recorder: &mut Recorder,
    ) -> Self {
        let seconds = took.as_nanos().max(1) as f64 / 1e9;
        let all = recorder.together(&[
            OperationKind::Read,
            OperationKind::Scan,
            OperationKind::Update,
            OperationKind::Insert,
            OperationKind::ReadModifyWrite,
        ]);
        let corrected = corrected(&all, settings.rate.is_some());
        let operations = recorder.operations();
        Self {
            target,
            store,
            begun: show_date(SystemTime::now() - StdDuration::from_nanos(took.as_nanos())),
            settings,
            host,
            sealed: None,
            seconds,
            interrupted: ended.interrupted,
            operations,
            operations_per_second: operations as f64 / seconds,
            errors: recorder.errors,
            first_error: recorder
                .first_failure
                .as_ref()
                .map(|failure| failure.message().to_owned()),
            first_failure: recorder.first_failure.clone(),
            broke: None,
            misses: recorder.misses,
            never_sent: ended.never_sent,
            unanswered: ended.unanswered,
            read: recorder.of(OperationKind::Read).percentiles(),
            scan: recorder.of(OperationKind::Scan).percentiles(),
            write: recorder
                .together(&[OperationKind::Update, OperationKind::Insert])
                .percentiles(),
            read_modify_write: recorder.of(OperationKind::ReadModifyWrite).percentiles(),
            all: all.percentiles(),
            all_corrected: corrected.percentiles(),
            curve: CURVE
                .map(|quantile| (quantile, corrected.at(quantile)))
                .to_vec(),
            series: recorder.points().to_vec(),
            rounds: Vec::new(),
        }
    }

    /// The figures together with the settings, in the established form for programs.
    pub(super) fn document(&self) -> Value {
        let mut document = serde_json::to_value(self).expect("plain data");
        let settings = &self.settings;
        let beside = json!({
            "mode": settings.mode, "clients": settings.clients, "rate": settings.rate,
            "value_bytes": settings.value_bytes, "keys": settings.keys, "read_ratio": settings.read_ratio,
        });
        if let (Value::Object(document), Value::Object(beside)) = (&mut document, beside) {
            document.extend(beside);
        }
        document
    }

    pub(super) fn print(&self, output: Output) {
        let settings = &self.settings;
        let mode = match settings.rate {
            None => {
                let pipeline = match settings.pipeline {
                    1 => String::new(),
                    count => format!(", {count} in flight each"),
                };
                format!(
                    "closed loop, {}{pipeline}",
                    plural(settings.clients.into(), "client")
                )
            }
            Some(rate) => format!("open loop, {} operations/s due", show_count(rate)),
        };
        output.line(format_args!(
            "{}, {}: {mode}, {}",
            self.target,
            self.begun,
            self.what()
        ));
        output.line(format_args!(
            "{} operations in {}: {} operations/s, {} errors{}",
            show_count(self.operations),
            show_ns((self.seconds * 1e9) as u64),
            show_count(self.operations_per_second as u64),
            show_count(self.errors),
            if self.interrupted {
                ", interrupted"
            } else {
                ""
            },
        ));
        if let Some(error) = &self.first_error {
            output.line(format_args!("the first error: {error}"));
        }
        if self.never_sent > 0 {
            let count = plural(self.never_sent, "operation");
            output.line(format_args!(
                "{count} fell due and could not be sent: the target is slower than --rate"
            ));
        }
        if self.unanswered > 0 {
            let count = plural(self.unanswered, "operation");
            output.line(format_args!(
                "{count} had no reply by the end, and are excluded from percentiles"
            ));
        }
        if self.rounds.len() > 1 {
            let rounds: Vec<String> = self
                .rounds
                .iter()
                .map(|rate| show_count(*rate as u64))
                .collect();
            output.line(format_args!(
                "the middle one of {} rounds: {} operations/s",
                rounds.len(),
                rounds.join(", ")
            ));
        }
        self.print_latencies(output);
    }

    fn print_latencies(&self, output: Output) {
        let rows = [
            ("read", self.read.clone()),
            ("scan", self.scan.clone()),
            ("write", self.write.clone()),
            ("read, modify, write", self.read_modify_write.clone()),
            ("all", self.all.clone()),
            ("all, corrected", self.all_corrected.clone()),
        ];
        output.line("");
        output.line(latency_table(rows));
        output.line(match self.settings.rate {
            None => "corrected: for coordinated omission, with the mean latency as the interval at which each client asks",
            Some(_) => "each operation counts from the moment at which it was due: nothing is omitted",
        });
    }

    /// Values, keys, operations and whether they were sealed, in words.
    pub(super) fn what(&self) -> String {
        let settings = &self.settings;
        let workload = match &settings.workload {
            Some(name) => format!("YCSB {name}, "),
            None => String::new(),
        };
        let sealed = match self.sealed {
            Some(true) => ", sealed",
            Some(false) => ", not sealed",
            None => "",
        };
        let reads = match settings.workload.as_deref() {
            Some("E") => "scans",
            _ => "reads",
        };
        format!(
            "{workload}{} values, {} keys ({}), {} {reads}{sealed}",
            show_bytes(settings.value_bytes),
            show_count(settings.keys),
            settings.distribution,
            settings.read_ratio,
        )
    }

    /// Fails for a run with operations that failed.
    pub(super) fn judge(&self) -> Result<(), Failure> {
        if let Some(failure) = &self.broke {
            let what = format!("{}: the measurement ended early", self.target);
            return Err(failure.clone().while_doing(&what));
        }
        match &self.first_failure {
            Some(failure) if self.operations == 0 => {
                let what = format!("{}: no operation succeeded", self.target);
                Err(failure.clone().while_doing(&what))
            }
            Some(failure) if self.unanswered > 0 && !self.interrupted => {
                let count = plural(self.unanswered, "operation");
                let what = format!("{}: {count} had no answer", self.target);
                Err(failure.clone().while_doing(&what))
            }
            // The others were done, so it is no matter of reaching the target: a check that failed.
            Some(failure) if self.errors > 0 => {
                let (failed, all) = (self.errors, self.operations + self.errors);
                let what = format!(
                    "{}: {} of {} failed",
                    self.target,
                    show_count(failed),
                    plural(all, "operation")
                );
                Err(failure.clone().while_doing(&what).into_negative())
            }
            _ => Ok(()),
        }
    }
}

/// The latencies without coordinated omission. In an open loop they count from the due time, so nothing is left to
/// correct.
fn corrected(all: &Latencies, open: bool) -> Latencies {
    match open || all.count() == 0 {
        true => all.clone(),
        false => all.corrected(all.mean()),
    }
}
