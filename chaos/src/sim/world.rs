//! Simulated time: machines, the network between them, and one queue of future events.
//!
//! Everything runs in one thread. Two events at the same nanosecond come in the order in which they were planned, so
//! the seed fixes the run.

use super::clock::LocalClock;
use super::forger::{Forged, Forger};
use super::machine::{Machine, Sent};
use super::network::{Arrival, Network, NetworkStats};
use super::paths::{DEVICE_BYTES, Paths};
use super::seals::Seals;
use super::trace::Trace;
use super::{Host, Program};
use crate::checker::Verdict;
use crate::fault::Fault;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use trine_canary as canary;
use trine_transport::backend_api::Datagrams;
use trine_transport::endpoint::Endpoint;
use trine_transport::prng::{Prng, Ratio};
use trine_transport::time::{Duration, Instant};

/// Processor time of a turn, and of each datagram in it.
const TURN_COST_NS: u64 = 1_500;
const DATAGRAM_COST_NS: u64 = 300;
/// A machine that only waits for a datagram, or is down.
const NO_TURN: (Instant, u64) = (Instant::FAR_FUTURE, 0);

pub(crate) struct World<P> {
    now: Instant,
    queue: BinaryHeap<Reverse<Due>>,
    parcels: Vec<Parcel>,
    /// Indexes of `parcels` that are empty.
    vacant: Vec<u32>,
    planned: u64,
    machines: Vec<Option<Machine<P>>>,
    /// The next turn of each machine, and the order in which it was planned. They lie beside the machines, because
    /// every event checks all of them.
    turns: Vec<(Instant, u64)>,
    /// Buffers of datagrams that have arrived.
    spare: Vec<Vec<u8>>,
    prng: Prng,
    pub(crate) network: Network,
    pub(crate) trace: Trace,
    pub(crate) stats: WorldStats,
    /// Whether packets are sealed: then each machine counts those that come.
    pub(crate) sealed: bool,
    /// Who forges packets, if anybody does.
    pub(crate) forger: Option<Forger>,
    /// The first sealed packet that was opened twice.
    pub(crate) opened_twice: Option<String>,
    arrivals: Vec<Arrival>,
    sent: Vec<Sent>,
    /// The paths, if they carry little.
    pub(crate) paths: Option<Paths>,
    /// The first datagram that was longer than its path carries, although nobody had promised more.
    too_long: Option<String>,
}

/// Counters of the world.
#[derive(Copy, Clone, Debug, Default)]
pub(crate) struct WorldStats {
    pub(crate) turns: u64,
    /// Datagrams for machines that were down or whose receive queue was full.
    pub(crate) datagrams_lost: u64,
}

/// A datagram under way: its arrival time, the order in which it was planned, and the index of its bytes.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Due {
    at: Instant,
    number: u64,
    parcel: u32,
}

/// A datagram. They lie beside the queue, so that ordering it moves small entries.
struct Parcel {
    from: Host,
    to: Host,
    bytes: Vec<u8>,
}

/// What happens next.
enum Next {
    Arrive(u32),
    Turn(usize),
}

impl<P: Program> World<P> {
    pub(crate) fn new(prng: &mut Prng, hosts: usize, trace: Trace) -> Self {
        Self {
            now: Instant::from_nanos(1_000_000),
            queue: BinaryHeap::new(),
            parcels: Vec::new(),
            vacant: Vec::new(),
            planned: 0,
            machines: (0..hosts).map(|_| None).collect(),
            turns: vec![NO_TURN; hosts],
            spare: Vec::new(),
            prng: prng.fork(),
            network: Network::new(prng.fork()),
            trace,
            stats: WorldStats::default(),
            sealed: false,
            forger: None,
            opened_twice: None,
            arrivals: Vec::new(),
            sent: Vec::new(),
            paths: None,
            too_long: None,
        }
    }

    pub(crate) fn now(&self) -> Instant {
        self.now
    }

    /// The clock of a machine that starts now: clocks share no epoch.
    pub(crate) fn fresh_clock(&mut self) -> LocalClock {
        let local = Instant::from_nanos(self.prng.in_range(1_000_000_000..=1_000_000_000_000));
        LocalClock::new(self.now, local)
    }

    /// Starts a program on a host; whatever ran there before is gone.
    pub(crate) fn start(
        &mut self,
        host: Host,
        endpoint: Endpoint<Host>,
        program: P,
        clock: LocalClock,
    ) {
        self.trace.note(self.now, || format!("{host} starts"));
        let mut machine = Machine::new(endpoint, program, clock);
        machine.seals = self.sealed.then(Seals::default);
        machine.datagrams = self.paths.as_ref().map(|_| Datagrams::default());
        self.machines[host.index()] = Some(machine);
        self.turns[host.index()] = NO_TURN;
        self.plan_turn(host);
    }

