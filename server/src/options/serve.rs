//! The options of `trine serve`.

use std::path::PathBuf;

use clap::Args;
use trine_transport::backend::Faults;

use crate::backup_file::Ttl;
use crate::from_file::FixedSettings;
use crate::metrics::OwnNames;
use crate::tls::TlsArguments;
use trine_base::capture::CaptureArguments;
use trine_base::network::KeyStage;
use trine_base::placement::PlacementArguments;
use trine_base::units::parse_bytes;

use super::log::LogArguments;
use super::replica::{LimitArguments, ReadArguments, TimingArguments};
use super::resp::RespArguments;
use super::watch::{FileArguments, WatchArguments};

/// The options of `trine serve`.
#[derive(Debug, Args)]
pub struct ServeArguments {
    /// This replica's node id: its position in the list of peers, from 1.
    #[arg(long, value_name = "ID", value_parser = clap::value_parser!(u32).range(1..))]
    pub id: u32,
    /// Every replica of the group in the same order everywhere, this one included: host:port,...
    #[arg(long, env = "TRINE_PEERS", value_name = "LIST")]
    pub peers: String,
    /// Where this replica is reached, if the list of peers does not name it: then the list only says whom to ask, in
    /// any order, and --id may be any node id.
    #[arg(long, value_name = "HOST:PORT", conflicts_with = "bootstrap")]
    pub listen: Option<String>,
    /// Begin a new group; needs every peer reachable and in no group. Give it to one replica, once.
    #[arg(long)]
    pub bootstrap: bool,
    /// Begin a new group with the state of this backup, in memory. Only `trine up` gives it, and only once: a second start
    /// with it would begin a second group.
    #[arg(long, value_name = "FILE", hide = true, conflicts_with_all = ["bootstrap", "data_dir"])]
    pub restore: Option<PathBuf>,
    /// Whether the time since that backup counts for times to live.
    #[arg(
        long,
        alias = "ttl",
        value_enum,
        default_value_t,
        hide = true,
        requires = "restore",
        conflicts_with_all = ["bootstrap", "data_dir"]
    )]
    pub expiry: Ttl,
    /// Where further settings are.
    #[command(flatten)]
    pub file: FileArguments,
    /// Which processors and memory.
    #[command(flatten)]
    pub placement: PlacementArguments,
    /// How it is watched.
    #[command(flatten)]
    pub watch: WatchArguments,
    /// What it stores at most, and how long it polls.
    #[command(flatten)]
    pub limits: LimitArguments,
    /// How reads are confirmed.
    #[command(flatten)]
    pub reading: ReadArguments,
    /// When a silent leader is replaced.
    #[command(flatten)]
    pub timing: TimingArguments,
    /// Where the log is.
    #[command(flatten)]
    pub log: LogArguments,
    /// Which callers a replica takes: all, both with and without a key, or only those with one [default: require with a
    /// key, none without]. At SIGHUP a replica with a key reads its key file again, and the stage, if the file of --config
    /// has it (key-stage = "require") and neither this option nor the variable was given. It begins to require keys once all
    /// members have come with one.
    // Its own place would be that of an option of all commands, as that of --rejoin.
    #[arg(
        long = "key-stage",
        alias = "keys",
        env = "TRINE_KEY_STAGE",
        value_enum,
        value_name = "STAGE",
        display_order = 27
    )]
    pub keys: Option<KeyStage>,
    /// The settings that the file does not change while the replica runs.
    #[arg(skip)]
    pub named: FixedSettings,
    /// Join the group as a new replica, instead of ending, when this one was removed or its state differs from the
    /// others'. With --log disk this also holds at the start, for a directory that has lost something that it may have
    /// promised. Its files are then set aside.
    // The order that it would have without it is that of an option of all commands.
    #[arg(long, display_order = 27)]
    pub rejoin: bool,
    /// Whether and where Redis clients are served.
    #[command(flatten)]
    pub resp: RespArguments,
    /// Whether Redis clients and metrics are served over TLS.
    #[command(flatten)]
    pub tls: TlsArguments,
    /// Damage what this replica sends, for example loss=5%,dup=1%,reorder=2%,corrupt=0.1%,delay=1ms..5ms.
    #[arg(long, value_name = "FAULTS", help_heading = "Fault injection")]
    pub fault: Option<Faults>,
    /// The seed from which the faults are drawn.
    #[arg(
        long,
        default_value_t = 0,
        value_name = "N",
        help_heading = "Fault injection"
    )]
    pub fault_seed: u64,
    /// With --log disk, the room that the log takes at a time.
    #[arg(long, default_value = "32MiB", value_name = "SIZE", value_parser = parse_bytes, help_heading = "Testing")]
    pub log_segment: u64,
    /// Let this user, on this machine, change with `trine net` what the network does to this replica's packets.
    #[arg(long, help_heading = "Fault injection")]
    pub fault_injection: bool,
    /// Whether packets are captured.
    #[command(flatten)]
    pub capture: CaptureArguments,
}

impl ServeArguments {
    /// The settings file, unless the setting that is read from it again was named at the start.
    pub(crate) fn file_unless(&self, named: bool) -> Option<PathBuf> {
        self.file.config.clone().filter(|_| !named)
    }

    /// The names of the group's machines, as far as the options say: requests may call the HTTP endpoint by them.
    pub(crate) fn own_names(&self) -> OwnNames {
        let listed = self.peers.split(',').chain(self.listen.as_deref());
        OwnNames::new(listed.chain(self.watch.names()))
    }
}
