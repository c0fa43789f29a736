//! A process of its own, because its allocator counts: the heap memory of an idle session (PROTOCOL.md section 6).

use trine_allocations::Counting;
use trine_transport::backend::{MonotonicClock, RingBackend, RingConfig, RingRoute};
use trine_transport::{
    App, Completion, Config, ConnectParams, Cx, Event, EventLoop, Identity, Reply, Request,
};

/// Stated in PROTOCOL.md section 6, for 8 slots.
const CLIENT_BYTES_MAX: usize = 640;
const SERVER_BYTES_MAX: usize = 1_536;
/// The part of a session in a server's search tree of nonces: a key, a value, and the room that a half full node
/// wastes.
const NONCE_BYTES_MAX: usize = 48;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

#[derive(Default)]
struct Quiet {
    connected: usize,
}

impl App<RingRoute> for Quiet {
    fn on_request(&mut self, _: &mut Cx<'_, RingRoute>, _: Request<'_>) -> Reply {
        Reply::Later
    }

    fn on_completion(&mut self, _: &mut Cx<'_, RingRoute>, _: u64, _: Completion) {}

    fn on_event(&mut self, _: &mut Cx<'_, RingRoute>, event: Event<RingRoute>) {
        self.connected += usize::from(matches!(event, Event::Connected { .. }));
    }
}

type Loop = EventLoop<RingBackend, MonotonicClock, Quiet>;

fn event_loop(backend: RingBackend, sessions: usize, incarnation: u64) -> Loop {
    let config = Config {
        sessions,
        overcommit: true,
        ..Config::default()
    };
    let identity = Identity {
        cluster: 0,
        incarnation,
    };
    let app = Quiet::default();
    EventLoop::new(backend, MonotonicClock, app, config, identity, incarnation)
        .expect("a good configuration")
}

/// Live bytes of two endpoints with so many idle sessions between them, and room for `room`.
fn live_bytes(sessions: usize, room: usize) -> usize {
    let before = trine_allocations::live_bytes();
    let (ours, theirs) = RingBackend::pair(RingConfig::default());
    let route = theirs.route();
    let (mut client, mut server) = (event_loop(ours, room, 1), event_loop(theirs, room, 2));
    for connected in 1..=sessions {
        client
            .with(|_, cx| cx.connect(route, ConnectParams::default()))
            .expect("room");
        while client.app().connected < connected {
            client.turn().expect("the ring works");
            server.turn().expect("the ring works");
        }
    }
    trine_allocations::live_bytes() - before
}

/// The session tables grow by doubling: between two powers of two they take the same, filled.
#[test]
fn idle_sessions_take_as_much_of_the_heap_as_stated() {
    let (few, many) = (256, 4_096);
    let bytes = live_bytes(many, many) - live_bytes(few, many);
    let each = bytes / (many - few);
    let stated = CLIENT_BYTES_MAX + SERVER_BYTES_MAX + NONCE_BYTES_MAX;
    assert!(
        each <= stated,
        "{each} bytes for both ends of a session, stated {stated}"
    );
    // And the count counts: a session cannot take less than the numbers that it must remember.
    assert!(each > 256, "{each} bytes for both ends of a session");
    for (document, bytes) in [
        ("640 bytes (client end)", CLIENT_BYTES_MAX),
        ("1,536 bytes (server end)", SERVER_BYTES_MAX),
    ] {
        assert!(
            include_str!("../PROTOCOL.md").contains(document),
            "{bytes} is not what is stated"
        );
    }
}
