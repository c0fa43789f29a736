//! `trine completions`: a shell's script, made from the options themselves.

use crate::args::{CompletionsArguments, command_line};
use crate::failure::Failure;
use crate::output::Output;

pub(crate) fn run(arguments: &CompletionsArguments, output: Output) -> Result<(), Failure> {
    let mut script = Vec::new();
    clap_complete::generate(arguments.shell, &mut command_line(), "trine", &mut script);
    output.raw(&script);
    Ok(())
}
