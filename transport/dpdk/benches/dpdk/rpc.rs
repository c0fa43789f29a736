//! The same jobs as RPCs.

use std::net::SocketAddrV4;
use std::time::Instant;

use trine_dpdk::DpdkBackend;
use trine_transport::backend::{MonotonicClock, Route};
use trine_transport::buf::{MsgBuf, PoolConfig};
use trine_transport::time::{Clock, Duration};
use trine_transport::{
    App, Completion, Config, ConnectParams, Cx, Event, EventLoop, Identity, Reply, Request,
    SessionId,
};

use crate::bare::report;
use crate::{BATCH, Hangup, ROUNDS, SERVER, SMALL, SPAN_MS, UDP_PORT, WINDOW, start_eal};
use trine_report::median;

const SESSIONS: usize = 8;

/// Answers with the request's own bytes; keeps `WINDOW` requests under way, issued in batches, while `running`.
#[derive(Default)]
struct Work {
    sessions: Vec<SessionId>,
    completed: u64,
    running: bool,
    idle: Vec<(MsgBuf, MsgBuf)>,
    next: usize,
}

impl<R: Route> App<R> for Work {
    fn on_request(&mut self, cx: &mut Cx<'_, R>, request: Request<'_>) -> Reply {
        let mut response = cx
            .alloc(request.data.len())
            .expect("the pool is large enough");
        response.copy_from_slice(request.data);
        Reply::Now(response)
    }

    fn on_completion(&mut self, cx: &mut Cx<'_, R>, _tag: u64, completion: Completion) {
        completion.result.expect("nothing is lost on memif");
        self.completed += 1;
        self.idle.push((completion.request, completion.response));
        if self.running && self.idle.len() >= BATCH {
            self.issue(cx, BATCH);
        }
    }

    fn on_event(&mut self, _cx: &mut Cx<'_, R>, event: Event<R>) {
        if let Event::Connected { session, .. } = event {
            self.sessions.push(session);
        }
    }
}

impl Work {
    fn issue<R: Route>(&mut self, cx: &mut Cx<'_, R>, count: usize) {
        for _ in 0..count {
            let (mut request, response) = self.idle.pop().expect("idle buffers");
            request.resize(SMALL);
            let session = self.sessions[self.next % self.sessions.len()];
            self.next += 1;
            cx.enqueue_request(session, 1, request, response, 0, None)
                .expect("room for the window");
        }
    }
}

type Loop = EventLoop<DpdkBackend, MonotonicClock, Work>;

fn open(role: &str, arguments: &[String]) -> Loop {
    let (eal, config) = start_eal(role, arguments);
    let backend = DpdkBackend::open(&eal, &config, UDP_PORT, PoolConfig::default());
    let backend = backend.unwrap_or_else(|error| panic!("{error}"));
    // Both ends poll, as the baseline does.
    let config = Config {
        spin: Duration::from_secs(60),
        ..Config::default()
    };
    let identity = Identity {
        cluster: 1,
        incarnation: u64::from(backend.local_addr().is_ipv4()),
    };
    EventLoop::new(
        backend,
        MonotonicClock,
        Work::default(),
        config,
        identity,
        1,
    )
    .expect("a sound configuration")
}

pub(crate) fn server(arguments: &[String]) {
    let hangup = Hangup::watch();
    let mut server = open("server", arguments);
    println!("ready");
    server
        .run_until(None, |_| hangup.came())
        .expect("a working port");
    hangup.idle();
}

fn connect(arguments: &[String], sessions: usize) -> Loop {
    let mut client = open("client", arguments);
    for _ in 0..sessions {
        let route = SocketAddrV4::new(SERVER, UDP_PORT).into();
        client
            .with(|_, cx| cx.connect(route, ConnectParams::default()))
            .expect("room for a session");
    }
    run_until(&mut client, |work| work.sessions.len() == sessions);
    for _ in 0..WINDOW {
        let buffers = client.with(|_, cx| cx.alloc(SMALL).zip(cx.alloc(SMALL)));
        client.app_mut().idle.push(buffers.expect("memory"));
    }
    client
}

fn run_until(client: &mut Loop, done: impl FnMut(&mut Work) -> bool) {
    let deadline = client.clock().now() + Duration::from_secs(10);
    assert!(
        client
            .run_until(Some(deadline), done)
            .expect("a working port"),
        "no progress"
    );
}

/// Median round trip of one RPC at a time.
pub(crate) fn ping(arguments: &[String]) {
    let mut client = connect(arguments, 1);
    // One deadline for the whole run, far away on a busy machine too: a clock read in each round would be measured.
    let deadline = Some(client.now() + Duration::from_secs(600));
    let mut round = || {
        let before = client.app().completed;
        let start = Instant::now();
        client.with(|work, cx| work.issue(cx, 1));
        let answered = client.run_until(deadline, |work| work.completed > before);
        assert!(answered.expect("a working port"), "no answer");
        start.elapsed().as_nanos() as f64
    };
    for _ in 0..ROUNDS / 10 {
        round();
    }
    let result = median((0..ROUNDS).map(|_| round()));
    report(result);
}

/// RPCs a second with the window full.
pub(crate) fn rate(arguments: &[String]) {
    let mut client = connect(arguments, SESSIONS);
    client.app_mut().running = true;
    client.with(|work, cx| work.issue(cx, WINDOW));
    let span = |client: &mut Loop, millis| {
        let (before, start) = (client.app().completed, client.clock().now());
        client
            .run_until(Some(start + Duration::from_millis(millis)), |_| false)
            .expect("a working port");
        let elapsed = client.now() - start;
        (client.app().completed - before) as f64 * 1e9 / elapsed.as_nanos() as f64
    };
    span(&mut client, SPAN_MS / 10);
    let result = span(&mut client, SPAN_MS);
    client.app_mut().running = false;
    run_until(&mut client, |work| work.idle.len() == WINDOW);
    report(result);
}
