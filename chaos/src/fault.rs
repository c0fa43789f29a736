//! The vocabulary of faults, and the schedule that a seed makes of it.

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;
use trine_transport::prng::{Prng, Ratio};
use trine_transport::time::{Duration, Instant};

/// A kind of fault, as it is named on the command line and counted in reports.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Fault {
    /// Packets vanish.
    Loss,
    /// Packets arrive twice.
    Duplication,
    /// Packets are overtaken by later ones.
    Reordering,
    /// Packets arrive much later.
    Delay,
    /// Bits of packets flip.
    Corruption,
    /// Packets arrive a second time, long after their conversation.
    Replay,
    /// Packets above a size vanish.
    Mtu,
    /// Some machines cannot talk to the others.
    Partition,
    /// One machine cannot be heard by another, but hears it.
    OneWay,
    /// A link holds all packets back, then delivers them all together.
    Clog,
    /// A replica dies, and comes back without its memory.
    Crash,
    /// A replica is stopped in an orderly way, transfers leadership, and comes back without its memory.
    Stop,
    /// A replica pauses, and continues as if nothing had happened.
    Pause,
    /// Clocks run too fast or too slow.
    Drift,
    /// A clock jumps ahead.
    Jump,
    /// A client dies with its operations open; another one replaces it.
    ClientCrash,
    /// All replicas die at the same time. Only with a log on disk, like all that follow.
    Blackout,
    /// A disk takes long to sync.
    DiskSlow,
    /// A replica dies, and of its unsynced bytes some sectors are written and some are not.
    DiskTorn,
    /// A replica dies, and a bit on its disk flips, or its log's end and the mark of it turn into zeros: it has lost
    /// its memory.
    DiskCorrupt,
    /// A disk has no room; the replica on it ends, and comes back.
    DiskFull,
    /// An operator has leadership transferred.
    Transfer,
    /// An operator removes a member, and later adds a new one with its node id; or has one replaced.
    Members,
    /// A replica of another state-machine version replaces one: the group is of mixed versions.
    Versions,
    /// A replica's process dies, perhaps amid a batch of writes, and the machine continues: bytes that were written and
    /// not synced are still there. Of disks, like all that follow.
    ProcessKill,
    /// A write or a sync fails with EIO: the replica ends, and some of its unsynced bytes are there and some are not.
    DiskEio,
    /// The same with ENOSPC, also if the room was made before.
    DiskEnospc,
}

impl Fault {
    /// All of them.
    pub const ALL: [Fault; 27] = [
        Fault::Loss,
        Fault::Duplication,
        Fault::Reordering,
        Fault::Delay,
        Fault::Corruption,
        Fault::Replay,
        Fault::Mtu,
        Fault::Partition,
        Fault::OneWay,
        Fault::Clog,
        Fault::Crash,
        Fault::Stop,
        Fault::Pause,
        Fault::Drift,
        Fault::Jump,
        Fault::ClientCrash,
        Fault::Blackout,
        Fault::DiskSlow,
        Fault::DiskTorn,
        Fault::DiskCorrupt,
        Fault::DiskFull,
        Fault::Transfer,
        Fault::Members,
        Fault::Versions,
        Fault::ProcessKill,
        Fault::DiskEio,
        Fault::DiskEnospc,
    ];

    /// Faults that mean something only with logs on disk.
    pub const OF_DISKS: [Fault; 8] = [
        Fault::Blackout,
        Fault::DiskSlow,
        Fault::DiskTorn,
        Fault::DiskCorrupt,
        Fault::DiskFull,
        Fault::ProcessKill,
        Fault::DiskEio,
        Fault::DiskEnospc,
    ];

