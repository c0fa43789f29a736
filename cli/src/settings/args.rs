//! Settings of `trine serve` and `trine up` that say how the process runs on its machine.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};

use crate::failure::Failure;
use crate::logs::{LogFormat, checked_level};
use crate::metrics::Listen;

/// Where further settings are read from.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct FileArguments {
    /// Read settings from this TOML file. Options and the environment go before it; no file is read unless named.
    #[arg(long, env = "TRINE_CONFIG", value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
}

/// How a replica is watched.
#[derive(Clone, Debug, Args)]
pub(crate) struct WatchArguments {
    /// Serve metrics (/metrics, for Prometheus), health (/livez, /readyz) and the log level (/log-level) over HTTP at
    /// this address. `trine up` gives it to the first replica, and the ports that follow to the others.
    #[arg(long, value_name = "HOST:PORT")]
    pub(crate) metrics: Option<Listen>,
    /// What is logged to standard error: off, error, warn, info, debug or trace, and the same by part, as in
    /// warn,raft=debug; the part `role` tells changes of role. `trine log-level` changes it while the replica runs; SIGUSR1
    /// makes it read the file again.
    #[arg(long, default_value = "warn,role=info", value_name = "LEVEL", value_parser = checked_level)]
    pub(crate) log_level: String,
    /// How lines of the log look.
    #[arg(long, default_value = "text", value_enum)]
    pub(crate) log_format: LogFormat,
}

impl WatchArguments {
    /// The same, as options of `trine serve`, for every replica of a group.
    pub(crate) fn as_serve_args(&self) -> Result<Vec<OsString>, Failure> {
        let mut options = vec!["--log-level".to_owned(), self.log_level.clone()];
        options.extend(["--log-format".to_owned(), self.log_format.name().to_owned()]);
        if let Some(metrics) = &self.metrics {
            options.extend(["--metrics".to_owned(), metrics.for_each_place()?]);
        }
        Ok(options.into_iter().map(OsString::from).collect())
    }
}

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
        /// Show passwords too, in whose place *** stands otherwise.
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
