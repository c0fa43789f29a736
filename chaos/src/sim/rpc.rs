//! The transport alone under faults: does every request complete once or fail, does no handler run
//! twice, do the right bytes come back, and are all credits free again at the end?

use super::config::varied_endpoint;
use super::machine::Machine;
use super::network::{Cut, REPLAY_NS};
use super::trace::Trace;
use super::world::World;
use super::{Host, Program, message_of};
use crate::checker::Verdict;
use crate::fault::{Event as FaultEvent, Fault, Schedule, Topology};
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use trine_transport::app::{App, Completion, Cx, Reply, Request, ResponseHandle, RpcError};
use trine_transport::backend::Caps;
use trine_transport::buf::{MsgBuf, Pool, PoolConfig};
use trine_transport::endpoint::Endpoint;
use trine_transport::prng::{Prng, Ratio};
use trine_transport::session::{ConnectParams, Event, Identity, SessionId};
use trine_transport::time::{Duration, Instant};

/// Length of the part of a request that describes the answer.
const SPEC_BYTES: usize = 24;
/// Requests that a program keeps under way to each peer.
const WINDOW: usize = 24;
/// Pause before connecting again.
const RECONNECT: Duration = Duration::from_millis(5);

/// What to simulate.
#[derive(Clone, Debug)]
pub struct RpcConfig {
    /// The seed.
    pub seed: u64,
    /// Machines, each a client and a server of all others.
    pub hosts: u16,
    /// Simulated time with faults.
    pub faulty: Duration,
    /// Simulated time without, at the end.
    pub quiet: Duration,
    /// The faults; nothing draws a subset.
    pub faults: Option<BTreeSet<Fault>>,
}

impl RpcConfig {
    /// Three machines, two simulated seconds with a drawn subset of the faults, one without.
    pub fn new(seed: u64) -> Self {
        Self {
            seed,
            hosts: 3,
            faulty: Duration::from_secs(2),
            quiet: Duration::from_secs(3),
            faults: None,
        }
    }
}

/// The result.
#[derive(Clone, Debug)]
pub struct RpcReport {
    /// The judgement.
    pub verdict: Verdict,
    /// Requests by how they ended: `ok` or the error.
    pub ended: BTreeMap<String, u64>,
    /// Faults that fired.
    pub faults: BTreeMap<Fault, u64>,
    /// Wire packets sent.
    pub packets: u64,
    /// A hash over every end of every request, in order.
    pub hash: u64,
}

/// The command that replays a seed and prints what happens.
pub fn replay_command(seed: u64) -> String {
    format!("cargo run --profile sim -- sim --rpc --seed {seed} --trace")
}

/// [`run`], where a panic is a finding about this seed and not the end of all runs.
pub fn run_caught(config: &RpcConfig, trace: Trace) -> RpcReport {
    catch_unwind(AssertUnwindSafe(|| run(config, trace))).unwrap_or_else(|payload| RpcReport {
        verdict: Verdict::violation(format!("panic: {}", message_of(&*payload))),
        ended: BTreeMap::new(),
        faults: BTreeMap::new(),
        packets: 0,
        hash: 0,
    })
}

/// Runs the transport under faults.
pub fn run(config: &RpcConfig, trace: Trace) -> RpcReport {
    let mut prng = Prng::new(config.seed);
    let topology = Topology {
        replicas: usize::from(config.hosts),
        client_machines: 0,
    };
    let ledger = Rc::new(RefCell::new(Ledger::default()));
    let mut world: World<Peer> = World::new(&mut prng, usize::from(config.hosts), trace);
    let schedule = schedule(config, &mut prng, topology, world.now());
    for host in (0..config.hosts).map(Host) {
        start(&mut world, config, host, &mut prng, &ledger);
    }
    play(&mut world, config, &schedule, &mut prng, &ledger);
    world.network.calm();
    let end = schedule.quiet_from + config.quiet;
    // Then no new requests: everything under way must come to its end. The network's memory is part
    // of its faults: packets are replayed for some seconds more. They are no sign of life of dead
    // machines, and anything else that they begin must be over as well.
    world.run_until(end);
    stop_asking(&mut world);
    world.run_until(end + Duration::from_nanos(REPLAY_NS.1) + Duration::from_secs(3));
    report(&world, &schedule, &ledger.borrow())
}

