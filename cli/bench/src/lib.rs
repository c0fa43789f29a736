//! `trine bench` measures throughput and latency of a group, of a cache, or of other stores, under the same operations in a
//! closed or an open loop. `trine cache bench` runs the workloads of the papers.

// They panic where the stream cannot be written: results go through `output`, everything else through `announce`.
#![cfg_attr(not(test), deny(clippy::print_stdout, clippy::print_stderr))]

mod args;
mod cache;
mod clean;
mod compare;
mod host;
mod html;
mod operation;
mod probe;
mod record;
mod result;
pub mod stores;
mod workload;
mod zipf;

use std::cell::{Cell, RefCell};
use std::net::SocketAddr;
use std::path::Path;

use serde_json::json;
use trine_kvstore::config::VALUE_BYTES_MAX;
use trine_server::tls::TlsCaller;
use trine_transport::backend::{Backend, MonotonicClock};
use trine_transport::prng::Prng;
use trine_transport::time::{Clock, Duration, Instant};

pub use self::args::BenchArguments;
pub use self::cache::{CacheBenchArguments, run_cache};
use self::host::HostInfo;
use self::operation::KeyOperation;
use self::record::Recorder;
use self::result::{RunResult, RunSettings};
pub use self::stores::Url;
use self::stores::{Cache, IN_FLIGHT_MAX, Memcached, OperationOutcome, Redis, StoreTarget, Trine};
use self::workload::{Generator, Mix, OperationKind};
pub use self::zipf::Distribution;
use trine_base::announce::note;

use trine_base::capture::{self, CaptureFile};
use trine_base::client_endpoint::ClientEndpoint;
use trine_base::failure::Failure;
use trine_base::load::{LoadEnd, Pace, Work, drive};
use trine_base::network::{Network, Opened};
use trine_base::output::Output;
use trine_base::progress::Progress;
use trine_base::units::{plural, show_bytes, show_count};
use trine_base::{interrupt, peers, result_file};

/// Operations in flight while keys are written before the measurement, all clients together.
const FILL_UNDER_WAY: usize = 64;
/// YCSB's records have ten fields of a hundred bytes; here they are one value.
const YCSB_VALUE_BYTES: u64 = 1000;
const VALUE_BYTES: u64 = 100;

/// Runs a benchmark and prints the result.
pub fn run<N: Network>(
    network: &N,
    arguments: &BenchArguments,
    output: Output,
) -> Result<(), Failure> {
    interrupt::start()?;
    let plan = BenchPlan::new(arguments)?;
    plan.check_targets()?;
    let earlier = match &arguments.compare {
        None => None,
        Some(path) => Some(compare::read(path)?),
    };
    // The run reports a file that cannot be written at its start instead of at its end.
    if let Some(path) = &arguments.html {
        result_file::check("report", path)?;
    }
    let targets = match arguments.targets.is_empty() {
        true => vec![Url::Trine(None)],
        false => arguments.targets.clone(),
    };
    if !host::IS_OPTIMIZED {
        output.line(
            "This program was not built for speed: `cargo build --release` makes one that is.",
        );
    }
    let measured = measure_all(network, &plan, &targets, output);
    let done = measured.and_then(|(runs, failed)| {
        finish(arguments, &runs, earlier.as_deref(), output)?;
        failed.map_or(Ok(()), Err)
    });
    if plan.has_left_keys.get() {
        output.line("The keys bench-0000000000 and so on stay in the store; --clean deletes them.");
    }
    done
}

