//! The options of `trine cache`.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use clap::Subcommand;

use crate::config::CACHE_ADDRESS;
use crate::config::CACHE_THREADS_MAX;
use trine_base::log_format::LogFormatArguments;
use trine_base::units::parse_bytes;
use trine_base::units::parse_duration;
use trine_base::units::parse_positive_duration;

/// The commands of the cache.
#[derive(Debug, Subcommand)]
pub enum CacheCommand {
    /// Run a cache without replication, in a fixed amount of memory: new items evict the oldest.
    Serve(CacheServeArguments),
    /// Write a value, which stays until it is deleted or evicted.
    Put(CachePutArguments),
    /// Read a value and print its raw bytes; exit status 1 if the key does not exist.
    Get(CacheKeyArguments),
    /// Delete a key; exit status 1 if it did not exist.
    Del(CacheKeyArguments),
    /// Show the statistics of every thread of the cache.
    Stats(CacheStatsArguments),
}

/// The options of `trine cache serve`.
#[derive(Debug, Args)]
pub struct CacheServeArguments {
    /// Address of the first thread; the others use the ports after it. With `0.0.0.0` or `[::]`, the server listens on
    /// every address of the machine, and replies from the address that the request was sent to.
    #[arg(long, env = "TRINE_CACHE_LISTEN", default_value = CACHE_ADDRESS, value_name = "HOST:PORT")]
    pub listen: String,
    /// Listen on an address that other machines can reach, without requiring a key (--key) from callers. Any client
    /// that can send packets to the cache can then read, change and delete everything.
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
    /// Former name of --insecure.
    #[arg(long, hide = true)]
    pub allow_remote: bool,
    /// Number of threads, each with its own port and a part of the keys and of the memory.
    #[arg(long, default_value_t = 1, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=i64::from(CACHE_THREADS_MAX)))]
    pub threads: u32,
    /// Memory for items and index of all threads together; message buffers are extra.
    #[arg(long, default_value = "1GiB", value_name = "SIZE", value_parser = parse_bytes)]
    pub memory: u64,
    /// How long a thread polls for packets before it sleeps.
    #[arg(long, default_value = "50us", value_name = "TIME", value_parser = parse_duration)]
    pub spin: Duration,
}

/// How a cache command finds the cache.
#[derive(Debug, Args)]
pub struct CacheClientArguments {
    /// Address of the cache's first thread.
    #[arg(long, env = "TRINE_CACHE", default_value = CACHE_ADDRESS, value_name = "HOST:PORT")]
    pub connect: String,
    /// Give up after this long. For a write, the error says whether it may have been applied.
    #[arg(long, default_value = "5s", value_name = "TIME", value_parser = parse_positive_duration)]
    pub timeout: Duration,
}

/// The options of `trine cache put`.
#[derive(Debug, Args)]
pub struct CachePutArguments {
    /// The key.
    pub key: OsString,
    /// The value. If absent or -, it is read from standard input; with @FILE, from a file.
    pub value: Option<OsString>,
    /// Where the cache is.
    #[command(flatten)]
    pub client: CacheClientArguments,
}

/// The options of commands that name a key.
#[derive(Debug, Args)]
pub struct CacheKeyArguments {
    /// The key.
    pub key: OsString,
    /// Where the cache is.
    #[command(flatten)]
    pub client: CacheClientArguments,
}

#[derive(Debug, Args)]
pub struct CacheStatsArguments {
    /// Where the cache is.
    #[command(flatten)]
    pub client: CacheClientArguments,
}
