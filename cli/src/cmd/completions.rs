//! `trine completions` prints a shell's script, which is made from the options themselves.

use clap::Args;
use trine_base::failure::Failure;
use trine_base::output::Output;

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