/// The faults that make sense without replicas.
const KINDS: [Fault; 12] = [
    Fault::Replay,
    Fault::Loss,
    Fault::Duplication,
    Fault::Reordering,
    Fault::Delay,
    Fault::Corruption,
    Fault::Mtu,
    Fault::Partition,
    Fault::OneWay,
    Fault::Clog,
    Fault::Crash,
    Fault::Pause,
];

fn schedule(config: &RpcConfig, prng: &mut Prng, topology: Topology, start: Instant) -> Schedule {
    let enabled = config.faults.clone().unwrap_or_else(|| {
        let mut kinds = KINDS;
        prng.shuffle(&mut kinds);
        let count = prng.in_range(3..=KINDS.len() as u64) as usize;
        let mut drawn: BTreeSet<Fault> = kinds.into_iter().take(count).collect();
        // Deaths and cuts are rare in so short a time; some fault has to fire in any case.
        if !drawn.contains(&Fault::Duplication) && !drawn.contains(&Fault::Reordering) {
            drawn.insert(Fault::Loss);
        }
        drawn
    });
    Schedule::of(enabled, prng, topology, start, start + config.faulty)
}

fn start(
    world: &mut World<Peer>,
    config: &RpcConfig,
    host: Host,
    prng: &mut Prng,
    ledger: &Rc<RefCell<Ledger>>,
) {
    let caps = Caps {
        mtu: 1_472,
        rto_floor: Duration::from_millis(1),
        copies: prng.chance(Ratio::percent(50)),
        rx_queue_packets: 4_096,
        packet_is_dear: prng.chance(Ratio::percent(50)),
    };
    let pool = Pool::new(PoolConfig {
        bytes_max: 256 << 20,
    });
    let incarnation = prng.next_u64() | 1;
    let identity = Identity {
        cluster: 7,
        incarnation,
    };
    let endpoint = Endpoint::new(
        varied_endpoint(prng),
        &caps,
        pool,
        identity,
        prng.next_u64(),
    );
    let endpoint = endpoint.expect("the default configuration is sound");
    let peers = (0..config.hosts)
        .map(Host)
        .filter(|&peer| peer != host)
        .collect();
    let program = Peer::new(host, incarnation, peers, prng.fork(), Rc::clone(ledger));
    let clock = world.fresh_clock();
    world.start(host, endpoint, program, clock);
}

fn play(
    world: &mut World<Peer>,
    config: &RpcConfig,
    schedule: &Schedule,
    prng: &mut Prng,
    ledger: &Rc<RefCell<Ledger>>,
) {
    let mut ends: BTreeMap<(Instant, u64), End> = BTreeMap::new();
    let mut number = 0;
    for (at, event) in &schedule.events {
        while let Some(entry) = ends.first_entry().filter(|entry| entry.key().0 <= *at) {
            let ((due, number), end) = entry.remove_entry();
            world.run_until(due);
            finish(world, config, number, &end, prng, ledger);
        }
        world.run_until(*at);
        number += 1;
        if let Some((span, end)) = apply(world, config, number, event, prng) {
            ends.insert((*at + span, number), end);
        }
    }
    for ((due, number), end) in ends {
        world.run_until(due);
        finish(world, config, number, &end, prng, ledger);
    }
    world.run_until(schedule.quiet_from);
}

/// The action at the end of a fault.
enum End {
    Heal,
    Restart(Host),
}

