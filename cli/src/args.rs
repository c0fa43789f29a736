//! The command line: every command and option, as clap reads them.

mod chaos;
mod line;
mod member;
mod net;

pub(crate) use self::chaos::ChaosArguments;
pub(crate) use self::line::{command_line, needless_option};
pub(crate) use self::member::{
    MemberCommand, MemberListArguments, NewcomerArguments, PlaceArguments,
};
pub(crate) use self::net::{NetCommand, NetSetArguments};

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};
use trine_chaos::fault::FaultSet;
use trine_replica::config::SEGMENT_BYTES;
use trine_transport::backend::Faults;
use trine_transport::prng::Ratio;

use crate::capture::CaptureArguments;
use crate::cmd::bench::{Distribution, Url, Workload};
use crate::cmd::debug::DebugCommand;
use crate::config::{BASE_PORT, CACHE_ADDRESS, CACHE_THREADS_MAX, CLIENTS_MAX, DEFAULT_PEERS};
use crate::failure::Failure;
use crate::network::NetworkArguments;
use crate::placement;
use crate::resp::RespArguments;
use crate::settings::{ConfigCommand, FileArguments, PlacementArguments, WatchArguments};
use crate::units::{
    parse_bytes, parse_duration, parse_positive_duration, parse_seconds, parse_store_bytes,
};

const EXAMPLES: &str = "\
Examples:
  trine demo                        see a group survive the death of its leader
  trine up                          run a local group until Ctrl-C
  trine put greeting hello          write; the value can also be - (stdin) or @file
  trine get greeting                read; the raw bytes come out
  trine                             a shell for such commands, on a terminal or from a pipe
  trine status                      who leads, how far everybody is
  trine top                         the same and more on one screen, as it changes
  trine member list                 who belongs to the group

Exit status: 0 done; 1 a clear no (no such key, check failed); 2 wrong usage or
configuration; 3 cluster not reachable or outcome unknown (the text says which).";

/// A strongly consistent, in-memory key-value store that replicates every write.
#[derive(Debug, Parser)]
#[command(name = "trine", version, after_help = EXAMPLES)]
pub(crate) struct Arguments {
    /// Nothing means the shell.
    #[command(subcommand)]
    pub(crate) command: Option<Command>,
    /// Print one JSON document instead of text; short for -o json.
    #[arg(long, global = true)]
    pub(crate) json: bool,
    /// How answers look.
    #[arg(
        short,
        long,
        global = true,
        value_enum,
        value_name = "FORM",
        default_value = "table"
    )]
    pub(crate) output: OutputForm,
    #[command(flatten)]
    pub(crate) network: NetworkArguments,
}

/// How answers look.
#[derive(Copy, Clone, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum OutputForm {
    /// For people.
    Table,
    /// For programs: one JSON document.
    Json,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Start three replicas, kill the leader, show that nothing was lost.
    Demo(DemoArguments),
    /// Run a local group in the foreground until Ctrl-C.
    Up(UpArguments),
    /// Run one replica.
    Serve(ServeArguments),
    /// Write a value.
    Put(PutArguments),
    /// Read a value and print its raw bytes.
    Get(GetArguments),
    /// Delete a key; exit status 1 if there was none.
    Del(DelArguments),
    /// Type commands one after the other, or read them from standard input; what `trine` alone does.
    Shell(ShellArguments),
    /// Show every replica: role, term, log, round-trip times, retransmissions.
    Status(StatusArguments),
    /// The group on one screen: roles, lag, throughput, stages of writes, links.
    Top(TopArguments),
    /// Print a line each second: rates, percentiles of the stages of writes, lag, packets sent again.
    Stat(StatArguments),
    /// Measure round trips between replicas, and a key of its own being written and read.
    Latency(LatencyArguments),
    /// Draw where the time of one operation went.
    #[command(subcommand)]
    Trace(TraceCommand),
    /// Show or change who belongs to the group.
    #[command(subcommand)]
    Member(MemberCommand),
    /// Change who leads.
    #[command(subcommand)]
    Leader(LeaderCommand),
    /// Show or change what the networks of replicas in the lab do to their packets, by link and direction.
    #[command(subcommand)]
    Net(NetCommand),
    /// Make a new group out of one replica's data directory, after the loss of a majority.
    Recover(RecoverArguments),
    /// Measure throughput and latency of a running group.
    Bench(BenchArguments),
    /// Break a group of real processes on purpose and check what its clients saw.
    Chaos(ChaosArguments),
    /// Simulate whole groups under faults on virtual time; a seed replays its run byte for byte.
    Sim(SimArguments),
    /// Serve a cache without replication, and talk to it.
    Cache(CacheArguments),
    /// Check and show the settings of `serve` and `up`.
    #[command(subcommand)]
    Config(ConfigCommand),
    /// Show or change what a running replica logs.
    LogLevel(LogLevelArguments),
    /// Look whether this machine is fit for trine; each finding comes with the command that changes it.
    Doctor(DoctorArguments),
    /// Collect what somebody needs to know who helps from afar.
    #[command(subcommand)]
    Debug(DebugCommand),
    /// Print a script that completes commands and options.
    Completions(CompletionsArguments),
    /// Write the manual pages.
    Man(ManArguments),
}

