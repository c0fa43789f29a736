//! `trine bench`: throughput and latency of a running group, in a closed or an open loop.

use std::time::Duration;

use serde_json::{Value, json};
use trine_kvstore::config::VALUE_BYTES_MAX;
use trine_kvstore::{Command, Response};
use trine_replica::client::{ClientId, Finished, Mode};
use trine_transport::backend::Backend;
use trine_transport::prng::Prng;
use trine_transport::time::{Duration as Nanos, Instant};

use crate::args::BenchArguments;
use crate::failure::Failure;
use crate::lane::Lane;
use crate::latency::{Latencies, latency_table};
use crate::load::{Ended, Lateness, Work, closed_loop, open_loop};
use crate::network::Network;
use crate::output::Output;
use crate::units::{plural, show_bytes, show_count, show_ns};
use crate::{interrupt, peers};

/// Operations that are written before the measurement begins have this many under way.
const FILL_CLIENTS: usize = 64;

pub(crate) fn run<N: Network>(
    network: &N,
    arguments: &BenchArguments,
    output: Output,
) -> Result<(), Failure> {
    interrupt::start()?;
    if arguments.value_size > VALUE_BYTES_MAX.into() {
        let limit = show_bytes(VALUE_BYTES_MAX.into());
        return Err(Failure::usage(
            "--value-size is larger than a value can be",
            format!("at most {limit}"),
        ));
    }
    let addresses = peers::resolve(&arguments.client.peers)?;
    let mut lane = Lane::over(
        network.call(&addresses)?,
        &addresses,
        arguments.client.timeout,
    )?;
    let mut traffic = Traffic::new(arguments);
    if !fill(&mut lane, &mut traffic, output)? {
        return Err(Failure::interrupted());
    }
    let clients: Vec<ClientId> = (0..arguments.clients).map(|_| lane.open()).collect();
    if !arguments.warmup.is_zero() {
        measure(
            &mut lane,
            &clients,
            arguments,
            arguments.warmup,
            &mut traffic,
        )?;
        traffic.forget();
    }
    let begun = lane.now();
    let (ended, lateness) = measure(
        &mut lane,
        &clients,
        arguments,
        arguments.duration,
        &mut traffic,
    )?;
    let took = lane.now().saturating_since(begun);
    let result = BenchResult {
        took,
        lateness,
        interrupted: ended == Ended::Interrupted,
        arguments,
        traffic,
    };
    result.print(output);
    interrupt::check()?;
    result.judge()
}

/// Writes every key once, so that reads find something. False when the user ended it.
fn fill<B: Backend>(
    lane: &mut Lane<B>,
    traffic: &mut Traffic,
    output: Output,
) -> Result<bool, Failure> {
    if traffic.reads_percent_is_zero() {
        return Ok(true);
    }
    output.line(format_args!(
        "writing {} to read from ...",
        plural(traffic.keys, "key")
    ));
    let clients: Vec<ClientId> = (0..FILL_CLIENTS).map(|_| lane.open()).collect();
    traffic.fill_next = Some(0);
    let ended = closed_loop(lane, &clients, |_| true, traffic)?;
    traffic.fill_next = None;
    clients.into_iter().for_each(|client| lane.close(client));
    if let Some(failure) = traffic.failure.take() {
        return Err(failure);
    }
    traffic.forget();
    Ok(ended == Ended::Done)
}

/// One stretch of load.
fn measure<B: Backend>(
    lane: &mut Lane<B>,
    clients: &[ClientId],
    arguments: &BenchArguments,
    duration: Duration,
    traffic: &mut Traffic,
) -> Result<(Ended, Lateness), Failure> {
    let start = lane.now();
    let until = start + Nanos::from(duration);
    match arguments.rate {
        None => closed_loop(lane, clients, |now| now < until, traffic)
            .map(|ended| (ended, Lateness::default())),
        Some(rate) => {
            let interval = Nanos::from_nanos((1_000_000_000 / rate).max(1));
            open_loop(lane, clients, (start, until), interval, traffic)
        }
    }
}

/// The operations, drawn from the seed, and what became of them.
struct Traffic {
    prng: Prng,
    keys: u64,
    read_ratio: trine_transport::prng::Ratio,
    value: Vec<u8>,
    /// Some while every key is written once: the next one.
    fill_next: Option<u64>,
    reads: Latencies,
    writes: Latencies,
    misses: u64,
    errors: u64,
    first_error: Option<String>,
    /// An error that makes going on senseless.
    failure: Option<Failure>,
}

impl Traffic {
    fn new(arguments: &BenchArguments) -> Self {
        let mut prng = Prng::new(arguments.seed);
        let size = usize::try_from(arguments.value_size).expect("checked against the limit");
        let mut value = vec![0; size];
        prng.fill(&mut value);
        Self {
            prng,
            keys: arguments.keys,
            read_ratio: arguments.read_ratio,
            value,
            fill_next: None,
            reads: Latencies::new(),
            writes: Latencies::new(),
            misses: 0,
            errors: 0,
            first_error: None,
            failure: None,
        }
    }

    fn reads_percent_is_zero(&self) -> bool {
        self.read_ratio.is_zero()
    }

    /// What was before the measurement does not count.
    fn forget(&mut self) {
        self.reads = Latencies::new();
        self.writes = Latencies::new();
        self.misses = 0;
        self.errors = 0;
        self.first_error = None;
    }

    fn operations(&self) -> u64 {
        self.reads.count() + self.writes.count()
    }

    /// The next key, and whether it is to be read; nothing when filling is over.
    fn draw(&mut self) -> Option<(u64, bool)> {
        match &mut self.fill_next {
            Some(next) if *next >= self.keys || self.failure.is_some() => None,
            Some(next) => {
                *next += 1;
                Some((*next - 1, false))
            }
            None => Some((
                self.prng.below(self.keys),
                self.prng.chance(self.read_ratio),
            )),
        }
    }
}