fn apply(
    world: &mut World<Peer>,
    config: &RpcConfig,
    number: u64,
    event: &FaultEvent,
    prng: &mut Prng,
) -> Option<(Duration, End)> {
    let any_host = |prng: &mut Prng| Host(prng.below(u64::from(config.hosts)) as u16);
    let host = |index: usize| Host(index as u16);
    match event {
        FaultEvent::LinkFaults(link_faults) => world.network.set_link_faults(*link_faults),
        FaultEvent::Partition { side, span } => {
            world.network.cut(
                number,
                Cut::Partition(side.iter().map(|&index| host(index)).collect()),
            );
            return Some((*span, End::Heal));
        }
        FaultEvent::IsolateLeader { span, .. } => {
            world
                .network
                .cut(number, Cut::Partition(BTreeSet::from([any_host(prng)])));
            return Some((*span, End::Heal));
        }
        FaultEvent::OneWay { from, to, span } => {
            world
                .network
                .cut(number, Cut::OneWay(host(*from), host(*to)));
            return Some((*span, End::Heal));
        }
        FaultEvent::Clog { from, to, span } => {
            world
                .network
                .clog(host(*from), host(*to), world.now() + *span)
        }
        FaultEvent::Pause { span, .. } | FaultEvent::PauseApart { span } => {
            if world.pause(any_host(prng), *span) {
                world.network.stats.fire(Fault::Pause);
            }
        }
        FaultEvent::Crash { span, .. } | FaultEvent::Stop { span, .. } => {
            let victim = any_host(prng);
            if world.kill(victim).is_some() {
                world.network.stats.fire(Fault::Crash);
                return Some((*span, End::Restart(victim)));
            }
        }
        // Nothing that a transport alone has.
        FaultEvent::Drift { .. }
        | FaultEvent::Jump { .. }
        | FaultEvent::ClientCrash { .. }
        | FaultEvent::Transfer { .. }
        | FaultEvent::Remove { .. }
        | FaultEvent::Replace { .. }
        | FaultEvent::Blackout { .. }
        | FaultEvent::DiskSlow { .. }
        | FaultEvent::DiskTorn { .. }
        | FaultEvent::DiskCorrupt { .. }
        | FaultEvent::DiskFull { .. }
        | FaultEvent::ProcessKill { .. }
        | FaultEvent::DiskError { .. } => {}
    }
    None
}

fn finish(
    world: &mut World<Peer>,
    config: &RpcConfig,
    number: u64,
    end: &End,
    prng: &mut Prng,
    ledger: &Rc<RefCell<Ledger>>,
) {
    match end {
        End::Heal => world.network.heal(number),
        End::Restart(host) => start(world, config, *host, prng, ledger),
    }
}

fn stop_asking(world: &mut World<Peer>) {
    let hosts: Vec<Host> = world.machines().map(|(host, _)| host).collect();
    for host in hosts {
        if let Some(peer) = world.program_mut(host) {
            peer.asking = false;
        }
        world.poke(host);
    }
}

fn report(world: &World<Peer>, schedule: &Schedule, ledger: &Ledger) -> RpcReport {
    let mut ledger_verdict = ledger.verdict();
    for (host, machine) in world.machines() {
        ledger_verdict = ledger_verdict.and(idle(host, machine));
        for session in machine
            .program
            .peers
            .values()
            .filter_map(|link| link.session)
        {
            let used = machine
                .endpoint
                .session_stats(session)
                .map_or(0, |stats| stats.credits_in_use);
            if used != 0 {
                let text =
                    format!("{host} has {used} credits in use on a session without requests");
                ledger_verdict = ledger_verdict.and(Verdict::violation(text));
            }
        }
    }
    if ledger.ended.get("ok").copied().unwrap_or(0) < 1_000 {
        let text = format!(
            "nothing proved: fewer than 1000 requests were answered: {:?}",
            ledger.ended
        );
        ledger_verdict = ledger_verdict.and(Verdict::violation(text));
    }
    let fired = &world.network.stats.fired;
    if schedule
        .enabled
        .iter()
        .all(|fault| fired.get(fault).copied().unwrap_or(0) == 0)
        && !schedule.enabled.is_empty()
    {
        ledger_verdict = ledger_verdict.and(Verdict::violation("nothing proved: no fault fired"));
    }
    RpcReport {
        verdict: ledger_verdict,
        ended: ledger.ended.clone(),
        faults: fired.clone(),
        packets: world.network.stats.packets_sent,
        hash: ledger.hash,
    }
}

