//! The same jobs as RPCs.

use std::cell::Cell;
use std::hint::black_box;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Instant;

use trine_transport::backend::{
    Backend, Faulty, MonotonicClock, RingBackend, RingConfig, Route, UdpBackend, UdpConfig,
};
use trine_transport::buf::MsgBuf;
use trine_transport::keys::{KeyId, KeyRing, Keys, OwnKey, Psk, Stage};
use trine_transport::time::{Clock, Duration};
use trine_transport::{
    App, Completion, Config, ConnectParams, Cx, Event, EventLoop, Identity, Reply, Request,
    SessionId,
};

use trine_report::median;
use trine_report::pin::pin;

/// Request type of all benchmarks.
const KIND: u8 = 1;
/// Handshakes under way at once: beyond the receive queue they would only be lost and repeated.
const HANDSHAKES_MAX: usize = 256;
/// Longer requests are answered empty.
const ECHO_MAX: usize = 64 << 10;

/// What a handler copies that it need not copy.
#[derive(Copy, Clone, Default)]
pub(crate) struct Copies {
    /// Each request, to memory of the allocator, before it is read.
    pub(crate) requests: bool,
    /// Each response, from memory of the allocator in which it is built.
    pub(crate) responses: bool,
}

impl Copies {
    #[cold]
    #[inline(never)]
    fn answer(self, request: &[u8], response: &mut [u8]) {
        let copied = self.requests.then(|| black_box(request.to_vec()));
        let data = &copied.as_deref().unwrap_or(request)[..response.len()];
        match self.responses {
            true => response.copy_from_slice(&black_box(data.to_vec())),
            false => response.copy_from_slice(data),
        }
    }
}

/// Answers with the request's own bytes, or with none if they are many.
#[derive(Default)]
pub(crate) struct Echo {
    copies: Copies,
}

impl<R: Route> App<R> for Echo {
    fn on_request(&mut self, cx: &mut Cx<'_, R>, request: Request<'_>) -> Reply {
        // Large requests are transfers: only their arrival counts.
        let len = if request.data.len() > ECHO_MAX {
            0
        } else {
            request.data.len()
        };
        let mut response = cx.alloc(len).expect("the server's pool is large enough");
        match self.copies {
            Copies {
                requests: false,
                responses: false,
            } => response.copy_from_slice(&request.data[..len]),
            copies => copies.answer(request.data, &mut response),
        }
        Reply::Now(response)
    }

    fn on_completion(&mut self, _cx: &mut Cx<'_, R>, _tag: u64, _completion: Completion) {}
}

/// Keeps a number of requests under way on its sessions while `running`.
#[derive(Default)]
pub(crate) struct Load {
    pub(crate) sessions: Vec<SessionId>,
    pub(crate) completed: u64,
    pub(crate) running: bool,
    /// Requests issued at once (the paper's B); one if zero.
    pub(crate) batch: usize,
    /// How far a request that follows another one moves on over the sessions.
    stride: usize,
    in_flight: usize,
    /// Buffers that wait to be issued: tag, request, response.
    idle: Vec<(u64, MsgBuf, MsgBuf)>,
    /// When the request under way on each session was sent, if that is watched: each has one at most then.
    sent: Vec<Instant>,
    /// The round trips since, in nanoseconds.
    times: Vec<u32>,
}

impl<R: Route> App<R> for Load {
    fn on_request(&mut self, _cx: &mut Cx<'_, R>, _request: Request<'_>) -> Reply {
        Reply::Later
    }

    fn on_completion(&mut self, cx: &mut Cx<'_, R>, tag: u64, completion: Completion) {
        completion.result.expect("nothing is lost on loopback");
        self.completed += 1;
        self.in_flight -= 1;
        if !self.sent.is_empty() {
            self.note_time(tag);
        }
        self.idle
            .push((tag, completion.request, completion.response));
        if self.running && self.idle.len() >= self.batch {
            while let Some((tag, request, response)) = self.idle.pop() {
                let next = (tag as usize + self.stride) % self.sessions.len();
                self.issue(cx, next as u64, request, response);
            }
        }
    }

    fn on_event(&mut self, _cx: &mut Cx<'_, R>, event: Event<R>) {
        match event {
            Event::Connected { session, .. } => self.sessions.push(session),
            other => panic!("the benchmark's session failed: {other:?}"),
        }
    }
}

impl Load {
    /// From now on round trips are recorded.
    pub(crate) fn watch(&mut self) {
        self.sent = vec![Instant::now(); self.sessions.len()];
    }

    #[cold]
    #[inline(never)]
    fn note_time(&mut self, tag: u64) {
        let time = self.sent[tag as usize].elapsed().as_nanos();
        self.times.push(u32::try_from(time).unwrap_or(u32::MAX));
    }

    /// The round trips so far, in nanoseconds.
    pub(crate) fn watched(&mut self) -> Vec<u32> {
        std::mem::take(&mut self.times)
    }

