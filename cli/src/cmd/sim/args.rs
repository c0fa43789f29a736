//! The options of `trine sim`.

use std::time::Duration;

use clap::Args;
use trine_base::units::parse_positive_duration;
use trine_chaos::fault::FaultSet;

/// What excludes `--seed`: clap forgets that an option requires it if one of these is given.
const WITHOUT_SEED: [&str; 5] = ["seeds", "first_seed", "threads", "twice", "planted_bugs"];

#[derive(Debug, Args)]
pub(crate) struct SimArguments {
    /// Simulate this seed alone.
    #[arg(long, value_name = "N", conflicts_with_all = ["seeds", "first_seed", "threads", "twice"])]
    pub(crate) seed: Option<u64>,
    /// Print every packet, fault and change of leader.
    #[arg(long, requires = "seed", conflicts_with_all = ["shrink", "json"], conflicts_with_all = WITHOUT_SEED)]
    pub(crate) trace: bool,
    /// Print what the clients saw, a JSON line an operation.
    #[arg(long = "print-history", alias = "history", requires = "seed", conflicts_with_all = ["shrink", "json"], conflicts_with_all = WITHOUT_SEED)]
    pub(crate) history: bool,
    /// Take away faults and clients as long as the run still fails.
    #[arg(long, requires = "seed", conflicts_with_all = WITHOUT_SEED)]
    pub(crate) shrink: bool,
    /// How many seeds to simulate.
    #[arg(long, default_value_t = 100, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) seeds: u64,
    /// The first of them.
    #[arg(long, alias = "from", default_value_t = 1, value_name = "N")]
    pub(crate) first_seed: u64,
    /// How many threads simulate, a seed each.
    #[arg(long, alias = "jobs", default_value_t = 1, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1024))]
    pub(crate) threads: u64,
    /// Run each seed a second time and compare the histories.
    #[arg(long)]
    pub(crate) twice: bool,
    /// Simulate these kinds of fault instead of those that each seed draws: names with commas between, or `none`.
    #[arg(long = "fault-kinds", alias = "faults", value_name = "LIST")]
    pub(crate) faults: Option<FaultSet>,
    /// How many machines clients run on, with --seed.
    #[arg(long, value_name = "N", requires = "seed", conflicts_with_all = WITHOUT_SEED)]
    pub(crate) client_machines: Option<usize>,
    /// How many clients run on each of them, with --seed.
    #[arg(long, alias = "clients", value_name = "N", requires = "seed", conflicts_with_all = WITHOUT_SEED)]
    pub(crate) clients_per_machine: Option<usize>,
    /// The simulated time in which faults happen, with --seed.
    #[arg(long, value_name = "TIME", requires = "seed", conflicts_with_all = WITHOUT_SEED, value_parser = parse_positive_duration)]
    pub(crate) faulty: Option<Duration>,
    /// Simulate groups with keys only: packets are sealed, also where a seed draws a group without keys.
    #[arg(long, conflicts_with_all = ["measure", "rpc", "planted_bugs"])]
    pub(crate) sealed: bool,
    /// Measure how fast the simulator is, with and without faults, on one thread; with --seed only replay one of these
    /// runs, with `--fault-kinds none` one of those without.
    #[arg(long, conflicts_with_all = ["seeds", "first_seed", "threads", "twice"])]
    pub(crate) measure: bool,
    /// Simulate the transport alone: a client and a server whose answers are known.
    #[arg(
        long,
        conflicts_with_all = ["history", "client_machines", "clients_per_machine", "measure"]
    )]
    pub(crate) rpc: bool,
    /// Simulate sequencers: each number has to come once, and numbers have to grow.
    #[arg(
        long,
        conflicts_with_all = ["rpc", "sealed", "history", "client_machines", "clients_per_machine", "measure"]
    )]
    pub(crate) sequencer: bool,
    /// Search for each bug that is planted in the program, or for the one that is named. Only builds with debug
    /// assertions have them, as `--profile sim` makes.
    #[arg(
        long,
        value_name = "NAME",
        num_args = 0..=1,
        default_missing_value = "all",
        conflicts_with_all = ["seed", "seeds", "first_seed", "twice", "rpc", "sequencer", "shrink", "history", "faults", "measure"]
    )]
    pub(crate) planted_bugs: Option<String>,
    /// With --planted-bugs: begin shortly before the seed that found the bug last.
    #[arg(long, requires = "planted_bugs")]
    pub(crate) short: bool,
}
