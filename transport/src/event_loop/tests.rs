//! The loop without a network: when it sleeps, when it yields, how it is woken.

mod fork;

use super::*;
use crate::backend::{
    BackendStats, Caps, MonotonicClock, RingBackend, RingConfig, RingRoute, Route, RxSlot,
    UdpBackend, UdpConfig,
};
use crate::buf::Pool;
use crate::exchange::{Completion, Reply, Request};
use std::cell::Cell;

/// Counts its turns and wants to be called at a fixed moment.
#[derive(Debug, Default)]
struct Counter {
    turns: u32,
    due: Option<Instant>,
}

impl<R: Route> App<R> for Counter {
    fn on_request(&mut self, _cx: &mut Cx<'_, R>, _request: Request<'_>) -> Reply {
        Reply::Later
    }

    fn on_completion(&mut self, _cx: &mut Cx<'_, R>, _tag: u64, _completion: Completion) {}

    fn on_turn(&mut self, cx: &mut Cx<'_, R>) {
        self.turns += 1;
        if self.due.is_some_and(|due| cx.now() >= due) {
            self.due = None;
        }
    }

    fn next_timeout(&self) -> Option<Instant> {
        self.due
    }
}

fn event_loop(spin: Duration) -> EventLoop<RingBackend, MonotonicClock, Counter> {
    event_loop_over(RingBackend::pair(RingConfig::default()).0, spin)
}

fn udp() -> UdpBackend {
    UdpBackend::bind("127.0.0.1:0".parse().unwrap(), &UdpConfig::default()).unwrap()
}

fn event_loop_over<B: Backend>(
    backend: B,
    spin: Duration,
) -> EventLoop<B, MonotonicClock, Counter> {
    let config = Config {
        spin,
        ..Config::default()
    };
    let identity = Identity {
        cluster: 0,
        incarnation: 1,
    };
    EventLoop::new(
        backend,
        MonotonicClock,
        Counter::default(),
        config,
        identity,
        1,
    )
    .unwrap()
}

#[test]
fn an_idle_loop_sleeps_until_the_application_is_due() {
    let mut event_loop = event_loop(Duration::from_micros(20));
    event_loop.app_mut().due = Some(MonotonicClock.now() + Duration::from_millis(50));
    assert!(event_loop.run_until(None, |app| app.due.is_none()).unwrap());
    let stats = event_loop.stats();
    assert!(stats.sleeps >= 1);
    assert!(
        stats.sleeps < 20,
        "{stats:?}: it must not wake again and again"
    );
}

#[test]
fn the_deadline_ends_a_sleep() {
    let mut event_loop = event_loop(Duration::ZERO);
    let deadline = MonotonicClock.now() + Duration::from_millis(20);
    assert!(!event_loop.run_until(Some(deadline), |_| false).unwrap());
    assert!(event_loop.now() >= deadline);
    assert!(event_loop.stats().sleeps >= 1);
}

#[test]
fn a_waker_ends_a_sleep_without_end() {
    let mut event_loop = event_loop(Duration::ZERO);
    let waker = event_loop.waker();
    let thread = std::thread::spawn(move || waker.wake());
    // The wake comes before or during the first sleep; either way there is a second turn.
    assert!(event_loop.run_until(None, |app| app.turns >= 2).unwrap());
    thread.join().unwrap();
}

#[test]
fn while_it_spins_it_does_not_sleep() {
    let mut event_loop = event_loop(Duration::from_secs(1_000));
    assert!(
        event_loop
            .run_until(None, |app| app.turns == 1_000)
            .unwrap()
    );
    let stats = event_loop.stats();
    assert_eq!((stats.sleeps, stats.turns), (0, 1_000));
    assert!(stats.yields > 0, "{stats:?}");
}

/// A loop at one end of a ring, and the other end.
fn loop_on_ring(
    time: &Cell<u64>,
    spin: Duration,
) -> (EventLoop<RingBackend, Set<'_>, Counter>, RingBackend) {
    let (here, there) = RingBackend::pair(RingConfig::default());
    let config = Config {
        spin,
        ..Config::default()
    };
    let identity = Identity {
        cluster: 0,
        incarnation: 1,
    };
    let event_loop = EventLoop::new(here, Set(time), Counter::default(), config, identity, 1);
    (event_loop.unwrap(), there)
}

fn pass(time: &Cell<u64>, span: Duration) {
    time.set(time.get() + span.as_nanos());
}

/// A packet arrives, and the loop pauses behind the turn that takes it. Returns whether it slept.
fn sleeps_after_a_packet(
    event_loop: &mut EventLoop<RingBackend, Set<'_>, Counter>,
    there: &mut RingBackend,
) -> bool {
    let mut tx = TxBatch::new();
    tx.push(RingRoute(0), &[0; 24], crate::backend::Body::None);
    there.tx_burst(&mut tx).unwrap();
    assert!(event_loop.turn().unwrap());
    let before = event_loop.stats().sleeps;
    let soon = event_loop.now() + Duration::from_micros(1);
    event_loop.pause(Some(soon)).unwrap();
    event_loop.stats().sleeps > before
}

/// A heartbeat comes every 30 ms, and nothing behind it. Polling for 50 us after each was a third of what an idle follower
/// spent.
#[test]
fn it_polls_on_only_behind_packets_that_come_often() {
    let time = Cell::new(1_000_000_000);
    let (mut event_loop, mut there) = loop_on_ring(&time, Duration::from_micros(50));
    for _ in 0..3 {
        pass(&time, Duration::from_millis(30));
        assert!(sleeps_after_a_packet(&mut event_loop, &mut there));
    }
    pass(&time, Duration::from_millis(1));
    assert!(!sleeps_after_a_packet(&mut event_loop, &mut there));
    pass(&time, Duration::from_micros(51));
    event_loop.turn().unwrap();
    let soon = event_loop.now() + Duration::from_micros(1);
    let before = event_loop.stats().sleeps;
    event_loop.pause(Some(soon)).unwrap();
    assert_eq!(event_loop.stats().sleeps, before + 1, "the time is over");
}

/// A spin that is longer than the gaps makes the loop poll through them.
#[test]
fn a_long_spin_bridges_gaps() {
    let time = Cell::new(1_000_000_000);
    let (mut event_loop, mut there) = loop_on_ring(&time, Duration::from_millis(40));
    pass(&time, Duration::from_millis(30));
    assert!(!sleeps_after_a_packet(&mut event_loop, &mut there));
}

/// Its own request has just left: the answer is likely to come soon, however long nothing came before.
#[test]
fn it_polls_for_an_answer() {
    let time = Cell::new(1_000_000_000);
    let (mut event_loop, _there) = loop_on_ring(&time, Duration::from_micros(50));
    pass(&time, Duration::from_millis(30));
    let now = event_loop.clock().now();
    let session =
        event_loop
            .endpoint_mut()
            .connect(now, RingRoute(1), crate::ConnectParams::default());
    let pool = event_loop.backend().pool().clone();
    let (request, response) = (pool.alloc(8).unwrap(), pool.alloc(8).unwrap());
    let session = session.unwrap();
    let sent = event_loop
        .endpoint_mut()
        .enqueue_request(now, session, 1, request, response, 7, None);
    assert!(sent.is_ok());
    assert!(event_loop.turn().unwrap(), "the handshake leaves");
    let soon = event_loop.now() + Duration::from_micros(1);
    event_loop.pause(Some(soon)).unwrap();
    assert_eq!(event_loop.stats().sleeps, 0);
}

/// Empty turns between yields when each turn takes `gap` after a yield and 300 ns otherwise.
fn yields_in(turns: u32, gap: u64) -> u32 {
    let (mut courtesy, now) = (Courtesy::default(), Cell::new(0));
    let mut yields = 0;
    for _ in 0..turns {
        let turn = Instant::from_nanos(now.get());
        courtesy.on_turn(turn);
        let yielded = courtesy.should_yield(turn);
        yields += u32::from(yielded);
        now.set(now.get() + if yielded { gap } else { 300 });
    }
    yields
}

#[test]
fn a_loop_with_its_own_core_yields_rarely() {
    assert!(yields_in(1_600, 700) < 1_600 / YIELD_INTERVAL_MAX + 10);
}

#[test]
fn a_loop_on_a_shared_core_yields_after_every_empty_turn() {
    assert_eq!(yields_in(1_600, 5_000), 1_600);
}

/// Counts how often it is read.
struct CountedClock<'a>(&'a Cell<u32>);