/// Where the group is, for a command that asks each replica by itself.
#[derive(Clone, Debug, Args)]
pub(crate) struct GroupArguments {
    /// The replicas' addresses, host:port,...
    #[arg(long, env = "TRINE_PEERS", default_value = DEFAULT_PEERS, value_name = "LIST")]
    pub(crate) peers: String,
    /// Give up after this long. Of a write the error then says whether it may still have happened.
    #[arg(long, default_value = "5s", value_name = "TIME", value_parser = parse_positive_duration)]
    pub(crate) timeout: Duration,
}

/// Where the group is, for a command that opens a client.
#[derive(Clone, Debug, Args)]
pub(crate) struct ClientArguments {
    #[command(flatten)]
    pub(crate) group: GroupArguments,
    #[command(flatten)]
    pub(crate) capture: CaptureArguments,
}

#[derive(Debug, Subcommand)]
pub(crate) enum LeaderCommand {
    /// Hand the lead over to another voter.
    Transfer(TransferArguments),
}

/// How an operator's order finds the group.
#[derive(Clone, Debug, Args)]
pub(crate) struct OrderArguments {
    /// Replicas' addresses, host:port,...; one that answers is enough to find the others.
    #[arg(long, env = "TRINE_PEERS", default_value = DEFAULT_PEERS, value_name = "LIST")]
    pub(crate) peers: String,
    /// Give up waiting after this long; the change may still be made, and the error says so.
    #[arg(long, default_value = "30s", value_name = "TIME", value_parser = parse_positive_duration)]
    pub(crate) timeout: Duration,
    #[command(flatten)]
    pub(crate) capture: CaptureArguments,
}

#[derive(Debug, Args)]
pub(crate) struct RecoverArguments {
    /// The directory of the replica that is left with the longest log; its process must not run.
    #[arg(long, value_name = "DIR")]
    pub(crate) data_dir: PathBuf,
    /// The replica's place, as it was started with.
    #[arg(
        long,
        value_name = "N",
        value_parser = clap::value_parser!(u32).range(1..),
        required_unless_present = "quarantined"
    )]
    pub(crate) id: Option<u32>,
    /// The replica's address, host:port, as the others will reach it.
    #[arg(
        long,
        value_name = "HOST:PORT",
        required_unless_present = "quarantined"
    )]
    pub(crate) address: Option<String>,
    /// Needed: what only the lost replicas had acknowledged is gone, and what was never acknowledged may come to be.
    #[arg(long)]
    pub(crate) i_accept_data_loss: bool,
    /// Make no new group: only lift the quarantine of this directory. Its replica was found to hold another state than the
    /// majority of its group, and goes on with that state when it is started again.
    #[arg(long, conflicts_with_all = ["id", "address", "i_accept_data_loss"])]
    pub(crate) quarantined: bool,
}

#[derive(Debug, Args)]
pub(crate) struct TransferArguments {
    /// The place that shall lead; the follower with the longest log if absent.
    #[arg(long, value_name = "PLACE", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) to: Option<u32>,
    #[command(flatten)]
    pub(crate) order: OrderArguments,
}

