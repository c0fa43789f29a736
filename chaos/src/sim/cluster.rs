//! A group of replicas and its clients in a simulated world: how they start, die and come back.

mod backed_up;
mod calls;
mod copied;
mod deaths;
mod hanging;
mod moved;
mod renumbered;
mod restored;
mod sealed;
mod set_back;
mod upgrades;
mod view;
mod watched;

use self::backed_up::BackedUp;
use self::copied::Copies;
pub(crate) use self::copied::Settling;
use self::deaths::Companions;
use self::hanging::Hangs;
use self::moved::Moves;
use self::renumbered::Names;
pub(crate) use self::restored::OldLife;
use self::restored::{Beginning, Begun};
use self::sealed::Trust;
use self::set_back::SetBacks;
use self::upgrades::Upgrades;
use self::view::View;
use self::watched::Watched;
use super::Host;
use super::bursts::SweepLedger;
use super::callers::Callers;
use super::config::{DiskConfig, Load, SimConfig, varied_endpoint};
use super::disk::{Device, SimDisk, SimQueue};
use super::keeper::USERS_MAX;
use super::keys::{GroupKeys, KeyOf};
use super::member::Agreement;
use super::member::Member;
use super::member::{Judges, Observed, Revocations};
use super::paths::{DEVICE_BYTES, Paths};
use super::repeats::Repeated;
use super::trace::Trace;
use super::watchers;
use super::world::World;
use crate::checker::counts::RangeCount;
use crate::checker::seats::Seats;
use crate::history::History;
use crate::workload::Workload;
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::MutexGuard;
use trine_canary as canary;
use trine_client::{AdminClient, ClientConfig, Clients};
use trine_protocol::IsAt;
use trine_protocol::endpoint_config;
use trine_protocol::message::{AdminCommand, AdminRequest, ClusterId, Incarnation, NodeId};
use trine_replica::disk::{Fsync, OpenOptions, Opened};
use trine_replica::{Halt, Node, Replica, ReplicaConfig};
use trine_transport::backend::Caps;
use trine_transport::buf::{Pool, PoolConfig};
use trine_transport::endpoint::Endpoint;
use trine_transport::prng::{Prng, Ratio};
use trine_transport::session::{Holder, Identity};
use trine_transport::time::{Duration, Instant};

/// A node of the group, called by the machine at which its first replica runs.
type Seat = Host;

/// Memory that one machine's message buffers may take.
const POOL_BYTES: usize = 512 << 20;

pub(crate) struct Cluster {
    pub(crate) world: World<Member>,
    pub(crate) config: SimConfig,
    pub(crate) prng: Prng,
    pub(crate) history: Rc<RefCell<History>>,
    /// Counts of ranges that were answered.
    pub(crate) counts: Rc<RefCell<Vec<RangeCount>>>,
    /// Writes that several machines of clients repeat.
    pub(crate) repeated: Rc<RefCell<Repeated>>,
    pub(crate) log: Rc<RefCell<Agreement>>,
    pub(crate) leaders: Leaders,
    /// When the clock of a replica's machine jumped ahead, and how far.
    pub(crate) jumps_ns: Vec<(u64, u64)>,
    clients_made: u64,
    /// Whether the caller wants the run to continue.
    go_on: fn() -> bool,
    /// Since it was told not to.
    pub(crate) ended_early: bool,
    /// The disk of each machine of replicas, in disk mode.
    disks: BTreeMap<Host, SimDisk>,
    /// Nodes that an operator removes from the group, until they are added again.
    leaving: BTreeSet<Host>,
    /// Those of them for which an operator has given the command to add them.
    rejoining: BTreeSet<Host>,
    /// The identities that a canary does not give up.
    incarnations: BTreeMap<Host, Incarnation>,
    upgrades: Upgrades,
    /// The group's keys and users, if it is sealed.
    pub(crate) trust: Option<Trust>,
    /// Its watchers, if it has any.
    watched: Option<Watched>,
    /// Its backups, if it has any.
    backed_up: Option<BackedUp>,
    /// The processes that tell of deaths.
    companions: Companions,
    /// Where the replicas are.
    moves: Moves,
    /// What the names of the replicas say.
    names: Names,
    /// Copies of the replicas' disks.
    copies: Copies,
    /// Machines that were set back.
    set_backs: SetBacks,
    /// What the leader had applied when the clients fell silent. By the end every replica has.
    led_to: Option<u64>,
    /// When a disk hung and nothing else was wrong.
    pub(crate) hangs: Hangs,
    /// Who votes, and who could be elected.
    pub(crate) seats: Rc<RefCell<Seats>>,
    /// Whether a leader rests although expired keys are left.
    pub(crate) sweeps: Rc<RefCell<SweepLedger>>,
    /// What the next replica to start begins with, in a group that is being restored.
    beginning: Option<Beginning>,
    /// The group has begun with a backup.
    pub(crate) is_restored: bool,
}

