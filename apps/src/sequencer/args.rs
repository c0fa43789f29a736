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
    /// Run a sequencer: each request gets numbers that no other request gets, larger than all before.
    Serve(SequencerServeArguments),
    /// Take numbers and print them, a line each.
    Next(SequencerNextArguments),
    /// Show what a thread of the sequencer has done, and what it has reserved.
    Stats(SequencerStatsArguments),
    /// Measure how many requests a sequencer answers, and check that its numbers grow.
    Bench(SequencerBenchArguments),
}

/// The options of `trine sequencer serve`.
///
/// What only a group has conflicts with a file: clap forgets that an option requires another if something that
/// excludes that one is given.
#[derive(Debug, Args)]
#[command(group(ArgGroup::new("kept").args(["state", "group"]).required(true)))]
pub struct SequencerServeArguments {
    /// Where the first thread listens; the others take the ports that follow. At `0.0.0.0` or `[::]` it listens on every
    /// address of the machine, and answers from the one that was asked.
    #[arg(long, env = "TRINE_SEQUENCER_LISTEN", default_value = SEQUENCER_ADDRESS, value_name = "HOST:PORT")]
    pub listen: String,
    /// Listen on an address that other machines reach without requiring a key (--key) from callers. Whoever can send
    /// packets to the sequencer can then take numbers.
    #[arg(long)]
    pub insecure: bool,
    /// What users with a key of their own may do: lines of a name, a role (read or write) and a generation (1 if absent). Needs
    /// --key. Nobody but holders of the key file gets in without it. SIGHUP makes the server read it again.
    #[arg(long, value_name = "FILE")]
    pub users: Option<PathBuf>,
    /// How it writes lines.
    #[command(flatten)]
    pub lines: LogFormatArguments,
    /// Keep in this file which numbers are taken. It is made if it is not there, and synced before a number of it is given out.
    /// Each start skips to the next multiple of 2^40.
    #[arg(long, value_name = "FILE")]
    pub state: Option<PathBuf>,
    /// Keep in this group of replicas which numbers are taken: host:port,...
    #[arg(long, value_name = "LIST")]
    pub group: Option<String>,
    /// With --group: the name of the sequence. Servers with the same name share its numbers.
    #[arg(long, conflicts_with = "state", default_value = SEQUENCER_NAME, value_name = "NAME")]
    pub name: String,
    /// With --group: one server of a name gives out numbers at a time, so that they grow in real time. With false all of them
    /// do, each from blocks of its own: numbers still come once, and grow for clients of one server.
    #[arg(long, conflicts_with = "state", default_value_t = true, action = ArgAction::Set, num_args = 0..=1, default_missing_value = "true", value_name = "BOOL")]
    pub strict: bool,
    /// With --group and --strict: how long this server may give out numbers after the group has last heard of it. Another one
    /// takes over that much later, if this one dies.
    #[arg(long, conflicts_with = "state", default_value = "1s", value_name = "TIME", value_parser = parse_positive_duration)]
    pub lease: Duration,
    /// With --group: how many numbers one write of the group reserves.
    #[arg(long, conflicts_with = "state", default_value_t = BLOCK, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=BLOCK_MAX))]
    pub block: u64,
    /// Give out no number that is less than this, for a state that was lost or restored from a backup.
    #[arg(long, default_value_t = 0, value_name = "N")]
    pub at_least: u64,
    /// Threads. All give out the same numbers, each at a port of its own.
    #[arg(long, default_value_t = 1, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=i64::from(SEQUENCER_THREADS_MAX)))]
    pub threads: u32,
    /// How long a thread polls for packets before it sleeps.
    #[arg(long, default_value = "50us", value_name = "TIME", value_parser = parse_duration)]
    pub spin: Duration,
    /// Also take requests of four bytes, without sessions (Spec-S0), with as many threads more at the ports that follow. Needs
    /// --transport verbs, and no key: whoever can send packets to the sequencer can then take numbers.
    #[arg(long)]
    pub speculative: bool,
}

/// How a command finds the sequencer.
#[derive(Debug, Args)]
pub struct SequencerClientArguments {
    /// The sequencer's address: where its first thread listens. If several servers have the same numbers: host:port,...;
    /// whichever gives them out is asked.
    #[arg(long, env = "TRINE_SEQUENCER", default_value = SEQUENCER_ADDRESS, value_name = "HOST:PORT")]
    pub connect: String,
    /// Give up after this long. Numbers may then be skipped.
    #[arg(long, default_value = "5s", value_name = "TIME", value_parser = parse_positive_duration)]
    pub timeout: Duration,
}

/// The options of `trine sequencer next`.
#[derive(Debug, Args)]
pub struct SequencerNextArguments {
    /// How many numbers each request takes. They follow each other.
    #[arg(long, default_value_t = 1, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=i64::from(COUNT_MAX)))]
    pub count: u32,
    /// Ask by datagrams of four bytes, without a session. The server needs --speculative, too.
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
    /// Measure without a network: client and server in one thread, packets over memory.
    #[arg(long)]
    pub in_process: bool,
    /// Ask by datagrams of four bytes, without a session. The server needs --speculative, too.
    #[arg(long)]
    pub speculative: bool,
    /// With --in-process: look at a lease each turn, as a strict server of a group does.
    #[arg(long, requires = "in_process")]
    pub lease_check: bool,
    /// With --in-process: end after so many requests instead of after a time, for tools that count instructions.
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
    /// Rounds; medians are reported.
    #[arg(long, default_value_t = 3, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1_000))]
    pub rounds: u32,
}
