//! The options of `trine index`.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand, ValueEnum};

use crate::config::{
    INDEX_ADDRESS, INDEX_KEYS_MAX, INDEX_SCAN_KEYS, INDEX_SCAN_KEYS_MAX, INDEX_THREADS_MAX,
    INDEX_WINDOW_MAX, INDEX_WORKERS_MAX,
};
use trine_base::failure::Failure;
use trine_base::log_format::LogFormatArguments;
use trine_base::units::{parse_duration, parse_percents, parse_positive_duration};

/// The options of `trine index`.
#[derive(Debug, Args)]
pub struct IndexArguments {
    /// What to do.
    #[command(subcommand)]
    pub command: IndexCommand,
}

/// The commands of the index.
#[derive(Debug, Subcommand)]
pub enum IndexCommand {
    /// Run an index: ordered keys of 8 bytes in memory, without replication.
    Serve(IndexServeArguments),
    /// Write a value.
    Put(IndexPutArguments),
    /// Read a value; exit status 1 if the key does not exist.
    Get(IndexKeyArguments),
    /// Delete a key; exit status 1 if it did not exist.
    Del(IndexKeyArguments),
    /// Add up the values of the keys after a given key.
    Scan(IndexScanArguments),
    /// Measure GETs mixed with scans.
    Bench(IndexBenchArguments),
}

/// Which threads run the scans.
#[derive(Copy, Clone, Debug, PartialEq, Eq, ValueEnum)]
pub enum Scans {
    /// The thread that also answers GETs, so a GET waits for the scans before it.
    Dispatch,
    /// Worker threads.
    Workers,
}

/// The options of `trine index serve`.
#[derive(Debug, Args)]
pub struct IndexServeArguments {
    /// Address of the first dispatch thread; the others use the ports after it. With `0.0.0.0` or `[::]`, the server
    /// listens on every address of the machine, and replies from the address that the request was sent to.
    #[arg(long, env = "TRINE_INDEX_LISTEN", default_value = INDEX_ADDRESS, value_name = "HOST:PORT")]
    pub listen: String,
    /// Listen on an address that other machines can reach, without requiring a key (--key) from callers. Any client
    /// that can send packets to the index can then read, change and delete everything.
    #[arg(long)]
    pub insecure: bool,
    /// Rights of users with their own keys: each line has a name, a role (read or write) and a generation (1 if
    /// absent). Needs --key. Without this file, only holders of the key file have access. At SIGHUP, the server reads
    /// it again.
    #[arg(long, value_name = "FILE")]
    pub users: Option<PathBuf>,
    /// The format of its lines.
    #[command(flatten)]
    pub lines: LogFormatArguments,
    /// Number of dispatch threads, each with its own port. All serve the same keys.
    #[arg(long, default_value_t = 1, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=i64::from(INDEX_THREADS_MAX)))]
    pub threads: u32,
    /// Which threads run the scans.
    #[arg(long, value_enum, default_value_t = Scans::Workers)]
    pub scans: Scans,
    /// Number of worker threads per dispatch thread.
    #[arg(long, default_value_t = 1, value_name = "N", value_parser = clap::value_parser!(u32).range(0..=i64::from(INDEX_WORKERS_MAX)))]
    pub workers: u32,
    /// Maximum number of keys; each takes about 40 bytes of memory.
    #[arg(long, default_value_t = INDEX_KEYS_MAX, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub keys_max: u64,
    /// How long a thread polls for work before it sleeps.
    #[arg(long, default_value = "50us", value_name = "TIME", value_parser = parse_duration)]
    pub spin: Duration,
}

/// How a command finds the index.
#[derive(Debug, Args)]
pub struct IndexClientArguments {
    /// Address of one of the index's dispatch threads.
    #[arg(long, env = "TRINE_INDEX", default_value = INDEX_ADDRESS, value_name = "HOST:PORT")]
    pub connect: String,
    /// Give up after this long. For a write, the error says whether it may have been applied.
    #[arg(long, default_value = "5s", value_name = "TIME", value_parser = parse_positive_duration)]
    pub timeout: Duration,
}