/// Who has led.
#[derive(Clone, Debug, Default)]
pub(crate) struct Leaders {
    /// The leader seen last, with its term.
    current: Option<(u64, Host)>,
    /// When each leader after the first was first seen.
    pub(crate) failovers: Vec<Instant>,
}

impl Cluster {
    /// Starts all machines; the first replica begins the group.
    pub(crate) fn new(config: SimConfig, trace: Trace, go_on: fn() -> bool) -> Self {
        let mut prng = Prng::new(config.seed);
        let mut world = World::new(&mut prng, hosts_of(&config), trace);
        world.sealed = config.sealed;
        world.paths = Paths::of(&config);
        let trust = config
            .sealed
            .then(|| Trust::new(config.seed, config.replicas));
        let watched = config
            .watches
            .then(|| Watched::new(config.seed, first_watcher(&config)));
        let backed_up = config
            .backups
            .then(|| BackedUp::new(config.seed, backup_host(&config)));
        let companions = Companions::new(config.seed);
        let spares_from = config.has_spares().then(|| first_spare(&config));
        let moves = Moves::new(config.seed, spares_from);
        let copies = Copies::new(config.seed);
        let set_backs = SetBacks::new(config.seed);
        let upgrades = Upgrades::new(config.seed);
        let mut cluster = Self {
            world,
            config,
            prng,
            history: Rc::default(),
            counts: Rc::default(),
            repeated: Rc::default(),
            log: Rc::default(),
            leaders: Leaders::default(),
            jumps_ns: Vec::new(),
            clients_made: 0,
            go_on,
            ended_early: false,
            disks: BTreeMap::new(),
            leaving: BTreeSet::new(),
            rejoining: BTreeSet::new(),
            incarnations: BTreeMap::new(),
            upgrades,
            trust,
            watched,
            backed_up,
            companions,
            moves,
            names: Names::default(),
            copies,
            set_backs,
            led_to: None,
            hangs: Hangs::default(),
            seats: Rc::default(),
            sweeps: Rc::default(),
            beginning: None,
            is_restored: false,
        };
        if let Some(disk) = &cluster.config.disk {
            let mut prng = Prng::new(disk.fault_seed);
            let spares = cluster.replica_hosts();
            let spares = spares.filter_map(|seat| cluster.spare_of(seat));
            let hosts = cluster.replica_hosts().chain(spares);
            let disks = hosts.map(|host| (host, SimDisk::new(prng.fork())));
            cluster.disks = disks.collect();
        }
        for host in cluster.replica_hosts() {
            cluster.start_replica(host, true);
        }
        for machine in 0..cluster.config.client_machines {
            cluster.start_callers(machine);
        }
        cluster
    }

    /// Whether the run continues; once it does not, it never does again.
    pub(crate) fn goes_on(&mut self) -> bool {
        self.ended_early |= !(self.go_on)();
        !self.ended_early
    }

    pub(crate) fn replica_hosts(&self) -> impl Iterator<Item = Host> + use<> {
        (0..self.config.replicas as u16).map(Host)
    }

    pub(crate) fn caller_host(&self, machine: usize) -> Host {
        Host((self.config.replicas + machine) as u16)
    }

    fn caller_hosts(&self) -> impl Iterator<Item = Host> + use<> {
        let replicas = self.config.replicas as u16;
        (replicas..replicas + self.config.client_machines as u16).map(Host)
    }

    fn addresses(&self) -> Vec<SocketAddr> {
        let places = self.replica_hosts().map(|seat| self.place_of(seat));
        places.map(Host::address).collect()
    }

