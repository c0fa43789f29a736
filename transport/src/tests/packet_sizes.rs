//! How large the packets of a session are, and what happens where a path does not carry as much as was promised.

use super::net::{Done, Manner, Net, caps, one_key};
use crate::backend::{Caps, PACKET_EVERYWHERE, PacketSizes};
use crate::keys::Stage;
use crate::time::Duration;
use crate::{Config, DownReason, Event, RpcError, SessionId};

const CLIENT: usize = 0;
const SERVER: usize = 1;
const PROMISED: u16 = 8_952;
const PATIENCE: Duration = Duration::from_secs(10);

/// Two nodes whose paths are said to carry `client` and `server` bytes.
fn promising(client: u16, server: u16, is_sealed: bool) -> Net {
    let caps = Caps {
        mtu: 9_000,
        ..caps()
    };
    let mut net = Net::new(1, 0, &Config::default());
    net.keys = is_sealed.then(|| one_key(Stage::Require));
    for (incarnation, far) in [(1, client), (2, server)] {
        let identity = crate::Identity {
            cluster: 0,
            incarnation,
        };
        let node = net.add(&Config::default(), caps, identity);
        let sizes = PacketSizes::by_route(1_472, far, |_| false);
        net.nodes[node].endpoint.set_packet_sizes(sizes);
    }
    net
}

fn packet_bytes(net: &Net, session: SessionId) -> u16 {
    let stats = net.nodes[CLIENT].endpoint.session_stats(session);
    stats.expect("the session stands").mtu
}

fn why_down(net: &Net, session: SessionId) -> Option<DownReason> {
    net.nodes[CLIENT]
        .app
        .events
        .iter()
        .find_map(|event| match event {
            Event::Down {
                session: of,
                reason,
            } if *of == session => Some(*reason),
            _ => None,
        })
}

fn is_done(net: &Net, count: usize) -> bool {
    net.nodes[CLIENT].app.completions.len() == count
}

/// A request ends with its session, and works over the next one, whose packets every path carries.
fn falls_back(net: &mut Net, request_bytes: usize, response_bytes: usize) {
    let session = net.connected(CLIENT, SERVER);
    assert_eq!(packet_bytes(net, session), PROMISED);
    let begun = net.now;
    net.request_for(CLIENT, session, 1, request_bytes, response_bytes, None);
    assert!(net.run_until(PATIENCE, |net| is_done(net, 1)));
    let took = net.now.saturating_since(begun);
    assert!(took < Duration::from_secs(1), "noticed after {took:?}");
    let done = &net.nodes[CLIENT].app.completions[0];
    assert_eq!(done.result, Err(RpcError::OutcomeUnknown));
    assert_eq!(why_down(net, session), Some(DownReason::BlackHole));
    assert_eq!(net.nodes[CLIENT].endpoint.stats().black_holes, 1);

    let session = net.connected(CLIENT, SERVER);
    assert_eq!(usize::from(packet_bytes(net, session)), PACKET_EVERYWHERE);
    net.request_for(CLIENT, session, 2, request_bytes, response_bytes, None);
    assert!(net.run_until(PATIENCE, |net| is_done(net, 2)));
    assert_eq!(net.nodes[CLIENT].app.completions[1].result, Ok(()));
}

#[test]
fn the_smaller_wish_counts_whichever_end_has_it() {
    for (client, server) in [
        (1_232, PROMISED),
        (PROMISED, 1_232),
        (600, 512),
        (512, 9_000),
    ] {
        let mut net = promising(client, server, false);
        let session = net.connected(CLIENT, SERVER);
        assert_eq!(packet_bytes(&net, session), client.min(server));
        net.request(CLIENT, session, 1, 100_000);
        assert!(net.run_until(PATIENCE, |net| is_done(net, 1)));
        assert_eq!(net.nodes[CLIENT].app.completions, [Done::with(1, 100_000)]);
    }
}

/// A full packet that its path did not carry was sent again for ever, because the peer answered everything short: the
/// group stood still with all its sessions up.
#[test]
fn full_packets_that_vanish_cost_a_pause_and_not_the_peer() {
    for is_sealed in [false, true] {
        for most in [1_300, 1_472, 8_000] {
            let mut net = promising(PROMISED, PROMISED, is_sealed);
            net.narrow = Some((SERVER as u32, most));
            falls_back(&mut net, 100_000, 100_000);
        }
    }
}

#[test]
fn full_packets_of_a_response_count_too() {
    let mut net = promising(PROMISED, PROMISED, false);
    net.nodes[SERVER].app.manner = Manner::Sized(50_000);
    net.narrow = Some((CLIENT as u32, 1_400));
    falls_back(&mut net, 100, 50_000);
}

/// The server had said BUSY, so the client only probed. The response was lost again with each probe.
#[test]
fn a_response_that_was_waited_for_counts_too() {
    let mut net = promising(PROMISED, PROMISED, false);
    net.nodes[SERVER].app.manner = Manner::Later;
    net.narrow = Some((CLIENT as u32, 1_400));
    let session = net.connected(CLIENT, SERVER);
    net.request(CLIENT, session, 1, 20_000);
    net.run_for(Duration::from_millis(300));
    assert_eq!(why_down(&net, session), None, "the handler just takes long");
    net.answer_all(SERVER);
    assert!(net.run_until(PATIENCE, |net| is_done(net, 1)));
    assert_eq!(why_down(&net, session), Some(DownReason::BlackHole));
}

#[test]
fn the_promise_counts_again_after_a_while_that_doubles() {
    let mut net = promising(PROMISED, PROMISED, false);
    net.narrow = Some((SERVER as u32, 1_400));
    falls_back(&mut net, 50_000, 50_000);
    for seconds in [60, 120] {
        let begun = net.now;
        net.run_for(Duration::from_secs(seconds - 5));
        let session = net.connected(CLIENT, SERVER);
        assert_eq!(usize::from(packet_bytes(&net, session)), PACKET_EVERYWHERE);
        net.run_until(PATIENCE, |net| {
            net.now.saturating_since(begun) > Duration::from_secs(seconds)
        });
        let session = net.connected(CLIENT, SERVER);
        assert_eq!(packet_bytes(&net, session), PROMISED);
        net.request(CLIENT, session, 3, 50_000);
        let ended = net.run_until(PATIENCE, |net| why_down(net, session).is_some());
        assert!(ended, "the path is as narrow as before");
    }
}

/// Silence is no black hole: nothing shows that smaller packets would arrive.
#[test]
fn a_peer_that_dies_is_no_black_hole() {
    let mut net = promising(PROMISED, PROMISED, false);
    let session = net.connected(CLIENT, SERVER);
    net.nodes[SERVER].is_dead = true;
    net.request(CLIENT, session, 1, 50_000);
    assert!(net.run_until(PATIENCE, |net| is_done(net, 1)));
    assert_eq!(why_down(&net, session), Some(DownReason::TimedOut));
    assert_eq!(net.nodes[CLIENT].endpoint.stats().black_holes, 0);
}

/// What every path carries is no promise that could be broken, and the size of a device is none either.
#[test]
fn sizes_that_rest_on_no_promise_are_kept() {
    let mut net = Net::new(1, 2, &Config::default());
    let session = net.connected(CLIENT, SERVER);
    net.narrow = Some((SERVER as u32, 1_400));
    net.request(CLIENT, session, 1, 50_000);
    net.run_for(Duration::from_secs(5));
    assert_eq!(why_down(&net, session), None);
    net.narrow = None;
    assert!(net.run_until(PATIENCE, |net| is_done(net, 1)));
}