#[derive(Debug, Args)]
pub(crate) struct DoctorArguments {
    /// Also measure how long a synced write takes in this directory (for --log disk).
    #[arg(long, value_name = "DIR")]
    pub(crate) data_dir: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct CompletionsArguments {
    /// The shell that reads the script.
    #[arg(value_enum)]
    pub(crate) shell: clap_complete::Shell,
}

#[derive(Debug, Args)]
pub(crate) struct ManArguments {
    /// The directory that a page for each command is written into; it is made if need be. Without it, the page of `trine`
    /// itself goes to standard output.
    #[arg(long, value_name = "DIR")]
    pub(crate) into: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct DemoArguments {
    /// How many replicas.
    #[arg(long, default_value = "3", value_name = "N", value_parser = ["3", "5", "7"])]
    pub(crate) replicas: String,
    /// How many keys to write, and to look for afterwards.
    #[arg(long, default_value_t = 2_000, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub(crate) keys: u32,
}

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

/// What a group stores at most unless told otherwise.
const STORE_BYTES: &str = "1GiB";

/// The limits that a new group gets; they are part of its replicated state.
#[derive(Clone, Debug, Args)]
pub(crate) struct LimitArguments {
    /// Most bytes of keys and values the group stores (used by the replica that bootstraps).
    #[arg(long, default_value = STORE_BYTES, value_name = "SIZE", value_parser = parse_store_bytes)]
    pub(crate) memory: u64,
    /// How long a replica polls for packets before it sleeps.
    #[arg(long, default_value = "50us", value_name = "TIME", value_parser = parse_duration)]
    pub(crate) spin: Duration,
}

/// How a replica answers linearizable reads while it leads.
#[derive(Clone, Debug, Args)]
pub(crate) struct ReadArguments {
    /// How linearizable reads are confirmed. Each leader goes by its own setting: give all replicas the same.
    #[arg(long, default_value = "index", value_enum)]
    pub(crate) reads: Reads,
    /// With --reads lease: by how much two replicas' clocks may drift apart during one election timeout. A larger
    /// drift than this can make a read old.
    #[arg(long, default_value = "10ms", value_name = "TIME", value_parser = parse_duration)]
    pub(crate) lease_drift: Duration,
}

/// Where a replica keeps what it has promised.
#[derive(Clone, Debug, Args)]
pub(crate) struct LogArguments {
    /// memory: log and store in DRAM, a replica that comes back is a new one. disk: the log is on disk before anything
    /// is acknowledged, and a replica goes on where it was.
    #[arg(long, default_value = "memory", value_enum)]
    pub(crate) log: LogMode,
    /// With --log disk: the directory; it belongs to one replica of one group (trine up and trine chaos: a directory
    /// for each replica in it).
    #[arg(long, value_name = "DIR")]
    pub(crate) data_dir: Option<PathBuf>,
    /// With --log disk: when a write counts as durable.
    #[arg(long, default_value = "batch", value_enum)]
    pub(crate) fsync: FsyncMode,
}

/// Where the log is.
#[derive(Copy, Clone, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum LogMode {
    /// In DRAM.
    Memory,
    /// In files.
    Disk,
}

/// When a write to the log counts as durable.
#[derive(Copy, Clone, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum FsyncMode {
    /// Each write is synced by itself.
    Each,
    /// One sync for all that has arrived during the last one.
    Batch,
    /// Nothing is synced before an orderly stop; after any other end the memory counts as lost.
    None,
}

/// How soon a silent leader is replaced.
#[derive(Clone, Debug, Args)]
pub(crate) struct TimingArguments {
    /// The least silence of a leader after which another one is elected; each replica draws up to twice this. Shorter
    /// means quicker failover and more false alarms. Part of the group from its beginning: a replica with a shorter one
    /// lengthens it to the group's.
    #[arg(long, default_value = "150ms", value_name = "TIME", value_parser = parse_election_timeout)]
    pub(crate) election_timeout: Duration,
}

/// From 3 ms, below which a tick would be shorter than a thread's wait for its turn.
fn parse_election_timeout(text: &str) -> Result<Duration, String> {
    let timeout = parse_positive_duration(text)?;
    if (Duration::from_millis(3)..=Duration::from_secs(60)).contains(&timeout) {
        Ok(timeout)
    } else {
        Err("at least 3ms and at most 60s".to_owned())
    }
}

/// How linearizable reads are confirmed.
#[derive(Copy, Clone, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Reads {
    /// A majority is asked, once for all reads that have arrived; assumes nothing about clocks.
    Index,
    /// The leader answers alone while a majority has promised to elect nobody else; assumes --lease-drift.
    Lease,
}

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