fn idle(host: Host, machine: &Machine<Peer>) -> Verdict {
    let pending = machine.endpoint.stats().requests_pending;
    let open = machine
        .program
        .peers
        .iter()
        .filter(|(_, link)| !link.open.is_empty());
    let stuck: Vec<String> = open
        .map(|(peer, link)| {
            let stats = link
                .session
                .and_then(|session| machine.endpoint.session_stats(session));
            format!(
                "{} to {peer}, whose session says {stats:?}",
                link.open.len()
            )
        })
        .collect();
    if pending == 0 && stuck.is_empty() {
        return Verdict::Pass;
    }
    Verdict::violation(format!(
        "{host} still has {pending} requests in its endpoint long after the faults: {}",
        stuck.join("; ")
    ))
}

/// State that all programs share.
#[derive(Default)]
struct Ledger {
    /// How often the handler ran, by caller's incarnation and tag.
    executed: BTreeMap<(u64, u64), u32>,
    ended: BTreeMap<String, u64>,
    wrong: Option<String>,
    hash: u64,
}

impl Ledger {
    fn execute(&mut self, incarnation: u64, tag: u64) {
        let count = self.executed.entry((incarnation, tag)).or_default();
        *count += 1;
        let count = *count;
        if count > 1 {
            self.blame(format!("the handler of request {tag} ran {count} times"));
        }
    }

    fn end(&mut self, incarnation: u64, tag: u64, result: Result<(), RpcError>) {
        let name = result.map_or_else(|error| format!("{error:?}"), |()| "ok".to_owned());
        *self.ended.entry(name).or_default() += 1;
        let executed = self.executed.get(&(incarnation, tag)).copied().unwrap_or(0);
        match result {
            Ok(()) if executed != 1 => self.blame(format!(
                "request {tag} was answered and its handler ran {executed} times"
            )),
            Err(RpcError::NotSent) if executed != 0 => {
                self.blame(format!("request {tag} was `not sent` and its handler ran"))
            }
            _ => {}
        }
        let code = match result {
            Ok(()) => 0,
            Err(RpcError::NotSent) => 1,
            Err(RpcError::OutcomeUnknown) => 2,
            Err(RpcError::DeadlineExceeded) => 3,
            Err(RpcError::Cancelled) => 4,
            Err(RpcError::ResponseTooLarge { .. }) => 5,
        };
        for word in [incarnation, tag, code] {
            self.hash = (self.hash ^ word)
                .wrapping_mul(0x0000_0100_0000_01b3)
                .rotate_left(23);
        }
    }

    fn blame(&mut self, text: String) {
        self.wrong.get_or_insert(text);
    }

    fn verdict(&self) -> Verdict {
        self.wrong.as_ref().map_or(Verdict::Pass, |text| {
            Verdict::violation(format!("transport: {text}"))
        })
    }
}

/// Asks all peers and answers all peers.
struct Peer {
    host: Host,
    incarnation: u64,
    peers: BTreeMap<Host, Link>,
    prng: Prng,
    ledger: Rc<RefCell<Ledger>>,
    tags: u64,
    asking: bool,
    /// Answers that come later.
    owed: VecDeque<(Instant, ResponseHandle, Spec)>,
}

/// The client side towards one peer.
#[derive(Default)]
struct Link {
    session: Option<SessionId>,
    connected: bool,
    retry_at: Option<Instant>,
    /// Requests without an end, by tag.
    open: BTreeSet<u64>,
}

/// The content of a request.
#[derive(Copy, Clone)]
struct Spec {
    incarnation: u64,
    tag: u64,
    response_bytes: u32,
    delay_us: u32,
}

