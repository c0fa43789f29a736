//! `trine cache`: the store's cache mode served without replication, and commands that talk to it.
//!
//! A server is `--threads` shards, each a thread with its own memory and its own endpoint, at
//! consecutive ports. A client asks the first one how many there are (HELLO) and sends each key to
//! the shard that it belongs to. Nothing here decides what a cache holds: that is
//! `trine_kvstore::Cache`; how questions and answers look is in `wire.rs`.

mod args;
mod call;
mod client;
mod serve;
mod shard;
mod stats;
pub mod wire;

pub use self::args::{
    CacheArguments, CacheClientArguments, CacheCommand, CacheKeyArguments, CachePutArguments,
    CacheServeArguments,
};

use trine_base::failure::Failure;
use trine_base::network::Network;
use trine_base::output::Output;

/// Runs one of the cache's commands.
pub fn run<N: Network>(network: &N, command: &CacheCommand, output: Output) -> Result<(), Failure> {
    match command {
        CacheCommand::Serve(arguments) => serve::run(network, arguments, output),
        CacheCommand::Put(arguments) => client::put(network, arguments, output),
        CacheCommand::Get(arguments) => client::get(network, arguments, output),
        CacheCommand::Del(arguments) => client::del(network, arguments, output),
        CacheCommand::Stats(arguments) => stats::run(network, &arguments.client, output),
    }
}
