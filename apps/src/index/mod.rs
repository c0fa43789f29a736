//! `trine index`: a server of ordered keys without replication, its commands and its benchmark.
//!
//! A server is `--threads` dispatch threads at consecutive ports. All of them serve one map
//! (`trine_index::ConcurrentMap`). Point reads and writes run in the dispatch threads, scans in worker threads.
//! `wire.rs` defines the messages.

mod args;
mod bench;
mod client;
mod dispatch;
mod serve;
pub mod wire;

pub use self::args::{IndexArguments, IndexCommand};

use trine_base::failure::Failure;
use trine_base::network::Network;
use trine_base::output::Output;

/// Runs one of the index's commands.
pub fn run<N: Network>(network: &N, command: &IndexCommand, output: Output) -> Result<(), Failure> {
    match command {
        IndexCommand::Serve(arguments) => serve::run(network, arguments, output),
        IndexCommand::Put(arguments) => client::put(network, arguments, output),
        IndexCommand::Get(arguments) => client::get(network, arguments, output),
        IndexCommand::Del(arguments) => client::del(network, arguments, output),
        IndexCommand::Scan(arguments) => client::scan(network, arguments, output),
        IndexCommand::Bench(arguments) => bench::run(network, arguments, output),
    }
}