/// Measures all targets in all rounds, and returns the middle one of each, and the failure that ended the last round early.
/// However that ends, the keys are removed then, or it is said that they stay.
fn measure_all<N: Network>(
    network: &N,
    plan: &BenchPlan<'_>,
    targets: &[Url],
    output: Output,
) -> Result<(Vec<RunResult>, Option<Failure>), Failure> {
    let mut of_targets: Vec<OfTarget<'_>> = targets.iter().map(OfTarget::new).collect();
    let ended = measure_rounds(network, plan, &mut of_targets, output);
    let runs: Vec<RunResult> = of_targets
        .iter_mut()
        .filter_map(|of| middle(std::mem::take(&mut of.rounds)))
        .collect();
    let written = of_targets.iter().filter(|of| of.is_written);
    let left = plan.clean_up(network, written.map(|of| of.url), output);
    if let (Err(_), Err(left)) = (&ended, &left) {
        note(format_args!("{}", left.in_one_line()));
    }
    match ended.and(left) {
        Err(failure) if runs.is_empty() => Err(failure),
        // The results of earlier targets count all the same, and it is said elsewhere that it was interrupted.
        Err(failure) if failure.is_interrupted() && interrupt::interrupted() => Ok((runs, None)),
        ended => Ok((runs, ended.err())),
    }
}

/// What became of a target.
struct OfTarget<'a> {
    url: &'a Url,
    rounds: Vec<RunResult>,
    /// It may have keys of the benchmark.
    is_written: bool,
}

impl<'a> OfTarget<'a> {
    fn new(url: &'a Url) -> Self {
        Self {
            url,
            rounds: Vec::new(),
            is_written: false,
        }
    }
}

/// The targets alternate by round, so that changes on the machine affect all of them alike.
fn measure_rounds<N: Network>(
    network: &N,
    plan: &BenchPlan<'_>,
    of_targets: &mut [OfTarget<'_>],
    output: Output,
) -> Result<(), Failure> {
    for _ in 0..plan.arguments.rounds {
        for of in &mut *of_targets {
            let purpose = TargetPurpose::Measure {
                first: of.rounds.is_empty(),
            };
            let measured = plan.serve(network, of.url, purpose, output);
            of.is_written |= plan.has_written.take();
            let result = measured?.expect("it was measured");
            let stop = result.interrupted || result.broke.is_some();
            of.rounds.push(result);
            if stop {
                return Ok(());
            }
        }
    }
    Ok(())
}

/// The result of the middle round by throughput.
fn middle(mut rounds: Vec<RunResult>) -> Option<RunResult> {
    let rates: Vec<f64> = rounds.iter().map(|run| run.operations_per_second).collect();
    rounds.sort_by(|a, b| a.operations_per_second.total_cmp(&b.operations_per_second));
    let count = rounds.len();
    let mut middle = rounds.into_iter().nth(count.saturating_sub(1) / 2)?;
    middle.rounds = rates;
    Some(middle)
}

/// Prints the results and compares them.
fn finish(
    arguments: &BenchArguments,
    runs: &[RunResult],
    earlier: Option<&[RunResult]>,
    output: Output,
) -> Result<(), Failure> {
    let obstacles = earlier
        .map(|then| compare::obstacles(then, runs))
        .unwrap_or_default();
    let comparable = obstacles.is_empty() || arguments.compare_anyway;
    let compared = match earlier {
        Some(then) if comparable => compare::compare(then, runs),
        _ => Vec::new(),
    };
    document(runs, &compared, output);
    for (index, run) in runs.iter().enumerate() {
        if index > 0 {
            output.line("");
        }
        run.print(output);
    }
    if runs.len() > 1 {
        side_by_side(runs, output);
    }
    if !compared.is_empty() {
        compare::print(&compared, output);
    }
    if let Some(path) = &arguments.html {
        write_report(path, &html::report(runs, &compared), output)?;
    }
    interrupt::check()?;
    if !obstacles.is_empty() {
        let message = format!(
            "these results and those in the file are not comparable: {}",
            obstacles.join("; ")
        );
        if !arguments.compare_anyway {
            let hint = "measure both with the same settings on the same machine, or compare all the same with --compare-anyway";
            return Err(Failure::negative(message, hint));
        }
        note(format_args!("warning: {message}"));
    }
    runs.iter().try_for_each(RunResult::judge)
}

fn document(runs: &[RunResult], compared: &[compare::Compared], output: Output) {
    let mut document = match runs {
        [run] => run.document(),
        runs => json!({ "runs": runs.iter().map(RunResult::document).collect::<Vec<_>>() }),
    };
    if !compared.is_empty() {
        document["comparison"] = json!(compared);
    }
    output.document(&document);
}

fn write_report(path: &Path, page: &str, output: Output) -> Result<(), Failure> {
    result_file::write("report", path, page)?;
    output.line(format_args!("report: {}", path.display()));
    Ok(())
}

/// Each further target's throughput and median, relative to the first one's.
fn side_by_side(runs: &[RunResult], output: Output) {
    output.line("");
    let first = &runs[0];
    for run in &runs[1..] {
        output.line(format_args!(
            "{} against {}: {:.2} of the operations/s, {:.2} of the median latency, {:.2} of p99",
            run.target,
            first.target,
            run.operations_per_second / first.operations_per_second,
            run.all_corrected.p50_ns as f64 / first.all_corrected.p50_ns.max(1) as f64,
            run.all_corrected.p99_ns as f64 / first.all_corrected.p99_ns.max(1) as f64,
        ));
    }
}

/// The checked plan of a measurement.
struct BenchPlan<'a> {
    arguments: &'a BenchArguments,
    mix: Mix,
    pace: Pace,
    value_bytes: u64,
    settings: RunSettings,
    host: HostInfo,
    /// The capture until the first round takes it.
    capture: RefCell<Option<CaptureFile>>,
    /// How many keys the rounds have used.
    keys_used: Cell<u64>,
    /// The current round may have written keys.
    has_written: Cell<bool>,
    /// Keys stay in a target.
    has_left_keys: Cell<bool>,
    /// How many operations of the rounds were given up without an answer.
    unanswered: Cell<u64>,
    /// What encrypted targets are known by.
    caller: Option<TlsCaller>,
}

