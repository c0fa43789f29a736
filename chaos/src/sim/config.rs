//! The settings of a simulation. The seed alone is enough: the rest follows from it.

use super::callers::Pace;
use super::{backups, bursts, copies, counts, keys, repeats, walks, watchers};
use crate::checker::linearizability::Limits;
use crate::fault::{Event, Fault, Topology};
use crate::workload::{Mix, WorkloadConfig};
use std::collections::BTreeSet;
use trine_kvstore::command::{STATE_VERSION, STATE_VERSION_FIRST, SWEEP_VERSION};
use trine_protocol::endpoint_config;
use trine_replica::ReplicaConfig;
use trine_replica::config::ReadMode;
use trine_replica::disk::Fsync;
use trine_transport::Config as EndpointConfig;
use trine_transport::CongestionControl;
use trine_transport::prng::Prng;
use trine_transport::time::Duration;

/// The load that is simulated from a seed.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Load {
    /// [`SimConfig::from_seed`].
    Drawn,
    /// [`SimConfig::measured_with_faults`].
    Measured,
    /// [`SimConfig::measured_without_faults`].
    MeasuredCalm,
}

/// What to simulate.
#[derive(Clone, Debug)]
pub struct SimConfig {
    /// The source of the settings, beside the seed; they may have been changed since.
    pub load: Load,
    /// Everything random follows from it.
    pub seed: u64,
    /// Replicas: three, five or seven.
    pub replicas: usize,
    /// Machines that clients run on.
    pub client_machines: usize,
    /// Clients on each of them.
    pub clients_per_machine: usize,
    /// The requests of the clients.
    pub workload: WorkloadConfig,
    /// How fast they ask.
    pub pace: Pace,
    /// Simulated time before the first fault; if it is zero the group forms under faults.
    pub forming: Duration,
    /// Simulated time in which faults happen.
    pub faulty: Duration,
    /// Simulated time after the last fault, in which the group has to recover and serve.
    pub quiet: Duration,
    /// The kinds of fault; nothing draws a subset.
    pub faults: Option<BTreeSet<Fault>>,
    /// The faults that replace a drawn schedule, by the time after the group has formed.
    pub script: Option<Vec<(Duration, Event)>>,
    /// The replicas' settings, except for the one that begins the group.
    pub replica: ReplicaConfig,
    /// Logs are on disk; nothing keeps them in memory.
    pub disk: Option<DiskConfig>,
    /// The state-machine version of each replica's first incarnation. Later ones have `replica`'s, so that a group
    /// whose members come back one by one is upgraded while it serves.
    pub first_state_version: u8,
    /// How clients get an ordered index to scan, if they scan.
    pub ordered: Option<OrderedFrom>,
    /// Clients count ranges now and then. It takes an ordered index.
    pub counts: bool,
    /// Clients write bursts of keys that expire together.
    pub bursts: bool,
    /// Clients are copied now and then, and go on in the session of the original.
    pub copies: bool,
    /// Machines of clients share sessions, and repeat each other's writes in them.
    pub repeats: bool,
    /// Clients walk over all keys now and then, and flush them all.
    pub walks: bool,
    /// Other clients watch keys all the time.
    pub watches: bool,
    /// A machine takes backups all the time, and behind the run another group begins with the last one.
    pub backups: bool,
    /// All packets are sealed.
    pub sealed: bool,
    /// Replicas move between two machines that each node has.
    pub moves: bool,
    /// Machines get other addresses, where the rest allows it.
    pub renumbers: bool,
    /// A machine may be set back to an older copy of its disk, if disks are synced and no backup is taken.
    pub sets_back: bool,
    /// Paths carry little, for the whole run; unless other faults are named.
    pub small_paths: bool,
    /// Fewest operations that must complete, or the run proves nothing.
    pub operations_min: u64,
    /// Shortest simulated time, or the run proves nothing.
    pub simulated_min: Duration,
    /// Limits of the linearizability check.
    pub limits: Limits,
}

/// Where the ordered index of a group comes from.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum OrderedFrom {
    /// The group begins with it.
    Beginning,
    /// Clients turn it on and off.
    Clients,
}

/// How replicas use their disks.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct DiskConfig {
    /// When writes count as durable.
    pub fsync: Fsync,
    /// Size of a log segment.
    pub segment_bytes: u64,
    /// The source of the drawn faults of disks.
    pub fault_seed: u64,
}

