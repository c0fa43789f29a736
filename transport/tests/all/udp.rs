//! RPCs over real sockets on loopback: small and large, with and without faults, many sessions, a
//! server that goes away, and the cost of an idle node.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use trine_transport::backend::{
    Backend, Direction, FaultHandle, Faults, Faulty, MonotonicClock, UdpBackend, UdpConfig, Waker,
};
use trine_transport::time::{Clock, Duration};
use trine_transport::{
    App, Completion, Config, ConnectParams, Cx, DownReason, Event, EventLoop, Identity, LoopStats,
    Reply, Request, RpcError, SessionId,
};

type Lossy = Faulty<UdpBackend, MonotonicClock>;

const KIND: u8 = 7;

/// Answers with the request, each byte inverted, and counts executions.
#[derive(Default)]
struct Inverter {
    executed: u64,
}

impl App<SocketAddr> for Inverter {
    fn on_request(&mut self, cx: &mut Cx<'_, SocketAddr>, request: Request<'_>) -> Reply {
        self.executed += 1;
        let mut response = cx.alloc(request.data.len()).expect("a gigabyte is enough");
        for (answer, byte) in response.iter_mut().zip(request.data) {
            *answer = !byte;
        }
        Reply::Now(response)
    }

    fn on_completion(&mut self, _: &mut Cx<'_, SocketAddr>, _: u64, _: Completion) {}
}

/// Collects what comes back.
#[derive(Default)]
struct Client {
    connected: Vec<SessionId>,
    down: Vec<DownReason>,
    completed: Vec<(u64, Result<(), RpcError>)>,
}

impl App<SocketAddr> for Client {
    fn on_request(&mut self, _: &mut Cx<'_, SocketAddr>, _: Request<'_>) -> Reply {
        Reply::Later
    }

    fn on_completion(&mut self, _: &mut Cx<'_, SocketAddr>, tag: u64, completion: Completion) {
        if completion.result.is_ok() {
            assert_eq!(completion.response.len(), completion.request.len());
            let mut pairs = completion.response.iter().zip(&completion.request[..]);
            assert!(
                pairs.all(|(answer, byte)| *answer == !byte),
                "a response of other bytes"
            );
        }
        self.completed.push((tag, completion.result));
    }

    fn on_event(&mut self, _: &mut Cx<'_, SocketAddr>, event: Event<SocketAddr>) {
        match event {
            Event::Connected { session, .. } => self.connected.push(session),
            Event::Down { reason, .. } => self.down.push(reason),
            other => panic!("unexpected: {other:?}"),
        }
    }
}

fn open(seed: u64) -> (Lossy, SocketAddr) {
    let backend = UdpBackend::bind("127.0.0.1:0".parse().unwrap(), &UdpConfig::default()).unwrap();
    let address = backend.local_addr();
    (Faulty::new(backend, MonotonicClock, seed), address)
}

fn event_loop<A: App<SocketAddr>>(
    backend: Lossy,
    app: A,
    seed: u64,
) -> EventLoop<Lossy, MonotonicClock, A> {
    let identity = Identity {
        cluster: 0,
        incarnation: seed,
    };
    EventLoop::new(
        backend,
        MonotonicClock,
        app,
        Config::default(),
        identity,
        seed,
    )
    .unwrap()
}

struct Server {
    address: SocketAddr,
    faults: FaultHandle<SocketAddr>,
    stop: Arc<AtomicBool>,
    waker: Waker,
    thread: Option<JoinHandle<(Inverter, LoopStats)>>,
}

impl Server {
    fn start() -> Self {
        let (backend, address) = open(2);
        let (faults, waker) = (backend.handle(), backend.waker());
        let stop = Arc::new(AtomicBool::new(false));
        let seen = Arc::clone(&stop);
        let thread = std::thread::spawn(move || {
            let mut event_loop = event_loop(backend, Inverter::default(), 2);
            event_loop
                .run_until(None, |_| seen.load(Ordering::Acquire))
                .unwrap();
            let stats = event_loop.stats();
            (event_loop.into_app(), stats)
        });
        Self {
            address,
            faults,
            stop,
            waker,
            thread: Some(thread),
        }
    }

    fn stop(mut self) -> (Inverter, LoopStats) {
        self.stop.store(true, Ordering::Release);
        self.waker.wake();
        self.thread.take().unwrap().join().unwrap()
    }
}

struct Lab {
    client: EventLoop<Lossy, MonotonicClock, Client>,
    faults: FaultHandle<SocketAddr>,
    server: Server,
}

impl Lab {
    fn new() -> Self {
        let server = Server::start();
        let (backend, _) = open(1);
        let faults = backend.handle();
        Self {
            client: event_loop(backend, Client::default(), 1),
            faults,
            server,
        }
    }

