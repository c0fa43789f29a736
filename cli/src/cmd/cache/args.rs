//! The options of `trine cache`.

use std::ffi::OsString;
use std::time::Duration;

use clap::Args;
use clap::Subcommand;

use crate::config::CACHE_ADDRESS;
use crate::config::CACHE_THREADS_MAX;
use crate::units::parse_bytes;
use crate::units::parse_duration;
use crate::units::parse_positive_duration;

#[derive(Debug, Args)]
pub(crate) struct CacheArguments {
    #[command(subcommand)]
    pub(crate) command: CacheCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum CacheCommand {
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

#[derive(Debug, Args)]
pub(crate) struct CacheServeArguments {
    /// Where the first thread listens; the others take the ports that follow.
    #[arg(long, env = "TRINE_CACHE", default_value = CACHE_ADDRESS, value_name = "HOST:PORT")]
    pub(crate) listen: String,
    /// Listen on an address that other machines reach. There is no encryption and no authentication.
    #[arg(long)]
    pub(crate) allow_remote: bool,
    /// Threads, each with a part of the keys, of the memory, and a port of its own.
    #[arg(long, default_value_t = 1, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=i64::from(CACHE_THREADS_MAX)))]
    pub(crate) threads: u32,
    /// Bytes for items and index, all threads together; message buffers come on top.
    #[arg(long, default_value = "1GiB", value_name = "SIZE", value_parser = parse_bytes)]
    pub(crate) memory: u64,
    /// How long a thread polls for packets before it sleeps.
    #[arg(long, default_value = "50us", value_name = "TIME", value_parser = parse_duration)]
    pub(crate) spin: Duration,
}

/// How a cache command finds the cache.
#[derive(Debug, Args)]
pub(crate) struct CacheClientArguments {
    /// The cache's address: where its first thread listens.
    #[arg(long, env = "TRINE_CACHE", default_value = CACHE_ADDRESS, value_name = "HOST:PORT")]
    pub(crate) connect: String,
    /// Give up after this long. A write may then still have happened; the error says whether that is so.
    #[arg(long, default_value = "5s", value_name = "TIME", value_parser = parse_positive_duration)]
    pub(crate) timeout: Duration,
}

#[derive(Debug, Args)]
pub(crate) struct CachePutArguments {
    /// The key.
    pub(crate) key: OsString,
    /// The value; - or nothing reads it from standard input, @FILE from a file.
    pub(crate) value: Option<OsString>,
    #[command(flatten)]
    pub(crate) client: CacheClientArguments,
}

#[derive(Debug, Args)]
pub(crate) struct CacheKeyArguments {
    /// The key.
    pub(crate) key: OsString,
    #[command(flatten)]
    pub(crate) client: CacheClientArguments,
}

#[derive(Debug, Args)]
pub(crate) struct CacheStatsArguments {
    #[command(flatten)]
    pub(crate) client: CacheClientArguments,
}