/// Why a configuration cannot be simulated.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SimConfigError {
    /// A group has three, five or seven replicas.
    #[error("{replicas} replicas: a simulated group has 3, 5 or 7")]
    Replicas {
        /// The value that was asked for.
        replicas: usize,
    },
    /// Nobody would call.
    #[error(
        "{machines} machines with {clients} clients each: at least one of both and at most 64 machines are needed"
    )]
    Clients {
        /// Client machines.
        machines: usize,
        /// Clients on each.
        clients: usize,
    },
    /// A fault of groups in memory, and one of groups on disk.
    #[error(
        "`{fault}` happens in groups in memory alone and `{other}` in groups on disk: ask for them in two runs"
    )]
    Exclude {
        /// The one.
        fault: Fault,
        /// The other.
        other: Fault,
    },
    /// Recovery and its judgement need time.
    #[error(
        "a quiet time of {quiet:?} is too short to judge the recovery: at least {least:?} are needed"
    )]
    Quiet {
        /// The value that was asked for.
        quiet: Duration,
        /// The least.
        least: Duration,
    },
}

/// How long the group may take to serve all clients after the last fault.
pub(crate) const RECOVERY: Duration = Duration::from_secs(5);
/// How long one operation may take after that.
pub(crate) const OPERATION: Duration = Duration::from_secs(2);
/// How long after its time a key may still be found then: a tick, and a commit.
pub(crate) const EXPIRY_LATE: Duration = Duration::from_millis(500);
/// Seed of what decides how long leaders wait with a switch.
const UPGRADE_AFTER: u64 = 0x09d3_adef_09d3_adef;
/// Values of which a few fill a piece of a backup.
const LARGE_VALUES: std::ops::RangeInclusive<usize> = 2_000..=20_000;
/// The shortest quiet time: recovery, an operation, and time to be judged in.
pub const QUIET_MIN: Duration = Duration::from_secs(8);

impl SimConfig {
    /// The run of a seed: 60 simulated seconds, a random subset of the faults.
    // Long because each setting is drawn here.
    pub fn from_seed(seed: u64) -> Self {
        let mut prng = Prng::new(seed ^ 0x5eed_5eed_5eed_5eed);
        let replicas = match prng.below(100) {
            0..=74 => 3,
            75..=94 => 5,
            _ => 7,
        };
        let keys = prng.in_range(1..=10);
        let client_machines = prng.in_range(1..=3);
        let clients_per_machine = prng.in_range(1..=4);
        // One hundred to two thousand operations a second over all clients, if nothing hinders.
        let least = if prng.below(10) == 0 { 500 } else { 2_000 };
        let interval = Duration::from_micros(prng.in_range(least..=10_000));
        let pause =
            Duration::from_nanos(interval.as_nanos() * client_machines * clients_per_machine);
        let value_bytes = match prng.below(10) {
            0 => 16..=20_000,
            1..=3 => 16..=2_000,
            _ => 16..=64,
        };
        let mix = if prng.below(4) == 0 {
            Mix::BASIC
        } else {
            Mix::TIMED
        };
        let mut replica = replica_config(&mut prng);
        let disk = draw_disk(seed, &mut replica);
        let mut config = Self {
            load: Load::Drawn,
            seed,
            replicas,
            client_machines: client_machines as usize,
            clients_per_machine: clients_per_machine as usize,
            workload: WorkloadConfig {
                keys,
                mix,
                value_bytes,
                ..WorkloadConfig::default()
            },
            pace: Pace {
                pause,
                open_max: open_max(&mut prng),
                ..Pace::default()
            },
            forming: Duration::from_millis(if prng.below(3) == 0 { 0 } else { 1_500 }),
            faulty: Duration::from_secs(50),
            quiet: Duration::from_secs(10),
            faults: None,
            script: None,
            replica,
            disk,
            first_state_version: match prng.below(4) {
                0 => STATE_VERSION_FIRST,
                _ => STATE_VERSION,
            },
            ordered: draw_ordered(seed),
            counts: counts::is_drawn(seed),
            bursts: bursts::is_drawn(seed),
            copies: copies::is_drawn(seed),
            repeats: repeats::is_drawn(seed),
            walks: walks::is_drawn(seed) && draw_ordered(seed).is_none(),
            // The keys of users are decided by search, and watchers make those searches longer.
            watches: watchers::is_drawn(seed) && !keys::is_drawn(seed),
            backups: backups::is_drawn(seed),
            sealed: keys::is_drawn(seed),
            // A group that is restored from a backup begins at known places.
            moves: draw_moves(seed) && !backups::is_drawn(seed),
            renumbers: draw_renumbers(seed),
            sets_back: draw_sets_back(seed),
            small_paths: draw_small_paths(seed),
            operations_min: 2_000,
            simulated_min: Duration::from_secs(60),
            limits: Limits::default(),
        };
        if config.first_state_version < STATE_VERSION {
            // Requests that the old version lacks are refused until the last old member is gone: they are asked, and
            // not judged.
            config.workload.mix = Mix::BASIC;
            config.ordered = None;
            config.walks = false;
        }
        // Drawn apart: old seeds stand for what they stood for.
        let after = Prng::new(seed ^ UPGRADE_AFTER).below(4);
        config.replica.upgrade_after = (after < 3).then(|| Duration::from_millis(after * 400));
        config.draw_bursts();
        // Before its switch a group takes two commands of one number for one.
        config.copies &= config.first_state_version == STATE_VERSION;
        config.repeats &= config.first_state_version == STATE_VERSION;
        config.replica.ordered = config.ordered == Some(OrderedFrom::Beginning);
        if config.backups && backups::has_large_values(seed) {
            config.workload.value_bytes = LARGE_VALUES;
        }
        if config.watches {
            watchers::draw_history(seed, &mut config.replica);
        }
        config
    }

