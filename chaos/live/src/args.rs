//! The options of `trine chaos`.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser as _};
use trine_chaos::fault::Fault;
use trine_transport::prng::Ratio;

use trine_base::units::parse_positive_duration;
use trine_server::options::LogArguments;

/// The options of `trine chaos`.
#[derive(Debug, Args)]
pub struct ChaosArguments {
    /// Share of packets to drop on every link, including those of clients.
    #[arg(long, default_value = "0", value_name = "SHARE")]
    pub loss: Ratio,
    /// Share of packets to duplicate.
    #[arg(long = "dup", default_value = "0", value_name = "SHARE")]
    pub duplicate: Ratio,
    /// Share of packets to reorder.
    #[arg(long, default_value = "0", value_name = "SHARE")]
    pub reorder: Ratio,
    /// Share of packets to corrupt.
    #[arg(long, default_value = "0", value_name = "SHARE")]
    pub corrupt: Ratio,
    /// Kill the leader at this interval (SIGKILL), and restart it.
    #[arg(long, value_name = "TIME", value_parser = parse_positive_duration)]
    pub kill_leader_every: Option<Duration>,
    /// With --log disk: kill all replicas at once at this interval (SIGKILL), and restart them.
    #[arg(long, value_name = "TIME", value_parser = parse_positive_duration, requires = "data_dir", conflicts_with = "kill_leader_every")]
    pub kill_all_every: Option<Duration>,
    /// Inject these kinds of fault one after the other, each at least once; the seed determines times and replicas.
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = live_faults())]
    pub faults: Vec<Fault>,
    /// With --faults: approximate time between two faults.
    #[arg(long, default_value = "4s", value_name = "TIME", value_parser = parse_positive_duration, requires = "faults")]
    pub fault_every: Duration,
    /// Start with this program, the `trine` of an earlier release. Its replicas are replaced one by one by this
    /// program, then by PROGRAM, then by this program again, while clients of both run.
    #[arg(long, value_name = "PROGRAM", conflicts_with_all = [
        "faults", "kill_leader_every", "kill_all_every", "netns",
    ])]
    pub upgrade_from: Option<PathBuf>,
    /// As root: use separate network namespaces, in which the kernel (nftables) cuts and damages links. They exist only
    /// during the run; this machine's own rules and interfaces are not touched.
    #[arg(long)]
    pub netns: bool,
    /// Where the replicas keep their logs.
    #[command(flatten)]
    pub log: LogArguments,
    /// Number of concurrent clients.
    #[arg(long, default_value_t = 8, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=256))]
    pub clients: u32,
    /// How long the clients run.
    #[arg(long = "for", default_value = "20s", value_name = "TIME", value_parser = parse_positive_duration)]
    pub duration: Duration,
    /// Seed for faults, keys and operations.
    #[arg(long, default_value_t = 1, value_name = "N")]
    pub seed: u64,
    /// Number of replicas.
    #[arg(long, default_value = "3", value_name = "N", value_parser = ["3", "5", "7"])]
    pub replicas: String,
    /// Number of keys that the clients contend for.
    #[arg(long, default_value_t = 64, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub keys: u32,
    /// Write the whole history to this file, one JSON line per operation.
    #[arg(long, value_name = "FILE")]
    pub history: Option<PathBuf>,
    /// Write a report to this file: operations, faults and leaders over time, and after a violation the operations that
    /// prove it.
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
    /// Instead of running: check the history of an earlier run, written with --history.
    #[arg(long, value_name = "FILE", conflicts_with_all = [
        "loss", "duplicate", "reorder", "corrupt", "kill_leader_every", "kill_all_every", "faults", "fault_every",
        "upgrade_from", "netns", "clients", "duration", "seed", "replicas", "keys", "history", "html",
    ])]
    pub check: Option<PathBuf>,
}

impl ChaosArguments {
    /// The requested faults that need something of the run's own: see [`needs_networks`] and [`needs_small_disks`].
    pub(crate) fn faults_that(&self, need_it: fn(Fault) -> bool) -> Vec<Fault> {
        let mut faults = self.faults.clone();
        faults.retain(|&fault| need_it(fault));
        faults
    }
}

/// Whether a fault can only happen in networks of the run's own.
pub(crate) fn needs_networks(fault: Fault) -> bool {
    fault.live().is_some_and(|live| live.networks)
}

/// Whether a fault can only happen to replicas with small disks of their own.
pub(crate) fn needs_small_disks(fault: Fault) -> bool {
    fault.live().is_some_and(|live| live.small_disks)
}

/// Parses the names of the faults that can happen to processes.
fn live_faults() -> impl clap::builder::TypedValueParser<Value = Fault> {
    let value = |fault: Fault| {
        let live = fault.live().expect("it is listed as one");
        PossibleValue::new(fault.name()).help(live.about)
    };
    let named = |name: String| Fault::LIVE.into_iter().find(|fault| fault.name() == name);
    PossibleValuesParser::new(Fault::LIVE.map(value))
        .map(move |name| named(name).expect("only these names are possible"))
}

/// The options after a command's name, as the whole command line parses them.
#[cfg(test)]
pub(crate) fn parse<'a>(
    options: impl IntoIterator<Item = &'a str>,
) -> Result<ChaosArguments, clap::Error> {
    #[derive(clap::Parser)]
    struct Line {
        #[command(flatten)]
        chaos: ChaosArguments,
    }
    let line = ["chaos"].into_iter().chain(options);
    <Line as clap::Parser>::try_parse_from(line).map(|line| line.chaos)
}
