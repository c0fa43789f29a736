//! `trine config`, and the commands that read a settings file.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Subcommand, ValueEnum};

/// `trine config ...`.
#[derive(Debug, Subcommand)]
pub(crate) enum ConfigCommand {
    /// Check a settings file without starting anything; exit status 1 if it has mistakes.
    Check {
        /// The file; TRINE_CONFIG if absent.
        #[arg(env = "TRINE_CONFIG", value_name = "FILE")]
        file: PathBuf,
    },
    /// Show every effective setting and where it comes from.
    Show {
        /// The command whose settings are meant.
        #[arg(value_enum, default_value = "serve", value_name = "COMMAND")]
        of: Configured,
        /// Show passwords too; *** replaces them otherwise.
        #[arg(long)]
        show_secrets: bool,
        /// Options of that command, behind `--`.
        #[arg(last = true, value_name = "OPTIONS")]
        options: Vec<OsString>,
    },
    /// Print a settings file that says what holds without one.
    Default,
    /// Print the reference of all settings (docs/configuration.md).
    Reference,
}

/// A command that reads a settings file.
#[derive(Copy, Clone, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Configured {
    /// `trine serve`.
    Serve,
    /// `trine up`.
    Up,
}

impl Configured {
    /// Both of them.
    pub(crate) const ALL: [Self; 2] = [Self::Serve, Self::Up];

    /// As it is typed.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Serve => "serve",
            Self::Up => "up",
        }
    }
}
