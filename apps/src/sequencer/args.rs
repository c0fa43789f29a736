//! The options of `trine sequencer`.

use std::path::PathBuf;
use std::time::Duration;

use clap::{ArgAction, ArgGroup, Args, Subcommand};
use trine_sequencer::config::{BLOCK, BLOCK_MAX, COUNT_MAX};

use crate::config::{
    SEQUENCER_ADDRESS, SEQUENCER_IN_PROCESS_REQUESTS_MAX, SEQUENCER_NAME, SEQUENCER_THREADS_MAX,
    SEQUENCER_WINDOW_MAX,
};
use trine_base::log_format::LogFormatArguments;
use trine_base::units::{parse_duration, parse_positive_duration};

/// The options of `trine sequencer`.
#[derive(Debug, Args)]
pub struct SequencerArguments {
    /// What to do.
    #[command(subcommand)]
    pub command: SequencerCommand,
}

/// The commands of the sequencer.
#[derive(Debug, Subcommand)]
pub enum SequencerCommand {
    /// Run a sequencer: each request gets unique numbers, larger than all before.
    Serve(SequencerServeArguments),
    /// Take numbers and print them, one per line.
    Next(SequencerNextArguments),
    /// Show the statistics of a sequencer thread, and the numbers that it has reserved.
    Stats(SequencerStatsArguments),
    /// Measure how many requests a sequencer answers, and check that its numbers increase.
    Bench(SequencerBenchArguments),
}

/// The options of `trine sequencer serve`.
///
/// What only a group has conflicts with a file: clap forgets that an option requires another if something that
/// excludes that one is given.
#[derive(Debug, Args)]
#[command(group(ArgGroup::new("kept").args(["state", "group"]).required(true)))]
pub struct SequencerServeArguments {
    /// Address of the first thread; the others use the ports after it. With `0.0.0.0` or `[::]`, the server listens on
    /// every address of the machine, and replies from the address that the request was sent to.
    #[arg(long, env = "TRINE_SEQUENCER_LISTEN", default_value = SEQUENCER_ADDRESS, value_name = "HOST:PORT")]
    pub listen: String,
    /// Listen on an address that other machines can reach, without requiring a key (--key) from callers. Any client
    /// that can send packets to the sequencer can then take numbers.
    #[arg(long)]
    pub insecure: bool,
    /// Rights of users with their own keys: each line has a name, a role (read or write) and a generation (1 if
    /// absent). Needs --key. Without this file, only holders of the key file have access. At SIGHUP, the server reads
    /// it again.
    #[arg(long, value_name = "FILE")]
    pub users: Option<PathBuf>,
    /// The format of its lines.
    #[command(flatten)]
    pub lines: LogFormatArguments,
    /// File that records which numbers are taken. It is created if it is missing, and synced before any of its numbers
    /// is given out. Each start skips to the next multiple of 2^40.
    #[arg(long, value_name = "FILE")]
    pub state: Option<PathBuf>,
    /// Group of replicas that records which numbers are taken: host:port,...
    #[arg(long, value_name = "LIST")]
    pub group: Option<String>,
    /// With --group: the name of the sequence. Servers with the same name share its numbers.
    #[arg(long, conflicts_with = "state", default_value = SEQUENCER_NAME, value_name = "NAME")]
    pub name: String,
    /// With --group: only one server of a name gives out numbers at a time, so that they increase in real time. With
    /// false, all of them do, each from its own blocks: numbers are still unique, and increase for clients of one
    /// server.
    #[arg(long, conflicts_with = "state", default_value_t = true, action = ArgAction::Set, num_args = 0..=1, default_missing_value = "true", value_name = "BOOL")]
    pub strict: bool,
    /// With --group and --strict: how long this server may give out numbers after it last heard from the group. If it
    /// dies, another server takes over that much later.
    #[arg(long, conflicts_with = "state", default_value = "1s", value_name = "TIME", value_parser = parse_positive_duration)]
    pub lease: Duration,
    /// With --group: how many numbers one write to the group reserves.
    #[arg(long, conflicts_with = "state", default_value_t = BLOCK, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=BLOCK_MAX))]
    pub block: u64,
    /// Give out no number below N, after the state was lost or restored from a backup.
    #[arg(long, default_value_t = 0, value_name = "N")]
    pub at_least: u64,
    /// Number of threads, each with its own port. All give out numbers of one sequence.
    #[arg(long, default_value_t = 1, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=i64::from(SEQUENCER_THREADS_MAX)))]
    pub threads: u32,
    /// How long a thread polls for packets before it sleeps.
    #[arg(long, default_value = "50us", value_name = "TIME", value_parser = parse_duration)]
    pub spin: Duration,
    /// Also accept requests of four bytes, without sessions (Spec-S0), with as many more threads at the ports after the
    /// others. Needs --transport verbs, and no key: any client that can send packets to the sequencer can then take
    /// numbers.
    #[arg(long)]
    pub speculative: bool,
}