    /// Sends a request; its tag names the session.
    fn issue<R: Route>(&mut self, cx: &mut Cx<'_, R>, tag: u64, request: MsgBuf, response: MsgBuf) {
        self.in_flight += 1;
        let session = self.sessions[tag as usize];
        if !self.sent.is_empty() {
            self.sent[tag as usize] = Instant::now();
        }
        cx.enqueue_request(session, KIND, request, response, tag, None)
            .expect("the session takes a request");
    }

    /// Puts `window` requests of `len` bytes under way, spread over the sessions.
    fn start<R: Route>(&mut self, cx: &mut Cx<'_, R>, len: usize, window: usize) {
        self.running = true;
        // As many steps as requests are under way: each session keeps its share of them, and with
        // more sessions than requests all have their turn.
        self.stride = window;
        for index in 0..window {
            let (request, response) = cx
                .alloc(len)
                .zip(cx.alloc(len.min(ECHO_MAX)))
                .expect("the client's pool is large enough");
            self.issue(cx, (index % self.sessions.len()) as u64, request, response);
        }
    }
}

/// How both ends are set up.
#[derive(Clone)]
pub(crate) struct Setup {
    pub(crate) config: Config,
    pub(crate) udp: UdpConfig,
    /// Both ends hold a key, and seal their packets.
    pub(crate) is_sealed: bool,
    /// What the server's handler copies.
    pub(crate) copies: Copies,
}

/// Never sleeps, everything else as by default.
impl Default for Setup {
    fn default() -> Self {
        let config = Config {
            spin: Duration::from_secs(3600),
            ..Config::default()
        };
        Self {
            config,
            udp: UdpConfig::default(),
            is_sealed: false,
            copies: Copies::default(),
        }
    }
}

impl Setup {
    pub(crate) fn with(change: impl FnOnce(&mut Self)) -> Self {
        let mut setup = Self::default();
        change(&mut setup);
        setup
    }
}

/// Every reading of it is a microsecond later: instructions are counted with this clock, so that
/// slow counting is not taken for congestion or loss.
#[derive(Default)]
pub(crate) struct SteadyClock(Cell<u64>);

impl Clock for SteadyClock {
    fn now(&self) -> trine_transport::time::Instant {
        self.0.set(self.0.get() + 1_000);
        trine_transport::time::Instant::from_nanos(self.0.get())
    }
}

pub(crate) fn event_loop<B: Backend, C: Clock, A: App<B::Route>>(
    backend: B,
    clock: C,
    app: A,
    setup: &Setup,
    seed: u64,
) -> EventLoop<B, C, A> {
    let identity = Identity {
        cluster: 1,
        incarnation: seed,
    };
    let config = setup.config.clone();
    let mut event_loop = EventLoop::new(backend, clock, app, config, identity, seed)
        .expect("the configuration is sound");
    if setup.is_sealed {
        event_loop.endpoint_mut().set_keys(keys(seed as u8));
    }
    event_loop
}

/// A key that both ends hold and require.
fn keys(seed: u8) -> Keys {
    Keys {
        stage: Stage::Require,
        ring: Arc::new(OneKey),
        own: Some(OwnKey {
            id: KeyId::new(b"bench").expect("a short name"),
            psk: bench_psk(),
        }),
        entropy: Arc::new(move || [seed; 32]),
        key_log: None,
    }
}

fn bench_psk() -> Psk {
    Psk::new([7; 32])
}

struct OneKey;

impl KeyRing for OneKey {
    fn find(&self, _: &KeyId) -> Option<Psk> {
        Some(bench_psk())
    }
}

/// Turns the loop until `done`, giving up after ten seconds.
pub(crate) fn run_until<B: Backend, A: App<B::Route>>(
    event_loop: &mut EventLoop<B, MonotonicClock, A>,
    done: impl FnMut(&mut A) -> bool,
) {
    let deadline = MonotonicClock.now() + Duration::from_secs(10);
    let finished = event_loop
        .run_until(Some(deadline), done)
        .expect("the backend works");
    assert!(finished, "no progress for ten seconds");
}

fn echo(setup: &Setup) -> Echo {
    Echo {
        copies: setup.copies,
    }
}

/// An echo server on its own core.
pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    pub(crate) fn start(core: usize, setup: &Setup) -> Self {
        let backend = udp(&setup.udp);
        let setup = setup.clone();
        let address = backend.local_addr();
        let stop = Arc::new(AtomicBool::new(false));
        let seen = Arc::clone(&stop);
        let thread = std::thread::spawn(move || {
            pin(core);
            let mut event_loop = event_loop(backend, MonotonicClock, echo(&setup), &setup, 2);
            event_loop
                .run_until(None, |_| seen.load(Ordering::Relaxed))
                .expect("the backend works");
        });
        Self {
            address,
            stop,
            thread: Some(thread),
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.join().expect("the server thread did not panic");
        }
    }
}