    fn set_faults(&self, text: &str) {
        let faults: Faults = text.parse().unwrap();
        for handle in [&self.faults, &self.server.faults] {
            handle.set(Direction::Outbound, faults);
            handle.set(Direction::Inbound, faults);
        }
    }

    fn connect(&mut self, sessions: usize) {
        for _ in 0..sessions {
            let route = self.server.address;
            self.client
                .with(|_, cx| cx.connect(route, ConnectParams::default()))
                .unwrap();
        }
        self.run_until(|client| client.connected.len() == sessions);
    }

    fn run_until(&mut self, done: impl Fn(&Client) -> bool) {
        let deadline = MonotonicClock.now() + Duration::from_secs(60);
        let finished = self
            .client
            .run_until(Some(deadline), |client| done(client))
            .unwrap();
        assert!(finished, "no progress for a minute");
    }

    fn enqueue(&mut self, session: usize, len: usize, tag: u64) {
        self.client.with(|client, cx| {
            let (mut request, response) = cx.alloc(len).zip(cx.alloc(len)).unwrap();
            for (place, byte) in request.iter_mut().enumerate() {
                *byte = (place as u64 * 31 + tag) as u8;
            }
            let session = client.connected[session];
            cx.enqueue_request(session, KIND, request, response, tag, None)
                .unwrap();
        });
    }

    /// Runs `count` RPCs of these lengths, all enqueued at once.
    fn call_all(&mut self, count: u64, len_of: impl Fn(u64) -> usize) {
        let sessions = self.client.app().connected.len();
        for tag in 0..count {
            self.enqueue(tag as usize % sessions, len_of(tag), tag);
        }
        self.run_until(|client| client.completed.len() as u64 == count);
        let mut tags: Vec<u64> = self
            .client
            .app()
            .completed
            .iter()
            .map(|(tag, _)| *tag)
            .collect();
        tags.sort_unstable();
        assert_eq!(
            tags,
            (0..count).collect::<Vec<_>>(),
            "each request completes once"
        );
        assert!(
            self.client
                .app()
                .completed
                .iter()
                .all(|(_, result)| result.is_ok())
        );
    }
}

#[test]
fn small_and_large_messages_come_back() {
    let mut lab = Lab::new();
    lab.connect(2);
    let lens = [0, 1, 32, 1448, 1449, 10_000, 100_000, 1 << 20, 8 << 20];
    lab.call_all(lens.len() as u64, |tag| lens[tag as usize]);
    assert_eq!(lab.server.stop().0.executed, lens.len() as u64);
}

#[test]
fn everything_completes_exactly_once_through_faults() {
    let mut lab = Lab::new();
    lab.connect(4);
    lab.set_faults("loss=5%,dup=2%,reorder=2%,corrupt=1%");
    lab.call_all(2_000, |tag| if tag % 50 == 0 { 20_000 } else { 32 });
    for counts in [lab.faults.total(), lab.server.faults.total()] {
        assert!(counts.lost > 0 && counts.duplicated > 0, "{counts:?}");
        assert!(counts.reordered > 0 && counts.corrupted > 0, "{counts:?}");
    }
    assert!(
        lab.client.endpoint().stats().drops.checksum > 0,
        "corruption was not noticed"
    );
    assert_eq!(lab.server.stop().0.executed, 2_000);
}

#[test]
fn requests_end_with_an_error_when_the_server_vanishes() {
    let mut lab = Lab::new();
    lab.connect(1);
    lab.faults.set(Direction::Outbound, Faults::CUT);
    for tag in 0..20 {
        lab.enqueue(0, 32, tag);
    }
    lab.run_until(|client| !client.down.is_empty());
    assert_eq!(lab.client.app().down, [DownReason::TimedOut]);
    let completed = &lab.client.app().completed;
    assert_eq!(completed.len(), 20);
    // Eight had slots and were sent, the rest never left.
    let unknown = completed
        .iter()
        .filter(|(_, result)| *result == Err(RpcError::OutcomeUnknown))
        .count();
    let not_sent = completed
        .iter()
        .filter(|(_, result)| *result == Err(RpcError::NotSent))
        .count();
    assert_eq!((unknown, not_sent), (8, 12));
    assert_eq!(lab.server.stop().0.executed, 0);
}

#[test]
fn an_idle_node_sleeps() {
    let mut lab = Lab::new();
    lab.connect(1);
    let second = MonotonicClock.now() + Duration::from_secs(1);
    let before = lab.client.stats();
    assert!(!lab.client.run_until(Some(second), |_| false).unwrap());
    let idle = lab.client.stats();
    // Keepalives four times a second, each with its answer and a short spin.
    assert!(idle.sleeps - before.sleeps < 40, "{idle:?}");
    let spinning_max = u64::from(u32::MAX).min(idle.turns - before.turns);
    assert!(
        spinning_max < 50_000,
        "{idle:?}: an idle node polls too much"
    );
    let (_, server) = lab.server.stop();
    assert!(server.sleeps > 0);
}
