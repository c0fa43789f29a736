//! 20,000 sessions on one endpoint: creation, memory, and their cost while idle.

use super::net::{Node, caps};
use crate::backend::Caps;
use crate::config::KEEPALIVES_PER_SECOND;
use crate::rpc::{ClientSlot, ServerSlot};
use crate::session::Session;
use crate::time::{Duration, Instant};
use crate::{Config, ConnectParams, ConnectRefused, Identity};

const SESSIONS: usize = 20_000;

fn node(incarnation: u64) -> Node {
    let config = Config {
        sessions: SESSIONS,
        credits: 1,
        ..Config::default()
    };
    let caps = Caps {
        rx_queue_packets: SESSIONS as u32,
        ..caps()
    };
    Node::new(
        &config,
        caps,
        Identity {
            cluster: 0,
            incarnation,
        },
        incarnation,
    )
}

/// Carries packets between the two until none is under way.
fn settle(now: Instant, client: &mut Node, server: &mut Node) {
    loop {
        let (to_server, to_client) = (client.turn_unchecked(now), server.turn_unchecked(now));
        if to_server.is_empty() && to_client.is_empty() {
            return;
        }
        to_server
            .iter()
            .for_each(|(_, bytes)| server.receive_unchecked(now, 0, bytes));
        to_client
            .iter()
            .for_each(|(_, bytes)| client.receive_unchecked(now, 1, bytes));
    }
}

#[test]
fn twenty_thousand_sessions_stand_and_idle_ones_cost_nothing_a_turn() {
    let (mut client, mut server) = (node(1), node(2));
    let mut now = Instant::from_nanos(1_000_000_000);
    let mut sessions = Vec::new();
    while sessions.len() < SESSIONS {
        for _ in 0..100 {
            let session = client
                .endpoint
                .connect(now, 1, ConnectParams::default())
                .expect("room");
            sessions.push(session);
        }
        settle(now, &mut client, &mut server);
    }
    assert_eq!(client.endpoint.stats().sessions_client, SESSIONS as u64);
    assert_eq!(server.endpoint.stats().sessions_server, SESSIONS as u64);
    let refused = client.endpoint.connect(now, 1, ConnectParams::default());
    assert_eq!(refused, Err(ConnectRefused::TooManySessions));
    // A request on each, so that every session has been at work.
    for (tag, session) in sessions.iter().enumerate() {
        let pool = client.endpoint.pool().clone();
        let (request, response) = (
            pool.alloc(32).expect("memory"),
            pool.alloc(32).expect("memory"),
        );
        client
            .endpoint
            .enqueue_request(now, *session, 1, request, response, tag as u64, None)
            .expect("accepted");
        if tag % 1_000 == 999 {
            settle(now, &mut client, &mut server);
        }
    }
    assert_eq!(client.app.completions.len(), SESSIONS);
    // After that only the timers that handshakes have left behind fire. Each fires once, and they
    // stay within the budget of keepalives.
    now += Duration::from_millis(600);
    settle(now, &mut client, &mut server);
    let sent = client.endpoint.stats().packets_sent;
    let mut wakes = 0;
    for _ in 0..1_000 {
        now += Duration::from_micros(100);
        wakes += u64::from(client.endpoint.next_timeout().is_some_and(|due| due <= now));
        assert!(client.turn_unchecked(now).is_empty());
    }
    assert!(
        wakes <= KEEPALIVES_PER_SECOND / 10 + 64,
        "something was due {wakes} times in a tenth of a second"
    );
    assert_eq!(client.endpoint.stats().packets_sent, sent);
    // Keepalives come, but not all at once every quarter of a second.
    for _ in 0..100 {
        now += Duration::from_millis(100);
        settle(now, &mut client, &mut server);
    }
    let pings = client.endpoint.stats().packets_sent - sent;
    assert!(
        pings <= 2 * SESSIONS as u64,
        "{pings} keepalives in 10 seconds"
    );
    assert_eq!(client.endpoint.stats().sessions_client, SESSIONS as u64);
}

/// The memory figures of PROTOCOL.md section 6.
#[test]
fn an_idle_session_takes_as_much_memory_as_stated() {
    let slots = usize::from(Config::default().slots);
    let session = size_of::<Session<std::net::SocketAddr>>();
    assert!(session <= 512, "{session} bytes");
    let client = session + slots * size_of::<ClientSlot>();
    let server = session + slots * size_of::<ServerSlot>();
    assert!(client <= 640, "{client} bytes");
    assert!(server <= 1_536, "{server} bytes");
}

#[test]
fn the_receive_queue_bounds_sessions_unless_overcommitted() {
    let caps = Caps {
        rx_queue_packets: 320,
        ..caps()
    };
    let identity = Identity {
        cluster: 0,
        incarnation: 1,
    };
    let connect_all = |overcommit| {
        let config = Config {
            overcommit,
            ..Config::default()
        };
        let mut node = Node::new(&config, caps, identity, 1);
        let connect = |_| {
            node.endpoint
                .connect(Instant::ZERO, 1, ConnectParams::default())
        };
        let results: Vec<_> = (0..12).map(connect).collect();
        (results, node.endpoint.stats().sessions_overcommitted)
    };
    let (results, overcommitted) = connect_all(false);
    assert!(results[..10].iter().all(Result::is_ok));
    assert_eq!(results[10..], [Err(ConnectRefused::NoCredits); 2]);
    assert_eq!(overcommitted, 0);
    let (results, overcommitted) = connect_all(true);
    assert!(results.iter().all(Result::is_ok));
    assert_eq!(overcommitted, 2);
}
