//! The options of `trine debug`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use trine_base::arguments::GroupArguments;

use crate::cmd::endpoint::EndpointArguments;

#[derive(Debug, Subcommand)]
pub(crate) enum DebugCommand {
    /// Write one archive with status, rates, settings without secrets, the doctor's findings, metrics and logs; no keys, no
    /// values, no passwords.
    Bundle(BundleArguments),
}

#[derive(Debug, Args)]
pub(crate) struct BundleArguments {
    /// The archive; trine-debug-TIME.tar.gz in this directory, if absent. A file that is there already is not touched. Its
    /// name is FILE.partial until it is whole.
    #[arg(value_name = "FILE")]
    pub(crate) file: Option<PathBuf>,
    /// What FILE was before.
    #[arg(long, hide = true, value_name = "FILE", conflicts_with = "file")]
    pub(crate) out: Option<PathBuf>,
    /// The metrics endpoint of a replica, as its --metrics says. It may be given several times.
    #[arg(long, alias = "metrics", value_name = "HOST:PORT")]
    pub(crate) at: Vec<String>,
    #[command(flatten)]
    pub(crate) endpoint: EndpointArguments,
    /// A log file, of which the last MiB is taken; may be given several times.
    #[arg(long, alias = "log", value_name = "FILE")]
    pub(crate) log_file: Vec<PathBuf>,
    /// The settings file of `trine serve` on this machine.
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) group: GroupArguments,
}
