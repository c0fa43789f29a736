//! RPCs through the backend: an endpoint on top of it, on any device and beside kernel UDP.

use std::net::SocketAddr;

use trine_transport::backend::{Backend, Direction, Faults, Faulty, MonotonicClock};
use trine_transport::buf::MsgBuf;
use trine_transport::prng::Prng;
use trine_transport::time::{Clock, Duration};
use trine_transport::{
    App, Completion, Config, ConnectParams, Cx, Event, EventLoop, Identity, Reply, Request,
    SessionId,
};

/// Answers with the request, reversed; a request of kind `STOP` ends the server.
struct Mirror {
    stopped: bool,
}

const MIRROR: u8 = 1;
const STOP: u8 = 2;
const PATIENCE: Duration = Duration::from_secs(40);
const LARGEST: usize = 200_000;
/// Requests under way at once.
const WINDOW: usize = 24;
const REQUESTS: u64 = 2_000;

impl App<SocketAddr> for Mirror {
    fn on_request(&mut self, cx: &mut Cx<'_, SocketAddr>, request: Request<'_>) -> Reply {
        self.stopped |= request.kind == STOP;
        let mut response = cx.alloc(request.data.len()).expect("memory");
        response.copy_from_slice(request.data);
        response.reverse();
        Reply::Now(response)
    }

    fn on_completion(&mut self, _: &mut Cx<'_, SocketAddr>, _: u64, _: Completion) {
        unreachable!("a server asks nothing");
    }
}

/// Serves until a client says stop, and a little longer, so that the answer to that arrives. Gives the server back,
/// for its port to be closed at the right moment.
pub(crate) fn serve<B: Backend<Route = SocketAddr>>(backend: B) -> impl Sized {
    let mut server = event_loop(backend, Mirror { stopped: false });
    let deadline = MonotonicClock.now() + PATIENCE;
    assert!(
        server
            .run_until(Some(deadline), |app| app.stopped)
            .expect("a working port"),
        "nobody said stop"
    );
    let grace = MonotonicClock.now() + Duration::from_millis(300);
    server
        .run_until(Some(grace), |_| false)
        .expect("a working port");
    server
}

/// Makes requests of all sizes, some at a time, and checks every response.
#[derive(Default)]
struct Caller {
    session: Option<SessionId>,
    /// Seed of each request under way, by tag.
    asked: u64,
    answered: u64,
}

impl App<SocketAddr> for Caller {
    fn on_request(&mut self, _: &mut Cx<'_, SocketAddr>, _: Request<'_>) -> Reply {
        unreachable!("a client is asked nothing");
    }

    fn on_completion(&mut self, cx: &mut Cx<'_, SocketAddr>, tag: u64, completion: Completion) {
        completion.result.expect("a response");
        let mut expected = contents(tag);
        assert_eq!(
            &completion.request[..],
            &expected[..],
            "the request {tag} is untouched"
        );
        expected.reverse();
        assert_eq!(
            &completion.response[..],
            &expected[..],
            "the response {tag}"
        );
        self.answered += 1;
        if self.asked < REQUESTS {
            self.ask(cx, completion.request, completion.response);
        }
    }

    fn on_event(&mut self, _: &mut Cx<'_, SocketAddr>, event: Event<SocketAddr>) {
        match event {
            Event::Connected { session, .. } => self.session = Some(session),
            other => panic!("{other:?}"),
        }
    }
}

impl Caller {
    fn ask(&mut self, cx: &mut Cx<'_, SocketAddr>, mut request: MsgBuf, response: MsgBuf) {
        let tag = self.asked;
        self.asked += 1;
        let bytes = contents(tag);
        request.resize(bytes.len());
        request.copy_from_slice(&bytes);
        let session = self.session.expect("a session");
        cx.enqueue_request(session, MIRROR, request, response, tag, None)
            .expect("room for the window");
    }
}

/// A request: mostly small, some of many packets.
fn contents(tag: u64) -> Vec<u8> {
    let mut prng = Prng::new(tag);
    let largest = if tag.is_multiple_of(50) {
        LARGEST
    } else if tag.is_multiple_of(7) {
        4_000
    } else {
        200
    };
    let mut bytes = vec![0; prng.below(largest as u64) as usize];
    prng.fill(&mut bytes);
    bytes
}

/// Calls a server that [`serve`]s at `server`, with these faults on what is sent, and stops it. Gives the client back.
pub(crate) fn call<B: Backend<Route = SocketAddr>>(
    backend: B,
    server: SocketAddr,
    faults: Option<Faults>,
) -> impl Sized {
    let backend = Faulty::new(backend, MonotonicClock, 5);
    let handle = backend.handle();
    if let Some(faults) = faults {
        handle.set(Direction::Outbound, faults);
    }
    let mut client = event_loop(backend, Caller::default());
    let connect = ConnectParams {
        timeout: Some(PATIENCE),
        ..ConnectParams::default()
    };
    client
        .with(|_, cx| cx.connect(server, connect))
        .expect("room for a session");
    run_until(&mut client, "a session", |app| app.session.is_some());
    for _ in 0..WINDOW {
        client.with(|app, cx| {
            let (request, response) = cx.alloc(LARGEST).zip(cx.alloc(LARGEST)).expect("memory");
            app.ask(cx, request, response);
        });
    }
    run_until(&mut client, "all responses", |app| app.answered == REQUESTS);
    client.with(|app, cx| {
        let (mut request, response) = cx.alloc(1).zip(cx.alloc(1)).expect("memory");
        request.resize(0);
        // Its completion is checked like any other, so it must have their form: an empty request is its own mirror.
        let tag = (0..)
            .find(|tag| contents(*tag).is_empty())
            .expect("some tag");
        let session = app.session.expect("a session");
        cx.enqueue_request(session, STOP, request, response, tag, None)
            .expect("room");
    });
    run_until(&mut client, "the last response", |app| {
        app.answered == REQUESTS + 1
    });
    client
}

fn run_until<B: Backend<Route = SocketAddr>>(
    client: &mut EventLoop<B, MonotonicClock, Caller>,
    what: &str,
    done: impl FnMut(&mut Caller) -> bool,
) {
    let deadline = MonotonicClock.now() + PATIENCE;
    assert!(
        client
            .run_until(Some(deadline), done)
            .expect("a working port"),
        "in vain: {what}"
    );
}

fn event_loop<B: Backend<Route = SocketAddr>, A: App<SocketAddr>>(
    backend: B,
    app: A,
) -> EventLoop<B, MonotonicClock, A> {
    let identity = Identity {
        cluster: 0,
        incarnation: u64::from(std::process::id()),
    };
    // Patient: the machine that runs this may be busy.
    let config = Config {
        failure_timeout: Duration::from_secs(10),
        ..Config::default()
    };
    EventLoop::new(backend, MonotonicClock, app, config, identity, 1)
        .expect("a sound configuration")
}
