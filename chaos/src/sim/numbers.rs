//! Sequencers under faults: each number once, and growing.
//!
//! The real servers and the real transport run: `trine_sequencer::Dispatch` on an endpoint, and `Tenure` with its lease. The
//! group behind them is a simulated register. Clocks drift, servers die and pause, also between the beginning of a turn and its
//! work. A seed draws where the numbers are kept, and whether they pass the wrap of their low half.
//!
//! Each seed also plays the requests of four bytes that need no endpoint (`speculation.rs`).

mod clients;
mod server;
mod speculation;

use self::clients::{NumberClients, NumberLedger, hash_of};
use self::server::{Everybody, Kept, LastReading, Server, Source};
use super::config::varied_endpoint;
use super::keys;
use super::network::Cut;
use super::part::{Ending, Facts, Part, PartConfig, PartReport};
use super::player::{FaultTarget, Player};
use super::report::ended_early;
use super::trace::Trace;
use super::world::World;
use super::{Host, Program};
use crate::checker::Verdict;
use crate::checker::numbers::{Growth, check};
use crate::fault::{Event, Fault, Schedule, Topology};
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::rc::Rc;
use std::sync::Arc;
use trine_sequencer::config::EPOCH_LOW;
use trine_sequencer::wire::Keeping;
use trine_sequencer::{Dispatch, Supply, Tenure, Terms};
use trine_transport::app::{App, Completion, Cx, Reply, Request};
use trine_transport::backend::Caps;
use trine_transport::buf::{Pool, PoolConfig};
use trine_transport::endpoint::Endpoint;
use trine_transport::prng::{Prng, Ratio};
use trine_transport::session::{self, Identity};
use trine_transport::time::{Clock, Duration, Instant};

pub use super::part::{run, run_while};

/// Machines with clients.
const CLIENT_MACHINES: u16 = 3;
/// How often a run is asked whether it goes on.
const STEP: Duration = Duration::from_millis(100);

/// Sequencers, with a simulated register in the place of their group.
#[derive(Clone, Debug)]
pub struct Sequencers;

/// What to simulate.
pub type NumbersConfig = PartConfig<Sequencers>;

/// The result.
pub type NumbersReport = PartReport<Given>;

/// The numbers of a run.
#[derive(Clone, Debug, Default)]
pub struct Given {
    /// Where the numbers were kept.
    pub keeping: &'static str,
    /// Requests that got numbers.
    pub answered: u64,
    /// Requests that were told that there are none, or not told anything.
    pub without: u64,
    /// Whether numbers passed the wrap of their low half.
    pub wrapped: bool,
    /// Requests of four bytes that got numbers.
    pub speculated: u64,
    /// Those of them whose guess of the high half was wrong.
    pub corrected: u64,
    /// Requests of four bytes that were told that there are no numbers.
    pub refused: u64,
    /// Times that a client gave up its endpoint, and asked from another one.
    pub ways: u64,
}

impl Facts for Given {
    fn in_words(&self, packets: u64) -> String {
        format!(
            "kept in {}, {packets} packets, {} answered, {} without numbers; by four bytes {}, {} corrected, {} refused, {} from another endpoint",
            self.keeping,
            self.answered,
            self.without,
            self.speculated,
            self.corrected,
            self.refused,
            self.ways
        )
    }
}

impl Part for Sequencers {
    type Facts = Given;
    const OPTION: &'static str = "--sequencer";
    const KINDS: &'static [Fault] = &KINDS;
    const FAULTY: Duration = Duration::from_secs(5);
    const ANSWERS_MIN: u64 = 500;

    fn simulate(config: &NumbersConfig, trace: Trace, go_on: fn() -> bool) -> NumbersReport {
        simulate(config, trace, go_on)
    }
}

fn simulate(config: &NumbersConfig, trace: Trace, go_on: fn() -> bool) -> NumbersReport {
    let mut prng = Prng::new(config.seed);
    let keeping = match prng.below(5) {
        0 => Keeping::File,
        1 => Keeping::Loose,
        _ => Keeping::Strict,
    };
    let servers = match keeping {
        Keeping::File => 1,
        Keeping::Strict | Keeping::Loose => prng.in_range(2..=3) as u16,
    };
    let hosts = usize::from(servers + CLIENT_MACHINES);
    let topology = Topology {
        replicas: usize::from(servers),
        client_machines: usize::from(CLIENT_MACHINES),
    };
    let world: World<Node> = World::new(&mut prng, hosts, trace);
    let schedule = schedule(config, &mut prng, topology, world.now());
    let mut stage = Servers {
        world,
        seed: config.seed,
        servers,
        keeping,
        lease: match keeping {
            Keeping::Strict => Duration::from_millis(prng.in_range(50..=600)),
            Keeping::File | Keeping::Loose => Duration::ZERO,
        },
        kept: Rc::new(RefCell::new(Kept::new(&mut prng))),
        prng,
        ledger: Rc::default(),
        go_on,
        ended_early: false,
        endpoints_made: 0,
    };
    stage.world.sealed = keys::is_drawn(config.seed);
    for host in (0..hosts as u16).map(Host) {
        stage.start(host);
    }
    let mut player = Player::new(STEP);
    player.play(&mut stage, &schedule);
    player.run_to_the_last_end(&mut stage);
    player.run_until(&mut stage, schedule.quiet_from);
    stage.world.network.calm();
    player.run_until(&mut stage, schedule.quiet_from + config.quiet);
    report(&stage, config, &schedule)
}