impl Clock for CountedClock<'_> {
    fn now(&self) -> Instant {
        self.0.set(self.0.get() + 1);
        MonotonicClock.now()
    }
}

/// Clock readings in that turn of a client in which eight requests leave.
fn looks_for_eight_packets(batched_timestamps: bool) -> u32 {
    let (ours, theirs) = RingBackend::pair(RingConfig::default());
    let (address, looks) = (theirs.route(), Cell::new(0));
    let mut config = Config::default();
    config.congestion.batched_timestamps = batched_timestamps;
    let identity = Identity {
        cluster: 0,
        incarnation: 1,
    };
    let (client_config, app) = (config.clone(), Counter::default());
    let clock = CountedClock(&looks);
    let mut client = EventLoop::new(ours, clock, app, client_config, identity, 1).unwrap();
    let app = Counter::default();
    let mut server = EventLoop::new(theirs, MonotonicClock, app, config, identity, 2).unwrap();
    client.with(|_, cx| {
        let session = cx.connect(address, crate::ConnectParams::default());
        for tag in 0..8 {
            let (request, response) = (cx.alloc(32).unwrap(), cx.alloc(32).unwrap());
            cx.enqueue_request(session.unwrap(), 1, request, response, tag, None)
                .unwrap();
        }
    });
    for _ in 0..10_000 {
        let (looked, sent) = (looks.get(), client.endpoint().stats().packets_sent);
        client.turn().unwrap();
        if client.endpoint().stats().packets_sent - sent >= 8 {
            return looks.get() - looked;
        }
        server.turn().unwrap();
    }
    panic!("the requests never left");
}