#[derive(Debug, Args)]
pub(crate) struct LogLevelArguments {
    /// The level: off, error, warn, info, debug or trace, and the same by part, as in warn,raft=debug; nothing shows
    /// what it is.
    #[arg(value_name = "LEVEL")]
    pub(crate) level: Option<String>,
    /// The replica's metrics endpoint, on this machine.
    #[arg(long, env = "TRINE_METRICS", value_name = "HOST:PORT")]
    pub(crate) at: String,
}

#[derive(Debug, Args)]
pub(crate) struct PutArguments {
    /// The key.
    pub(crate) key: OsString,
    /// The value; - or nothing reads it from standard input, @FILE from a file.
    pub(crate) value: Option<OsString>,
    /// Say where the time of the write went, stage by stage.
    #[arg(long)]
    pub(crate) timing: bool,
    #[command(flatten)]
    pub(crate) client: ClientArguments,
}

#[derive(Debug, Args)]
pub(crate) struct GetArguments {
    /// The key.
    pub(crate) key: OsString,
    /// Take what the nearest replica has, also without a quorum; it may be old.
    #[arg(long, conflicts_with = "from")]
    pub(crate) stale: bool,
    /// Which replica reads. Never old: a follower first asks the leader how far it has to be.
    #[arg(long, default_value = "leader", value_enum)]
    pub(crate) from: ReadFrom,
    #[command(flatten)]
    pub(crate) client: ClientArguments,
}

/// Which replica does a linearizable read.
#[derive(Copy, Clone, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ReadFrom {
    /// The one that leads.
    Leader,
    /// One that follows, to spare the leader; the leader if there is no other.
    Follower,
    /// Each in turn.
    Any,
}

#[derive(Debug, Args)]
pub(crate) struct DelArguments {
    /// The key.
    pub(crate) key: OsString,
    #[command(flatten)]
    pub(crate) client: ClientArguments,
}

#[derive(Debug, Args)]
pub(crate) struct TopArguments {
    /// Seconds between two looks at the group.
    #[arg(default_value = "1", value_name = "SECONDS", value_parser = parse_seconds)]
    pub(crate) seconds: f64,
    /// Keys that break the group: let a replica stand still, block a link, heal. The replicas have to run on this
    /// machine and to have been started with --lab, as those of `trine up` are.
    #[arg(long)]
    pub(crate) lab: bool,
    #[command(flatten)]
    pub(crate) group: GroupArguments,
}

#[derive(Debug, Args)]
pub(crate) struct StatArguments {
    /// Seconds between two lines.
    #[arg(default_value = "1", value_name = "SECONDS", value_parser = parse_seconds)]
    pub(crate) seconds: f64,
    /// How many lines; until Ctrl-C if absent.
    #[arg(value_name = "COUNT", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) count: Option<u64>,
    #[command(flatten)]
    pub(crate) group: GroupArguments,
}

#[derive(Debug, Args)]
pub(crate) struct LatencyArguments {
    /// How long to measure; Ctrl-C ends it early.
    #[arg(long = "for", default_value = "3s", value_name = "TIME", value_parser = parse_positive_duration)]
    pub(crate) duration: Duration,
    #[command(flatten)]
    pub(crate) client: ClientArguments,
}

#[derive(Debug, Subcommand)]
pub(crate) enum TraceCommand {
    /// Write a value and draw a bar for each stage of the write.
    Put(TracePutArguments),
}

#[derive(Debug, Args)]
pub(crate) struct TracePutArguments {
    /// The key.
    pub(crate) key: OsString,
    /// The value; - or nothing reads it from standard input, @FILE from a file.
    pub(crate) value: Option<OsString>,
    #[command(flatten)]
    pub(crate) client: ClientArguments,
}

#[derive(Debug, Args)]
pub(crate) struct ShellArguments {
    #[command(flatten)]
    pub(crate) client: ClientArguments,
}

#[derive(Debug, Args)]
pub(crate) struct StatusArguments {
    #[command(flatten)]
    pub(crate) group: GroupArguments,
}

