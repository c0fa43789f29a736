//! The definition of each kind of fault: its name, what it needs, how the simulator and live chaos draw it, and how a
//! report shows it. What a fault does is where it happens: `sim/chaos.rs` and live chaos's nemesis.

use super::draw::Draw;
use super::{Amid, LinkFaults, Name, Victim};
use std::collections::BTreeSet;
use trine_transport::backend::Faults;
use trine_transport::prng::{Prng, Ratio};
use trine_transport::time::Duration;

/// What is known about a kind of fault, apart from its effect.
pub struct Definition {
    /// Its name on the command line and in reports.
    pub name: &'static str,
    /// What a simulated group has to be for the fault to happen in it.
    pub needs: &'static [Need],
    /// How the simulator comes to it.
    pub simulated: Simulated,
    /// How live chaos comes to it, if it can happen to processes.
    pub live: Option<Live>,
}

/// A property of a simulated group.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Need {
    /// Logs on disk.
    Disk,
    /// Logs on disk that are synced.
    Syncs,
    /// Logs in memory.
    Memory,
    /// It begins with an old state-machine version. That follows from its configuration, so nothing draws it.
    OldVersion,
    /// Packets are sealed.
    Sealed,
    /// Each node has a second machine that its replica can move to. That follows from its configuration, so nothing draws
    /// it.
    Spares,
    /// Machines get other addresses. That follows from its configuration, so nothing draws it.
    NewAddresses,
    /// Its machines may be set back. That follows from its configuration, so nothing draws it.
    SetBack,
    /// Its paths carry little. That follows from its configuration, so nothing draws it.
    SmallPaths,
    /// Reads without leases: leases are promised only if clocks run within their drift.
    IndexReads,
}

/// How the simulator comes to a fault.
#[derive(Copy, Clone)]
pub enum Simulated {
    /// It does not.
    Never,
    /// All packets may suffer it: [`LinkFaults`] have its rate.
    Packets,
    /// The group is made with it.
    Group,
    /// It is an event, drawn by this function.
    Event(fn(&mut Draw) -> Event),
}

/// How live chaos comes to a fault.
pub struct Live {
    /// Its effect in a line, for the help.
    pub about: &'static str,
    /// Draws what is done to a group of so many replicas.
    pub draw: fn(&mut Prng, u64) -> Strike,
    /// Whether the schedule decides how long it lasts.
    pub lasts: bool,
    /// Whether each replica needs a small disk of its own. Only root can make them.
    pub small_disks: bool,
    /// Whether the run needs networks of its own. Only root can make them.
    pub networks: bool,
    /// How a report shows the replica meanwhile.
    pub look: Look,
}

/// How a report shows a replica that suffers a fault.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Look {
    /// It does not run.
    Down,
    /// It does nothing.
    Paused,
    /// It hears or reaches nobody.
    CutOff,
    /// Its packets suffer.
    Lossy,
}

impl Fault {
    /// The faults that live chaos knows, in the order in which it lists them. A seed's schedule depends on this order.
    pub const LIVE: [Fault; 11] = [
        Fault::Kill,
        Fault::Restart,
        Fault::Pause,
        Fault::Partition,
        Fault::OneWay,
        Fault::Lossy,
        Fault::DiskFull,
        Fault::Mtu,
        Fault::DiskHang,
        Fault::Addresses,
        Fault::Resolver,
    ];

    /// The faults that the simulator knows. A seed's schedule depends on this order.
    pub fn simulated() -> impl Iterator<Item = Fault> {
        let known = |fault: &Fault| !matches!(fault.definition().simulated, Simulated::Never);
        Fault::ALL.into_iter().filter(known)
    }

    /// Its name on the command line and in reports.
    pub fn name(self) -> &'static str {
        self.definition().name
    }

    /// Whether it can happen only in such groups.
    pub fn needs(self, need: Need) -> bool {
        self.definition().needs.contains(&need)
    }

    /// How live chaos comes to it.
    pub fn live(self) -> Option<&'static Live> {
        self.definition().live.as_ref()
    }
}

