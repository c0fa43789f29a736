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
    /// Run an index: ordered keys of 8 bytes in memory, one copy.
    Serve(IndexServeArguments),
    /// Write a value.
    Put(IndexPutArguments),
    /// Read a value; exit status 1 if it is not there.
    Get(IndexKeyArguments),
    /// Delete a key; exit status 1 if there was none.
    Del(IndexKeyArguments),
    /// Sum up the values of the keys after one.
    Scan(IndexScanArguments),
    /// Measure GETs with scans among them.
    Bench(IndexBenchArguments),
}

/// Who runs the scans.
#[derive(Copy, Clone, Debug, PartialEq, Eq, ValueEnum)]
pub enum Scans {
    /// The thread that also answers GETs. A GET waits for the scans before it.
    Dispatch,
    /// Worker threads.
    Workers,
}

/// The options of `trine index serve`.
#[derive(Debug, Args)]
pub struct IndexServeArguments {
    /// Where the first dispatch thread listens; the others take the ports that follow. At `0.0.0.0` or `[::]` it listens on every
    /// address of the machine, and answers from the one that was asked.
    #[arg(long, env = "TRINE_INDEX_LISTEN", default_value = INDEX_ADDRESS, value_name = "HOST:PORT")]
    pub listen: String,
    /// Listen on an address that other machines reach without requiring a key (--key) from callers. Whoever can send
    /// packets to the index can then read, change and delete everything.
    #[arg(long)]
    pub insecure: bool,
    /// What users with a key of their own may do: lines of a name, a role (read or write) and a generation (1 if absent). Needs
    /// --key. Nobody but holders of the key file gets in without it. SIGHUP makes the server read it again.
    #[arg(long, value_name = "FILE")]
    pub users: Option<PathBuf>,
    /// How it writes lines.
    #[command(flatten)]
    pub lines: LogFormatArguments,
    /// Dispatch threads. All serve the same keys, each at a port of its own.
    #[arg(long, default_value_t = 1, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=i64::from(INDEX_THREADS_MAX)))]
    pub threads: u32,
    /// Who runs the scans.
    #[arg(long, value_enum, default_value_t = Scans::Workers)]
    pub scans: Scans,
    /// Worker threads of each dispatch thread.
    #[arg(long, default_value_t = 1, value_name = "N", value_parser = clap::value_parser!(u32).range(0..=i64::from(INDEX_WORKERS_MAX)))]
    pub workers: u32,
    /// The most keys; each takes about 40 bytes of memory.
    #[arg(long, default_value_t = INDEX_KEYS_MAX, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub keys_max: u64,
    /// How long a thread polls for work before it sleeps.
    #[arg(long, default_value = "50us", value_name = "TIME", value_parser = parse_duration)]
    pub spin: Duration,
}

/// How a command finds the index.
#[derive(Debug, Args)]
pub struct IndexClientArguments {
    /// The index's address: where one of its dispatch threads listens.
    #[arg(long, env = "TRINE_INDEX", default_value = INDEX_ADDRESS, value_name = "HOST:PORT")]
    pub connect: String,
    /// Give up after this long. A write may then still have happened; the error says whether that is so.
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
    /// The scan goes over the keys after this one.
    pub key: u64,
    /// The most keys.
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
    /// Measure without a network: client and dispatch in one thread, the worker in another, packets over memory.
    #[arg(long)]
    pub in_process: bool,
    /// With --in-process: the processors of the two threads, as in 0,1. Without it they may run on any.
    #[arg(
        long,
        alias = "cpus",
        value_name = "N",
        value_delimiter = ',',
        requires = "in_process"
    )]
    pub cpu: Vec<u32>,
    /// Keys, which the benchmark writes first. Keys and values are random and have 8 bytes.
    #[arg(long, default_value_t = 1_000_000, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub keys: u64,
    /// Do not write the keys: an earlier run with the same --keys has done so.
    #[arg(long, conflicts_with = "in_process")]
    pub filled: bool,
    /// The share of requests that are scans, in whole percents.
    #[arg(long, default_value = "1%", value_name = "SHARE", value_parser = parse_scan_share)]
    pub scan_share: u32,
    /// What --scan-share was called before, as a number of percents.
    #[arg(long, hide = true, value_name = "PERCENT", conflicts_with = "scan_share", value_parser = clap::value_parser!(u32).range(0..=100))]
    pub scans: Option<u32>,
    /// Keys of a scan.
    #[arg(long, default_value_t = INDEX_SCAN_KEYS, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=i64::from(INDEX_SCAN_KEYS_MAX)))]
    pub scan_keys: u32,
    /// Requests in flight of the closed loop.
    #[arg(long, alias = "window", default_value_t = 32, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=i64::from(INDEX_WINDOW_MAX)))]
    pub pipeline: u32,
    /// Rates of the open loop, as shares of the rate of GETs alone in the closed loop.
    #[arg(long, default_value = "20%,50%,80%", value_name = "SHARE,...", value_delimiter = ',', value_parser = parse_load)]
    pub loads: Vec<u32>,
    /// How long each part runs.
    #[arg(long = "for", default_value = "1s", value_name = "TIME", value_parser = parse_positive_duration)]
    pub duration: Duration,
    /// How often all parts run; medians are reported.
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
