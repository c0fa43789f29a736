//! `trine completions`: a shell's script, made from the options themselves.

use crate::failure::Failure;
use crate::output::Output;
use clap::Args;

#[derive(Debug, Args)]
pub(crate) struct CompletionsArguments {
    /// The shell that reads the script.
    #[arg(value_enum)]
    pub(crate) shell: clap_complete::Shell,
}

pub(crate) fn run(
    arguments: &CompletionsArguments,
    mut definition: clap::Command,
    output: Output,
) -> Result<(), Failure> {
    let mut script = Vec::new();
    clap_complete::generate(arguments.shell, &mut definition, "trine", &mut script);
    output.raw(&script);
    Ok(())
}
