//! A stranger held the memory of all requests with 32 unfinished ones, at 63 KB/s, and all writes of several packets
//! stopped. Small requests for large responses that it never fetched took all other memory.

use super::net::{Done, Manner, Net, caps};
use crate::session::Holder;
use crate::time::Duration;
use crate::{Config, DownReason, Event, Identity, SessionId};

const SERVER: usize = 0;
const STRANGER: usize = 1;
const CLIENT: usize = 2;
const MEMBER: usize = 3;

const MESSAGE: usize = 64 << 10;

/// A server with room for 32 requests of `MESSAGE`, and callers with addresses of their own.
fn net(callers: usize) -> Net {
    let config = Config {
        message_bytes: MESSAGE,
        assembly_bytes: 32 * MESSAGE,
        sessions: 256,
        sessions_reserved: 8,
        overcommit: true,
        ..Config::default()
    };
    let mut net = Net::new(7, 1, &config);
    for index in 1..=callers as u64 {
        let identity = Identity {
            cluster: 0,
            incarnation: index + 1,
        };
        net.add(&config, caps(), identity);
    }
    net.nodes[SERVER].app.holder = |node| match node as usize {
        MEMBER => Holder::Privileged,
        node => Holder::Address(node as u64),
    };
    net
}

/// The stranger begins so many requests, eight a session, and sends no more than the first packet of each.
fn begin(net: &mut Net, count: u64) {
    net.finishes_nothing = Some(STRANGER as u32);
    let sessions: Vec<_> = (0..count / 8)
        .map(|_| net.connected(STRANGER, SERVER))
        .collect();
    for tag in 0..count {
        net.request(STRANGER, sessions[tag as usize / 8], 1_000 + tag, MESSAGE);
    }
    net.run_for(Duration::from_millis(1));
}

fn held(net: &Net) -> u64 {
    net.nodes[SERVER].endpoint.stats().request_bytes_held / MESSAGE as u64
}

fn is_answered(net: &Net, caller: usize, tag: u64) -> bool {
    let completions = &net.nodes[caller].app.completions;
    completions.contains(&Done::with(tag, MESSAGE))
}

#[test]
fn a_strangers_unfinished_requests_hold_no_other_address_up() {
    let mut net = net(3);
    let sessions = [CLIENT, MEMBER].map(|caller| (caller, net.connected(caller, SERVER)));
    begin(&mut net, 32);
    assert_eq!(held(&net), 12, "three quarters of what is not the members'");
    let mut tag = 0;
    // Longer than the hold timeout, at which the stranger's requests are given up and it begins others.
    for _ in 0..50 {
        for (caller, session) in sessions {
            tag += 1;
            net.request(caller, session, tag, MESSAGE);
            let done = net.run_until(Duration::from_millis(2), |net| {
                is_answered(net, caller, tag)
            });
            assert!(done, "request {tag} of {caller}: {} held", held(&net));
        }
        net.run_for(Duration::from_millis(100));
    }
    let stats = net.nodes[SERVER].endpoint.stats();
    assert!(stats.drops.no_memory > 0, "of the stranger");
    assert_eq!(stats.requests_gave_way, 0, "there was room");
}

/// With many callers the stranger's requests go as these come, until it has its share.
#[test]
fn the_greediest_gives_way_to_newcomers() {
    let mut net = net(3 + 20);
    net.nodes[SERVER].checks_invariants = false;
    let sessions: Vec<_> = (4..24)
        .map(|caller| (caller, net.connected(caller, SERVER)))
        .collect();
    begin(&mut net, 16);
    for (caller, session) in &sessions {
        net.request(*caller, *session, *caller as u64, MESSAGE);
    }
    let all = |net: &Net| {
        sessions
            .iter()
            .all(|(caller, _)| is_answered(net, *caller, *caller as u64))
    };
    assert!(
        net.run_until(Duration::from_millis(5), all),
        "{} held",
        held(&net)
    );
    net.nodes[SERVER].endpoint.check_invariants();
    let stats = net.nodes[SERVER].endpoint.stats();
    assert!((8..12).contains(&stats.requests_gave_way), "{stats:?}");
    // Its sessions end when it goes on with what gave way. Nobody else's does.
    net.finishes_nothing = None;
    net.run_for(Duration::from_secs(1));
    let downs = net.nodes[SERVER].app.events.iter();
    let downs: Vec<_> = downs
        .filter_map(|event| match event {
            Event::Down { reason, .. } => Some(*reason),
            _ => None,
        })
        .collect();
    assert!(!downs.is_empty() && downs.len() <= 2, "{downs:?}");
    assert!(downs.iter().all(|reason| *reason == DownReason::GaveWay));
    assert_eq!(
        net.nodes[STRANGER].endpoint.stats().sessions_client,
        2 - downs.len() as u64
    );
}

