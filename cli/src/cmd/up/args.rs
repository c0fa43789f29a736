//! The options of `trine up`.

use clap::Args;

use crate::config::BASE_PORT;
use crate::options::LimitArguments;
use crate::options::LogArguments;
use crate::options::ReadArguments;
use crate::options::TimingArguments;
use crate::resp::RespArguments;
use crate::settings::FileArguments;
use crate::settings::WatchArguments;

#[derive(Debug, Args)]
pub(crate) struct UpArguments {
    #[command(flatten)]
    pub(crate) file: FileArguments,
    #[command(flatten)]
    pub(crate) watch: WatchArguments,
    /// The first replica's port; the others take the ones that follow.
    #[arg(long, env = "TRINE_BASE_PORT", default_value_t = BASE_PORT, value_name = "PORT", value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) base_port: u16,
    /// How many replicas.
    #[arg(long, default_value = "3", value_name = "N", value_parser = ["3", "5", "7"])]
    pub(crate) replicas: String,
    #[command(flatten)]
    pub(crate) limits: LimitArguments,
    #[command(flatten)]
    pub(crate) reading: ReadArguments,
    #[command(flatten)]
    pub(crate) timing: TimingArguments,
    #[command(flatten)]
    pub(crate) log: LogArguments,
    #[command(flatten)]
    pub(crate) resp: RespArguments,
}