    /// What looks at all keys would look at nothing but bursts. And the checker of watches takes a key as removed when it
    /// expires, while a large sweep gets to it only some entries later.
    pub(crate) fn settle_bursts(&mut self) {
        self.bursts &= !(self.walks || self.watches || self.backups);
    }

    /// Bursts need room.
    fn draw_bursts(&mut self) {
        self.settle_bursts();
        let is_small = self.replica.store_limits != ReplicaConfig::default().store_limits;
        self.bursts &= !is_small && self.first_state_version == STATE_VERSION;
        if self.bursts && bursts::begins_without_numbers(self.seed) {
            self.first_state_version = SWEEP_VERSION - 1;
        }
    }

    /// Accepts as a proof a run that is shorter than a seed's usual one, and in which so many operations complete.
    pub fn ask_for_less(&mut self, operations_min: u64) {
        self.operations_min = operations_min;
        self.simulated_min = Duration::ZERO;
    }

    /// The machines.
    pub fn topology(&self) -> Topology {
        Topology {
            replicas: self.replicas,
            client_machines: self.client_machines,
        }
    }

    /// Whether the group begins with another version than that of replicas that start later.
    pub fn mixes_versions(&self) -> bool {
        self.first_state_version != self.replica.state_version
    }

    /// Whether paths carry little.
    pub(super) fn has_small_paths(&self) -> bool {
        let named = self.faults.as_ref();
        self.small_paths && named.is_none_or(|faults| faults.contains(&Fault::SmallPaths))
    }

    /// Whether machines may get other addresses. Watchers and users keep the first ones that they were given, and would lose
    /// the group.
    pub(crate) fn has_addresses_to_change(&self) -> bool {
        let syncs = self.disk.as_ref().map(|disk| disk.fsync);
        let is_synced = syncs.is_some_and(|fsync| fsync != Fsync::None);
        self.renumbers && is_synced && !self.backups && !self.watches && !self.sealed
    }

    /// Whether a machine may be set back. A group that is restored from a backup begins with what is on the disks.
    pub(crate) fn has_machines_to_set_back(&self) -> bool {
        let syncs = self.disk.as_ref().map(|disk| disk.fsync);
        let is_synced = syncs.is_some_and(|fsync| fsync != Fsync::None);
        self.sets_back && is_synced && !self.backups
    }

    /// Whether each node has a second machine.
    pub(super) fn has_spares(&self) -> bool {
        self.moves || self.has_addresses_to_change()
    }

    /// Keeps the logs on disk, as the seed would.
    pub(super) fn put_on_disk(&mut self) {
        if self.disk.is_none() {
            let mut prng = Prng::new(self.seed ^ 0x0fd1_5c0f_d15c_0fd1);
            let mut disk = disk_config(&mut prng, &mut self.replica);
            // Without syncs nothing survives a death, and most faults of disks spare such a group.
            disk.fsync = Fsync::Batch;
            self.disk = Some(disk);
        }
    }

    /// Syncs what is written, so that a replica whose disk failed comes back with its memory.
    pub(super) fn sync_disks(&mut self) {
        if let Some(disk) = &mut self.disk
            && disk.fsync == Fsync::None
        {
            disk.fsync = Fsync::Batch;
        }
    }

    /// Checks the settings.
    ///
    /// # Errors
    /// Names the setting that cannot work.
    pub fn validate(&self) -> Result<(), SimConfigError> {
        if ![3, 5, 7].contains(&self.replicas) {
            return Err(SimConfigError::Replicas {
                replicas: self.replicas,
            });
        }
        if self.client_machines == 0 || self.client_machines > 64 || self.clients_per_machine == 0 {
            let (machines, clients) = (self.client_machines, self.clients_per_machine);
            return Err(SimConfigError::Clients { machines, clients });
        }
        if self.quiet < QUIET_MIN {
            return Err(SimConfigError::Quiet {
                quiet: self.quiet,
                least: QUIET_MIN,
            });
        }
        Ok(())
    }
}

/// In half of the seeds clients scan. Drawn separately, so that the other seeds stay the same.
fn draw_ordered(seed: u64) -> Option<OrderedFrom> {
    match Prng::new(seed ^ 0x0bde_0bde_0bde_0bde).below(4) {
        0 => Some(OrderedFrom::Beginning),
        1 => Some(OrderedFrom::Clients),
        _ => None,
    }
}