impl Spec {
    fn read(bytes: &[u8]) -> Option<Spec> {
        let word = |at: usize| Some(u64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?));
        let sizes = word(16)?;
        Some(Spec {
            incarnation: word(0)?,
            tag: word(8)?,
            response_bytes: sizes as u32,
            delay_us: (sizes >> 32) as u32,
        })
    }

    fn write(&self, bytes: &mut [u8]) {
        bytes[..8].copy_from_slice(&self.incarnation.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.tag.to_le_bytes());
        bytes[16..20].copy_from_slice(&self.response_bytes.to_le_bytes());
        bytes[20..24].copy_from_slice(&self.delay_us.to_le_bytes());
        fill(&mut bytes[SPEC_BYTES..], self.tag);
    }
}

/// Bytes that say whose they are and where they belong.
fn fill(bytes: &mut [u8], tag: u64) {
    for (at, byte) in bytes.iter_mut().enumerate() {
        *byte = pattern(tag, at);
    }
}

fn pattern(tag: u64, at: usize) -> u8 {
    (tag.wrapping_mul(0x9e37_79b9)
        .wrapping_add(at as u64)
        .wrapping_mul(0x85eb_ca6b)
        >> 16) as u8
}

fn is_filled(bytes: &[u8], tag: u64) -> bool {
    bytes
        .iter()
        .enumerate()
        .all(|(at, &byte)| byte == pattern(tag, at))
}

impl Peer {
    fn new(
        host: Host,
        incarnation: u64,
        peers: Vec<Host>,
        prng: Prng,
        ledger: Rc<RefCell<Ledger>>,
    ) -> Self {
        let peers = peers
            .into_iter()
            .map(|peer| (peer, Link::default()))
            .collect();
        Self {
            host,
            incarnation,
            peers,
            prng,
            ledger,
            tags: 0,
            asking: true,
            owed: VecDeque::new(),
        }
    }

    fn connect_and_ask(&mut self, cx: &mut Cx<'_, Host>) {
        let hosts: Vec<Host> = self.peers.keys().copied().collect();
        for host in hosts {
            self.connect(cx, host);
            while self.asking
                && self.peers[&host].connected
                && self.peers[&host].open.len() < WINDOW
            {
                if !self.ask(cx, host) {
                    break;
                }
            }
        }
    }

    fn connect(&mut self, cx: &mut Cx<'_, Host>, host: Host) {
        let now = cx.now();
        let Some(link) = self.peers.get_mut(&host) else {
            return;
        };
        if link.session.is_none() && link.retry_at.is_none_or(|at| at <= now) {
            link.retry_at = Some(now + RECONNECT);
            link.session = cx.connect(host, ConnectParams::default()).ok();
        }
    }

    fn ask(&mut self, cx: &mut Cx<'_, Host>, host: Host) -> bool {
        self.tags += 1;
        let tag = u64::from(self.host.0) << 48 | self.tags;
        let (request_bytes, response_bytes) = (self.size(), self.size());
        let late = self.prng.chance(Ratio::percent(10));
        let delay_us = if late {
            self.prng.in_range(1..=30_000) as u32
        } else {
            0
        };
        let spec = Spec {
            incarnation: self.incarnation,
            tag,
            response_bytes: response_bytes as u32,
            delay_us,
        };
        let (Some(mut request), Some(response)) = (
            cx.alloc(SPEC_BYTES + request_bytes),
            cx.alloc(response_bytes),
        ) else {
            return false;
        };
        spec.write(&mut request);
        let patience = self
            .prng
            .chance(Ratio::percent(10))
            .then(|| Duration::from_micros(self.prng.in_range(100..=50_000)));
        let deadline = patience.map(|patience| cx.now() + patience);
        let link = self.peers.get_mut(&host).expect("asked of a known peer");
        let session = link.session.expect("a connected link has a session");
        let Ok(id) = cx.enqueue_request(session, 1, request, response, tag, deadline) else {
            return false;
        };
        link.open.insert(tag);
        if self.prng.chance(Ratio::percent(2)) {
            cx.cancel(id);
        }
        true
    }