/// The faults that make sense for sequencers. Seeds draw from them, so their order counts.
pub const KINDS: [Fault; 12] = [
    Fault::Replay,
    Fault::Loss,
    Fault::Duplication,
    Fault::Reordering,
    Fault::Delay,
    Fault::Corruption,
    Fault::Partition,
    Fault::OneWay,
    Fault::Clog,
    Fault::Crash,
    Fault::Pause,
    Fault::Drift,
];

fn schedule(
    config: &NumbersConfig,
    prng: &mut Prng,
    topology: Topology,
    start: Instant,
) -> Schedule {
    // Drawn also if faults are named: then the rest of the run is the same.
    let mut kinds = KINDS;
    prng.shuffle(&mut kinds);
    let count = prng.in_range(4..=KINDS.len() as u64) as usize;
    let mut drawn: BTreeSet<Fault> = kinds.into_iter().take(count).collect();
    drawn.insert(Fault::Loss);
    let enabled = config.faults.clone().unwrap_or(drawn);
    Schedule::of(enabled, prng, topology, start, start + config.faulty)
}

/// The servers, and what a dead one is started again with.
struct Servers {
    world: World<Node>,
    seed: u64,
    servers: u16,
    keeping: Keeping,
    lease: Duration,
    kept: Rc<RefCell<Kept>>,
    prng: Prng,
    ledger: Rc<RefCell<NumberLedger>>,
    go_on: fn() -> bool,
    ended_early: bool,
    endpoints_made: u64,
}

/// A dead server is started again.
struct Restart(Host);

impl Servers {
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
            bytes_max: 64 << 20,
        });
        let identity = Identity {
            cluster: 0,
            incarnation: prng.next_u64() | 1,
        };
        let mut settings = varied_endpoint(prng);
        self.endpoints_made += 1;
        if self.world.sealed {
            settings.keys = Some(keys::of_peer(self.seed, self.endpoints_made));
        }
        let endpoint = Endpoint::new(settings, &caps, pool, identity, prng.next_u64());
        let endpoint = endpoint.expect("the default configuration is sound");
        let node = match host.0 < self.servers {
            true => Node::Server(Box::new(self.server())),
            false => Node::Clients(NumberClients::new(
                host,
                self.servers,
                self.prng.fork(),
                &self.ledger,
            )),
        };
        let clock = self.world.fresh_clock();
        self.world.start(host, endpoint, node, clock);
    }

    fn server(&mut self) -> Server {
        let clock = LastReading::default();
        // Small ones are used up often. Of a large one enough is left for clients that ask while the server pauses.
        let block = match self.prng.below(3) {
            0 => self.prng.in_range(300..=30_000),
            _ => self.prng.in_range(1..=300),
        };
        let (low, source) = match self.keeping {
            Keeping::File => (EPOCH_LOW, Source::File(None)),
            Keeping::Strict | Keeping::Loose => {
                let terms = Terms {
                    me: self.prng.next_u64() | 1,
                    lease: self.lease,
                    block,
                    least: self.kept.borrow().least,
                };
                (block, Source::Group(Tenure::new(terms), None))
            }
        };
        let supply = Arc::new(Supply::new(low));
        let call = Box::new(|| {});
        let patience = match self.lease.is_zero() {
            true => Duration::from_millis(200),
            false => Duration::from_nanos(self.lease.as_nanos() / 2),
        };
        Server {
            dispatch: Dispatch::new(
                Arc::clone(&supply),
                self.keeping,
                clock.clone(),
                Everybody,
                call,
            ),
            supply,
            clock,
            source,
            kept: Rc::clone(&self.kept),
            patience,
            wake: None,
            call_at: None,
        }
    }

    fn any_server(&mut self) -> Host {
        Host(self.prng.below(u64::from(self.servers)) as u16)
    }
}

impl FaultTarget for Servers {
    type Program = Node;
    type End = Restart;

    fn world(&mut self) -> &mut World<Node> {
        &mut self.world
    }

    fn goes_on(&mut self) -> bool {
        self.ended_early |= !(self.go_on)();
        !self.ended_early
    }

