//! Options about how the process runs on its machine.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::Args;

use crate::logs::{LevelParser, LogFormat};
use crate::metrics::Listen;
use trine_base::failure::Failure;

/// Where further settings are read from.
#[derive(Clone, Debug, Default, Args)]
pub struct FileArguments {
    /// Read settings from this TOML file. Options and the environment go before it; no file is read unless named.
    #[arg(long, env = "TRINE_CONFIG", value_name = "FILE")]
    pub config: Option<PathBuf>,
}

/// How a replica is watched.
#[derive(Clone, Debug, Args)]
pub struct WatchArguments {
    /// Serve metrics (/metrics, for Prometheus), health (/livez, /readyz) and the log level (/log-level) over HTTP at
    /// this address. `trine up` gives it to the first replica, and the ports that follow to the others.
    #[arg(long, value_name = "HOST:PORT")]
    pub metrics: Option<Listen>,
    /// What is logged to standard error: off, error, warn, info, debug or trace, and the same by part, as in
    /// warn,raft=debug; the part `role` tells changes of role, and `audit` who administrated. `trine log-level` changes it while the replica runs; SIGUSR1
    /// makes it read the file again.
    #[arg(long, default_value = "warn,role=info,audit=info", value_name = "LEVEL", value_parser = LevelParser, hide_possible_values = true)]
    pub log_level: String,
    /// How lines of the log look.
    #[arg(long, default_value = "text", value_enum)]
    pub log_format: LogFormat,
}

impl WatchArguments {
    /// The same settings, as options of `trine serve` for every replica of a group.
    pub fn as_serve_args(&self) -> Result<Vec<OsString>, Failure> {
        let mut options = vec!["--log-level".to_owned(), self.log_level.clone()];
        options.extend(["--log-format".to_owned(), self.log_format.name().to_owned()]);
        if let Some(metrics) = &self.metrics {
            options.extend(["--metrics".to_owned(), metrics.for_each_node()?]);
        }
        Ok(options.into_iter().map(OsString::from).collect())
    }
}