    /// Mostly one packet, sometimes some, rarely many.
    fn size(&mut self) -> usize {
        let limit = match self.prng.below(100) {
            0..=79 => 300,
            80..=97 => 6_000,
            _ => 120_000,
        };
        self.prng.below(limit) as usize
    }

    fn answer(cx: &mut Cx<'_, Host>, spec: &Spec) -> Option<MsgBuf> {
        let mut response = cx.alloc(spec.response_bytes as usize)?;
        fill(&mut response, spec.tag);
        Some(response)
    }

    fn pay_what_is_due(&mut self, cx: &mut Cx<'_, Host>) {
        let now = cx.now();
        let (due, rest): (VecDeque<_>, VecDeque<_>) =
            self.owed.drain(..).partition(|(at, ..)| *at <= now);
        self.owed = rest;
        for (_, handle, spec) in due {
            if let Some(response) = Self::answer(cx, &spec) {
                // The caller may have stopped waiting; then the buffer comes back and that is all.
                drop(cx.enqueue_response(handle, response));
            }
        }
    }

    fn link_of(&mut self, session: SessionId) -> Option<&mut Link> {
        self.peers
            .values_mut()
            .find(|link| link.session == Some(session))
    }
}

impl App<Host> for Peer {
    fn on_request(&mut self, cx: &mut Cx<'_, Host>, request: Request<'_>) -> Reply {
        let spec = Spec::read(request.data);
        let Some(spec) = spec.filter(|spec| is_filled(&request.data[SPEC_BYTES..], spec.tag))
        else {
            self.ledger
                .borrow_mut()
                .blame("a handler was given bytes that nobody sent".to_owned());
            return Reply::Later;
        };
        self.ledger.borrow_mut().execute(spec.incarnation, spec.tag);
        if spec.delay_us == 0 {
            return Self::answer(cx, &spec).map_or(Reply::Later, Reply::Now);
        }
        let due = cx.now() + Duration::from_micros(u64::from(spec.delay_us));
        self.owed.push_back((due, request.handle, spec));
        Reply::Later
    }

    fn on_completion(&mut self, _cx: &mut Cx<'_, Host>, tag: u64, completion: Completion) {
        let spec = Spec::read(&completion.request);
        let mut ledger = self.ledger.borrow_mut();
        match spec {
            Some(spec) if spec.tag == tag && spec.incarnation == self.incarnation => {
                let whole = completion.response.len() == spec.response_bytes as usize;
                if completion.result.is_ok() && !(whole && is_filled(&completion.response, tag)) {
                    ledger.blame(format!("request {tag} got an answer that is not its own"));
                }
            }
            _ => ledger.blame(format!(
                "the completion of {tag} brought another request's buffer"
            )),
        }
        if !self.peers.values_mut().any(|link| link.open.remove(&tag)) {
            ledger.blame(format!("request {tag} completed twice"));
        }
        ledger.end(self.incarnation, tag, completion.result);
    }

    fn on_event(&mut self, cx: &mut Cx<'_, Host>, event: Event<Host>) {
        let now = cx.now();
        match event {
            Event::Connected { session, .. } => {
                if let Some(link) = self.link_of(session) {
                    link.connected = true;
                }
            }
            Event::ConnectFailed { session, .. } | Event::Down { session, .. } => {
                if let Some(link) = self.link_of(session) {
                    link.session = None;
                    link.connected = false;
                    link.retry_at = Some(now + RECONNECT);
                }
            }
            Event::Accepted { .. } => {}
        }
    }

    fn on_turn(&mut self, cx: &mut Cx<'_, Host>) {
        self.pay_what_is_due(cx);
        self.connect_and_ask(cx);
    }

    fn next_timeout(&self) -> Option<Instant> {
        let reconnects = self
            .peers
            .values()
            .filter(|link| link.session.is_none())
            .filter_map(|link| link.retry_at);
        let owed = self.owed.iter().map(|(at, ..)| *at);
        reconnects.chain(owed).min()
    }
}

impl Program for Peer {}