    fn apply(&mut self, player: &mut Player<Restart>, event: &Event) {
        match event {
            Event::IsolateLeader { span, .. } => {
                let side = BTreeSet::from([self.any_server()]);
                player.cut(&mut self.world, *span, Cut::Partition(side));
            }
            Event::Pause { span, .. } | Event::PauseApart { span } => {
                let victim = self.any_server();
                let within_a_turn = self.prng.chance(Ratio::percent(50));
                // Long enough for clients to give this server up, and for another one to take over.
                let lease = Duration::from_nanos(4 * self.lease.as_nanos());
                let span = match self.prng.chance(Ratio::percent(50)) {
                    true => span.max(&lease),
                    false => span,
                };
                if self.world.pause_in(victim, *span, within_a_turn) {
                    self.world.network.stats.fire(Fault::Pause);
                }
            }
            Event::Crash { span, .. } | Event::Stop { span, .. } => {
                let victim = self.any_server();
                if let Some(node) = self.world.kill(victim) {
                    let landed = self.prng.chance(Ratio::percent(50));
                    node.die(&self.kept, landed);
                    self.world.network.stats.fire(Fault::Crash);
                    player.end_later(self.world.now(), *span, Restart(victim));
                }
            }
            Event::Drift {
                machine,
                parts_per_million,
            } => {
                let host = Host(*machine as u16);
                if self
                    .world
                    .with_clock(host, |clock, now| clock.drift(now, *parts_per_million))
                {
                    self.world.network.stats.fire(Fault::Drift);
                }
            }
            _ => player.change_links(&mut self.world, event),
        }
    }

    fn end(&mut self, _player: &mut Player<Restart>, Restart(host): Restart) {
        self.start(host);
    }
}

fn report(stage: &Servers, config: &NumbersConfig, schedule: &Schedule) -> NumbersReport {
    let (world, ledger) = (&stage.world, stage.ledger.borrow());
    let (keeping, growth) = match stage.keeping {
        Keeping::File => ("a file", Growth::RealTime),
        Keeping::Strict => ("a group, strict", Growth::RealTime),
        Keeping::Loose => ("a group", Growth::OfEachServer),
    };
    let answered = ledger.takings.len() as u64;
    let enough = match answered >= config.answers_min {
        _ if stage.ended_early => ended_early(world.now().saturating_since(Instant::ZERO)),
        true => Verdict::Pass,
        false => Verdict::violation(format!("nothing proved: {answered} requests were answered")),
    };
    let speculation = speculation::run(config.seed, &schedule.enabled);
    let ending = Ending {
        verdict: check(&ledger.takings, growth)
            .and(world.opened_once())
            .and(speculation.verdict)
            .and(enough),
        hash: hash_of(&ledger.takings) ^ speculation.hash,
        early: stage.ended_early,
    };
    let facts = Given {
        keeping,
        answered,
        without: ledger.without,
        wrapped: ledger.has_wrapped(),
        speculated: speculation.answered,
        corrected: speculation.corrected,
        refused: speculation.without,
        ways: speculation.ways,
    };
    PartReport::new(config, (schedule, &world.network), ending, facts)
}

/// What runs on a machine.
enum Node {
    Server(Box<Server>),
    Clients(NumberClients),
}

impl Node {
    /// Ends it at once. A write of a file has `landed` or not.
    fn die(self, kept: &Rc<RefCell<Kept>>, landed: bool) {
        if let Node::Server(server) = self
            && let Source::File(Some((epoch, _))) = server.source
            && landed
        {
            kept.borrow_mut().epoch = Some(epoch);
        }
    }
}

/// Calls the application of either kind.
macro_rules! either {
    ($node:expr, $app:ident => $call:expr) => {
        match $node {
            Node::Server(server) => {
                let $app = &mut server.dispatch;
                $call
            }
            Node::Clients($app) => $call,
        }
    };
}

impl App<Host> for Node {
    fn on_request(&mut self, cx: &mut Cx<'_, Host>, request: Request<'_>) -> Reply {
        either!(self, app => app.on_request(cx, request))
    }

    fn on_completion(&mut self, cx: &mut Cx<'_, Host>, tag: u64, completion: Completion) {
        either!(self, app => app.on_completion(cx, tag, completion));
    }

    fn on_event(&mut self, cx: &mut Cx<'_, Host>, event: session::Event<Host>) {
        either!(self, app => app.on_event(cx, event));
    }

    fn on_turn(&mut self, cx: &mut Cx<'_, Host>) {
        either!(self, app => app.on_turn(cx));
    }

    fn next_timeout(&self) -> Option<Instant> {
        match self {
            Node::Server(server) => server.wake,
            Node::Clients(clients) => clients.next_timeout(),
        }
    }
}

impl Program for Node {
    fn before_turn(&mut self, now: Instant, simulated: Instant) {
        match self {
            Node::Server(server) => {
                server.clock.0.set(now);
                server.reserve(now, simulated);
            }
            Node::Clients(clients) => clients.simulated = simulated,
        }
    }

    /// Requests of this turn may have left too few numbers.
    fn after_turn(&mut self, now: Instant, simulated: Instant) {
        if let Node::Server(server) = self {
            server.reserve(now.max(server.clock.now()), simulated);
        }
    }

    fn next_call(&self) -> Option<Instant> {
        match self {
            Node::Server(server) => server.call_at,
            Node::Clients(_) => None,
        }
    }
}