impl Work for Traffic {
    fn next(&mut self, _slot: usize, submit: &mut dyn FnMut(Mode, &Command<'_>)) {
        let Some((number, read)) = self.draw() else {
            return;
        };
        let mut key = *b"bench-0000000000";
        write_decimal(&mut key[6..], number);
        match read {
            true => submit(Mode::Read, &Command::Get { key: &key }),
            false => submit(
                Mode::Write,
                &Command::Put {
                    key: &key,
                    value: &self.value,
                },
            ),
        }
    }

    fn ended(&mut self, _slot: usize, due: Instant, finished: Finished) {
        let latency = finished.ended.saturating_since(due).as_nanos();
        let error = match finished.result.as_ref().map(|answer| answer.response()) {
            Ok(Ok(Response::Written { .. })) => return self.writes.record_ns(latency),
            Ok(Ok(Response::Value { .. })) => return self.reads.record_ns(latency),
            Ok(Ok(Response::NotFound)) => {
                self.misses += 1;
                return self.reads.record_ns(latency);
            }
            Ok(Ok(Response::Error(error))) => error.to_string(),
            Ok(other) => format!("an answer that does not fit: {other:?}"),
            Err(error) => error.to_string(),
        };
        self.errors += 1;
        if self.fill_next.is_some() && self.failure.is_none() {
            self.failure = Some(Failure::not_reachable(
                format!("the keys could not be written: {error}"),
                "`trine status` shows the group; `trine up` starts one",
            ));
        }
        self.first_error.get_or_insert(error);
    }
}

/// Ten decimal digits.
fn write_decimal(digits: &mut [u8], mut number: u64) {
    for digit in digits.iter_mut().rev() {
        *digit = b'0' + u8::try_from(number % 10).expect("a digit");
        number /= 10;
    }
}

struct BenchResult<'a> {
    took: Nanos,
    lateness: Lateness,
    interrupted: bool,
    arguments: &'a BenchArguments,
    traffic: Traffic,
}

impl BenchResult<'_> {
    fn rate(&self) -> f64 {
        self.traffic.operations() as f64 / (self.took.as_nanos().max(1) as f64 / 1e9)
    }

    /// Reads and writes together, and what they would have been without coordinated omission: in
    /// an open loop latencies count from the due time, so nothing is left to correct.
    fn all_and_corrected(&self) -> (Latencies, Latencies) {
        let mut all = self.traffic.reads.clone();
        all.add(&self.traffic.writes);
        let corrected = match self.arguments.rate {
            Some(_) => all.clone(),
            None if all.count() == 0 => all.clone(),
            None => all.corrected(all.mean()),
        };
        (all, corrected)
    }

    fn print(&self, output: Output) {
        output.document(&self.document());
        let arguments = self.arguments;
        let mode = match arguments.rate {
            None => format!(
                "closed loop, {}",
                plural(arguments.clients.into(), "client")
            ),
            Some(rate) => format!("open loop, {} operations/s due", show_count(rate)),
        };
        output.line(format_args!(
            "{mode}, {} values, {} keys, {} reads{}",
            show_bytes(arguments.value_size),
            show_count(arguments.keys),
            arguments.read_ratio,
            if self.interrupted {
                ", interrupted"
            } else {
                ""
            },
        ));
        output.line(format_args!(
            "{} operations in {}: {} operations/s, {} errors",
            show_count(self.traffic.operations()),
            show_ns(self.took.as_nanos()),
            show_count(self.rate() as u64),
            show_count(self.traffic.errors),
        ));
        if self.lateness.never_sent > 0 {
            let count = plural(self.lateness.never_sent, "operation");
            output.line(format_args!(
                "{count} fell due and could not be sent: the group is slower than --rate"
            ));
        }
        let (all, corrected) = self.all_and_corrected();
        let rows = [
            ("read", self.traffic.reads.percentiles()),
            ("write", self.traffic.writes.percentiles()),
            ("all", all.percentiles()),
            ("all, corrected", corrected.percentiles()),
        ];
        output.line("");
        output.line(latency_table(rows));
        output.line(match arguments.rate {
            None => "corrected: for coordinated omission, with the mean latency as the interval at which each client asks",
            Some(_) => "each operation counts from the moment at which it was due: nothing is omitted",
        });
    }

    fn document(&self) -> Value {
        let (all, corrected) = self.all_and_corrected();
        json!({
            "mode": if self.arguments.rate.is_some() { "open" } else { "closed" },
            "clients": self.arguments.clients,
            "rate": self.arguments.rate,
            "value_bytes": self.arguments.value_size,
            "keys": self.arguments.keys,
            "read_ratio": self.arguments.read_ratio.to_string(),
            "seconds": self.took.as_nanos() as f64 / 1e9,
            "interrupted": self.interrupted,
            "operations": self.traffic.operations(),
            "operations_per_second": self.rate(),
            "errors": self.traffic.errors,
            "first_error": self.traffic.first_error,
            "misses": self.traffic.misses,
            "never_sent": self.lateness.never_sent,
            "read": self.traffic.reads.percentiles(),
            "write": self.traffic.writes.percentiles(),
            "all": all.percentiles(),
            "all_corrected": corrected.percentiles(),
        })
    }

    /// A run in which nothing worked is no result.
    fn judge(&self) -> Result<(), Failure> {
        match &self.traffic.first_error {
            Some(error) if self.traffic.operations() == 0 => Err(Failure::not_reachable(
                format!("no operation succeeded: {error}"),
                "",
            )),
            _ => Ok(()),
        }
    }
}