#[derive(Debug, Args)]
pub(crate) struct BenchArguments {
    /// What is measured: trine://HOST:PORT,... (without hosts the group of --peers), redis://HOST:PORT or
    /// etcd://HOST:PORT,... Several are measured in turn, with the same operations.
    #[arg(long = "target", value_name = "URL")]
    pub(crate) targets: Vec<Url>,
    /// How often each target is measured; the middle round counts.
    #[arg(long, default_value_t = 1, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=101))]
    pub(crate) rounds: u32,
    /// A workload of YCSB: A, B, C, D or F, with its distribution of keys and values of 1000 bytes unless said otherwise.
    #[arg(long, value_name = "LETTER", conflicts_with = "read_ratio")]
    pub(crate) workload: Option<Workload>,
    /// How keys are chosen; evenly, or as the workload says, if absent.
    #[arg(long, value_enum, value_name = "HOW")]
    pub(crate) distribution: Option<Distribution>,
    /// Clients that work at the same time; each waits for its answer before it asks again.
    #[arg(long, default_value_t = 16, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=i64::from(CLIENTS_MAX)))]
    pub(crate) clients: u32,
    /// Operations that each client has under way at the same time.
    #[arg(long, default_value_t = 1, value_name = "N", conflicts_with = "rate", value_parser = clap::value_parser!(u32).range(1..=64))]
    pub(crate) pipeline: u32,
    /// Open loop: this many operations a second are due, whether the answers come or not.
    #[arg(long, value_name = "OPS", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) rate: Option<u64>,
    /// Bytes of each value; 100, or 1000 with --workload, if absent.
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes)]
    pub(crate) value_size: Option<u64>,
    /// The share of reads, for example 50% or 0.95.
    #[arg(long, default_value = "50%", value_name = "SHARE")]
    pub(crate) read_ratio: Ratio,
    /// How many different keys there are at the beginning.
    #[arg(long, default_value_t = 100_000, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=100_000_000))]
    pub(crate) keys: u64,
    /// How long to measure.
    #[arg(long = "for", default_value = "10s", value_name = "TIME", value_parser = parse_positive_duration)]
    pub(crate) duration: Duration,
    /// How long to run before measuring.
    #[arg(long, default_value = "1s", value_name = "TIME", value_parser = parse_duration)]
    pub(crate) warmup: Duration,
    /// The seed of keys and of the order of reads and writes.
    #[arg(long, default_value_t = 1, value_name = "N")]
    pub(crate) seed: u64,
    /// Compare with the results in this file, which --json has printed; refused for another machine or other settings.
    #[arg(long, value_name = "FILE")]
    pub(crate) compare: Option<PathBuf>,
    /// Compare also what is not comparable.
    #[arg(long, requires = "compare")]
    pub(crate) force: bool,
    /// Write a report with plots of throughput and latency here.
    #[arg(long, value_name = "FILE")]
    pub(crate) html: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) client: ClientArguments,
}

#[derive(Debug, Args)]
pub(crate) struct SimArguments {
    /// Simulate this seed alone.
    #[arg(long, value_name = "S", conflicts_with_all = ["seeds", "from", "jobs", "twice"])]
    pub(crate) seed: Option<u64>,
    /// Print every packet, fault and change of leader.
    #[arg(long, requires = "seed", conflicts_with_all = ["shrink", "json"])]
    pub(crate) trace: bool,
    /// Print what the clients saw, a JSON line an operation.
    #[arg(long, requires = "seed", conflicts_with_all = ["shrink", "json"])]
    pub(crate) history: bool,
    /// Take away faults and clients as long as the run still fails.
    #[arg(long, requires = "seed")]
    pub(crate) shrink: bool,
    /// How many seeds to simulate.
    #[arg(long, default_value_t = 100, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) seeds: u64,
    /// The first of them.
    #[arg(long, default_value_t = 1, value_name = "S")]
    pub(crate) from: u64,
    /// How many threads simulate, a seed each.
    #[arg(long, default_value_t = 1, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1024))]
    pub(crate) jobs: u64,
    /// Run each seed a second time and compare the histories.
    #[arg(long)]
    pub(crate) twice: bool,
    /// Simulate these kinds of fault instead of those that each seed draws: names with commas between, or `none`.
    #[arg(long, value_name = "NAMES")]
    pub(crate) faults: Option<FaultSet>,
    /// How many machines clients run on, with --seed.
    #[arg(long, value_name = "N", requires = "seed")]
    pub(crate) client_machines: Option<usize>,
    /// How many clients run on each of them, with --seed.
    #[arg(long = "clients", value_name = "N", requires = "seed")]
    pub(crate) clients_per_machine: Option<usize>,
    /// The simulated time in which faults happen, with --seed.
    #[arg(long, value_name = "TIME", requires = "seed", value_parser = parse_positive_duration)]
    pub(crate) faulty: Option<Duration>,
    /// Measure how fast the simulator is, with and without faults, on one thread; with --seed only replay one of these
    /// runs, with `--faults none` one of those without.
    #[arg(long, conflicts_with_all = ["seeds", "from", "jobs", "twice"])]
    pub(crate) measure: bool,
}

