//! `trine completions`: a shell's script, made from the options themselves.

use clap::CommandFactory;

use crate::args::{Arguments, CompletionsArguments};
use crate::failure::Failure;
use crate::output::Output;

pub(crate) fn run(arguments: &CompletionsArguments, output: Output) -> Result<(), Failure> {
    let mut script = Vec::new();
    clap_complete::generate(
        arguments.shell,
        &mut Arguments::command(),
        "trine",
        &mut script,
    );
    output.raw(&script);
    Ok(())
}