    /// Its name on the command line and in reports.
    pub fn name(self) -> &'static str {
        match self {
            Fault::Loss => "loss",
            Fault::Duplication => "dup",
            Fault::Reordering => "reorder",
            Fault::Delay => "delay",
            Fault::Corruption => "corrupt",
            Fault::Replay => "replay",
            Fault::Mtu => "mtu",
            Fault::Partition => "partition",
            Fault::OneWay => "one-way",
            Fault::Clog => "clog",
            Fault::Crash => "crash",
            Fault::Stop => "stop",
            Fault::Pause => "pause",
            Fault::Drift => "drift",
            Fault::Jump => "jump",
            Fault::ClientCrash => "client-crash",
            Fault::Blackout => "blackout",
            Fault::DiskSlow => "disk-slow",
            Fault::DiskTorn => "disk-torn",
            Fault::DiskCorrupt => "disk-corrupt",
            Fault::DiskFull => "disk-full",
            Fault::Transfer => "transfer",
            Fault::Members => "members",
            Fault::Versions => "versions",
            Fault::ProcessKill => "process-kill",
            Fault::DiskEio => "disk-eio",
            Fault::DiskEnospc => "disk-enospc",
        }
    }
}

/// Draws a random subset of the faults of at least [`KINDS_MIN`]. Those of disks are drawn apart, and whether a group
/// begins with an old version follows from its configuration.
pub fn draw_kinds(prng: &mut Prng) -> BTreeSet<Fault> {
    let apart = |fault: &Fault| Fault::OF_DISKS.contains(fault) || *fault == Fault::Versions;
    let mut kinds: Vec<Fault> = Fault::ALL.into_iter().filter(|f| !apart(f)).collect();
    prng.shuffle(&mut kinds);
    // Two more than must fire: an event may find no target.
    let count = prng.in_range(KINDS_MIN as u64 + 2..=kinds.len() as u64) as usize;
    kinds.into_iter().take(count).collect()
}

