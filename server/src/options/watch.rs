//! Options about how the process runs on its machine.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::Args;

use crate::exposure::Exposed;
use crate::logs::{LevelParser, LogFormat};
use crate::metrics::{self, Listen};
use crate::private;
use crate::tls::TlsArguments;
use trine_base::failure::Failure;

/// The settings file.
#[derive(Clone, Debug, Default, Args)]
pub struct FileArguments {
    /// Read settings from this TOML file. Options and environment variables take precedence. No file is read unless it
    /// is named.
    #[arg(long, env = "TRINE_CONFIG", value_name = "FILE")]
    pub config: Option<PathBuf>,
}

/// Metrics and the log of a replica.
#[derive(Clone, Debug, Args)]
pub struct WatchArguments {
    /// Serve metrics (/metrics, for Prometheus), health (/livez, /readyz) and the log level (/log-level) over HTTP at
    /// this address. With `trine up`, the first replica uses this port, and the others use the ports after it.
    #[arg(long, value_name = "HOST:PORT")]
    pub metrics: Option<Listen>,
    /// Further host names that requests to the metrics endpoint may use: name,... Without a password and a client CA,
    /// the endpoint accepts only addresses, localhost, and the names in --metrics, in the list of peers and of this
    /// machine.
    #[arg(long, value_name = "LIST", value_parser = parse_names)]
    pub metrics_names: Option<String>,
    /// Require the password in the first line of this file for every HTTP request: as a bearer token, or as the
    /// password of any user. The file must be readable only by its owner.
    #[arg(long, value_name = "FILE")]
    pub metrics_password_file: Option<PathBuf>,
    /// Log level on standard error: off, error, warn, info, debug or trace, optionally by part, as in warn,raft=debug.
    /// The part `role` logs changes of role, and `audit` administrative commands. `trine log-level` changes the level
    /// while the replica runs; at SIGUSR1 the replica returns to the level of its settings file.
    #[arg(long, default_value = "warn,role=info,audit=info", value_name = "LEVEL", value_parser = LevelParser, hide_possible_values = true)]
    pub log_level: String,
    /// Format of the lines on standard output and standard error. With json, each line is a JSON object, including
    /// announcements and the last error.
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
        // The address of `--metrics` has no name in it any more.
        let names: Vec<&str> = self.names().collect();
        if !names.is_empty() {
            options.extend(["--metrics-names".into(), names.join(",").into()]);
        }
        if let Some(file) = &self.metrics_password_file {
            options.extend(["--metrics-password-file".into(), file.into()]);
        }
        Ok(options)
    }

    /// The names by which requests may call the metrics endpoint, as far as these options say.
    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        let address = self
            .metrics
            .as_ref()
            .filter(|listen| listen.as_written().is_none());
        let more = self.metrics_names.iter().flat_map(|list| list.split(','));
        address.map(Listen::host).into_iter().chain(more)
    }

    /// The password of the metrics endpoint.
    ///
    /// # Errors
    /// A file that others can read, or that has none.
    pub fn metrics_password(&self) -> Result<Option<Vec<u8>>, Failure> {
        let path = self.metrics_password_file.as_deref();
        path.map(|path| private::first_line(path, "the password of the metrics"))
            .transpose()
    }

    /// Refuses an address of the metrics that other machines reach, if nothing keeps strangers out. A name is looked at
    /// when it is resolved.
    ///
    /// # Errors
    /// Says what would.
    pub fn check(&self, tls: &TlsArguments) -> Result<(), Failure> {
        let address = self.metrics.as_ref().and_then(Listen::as_written);
        let Some(address) = address else {
            return Ok(());
        };
        let exposed = Exposed {
            asks: self.metrics_password_file.is_some(),
            asks_certificate: tls.asks_certificate(),
            tls: tls.is_on(),
            ..metrics::exposed(address)
        };
        exposed.check()
    }
}

/// A list of names without ports.
fn parse_names(text: &str) -> Result<String, String> {
    let is_name = |name: &str| {
        let letter = |letter: char| letter.is_ascii_alphanumeric() || "-._".contains(letter);
        !name.is_empty() && name.chars().all(letter)
    };
    match text.split(',').find(|name| !is_name(name)) {
        None => Ok(text.to_owned()),
        Some(wrong) => Err(format!(
            "{wrong:?} is not the name of a host, such as trine-1.example.com"
        )),
    }
}
