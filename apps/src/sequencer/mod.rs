//! `trine sequencer`: a server of numbers that come once and grow, its commands and its benchmark.
//!
//! Crate `trine-sequencer` decides which numbers may be given out, and when. A server is `--threads` event loops at
//! consecutive ports which share one supply of numbers, and one more thread (`reserve.rs`) which reserves them. Reserved
//! numbers come from a file (`epoch_file.rs`) or from a record in a group of replicas (`group_record.rs`). With `--speculative` it has as many
//! threads more, which answer requests of four bytes (`speculative.rs`).

mod args;
mod bench;
mod client;
mod epoch_file;
mod group_record;
mod reserve;
mod serve;
mod server_state;
mod service;
mod speculative;

pub use self::args::{SequencerArguments, SequencerCommand};

use trine_base::failure::Failure;
use trine_base::network::Network;
use trine_base::output::Output;

/// Runs one of the sequencer's commands.
pub fn run<N: Network>(
    network: &N,
    command: &SequencerCommand,
    output: Output,
) -> Result<(), Failure> {
    match command {
        SequencerCommand::Serve(arguments) => serve::run(network, arguments, output),
        SequencerCommand::Next(arguments) => client::next(network, arguments, output),
        SequencerCommand::Stats(arguments) => client::stats(network, &arguments.client, output),
        SequencerCommand::Bench(arguments) => bench::run(network, arguments, output),
    }
}