/// What encrypted targets are known by.
fn caller(arguments: &BenchArguments) -> Result<Option<TlsCaller>, Failure> {
    let encrypted = arguments.targets.iter().find(|url| url.is_encrypted());
    match (&arguments.target_ca, encrypted) {
        (Some(ca), _) => TlsCaller::open(ca, None).map(Some),
        (None, Some(url)) => Err(Failure::usage(
            format!(
                "{} speaks TLS, and nothing says by which certificate it is known",
                url.text()
            ),
            "name the CA that has signed its certificate: --target-ca FILE",
        )),
        (None, None) => Ok(None),
    }
}

/// Why a target is opened.
#[derive(Clone, Copy)]
enum TargetPurpose {
    /// For a round; `first`: the keys have not been written yet.
    Measure { first: bool },
    /// To remove the keys.
    Clean,
}

impl<'a> BenchPlan<'a> {
    fn new(arguments: &'a BenchArguments) -> Result<Self, Failure> {
        let mut mix = match arguments.workload {
            Some(workload) => workload.mix(),
            None => Mix {
                read: arguments.read_ratio,
                reading: OperationKind::Read,
                other: OperationKind::Update,
                distribution: Distribution::Uniform,
            },
        };
        mix.distribution = arguments.distribution.unwrap_or(mix.distribution);
        let default = match arguments.workload {
            Some(_) => YCSB_VALUE_BYTES,
            None => VALUE_BYTES,
        };
        let value_bytes = arguments.value_size.unwrap_or(default);
        if value_bytes > VALUE_BYTES_MAX.into() {
            let limit = show_bytes(VALUE_BYTES_MAX.into());
            let message = "--value-size is larger than a value can be";
            return Err(Failure::usage(message, format!("at most {limit}")));
        }
        let pace = match arguments.rate {
            Some(rate) => Pace::Open { rate },
            None => Pace::Closed {
                pipeline: arguments.pipeline as usize,
            },
        };
        let settings = RunSettings {
            mode: if arguments.rate.is_some() {
                "open"
            } else {
                "closed"
            }
            .to_owned(),
            clients: arguments.clients,
            pipeline: arguments.pipeline,
            rate: arguments.rate,
            value_bytes,
            keys: arguments.keys,
            workload: arguments
                .workload
                .map(|workload| workload.name().to_owned()),
            read_ratio: mix.read.to_string(),
            distribution: mix.distribution.name().to_owned(),
            for_ns: ns(arguments.duration),
            warmup_ns: ns(arguments.warmup),
            seed: arguments.seed,
        };
        Ok(Self {
            arguments,
            mix,
            pace,
            value_bytes,
            settings,
            host: HostInfo::detect(),
            capture: RefCell::new(arguments.client.capture.open()?),
            keys_used: Cell::new(arguments.keys),
            has_written: Cell::new(false),
            has_left_keys: Cell::new(false),
            unanswered: Cell::new(0),
            caller: caller(arguments)?,
        })
    }

