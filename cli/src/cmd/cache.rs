//! `trine cache`: the commands of the cache, and its benchmark.

use clap::Subcommand;
use trine_base::failure::Failure;
use trine_base::network::Network;
use trine_base::output::Output;
use trine_bench::CacheBenchArguments;

#[derive(Debug, Subcommand)]
pub(crate) enum CacheCommand {
    #[command(flatten)]
    Apps(trine_apps::cache::CacheCommand),
    /// Measure a cache under the workloads of the MICA and HERD papers, and memcached and redis-server if they are
    /// targets.
    Bench(CacheBenchArguments),
}

pub(crate) fn run<N: Network>(
    network: &N,
    command: &CacheCommand,
    output: Output,
) -> Result<(), Failure> {
    match command {
        CacheCommand::Apps(command) => trine_apps::cache::run(network, command, output),
        CacheCommand::Bench(arguments) => trine_bench::run_cache(network, arguments, output),
    }
}
