//! The options of `trine serve`.

use clap::Args;
use trine_replica::config::SEGMENT_BYTES;
use trine_transport::backend::Faults;

use crate::capture::CaptureArguments;
use crate::options::LimitArguments;
use crate::options::LogArguments;
use crate::options::ReadArguments;
use crate::options::TimingArguments;
use crate::placement::PlacementArguments;
use crate::resp::RespArguments;
use crate::settings::FileArguments;
use crate::settings::WatchArguments;
use crate::units::parse_bytes;

#[derive(Debug, Args)]
pub(crate) struct ServeArguments {
    /// This replica's place in the list of peers, from 1.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) id: u32,
    /// Every replica of the group in the same order everywhere, this one included: host:port,...
    #[arg(long, env = "TRINE_PEERS", value_name = "LIST")]
    pub(crate) peers: String,
    /// Where this replica is reached, if the list of peers does not name it: then the list only says whom to ask, in any
    /// order, and --id may be any place.
    #[arg(long, value_name = "HOST:PORT", conflicts_with = "bootstrap")]
    pub(crate) listen: Option<String>,
    /// Begin a new group; needs every peer reachable and in no group. Give it to one replica, once.
    #[arg(long)]
    pub(crate) bootstrap: bool,
    #[command(flatten)]
    pub(crate) file: FileArguments,
    #[command(flatten)]
    pub(crate) placement: PlacementArguments,
    #[command(flatten)]
    pub(crate) watch: WatchArguments,
    #[command(flatten)]
    pub(crate) limits: LimitArguments,
    #[command(flatten)]
    pub(crate) reading: ReadArguments,
    #[command(flatten)]
    pub(crate) timing: TimingArguments,
    #[command(flatten)]
    pub(crate) log: LogArguments,
    /// Join the group as a new replica whenever this one cannot go on as who it was, instead of ending: when it was removed
    /// or its state differs from the others'; with --log disk also at the start, when the directory has lost something that
    /// it may have promised. Its files are then set aside.
    #[arg(long)]
    pub(crate) rejoin: bool,
    #[command(flatten)]
    pub(crate) resp: RespArguments,
    /// Lab: damage what this replica sends, for example loss=5%,dup=1%,reorder=2%,corrupt=0.1%,delay=1ms..5ms.
    #[arg(long, value_name = "FAULTS", help_heading = "Lab options")]
    pub(crate) fault: Option<Faults>,
    /// Lab: the seed from which the faults are drawn.
    #[arg(
        long,
        default_value_t = 0,
        value_name = "N",
        help_heading = "Lab options"
    )]
    pub(crate) fault_seed: u64,
    /// Lab: with --log disk, the room that the log takes at a time.
    #[arg(long, default_value_t = SEGMENT_BYTES, value_name = "SIZE", value_parser = parse_bytes, help_heading = "Lab options")]
    pub(crate) log_segment: u64,
    /// Lab: let this user, on this machine, change with `trine net` what the network does to this replica's packets.
    #[arg(long, help_heading = "Lab options")]
    pub(crate) lab: bool,
    #[command(flatten)]
    pub(crate) capture: CaptureArguments,
}