#[derive(Debug, Args)]
pub(crate) struct CacheArguments {
    #[command(subcommand)]
    pub(crate) command: CacheCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum CacheCommand {
    /// Run a cache: a fixed amount of memory, one copy, the oldest items make room for new ones.
    Serve(CacheServeArguments),
    /// Write a value; it stays until it is deleted or newer ones need its room.
    Put(CachePutArguments),
    /// Read a value and print its raw bytes; exit status 1 if it is not there (any more).
    Get(CacheKeyArguments),
    /// Delete a key; exit status 1 if there was none.
    Del(CacheKeyArguments),
    /// Show what every thread of the cache has done.
    Stats(CacheStatsArguments),
}

#[derive(Debug, Args)]
pub(crate) struct CacheServeArguments {
    /// Where the first thread listens; the others take the ports that follow.
    #[arg(long, env = "TRINE_CACHE", default_value = CACHE_ADDRESS, value_name = "HOST:PORT")]
    pub(crate) listen: String,
    /// Listen on an address that other machines reach. There is no encryption and no authentication.
    #[arg(long)]
    pub(crate) allow_remote: bool,
    /// Threads, each with a part of the keys, of the memory, and a port of its own.
    #[arg(long, default_value_t = 1, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=i64::from(CACHE_THREADS_MAX)))]
    pub(crate) threads: u32,
    /// Bytes for items and index, all threads together; message buffers come on top.
    #[arg(long, default_value = "1GiB", value_name = "SIZE", value_parser = parse_bytes)]
    pub(crate) memory: u64,
    /// How long a thread polls for packets before it sleeps.
    #[arg(long, default_value = "50us", value_name = "TIME", value_parser = parse_duration)]
    pub(crate) spin: Duration,
}

/// How a cache command finds the cache.
#[derive(Debug, Args)]
pub(crate) struct CacheClientArguments {
    /// The cache's address: where its first thread listens.
    #[arg(long, env = "TRINE_CACHE", default_value = CACHE_ADDRESS, value_name = "HOST:PORT")]
    pub(crate) connect: String,
    /// Give up after this long. A write may then still have happened; the error says whether that is so.
    #[arg(long, default_value = "5s", value_name = "TIME", value_parser = parse_positive_duration)]
    pub(crate) timeout: Duration,
}

#[derive(Debug, Args)]
pub(crate) struct CachePutArguments {
    /// The key.
    pub(crate) key: OsString,
    /// The value; - or nothing reads it from standard input, @FILE from a file.
    pub(crate) value: Option<OsString>,
    #[command(flatten)]
    pub(crate) client: CacheClientArguments,
}

#[derive(Debug, Args)]
pub(crate) struct CacheKeyArguments {
    /// The key.
    pub(crate) key: OsString,
    #[command(flatten)]
    pub(crate) client: CacheClientArguments,
}

#[derive(Debug, Args)]
pub(crate) struct CacheStatsArguments {
    #[command(flatten)]
    pub(crate) client: CacheClientArguments,
}

impl LimitArguments {
    /// The same, as options of `trine serve`.
    pub(crate) fn as_serve_args(&self) -> Vec<OsString> {
        let spin = format!("{}ns", self.spin.as_nanos());
        [
            "--memory".into(),
            self.memory.to_string().into(),
            "--spin".into(),
            spin.into(),
        ]
        .into()
    }
}

impl ReadArguments {
    /// The same, as options of `trine serve`.
    pub(crate) fn as_serve_args(&self) -> Vec<OsString> {
        let reads = match self.reads {
            Reads::Index => "index",
            Reads::Lease => "lease",
        };
        let drift = format!("{}ns", self.lease_drift.as_nanos());
        ["--reads", reads, "--lease-drift", &drift]
            .map(OsString::from)
            .into()
    }
}

impl TimingArguments {
    /// The same, as options of `trine serve`.
    pub(crate) fn as_serve_args(&self) -> Vec<OsString> {
        let timeout = format!("{}ns", self.election_timeout.as_nanos());
        ["--election-timeout".into(), timeout.into()].into()
    }
}

impl LimitArguments {
    /// Whether the machine has what so many replicas on it may store. What nobody asked for keeps nobody from starting: a
    /// small machine serves a small group by the default, too, which takes memory as it is filled.
    pub(crate) fn require_memory(&self, replicas: u64) -> Result<(), Failure> {
        match parse_store_bytes(STORE_BYTES) {
            Ok(default) if self.memory <= default => Ok(()),
            _ => placement::require_memory(self.memory, replicas),
        }
    }
}

impl LogArguments {
    /// Whether the options fit together: who wants a log on disk says where, and who gives a directory wants to find the
    /// data there.
    pub(crate) fn check(&self) -> Result<(), Failure> {
        match &self.data_dir {
            Some(path) if self.log == LogMode::Memory => Err(Failure::usage(
                format!(
                    "--data-dir {} means nothing while the log is in memory",
                    path.display()
                ),
                "add --log disk to keep the data there, or leave --data-dir out",
            )),
            None if self.log == LogMode::Disk => Err(Failure::usage(
                "the log is to be on disk, and no directory is given for it",
                "name one with --data-dir DIR, or leave --log disk out",
            )),
            _ => Ok(()),
        }
    }

