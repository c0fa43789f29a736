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
    /// All replicas of the group, this one included, in the same order on every replica: host:port,...
    #[arg(long, env = "TRINE_PEERS", value_name = "LIST")]
    pub peers: String,
    /// Address at which this replica is reached, if --peers does not contain it. In that case, --peers need only list
    /// some members to contact, in any order, and --id may be any node id.
    #[arg(long, value_name = "HOST:PORT", conflicts_with = "bootstrap")]
    pub listen: Option<String>,
    /// Create a new group; all peers must be reachable and in no group. Give this option to one replica, once.
    #[arg(long)]
    pub bootstrap: bool,
    /// Create a new group from this backup, in memory. Only `trine up` passes this option, and only once: a second
    /// start with it would create a second group.
    #[arg(long, value_name = "FILE", hide = true, conflicts_with_all = ["bootstrap", "data_dir"])]
    pub restore: Option<PathBuf>,
    /// Whether the time since that backup is subtracted from times to live.
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
    /// The settings file.
    #[command(flatten)]
    pub file: FileArguments,
    /// Processors and memory.
    #[command(flatten)]
    pub placement: PlacementArguments,
    /// Metrics and the log.
    #[command(flatten)]
    pub watch: WatchArguments,
    /// Limits of the store, and polling.
    #[command(flatten)]
    pub limits: LimitArguments,
    /// How reads are confirmed.
    #[command(flatten)]
    pub reading: ReadArguments,
    /// The election timeout.
    #[command(flatten)]
    pub timing: TimingArguments,
    /// Where the log is.
    #[command(flatten)]
    pub log: LogArguments,
    /// Which callers a replica accepts: none (all callers, and no key is used), accept (callers with and without a key)
    /// or require (only callers with a key) [default: require with a key, none without]. At SIGHUP, a replica with a
    /// key reloads its key file. It also reloads the stage, if the file of --config sets it (key-stage = "require") and
    /// neither this option nor the variable was given. It starts to require keys once all members have connected with
    /// one.
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
    /// Join the group as a new replica, instead of exiting, if this replica was removed or its state differs from the
    /// others'. With --log disk this also applies at startup, if the directory has lost something that the replica may
    /// have promised. The old files are then set aside.
    // The order that it would have without it is that of an option of all commands.
    #[arg(long, display_order = 27)]
    pub rejoin: bool,
    /// Address and settings of the Redis protocol.
    #[command(flatten)]
    pub resp: RespArguments,
    /// Whether Redis clients and metrics are served over TLS.
    #[command(flatten)]
    pub tls: TlsArguments,
    /// Inject faults into the packets that this replica sends, for example
    /// loss=5%,dup=1%,reorder=2%,corrupt=0.1%,delay=1ms..5ms.
    #[arg(long, value_name = "FAULTS", help_heading = "Fault injection")]
    pub fault: Option<Faults>,
    /// Seed for the random choice of faults.
    #[arg(
        long,
        default_value_t = 0,
        value_name = "N",
        help_heading = "Fault injection"
    )]
    pub fault_seed: u64,
    /// With --log disk: size of a log segment.
    #[arg(long, default_value = "32MiB", value_name = "SIZE", value_parser = parse_bytes, help_heading = "Testing")]
    pub log_segment: u64,
    /// Allow this user, on this machine, to inject faults into this replica's packets with `trine net`.
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
