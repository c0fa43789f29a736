//! The options of `trine bench`.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use trine_transport::prng::Ratio;

use super::stores::Url;
use super::workload::Workload;
use super::zipf::Distribution;
use trine_base::arguments::ClientArguments;
use trine_base::config::CLIENTS_MAX;
use trine_base::units::parse_bytes;
use trine_base::units::parse_duration;
use trine_base::units::parse_positive_duration;

/// The options of `trine bench`.
#[derive(Debug, Args)]
pub struct BenchArguments {
    /// Systems to measure: trine://HOST:PORT,... (without hosts the group of --peers), redis://HOST:PORT,
    /// memcached://HOST:PORT or cache://HOST:PORT. redis://USER:PASSWORD@HOST:PORT logs in, and rediss:// uses TLS;
    /// write %40 for @ in a password. The process list shows the password. Several targets are measured one after the
    /// other, with the same operations.
    #[arg(long = "target", value_name = "URL")]
    pub targets: Vec<Url>,
    /// CA that signed the certificates of rediss:// targets: a PEM file.
    #[arg(long, value_name = "FILE")]
    pub target_ca: Option<PathBuf>,
    /// Number of measurements of each target; the median one is reported.
    #[arg(long, default_value_t = 1, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=101))]
    pub rounds: u32,
    /// YCSB workload: A, B, C, D, E or F, with its distribution of keys, and with values of 1000 bytes by default.
    #[arg(long, value_name = "LETTER", conflicts_with = "read_ratio")]
    pub workload: Option<Workload>,
    /// Distribution of the keys; by default uniform, or that of the workload.
    #[arg(long, value_enum, value_name = "HOW")]
    pub distribution: Option<Distribution>,
    /// Number of concurrent clients; each waits for its reply before it sends the next request.
    #[arg(long, default_value_t = 16, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=i64::from(CLIENTS_MAX)))]
    pub clients: u32,
    /// Operations that each client keeps in flight.
    #[arg(long, default_value_t = 1, value_name = "N", conflicts_with = "rate", value_parser = clap::value_parser!(u32).range(1..=64))]
    pub pipeline: u32,
    /// Open loop: send this many operations per second, whether or not replies arrive.
    #[arg(long, value_name = "OPS", value_parser = clap::value_parser!(u64).range(1..))]
    pub rate: Option<u64>,
    /// Size of each value in bytes; by default 100, or 1000 with --workload.
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes)]
    pub value_size: Option<u64>,
    /// Share of reads, for example 50% or 0.95.
    #[arg(long, default_value = "50%", value_name = "SHARE")]
    pub read_ratio: Ratio,
    /// Number of distinct keys at the start.
    #[arg(long, default_value_t = 100_000, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=100_000_000))]
    pub keys: u64,
    /// How long to measure.
    #[arg(long = "for", default_value = "10s", value_name = "TIME", value_parser = parse_positive_duration)]
    pub duration: Duration,
    /// How long to run before measuring.
    #[arg(long, default_value = "1s", value_name = "TIME", value_parser = parse_duration)]
    pub warmup: Duration,
    /// Seed for the keys and the order of reads and writes.
    #[arg(long, default_value_t = 1, value_name = "N")]
    pub seed: u64,
    /// Compare with the earlier --json results in this file; rejected if the machine or the settings differ.
    #[arg(long, value_name = "FILE")]
    pub compare: Option<PathBuf>,
    /// Compare even if the machine or the settings differ.
    #[arg(long, alias = "force", requires = "compare")]
    pub compare_anyway: bool,
    /// At the end, delete the benchmark's keys, even after an error: all that begin with "bench-" and a number that it
    /// used.
    #[arg(long)]
    pub clean: bool,
    /// Write a report with plots of throughput and latency to this file.
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
    /// Where the group is.
    #[command(flatten)]
    pub client: ClientArguments,
}