    /// Ends the program on a host immediately. Packets that are under way still arrive.
    pub(crate) fn kill(&mut self, host: Host) -> Option<P> {
        self.trace.note(self.now, || format!("{host} dies"));
        self.turns[host.index()] = NO_TURN;
        self.machines[host.index()]
            .take()
            .map(|machine| machine.program)
    }

    /// A machine gets another address, where nothing runs. What is sent to the old one does not reach it any more.
    pub(crate) fn readdress(&mut self, from: Host, to: Host) {
        self.trace.note(self.now, || format!("{from} is {to} now"));
        self.machines[to.index()] = self.machines[from.index()].take();
        self.turns[from.index()] = NO_TURN;
        self.turns[to.index()] = NO_TURN;
        self.plan_turn(to);
    }

    /// Counts from here on.
    pub(crate) fn count_anew(&mut self) {
        self.stats = WorldStats::default();
        self.network.stats = NetworkStats::default();
    }

    /// Packets that a host has sent and that have not arrived yet are lost.
    pub(crate) fn lose_from(&mut self, host: Host) {
        for parcel in &mut self.parcels {
            if parcel.from == host {
                parcel.bytes.clear();
            }
        }
    }

    pub(crate) fn program(&self, host: Host) -> Option<&P> {
        self.machines[host.index()]
            .as_ref()
            .map(|machine| &machine.program)
    }

    pub(crate) fn program_mut(&mut self, host: Host) -> Option<&mut P> {
        self.machines[host.index()]
            .as_mut()
            .map(|machine| &mut machine.program)
    }

    /// The reading of a machine's clock; nothing if the machine is down.
    pub(crate) fn local_time(&self, host: Host, simulated: Instant) -> Option<Instant> {
        let machine = self.machines[host.index()].as_ref()?;
        Some(machine.clock.local(simulated))
    }

    /// The running machines.
    pub(crate) fn machines(&self) -> impl Iterator<Item = (Host, &Machine<P>)> {
        let numbered = (0..).map(Host).zip(&self.machines);
        numbered.filter_map(|(host, machine)| machine.as_ref().map(|machine| (host, machine)))
    }

    pub(crate) fn pause(&mut self, host: Host, span: Duration) -> bool {
        let until = self.now + span;
        let Some(machine) = &mut self.machines[host.index()] else {
            return false;
        };
        machine.paused_until = machine.paused_until.max(until);
        if canary::planted("lease ignores a pause") {
            machine.clock.stand_still(self.now, machine.paused_until);
        }
        self.plan_turn(host);
        true
    }

    /// Pauses a machine, between two turns or within one: that turn has read the clock already, and goes on with its packets
    /// when the pause is over.
    pub(crate) fn pause_in(&mut self, host: Host, span: Duration, within_a_turn: bool) -> bool {
        let now = self.now;
        if let Some(machine) = &mut self.machines[host.index()]
            && within_a_turn
        {
            machine.begun.get_or_insert(now);
        }
        self.pause(host, span)
    }

    /// Changes a machine's clock; false if the machine is down.
    pub(crate) fn with_clock(
        &mut self,
        host: Host,
        change: impl FnOnce(&mut LocalClock, Instant),
    ) -> bool {
        let now = self.now;
        let Some(machine) = &mut self.machines[host.index()] else {
            return false;
        };
        change(&mut machine.clock, now);
        self.plan_turn(host);
        true
    }

    /// Makes a machine check its work, after something outside has given it some.
    pub(crate) fn poke(&mut self, host: Host) {
        let Some(machine) = &mut self.machines[host.index()] else {
            return;
        };
        machine.woken = true;
        self.plan_turn(host);
    }

    /// Whether a machine stands still.
    pub(crate) fn is_paused(&self, host: Host) -> bool {
        let machine = self.machines[host.index()].as_ref();
        machine.is_some_and(|machine| machine.paused_until > self.now)
    }

    /// Changes the endpoint of a machine, which is told the machine's own time; nothing if the machine is down.
    pub(crate) fn with_endpoint<T>(
        &mut self,
        host: Host,
        change: impl FnOnce(&mut Endpoint<Host>, Instant) -> T,
    ) -> Option<T> {
        let now = self.now;
        let machine = self.machines[host.index()].as_mut()?;
        let changed = change(&mut machine.endpoint, machine.clock.local(now));
        self.poke(host);
        Some(changed)
    }