#[test]
fn one_clock_reading_serves_all_packets_of_a_turn_unless_switched_off() {
    assert_eq!(looks_for_eight_packets(true), 1);
    let looks = looks_for_eight_packets(false);
    assert!(looks > 8, "{looks} looks for eight packets");
}

/// Goes on by a millisecond at each look.
struct SlowClock<'a>(&'a Cell<u64>);

impl Clock for SlowClock<'_> {
    fn now(&self) -> Instant {
        self.0.set(self.0.get() + 1);
        Instant::ZERO + Duration::from_millis(self.0.get())
    }
}

/// How long after a turn began its packets came, by its own account. `is_asked`: there are any.
fn age_of_a_turn(control: CongestionControl, is_asked: bool) -> Duration {
    let (ours, theirs) = RingBackend::pair(RingConfig::default());
    let (address, looks) = (theirs.route(), Cell::new(0));
    let mut config = Config::default();
    config.congestion.control = control;
    let identity = Identity {
        cluster: 0,
        incarnation: 1,
    };
    let app = Counter::default();
    let mut client =
        EventLoop::new(ours, MonotonicClock, app, config.clone(), identity, 1).unwrap();
    let clock = SlowClock(&looks);
    let mut server = EventLoop::new(theirs, clock, Echo, config, identity, 2).unwrap();
    if is_asked {
        client.with(|_, cx| {
            cx.connect(address, crate::ConnectParams::default())
                .unwrap()
        });
        client.turn().unwrap();
    }
    let began = Instant::ZERO + Duration::from_millis(looks.get() + 1);
    assert_eq!(server.turn().unwrap(), is_asked);
    server.now.saturating_since(began)
}

/// Round trips that seem too short are worse for a window than those that seem too long.
#[test]
fn packets_came_after_the_call_that_receives_them_where_a_window_depends_on_it() {
    use CongestionControl as Control;
    let look = Duration::from_millis(1);
    assert_eq!(age_of_a_turn(Control::Delay, true), look);
    assert_eq!(age_of_a_turn(Control::Delay, false), Duration::ZERO);
    assert_eq!(age_of_a_turn(Control::TimelyEcn, true), Duration::ZERO);
}

/// A time that the test sets.
#[derive(Copy, Clone)]
struct Set<'a>(&'a Cell<u64>);

impl Clock for Set<'_> {
    fn now(&self) -> Instant {
        Instant::from_nanos(self.0.get())
    }
}

/// Gives one packet a burst, as a socket does whose last receive call found one.
struct OneByOne {
    ring: RingBackend,
    memory: Vec<u8>,
    slots: Vec<RxSlot<RingRoute>>,
    next: usize,
}

impl Backend for OneByOne {
    type Route = RingRoute;

    fn caps(&self) -> Caps {
        self.ring.caps()
    }

