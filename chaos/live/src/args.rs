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
    /// The share of packets to lose, on every link, the clients' included.
    #[arg(long, default_value = "0", value_name = "SHARE")]
    pub loss: Ratio,
    /// The share of packets to send twice.
    #[arg(long = "dup", default_value = "0", value_name = "SHARE")]
    pub duplicate: Ratio,
    /// The share of packets to let others overtake.
    #[arg(long, default_value = "0", value_name = "SHARE")]
    pub reorder: Ratio,
    /// The share of packets to damage.
    #[arg(long, default_value = "0", value_name = "SHARE")]
    pub corrupt: Ratio,
    /// Kill the leader this often (SIGKILL), and start it again.
    #[arg(long, value_name = "TIME", value_parser = parse_positive_duration)]
    pub kill_leader_every: Option<Duration>,
    /// With --log disk: kill all replicas at once this often (SIGKILL), and start them again.
    #[arg(long, value_name = "TIME", value_parser = parse_positive_duration, requires = "data_dir", conflicts_with = "kill_leader_every")]
    pub kill_all_every: Option<Duration>,
    /// Faults that come one after the other, each kind at least once, at times and upon replicas that the seed draws.
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = live_faults())]
    pub faults: Vec<Fault>,
    /// With --faults: the time from one to the next, about.
    #[arg(long, default_value = "4s", value_name = "TIME", value_parser = parse_positive_duration, requires = "faults")]
    pub fault_every: Duration,
    /// Begin with this program, the `trine` of an earlier release. Its replicas are replaced one by one by this program, then
    /// by PROGRAM, then by this program again, while clients of both work.
    #[arg(long, value_name = "PROGRAM", conflicts_with_all = [
        "faults", "kill_leader_every", "kill_all_every", "netns",
    ])]
    pub upgrade_from: Option<PathBuf>,
    /// As root: give the run networks of its own, in which the kernel (nftables) cuts and damages links. They are made
    /// for the run and go with it; this machine's own rules and interfaces are not touched.
    #[arg(long)]
    pub netns: bool,
    /// Where the replicas keep their logs.
    #[command(flatten)]
    pub log: LogArguments,
    /// Clients that work at the same time.
    #[arg(long, default_value_t = 8, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=256))]
    pub clients: u32,
    /// How long the clients work.
    #[arg(long = "for", default_value = "20s", value_name = "TIME", value_parser = parse_positive_duration)]
    pub duration: Duration,
    /// The seed of faults, keys and operations.
    #[arg(long, default_value_t = 1, value_name = "N")]
    pub seed: u64,
    /// How many replicas.
    #[arg(long, default_value = "3", value_name = "N", value_parser = ["3", "5", "7"])]
    pub replicas: String,
    /// How many keys the clients fight over.
    #[arg(long, default_value_t = 64, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub keys: u32,
    /// Write the whole history here, one JSON line an operation.
    #[arg(long, value_name = "FILE")]
    pub history: Option<PathBuf>,
    /// Write a report here: operations, faults and leaders over time, and on a violation the operations that show it.
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
    /// Instead of a run: judge what an earlier one kept with --history.
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
