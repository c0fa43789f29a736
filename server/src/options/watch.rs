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
    /// Further names by which requests may call that endpoint: name,... Without a password and a client's certificate it
    /// answers to addresses, to localhost, and to the names in --metrics, in the list of peers and of this machine.
    #[arg(long, value_name = "LIST", value_parser = parse_names)]
    pub metrics_names: Option<String>,
    /// Ask for the password in the first line of this file before anything is answered over HTTP: as a bearer token, or
    /// as the password of any user. Only its owner may read the file.
    #[arg(long, value_name = "FILE")]
    pub metrics_password_file: Option<PathBuf>,
    /// The level of the log on standard error: off, error, warn, info, debug or trace, and the same by part, as in
    /// warn,raft=debug. The part `role` tells changes of role, and `audit` who administrated. `trine log-level` changes
    /// the level while the replica runs; SIGUSR1 makes it read the file again.
    #[arg(long, default_value = "warn,role=info,audit=info", value_name = "LEVEL", value_parser = LevelParser, hide_possible_values = true)]
    pub log_level: String,
    /// How the lines of both streams look. With json each is a JSON object, also what is announced and the last error.
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
            "{wrong:?} is no name of a host, such as trine-1.example.com"
        )),
    }
}