    fn caps(&mut self) -> Caps {
        Caps {
            mtu: DEVICE_BYTES,
            rto_floor: Duration::from_millis(1),
            copies: self.prng.chance(Ratio::percent(50)),
            rx_queue_packets: 4_096,
            packet_is_dear: true,
        }
    }

    /// Only machines of this world have routes.
    fn route_of(&self) -> Box<dyn Fn(SocketAddr) -> Option<Host> + Send> {
        let hosts = hosts_of(&self.config);
        Box::new(move |address| Host::of_address(address).filter(|host| host.index() < hosts))
    }

    /// Starts a replica: with the contents of its disk, or under a new identity with nothing in memory. False if its
    /// disk does not let it.
    pub(crate) fn start_replica(&mut self, host: Host, bootstrap: bool) -> bool {
        let clock = self.world.fresh_clock();
        let now = clock.local(self.world.now());
        let pool = Pool::new(PoolConfig {
            bytes_max: POOL_BYTES,
        });
        let fresh = self.new_incarnation(host);
        let beginning = self.beginning.take();
        let beginning = beginning.map(|beginning| self.restore(beginning, host, fresh));
        let opened = match self.open_disk(host, fresh) {
            Some(None) => return false,
            opened => opened.flatten(),
        };
        let incarnation = opened.as_ref().map_or(fresh, |opened| opened.incarnation);
        let (own_seat, peers) = (self.seat_of(host), self.peers_of(host));
        let config = self.settings_of(host, bootstrap);
        let seed = self.prng.next_u64();
        let replica = Replica::new(
            config,
            incarnation,
            node_id_of(own_seat),
            host.address(),
            peers,
            pool.clone(),
            seed,
            now,
        );
        let replica = replica.expect("the simulated settings are sound");
        let mut replica = replica.with_secret(Some(self.companions.begin(host)));
        self.resolve_names(&mut replica);
        if self.watched.is_some() || self.backed_up.is_some() {
            replica.keep_applied();
        }
        let mut queue = None;
        if let Some(opened) = opened {
            if let (Some(begun), Some(restored)) = (&beginning, &opened.restored) {
                begun.judge(restored);
            }
            replica = replica.on_disk(opened.restored, now);
            let disk = self.disks[&host].clone();
            queue = Some(SimQueue::new(opened.writer, disk));
        } else if let Some(restored) = beginning.and_then(Begun::in_memory) {
            replica = replica.begun_from_backup(restored, now);
        }
        let is_at: IsAt<Host> = Box::new(|host, address| host.address() == address);
        let holder_of = |host: &Host| Holder::Address(u64::from(host.0));
        let mut node = Node::new(replica, self.route_of(), is_at, self.prng.next_u64())
            .with_holders(Box::new(holder_of));
        if let Some(queue) = &queue {
            node = node.with_disk(Box::new(queue.clone()));
        }
        let endpoint = self.endpoint(pool, node.identity(), KeyOf::Replica(own_seat));
        let judges = self.judges_of(host);
        let mut observed = Observed::new(node, Rc::clone(&self.log), judges, queue);
        observed.revocations = self
            .trust
            .as_ref()
            .map(|trust| Revocations::new(Rc::clone(&trust.ledger)));
        let watched = self.watched.as_ref();
        observed.watched = watched.map(|watched| Rc::clone(&watched.ledger));
        let backed_up = self.backed_up.as_ref();
        observed.backed_up = backed_up.map(|backed_up| Rc::clone(&backed_up.ledger));
        self.world
            .start(host, endpoint, Member::Replica(Box::new(observed)), clock);
        true
    }

    /// Who watches the replica at a machine. A copy is no member: what it takes itself for is noted apart.
    fn judges_of(&self, host: Host) -> Judges {
        match self.copies.are_at(host) {
            true => Judges::default(),
            false => Judges {
                deaths: Rc::clone(&self.companions.ledger),
                seats: Rc::clone(&self.seats),
                sweeps: Rc::clone(&self.sweeps),
            },
        }
    }

    /// The settings of a replica that starts.
    fn settings_of(&mut self, host: Host, bootstrap: bool) -> ReplicaConfig {
        let seat = self.seat_of(host);
        ReplicaConfig {
            bootstrap,
            state_version: self.version_at_start(seat, bootstrap),
            ..self.config.replica
        }
    }

