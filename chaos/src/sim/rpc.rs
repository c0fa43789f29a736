//! The transport alone under faults: does every request complete once or fail, does no handler run
//! twice, do the right bytes come back, and are all credits free again at the end?

use super::config::varied_endpoint;
use super::keys;
use super::machine::Machine;
use super::network::{Cut, REPLAY_NS};
use super::part::{Ending, Facts, Part, PartConfig, PartReport};
use super::player::{FaultTarget, Player, pause};
use super::report::ended_early;
use super::trace::Trace;
use super::world::World;
use super::{Host, Program};
use crate::checker::Verdict;
use crate::fault::{Event, Fault, Schedule, Topology};
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::rc::Rc;
use trine_transport::app::{App, Completion, Cx, Reply, Request, ResponseHandle, RpcError};
use trine_transport::backend::Caps;
use trine_transport::buf::{MsgBuf, Pool, PoolConfig};
use trine_transport::endpoint::Endpoint;
use trine_transport::prng::{Prng, Ratio};
use trine_transport::session::{self, ConnectParams, Identity, SessionId};
use trine_transport::time::{Duration, Instant};

pub use super::part::{run, run_while};

/// Length of the part of a request that describes the answer.
const SPEC_BYTES: usize = 24;
/// Requests that a program keeps under way to each peer.
const WINDOW: usize = 24;
/// How often a run is asked whether it goes on.
const STEP: Duration = Duration::from_millis(100);
/// Pause before connecting again.
const RECONNECT: Duration = Duration::from_millis(5);

/// Machines, each a client and a server of all others.
const HOSTS: u16 = 3;

/// The transport without replicas.
#[derive(Clone, Debug)]
pub struct Transport;

/// What to simulate.
pub type RpcConfig = PartConfig<Transport>;

/// The result.
pub type RpcReport = PartReport<Ends>;

/// How the requests of a run ended.
#[derive(Clone, Debug, Default)]
pub struct Ends {
    /// Requests by how they ended: `ok` or the error.
    pub ended: BTreeMap<String, u64>,
}

impl Facts for Ends {
    fn in_words(&self, packets: u64) -> String {
        format!("{packets} packets, ends {:?}", self.ended)
    }
}

impl Part for Transport {
    type Facts = Ends;
    const OPTION: &'static str = "--rpc";
    const KINDS: &'static [Fault] = &KINDS;
    const FAULTY: Duration = Duration::from_secs(2);
    const ANSWERS_MIN: u64 = 1_000;

    fn simulate(config: &RpcConfig, trace: Trace, go_on: fn() -> bool) -> RpcReport {
        simulate(config, trace, go_on)
    }
}

fn simulate(config: &RpcConfig, trace: Trace, go_on: fn() -> bool) -> RpcReport {
    let mut prng = Prng::new(config.seed);
    let topology = Topology {
        replicas: usize::from(HOSTS),
        client_machines: 0,
    };
    let world: World<Peer> = World::new(&mut prng, usize::from(HOSTS), trace);
    let schedule = schedule(config, &mut prng, topology, world.now());
    let mut hosts = Hosts {
        world,
        config,
        prng,
        ledger: Rc::default(),
        go_on,
        ended_early: false,
        endpoints_made: 0,
    };
    hosts.world.sealed = keys::is_drawn(config.seed);
    for host in (0..HOSTS).map(Host) {
        hosts.start(host);
    }
    // They begin before the first fault does.
    let begun = hosts.world.now();
    hosts.world.run_until(begun);
    let mut player = Player::new(STEP);
    player.play(&mut hosts, &schedule);
    player.run_to_the_last_end(&mut hosts);
    player.run_until(&mut hosts, schedule.quiet_from);
    hosts.world.network.calm();
    let end = schedule.quiet_from + config.quiet;
    // Then no new requests: everything under way must come to its end. The network's memory is part
    // of its faults: packets are replayed for some seconds more. They are no sign of life of dead
    // machines, and anything else that they begin must be over as well.
    player.run_until(&mut hosts, end);
    stop_asking(&mut hosts.world);
    let silent = end + Duration::from_nanos(REPLAY_NS.1) + Duration::from_secs(3);
    player.run_until(&mut hosts, silent);
    report(&hosts, &schedule)
}

/// The machines, and what a dead one is started again with.
struct Hosts<'a> {
    world: World<Peer>,
    config: &'a RpcConfig,
    prng: Prng,
    ledger: Rc<RefCell<Ledger>>,
    go_on: fn() -> bool,
    ended_early: bool,
    endpoints_made: u64,
}

/// A dead machine is started again.
struct Restart(Host);

/// The faults that make sense without replicas. Seeds draw from them, so their order counts.
pub const KINDS: [Fault; 12] = [
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
    // Drawn also if faults are named: then the rest of the run is the same.
    let mut kinds = KINDS;
    prng.shuffle(&mut kinds);
    let count = prng.in_range(3..=KINDS.len() as u64) as usize;
    let mut drawn: BTreeSet<Fault> = kinds.into_iter().take(count).collect();
    // Deaths and cuts are rare in so short a time; some fault has to fire in any case.
    if !drawn.contains(&Fault::Duplication) && !drawn.contains(&Fault::Reordering) {
        drawn.insert(Fault::Loss);
    }
    let enabled = config.faults.clone().unwrap_or(drawn);
    Schedule::of(enabled, prng, topology, start, start + config.faulty)
}