    /// Redis has no order of keys that a scan could follow.
    fn check_targets(&self) -> Result<(), Failure> {
        let has_no_order = |target: &&Url| matches!(target, Url::Redis(_));
        let without = self.arguments.targets.iter().find(has_no_order);
        match (self.mix.reading, without) {
            (OperationKind::Scan, Some(target)) => Err(Failure::usage(
                format!(
                    "workload E scans keys in their order, and {} keeps none",
                    target.text()
                ),
                "leave it out: trine:// with an ordered index has one",
            )),
            _ => Ok(()),
        }
    }

    /// Opens a target, and measures it once or removes the keys.
    fn serve<N: Network>(
        &self,
        network: &N,
        url: &Url,
        purpose: TargetPurpose,
        output: Output,
    ) -> Result<Option<RunResult>, Failure> {
        let clients = self.arguments.clients as usize;
        let limit = self.arguments.client.group.timeout.into();
        let target = match url {
            // The one of --peers, by its addresses.
            Url::Trine(None) => format!("trine://{}", self.arguments.client.group.peers),
            named => named.text(),
        };
        let named = (target, url.store().to_owned());
        match url {
            Url::Trine(list) => {
                let list = list
                    .as_deref()
                    .unwrap_or(&self.arguments.client.group.peers);
                let addresses = peers::resolve(list)?;
                let opened = network.call(&addresses)?;
                match self.capture()? {
                    None => self.serve_trine(opened, &addresses, named, purpose, output),
                    Some(capture) => {
                        let opened = capture::around_opened(network, opened, capture);
                        self.serve_trine(opened, &addresses, named, purpose, output)
                    }
                }
            }
            Url::Redis(server) => self.serve_on(
                &mut Redis::connect(server, self.caller.as_ref(), clients, limit)?,
                named,
                purpose,
                output,
            ),
            Url::Memcached(server) => self.serve_on(
                &mut Memcached::connect(server, clients, limit)?,
                named,
                purpose,
                output,
            ),
            Url::Cache(server) => {
                let mut cache = Cache::connect(network, server, clients, self.value_bytes, limit)?;
                self.serve_on(&mut cache, named, purpose, output)
            }
        }
    }

    /// The capture's next section, because each round has its own endpoint.
    fn capture(&self) -> Result<Option<CaptureFile>, Failure> {
        match self.capture.take() {
            Some(first) => Ok(Some(first)),
            None => self.arguments.client.capture.go_on(),
        }
    }

    fn serve_trine<B: Backend>(
        &self,
        opened: Opened<B>,
        addresses: &[SocketAddr],
        named: (String, String),
        purpose: TargetPurpose,
        output: Output,
    ) -> Result<Option<RunResult>, Failure> {
        let endpoint =
            ClientEndpoint::over(opened, addresses, self.arguments.client.group.timeout)?;
        let clients = self.arguments.clients as usize;
        self.serve_on(&mut Trine::new(endpoint, clients), named, purpose, output)
    }

    fn serve_on(
        &self,
        target: &mut impl StoreTarget,
        named: (String, String),
        purpose: TargetPurpose,
        output: Output,
    ) -> Result<Option<RunResult>, Failure> {
        match purpose {
            TargetPurpose::Measure { first } => {
                self.measure(target, named, first, output).map(Some)
            }
            TargetPurpose::Clean => self.clean(target, &named.0).map(|()| None),
        }
    }

