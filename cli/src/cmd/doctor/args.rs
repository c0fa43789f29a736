//! The options of `trine doctor`.

use std::path::PathBuf;

use clap::Args;

#[derive(Debug, Args)]
pub(crate) struct DoctorArguments {
    /// Also measure how long a synced write takes in this directory (for --log disk), and look for files that were set
    /// aside.
    #[arg(long, value_name = "DIR")]
    pub(crate) data_dir: Option<PathBuf>,
    /// Also check the keys of the group at these addresses: host:port,...
    #[arg(long, env = "TRINE_PEERS", value_name = "LIST")]
    pub(crate) peers: Option<String>,
}