impl Hosts<'_> {
    fn any_host(&mut self) -> Host {
        Host(self.prng.below(u64::from(HOSTS)) as u16)
    }

    fn start(&mut self, host: Host) {
        let prng = &mut self.prng;
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
        let mut settings = varied_endpoint(prng);
        self.endpoints_made += 1;
        if self.world.sealed {
            settings.keys = Some(keys::of_peer(self.config.seed, self.endpoints_made));
        }
        let endpoint = Endpoint::new(settings, &caps, pool, identity, prng.next_u64());
        let endpoint = endpoint.expect("the default configuration is sound");
        let peers = (0..HOSTS).map(Host);
        let peers = peers.filter(|&peer| peer != host).collect();
        let ledger = Rc::clone(&self.ledger);
        let program = Peer::new(host, incarnation, peers, prng.fork(), ledger);
        let clock = self.world.fresh_clock();
        self.world.start(host, endpoint, program, clock);
    }
}

impl FaultTarget for Hosts<'_> {
    type Program = Peer;
    type End = Restart;

    fn world(&mut self) -> &mut World<Peer> {
        &mut self.world
    }

    fn goes_on(&mut self) -> bool {
        self.ended_early |= !(self.go_on)();
        !self.ended_early
    }

    /// Nobody leads here, so whoever is to suffer is drawn. Events that only replicas and their clients have do nothing.
    fn apply(&mut self, player: &mut Player<Restart>, event: &Event) {
        match event {
            Event::IsolateLeader { span, .. } => {
                let side = BTreeSet::from([self.any_host()]);
                player.cut(&mut self.world, *span, Cut::Partition(side));
            }
            Event::Pause { span, .. } | Event::PauseApart { span } => {
                let victim = self.any_host();
                pause(&mut self.world, victim, *span);
            }
            Event::Crash { span, .. } | Event::Stop { span, .. } => {
                let victim = self.any_host();
                if self.world.kill(victim).is_some() {
                    self.world.network.stats.fire(Fault::Crash);
                    player.end_later(self.world.now(), *span, Restart(victim));
                }
            }
            _ => player.change_links(&mut self.world, event),
        }
    }

    fn end(&mut self, _player: &mut Player<Restart>, Restart(host): Restart) {
        self.start(host);
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

fn report(hosts: &Hosts<'_>, schedule: &Schedule) -> RpcReport {
    let (world, ledger) = (&hosts.world, hosts.ledger.borrow());
    let fired = &world.network.stats.fired;
    let opened = world.opened_once();
    let verdict = ledger.verdict().and(opened).and(match hosts.ended_early {
        true => ended_early(world.now().saturating_since(Instant::ZERO)),
        false => everything_is_free(world)
            .and(enough_was_answered(hosts.config.answers_min, &ledger))
            .and(some_fault_fired(schedule, fired)),
    });
    let ending = Ending {
        verdict,
        hash: ledger.hash,
        early: hosts.ended_early,
    };
    let facts = Ends {
        ended: ledger.ended.clone(),
    };
    PartReport::new(hosts.config, (schedule, &world.network), ending, facts)
}

fn enough_was_answered(least: u64, ledger: &Ledger) -> Verdict {
    if ledger.ended.get("ok").copied().unwrap_or(0) >= least {
        return Verdict::Pass;
    }
    let ended = &ledger.ended;
    Verdict::violation(format!(
        "nothing proved: fewer than {least} requests were answered: {ended:?}"
    ))
}

fn some_fault_fired(schedule: &Schedule, fired: &BTreeMap<Fault, u64>) -> Verdict {
    let has_fired = |fault| fired.get(fault).is_some_and(|count| *count > 0);
    if schedule.enabled.is_empty() || schedule.enabled.iter().any(has_fired) {
        return Verdict::Pass;
    }
    Verdict::violation("nothing proved: no fault fired")
}

/// Nothing is under way at the end, and no credit is in use.
fn everything_is_free(world: &World<Peer>) -> Verdict {
    let mut verdict = Verdict::Pass;
    for (host, machine) in world.machines() {
        verdict = verdict.and(idle(host, machine));
        let links = machine.program.peers.values();
        for session in links.filter_map(|link| link.session) {
            let stats = machine.endpoint.session_stats(session);
            let used = stats.map_or(0, |stats| stats.credits_in_use);
            if used != 0 {
                verdict = verdict.and(Verdict::violation(format!(
                    "{host} has {used} credits in use on a session without requests"
                )));
            }
        }
    }
    verdict
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

    fn on_event(&mut self, cx: &mut Cx<'_, Host>, event: session::Event<Host>) {
        let now = cx.now();
        match event {
            session::Event::Connected { session, .. } => {
                if let Some(link) = self.link_of(session) {
                    link.connected = true;
                }
            }
            session::Event::ConnectFailed { session, .. }
            | session::Event::Down { session, .. } => {
                if let Some(link) = self.link_of(session) {
                    link.session = None;
                    link.connected = false;
                    link.retry_at = Some(now + RECONNECT);
                }
            }
            session::Event::Accepted { .. } => {}
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