fn udp(config: &UdpConfig) -> UdpBackend {
    let address = "127.0.0.1:0".parse().expect("an address");
    UdpBackend::bind(address, config).expect("loopback has free ports")
}

/// A client with `sessions` sessions to `server`.
pub(crate) type Client = EventLoop<Lossy, MonotonicClock, Load>;
type Lossy = Faulty<UdpBackend, MonotonicClock>;

pub(crate) fn connect(server: SocketAddr, sessions: usize, setup: &Setup) -> Client {
    let backend = Faulty::new(udp(&setup.udp), MonotonicClock, 1);
    let mut client = event_loop(backend, MonotonicClock, Load::default(), setup, 1);
    for connected in 0..sessions {
        client
            .with(|_, cx| cx.connect(server, ConnectParams::default()))
            .expect("the endpoint has room for a session");
        if connected % HANDSHAKES_MAX == 0 {
            run_until(&mut client, |load| load.sessions.len() > connected);
        }
    }
    run_until(&mut client, |load| load.sessions.len() == sessions);
    client
}

/// Median round trip in nanoseconds of `rounds` RPCs with `len` bytes both ways, one at a time.
pub(crate) fn ping_pong(client: &mut Client, len: usize, rounds: usize) -> f64 {
    let buffers = client.with(|_, cx| cx.alloc(len).zip(cx.alloc(len)));
    let (request, response) = buffers.expect("the client's pool is large enough");
    client.app_mut().idle.push((0, request, response));
    let round = |_| {
        let start = Instant::now();
        client.with(|load, cx| {
            let (tag, request, response) = load.idle.pop().expect("the buffers came back");
            load.issue(cx, tag, request, response);
        });
        run_until(client, |load| load.in_flight == 0);
        start.elapsed().as_nanos() as f64
    };
    let median = median((0..rounds).map(round));
    client.app_mut().idle.clear();
    median
}

/// RPCs a second with `window` requests of `len` bytes under way, spread over the sessions.
pub(crate) fn rate(client: &mut Client, len: usize, window: usize, span: Duration) -> f64 {
    client.with(|load, cx| load.start(cx, len, window));
    let before = client.app().completed;
    let start = MonotonicClock.now();
    client
        .run_until(Some(start + span), |_| false)
        .expect("the backend works");
    let elapsed = client.now() - start;
    let completed = client.app().completed - before;
    client.app_mut().running = false;
    run_until(client, |load| load.in_flight == 0);
    client.app_mut().idle.clear();
    completed as f64 * 1e9 / elapsed.as_nanos() as f64
}

/// A client and a server endpoint, both turned by the calling thread.
pub(crate) struct Joined<B: Backend, C> {
    client: EventLoop<B, C, Load>,
    server: EventLoop<B, C, Echo>,
}

/// Both over a ring, with `window` requests of `len` bytes under way, issued `batch` at once.
pub(crate) fn joined_by_ring<C: Clock + Default>(
    setup: &Setup,
    sessions: usize,
    window: usize,
    batch: usize,
    len: usize,
) -> Joined<RingBackend, C> {
    let (client, server) = RingBackend::pair(RingConfig::default());
    let route = server.route();
    let mut joined = Joined::start(setup, client, server, route, sessions);
    joined.client.app_mut().batch = batch;
    joined.issue(len, window);
    joined
}

/// Both over UDP, with `window` requests of `len` bytes under way.
pub(crate) fn joined_by_udp(
    setup: &Setup,
    sessions: usize,
    window: usize,
    len: usize,
) -> Joined<UdpBackend, MonotonicClock> {
    let (client, server) = (udp(&setup.udp), udp(&setup.udp));
    let route = server.local_addr();
    let mut joined = Joined::start(setup, client, server, route, sessions);
    joined.issue(len, window);
    joined
}

impl<B: Backend, C: Clock + Default> Joined<B, C> {
    fn start(setup: &Setup, client: B, server: B, route: B::Route, sessions: usize) -> Self {
        let client = event_loop(client, C::default(), Load::default(), setup, 1);
        let server = event_loop(server, C::default(), echo(setup), setup, 2);
        let mut joined = Self { client, server };
        for connected in 0..sessions {
            joined
                .client
                .with(|_, cx| cx.connect(route, ConnectParams::default()))
                .expect("the endpoint has room for a session");
            while joined.client.app().sessions.len() + HANDSHAKES_MAX < connected {
                joined.turn();
            }
        }
        while joined.client.app().sessions.len() < sessions {
            joined.turn();
        }
        joined
    }

    fn issue(&mut self, len: usize, window: usize) {
        self.client.with(|load, cx| load.start(cx, len, window));
    }

    pub(crate) fn turn(&mut self) {
        self.client.turn().expect("the backend works");
        self.server.turn().expect("the backend works");
    }

    /// Turns until `count` further RPCs have completed.
    pub(crate) fn complete(&mut self, count: u64) {
        let goal = self.client.app().completed + count;
        while self.client.app().completed < goal {
            self.turn();
        }
    }
}
