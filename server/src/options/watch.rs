//! Options about how the process runs on its machine.

use std::ffi::OsString;
use std::os::unix::fs::PermissionsExt;
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
    /// Ask for the password in the first line of this file before anything is answered over HTTP: as a bearer token, or
    /// as the password of any user. Only its owner may read the file.
    #[arg(long, value_name = "FILE")]
    pub metrics_password_file: Option<PathBuf>,
    /// The level of the log on standard error: off, error, warn, info, debug or trace, and the same by part, as in
    /// warn,raft=debug. The part `role` tells changes of role, and `audit` who administrated. `trine log-level` changes
    /// the level while the replica runs; SIGUSR1 makes it read the file again.
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
        let mut options: Vec<OsString> = options.into_iter().map(OsString::from).collect();
        if let Some(file) = &self.metrics_password_file {
            options.extend(["--metrics-password-file".into(), file.into()]);
        }
        Ok(options)
    }

    /// The password of the metrics endpoint.
    ///
    /// # Errors
    /// A file that others can read, or that has none.
    pub fn metrics_password(&self) -> Result<Option<Vec<u8>>, Failure> {
        let Some(path) = &self.metrics_password_file else {
            return Ok(None);
        };
        let shown = path.display();
        let cannot = |why: String| {
            Failure::usage(
                format!("cannot take the password of the metrics from {shown}: {why}"),
                "write it into the first line of the file",
            )
        };
        let metadata = std::fs::metadata(path).map_err(|error| cannot(error.to_string()))?;
        let mode = metadata.permissions().mode() & 0o7777;
        if mode & 0o077 != 0 {
            return Err(Failure::usage(
                format!("the password file {shown} can be read by others (mode {mode:04o})"),
                format!("run `chmod 600 {shown}`"),
            ));
        }
        let text = std::fs::read_to_string(path).map_err(|error| cannot(error.to_string()))?;
        match text.lines().next() {
            Some(line) if !line.is_empty() => Ok(Some(line.as_bytes().to_vec())),
            _ => Err(cannot("its first line is empty".to_owned())),
        }
    }
}
