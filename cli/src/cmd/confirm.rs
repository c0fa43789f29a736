//! The question before keys are deleted that nothing brings back.

use std::io::{self, IsTerminal, Write};

use clap::Args;
use trine_base::failure::Failure;

/// The option that skips the confirmation.
#[derive(Debug, Args)]
pub(crate) struct ConfirmArguments {
    /// Do not ask for confirmation. Required without a terminal.
    #[arg(long)]
    pub(crate) yes: bool,
}

impl ConfirmArguments {
    /// Without a terminal nobody can answer: that is an error before anything is sent.
    pub(crate) fn require_somebody(&self, what: &str) -> Result<(), Failure> {
        match self.yes || io::stdin().is_terminal() {
            true => Ok(()),
            false => Err(Failure::usage(
                format!(
                    "this would delete {what}, and there is no terminal on which to confirm it: \
                     nothing was deleted"
                ),
                "add --yes; `trine export FILE` saves the keys first",
            )),
        }
    }

    /// Asks, unless `--yes` was given. The question goes to standard error: standard output is for the answer.
    pub(crate) fn ask(&self, what: &str, keys: u64) -> Result<(), Failure> {
        if self.yes {
            return Ok(());
        }
        let asked = write!(io::stderr(), "delete {what}, {keys} at the moment? [y/N] ");
        let mut line = String::new();
        let read = asked.and_then(|()| io::stdin().read_line(&mut line));
        read.map_err(|error| Failure::usage(format!("cannot ask: {error}"), "add --yes"))?;
        match line.trim().to_ascii_lowercase().as_str() {
            "y" | "yes" => Ok(()),
            _ => Err(Failure::negative("nothing was deleted", "")),
        }
    }
}
