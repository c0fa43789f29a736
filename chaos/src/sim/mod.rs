//! The simulator: whole clusters in one thread on virtual time.
//!
//! The real code runs: the transport's endpoint, the replica on raft, the store, the client library. The network, the
//! clocks, the machines and their deaths are simulated. Everything random is drawn from the seed, so a seed replays its
//! run byte for byte.
//!
//! [`rpc`] exercises the transport alone, with programs that know what must come back. [`numbers`] has sequencers.

mod backups;
mod bursts;
mod callers;
mod chaos;
mod clock;
mod cluster;
mod config;
mod copies;
mod counted;
mod counts;
mod deaths;
mod disk;
mod forger;
mod keeper;
mod keys;
mod machine;
mod measure;
mod member;
mod network;
pub mod numbers;
mod part;
mod paths;
mod plan;
mod player;
mod ranges;
mod register;
mod repeats;
mod report;
mod restored;
pub mod rpc;
mod run;
mod seals;
mod streams;
mod summary;
mod trace;
mod trust;
mod users;
mod walks;
mod watchers;
mod world;

pub use backups::BackupCounts;
pub use callers::{LEISURE, Pace};
pub use config::{DiskConfig, Load, OrderedFrom, QUIET_MIN, SimConfig, SimConfigError};
pub use part::{Facts, Part, PartConfig, PartReport};
pub use plan::Plan;
pub use report::SimReport;
pub use run::{Report, Run};
pub use summary::Summary;
pub use trace::Trace;
pub use watchers::WatchCounts;

use self::chaos::Chaos;
use self::cluster::Cluster;
use self::run::halved;
use crate::fault::{Fault, Need, Schedule, draw_disk_kinds, draw_kinds, draw_sealed_kinds};
use std::any::Any;
use std::collections::BTreeSet;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::panic::{AssertUnwindSafe, catch_unwind};
use trine_replica::config::ReadMode;
use trine_transport::app::App;
use trine_transport::endpoint::Endpoint;
use trine_transport::prng::Prng;
use trine_transport::time::{Duration, Instant};

/// Time that the last reading of all keys may take: sixty keys, by a client that pauses up to a quarter of a second.
const READING: Duration = Duration::from_secs(15);

/// Simulates one run and judges it.
///
/// # Errors
/// When the configuration cannot be simulated.
pub fn run(config: SimConfig, trace: Trace) -> Result<SimReport, SimConfigError> {
    run_while(config, trace, || true)
}

/// Simulates one run as long as `go_on` says so, and judges the result. A run that was ended early is never a pass: its
/// verdict is a violation, if it has shown one, or undecided.
///
/// # Errors
/// When the configuration cannot be simulated.
pub fn run_while(
    config: SimConfig,
    trace: Trace,
    go_on: fn() -> bool,
) -> Result<SimReport, SimConfigError> {
    config.validate()?;
    let of_panic = config.clone();
    // A replica that finds itself broken stops the process: that is a finding about this seed, not the end of all runs.
    let mut kinds = BTreeSet::new();
    let judged = catch_unwind(AssertUnwindSafe(|| {
        simulate(config, trace, go_on, &mut kinds)
    }));
    Ok(judged
        .unwrap_or_else(|payload| SimReport::of_panic(&of_panic, &kinds, &message_of(&*payload))))
}

pub(crate) fn message_of(payload: &(dyn Any + Send)) -> String {
    let text = payload.downcast_ref::<String>().map(String::as_str);
    let text = text.or_else(|| payload.downcast_ref::<&str>().copied());
    text.unwrap_or("a payload that is no text").to_owned()
}

/// `asked` receives the faults that are about to happen, for a caller that gets no report.
fn simulate(
    mut config: SimConfig,
    trace: Trace,
    go_on: fn() -> bool,
    asked: &mut BTreeSet<Fault>,
) -> SimReport {
    config.settle_bursts();
    let mut cluster = Cluster::new(config, trace, go_on);
    let mut chaos = Chaos::of_cluster();
    let started = cluster.world.now();
    let faulty_from = started + cluster.config.forming;
    let quiet_from = faulty_from + cluster.config.faulty;
    let topology = cluster.config.topology();
    let mut prng = cluster.prng.fork();
    let drawn = draw_faults(&cluster.config, &mut prng);
    let kinds = cluster.config.faults.clone().unwrap_or(drawn);
    let schedule = match &cluster.config.script {
        Some(script) => Schedule::scripted(script, faulty_from, quiet_from),
        None => Schedule::of(kinds, &mut prng, topology, faulty_from, quiet_from),
    };
    asked.clone_from(&schedule.enabled);
    cluster.prepare_for(&schedule.enabled);
    chaos.run_until(&mut cluster, faulty_from);
    chaos.play_through(&mut cluster, &schedule);
    cluster.end_haste();
    chaos.rest(&mut cluster, quiet_from);
    let silent_from = cluster.world.now();
    let reread_from = cluster.read_everything(READING);
    let report = SimReport::of(&cluster, &schedule, started, silent_from, reread_from);
    restored::go_on(cluster, report)
}

