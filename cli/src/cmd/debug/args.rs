//! The options of `trine debug`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use trine_base::arguments::GroupArguments;

use crate::cmd::endpoint::EndpointArguments;

#[derive(Debug, Subcommand)]
pub(crate) enum DebugCommand {
    /// Write an archive with status, rates, settings without secrets, the doctor's findings, metrics and logs. It
    /// contains no keys, values or passwords.
    Bundle(BundleArguments),
}

#[derive(Debug, Args)]
pub(crate) struct BundleArguments {
    /// The archive; by default trine-debug-TIME.tar.gz in this directory. An existing file is not overwritten. Until
    /// the archive is complete, its name is FILE.partial.
    #[arg(value_name = "FILE")]
    pub(crate) file: Option<PathBuf>,
    /// Former name of FILE.
    #[arg(long, hide = true, value_name = "FILE", conflicts_with = "file")]
    pub(crate) out: Option<PathBuf>,
    /// Metrics endpoint of a replica (its --metrics). May be given several times.
    #[arg(long, alias = "metrics", value_name = "HOST:PORT")]
    pub(crate) at: Vec<String>,
    #[command(flatten)]
    pub(crate) endpoint: EndpointArguments,
    /// A log file, whose last MiB is included; may be given several times.
    #[arg(long, alias = "log", value_name = "FILE")]
    pub(crate) log_file: Vec<PathBuf>,
    /// The settings file of `trine serve` on this machine.
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) group: GroupArguments,
}
