//! More credits granted than the receive queue holds: what it costs, who counts it, and that everything still completes.

use std::net::SocketAddr;

use trine_transport::backend::{Backend, MonotonicClock, UdpBackend, UdpConfig};
use trine_transport::{
    App, Completion, Config, ConnectParams, ConnectRefused, Cx, Event, EventLoop, Identity, Reply,
    Request, SessionId,
};

const SESSIONS: usize = 16;
const REQUESTS: u64 = 2_000;

/// Echoes; counts connections and completions.
#[derive(Default)]
struct Echo {
    connected: Vec<SessionId>,
    executed: u64,
    completed: u64,
}

impl App<SocketAddr> for Echo {
    fn on_request(&mut self, cx: &mut Cx<'_, SocketAddr>, request: Request<'_>) -> Reply {
        self.executed += 1;
        let mut response = cx.alloc(request.data.len()).expect("memory");
        response.copy_from_slice(request.data);
        Reply::Now(response)
    }

    fn on_completion(&mut self, _: &mut Cx<'_, SocketAddr>, _: u64, completion: Completion) {
        completion.result.expect("loss delays a request, no more");
        self.completed += 1;
    }

    fn on_event(&mut self, _: &mut Cx<'_, SocketAddr>, event: Event<SocketAddr>) {
        match event {
            Event::Connected { session, .. } => self.connected.push(session),
            Event::Accepted { .. } => {}
            other => panic!("unexpected: {other:?}"),
        }
    }
}

type Loop = EventLoop<UdpBackend, MonotonicClock, Echo>;

/// A datagram for each packet, and a receive queue of `rx_queue_bytes`.
fn event_loop(rx_queue_bytes: usize, overcommit: bool, incarnation: u64) -> (Loop, SocketAddr) {
    let udp = UdpConfig {
        rx_queue_bytes,
        coalesce: false,
        offload: false,
        ..UdpConfig::default()
    };
    let backend = UdpBackend::bind("127.0.0.1:0".parse().unwrap(), &udp).unwrap();
    let address = backend.local_addr();
    let config = Config {
        overcommit,
        ..Config::default()
    };
    let identity = Identity {
        cluster: 0,
        incarnation,
    };
    let (clock, app) = (MonotonicClock, Echo::default());
    let event_loop = EventLoop::new(backend, clock, app, config, identity, incarnation).unwrap();
    (event_loop, address)
}

#[test]
fn loss_by_overcommitment_is_counted_and_everything_completes() {
    let (mut client, _) = event_loop(8 << 20, true, 1);
    // Room for some tens of packets; 16 sessions with 32 credits are granted.
    let (mut server, address) = event_loop(32 << 10, true, 2);
    for _ in 0..SESSIONS {
        client
            .with(|_, cx| cx.connect(address, ConnectParams::default()))
            .expect("room");
    }
    let turn = |client: &mut Loop, server: &mut Loop| {
        client.turn().unwrap();
        server.turn().unwrap();
    };
    while client.app().connected.len() < SESSIONS {
        turn(&mut client, &mut server);
    }
    assert!(server.endpoint().stats().sessions_overcommitted > 0);
    client.with(|echo, cx| {
        for tag in 0..REQUESTS {
            let session = echo.connected[tag as usize % SESSIONS];
            let (request, response) = cx.alloc(1_000).zip(cx.alloc(1_000)).expect("memory");
            cx.enqueue_request(session, 1, request, response, tag, None)
                .expect("accepted");
        }
    });
    while client.app().completed < REQUESTS {
        turn(&mut client, &mut server);
    }
    assert_eq!(server.app().executed, REQUESTS, "each once");
    let lost = server.backend().stats().rx_overflows;
    assert!(lost > 0, "{:?}", server.backend().stats());
    assert!(client.endpoint().stats().retransmissions > 0);
}

#[test]
fn without_overcommitment_sessions_beyond_the_queue_are_refused() {
    let (mut client, _) = event_loop(32 << 10, false, 1);
    let refused = client.with(|_, cx| {
        let address = "127.0.0.1:1".parse().unwrap();
        (0..SESSIONS)
            .filter_map(|_| cx.connect(address, ConnectParams::default()).err())
            .next()
    });
    assert_eq!(refused, Some(ConnectRefused::NoCredits));
}