/// Makes the enumeration of all kinds, and the definition of each.
macro_rules! kinds {
    ($($(#[$meta:meta])* $kind:ident => $definition:expr,)+) => {
        /// A kind of fault, as it is named on the command line and counted in reports.
        #[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Fault {
            $($(#[$meta])* $kind,)+
        }

        impl Fault {
            /// All of them.
            pub const ALL: [Fault; [$(Fault::$kind),+].len()] = [$(Fault::$kind),+];

            /// What is known about it.
            pub fn definition(self) -> &'static Definition {
                match self {
                    $(Fault::$kind => {
                        const DEFINITION: Definition = $definition;
                        &DEFINITION
                    })+
                }
            }
        }
    };
}

/// A fault of packets on all links.
const fn of_packets(name: &'static str) -> Definition {
    Definition {
        name,
        needs: &[],
        simulated: Simulated::Packets,
        live: None,
    }
}

/// A fault that the simulator draws as an event.
const fn event(name: &'static str, draw: fn(&mut Draw) -> Event) -> Definition {
    Definition {
        name,
        needs: &[],
        simulated: Simulated::Event(draw),
        live: None,
    }
}

/// A fault that only processes have.
const fn only_live(name: &'static str, live: Live) -> Definition {
    Definition {
        name,
        needs: &[],
        simulated: Simulated::Never,
        live: Some(live),
    }
}

impl Definition {
    const fn needing(self, needs: &'static [Need]) -> Self {
        Self { needs, ..self }
    }

    const fn also_live(self, live: Live) -> Self {
        Self {
            live: Some(live),
            ..self
        }
    }
}

// The order counts: a seed draws its faults in it. New kinds come last.
kinds! {
    /// Packets vanish.
    Loss => of_packets("loss"),
    /// Packets arrive twice.
    Duplication => of_packets("dup"),
    /// Packets are overtaken by later ones.
    Reordering => of_packets("reorder"),
    /// Packets arrive much later.
    Delay => of_packets("delay"),
    /// Bits of packets flip.
    Corruption => of_packets("corrupt"),
    /// Packets arrive a second time, long after their conversation.
    Replay => of_packets("replay"),
    /// Packets above a size vanish.
    Mtu => of_packets("mtu").also_live(Live {
        about: "The link of a replica carries packets of 1,280, 1,400 or 1,500 bytes only; some values are large (--netns, root)",
        draw: |prng, _| Strike::Shrink {
            bytes: [1_280, 1_400, 1_500][prng.below(3) as usize],
            silent: prng.chance(Ratio::percent(50)),
        },
        lasts: true,
        small_disks: false,
        networks: true,
        look: Look::Lossy,
    }),
    /// Some machines cannot talk to the others.
    Partition => event("partition", |draw| match draw.chance(50) {
        true => Event::IsolateLeader {
            with_clients: draw.chance(70),
            span: draw.span(100, 3_000),
        },
        false => Event::Partition {
            side: draw.side(),
            span: draw.span(50, 3_000),
        },
    })
    .also_live(Live {
        about: "A replica and the others do not hear each other; sometimes its clients do not reach it either",
        draw: |prng, _| Strike::Part {
            clients: prng.chance(Ratio::percent(30)),
        },
        lasts: true,
        small_disks: false,
        networks: false,
        look: Look::CutOff,
    }),
    /// One machine cannot be heard by another, but hears it.
    OneWay => event("one-way", |draw| {
        let (from, to) = draw.link();
        Event::OneWay {
            from,
            to,
            span: draw.span(50, 3_000),
        }
    })
    .also_live(Live {
        about: "A replica is not heard by the others and hears them, or the other way round",
        draw: |prng, _| Strike::CutOff {
            deaf: prng.chance(Ratio::percent(50)),
        },
        lasts: true,
        small_disks: false,
        networks: false,
        look: Look::CutOff,
    }),
    /// A link holds all packets back, then delivers them all together.
    Clog => event("clog", |draw| {
        let (from, to) = draw.link();
        Event::Clog {
            from,
            to,
            span: draw.span(10, 1_500),
        }
    }),
    /// A replica dies, and comes back without its memory.
    Crash => event("crash", |draw| Event::Crash {
        victim: draw.victim(),
        span: draw.span(1, 2_000),
    }),
    /// A replica is stopped in an orderly way, transfers leadership, and comes back without its memory.
    Stop => event("stop", |draw| Event::Stop {
        victim: draw.victim(),
        span: draw.span(1, 2_000),
    }),
    /// A replica pauses, and continues as if nothing had happened.
    Pause => event("pause", |draw| match draw.chance(30) {
        true => Event::PauseApart {
            span: draw.span(100, 1_500),
        },
        false => Event::Pause {
            victim: draw.victim(),
            span: draw.span(1, 2_000),
        },
    })
    .also_live(Live {
        about: "A replica is paused (SIGSTOP), then resumed (SIGCONT)",
        draw: |_, _| Strike::Pause,
        lasts: true,
        small_disks: false,
        networks: false,
        look: Look::Paused,
    }),
    /// Clocks run too fast or too slow.
    Drift => event("drift", |draw| Event::Drift {
        machine: draw.machine(),
        parts_per_million: draw.drift(),
    }),
    /// A clock jumps ahead.
    Jump => event("jump", |draw| Event::Jump {
        machine: draw.machine(),
        span: draw.span(1, 1_000),
    })
    .needing(&[Need::IndexReads]),
    /// A client dies with its operations open; another one replaces it.
    ClientCrash => event("client-crash", |draw| Event::ClientCrash {
        machine: draw.client_machine(),
    }),
    /// All replicas die at the same time.
    Blackout => event("blackout", |draw| Event::Blackout {
        span: draw.span(1, 1_000),
    })
    .needing(&[Need::Disk, Need::Syncs]),
    /// A disk takes long to sync.
    DiskSlow => event("disk-slow", |draw| Event::DiskSlow {
        victim: draw.victim(),
        latency: draw.span(5, 300),
        span: draw.span(100, 4_000),
    })
    .needing(&[Need::Disk]),
    /// A replica dies, and of its unsynced bytes some sectors are written and some are not.
    DiskTorn => event("disk-torn", |draw| Event::DiskTorn {
        victim: draw.victim(),
        span: draw.span(1, 1_000),
    })
    .needing(&[Need::Disk]),
    /// A replica dies, and a bit on its disk flips, or its log's end and the mark of it turn into zeros: it has lost
    /// its memory.
    DiskCorrupt => event("disk-corrupt", |draw| Event::DiskCorrupt {
        victim: draw.victim(),
        span: draw.span(1, 1_000),
    })
    .needing(&[Need::Disk]),
    /// A disk has no room; the replica on it ends, and comes back.
    DiskFull => event("disk-full", |draw| Event::DiskFull {
        victim: draw.victim(),
        span: draw.span(100, 3_000),
    })
    .needing(&[Need::Disk, Need::Syncs])
    .also_live(Live {
        about: "The disk of a replica has no room left: the replica ends, and is started again (--log disk, root)",
        draw: |_, _| Strike::FillDisk,
        lasts: false,
        small_disks: true,
        networks: false,
        look: Look::Down,
    }),
    /// An operator has leadership transferred.
    Transfer => event("transfer", |draw| Event::Transfer {
        to: draw.replica(),
        apart: draw.chance(50),
        span: draw.span(20, 1_000),
    }),
    /// An operator removes a member, and later adds a new one with its node id; or has one replaced.
    Members => event("members", |draw| match draw.chance(50) {
        true => Event::Replace {
            node_id: draw.replica(),
        },
        false => Event::Remove {
            node_id: draw.replica(),
            span: draw.span(100, 4_000),
        },
    })
    .needing(&[Need::Memory]),
    /// A replica of another state-machine version replaces one: the group is of mixed versions.
    Versions => Definition {
        name: "versions",
        needs: &[Need::OldVersion],
        simulated: Simulated::Group,
        live: None,
    },
    /// A replica's process dies, perhaps amid a batch of writes, and the machine continues: bytes that were written and
    /// not synced are still there.
    ProcessKill => event("process-kill", |draw| Event::ProcessKill {
        victim: draw.victim(),
        span: draw.span(1, 1_000),
    })
    .needing(&[Need::Disk]),
    /// A write or a sync fails with EIO: the replica ends, and some of its unsynced bytes are there and some are not.
    DiskEio => event("disk-eio", |draw| Event::DiskError {
        victim: draw.victim(),
        full: false,
    })
    .needing(&[Need::Disk, Need::Syncs]),
    /// The same with ENOSPC, also if the room was made before.
    DiskEnospc => event("disk-enospc", |draw| Event::DiskError {
        victim: draw.victim(),
        full: true,
    })
    .needing(&[Need::Disk, Need::Syncs]),
    /// A process is killed and started again. What the simulator kills is a `crash` or a `process-kill`, by what is
    /// left of it.
    Kill => only_live(
        "kill",
        Live {
            about: "A replica is killed (SIGKILL) and started again",
            draw: |_, _| Strike::Kill,
            lasts: false,
            small_disks: false,
            networks: false,
            look: Look::Down,
        },
    ),
    /// A process is asked to end and started again; the `stop` of the simulator.
    Restart => only_live(
        "restart",
        Live {
            about: "A replica is asked to end (SIGTERM) and started again",
            draw: |_, _| Strike::Restart,
            lasts: false,
            small_disks: false,
            networks: false,
            look: Look::Down,
        },
    ),
    /// One direction of one link suffers several faults of packets.
    Lossy => only_live(
        "lossy",
        Live {
            about: "The packets from one replica to another are lost, doubled, overtaken and late",
            draw: draw_lossy,
            lasts: true,
            small_disks: false,
            networks: false,
            look: Look::Lossy,
        },
    ),
    /// An attacker replays, changes and makes packets.
    Forged => event("forged", |draw| Event::Forged {
        packets: draw.packets(),
    })
    .needing(&[Need::Sealed]),
    /// The members get another root of their keys, one machine after the other.
    RotateKeys => event("rotate-keys", |draw| Event::RotateKeys {
        pause: draw.span(1, 400),
    })
    .needing(&[Need::Sealed]),
    /// Users come, get other keys and go, and ask for more than they may.
    Users => Definition {
        name: "users",
        needs: &[Need::Sealed],
        simulated: Simulated::Group,
        live: None,
    },
    /// A replica moves while it runs: a new process at another address replaces it. What the leader does then may be hit
    /// by a fault.
    Move => event("move", |draw| Event::Move {
        node_id: draw.replica(),
        amid: draw.amid(),
    })
    .needing(&[Need::Spares]),
    /// All paths carry less than the devices of the machines, from the first packet to the last: longer datagrams are
    /// lost.
    SmallPaths => Definition {
        name: "small-paths",
        needs: &[Need::SmallPaths],
        simulated: Simulated::Group,
        live: None,
    },
    /// A disk takes writes and syncs, and neither finishes nor fails them.
    DiskHang => event("disk-hang", |draw| {
        let victim = draw.hanging();
        let alone = draw.chance(50) && victim != Victim::All;
        Event::DiskHang {
            victim,
            alone,
            span: match alone {
                true => draw.span(3_000, 8_000),
                false => draw.span(500, 20_000),
            },
        }
    })
    .needing(&[Need::Disk])
    .also_live(Live {
        about: "The disk of a replica takes writes, and does not finish them (--log disk, root, ext4 on loop devices)",
        draw: |_, _| Strike::HangDisk,
        lasts: true,
        small_disks: true,
        networks: false,
        look: Look::Paused,
    }),
    /// Machines get other addresses: their replicas end, and start there with their disks. Names tell of that late, or
    /// wrongly, or only once.
    Addresses => event("addresses", |draw| Event::Renumber {
        victim: draw.renumbered(),
        name: draw.name(),
        span: draw.span(1, 1_000),
        copied: draw.copied(),
    })
    .needing(&[Need::Disk, Need::Syncs, Need::NewAddresses])
    .also_live(Live {
        about: "A replica gets another address, and the others have to find it by its name (--netns, --log disk, root)",
        draw: |prng, _| Strike::Readdress {
            under: prng.chance(Ratio::percent(50)),
            late: prng.chance(Ratio::percent(50)),
        },
        lasts: true,
        small_disks: false,
        networks: true,
        look: Look::Down,
    }),
    /// Names of replicas do not resolve, or resolve wrongly, while one of them starts.
    Resolver => only_live(
        "resolver",
        Live {
            about: "Names fail, are late or lie, and a replica is started again meanwhile (--netns, root)",
            draw: |prng, _| Strike::Misname {
                how: [Misnaming::Fails, Misnaming::Late, Misnaming::Lies][prng.below(3) as usize],
            },
            lasts: true,
            small_disks: false,
            networks: true,
            look: Look::Down,
        },
    ),
    /// A machine is set back: its replica starts on an older copy of its own disk. The replica has to notice.
    OlderCopy => event("older-copy", |draw| Event::SetBack {
        node_id: draw.replica(),
        age: draw.span(200, 3_000),
        span: draw.span(1, 1_000),
        hands_over: draw.chance(70),
    })
    .needing(&[Need::Disk, Need::Syncs, Need::SetBack]),
}

fn draw_lossy(prng: &mut Prng, replicas: u64) -> Strike {
    let mut share = |most| Ratio::percent(prng.below(most) as u32);
    let (loss, duplicate, reorder) = (share(40), share(10), share(20));
    let most = Duration::from_micros(prng.in_range(100..=5_000));
    let faults = Faults {
        // The fault must have an effect whatever is drawn.
        loss: if loss.is_zero() {
            Ratio::percent(1)
        } else {
            loss
        },
        duplicate,
        reorder,
        corrupt: Ratio::ZERO,
        delay: Some((Duration::ZERO, most)),
    };
    Strike::Damage {
        further: prng.in_range(1..=replicas - 1) as usize,
        faults,
    }
}

/// What live chaos does to a replica.
#[derive(Copy, Clone, Debug, PartialEq)]
pub enum Strike {
    /// Kills it, and starts it again.
    Kill,
    /// Asks it to end, and starts it again.
    Restart,
    /// Pauses it.
    Pause,
    /// Cuts it off from the others, in both directions.
    Part {
        /// Whether clients are cut off from it as well.
        clients: bool,
    },
    /// Cuts one direction.
    CutOff {
        /// Whether it hears nothing; otherwise it is not heard.
        deaf: bool,
    },
    /// Damages the packets from it to another one.
    Damage {
        /// The distance to the other node id.
        further: usize,
        /// How.
        faults: Faults,
    },
    /// Fills its disk.
    FillDisk,
    /// Has its disk take writes and not finish them.
    HangDisk,
    /// Lowers the size of packets that its link carries.
    Shrink {
        /// The longest packet, with the headers of IP and UDP.
        bytes: u32,
        /// Whether its own interface keeps the old size: then the far end of the link drops longer packets without a word.
        silent: bool,
    },
    /// Gives it another address, where it is started again.
    Readdress {
        /// Whether its interface changes while it still runs.
        under: bool,
        /// Whether the others' names tell them of it only at the end.
        late: bool,
    },
    /// Breaks the names of all replicas, and starts it again meanwhile.
    Misname {
        /// How.
        how: Misnaming,
    },
}

/// What is wrong with names in live chaos.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Misnaming {
    /// Nobody knows them.
    Fails,
    /// The server of names does not answer.
    Late,
    /// Each stands for the address of the next replica.
    Lies,
}

/// Something that happens to a simulated group.
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
    /// An operator has a live replica replaced by a new process at another address.
    Move {
        /// Which.
        node_id: usize,
        /// What happens to the leader as soon as a joint configuration is in force.
        amid: Amid,
    },
    /// The machines of replicas get other addresses.
    Renumber {
        /// Whose.
        victim: Victim,
        /// What their names say.
        name: Name,
        /// How long their replicas are down.
        span: Duration,
        /// For how long a copy of each disk runs at the old machine, once the group knows the new one.
        copied: Option<Duration>,
    },
    /// The disk of a replica is copied, and put back when the replica has died.
    SetBack {
        /// Which.
        node_id: usize,
        /// How long it goes on with its own.
        age: Duration,
        /// How long it is down.
        span: Duration,
        /// Whether its leader hands over meanwhile.
        hands_over: bool,
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
    /// A disk finishes nothing.
    DiskHang {
        /// Whose.
        victim: Victim,
        /// Whether no other fault happens meanwhile. Then the disks of further replicas hang, up to a minority. The group
        /// has to go on, and it is judged whether it does.
        alone: bool,
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
    /// Packets come that no machine has sent, or not now.
    Forged {
        /// How many.
        packets: u64,
    },
    /// The member root is changed.
    RotateKeys {
        /// The time from one machine to the next.
        pause: Duration,
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
            Event::Move { .. } => Fault::Move,
            Event::Renumber { .. } => Fault::Addresses,
            Event::SetBack { .. } => Fault::OlderCopy,
            Event::Drift { .. } => Fault::Drift,
            Event::Jump { .. } => Fault::Jump,
            Event::ClientCrash { .. } => Fault::ClientCrash,
            Event::Blackout { .. } => Fault::Blackout,
            Event::DiskSlow { .. } => Fault::DiskSlow,
            Event::DiskHang { .. } => Fault::DiskHang,
            Event::DiskTorn { .. } => Fault::DiskTorn,
            Event::DiskCorrupt { .. } => Fault::DiskCorrupt,
            Event::DiskFull { .. } => Fault::DiskFull,
            Event::ProcessKill { .. } => Fault::ProcessKill,
            Event::DiskError { full: false, .. } => Fault::DiskEio,
            Event::DiskError { full: true, .. } => Fault::DiskEnospc,
            Event::Forged { .. } => Fault::Forged,
            Event::RotateKeys { .. } => Fault::RotateKeys,
        })
    }
}