/// Draws a random subset of the faults of disks.
pub fn draw_disk_kinds(prng: &mut Prng) -> BTreeSet<Fault> {
    let mut kinds = Fault::OF_DISKS;
    prng.shuffle(&mut kinds);
    let count = prng.in_range(1..=kinds.len() as u64) as usize;
    kinds.into_iter().take(count).collect()
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The text names no fault.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{name}` is not a fault, the nearest is `{nearest}`; there are: {}", Fault::ALL.map(Fault::name).join(", "))]
pub struct UnknownFault {
    /// The text.
    pub name: String,
    /// The fault with the most similar name.
    pub nearest: Fault,
}

impl FromStr for Fault {
    type Err = UnknownFault;

    fn from_str(name: &str) -> Result<Self, UnknownFault> {
        let found = Fault::ALL.into_iter().find(|fault| fault.name() == name);
        let mut all = Fault::ALL;
        all.sort_by_key(|fault| strsim::levenshtein(name, fault.name()));
        found.ok_or_else(|| UnknownFault {
            name: name.to_owned(),
            nearest: all[0],
        })
    }
}

/// Kinds of fault as they are named on the command line: `loss,crash`, or `none`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FaultSet(pub BTreeSet<Fault>);

impl FromStr for FaultSet {
    type Err = UnknownFault;

    fn from_str(names: &str) -> Result<Self, UnknownFault> {
        if names == NO_FAULT {
            return Ok(Self::default());
        }
        names
            .split(',')
            .map(str::parse)
            .collect::<Result<_, _>>()
            .map(Self)
    }
}

impl fmt::Display for FaultSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() {
            return f.write_str(NO_FAULT);
        }
        let names: Vec<&str> = self.0.iter().map(|fault| fault.name()).collect();
        f.write_str(&names.join(","))
    }
}

/// The set of no fault.
const NO_FAULT: &str = "none";

/// The random effects of a link on packets.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct LinkFaults {
    /// Packets that vanish.
    pub loss: Ratio,
    /// Packets that arrive twice.
    pub duplication: Ratio,
    /// Packets that later ones overtake.
    pub reordering: Ratio,
    /// Packets that are held back for up to [`LinkFaults::delay_max`].
    pub delay: Ratio,
    /// The longest such delay.
    pub delay_max: Duration,
    /// Packets in which bits flip.
    pub corruption: Ratio,
    /// Packets that arrive once more, seconds later.
    pub replay: Ratio,
    /// Packets above this size vanish; zero lets all pass.
    pub mtu: usize,
}

/// Machines of a simulation: replicas first, then the machines that clients run on.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Topology {
    /// Replicas.
    pub replicas: usize,
    /// Machines of clients.
    pub client_machines: usize,
}

impl Topology {
    /// All machines.
    pub fn machines(&self) -> usize {
        self.replicas + self.client_machines
    }
}

/// The target of a fault of replicas; leaders get more than their share.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Victim {
    /// Who leads at that moment.
    Leader,
    /// The replica with this index.
    Replica(usize),
}

/// Something that happens to the cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// From now on all links treat packets like this.
    LinkFaults(LinkFaults),
    /// The listed machines cannot talk to the others.
    Partition {
        /// One side.
        side: BTreeSet<usize>,
        /// For how long.
        span: Duration,
    },
    /// The leader and some of the others are cut off, so that a new leader arises on the other side.
    IsolateLeader {
        /// Whether client machines stay on the old leader's side: their reads must not be stale.
        with_clients: bool,
        /// For how long.
        span: Duration,
    },
    /// Packets of one direction of a link vanish.
    OneWay {
        /// Sending machine.
        from: usize,
        /// Receiving machine.
        to: usize,
        /// For how long.
        span: Duration,
    },
    /// Packets of one direction of a link are held back until the end.
    Clog {
        /// Sending machine.
        from: usize,
        /// Receiving machine.
        to: usize,
        /// For how long.
        span: Duration,
    },
    /// A replica dies and is started again with nothing in memory.
    Crash {
        /// Which.
        victim: Victim,
        /// How long it is down.
        span: Duration,
    },
    /// A replica gets the request to stop, dies when it has stopped, and is started again with nothing in memory.
    Stop {
        /// Which.
        victim: Victim,
        /// How long it is down.
        span: Duration,
    },
    /// A replica pauses.
    Pause {
        /// Which.
        victim: Victim,
        /// For how long.
        span: Duration,
    },
    /// The leader pauses, cut off with some clients: they can only ask replicas that believe that it still leads.
    PauseApart {
        /// Its length; the cut lasts a little longer.
        span: Duration,
    },
    /// An operator has leadership transferred to a replica.
    Transfer {
        /// To which.
        to: usize,
        /// Whether the old leader is cut off, with some clients, at the moment at which the new one may begin.
        apart: bool,
        /// For how long.
        span: Duration,
    },
    /// An operator removes a member; a new process replaces it later.
    Remove {
        /// Which.
        node_id: usize,
        /// How long the node id stays without a member.
        span: Duration,
    },
    /// An operator has a member replaced by a new process, although it may be alive.
    Replace {
        /// Which.
        node_id: usize,
    },
    /// A machine's clock runs at another speed.
    Drift {
        /// Which.
        machine: usize,
        /// Parts per million too fast (or too slow).
        parts_per_million: i32,
    },
    /// A machine's clock jumps ahead.
    Jump {
        /// Which.
        machine: usize,
        /// How far.
        span: Duration,
    },
    /// All replicas die and are started again.
    Blackout {
        /// How long they are down.
        span: Duration,
    },
    /// Syncs of a disk take up to so long.
    DiskSlow {
        /// Whose.
        victim: Victim,
        /// How long a sync takes at most.
        latency: Duration,
        /// For how long.
        span: Duration,
    },
    /// A replica dies in the middle of a write.
    DiskTorn {
        /// Which.
        victim: Victim,
        /// How long it is down.
        span: Duration,
    },
    /// A replica dies and its disk is damaged.
    DiskCorrupt {
        /// Which.
        victim: Victim,
        /// How long it is down.
        span: Duration,
    },
    /// A disk is full.
    DiskFull {
        /// Whose.
        victim: Victim,
        /// For how long.
        span: Duration,
    },
    /// A replica's process dies, and its machine continues.
    ProcessKill {
        /// Which.
        victim: Victim,
        /// How long it is down.
        span: Duration,
    },
    /// One of the next operations of a disk fails.
    DiskError {
        /// Whose.
        victim: Victim,
        /// For want of room, or for no known reason.
        full: bool,
    },
    /// A machine of clients dies; new clients replace the old.
    ClientCrash {
        /// Which, counted among the client machines.
        machine: usize,
    },
}

impl Event {
    /// The kind of fault; `None` for link faults, which are of several kinds.
    pub fn kind(&self) -> Option<Fault> {
        Some(match self {
            Event::LinkFaults(_) => return None,
            Event::Partition { .. } | Event::IsolateLeader { .. } => Fault::Partition,
            Event::OneWay { .. } => Fault::OneWay,
            Event::Clog { .. } => Fault::Clog,
            Event::Crash { .. } => Fault::Crash,
            Event::Stop { .. } => Fault::Stop,
            Event::Pause { .. } | Event::PauseApart { .. } => Fault::Pause,
            Event::Transfer { .. } => Fault::Transfer,
            Event::Remove { .. } | Event::Replace { .. } => Fault::Members,
            Event::Drift { .. } => Fault::Drift,
            Event::Jump { .. } => Fault::Jump,
            Event::ClientCrash { .. } => Fault::ClientCrash,
            Event::Blackout { .. } => Fault::Blackout,
            Event::DiskSlow { .. } => Fault::DiskSlow,
            Event::DiskTorn { .. } => Fault::DiskTorn,
            Event::DiskCorrupt { .. } => Fault::DiskCorrupt,
            Event::DiskFull { .. } => Fault::DiskFull,
            Event::ProcessKill { .. } => Fault::ProcessKill,
            Event::DiskError { full: false, .. } => Fault::DiskEio,
            Event::DiskError { full: true, .. } => Fault::DiskEnospc,
        })
    }
}

/// The faults of a run and their times, derived from a seed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Schedule {
    /// The kinds that this seed enables. Each must fire, or the run proves nothing.
    pub enabled: BTreeSet<Fault>,
    /// The faults, in order of time.
    pub events: Vec<(Instant, Event)>,
    /// From here on no fault happens and everything is healed.
    pub quiet_from: Instant,
}

/// How far a drifting clock runs wrong at most, in millionths.
pub const DRIFT_PER_MILLION_MAX: u64 = 10_000;

/// Fewest kinds of fault that a drawn schedule enables.
pub const KINDS_MIN: usize = 3;
/// How often the link faults change.
const FAULTS_SPELL: Duration = Duration::from_secs(4);
/// The loss that link faults may reach, in percent; duplication reaches 50, the rest 20.
const LOSS_PERCENT_MAX: u64 = 30;
const DUPLICATION_PERCENT_MAX: u64 = 50;
const OTHER_PERCENT_MAX: u64 = 20;
const REPLAY_PERCENT_MAX: u64 = 6;
/// Shortest distance between two crashes: time to come back and be a voter again.
const EVENT_GAP: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(8));

impl Schedule {
    /// Nothing ever happens.
    pub fn calm() -> Self {
        Self {
            enabled: BTreeSet::new(),
            events: Vec::new(),
            quiet_from: Instant::ZERO,
        }
    }

    /// The faults of a script, by the time after `start`. The kinds it uses are enabled.
    pub fn scripted(script: &[(Duration, Event)], start: Instant, quiet_from: Instant) -> Self {
        let mut events: Vec<(Instant, Event)> = script
            .iter()
            .map(|(after, event)| (start + *after, event.clone()))
            .collect();
        events.sort_by_key(|&(at, _)| at);
        let enabled = events
            .iter()
            .filter_map(|(_, event)| event.kind())
            .collect();
        Self {
            enabled,
            events,
            quiet_from,
        }
    }

    /// Draws the events of these kinds of fault until `quiet_from`. The events of one kind are independent of which
    /// others are enabled, so that faults can be taken away from a failing run one by one.
    pub fn of(
        enabled: BTreeSet<Fault>,
        prng: &mut Prng,
        topology: Topology,
        start: Instant,
        quiet_from: Instant,
    ) -> Self {
        let mut drawer = Drawer {
            enabled: &enabled,
            prng: prng.fork(),
            topology,
            start,
            quiet_from,
            events: Vec::new(),
        };
        drawer.link_faults();
        for fault in Fault::ALL {
            drawer.prng = prng.fork();
            if enabled.contains(&fault) {
                drawer.repeat(fault);
            }
        }
        let mut events = drawer.events;
        events.sort_by_key(|&(at, _)| at);
        Self {
            enabled,
            events,
            quiet_from,
        }
    }
}

struct Drawer<'a> {
    enabled: &'a BTreeSet<Fault>,
    prng: Prng,
    topology: Topology,
    start: Instant,
    quiet_from: Instant,
    events: Vec<(Instant, Event)>,
}

impl Drawer<'_> {
    fn link_faults(&mut self) {
        let mut at = self.start;
        while at < self.quiet_from {
            let link_faults = LinkFaults {
                loss: self.rate(Fault::Loss, LOSS_PERCENT_MAX),
                duplication: self.rate(Fault::Duplication, DUPLICATION_PERCENT_MAX),
                reordering: self.rate(Fault::Reordering, OTHER_PERCENT_MAX),
                delay: self.rate(Fault::Delay, OTHER_PERCENT_MAX),
                delay_max: self.delay_max(),
                corruption: self.rate(Fault::Corruption, OTHER_PERCENT_MAX),
                replay: self.rate(Fault::Replay, REPLAY_PERCENT_MAX),
                mtu: 0,
            };
            let mtu = self.prng.in_range(150..=1_400) as usize;
            let drawn = self.prng.chance(Ratio::percent(30));
            let small = drawn && self.enabled.contains(&Fault::Mtu);
            self.events.push((
                at,
                Event::LinkFaults(LinkFaults {
                    mtu: if small { mtu } else { 0 },
                    ..link_faults
                }),
            ));
            at += FAULTS_SPELL;
        }
    }

    /// Mostly within what a busy network does, sometimes beyond every timeout.
    fn delay_max(&mut self) -> Duration {
        let long = self.prng.chance(Ratio::percent(10));
        let micros = self
            .prng
            .in_range(200..=if long { 3_000_000 } else { 100_000 });
        Duration::from_micros(micros)
    }

    /// Mostly mild, sometimes up to the maximum, zero if the fault is not enabled.
    fn rate(&mut self, fault: Fault, percent_max: u64) -> Ratio {
        let mild = self.prng.chance(Ratio::percent(70));
        let per_mille = self
            .prng
            .in_range(1..=if mild { 50 } else { percent_max * 10 });
        if !self.enabled.contains(&fault) {
            return Ratio::ZERO;
        }
        let per_mille = u32::try_from(per_mille).expect("at most a thousand");
        Ratio::new(per_mille, 1_000).expect("at most one")
    }

    /// Puts events of one kind at random distances over the whole time.
    fn repeat(&mut self, fault: Fault) {
        let mut at = self.start;
        loop {
            at += Duration::from_nanos(
                self.prng
                    .in_range(EVENT_GAP.0.as_nanos()..=EVENT_GAP.1.as_nanos()),
            );
            if at >= self.quiet_from {
                return;
            }
            let Some(event) = self.event(fault) else {
                return;
            };
            self.events.push((at, event));
        }
    }

    // Long because it is a table: a fault an arm.
    fn event(&mut self, fault: Fault) -> Option<Event> {
        Some(match fault {
            Fault::Partition if self.prng.chance(Ratio::percent(50)) => Event::IsolateLeader {
                with_clients: self.prng.chance(Ratio::percent(70)),
                span: self.span(100, 3_000),
            },
            Fault::Partition => Event::Partition {
                side: self.side(),
                span: self.span(50, 3_000),
            },
            Fault::OneWay => {
                let (from, to) = self.link();
                Event::OneWay {
                    from,
                    to,
                    span: self.span(50, 3_000),
                }
            }
            Fault::Clog => {
                let (from, to) = self.link();
                Event::Clog {
                    from,
                    to,
                    span: self.span(10, 1_500),
                }
            }
            Fault::Crash => Event::Crash {
                victim: self.victim(),
                span: self.span(1, 2_000),
            },
            Fault::Stop => Event::Stop {
                victim: self.victim(),
                span: self.span(1, 2_000),
            },
            Fault::Pause if self.prng.chance(Ratio::percent(30)) => Event::PauseApart {
                span: self.span(100, 1_500),
            },
            Fault::Transfer => Event::Transfer {
                to: self.replica(),
                apart: self.prng.chance(Ratio::percent(50)),
                span: self.span(20, 1_000),
            },
            Fault::Members if self.prng.chance(Ratio::percent(50)) => Event::Replace {
                node_id: self.replica(),
            },
            Fault::Members => Event::Remove {
                node_id: self.replica(),
                span: self.span(100, 4_000),
            },
            Fault::Pause => Event::Pause {
                victim: self.victim(),
                span: self.span(1, 2_000),
            },
            Fault::Drift => {
                let machine = self.machine();
                let parts_per_million = self.prng.in_range(0..=DRIFT_PER_MILLION_MAX * 2) as i32
                    - DRIFT_PER_MILLION_MAX as i32;
                Event::Drift {
                    machine,
                    parts_per_million,
                }
            }
            Fault::Jump => Event::Jump {
                machine: self.machine(),
                span: self.span(1, 1_000),
            },
            Fault::ClientCrash => Event::ClientCrash {
                machine: self.prng.below(self.topology.client_machines as u64) as usize,
            },
            Fault::Blackout => Event::Blackout {
                span: self.span(1, 1_000),
            },
            Fault::DiskSlow => Event::DiskSlow {
                victim: self.victim(),
                latency: self.span(5, 300),
                span: self.span(100, 4_000),
            },
            Fault::DiskTorn => Event::DiskTorn {
                victim: self.victim(),
                span: self.span(1, 1_000),
            },
            Fault::DiskCorrupt => Event::DiskCorrupt {
                victim: self.victim(),
                span: self.span(1, 1_000),
            },
            Fault::DiskFull => Event::DiskFull {
                victim: self.victim(),
                span: self.span(100, 3_000),
            },
            Fault::ProcessKill => Event::ProcessKill {
                victim: self.victim(),
                span: self.span(1, 1_000),
            },
            Fault::DiskEio | Fault::DiskEnospc => Event::DiskError {
                victim: self.victim(),
                full: fault == Fault::DiskEnospc,
            },
            Fault::Loss
            | Fault::Duplication
            | Fault::Reordering
            | Fault::Delay
            | Fault::Corruption
            | Fault::Replay
            | Fault::Mtu
            | Fault::Versions => return None,
        })
    }

    fn span(&mut self, millis_min: u64, millis_max: u64) -> Duration {
        Duration::from_micros(self.prng.in_range(millis_min * 1_000..=millis_max * 1_000))
    }

    fn machine(&mut self) -> usize {
        self.prng.below(self.topology.machines() as u64) as usize
    }

    fn link(&mut self) -> (usize, usize) {
        let from = self.machine();
        let step = 1 + self.prng.below(self.topology.machines() as u64 - 1) as usize;
        (from, (from + step) % self.topology.machines())
    }

    fn side(&mut self) -> BTreeSet<usize> {
        let mut machines: Vec<usize> = (0..self.topology.machines()).collect();
        self.prng.shuffle(&mut machines);
        let count = 1 + self.prng.below(machines.len() as u64 - 1) as usize;
        machines.into_iter().take(count).collect()
    }

    fn victim(&mut self) -> Victim {
        if self.prng.chance(Ratio::percent(50)) {
            return Victim::Leader;
        }
        Victim::Replica(self.replica())
    }

    fn replica(&mut self) -> usize {
        self.prng.below(self.topology.replicas as u64) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOPOLOGY: Topology = Topology {
        replicas: 3,
        client_machines: 2,
    };

    fn draw(seed: u64) -> Schedule {
        let mut prng = Prng::new(seed);
        let kinds = draw_kinds(&mut prng);
        of(kinds, &mut prng)
    }

    fn of(kinds: BTreeSet<Fault>, prng: &mut Prng) -> Schedule {
        let quiet_from = Instant::ZERO + Duration::from_secs(60);
        Schedule::of(kinds, prng, TOPOLOGY, Instant::ZERO, quiet_from)
    }

    #[test]
    fn taking_one_fault_away_leaves_what_the_others_do() {
        let all = of(BTreeSet::from(Fault::ALL), &mut Prng::new(5));
        let some = of(
            BTreeSet::from([Fault::Crash, Fault::Clog]),
            &mut Prng::new(5),
        );
        let others = |event: &Event| matches!(event, Event::Crash { .. } | Event::Clog { .. });
        let kept = |schedule: &Schedule| -> Vec<(Instant, Event)> {
            let events = schedule.events.iter().cloned();
            events.filter(|(_, event)| others(event)).collect()
        };
        assert_eq!(kept(&all), kept(&some));
        assert!(!kept(&all).is_empty());
    }

    #[test]
    fn the_seed_fixes_the_schedule() {
        assert_eq!(draw(7), draw(7));
        assert_ne!(draw(7), draw(8));
    }

    #[test]
    fn every_seed_enables_some_faults_and_all_seeds_together_all_of_them() {
        let mut all = BTreeSet::new();
        for seed in 0..50 {
            let schedule = draw(seed);
            assert!(schedule.enabled.len() >= KINDS_MIN);
            all.extend(schedule.enabled);
            all.extend(draw_disk_kinds(&mut Prng::new(seed)));
        }
        all.insert(Fault::Versions);
        assert_eq!(all.len(), Fault::ALL.len());
    }

    #[test]
    fn events_are_in_order_and_end_before_the_quiet_time() {
        for seed in 0..50 {
            let schedule = draw(seed);
            assert!(
                schedule
                    .events
                    .windows(2)
                    .all(|pair| pair[0].0 <= pair[1].0)
            );
            assert!(
                schedule
                    .events
                    .iter()
                    .all(|&(at, _)| at < schedule.quiet_from)
            );
        }
    }

    #[test]
    fn what_is_not_enabled_does_not_happen() {
        let schedule = of(BTreeSet::from([Fault::Loss]), &mut Prng::new(3));
        for (_, event) in schedule.events {
            let Event::LinkFaults(link_faults) = event else {
                panic!("only loss was asked for: {event:?}")
            };
            assert!(!link_faults.loss.is_zero());
            assert!(
                link_faults.duplication.is_zero()
                    && link_faults.corruption.is_zero()
                    && link_faults.mtu == 0
            );
        }
    }

    #[test]
    fn an_unknown_fault_is_refused_with_the_list() {
        let error = "earthquake".parse::<Fault>().unwrap_err();
        assert!(error.to_string().contains("partition"));
        for (wrong, nearest) in [
            ("pause-apart", Fault::Pause),
            ("crush", Fault::Crash),
            ("partitions", Fault::Partition),
            ("disk-fool", Fault::DiskFull),
            ("Version", Fault::Versions),
        ] {
            let error = wrong.parse::<Fault>().unwrap_err();
            assert_eq!(error.nearest, nearest, "{wrong}");
            let told = format!("the nearest is `{nearest}`");
            assert!(error.to_string().contains(&told), "{error}");
        }
        for fault in Fault::ALL {
            assert_eq!(fault.name().parse::<Fault>().unwrap(), fault);
        }
    }
}