    fn pool(&self) -> &Pool {
        self.ring.pool()
    }

    fn rx_burst(&mut self) -> Result<RxBatch<'_, RingRoute>, BackendError> {
        for packet in self.ring.rx_burst()? {
            self.slots.push(RxSlot {
                start: self.memory.len() as u32,
                len: packet.bytes.len() as u32,
                route: packet.route,
                ecn: packet.ecn,
            });
            self.memory.extend_from_slice(packet.bytes);
        }
        let one = self.slots.get(self.next..=self.next).unwrap_or_default();
        self.next += one.len();
        Ok(RxBatch::from_slots(&self.memory, one))
    }

    fn tx_burst(&mut self, tx: &mut TxBatch<RingRoute>) -> Result<(), BackendError> {
        self.ring.tx_burst(tx)
    }

    fn flush(&mut self) {}

    fn wait(&mut self, timeout: Option<Duration>) -> Result<(), BackendError> {
        self.ring.wait(timeout)
    }

    fn waker(&self) -> Waker {
        self.ring.waker()
    }

    fn stats(&self) -> BackendStats {
        self.ring.stats()
    }
}

struct Echo;

impl App<RingRoute> for Echo {
    fn on_request(&mut self, cx: &mut Cx<'_, RingRoute>, request: Request<'_>) -> Reply {
        Reply::Now(cx.alloc(request.data.len()).unwrap())
    }

    fn on_completion(&mut self, _cx: &mut Cx<'_, RingRoute>, _tag: u64, _completion: Completion) {}
}

/// On a machine with more threads than cores hundreds of packets a second were retransmitted. A process that came back
/// to its core took one of the answers that had arrived meanwhile, and then found all other requests overdue.
#[test]
fn after_a_pause_what_has_arrived_comes_before_the_timers() {
    let (ours, theirs) = RingBackend::pair(RingConfig::default());
    let (address, time) = (theirs.route(), Cell::new(1_000_000_000));
    let ours = OneByOne {
        ring: ours,
        memory: Vec::new(),
        slots: Vec::new(),
        next: 0,
    };
    let (config, clock) = (Config::default(), Set(&time));
    let identity = Identity {
        cluster: 0,
        incarnation: 1,
    };
    let app = Counter::default();
    let mut client = EventLoop::new(ours, clock, app, config.clone(), identity, 1).unwrap();
    let mut server = EventLoop::new(theirs, clock, Echo, config, identity, 2).unwrap();
    let connect = |cx: &mut Cx<'_, RingRoute>| cx.connect(address, crate::ConnectParams::default());
    let session = client.with(|_, cx| connect(cx)).unwrap();
    while client.endpoint().peer(session).is_none() {
        client.turn().unwrap();
        server.turn().unwrap();
    }
    client.with(|_, cx| {
        for tag in 0..8 {
            let (request, response) = (cx.alloc(32).unwrap(), cx.alloc(32).unwrap());
            cx.enqueue_request(session, 1, request, response, tag, None)
                .unwrap();
        }
    });
    server.turn().unwrap();
    time.set(time.get() + 100_000_000);
    client.turn().unwrap();
    let stats = client.endpoint().stats();
    assert_eq!((stats.requests_completed, stats.timeouts), (8, 0));
}

/// Packets that are all dropped do not keep a loop polling that has nothing else to do.
#[test]
fn a_flood_of_worthless_packets_is_taken_in_batches() {
    let backend = udp();
    let address = backend.local_addr();
    let mut flooded = event_loop_over(backend, Duration::from_secs(60));
    let stranger = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let end = MonotonicClock.now() + Duration::from_millis(20);
    while MonotonicClock.now() < end {
        stranger.send_to(&[0xff; 64], address).unwrap();
        while flooded.turn().unwrap() {}
        flooded.pause(None).unwrap();
    }
    assert!(flooded.endpoint().stats().drops.total() > 0);
    assert!(flooded.stats().sleeps > 0, "{:?}", flooded.stats());
}

#[test]
fn a_loop_that_nobody_floods_polls_for_as_long_as_it_is_told() {
    let backend = udp();
    let mut idle = event_loop_over(backend, Duration::from_secs(60));
    let end = MonotonicClock.now() + Duration::from_millis(5);
    assert!(!idle.run_until(Some(end), |_| false).unwrap());
    assert_eq!(idle.stats().sleeps, 0);
}
