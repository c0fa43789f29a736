//! `trine cache`: a server of the store's cache mode without replication, and its commands.
//!
//! A server is `--threads` shards at consecutive ports. Each shard is a thread with its own memory and its own
//! endpoint. A client asks the first shard for their number (HELLO) and sends each key to its shard.
//! `trine_kvstore::Cache` decides the contents of a cache; `wire.rs` defines the messages.

mod args;
mod call;
mod client;
mod serve;
mod shard;
mod stats;
pub mod wire;

pub use self::args::{
    CacheClientArguments, CacheCommand, CacheKeyArguments, CachePutArguments, CacheServeArguments,
};

/// The address of a server and of its clients, unless an option says otherwise.
pub const ADDRESS: &str = crate::config::CACHE_ADDRESS;

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
