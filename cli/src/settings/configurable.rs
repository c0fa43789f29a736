//! The part of the command line that has settings: the commands that read a settings file, and the common options.

use clap::{CommandFactory, Parser, Subcommand};

use crate::cmd::up::UpArguments;
use trine_base::arguments::GlobalArguments;
use trine_server::options::ServeArguments;

/// As the whole command line, without the other 26 commands. They count where the help puts what all commands take.
#[derive(Debug, Parser)]
#[command(name = "trine", version, next_display_order = 26)]
pub(crate) struct Configurable {
    #[command(subcommand)]
    pub(crate) command: ConfigurableCommand,
    #[command(flatten)]
    pub(crate) global: GlobalArguments,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ConfigurableCommand {
    /// Run one replica.
    Serve(ServeArguments),
    /// Run a local group in the foreground until Ctrl-C.
    Up(UpArguments),
}

/// The clap definition of that part.
pub(crate) fn command_line() -> clap::Command {
    Configurable::command()
}
