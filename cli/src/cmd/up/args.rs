//! The options of `trine up`.

use std::path::PathBuf;

use clap::Args;

use crate::config::BASE_PORT;
use trine_base::network::KeyStage;
use trine_server::backup_file::Ttl;
use trine_server::options::FileArguments;
use trine_server::options::LimitArguments;
use trine_server::options::LogArguments;
use trine_server::options::ReadArguments;
use trine_server::options::RespArguments;
use trine_server::options::TimingArguments;
use trine_server::options::WatchArguments;
use trine_server::tls::TlsArguments;

#[derive(Debug, Args)]
pub(crate) struct UpArguments {
    #[command(flatten)]
    pub(crate) file: FileArguments,
    #[command(flatten)]
    pub(crate) watch: WatchArguments,
    /// Port of the first replica; the others use the ports after it.
    #[arg(long, env = "TRINE_BASE_PORT", default_value_t = BASE_PORT, value_name = "PORT", value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) base_port: u16,
    /// Number of replicas.
    #[arg(long, default_value = "3", value_name = "N", value_parser = ["1", "3", "5", "7"])]
    pub(crate) replicas: String,
    /// Start a new group from this backup, in memory or in an empty --data-dir.
    #[arg(long, value_name = "FILE")]
    pub(crate) restore: Option<PathBuf>,
    /// With --restore: whether the time since the backup is subtracted from times to live.
    #[arg(long, alias = "ttl", value_enum, default_value_t, requires = "restore")]
    pub(crate) expiry: Ttl,
    #[command(flatten)]
    pub(crate) limits: LimitArguments,
    #[command(flatten)]
    pub(crate) reading: ReadArguments,
    #[command(flatten)]
    pub(crate) timing: TimingArguments,
    #[command(flatten)]
    pub(crate) log: LogArguments,
    /// Which callers a replica accepts: none (all callers, and no key is used), accept (callers with and without a key)
    /// or require (only callers with a key) [default: require with a key, none without].
    #[arg(
        long = "key-stage",
        alias = "keys",
        env = "TRINE_KEY_STAGE",
        value_enum,
        value_name = "STAGE"
    )]
    pub(crate) keys: Option<KeyStage>,
    /// Create no key for the group. Any client that can send packets to its ports can then read, change and delete
    /// everything.
    #[arg(long)]
    pub(crate) insecure: bool,
    #[command(flatten)]
    pub(crate) resp: RespArguments,
    #[command(flatten)]
    pub(crate) tls: TlsArguments,
}