    /// Sends so many packets that no machine has sent, or not now. Returns how many there were.
    pub(crate) fn forge(&mut self, packets: u64) -> u64 {
        let forged: Vec<Forged> = match &mut self.forger {
            Some(forger) => (0..packets).filter_map(|_| forger.forge()).collect(),
            None => Vec::new(),
        };
        let count = forged.len() as u64;
        for Forged {
            from,
            to,
            bytes,
            after,
        } in forged
        {
            self.trace.packet(self.now, "forge", from, to, &bytes);
            self.plan(self.now + after, Parcel { from, to, bytes });
        }
        count
    }

    /// A datagram that no machine of this world has sent arrives in a while, beside the order and the faults of its link.
    pub(crate) fn post(&mut self, from: Host, to: Host, bytes: Vec<u8>, after: Duration) {
        self.trace.packet(self.now, "post", from, to, &bytes);
        self.plan(self.now + after, Parcel { from, to, bytes });
    }

    /// No sealed packet was opened twice.
    pub(crate) fn opened_once(&self) -> Verdict {
        let twice = self.opened_twice.as_ref();
        twice.map_or(Verdict::Pass, |text| Verdict::violation(text.clone()))
    }

    /// No datagram was longer than what its sender could know that the path carries.
    pub(crate) fn datagrams_fitted(&self) -> Verdict {
        let too_long = self.too_long.as_ref();
        too_long.map_or(Verdict::Pass, |text| Verdict::violation(text.clone()))
    }

    /// A new endpoint wishes for what its machine was told of the paths, if they carry little.
    pub(crate) fn fit_to_paths(&mut self, endpoint: &mut Endpoint<Host>) {
        if let Some(paths) = &mut self.paths {
            endpoint.set_packet_sizes(paths.sizes());
            self.network.stats.fire(Fault::SmallPaths);
        }
    }

    /// Whether the path carries the packet's datagram.
    fn fits(&mut self, from: Host, packet: &Sent) -> bool {
        let Some(paths) = &self.paths else {
            return true;
        };
        let (bytes, carries, to) = (packet.datagram_bytes, paths.carries, packet.to);
        if bytes <= carries {
            return true;
        }
        if paths.keep_promises() {
            self.too_long.get_or_insert_with(|| {
                format!("too long for the path: a datagram of {bytes} bytes from {from} to {to}, which carries {carries}")
            });
        }
        let fault = Fault::SmallPaths;
        self.trace
            .note(self.now, || format!("lost {from} -> {to}: {fault}"));
        false
    }

    /// Plays all events that are due until `until`.
    pub(crate) fn run_until(&mut self, until: Instant) {
        while let Some((at, next)) = self.next_happening().filter(|&(at, _)| at <= until) {
            self.now = at;
            match next {
                Next::Arrive(parcel) => {
                    self.queue.pop();
                    self.arrive(parcel);
                }
                Next::Turn(machine) => self.turn(machine),
            }
        }
        self.now = self.now.max(until);
    }

    /// The earliest of all arrivals and turns; of two at one time the one that was planned first.
    fn next_happening(&self) -> Option<(Instant, Next)> {
        let arrival = self.queue.peek().map(|Reverse(due)| *due);
        let mut first = arrival.map(|due| (due.at, due.number, Next::Arrive(due.parcel)));
        let turns = self.turns.iter().zip(0..);
        if let Some((turn, machine)) = turns.min_by_key(|(turn, _)| **turn)
            && turn.0 != Instant::FAR_FUTURE
            && first
                .as_ref()
                .is_none_or(|&(at, number, _)| *turn < (at, number))
        {
            first = Some((turn.0, turn.1, Next::Turn(machine)));
        }
        first.map(|(at, _, next)| (at, next))
    }

    fn arrive(&mut self, parcel: u32) {
        self.vacant.push(parcel);
        let Parcel { from, to, bytes } = &mut self.parcels[parcel as usize];
        let (from, to, bytes) = (*from, *to, std::mem::take(bytes));
        if bytes.is_empty() {
            self.trace.note(self.now, || {
                format!("lost {from} -> {to}: nothing of it is left")
            });
            self.stats.datagrams_lost += 1;
            return;
        }
        self.trace.packet(self.now, "recv", from, to, &bytes);
        let received = self.machines[to.index()]
            .as_mut()
            .is_some_and(|machine| machine.receive(from, bytes));
        if received {
            self.network.stats.packets_delivered += 1;
            self.plan_turn(to);
        } else {
            let is_up = self.machines[to.index()].is_some();
            self.trace.note(self.now, || {
                let why = if is_up {
                    "its receive queue is full"
                } else {
                    "it is down"
                };
                format!("lost {from} -> {to}: {why}")
            });
            self.stats.datagrams_lost += 1;
        }
    }