    fn measure(
        &self,
        target: &mut impl StoreTarget,
        named: (String, String),
        first: bool,
        output: Output,
    ) -> Result<RunResult, Failure> {
        if first && self.mix.reading == OperationKind::Scan {
            probe::scan(target)?;
        }
        if first && !self.mix.read.is_zero() {
            self.fill(target, &named.0, output)?;
        }
        let generator = Generator::new(self.arguments.seed, self.mix, self.arguments.keys);
        let mut traffic = Traffic::new(generator, &self.value(), self.duration_ns());
        if !self.arguments.warmup.is_zero() {
            let start = traffic.watch("warming up", ns(self.arguments.warmup));
            let until = start + Duration::from(self.arguments.warmup);
            let span = (start, Some(until));
            let ended = self.load(target, span, &mut traffic)?;
            traffic.check_warm_up(ended)?;
        }
        let begun = traffic.begin(&format!("measuring {}", named.0), self.duration_ns());
        let until = begun + Duration::from(self.arguments.duration);
        let span = (begun, Some(until));
        let (ended, broke) = match self.load(target, span, &mut traffic) {
            // What was measured by then is kept.
            Err(failure) if traffic.recorder.operations() > 0 => {
                (LoadEnd::default(), Some(failure))
            }
            ended => (ended?, None),
        };
        let took = MonotonicClock.now().saturating_since(begun);
        drop(traffic.progress);
        let (settings, host) = (self.settings.clone(), self.host.clone());
        let mut result = RunResult::new(named, settings, host, took, ended, &mut traffic.recorder);
        result.sealed = target.is_sealed();
        result.broke = broke;
        Ok(result)
    }

    /// Loads the target, and notes what may be left of that.
    fn load(
        &self,
        target: &mut impl StoreTarget,
        span: (Instant, Option<Instant>),
        traffic: &mut Traffic,
    ) -> Result<LoadEnd, Failure> {
        let clients = self.arguments.clients as usize;
        let ended = drive(target, clients, self.pace, span, traffic);
        let used = self.keys_used.get().max(traffic.generator.keys_used());
        self.keys_used.set(used);
        self.note_written(
            &ended,
            traffic.recorder.operations(),
            traffic.recorder.first_failure.as_ref(),
        );
        ended
    }

    /// Notes that keys may have been written, unless each operation is known to have done nothing.
    fn note_written(&self, ended: &Result<LoadEnd, Failure>, done: u64, failure: Option<&Failure>) {
        let unanswered = ended.as_ref().map_or(0, |ended| ended.unanswered);
        self.unanswered.set(self.unanswered.get() + unanswered);
        let may_be_done = failure.is_some_and(Failure::may_be_done);
        if done > 0 || unanswered > 0 || may_be_done || ended.is_err() {
            self.has_written.set(true);
        }
    }

    /// Writes every key once, so that reads find something.
    fn fill(
        &self,
        target: &mut impl StoreTarget,
        name: &str,
        output: Output,
    ) -> Result<(), Failure> {
        let keys = self.arguments.keys;
        output.line(format_args!(
            "writing {} to read from ...",
            plural(keys, "key")
        ));
        let clients = self.arguments.clients as usize;
        let pipeline = FILL_UNDER_WAY.div_ceil(clients).min(IN_FLIGHT_MAX);
        let mut filling = Filling {
            next: 0,
            keys,
            done: 0,
            value: self.value(),
            failure: None,
            progress: Progress::new(format!("writing keys to {name}"), keys),
        };
        let ended = drive(
            target,
            clients,
            Pace::Closed { pipeline },
            (MonotonicClock.now(), None),
            &mut filling,
        );
        self.note_written(&ended, filling.done, filling.failure.as_ref());
        let LoadEnd { interrupted, .. } = ended?;
        match filling.failure {
            Some(failure) => Err(failure.while_doing("the keys could not be written")),
            None if interrupted => {
                let done = show_count(filling.done);
                let keys = plural(keys, "key");
                Err(Failure::interrupted_after(
                    format_args!("{done} of {keys} were written, nothing was measured"),
                    "",
                ))
            }
            None => Ok(()),
        }
    }

