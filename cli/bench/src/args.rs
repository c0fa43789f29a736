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
    /// What is measured: trine://HOST:PORT,... (without hosts the group of --peers), redis://HOST:PORT,
    /// etcd://HOST:PORT,..., memcached://HOST:PORT or cache://HOST:PORT. redis://USER:PASSWORD@HOST:PORT logs in, and rediss://
    /// speaks TLS; %40 stands for @ in a password, which the list of processes shows. Several are measured in turn, with the same operations.
    #[arg(long = "target", value_name = "URL")]
    pub targets: Vec<Url>,
    /// The CA that has signed the certificates of rediss:// targets: a PEM file.
    #[arg(long, value_name = "FILE")]
    pub target_ca: Option<PathBuf>,
    /// How often each target is measured; the middle round counts.
    #[arg(long, default_value_t = 1, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=101))]
    pub rounds: u32,
    /// A workload of YCSB: A, B, C, D, E or F, with its distribution of keys and values of 1000 bytes unless said otherwise.
    #[arg(long, value_name = "LETTER", conflicts_with = "read_ratio")]
    pub workload: Option<Workload>,
    /// How keys are chosen; evenly, or as the workload says, if absent.
    #[arg(long, value_enum, value_name = "HOW")]
    pub distribution: Option<Distribution>,
    /// Clients that work at the same time; each waits for its answer before it asks again.
    #[arg(long, default_value_t = 16, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=i64::from(CLIENTS_MAX)))]
    pub clients: u32,
    /// Operations that each client has under way at the same time.
    #[arg(long, default_value_t = 1, value_name = "N", conflicts_with = "rate", value_parser = clap::value_parser!(u32).range(1..=64))]
    pub pipeline: u32,
    /// Open loop: this many operations a second are due, whether the answers come or not.
    #[arg(long, value_name = "OPS", value_parser = clap::value_parser!(u64).range(1..))]
    pub rate: Option<u64>,
    /// Bytes of each value; 100, or 1000 with --workload, if absent.
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes)]
    pub value_size: Option<u64>,
    /// The share of reads, for example 50% or 0.95.
    #[arg(long, default_value = "50%", value_name = "SHARE")]
    pub read_ratio: Ratio,
    /// How many different keys there are at the beginning.
    #[arg(long, default_value_t = 100_000, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=100_000_000))]
    pub keys: u64,
    /// How long to measure.
    #[arg(long = "for", default_value = "10s", value_name = "TIME", value_parser = parse_positive_duration)]
    pub duration: Duration,
    /// How long to run before measuring.
    #[arg(long, default_value = "1s", value_name = "TIME", value_parser = parse_duration)]
    pub warmup: Duration,
    /// The seed of keys and of the order of reads and writes.
    #[arg(long, default_value_t = 1, value_name = "N")]
    pub seed: u64,
    /// Compare with the results in this file, which --json has printed; refused for another machine or other settings.
    #[arg(long, value_name = "FILE")]
    pub compare: Option<PathBuf>,
    /// Compare also what is not comparable.
    #[arg(long, alias = "force", requires = "compare")]
    pub compare_anyway: bool,
    /// Delete the keys of the benchmark at its end, whatever that is: all that begin with "bench-" and a number that it used.
    #[arg(long)]
    pub clean: bool,
    /// Write a report with plots of throughput and latency here.
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
    /// Where the group is.
    #[command(flatten)]
    pub client: ClientArguments,
}
