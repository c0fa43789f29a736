//! The `trine` command: runs replicas, talks to them, measures them, and breaks them on purpose.

mod args;
mod client;
mod cmd;
mod config;
mod failure;
mod group;
mod interrupt;
mod lane;
mod latency;
mod load;
mod output;
mod peers;
mod units;
mod values;

use std::process::ExitCode;

use clap::Parser;

use crate::args::{Arguments, Command};
use crate::failure::Failure;
use crate::output::Output;

/// raft allocates for every message; this allocator halves the cost of large batches.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    if let Err(error) = trine_chaos::live::die_with_parent() {
        eprintln!("trine: {error}");
        return ExitCode::from(2);
    }
    let arguments = Arguments::parse();
    let output = Output {
        json: arguments.json,
    };
    match run(&arguments.command, output) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            output.failure(&failure);
            ExitCode::from(failure.exit_status())
        }
    }
}

fn run(command: &Command, output: Output) -> Result<(), Failure> {
    match command {
        Command::Demo(arguments) => cmd::demo::run(arguments, output),
        Command::Up(arguments) => cmd::up::run(arguments, output),
        Command::Serve(arguments) => cmd::serve::run(arguments, output),
        Command::Put(arguments) => cmd::put::run(arguments, output),
        Command::Get(arguments) => cmd::get::run(arguments, output),
        Command::Del(arguments) => cmd::del::run(arguments, output),
        Command::Status(arguments) => cmd::status::run(arguments, output),
        Command::Bench(arguments) => cmd::bench::run(arguments, output),
        Command::Chaos(arguments) => cmd::chaos::run(arguments, output),
    }
}