/// The kinds of fault that happen in a group.
fn draw_faults(config: &SimConfig, prng: &mut Prng) -> BTreeSet<Fault> {
    let mut drawn = draw_kinds(prng);
    if config.replica.reads == ReadMode::Lease {
        drawn.retain(|fault| !fault.needs(Need::IndexReads));
    }
    if let Some(disk) = &config.disk {
        drawn.retain(|fault| !fault.needs(Need::Memory));
        drawn.extend(draw_disk_kinds(&mut Prng::new(disk.fault_seed)));
    }
    if config.sealed {
        let seed = config.seed ^ 0x5ea1_fa17_5ea1_fa17;
        drawn.extend(draw_sealed_kinds(&mut Prng::new(seed)));
    }
    if config.mixes_versions() {
        drawn.insert(Fault::Versions);
    }
    if config.moves {
        drawn.insert(Fault::Move);
    }
    if config.has_addresses_to_change() {
        drawn.insert(Fault::Addresses);
    }
    if config.has_machines_to_set_back() {
        drawn.insert(Fault::OlderCopy);
    }
    if config.has_small_paths() {
        drawn.insert(Fault::SmallPaths);
    }
    drawn
}

/// Shortest time with faults to which a run is shrunk.
const FAULTY_MIN: Duration = Duration::from_secs(2);

impl Run for SimConfig {
    type Report = SimReport;

    fn simulate(&self, trace: Trace, go_on: fn() -> bool) -> SimReport {
        run_while(self.clone(), trace, go_on).expect("a sound configuration")
    }

    fn faults(&self) -> Option<&BTreeSet<Fault>> {
        self.faults.as_ref()
    }

    fn with_faults(&self, faults: BTreeSet<Fault>) -> Self {
        let mut named = self.clone();
        named.faults = Some(faults);
        named.ask_for_less(1);
        named
    }

    fn smaller(&self) -> Vec<Self> {
        let mut smaller = Vec::new();
        let mut add = |change: &dyn Fn(&mut Self)| {
            let mut config = self.clone();
            change(&mut config);
            smaller.push(config);
        };
        if let Some(faulty) = halved(self.faulty, FAULTY_MIN) {
            add(&|config| config.faulty = faulty);
        }
        if self.client_machines > 1 {
            add(&|config| config.client_machines -= 1);
        }
        if self.clients_per_machine > 1 {
            add(&|config| config.clients_per_machine -= 1);
        }
        smaller
    }
}

/// A machine of the simulation; also the route of packets to it.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Host(pub u16);

/// The port that every simulated machine listens on.
const PORT: u16 = 7471;

impl Host {
    pub(crate) fn index(self) -> usize {
        usize::from(self.0)
    }

    /// The address under which replicas and clients know the machine.
    pub fn address(self) -> SocketAddr {
        let [high, low] = self.0.to_be_bytes();
        SocketAddr::new(IpAddr::V4(Ipv4Addr::new(10, 0, high, low)), PORT)
    }

    /// The machine with this address.
    pub fn of_address(address: SocketAddr) -> Option<Host> {
        match address.ip() {
            IpAddr::V4(ip) if address.port() == PORT => {
                let [ten, zero, high, low] = ip.octets();
                ([ten, zero] == [10, 0]).then_some(Host(u16::from_be_bytes([high, low])))
            }
            _ => None,
        }
    }
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "m{}", self.0)
    }
}

/// A program on a simulated machine: the application of its endpoint, and what surrounds a turn.
pub(crate) trait Program: App<Host> {
    /// Runs in front of each turn, with the machine's own time and the simulated one.
    fn before_turn(&mut self, _now: Instant, _simulated: Instant) {}

    /// Runs behind each turn, for a program that watches its sessions.
    fn look_at_sessions(&mut self, _endpoint: &Endpoint<Host>) {}

    /// Runs behind each turn.
    fn after_turn(&mut self, _now: Instant, _simulated: Instant) {}

    /// The last turn's message for a trace; asked for only if there is one.
    fn take_notes(&mut self) -> Vec<String> {
        Vec::new()
    }

    /// When the program wants its next turn for its own purposes, in simulated time.
    fn next_call(&self) -> Option<Instant> {
        None
    }
}