/// How a command finds the sequencer.
#[derive(Debug, Args)]
pub struct SequencerClientArguments {
    /// Address of the sequencer's first thread. If several servers share a sequence: host:port,...; the one that gives
    /// out numbers is asked.
    #[arg(long, env = "TRINE_SEQUENCER", default_value = SEQUENCER_ADDRESS, value_name = "HOST:PORT")]
    pub connect: String,
    /// Give up after this long. Numbers may then be skipped.
    #[arg(long, default_value = "5s", value_name = "TIME", value_parser = parse_positive_duration)]
    pub timeout: Duration,
}

/// The options of `trine sequencer next`.
#[derive(Debug, Args)]
pub struct SequencerNextArguments {
    /// How many numbers each request takes. They are consecutive.
    #[arg(long, default_value_t = 1, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=i64::from(COUNT_MAX)))]
    pub count: u32,
    /// Send requests as datagrams of four bytes, without a session. The server needs --speculative, too.
    #[arg(long, conflicts_with = "count")]
    pub speculative: bool,
    /// Where the sequencer is.
    #[command(flatten)]
    pub client: SequencerClientArguments,
}

/// The options of `trine sequencer stats`.
#[derive(Debug, Args)]
pub struct SequencerStatsArguments {
    /// Where the sequencer is.
    #[command(flatten)]
    pub client: SequencerClientArguments,
}

/// The options of `trine sequencer bench`.
#[derive(Debug, Args)]
pub struct SequencerBenchArguments {
    /// Where the sequencer is. The first address of a list is measured.
    #[command(flatten)]
    pub client: SequencerClientArguments,
    /// Measure without a network: client and server share one thread, and packets go through memory.
    #[arg(long)]
    pub in_process: bool,
    /// Send requests as datagrams of four bytes, without a session. The server needs --speculative, too.
    #[arg(long)]
    pub speculative: bool,
    /// With --in-process: check a lease in each turn, as a strict server of a group does.
    #[arg(long, requires = "in_process")]
    pub lease_check: bool,
    /// With --in-process: stop after this many requests instead of after a fixed time; for tools that count
    /// instructions.
    #[arg(long, value_name = "N", requires = "in_process", conflicts_with = "duration", value_parser = clap::value_parser!(u64).range(1..=SEQUENCER_IN_PROCESS_REQUESTS_MAX))]
    pub requests: Option<u64>,
    /// Requests in flight.
    #[arg(long, alias = "window", default_value_t = 64, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=i64::from(SEQUENCER_WINDOW_MAX)))]
    pub pipeline: u32,
    /// How many numbers each request takes.
    #[arg(long, default_value_t = 1, value_name = "N", conflicts_with = "speculative", value_parser = clap::value_parser!(u32).range(1..=i64::from(COUNT_MAX)))]
    pub count: u32,
    /// How long each round runs.
    #[arg(long = "for", default_value = "1s", value_name = "TIME", value_parser = parse_positive_duration)]
    pub duration: Duration,
    /// Number of rounds; medians are reported.
    #[arg(long, default_value_t = 3, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1_000))]
    pub rounds: u32,
}