    /// Opens a replica's disk, in disk mode; the inner nothing says that it cannot be opened now.
    #[expect(clippy::option_option, reason = "no disk and no room are two things")]
    fn open_disk(
        &mut self,
        host: Host,
        incarnation: Incarnation,
    ) -> Option<Option<Opened<SimDisk>>> {
        let config = self.config.disk?;
        let options = disk_options(&config, self.seat_of(host), incarnation);
        let now = self.world.now();
        match self.disks[&host].open(options) {
            Ok(opened) => {
                self.world.trace.note(now, || {
                    let (lost, restored) = (&opened.lost, &opened.restored);
                    format!("{host} opens its disk: lost {lost:?}, restored {restored:?}")
                });
                Some(Some(opened))
            }
            Err(error) => {
                self.world
                    .trace
                    .note(now, || format!("{host} cannot open its disk: {error}"));
                Some(None)
            }
        }
    }

    /// A replica's disk, in disk mode.
    pub(crate) fn device(&self, host: Host) -> Option<MutexGuard<'_, Device>> {
        self.disks.get(&host).map(SimDisk::device)
    }

    /// Whether a replica that dies comes back with its memory.
    pub(crate) fn keeps_memory(&self) -> bool {
        let synced = |disk: &DiskConfig| disk.fsync != Fsync::None;
        self.config.disk.as_ref().is_some_and(synced)
    }

    /// Ends a replica immediately; bytes that its disk had not synced may be gone.
    pub(crate) fn kill_replica(&mut self, host: Host, torn: bool) {
        self.kill(host);
        if let Some(mut device) = self.device(host) {
            device.crash(torn);
        }
    }

    /// Whether a leader was ever seen: before, the group may not have begun on any disk.
    pub(crate) fn has_begun(&self) -> bool {
        self.leaders.current.is_some()
    }

    /// Halted replicas: their processes would have ended.
    pub(crate) fn halted(&self) -> Vec<Host> {
        let machines = self.world.machines();
        let halted = machines.filter(|(host, machine)| {
            let replica = machine.program.replica().map(Node::replica);
            let is_halted = replica.is_some_and(|replica| replica.halted().is_some());
            is_halted && !self.copies.are_at(*host)
        });
        halted.map(|(host, _)| host).collect()
    }

    /// Starts a new process for each node that is to be added, if its old process was removed only after that command.
    pub(crate) fn refill_nodes(&mut self) {
        let was_removed = |host: &Host| {
            let node = self.world.program(*host).and_then(Member::replica);
            node.is_some_and(|node| matches!(node.replica().halted(), Some(Halt::Removed { .. })))
        };
        let rejoining = self.rejoining.iter().map(|&seat| self.place_of(seat));
        let removed: Vec<Host> = rejoining.filter(was_removed).collect();
        for host in removed {
            self.kill(host);
            self.start_replica(host, false);
        }
    }

    /// No disk is faulty from here on.
    pub(crate) fn heal_disks(&mut self) {
        for disk in self.disks.values() {
            disk.device().recover();
        }
        for host in self.disks.keys().copied().collect::<Vec<_>>() {
            self.hang_disk(host, false);
        }
    }

    /// Lets a machine's clock jump ahead; false if the machine is down.
    pub(crate) fn jump_clock(&mut self, host: Host, span: Duration) -> bool {
        let jumped = self
            .world
            .with_clock(host, |clock, now| clock.jump(now, span));
        if jumped && host.index() < self.config.replicas {
            let now_ns = self.world.now().as_nanos();
            self.jumps_ns.push((now_ns, span.as_nanos()));
        }
        jumped
    }

    fn new_incarnation(&mut self, host: Host) -> Incarnation {
        let fresh = Incarnation(self.prng.next_u64() | 1);
        if canary::planted("vote after amnesia") {
            return *self.incarnations.entry(host).or_insert(fresh);
        }
        fresh
    }

    /// Starts a machine of clients that no replica has seen before.
    pub(crate) fn start_callers(&mut self, machine: usize) {
        let host = self.caller_host(machine);
        let clock = self.world.fresh_clock();
        let pool = Pool::new(PoolConfig {
            bytes_max: POOL_BYTES,
        });
        let config = ClientConfig::new(self.addresses());
        let clients = Clients::new(config, self.route_of(), pool.clone(), self.prng.next_u64());
        let clients = clients.expect("the simulated settings are sound");
        let mut callers = Callers::new(
            clients,
            Rc::clone(&self.history),
            self.config.pace.clone(),
            self.prng.fork(),
        );
        callers.trace(self.world.trace.is_on());
        if self.config.sealed {
            callers.issue_with(GroupKeys::issuer());
        }
        self.add_calls(&mut callers, &pool);
        for _ in 0..self.config.clients_per_machine {
            self.clients_made += 1;
            let workload = Workload::new(
                self.config.workload.clone(),
                self.config.seed,
                self.clients_made,
            );
            callers.add(self.clients_made, workload, self.world.now());
        }
        let identity = Identity {
            cluster: 0,
            incarnation: self.prng.next_u64() | 1,
        };
        let endpoint = self.endpoint(pool, identity, KeyOf::Holder);
        self.world
            .start(host, endpoint, Member::Callers(Box::new(callers)), clock);
    }

    /// Lets an operator give a command that concerns the node at `host`, instead of the last one about it. The old one
    /// must not arrive behind the new one, and undo what it was answered.
    pub(crate) fn run_admin(&mut self, host: Seat, command: AdminCommand) {
        // Once its node has left, no member knows where its next replica is, unless it is where it has always been.
        let adds = matches!(command, AdminCommand::Add { .. });
        let place = (adds && self.config.has_spares()).then(|| self.place_of(host).address());
        self.run_admin_about(host, command, Incarnation::NONE, place);
    }

    /// The same about one incarnation, and with the address of a new replica.
    fn run_admin_about(
        &mut self,
        host: Seat,
        command: AdminCommand,
        incarnation: Incarnation,
        address: Option<SocketAddr>,
    ) {
        let operator = self.operator_of(host);
        self.world.lose_from(operator);
        if matches!(command, AdminCommand::Add { .. }) {
            self.rejoining.insert(host);
        }
        let clock = self.world.fresh_clock();
        let pool = Pool::new(PoolConfig {
            bytes_max: POOL_BYTES,
        });
        let request = AdminRequest {
            command,
            node_id: node_id_of(host),
            incarnation,
            cluster: ClusterId::NONE,
            address,
        };
        let config = ClientConfig::new(self.addresses());
        let seed = self.prng.next_u64();
        let giver = AdminClient::new(config, self.route_of(), request, Instant::FAR_FUTURE, seed);
        let identity = Identity {
            cluster: 0,
            incarnation: self.prng.next_u64() | 1,
        };
        let endpoint = self.endpoint(pool, identity, KeyOf::Holder);
        self.world
            .start(operator, endpoint, Member::Operator(Box::new(giver)), clock);
    }

    fn operator_of(&self, host: Host) -> Host {
        Host((self.config.topology().machines() + host.index()) as u16)
    }

    /// Operators whose commands were done, or refused, are removed.
    fn dismiss_operators(&mut self) {
        for host in self.replica_hosts() {
            let operator = self.operator_of(host);
            if matches!(self.world.program(operator), Some(Member::Operator(giver)) if giver.is_over())
            {
                self.world.kill(operator);
                if self.rejoining.remove(&host) {
                    self.leaving.remove(&host);
                }
            }
        }
    }

    /// Whether a leader is transferring leadership, and which.
    pub(crate) fn handing_over(&self) -> Option<Host> {
        let (host, _) = self.leader()?;
        let node = self.world.program(host)?.replica()?;
        node.replica().is_handing_over().then_some(host)
    }

    fn endpoint(&mut self, pool: Pool, identity: Identity, whose: KeyOf) -> Endpoint<Host> {
        let caps = self.caps();
        let mut config = match self.config.load {
            Load::Drawn => varied_endpoint(&mut self.prng),
            Load::Measured | Load::MeasuredCalm => endpoint_config(),
        };
        config.keys = self.trust.as_mut().map(|trust| trust.keys.of(whose));
        let seed = self.prng.next_u64();
        let mut endpoint = Endpoint::new(config, &caps, pool, identity, seed)
            .expect("the simulated settings are sound");
        self.world.fit_to_paths(&mut endpoint);
        endpoint
    }

    /// Every running replica's view of the group.
    fn views(&self) -> Vec<View> {
        let replicas = self
            .world
            .machines()
            .filter(|(host, _)| !self.copies.are_at(*host))
            .filter_map(|(host, machine)| Some((host, machine.program.replica()?.replica())));
        replicas
            .map(|(host, replica)| View {
                host,
                discovery: replica.discovery(),
                sides: replica.voter_sides(),
            })
            .collect()
    }

    /// The leader of the highest term, with the term.
    pub(crate) fn leader(&self) -> Option<(Host, u64)> {
        let leading = self.world.machines().filter_map(|(host, machine)| {
            let term = machine.program.replica()?.replica().leads_in()?;
            Some((host, term))
        });
        leading.max_by_key(|&(_, term)| term)
    }

    /// Whether the group keeps a majority of its voters, each with its memory, without `victim`. In memory mode the
    /// group would otherwise be lost. Members may see different configurations. The majority must be there in each
    /// configuration that any member sees, during a joint change in either side.
    pub(crate) fn survives_without(&self, victim: Host) -> bool {
        self.keeps_majority(Some(victim))
    }

    /// Whether the group keeps a majority when an operator removes the node at `host`. From then on that node counts as
    /// gone, so that no replica is killed that the rest needs. False if the node cannot be spared.
    pub(crate) fn begins_to_leave(&mut self, host: Host) -> bool {
        let fresh = self.leaving.insert(host);
        if fresh && !self.keeps_majority(None) {
            self.leaving.remove(&host);
            return false;
        }
        fresh
    }

    /// Whether an operator is busy with the node at `host`.
    pub(crate) fn is_leaving(&self, host: Host) -> bool {
        self.leaving.contains(&host)
    }

    fn keeps_majority(&self, victim: Option<Host>) -> bool {
        let views = self.views();
        let alive: BTreeSet<Incarnation> = views
            .iter()
            .filter(|view| Some(view.host) != victim && !self.is_stopping(view.host))
            // A replica that has not heard yet that the group began cannot vote in it. If the one who would tell it
            // dies, no replica will (seed 245): that group has to be begun again.
            .filter(|view| view.knows_group())
            .map(|view| view.discovery.incarnation)
            .collect();
        let leaving: Vec<NodeId> = self.leaving.iter().map(|&host| node_id_of(host)).collect();
        views.iter().any(View::knows_group)
            && views
                .iter()
                .all(|view| view.keeps_majority(&alive, &leaving))
    }

    /// Asks a replica to stop; false if it is down.
    pub(crate) fn stop(&mut self, host: Host) -> bool {
        let simulated = self.world.now();
        let Some(now) = self.world.local_time(host, simulated) else {
            return false;
        };
        let Some(Member::Replica(observed)) = self.world.program_mut(host) else {
            return false;
        };
        observed.stop(now);
        self.world.poke(host);
        true
    }

    /// Whether a replica was told to stop and still runs.
    pub(crate) fn is_stopping(&self, host: Host) -> bool {
        matches!(self.world.program(host), Some(Member::Replica(observed)) if observed.stopping)
    }

    /// Whether a replica that was told to stop may be ended.
    pub(crate) fn is_stopped(&self, host: Host) -> bool {
        let now = self.world.local_time(host, self.world.now());
        match (self.world.program(host), now) {
            (Some(Member::Replica(observed)), Some(now)) => observed.node.replica().is_stopped(now),
            _ => false,
        }
    }

    /// Asks all replicas who leads.
    pub(crate) fn probe(&mut self) {
        self.replace_spent();
        self.dismiss_operators();
        self.attend_moves();
        self.attend_names();
        self.attend_copies();
        self.attend_set_backs();
        self.attend_users();
        self.attend_watchers();
        self.attend_backups();
        self.attend_hangs();
        self.attend_upgrade();
        let Some((host, term)) = self.leader() else {
            return;
        };
        match self.leaders.current {
            Some((seen, _)) if term <= seen => {}
            seen => {
                let now = self.world.now();
                if seen.is_some() {
                    self.leaders.failovers.push(now);
                }
                self.world
                    .trace
                    .note(now, || format!("{host} leads in term {term}"));
                self.leaders.current = Some((term, host));
            }
        }
    }

    /// No client is in a hurry from now on.
    pub(crate) fn end_haste(&mut self) {
        for host in self.caller_hosts() {
            if let Some(callers) = self.world.program_mut(host).and_then(Member::callers_mut) {
                callers.end_haste();
            }
        }
    }

    /// Restarts replicas whose group never began, as their processes would.
    fn replace_spent(&mut self) {
        let is_spent = |host: &Host| {
            let program = self.world.program(*host);
            let node = program.and_then(Member::replica);
            node.is_some_and(|node| {
                matches!(node.replica().halted(), Some(Halt::NeverBegan { .. }))
            })
        };
        let spent: Vec<Host> = self.places().into_iter().filter(is_spent).collect();
        for host in spent {
            self.kill(host);
            self.start_replica(host, true);
        }
    }

    /// Lets the first machine of clients read all keys, and waits until it has.
    pub(crate) fn read_everything(&mut self, patience: Duration) -> Instant {
        let from = self.world.now();
        self.led_to = self.applied_by_leader();
        for host in self.caller_hosts() {
            if let Some(callers) = self.world.program_mut(host).and_then(Member::callers_mut) {
                callers.silence();
            }
        }
        let keys = Workload::keys(&self.config.workload);
        let host = self.caller_host(0);
        if let Some(callers) = self.world.program_mut(host).and_then(Member::callers_mut) {
            callers.send_on_errand(keys, from);
        }
        self.world.poke(host);
        while self.world.now() < from + patience && !self.all_done() && self.goes_on() {
            let next = self.world.now() + Duration::from_millis(10);
            self.world.run_until(next);
        }
        from
    }

    fn applied_by_leader(&self) -> Option<u64> {
        let (leader, _) = self.leader()?;
        let (applied, _) = self
            .world
            .program(leader)?
            .replica()?
            .replica()
            .applied_state()?;
        Some(applied)
    }

    /// Replicas that run and do not follow the leader.
    pub(crate) fn nodes_left_behind(&self) -> Vec<NodeId> {
        let led_to = self.led_to.unwrap_or_default();
        let follows = |host: Host| {
            let node = self.world.program(host).and_then(Member::replica);
            let running = node.map(Node::replica).filter(|r| r.halted().is_none());
            running.is_none_or(|replica| {
                replica
                    .applied_state()
                    .is_some_and(|(applied, _)| applied >= led_to)
            })
        };
        let seats = self
            .replica_hosts()
            .filter(|&seat| !follows(self.place_of(seat)));
        seats.map(node_id_of).collect()
    }

    fn all_done(&mut self) -> bool {
        let hosts: Vec<Host> = self.caller_hosts().collect();
        hosts.into_iter().all(|host| {
            self.world
                .program_mut(host)
                .and_then(Member::callers_mut)
                .is_none_or(|callers| callers.is_done())
        })
    }
}