    fn turn(&mut self, index: usize) {
        let (now, host) = (self.now, Host(index as u16));
        let Some(machine) = &mut self.machines[index] else {
            return;
        };
        self.turns[index] = NO_TURN;
        if machine.paused_until > now {
            return self.plan_turn(host);
        }
        self.stats.turns += 1;
        let mut sent = std::mem::take(&mut self.sent);
        let taken = machine.turn(now, &mut sent, &mut self.spare);
        let cost = TURN_COST_NS + DATAGRAM_COST_NS * (taken + sent.len()) as u64;
        machine.busy_until = now + Duration::from_nanos(cost);
        if let Some(seals) = machine
            .seals
            .as_ref()
            .filter(|_| self.opened_twice.is_none())
        {
            self.opened_twice = seals.finding(host, &machine.endpoint);
        }
        if self.trace.is_on() {
            for line in machine.program.take_notes() {
                self.trace.note(now, || format!("{host} {line}"));
            }
        }
        self.send(host, &mut sent);
        self.sent = sent;
        self.plan_turn(host);
    }

    /// Sends wire packets; neighbours for one host may share a datagram.
    fn send(&mut self, from: Host, sent: &mut Vec<Sent>) {
        let mut open: Option<(Host, Instant, Vec<u8>)> = None;
        for packet in sent.drain(..) {
            let is_carried = self.fits(from, &packet);
            let Sent { to, bytes, .. } = packet;
            assert!(
                to.index() < self.machines.len(),
                "routes name hosts of this world"
            );
            self.trace.packet(self.now, "send", from, to, &bytes);
            if let Some(forger) = &mut self.forger {
                forger.observe(from, to, &bytes);
            }
            if !is_carried {
                self.spare.push(bytes);
                continue;
            }
            let mut arrivals = std::mem::take(&mut self.arrivals);
            self.network
                .send(self.now, from, to, bytes, &mut arrivals, &mut self.trace);
            for arrival in arrivals.drain(..) {
                open = self.join(from, to, open, arrival);
            }
            self.arrivals = arrivals;
        }
        if let Some((to, at, bytes)) = open {
            self.plan(at, Parcel { from, to, bytes });
        }
    }

    /// Adds an arrival to the open datagram if that is possible; returns the datagram that is open then.
    fn join(
        &mut self,
        from: Host,
        to: Host,
        open: Option<(Host, Instant, Vec<u8>)>,
        arrival: Arrival,
    ) -> Option<(Host, Instant, Vec<u8>)> {
        let datagram_max = self
            .paths
            .as_ref()
            .map_or(DEVICE_BYTES, |paths| paths.carries);
        if !arrival.ordinary {
            let bytes = arrival.bytes;
            self.plan(arrival.at, Parcel { from, to, bytes });
            return open;
        }
        match open {
            Some((open_to, at, mut bytes))
                if open_to == to
                    && bytes.len() + arrival.bytes.len() <= datagram_max
                    && self.prng.chance(Ratio::percent(75)) =>
            {
                bytes.extend_from_slice(&arrival.bytes);
                self.spare.push(arrival.bytes);
                Some((to, at.max(arrival.at), bytes))
            }
            Some((open_to, at, bytes)) => {
                let to_open = Parcel {
                    from,
                    to: open_to,
                    bytes,
                };
                self.plan(at, to_open);
                Some((to, arrival.at, arrival.bytes))
            }
            None => Some((to, arrival.at, arrival.bytes)),
        }
    }

    fn plan_turn(&mut self, host: Host) {
        let now = self.now;
        let Some(machine) = &mut self.machines[host.index()] else {
            return;
        };
        let Some(due) = machine.next_turn() else {
            return;
        };
        let at = due.max(now);
        let turn = &mut self.turns[host.index()];
        if at == turn.0 {
            return;
        }
        *turn = (at, self.planned);
        self.planned += 1;
    }

    fn plan(&mut self, at: Instant, parcel: Parcel) {
        let number = self.planned;
        self.planned += 1;
        let place = match self.vacant.pop() {
            Some(place) => {
                self.parcels[place as usize] = parcel;
                place
            }
            None => {
                self.parcels.push(parcel);
                (self.parcels.len() - 1) as u32
            }
        };
        let due = Due {
            at,
            number,
            parcel: place,
        };
        self.queue.push(Reverse(due));
    }
}
