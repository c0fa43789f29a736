//! One caller took 4,090 of 4,096 sessions in 0.4 s, with 525 KB. From then on clients were refused, and so would a
//! member have been that came back. Now the address with most sessions gives one up, and some are kept for members.

use super::net::{Net, caps};
use crate::session::{ConnectError, DownReason, Holder};
use crate::time::Duration;
use crate::{Config, Event, Identity, SessionId};

const SERVER: usize = 0;
const GREEDY: usize = 1;
const MODEST: usize = 2;
const MEMBER: usize = 3;
const OVER_LOOPBACK: usize = 4;

const SESSIONS: usize = 16;
const RESERVED: usize = 4;

fn net() -> Net {
    let config = Config {
        sessions: SESSIONS,
        sessions_reserved: RESERVED,
        credits: 8,
        slots: 8,
        ..Config::default()
    };
    let mut net = Net::new(7, 1, &config);
    let callers = Config {
        sessions: 64,
        sessions_reserved: 0,
        ..config
    };
    for index in 1..=4 {
        let identity = Identity {
            cluster: 0,
            incarnation: index + 1,
        };
        net.add(&callers, caps(), identity);
    }
    net.nodes[SERVER].app.holder = |node| match node as usize {
        MEMBER => Holder::Privileged,
        OVER_LOOPBACK => Holder::Shared,
        node => Holder::Address(node as u64),
    };
    net
}

/// Asks for a session and waits for what becomes of it.
fn ask(net: &mut Net, from: usize) -> Result<SessionId, ConnectError> {
    let asked = net.connect(from, SERVER);
    let outcome = |net: &Net| {
        let events = net.nodes[from].app.events.iter();
        events.rev().find_map(|event| match *event {
            Event::Connected { session, .. } if session == asked => Some(Ok(session)),
            Event::ConnectFailed {
                session, reason, ..
            } if session == asked => Some(Err(reason)),
            _ => None,
        })
    };
    assert!(net.run_until(Duration::from_secs(5), |net| outcome(net).is_some()));
    outcome(net).expect("seen above")
}

/// Sessions of a caller that stand at its own end.
fn standing(net: &Net, caller: usize) -> u64 {
    net.nodes[caller].endpoint.stats().sessions_client
}

fn take_all(net: &mut Net, caller: usize) {
    for _ in 0..SESSIONS - RESERVED {
        ask(net, caller).expect("there is room");
    }
    assert_eq!(ask(net, caller), Err(ConnectError::PeerFull));
}

#[test]
fn a_modest_caller_gets_a_session_of_the_greedy_one() {
    let mut net = net();
    take_all(&mut net, GREEDY);
    let held = ask(&mut net, MODEST).expect("the greedy one gives way");
    // The loser hears of it at once.
    net.run_for(Duration::from_millis(10));
    let lost = net.nodes[GREEDY].app.events.iter().any(|event| {
        matches!(event, Event::Down { reason, .. } if *reason == DownReason::PeerDisconnected)
    });
    assert!(lost);
    let gave_way =
        net.nodes[SERVER].app.events.iter().any(
            |event| matches!(event, Event::Down { reason, .. } if *reason == DownReason::GaveWay),
        );
    assert!(gave_way);
    // It cannot take the session back, however often it asks.
    for _ in 0..100 {
        assert_eq!(ask(&mut net, GREEDY), Err(ConnectError::PeerFull));
    }
    assert!(net.nodes[MODEST].endpoint.peer(held).is_some());
    let all = SESSIONS - RESERVED;
    assert_eq!(
        (standing(&net, GREEDY), standing(&net, MODEST)),
        (all as u64 - 1, 1)
    );
    assert_eq!(net.nodes[SERVER].endpoint.stats().sessions_gave_way, 1);
}

#[test]
fn callers_end_up_with_equal_shares_and_then_keep_them() {
    let mut net = net();
    take_all(&mut net, GREEDY);
    while ask(&mut net, MODEST).is_ok() {}
    net.run_for(Duration::from_millis(10));
    assert_eq!((standing(&net, GREEDY), standing(&net, MODEST)), (6, 6));
    assert_eq!(ask(&mut net, GREEDY), Err(ConnectError::PeerFull));
}

#[test]
fn members_have_a_reserve_and_nothing_beyond_it() {
    let mut net = net();
    take_all(&mut net, GREEDY);
    for _ in 0..RESERVED {
        ask(&mut net, MEMBER).expect("kept for it");
    }
    assert_eq!(net.nodes[SERVER].endpoint.stats().sessions_gave_way, 0);
    // A caller that was taken for a member cannot push others out, and asking costs nobody a session.
    assert_eq!(ask(&mut net, MEMBER), Err(ConnectError::PeerFull));
    assert_eq!(ask(&mut net, OVER_LOOPBACK), Err(ConnectError::PeerFull));
    assert_eq!(ask(&mut net, GREEDY), Err(ConnectError::PeerFull));
    assert_eq!(net.nodes[SERVER].endpoint.stats().sessions_gave_way, 0);
}

/// Nothing tells the callers of one machine apart: there is nobody who has more than the others.
#[test]
fn callers_over_loopback_share_the_limit_alone() {
    let mut net = net();
    take_all(&mut net, OVER_LOOPBACK);
    assert_eq!(ask(&mut net, MODEST), Err(ConnectError::PeerFull));
    ask(&mut net, MEMBER).expect("kept for it");
}

/// Every session, of any holder, comes back into the count when it ends.
#[test]
fn sessions_that_end_are_counted_no_more() {
    let mut net = net();
    for caller in [GREEDY, OVER_LOOPBACK, MEMBER, MODEST] {
        let held: Vec<_> = (0..SESSIONS - RESERVED)
            .map(|_| ask(&mut net, caller).expect("there is room"))
            .collect();
        for session in held {
            let now = net.now;
            net.nodes[caller].endpoint.disconnect(now, session);
        }
        net.run_for(Duration::from_millis(10));
        assert_eq!(net.nodes[SERVER].endpoint.stats().sessions_server, 0);
    }
}