/// The options of `trine index put`.
#[derive(Debug, Args)]
pub struct IndexPutArguments {
    /// The key: a number below 2^64.
    pub key: u64,
    /// The value: a number below 2^64.
    pub value: u64,
    /// Where the index is.
    #[command(flatten)]
    pub client: IndexClientArguments,
}

/// The options of commands that name a key.
#[derive(Debug, Args)]
pub struct IndexKeyArguments {
    /// The key: a number below 2^64.
    pub key: u64,
    /// Where the index is.
    #[command(flatten)]
    pub client: IndexClientArguments,
}

/// The options of `trine index scan`.
#[derive(Debug, Args)]
pub struct IndexScanArguments {
    /// The scan starts after this key.
    pub key: u64,
    /// Maximum number of keys.
    #[arg(long, default_value_t = INDEX_SCAN_KEYS, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=i64::from(INDEX_SCAN_KEYS_MAX)))]
    pub limit: u32,
    /// Where the index is.
    #[command(flatten)]
    pub client: IndexClientArguments,
}

/// The options of `trine index bench`.
#[derive(Debug, Args)]
pub struct IndexBenchArguments {
    /// Where the index is.
    #[command(flatten)]
    pub client: IndexClientArguments,
    /// Measure without a network: client and dispatch share one thread, the worker has another, and packets go through
    /// memory.
    #[arg(long)]
    pub in_process: bool,
    /// With --in-process: the processors of the two threads, as in 0,1. By default they may run on any.
    #[arg(
        long,
        alias = "cpus",
        value_name = "N",
        value_delimiter = ',',
        requires = "in_process"
    )]
    pub cpu: Vec<u32>,
    /// Number of keys, which the benchmark writes first. Keys and values are random and have 8 bytes.
    #[arg(long, default_value_t = 1_000_000, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub keys: u64,
    /// Do not write the keys, because an earlier run with the same --keys has written them.
    #[arg(long, conflicts_with = "in_process")]
    pub filled: bool,
    /// Share of scans among the requests, in whole percent.
    #[arg(long, default_value = "1%", value_name = "SHARE", value_parser = parse_scan_share)]
    pub scan_share: u32,
    /// What --scan-share was called before, as a number of percents.
    #[arg(long, hide = true, value_name = "PERCENT", conflicts_with = "scan_share", value_parser = clap::value_parser!(u32).range(0..=100))]
    pub scans: Option<u32>,
    /// Number of keys per scan.
    #[arg(long, default_value_t = INDEX_SCAN_KEYS, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=i64::from(INDEX_SCAN_KEYS_MAX)))]
    pub scan_keys: u32,
    /// Requests in flight in the closed loop.
    #[arg(long, alias = "window", default_value_t = 32, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=i64::from(INDEX_WINDOW_MAX)))]
    pub pipeline: u32,
    /// Rates of the open loop, as shares of the rate of GETs alone in the closed loop.
    #[arg(long, default_value = "20%,50%,80%", value_name = "SHARE,...", value_delimiter = ',', value_parser = parse_load)]
    pub loads: Vec<u32>,
    /// How long each part runs.
    #[arg(long = "for", default_value = "1s", value_name = "TIME", value_parser = parse_positive_duration)]
    pub duration: Duration,
    /// Number of runs of all parts; medians are reported.
    #[arg(long, default_value_t = 3, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1_000))]
    pub rounds: u32,
}

impl IndexBenchArguments {
    /// How many in a hundred requests are scans.
    pub(super) fn scans(&self) -> u32 {
        self.scans.unwrap_or(self.scan_share)
    }

    /// The processors of the dispatch thread and of the worker.
    pub(super) fn processors(&self) -> Result<Option<(u32, u32)>, Failure> {
        match *self.cpu {
            [] => Ok(None),
            [dispatch, worker] => Ok(Some((dispatch, worker))),
            _ => Err(Failure::usage(
                "--cpu names the processors of two threads",
                "write two, for example --cpu 0,1",
            )),
        }
    }
}

fn parse_scan_share(text: &str) -> Result<u32, String> {
    parse_percents(text, 100)
}

fn parse_load(text: &str) -> Result<u32, String> {
    match parse_percents(text, 200)? {
        0 => Err("it must be more than nothing".to_owned()),
        percents => Ok(percents),
    }
}
