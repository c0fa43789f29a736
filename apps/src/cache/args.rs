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
    /// Run a cache: a fixed amount of memory, one copy, the oldest items make room for new ones.
    Serve(CacheServeArguments),
    /// Write a value; it stays until it is deleted or newer ones need its room.
    Put(CachePutArguments),
    /// Read a value and print its raw bytes; exit status 1 if it is not there (any more).
    Get(CacheKeyArguments),
    /// Delete a key; exit status 1 if there was none.
    Del(CacheKeyArguments),
    /// Show what every thread of the cache has done.
    Stats(CacheStatsArguments),
}

/// The options of `trine cache serve`.
#[derive(Debug, Args)]
pub struct CacheServeArguments {
    /// Where the first thread listens; the others take the ports that follow. At `0.0.0.0` or `[::]` it listens on every
    /// address of the machine, and answers from the one that was asked.
    #[arg(long, env = "TRINE_CACHE_LISTEN", default_value = CACHE_ADDRESS, value_name = "HOST:PORT")]
    pub listen: String,
    /// Listen on an address that other machines reach without requiring a key (--key) from callers. Whoever can send
    /// packets to the cache can then read, change and delete everything.
    #[arg(long)]
    pub insecure: bool,
    /// What users with a key of their own may do: lines of a name, a role (read or write) and a generation (1 if absent). Needs
    /// --key. Nobody but holders of the key file gets in without it. SIGHUP makes the server read it again.
    #[arg(long, value_name = "FILE")]
    pub users: Option<PathBuf>,
    /// How it writes lines.
    #[command(flatten)]
    pub lines: LogFormatArguments,
    /// What --insecure was called before.
    #[arg(long, hide = true)]
    pub allow_remote: bool,
    /// Threads, each with a part of the keys, of the memory, and a port of its own.
    #[arg(long, default_value_t = 1, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=i64::from(CACHE_THREADS_MAX)))]
    pub threads: u32,
    /// Bytes for items and index, all threads together; message buffers come on top.
    #[arg(long, default_value = "1GiB", value_name = "SIZE", value_parser = parse_bytes)]
    pub memory: u64,
    /// How long a thread polls for packets before it sleeps.
    #[arg(long, default_value = "50us", value_name = "TIME", value_parser = parse_duration)]
    pub spin: Duration,
}

/// How a cache command finds the cache.
#[derive(Debug, Args)]
pub struct CacheClientArguments {
    /// The cache's address: where its first thread listens.
    #[arg(long, env = "TRINE_CACHE", default_value = CACHE_ADDRESS, value_name = "HOST:PORT")]
    pub connect: String,
    /// Give up after this long. A write may then still have happened; the error says whether that is so.
    #[arg(long, default_value = "5s", value_name = "TIME", value_parser = parse_positive_duration)]
    pub timeout: Duration,
}

/// The options of `trine cache put`.
#[derive(Debug, Args)]
pub struct CachePutArguments {
    /// The key.
    pub key: OsString,
    /// The value; - or nothing reads it from standard input, @FILE from a file.
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
