//! The options of `trine sim`.

use std::time::Duration;

use clap::Args;
use trine_base::units::parse_positive_duration;
use trine_chaos::fault::FaultSet;

/// What excludes `--seed`: clap forgets that an option requires it if one of these is given.
const WITHOUT_SEED: [&str; 5] = ["seeds", "first_seed", "threads", "twice", "planted_bugs"];

#[derive(Debug, Args)]
pub(crate) struct SimArguments {
    /// Simulate only this seed.
    #[arg(long, value_name = "N", conflicts_with_all = ["seeds", "first_seed", "threads", "twice"])]
    pub(crate) seed: Option<u64>,
    /// Print every packet, fault and change of leader.
    #[arg(long, requires = "seed", conflicts_with_all = ["shrink", "json"], conflicts_with_all = WITHOUT_SEED)]
    pub(crate) trace: bool,
    /// Print what the clients observed, one JSON line per operation.
    #[arg(long = "print-history", alias = "history", requires = "seed", conflicts_with_all = ["shrink", "json"], conflicts_with_all = WITHOUT_SEED)]
    pub(crate) history: bool,
    /// Remove faults and clients as long as the run still fails.
    #[arg(long, requires = "seed", conflicts_with_all = WITHOUT_SEED)]
    pub(crate) shrink: bool,
    /// Number of seeds to simulate.
    #[arg(long, default_value_t = 100, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) seeds: u64,
    /// First seed to simulate.
    #[arg(long, alias = "from", default_value_t = 1, value_name = "N")]
    pub(crate) first_seed: u64,
    /// Number of threads, each of which simulates one seed at a time.
    #[arg(long, alias = "jobs", default_value_t = 1, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1024))]
    pub(crate) threads: u64,
    /// Run each seed twice and compare the histories.
    #[arg(long)]
    pub(crate) twice: bool,
    /// Simulate these kinds of fault instead of those that the seed selects: a list with commas, or `none`.
    #[arg(long = "fault-kinds", alias = "faults", value_name = "LIST")]
    pub(crate) faults: Option<FaultSet>,
    /// With --seed: number of machines that run clients.
    #[arg(long, value_name = "N", requires = "seed", conflicts_with_all = WITHOUT_SEED)]
    pub(crate) client_machines: Option<usize>,
    /// With --seed: number of clients on each machine.
    #[arg(long, alias = "clients", value_name = "N", requires = "seed", conflicts_with_all = WITHOUT_SEED)]
    pub(crate) clients_per_machine: Option<usize>,
    /// With --seed: simulated time during which faults happen.
    #[arg(long, value_name = "TIME", requires = "seed", conflicts_with_all = WITHOUT_SEED, value_parser = parse_positive_duration)]
    pub(crate) faulty: Option<Duration>,
    /// Simulate only groups with keys: packets are sealed, even if the seed selects a group without keys.
    #[arg(long, conflicts_with_all = ["measure", "rpc", "planted_bugs"])]
    pub(crate) sealed: bool,
    /// Measure the speed of the simulator, with and without faults, on one thread. With --seed, only replay one of
    /// these runs: with `--fault-kinds none`, one without faults.
    #[arg(long, conflicts_with_all = ["seeds", "first_seed", "threads", "twice"])]
    pub(crate) measure: bool,
    /// Simulate only the transport: a client, and a server with known replies.
    #[arg(
        long,
        conflicts_with_all = ["history", "client_machines", "clients_per_machine", "measure"]
    )]
    pub(crate) rpc: bool,
    /// Simulate sequencers, and check that numbers are unique and increase.
    #[arg(
        long,
        conflicts_with_all = ["rpc", "sealed", "history", "client_machines", "clients_per_machine", "measure"]
    )]
    pub(crate) sequencer: bool,
    /// Search for each bug planted in the program, or only for the named one. Only builds with debug assertions contain
    /// these bugs, such as those of `--profile sim`.
    #[arg(
        long,
        value_name = "NAME",
        num_args = 0..=1,
        default_missing_value = "all",
        conflicts_with_all = ["seed", "seeds", "first_seed", "twice", "rpc", "sequencer", "shrink", "history", "faults", "measure"]
    )]
    pub(crate) planted_bugs: Option<String>,
    /// With --planted-bugs: start shortly before the seed that last found the bug.
    #[arg(long, requires = "planted_bugs")]
    pub(crate) short: bool,
}
