//! The same jobs as RPCs.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Instant;

use trine_transport::backend::{Backend, MonotonicClock, Route, UdpBackend, UdpConfig};
use trine_transport::buf::MsgBuf;
use trine_transport::time::{Clock, Duration};
use trine_transport::{
    App, Completion, Config, ConnectParams, Cx, Event, EventLoop, Identity, Reply, Request,
    SessionId,
};

use crate::pin::pin;
use crate::report::median;

/// Request type of all benchmarks.
const KIND: u8 = 1;

/// Answers with the request's own bytes, or with as many as its first four bytes ask for.
#[derive(Default)]
pub(crate) struct Echo;

impl<R: Route> App<R> for Echo {
    fn on_request(&mut self, cx: &mut Cx<'_, R>, request: Request<'_>) -> Reply {
        let mut response = cx
            .alloc(request.data.len())
            .expect("the server's pool is large enough");
        response.copy_from_slice(request.data);
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
    in_flight: usize,
    /// Buffers of the last completion while nothing is to be sent.
    idle: Vec<(MsgBuf, MsgBuf)>,
}

impl<R: Route> App<R> for Load {
    fn on_request(&mut self, _cx: &mut Cx<'_, R>, _request: Request<'_>) -> Reply {
        Reply::Later
    }

    fn on_completion(&mut self, cx: &mut Cx<'_, R>, tag: u64, completion: Completion) {
        completion.result.expect("nothing is lost on loopback");
        self.completed += 1;
        self.in_flight -= 1;
        if self.running {
            self.issue(cx, tag as usize, completion.request, completion.response);
        } else {
            self.idle.push((completion.request, completion.response));
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
    pub(crate) fn issue<R: Route>(
        &mut self,
        cx: &mut Cx<'_, R>,
        session: usize,
        request: MsgBuf,
        response: MsgBuf,
    ) {
        self.in_flight += 1;
        let id = self.sessions[session];
        cx.enqueue_request(id, KIND, request, response, session as u64, None)
            .expect("the session takes a request");
    }
}

/// The configuration of both ends: never sleeps.
pub(crate) fn polling() -> Config {
    Config {
        spin: Duration::from_secs(3600),
        ..Config::default()
    }
}

pub(crate) fn event_loop<B: Backend, A: App<B::Route>>(
    backend: B,
    app: A,
    config: Config,
    seed: u64,
) -> EventLoop<B, MonotonicClock, A> {
    let identity = Identity {
        cluster: 1,
        incarnation: seed,
    };
    EventLoop::new(backend, MonotonicClock, app, config, identity, seed)
        .expect("the configuration is sound")
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

/// An echo server on its own core.
pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    pub(crate) fn start(core: usize, config: Config) -> Self {
        let backend = udp();
        let address = backend.local_addr();
        let stop = Arc::new(AtomicBool::new(false));
        let seen = Arc::clone(&stop);
        let thread = std::thread::spawn(move || {
            pin(core);
            let mut event_loop = event_loop(backend, Echo, config, 2);
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

fn udp() -> UdpBackend {
    let address = "127.0.0.1:0".parse().expect("an address");
    UdpBackend::bind(address, &UdpConfig::default()).expect("loopback has free ports")
}

/// A client with `sessions` sessions to `server`.
pub(crate) type Client = EventLoop<UdpBackend, MonotonicClock, Load>;

pub(crate) fn connect(server: SocketAddr, sessions: usize, config: Config) -> Client {
    let mut client = event_loop(udp(), Load::default(), config, 1);
    for _ in 0..sessions {
        client
            .with(|_, cx| cx.connect(server, ConnectParams::default()))
            .expect("the endpoint has room for a session");
    }
    run_until(&mut client, |load| load.sessions.len() == sessions);
    client
}

/// Median round trip in nanoseconds of `rounds` RPCs with `len` bytes both ways, one at a time.
pub(crate) fn ping_pong(client: &mut Client, len: usize, rounds: usize) -> f64 {
    let mut buffers = client
        .app_mut()
        .idle
        .pop()
        .or_else(|| client.with(|_, cx| Some((cx.alloc(len)?, cx.alloc(len)?))));
    let round = |_| {
        let (request, response) = buffers.take().expect("the buffers came back");
        let start = Instant::now();
        client.with(|load, cx| load.issue(cx, 0, request, response));
        run_until(client, |load| load.in_flight == 0);
        let elapsed = start.elapsed().as_nanos() as f64;
        buffers = client.app_mut().idle.pop();
        elapsed
    };
    let median = median((0..rounds).map(round));
    client.app_mut().idle.extend(buffers);
    median
}

/// RPCs a second with `per_session` requests under way on each session.
pub(crate) fn rate(client: &mut Client, len: usize, per_session: usize, span: Duration) -> f64 {
    let sessions = client.app().sessions.len();
    client.app_mut().running = true;
    for index in 0..sessions * per_session {
        client.with(|load, cx| {
            let (request, response) = load.idle.pop().unwrap_or_else(|| {
                let buffers = cx.alloc(len).zip(cx.alloc(len));
                buffers.expect("the client's pool is large enough")
            });
            load.issue(cx, index % sessions, request, response);
        });
    }
    let before = client.app().completed;
    let start = MonotonicClock.now();
    client
        .run_until(Some(start + span), |_| false)
        .expect("the backend works");
    let elapsed = client.now() - start;
    let completed = client.app().completed - before;
    client.app_mut().running = false;
    run_until(client, |load| load.in_flight == 0);
    completed as f64 * 1e9 / elapsed.as_nanos() as f64
}