    fn value(&self) -> Vec<u8> {
        let size = usize::try_from(self.value_bytes).expect("checked against the limit");
        let mut value = vec![0; size];
        Prng::new(self.arguments.seed).fill(&mut value);
        value
    }

    fn duration_ns(&self) -> u64 {
        ns(self.arguments.duration)
    }
}

fn ns(duration: std::time::Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// The work that writes every key once.
struct Filling {
    next: u64,
    keys: u64,
    done: u64,
    value: Vec<u8>,
    /// The failure that makes further work pointless.
    failure: Option<Failure>,
    progress: Progress,
}

impl<T: StoreTarget> Work<T> for Filling {
    type Operation = KeyOperation;

    fn next(&mut self, _: usize) -> Option<KeyOperation> {
        let key = self.next;
        let more = key < self.keys && self.failure.is_none();
        more.then(|| {
            self.next += 1;
            KeyOperation::new(OperationKind::Insert, key)
        })
    }

    fn send(
        &mut self,
        target: &mut T,
        client: usize,
        tag: u64,
        operation: &KeyOperation,
    ) -> Result<(), Failure> {
        operation.send(target, client, tag, &self.value)
    }

    fn over(
        &mut self,
        _operation: KeyOperation,
        _due: Instant,
        _ended: Instant,
        outcome: OperationOutcome,
    ) -> Option<KeyOperation> {
        match outcome {
            OperationOutcome::Failed(why) => {
                self.failure.get_or_insert(why);
            }
            _ => self.done += 1,
        }
        None
    }

    fn on_poll(&mut self, _now: Instant) {
        self.progress
            .set(self.done, || format!("{} keys", show_count(self.done)));
    }
}

/// The operations, drawn from the seed, and their results.
struct Traffic {
    generator: Generator,
    value: Vec<u8>,
    recorder: Recorder,
    begun: Instant,
    progress: Option<Progress>,
}

impl Traffic {
    fn new(generator: Generator, value: &[u8], duration_ns: u64) -> Self {
        let begun = MonotonicClock.now();
        Self {
            generator,
            value: value.to_vec(),
            recorder: Recorder::new(begun, duration_ns),
            begun,
            progress: None,
        }
    }

    /// Whether a measurement can follow the warm-up.
    fn check_warm_up(&mut self, ended: LoadEnd) -> Result<(), Failure> {
        let done = "nothing was measured, it was still warming up";
        let failure = match self.recorder.first_failure.take() {
            _ if ended.interrupted => Failure::interrupted_after(done, ""),
            Some(failure) if ended.unanswered > 0 => failure.while_doing(done),
            _ => return Ok(()),
        };
        self.progress = None;
        Err(failure)
    }

    fn watch(&mut self, what: &str, duration_ns: u64) -> Instant {
        self.progress = Some(Progress::new(what, duration_ns));
        self.begun = MonotonicClock.now();
        self.begun
    }

    /// Starts the measurement. Earlier operations do not count.
    fn begin(&mut self, what: &str, duration_ns: u64) -> Instant {
        self.watch(what, duration_ns);
        self.recorder = Recorder::new(self.begun, duration_ns);
        self.begun
    }
}

impl<T: StoreTarget> Work<T> for Traffic {
    type Operation = KeyOperation;

    fn next(&mut self, _: usize) -> Option<KeyOperation> {
        Some(match self.generator.draw() {
            (OperationKind::Scan, key) => KeyOperation::scan(key, self.generator.draw_items()),
            (kind, key) => KeyOperation::new(kind, key),
        })
    }

    fn send(
        &mut self,
        target: &mut T,
        client: usize,
        tag: u64,
        operation: &KeyOperation,
    ) -> Result<(), Failure> {
        operation.send(target, client, tag, &self.value)
    }

    fn over(
        &mut self,
        operation: KeyOperation,
        due: Instant,
        ended: Instant,
        outcome: OperationOutcome,
    ) -> Option<KeyOperation> {
        let further = operation.further(&outcome);
        if further.is_none() {
            if operation.kind == OperationKind::Insert {
                self.generator.inserted(operation.key);
            }
            self.recorder.record(operation.kind, due, ended, &outcome);
        }
        further
    }

    fn on_poll(&mut self, now: Instant) {
        let passed = now.saturating_since(self.begun).as_nanos();
        let operations = self.recorder.operations();
        if let Some(progress) = &mut self.progress {
            progress.set(passed, || {
                let rate = operations as f64 / (passed.max(1) as f64 / 1e9);
                format!("{} operations/s", show_count(rate as u64))
            });
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A small result of a target.
    pub(super) fn result(target: &str) -> RunResult {
        let begun = Instant::ZERO + Duration::from_millis(1);
        let mut recorder = Recorder::new(begun, 1_000_000_000);
        for n in 0..2_000 {
            let due = begun + Duration::from_micros(n * 100);
            let kind = if n % 2 == 0 {
                OperationKind::Read
            } else {
                OperationKind::Update
            };
            recorder.record(
                kind,
                due,
                due + Duration::from_micros(50 + n % 70),
                &OperationOutcome::Done,
            );
        }
        let settings = RunSettings {
            mode: "closed".into(),
            clients: 4,
            pipeline: 1,
            rate: None,
            value_bytes: 100,
            keys: 1_000,
            workload: Some("A".into()),
            read_ratio: "50%".into(),
            distribution: "uniform".into(),
            for_ns: 4_000_000_000,
            warmup_ns: 1,
            seed: 1,
        };
        let ended = LoadEnd {
            interrupted: false,
            never_sent: 0,
            unanswered: 0,
        };
        let named = (target.to_owned(), "trine".to_owned());
        let mut result = RunResult::new(
            named,
            settings,
            HostInfo::detect(),
            Duration::from_millis(200),
            ended,
            &mut recorder,
        );
        result.begun = "2026-01-02T03:04:05Z".to_owned();
        result
    }

    #[test]
    fn a_result_is_read_as_it_was_written() {
        let written = result("trine://");
        let read: RunResult = serde_json::from_value(written.document()).expect("reads");
        assert_eq!(read.document(), written.document());
        assert_eq!(read.operations, 2_000);
        assert!(read.series.len() >= 3, "{:?}", read.series);
    }

    #[test]
    fn results_are_compared_only_when_they_are_comparable() {
        let then = [result("trine://a:1")];
        let mut now = [result("trine://b:1")];
        assert_eq!(compare::obstacles(&then, &now), Vec::<String>::new());
        now[0].operations_per_second *= 2.0;
        let compared = compare::compare(&then, &now);
        assert_eq!(
            (compared[0].figure, compared[0].ratio),
            ("operations/s", 2.0)
        );
        assert!(
            compared[1..].iter().all(|compared| compared.ratio == 1.0),
            "{compared:?}"
        );
        now[0].settings.clients = 5;
        now[0].host.kernel = "another".into();
        let why = compare::obstacles(&then, &now).join("; ");
        assert!(
            why.contains("clients: 4 then, 5 now") && why.contains("kernel: "),
            "{why}"
        );
        assert!(!compare::obstacles(&[], &now).is_empty());
        // Figures with and without a seal are of different things, if both files say what they are of.
        let of = |sealed| {
            [RunResult {
                sealed,
                ..result("trine://")
            }]
        };
        assert!(compare::obstacles(&of(None), &of(Some(true))).is_empty());
        let why = compare::obstacles(&of(Some(false)), &of(Some(true))).join("; ");
        assert_eq!(why, "sealed: false then, true now");
        assert!(of(Some(true))[0].what().ends_with("50% reads, sealed"));
        assert!(of(None)[0].what().ends_with("50% reads"));
    }

    #[test]
    fn the_middle_round_counts() {
        let at = |rate: f64| RunResult {
            operations_per_second: rate,
            ..result("x")
        };
        let middle = middle(vec![at(3.0), at(1.0), at(2.0)]).expect("one");
        assert_eq!(
            (middle.operations_per_second, middle.rounds.as_slice()),
            (2.0, &[3.0, 1.0, 2.0][..])
        );
    }
}
