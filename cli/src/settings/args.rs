//! `trine config`, and the commands that read a settings file.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};
use trine_base::arguments::{ClientArguments, GroupArguments};
use trine_base::units::parse_store_bytes;

/// `trine config ...`.
#[derive(Debug, Subcommand)]
pub(crate) enum ConfigCommand {
    /// About settings files.
    #[command(flatten)]
    Files(FilesCommand),
    /// Show the settings that a running group holds, whatever its machines were started with.
    Get(GetArguments),
    /// Change a setting of a running group: all replicas change it at the same place of the log.
    #[command(subcommand)]
    Set(SetCommand),
}

/// A setting that the group's replicas share.
#[derive(Copy, Clone, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum GroupSetting {
    /// The most bytes of keys and values.
    Memory,
    /// Whether an ordered index of the keys is kept.
    Ordered,
}

/// `trine config get`.
#[derive(Debug, Args)]
pub(crate) struct GetArguments {
    /// The setting; all of them if absent.
    #[arg(value_enum, value_name = "SETTING")]
    pub(crate) setting: Option<GroupSetting>,
    /// Where the group is.
    #[command(flatten)]
    pub(crate) group: GroupArguments,
}

/// `trine config set ...`.
#[derive(Debug, Subcommand)]
pub(crate) enum SetCommand {
    /// The most bytes of keys and values that the group stores, 32 bytes more for each key. Nothing is reserved: see
    /// that each replica's machine has the memory. A limit below what is stored is refused.
    Memory {
        /// The new limit.
        #[arg(value_name = "SIZE", value_parser = parse_store_bytes)]
        size: u64,
        /// Where the group is.
        #[command(flatten)]
        client: ClientArguments,
    },
    /// Whether the group keeps an ordered index of its keys, which `trine scan`, `trine rm` and counts of ranges need. It
    /// counts 32 bytes for each key. `on` builds it while the group serves, a little with each entry of the log.
    Ordered {
        /// on or off.
        #[arg(value_enum)]
        ordered: Switch,
        /// With `on`: come back at once, and not when the index is whole.
        #[arg(long)]
        no_wait: bool,
        /// Where the group is.
        #[command(flatten)]
        client: ClientArguments,
    },
}

/// On or off.
#[derive(Copy, Clone, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Switch {
    /// It is kept.
    On,
    /// It is given up.
    Off,
}

/// `trine config ...` about settings files.
#[derive(Debug, Subcommand)]
pub(crate) enum FilesCommand {
    /// Check a settings file without starting anything; exit status 1 if it has mistakes.
    Check {
        /// The file; TRINE_CONFIG if absent.
        #[arg(env = "TRINE_CONFIG", value_name = "FILE")]
        file: PathBuf,
    },
    /// Show the settings that a start on this machine would use, and where each comes from. `trine config get` shows what a
    /// running group holds.
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
