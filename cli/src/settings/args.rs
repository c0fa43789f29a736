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
    /// Show the settings in force in a running group, whatever its machines were started with.
    Get(GetArguments),
    /// Change a setting of a running group: all replicas apply it at the same log position.
    #[command(subcommand)]
    Set(SetCommand),
}

/// A setting that the group's replicas share.
#[derive(Copy, Clone, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum GroupSetting {
    /// Maximum size of keys and values.
    Memory,
    /// Whether the group keeps an ordered index of its keys.
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
    /// Maximum size of the group's keys and values, with 32 bytes added per key. Nothing is reserved, so make sure that
    /// each replica's machine has the memory. A limit below the stored size is rejected.
    Memory {
        /// The new limit.
        #[arg(value_name = "SIZE", value_parser = parse_store_bytes)]
        size: u64,
        /// Where the group is.
        #[command(flatten)]
        client: ClientArguments,
    },
    /// Whether the group keeps an ordered index of its keys, with which `trine scan`, `trine rm` and counts of ranges
    /// read only the range. It adds at least 32 bytes per key to what counts towards the memory limit. `on` builds the
    /// index while the group serves, a little with each log entry.
    Ordered {
        /// on or off.
        #[arg(value_enum)]
        ordered: Switch,
        /// With `on`: return at once, without waiting until the index is complete.
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
    /// Keep the index.
    On,
    /// Drop the index.
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
    /// Show the settings that a start on this machine would use, and the source of each. `trine config get` shows those
    /// of a running group.
    Show {
        /// The command whose settings to show.
        #[arg(value_enum, default_value = "serve", value_name = "COMMAND")]
        of: Configured,
        /// Show passwords, too, instead of ***.
        #[arg(long)]
        show_secrets: bool,
        /// Options of that command, after `--`.
        #[arg(last = true, value_name = "OPTIONS")]
        options: Vec<OsString>,
    },
    /// Print a settings file that states every default, as comments.
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