/// In a third of the seeds replicas move. Drawn separately, so that the other seeds stay the same.
fn draw_moves(seed: u64) -> bool {
    Prng::new(seed ^ 0x0a0e_5ea7_0a0e_5ea7).below(3) == 0
}

/// In half of the seeds machines may get other addresses. Drawn separately, so that the other seeds stay the same.
fn draw_renumbers(seed: u64) -> bool {
    Prng::new(seed ^ 0x0add_4e55_0add_4e55).below(2) == 0
}

/// In a quarter of the seeds a machine may be set back. Drawn separately, so that the other seeds stay the same.
fn draw_sets_back(seed: u64) -> bool {
    Prng::new(seed ^ 0x05e7_bac0_05e7_bac0).below(4) == 0
}

/// In a quarter of the seeds paths carry little. Drawn separately, so that the other seeds stay the same.
fn draw_small_paths(seed: u64) -> bool {
    Prng::new(seed ^ 0x0a17_5a11_0a17_5a11).below(4) == 0
}

/// A third of the seeds keep their logs on disk. Drawn separately, so that the other seeds stay the same.
fn draw_disk(seed: u64, replica: &mut ReplicaConfig) -> Option<DiskConfig> {
    let mut prng = Prng::new(seed ^ 0xd15c_d15c_d15c_d15c);
    (prng.below(3) == 0).then(|| disk_config(&mut prng, replica))
}

fn disk_config(prng: &mut Prng, replica: &mut ReplicaConfig) -> DiskConfig {
    if prng.below(4) != 0 {
        // Snapshots all the time.
        replica.disk_log_bytes_max = prng.in_range(2_000..=300_000);
    }
    DiskConfig {
        fsync: match prng.below(10) {
            0 => Fsync::None,
            1 | 2 => Fsync::Each,
            _ => Fsync::Batch,
        },
        segment_bytes: prng.in_range(16 << 10..=256 << 10),
        fault_seed: prng.next_u64(),
    }
}

/// The defaults, or one of the settings so small that its limit is met all the time.
fn replica_config(prng: &mut Prng) -> ReplicaConfig {
    let mut config = ReplicaConfig::default();
    if prng.below(3) == 0 {
        config.reads = ReadMode::Lease;
    }
    if prng.below(8) == 0 {
        // Room for a few values only: writes are refused, by every replica alike.
        config.store_limits.memory_bytes = prng.in_range(1_000..=20_000);
    }
    if prng.below(2) == 0 {
        config.log_entries_max = prng.in_range(16..=400) as usize;
    }
    if prng.below(2) == 0 {
        config.snapshot_chunk_bytes = prng.in_range(1_024..=8_192) as usize;
    }
    if prng.below(3) == 0 {
        config.append_bytes_max = prng.in_range(1_024..=4_096);
        config.appends_in_flight_max = prng.in_range(1..=8) as usize;
    }
    if prng.below(4) == 0 {
        // Clients that crash leave answers behind that no client fetches. With the usual time to live they would fill
        // the room until long after the end, and the living clients would rightly be refused.
        config.session_limits.reply_bytes_max = prng.in_range(16_000..=200_000);
        config.session_limits.ttl_ns = prng.in_range(500_000_000..=2_000_000_000);
    }
    if prng.below(4) == 0 {
        // Clients that come and go fill the table; the idle ones make room after their time.
        config.session_limits.count_max = prng.in_range(60..=100) as u32;
        config.session_limits.ttl_ns = prng.in_range(500_000_000..=2_000_000_000);
    }
    config
}

/// Mostly a few operations at a time, sometimes as many as a session takes.
fn open_max(prng: &mut Prng) -> usize {
    let most = if prng.below(8) == 0 { 64 } else { 6 };
    prng.in_range(1..=most) as usize
}

/// The settings of one machine's endpoint. Machines differ, so sessions have to agree on something.
pub(crate) fn varied_endpoint(prng: &mut Prng) -> EndpointConfig {
    let mut config = endpoint_config();
    if prng.below(3) == 0 {
        config.credits = prng.in_range(1..=8) as u16;
    }
    if prng.below(3) == 0 {
        config.slots = prng.in_range(1..=8) as u8;
    }
    if prng.below(4) == 0 {
        config.mtu = Some(prng.in_range(512..=1_472) as u16);
    }
    if prng.below(3) == 0 {
        config.cumulative_credits = Some(prng.below(2) == 0);
    }
    config.congestion.control = if prng.below(2) == 0 {
        CongestionControl::TimelyEcn
    } else {
        CongestionControl::Off
    };
    config.congestion.timely_bypass = prng.below(2) == 0;
    config.congestion.rate_limiter_bypass = prng.below(2) == 0;
    config
}