/// Memory that were taken packet by packet would run out with every request half way.
#[test]
fn more_honest_requests_than_there_is_memory_for_all_finish() {
    // From one address, from many, and from callers that nothing tells apart.
    let holders: [fn(u32) -> Holder; 3] = [
        |_| Holder::Address(1),
        |node| Holder::Address(u64::from(node)),
        |_| Holder::Shared,
    ];
    for holder in holders {
        let mut net = net(8);
        net.nodes[SERVER].app.holder = holder;
        net.nodes[SERVER].checks_invariants = false;
        let mut tags = Vec::new();
        for caller in 1..=8 {
            let session = net.connected(caller, SERVER);
            for slot in 0..8 {
                let tag = (caller * 100 + slot) as u64;
                net.request(caller, session, tag, MESSAGE);
                tags.push((caller, tag));
            }
        }
        let all = |net: &Net| {
            tags.iter()
                .all(|(caller, tag)| is_answered(net, *caller, *tag))
        };
        assert!(
            net.run_until(Duration::from_secs(20), all),
            "{} held",
            held(&net)
        );
        let stats = net.nodes[SERVER].endpoint.stats();
        assert!(stats.drops.no_memory > 0);
        assert_eq!((stats.requests_gave_way, stats.requests_abandoned), (0, 0));
        assert_eq!((stats.request_bytes_held, stats.sessions_server), (0, 8));
    }
}

/// 74 KB/s of small requests for responses of 1 MB drove the memory from 26 MB to 1.1 GB, and it cost leadership.
#[test]
fn responses_that_nobody_fetches_have_a_bound() {
    const RESPONSE: usize = 1 << 20;
    let mut net = net(4);
    net.nodes[SERVER].checks_invariants = false;
    net.nodes[SERVER].app.manner = Manner::Sized(RESPONSE);
    let ask = |net: &mut Net, caller: usize, sessions: &[SessionId]| {
        for (number, session) in sessions.iter().enumerate() {
            for slot in 0..8 {
                let tag = (caller * 10_000 + number * 8 + slot) as u64;
                net.request_for(caller, *session, tag, 16, RESPONSE, None);
            }
        }
        net.run_for(Duration::from_millis(1));
    };
    let connect = |net: &mut Net, caller: usize, count: usize| -> Vec<_> {
        (0..count).map(|_| net.connected(caller, SERVER)).collect()
    };
    let held =
        |net: &Net| net.nodes[SERVER].endpoint.stats().response_bytes_held as usize / RESPONSE;
    net.finishes_nothing = Some(STRANGER as u32);
    let strangers = connect(&mut net, STRANGER, 40);
    ask(&mut net, STRANGER, &strangers);
    assert_eq!(held(&net), 96, "three quarters of half of 256 MiB");
    assert_eq!(
        net.nodes[SERVER].endpoint.stats().responses_gave_way,
        320 - 96
    );
    // Others get theirs meanwhile, and lose none.
    for caller in [CLIENT, MEMBER] {
        let session = net.connected(caller, SERVER);
        let tag = caller as u64;
        net.request_for(caller, session, tag, 16, RESPONSE, None);
        let done = |net: &Net| net.nodes[caller].app.completions.len() == 1;
        assert!(net.run_until(Duration::from_millis(50), done));
        assert_eq!(
            net.nodes[caller].app.completions[0],
            Done::with(tag, RESPONSE)
        );
    }
    // The stranger's sessions end when it asks for what has gone, and it is told.
    net.finishes_nothing = None;
    net.run_for(Duration::from_secs(1));
    let downs = net.nodes[STRANGER].app.events.iter().filter(|event| {
        matches!(
            event,
            Event::Down {
                reason: DownReason::PeerDisconnected,
                ..
            }
        )
    });
    assert!(downs.count() >= 28);
    assert_eq!(net.nodes[SERVER].endpoint.stats().sessions_violated, 0);
    assert!(held(&net) <= 96 + 2);
    net.nodes[SERVER].endpoint.check_invariants();
}