    /// The directory, in disk mode.
    pub(crate) fn directory(&self) -> Option<&PathBuf> {
        self.data_dir.as_ref().filter(|_| self.log == LogMode::Disk)
    }

    /// The same, as options of `trine serve` for the replica of each place.
    pub(crate) fn as_serve_args(&self) -> Vec<OsString> {
        let Some(directory) = self.directory() else {
            return Vec::new();
        };
        let fsync = match self.fsync {
            FsyncMode::Each => "each",
            FsyncMode::Batch => "batch",
            FsyncMode::None => "none",
        };
        let own = directory.join("replica-{place}");
        let words = ["--log", "disk", "--fsync", fsync, "--rejoin", "--data-dir"];
        let mut args: Vec<OsString> = words.map(OsString::from).into();
        args.push(own.into());
        args
    }
}

/// The number behind an option that clap has checked against "3", "5" and "7".
pub(crate) fn replica_count(checked: &str) -> usize {
    checked.parse().expect("clap admits only 3, 5 and 7")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A machine of 2 GiB was refused three replicas of the default, 1 GiB, that nobody had asked for.
    #[test]
    fn the_default_starts_on_every_machine() {
        let limits = |memory| LimitArguments {
            memory,
            spin: Duration::ZERO,
        };
        let default = parse_store_bytes(STORE_BYTES).expect("a size");
        assert!(limits(default).require_memory(u64::MAX).is_ok());
        let failure = limits(default + 1).require_memory(u64::MAX);
        assert_eq!(failure.expect_err("refused").exit_status(), 2);
    }

    #[test]
    fn the_definition_is_consistent() {
        command_line().debug_assert();
    }

    #[test]
    fn the_chaos_line_of_the_documents_parses() {
        let line = "trine chaos --loss 5% --dup 1% --reorder 2% --clients 8 --for 20s --seed 7 --kill-leader-every 5s";
        let arguments = Arguments::try_parse_from(line.split(' ')).expect("parses");
        let Some(Command::Chaos(chaos)) = arguments.command else {
            panic!("not chaos")
        };
        assert_eq!(chaos.loss, Ratio::percent(5));
        assert_eq!(chaos.kill_leader_every, Some(Duration::from_secs(5)));
        assert_eq!((chaos.clients, chaos.seed), (8, 7));
    }

    /// `trine status --capture FILE` was taken, and left no file: what asks each replica by itself captures nothing.
    #[test]
    fn what_would_capture_nothing_takes_no_capture() {
        for line in ["status", "member list", "stat", "top", "debug bundle"] {
            let line = format!("trine {line} --capture x");
            let refused = Arguments::try_parse_from(line.split(' ')).expect_err(&line);
            assert_eq!(refused.kind(), clap::error::ErrorKind::UnknownArgument);
        }
    }
}
