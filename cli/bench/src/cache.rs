//! `trine cache bench`: the workloads of the MICA and HERD papers. Keys have 16 bytes and values 32, so items have 48. 95 or
//! 50 % of the requests are GETs, and keys are chosen evenly or by Zipf's law with 0.99.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use serde_json::json;
use trine_transport::prng::Ratio;

use super::args::BenchArguments;
use super::result::RunResult;
use super::stores::Url;
use super::zipf::Distribution;
use super::{BenchPlan, measure_all};
use trine_base::arguments::{ClientArguments, GroupArguments};
use trine_base::capture::CaptureArguments;
use trine_base::config::CLIENTS_MAX;
use trine_base::failure::Failure;
use trine_base::interrupt;
use trine_base::network::Network;
use trine_base::output::{Output, Table};
use trine_base::units::{parse_duration, parse_positive_duration, plural, show_count, show_ns};

/// The papers' items.
const VALUE_BYTES: u64 = 32;
/// Percent of GETs.
const READS: [u32; 2] = [95, 50];
const DISTRIBUTIONS: [Distribution; 2] = [Distribution::Uniform, Distribution::Zipf];

/// The options of `trine cache bench`.
#[derive(Debug, Args)]
pub struct CacheBenchArguments {
    /// Address of the cache's first thread. It is measured if no --target is given.
    #[arg(long, env = "TRINE_CACHE", default_value = trine_apps::cache::ADDRESS, value_name = "HOST:PORT")]
    pub connect: String,
    /// Systems to measure: cache://HOST:PORT, memcached://HOST:PORT, redis://HOST:PORT or rediss://HOST:PORT, with
    /// USER:PASSWORD@ before the host if Redis requires it. Several targets are measured one after the other, with the
    /// same operations from the same generator.
    #[arg(long = "target", value_name = "URL", value_parser = parse_target)]
    pub targets: Vec<Url>,
    /// CA that signed the certificates of rediss:// targets: a PEM file.
    #[arg(long, value_name = "FILE")]
    pub target_ca: Option<PathBuf>,
    /// Number of measurements of each target; the median one is reported.
    #[arg(long, default_value_t = 3, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=101))]
    pub rounds: u32,
    /// Number of clients, each with its own connection or session.
    #[arg(long, default_value_t = 1, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=i64::from(CLIENTS_MAX)))]
    pub clients: u32,
    /// Requests that each client keeps in flight.
    #[arg(long, default_value_t = 16, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=64))]
    pub pipeline: u32,
    /// Number of keys, which the benchmark writes first.
    #[arg(long, default_value_t = 100_000, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=100_000_000))]
    pub keys: u64,
    /// How long each workload is measured in each round.
    #[arg(long = "for", default_value = "3s", value_name = "TIME", value_parser = parse_positive_duration)]
    pub duration: Duration,
    /// How long each workload runs before it is measured.
    #[arg(long, default_value = "500ms", value_name = "TIME", value_parser = parse_duration)]
    pub warmup: Duration,
    /// Give up connecting after this long.
    #[arg(long, default_value = "5s", value_name = "TIME", value_parser = parse_positive_duration)]
    pub timeout: Duration,
    /// Seed for the keys and the order of reads and writes.
    #[arg(long, default_value_t = 1, value_name = "N")]
    pub seed: u64,
}

/// A cache, or something that is used as one.
fn parse_target(text: &str) -> Result<Url, String> {
    match text.parse() {
        Ok(url @ (Url::Cache(_) | Url::Memcached(_) | Url::Redis(_))) => Ok(url),
        Err(why) if text.starts_with("redis") => Err(why),
        _ => Err(
            "write cache://HOST:PORT, memcached://HOST:PORT, redis://HOST:PORT or rediss://HOST:PORT"
                .to_owned(),
        ),
    }
}

/// Runs all workloads on all targets.
pub fn run_cache<N: Network>(
    network: &N,
    arguments: &CacheBenchArguments,
    output: Output,
) -> Result<(), Failure> {
    interrupt::start()?;
    let (mut runs, mut failed) = (Vec::new(), None);
    'workloads: for reads in READS {
        for distribution in DISTRIBUTIONS {
            let of_workload = workload(arguments, reads, distribution);
            let plan = BenchPlan::new(&of_workload)?;
            match measure_all(network, &plan, &of_workload.targets, output) {
                // The results of earlier workloads count all the same.
                Err(failure) if !runs.is_empty() => failed = Some(failure),
                measured => {
                    let (more, failure) = measured?;
                    runs.extend(more);
                    failed = failure;
                }
            }
            if failed.is_some() || interrupt::interrupted() {
                break 'workloads;
            }
        }
    }
    output.document(&json!({ "runs": runs.iter().map(RunResult::document).collect::<Vec<_>>() }));
    output.line(format_args!(
        "items of 48 bytes, {}, {} in flight for each of {}; the middle of {}",
        plural(arguments.keys, "key"),
        arguments.pipeline,
        plural(arguments.clients.into(), "client"),
        plural(arguments.rounds.into(), "round"),
    ));
    output.line(table(&runs));
    interrupt::check()?;
    failed.map_or(Ok(()), Err)?;
    runs.iter().try_for_each(RunResult::judge)
}

/// One workload, as options of `trine bench`.
fn workload(
    arguments: &CacheBenchArguments,
    reads: u32,
    distribution: Distribution,
) -> BenchArguments {
    let targets = match arguments.targets.is_empty() {
        true => vec![Url::Cache(arguments.connect.clone())],
        false => arguments.targets.clone(),
    };
    BenchArguments {
        targets,
        target_ca: arguments.target_ca.clone(),
        rounds: arguments.rounds,
        workload: None,
        distribution: Some(distribution),
        clients: arguments.clients,
        pipeline: arguments.pipeline,
        rate: None,
        value_size: Some(VALUE_BYTES),
        read_ratio: Ratio::percent(reads),
        keys: arguments.keys,
        duration: arguments.duration,
        warmup: arguments.warmup,
        seed: arguments.seed,
        compare: None,
        compare_anyway: false,
        clean: false,
        html: None,
        client: ClientArguments {
            group: GroupArguments {
                peers: String::new(),
                timeout: arguments.timeout,
            },
            capture: CaptureArguments::default(),
        },
    }
}

fn table(runs: &[RunResult]) -> Table {
    let mut table = Table::new([
        "GETs",
        "keys",
        "target",
        "requests/s",
        "to the first",
        "p50",
        "p99",
        "misses",
    ]);
    let mut first = None;
    for run in runs {
        let workload = (&run.settings.read_ratio, &run.settings.distribution);
        let (of, rate) = *first.get_or_insert((workload, run.operations_per_second));
        let rate = match of == workload {
            true => rate,
            false => {
                first = Some((workload, run.operations_per_second));
                run.operations_per_second
            }
        };
        table.row([
            run.settings.read_ratio.clone(),
            run.settings.distribution.clone(),
            run.target.clone(),
            show_count(run.operations_per_second as u64),
            format!("{:.2}", run.operations_per_second / rate),
            show_ns(run.all.p50_ns),
            show_ns(run.all.p99_ns),
            show_count(run.misses),
        ]);
    }
    table
}