/// Each node has an operator of its own, on a machine that only faults of the network hit. Those of users and of who
/// administrates them are behind, and those of watchers follow.
/// Last comes the one that takes backups, with a place for each machine whose clients outlive their group.
fn hosts_of(config: &SimConfig) -> usize {
    let backups = match config.backups {
        true => 1 + config.client_machines,
        false => 0,
    };
    let spares = match config.has_spares() {
        true => config.replicas,
        false => 0,
    };
    backup_host(config).index() + backups + spares
}

/// The second machines of the nodes come last. A group with backups has none.
fn first_spare(config: &SimConfig) -> Host {
    Host((hosts_of(config) - config.replicas) as u16)
}

fn backup_host(config: &SimConfig) -> Host {
    let watchers = if config.watches { watchers::SEATS } else { 0 };
    Host(first_watcher(config).0 + watchers as u16)
}

fn first_watcher(config: &SimConfig) -> Host {
    let operators_end = config.topology().machines() + config.replicas;
    let users = if config.sealed { 1 + USERS_MAX } else { 0 };
    Host((operators_end + users) as u16)
}

fn disk_options(config: &DiskConfig, host: Host, incarnation: Incarnation) -> OpenOptions {
    OpenOptions {
        node_id: node_id_of(host),
        fsync: config.fsync,
        segment_bytes: config.segment_bytes,
        incarnation,
        rejoin: true,
    }
}

fn node_id_of(host: Host) -> NodeId {
    NodeId(u32::from(host.0) + 1)
}
