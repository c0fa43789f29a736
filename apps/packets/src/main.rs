//! `trine-packets` runs packet applications between two DPDK ports, generates and checks their packets, and checks the
//! applications in memory.

#![cfg_attr(not(test), deny(clippy::print_stdout, clippy::print_stderr))]

mod args;
#[cfg(feature = "dpdk")]
mod live;

use crate::args::{Arguments, CheckArguments, Command};
use clap::Parser;
use serde_json::json;
use std::process::ExitCode;
use trine_base::failure::Failure;
use trine_base::output::Output;
use trine_packets::check::{Check, Difference, Tally};
use trine_packets::error::TableError;

fn main() -> ExitCode {
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
        Command::Check(arguments) => check(arguments, output),
        #[cfg(feature = "dpdk")]
        Command::Generate(arguments) => live::generate(arguments, output),
        #[cfg(feature = "dpdk")]
        Command::Echo(arguments)
        | Command::Ipv4(arguments)
        | Command::Ipv6(arguments)
        | Command::Switch(arguments)
        | Command::Names(arguments)
        | Command::Patterns(arguments) => live::forward(command.name(), arguments, output),
        #[cfg(not(feature = "dpdk"))]
        _ => Err(Failure::usage(
            "this trine-packets was built without ports",
            "build it with `cargo build --release -p trine-packets --features dpdk`; `trine-packets check` needs no ports",
        )),
    }
}

/// Compares an application with its reference.
fn check(arguments: &CheckArguments, output: Output) -> Result<(), Failure> {
    let name = arguments.name;
    let settings = arguments.table.settings(name, arguments.ports)?;
    let check = Check {
        name,
        settings,
        packets: arguments.packets,
        batch: arguments.batch,
    };
    let tally = check
        .run()
        .map_err(|error| no_table(&error))?
        .map_err(|difference| wrong(&difference))?;
    let (packets, text) = (arguments.packets, name.text());
    output.line(format_args!("{text}: {packets} packets, {tally}"));
    output.line("Each was treated as the reference treats it.");
    output.document(&document(text, packets, &tally));
    Ok(())
}

fn document(name: &str, packets: u64, tally: &Tally) -> serde_json::Value {
    let dropped: u64 = tally.dropped.iter().sum();
    json!({
        "application": name,
        "packets": packets,
        "forwarded": tally.forwarded,
        "flooded": tally.flooded,
        "dropped": dropped,
    })
}

/// The failure of a table that cannot be built.
pub(crate) fn no_table(error: &TableError) -> Failure {
    Failure::usage(error.to_string(), "give it fewer --entries")
}

fn wrong(difference: &Difference) -> Failure {
    let Difference {
        number,
        frame,
        expected,
        found,
    } = difference;
    Failure::negative(
        format!(
            "packet {number} was treated otherwise than the reference does\n  frame {frame:02x?}\n  expected {expected:02x?}\n  \
             found {found:02x?}"
        ),
        "this is a bug: please report it with the command",
    )
}
