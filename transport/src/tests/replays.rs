//! Packets of a session that is over, played back by the network.

use super::net::Net;
use super::script::{NONCE, PEER, Script};
use crate::time::Duration;
use crate::wire::{Accept, Connect, Cookie, Header, NO_SESSION, PacketType, Seed, split_first};
use crate::{Config, DownReason, Event};

/// Connects with this nonce and ends the session; the CONNECT that opened it.
fn session_that_ends(s: &mut Script, nonce: u64) -> Connect {
    (s.nonce, s.seed) = (nonce, Seed::of_nonce(nonce));
    s.connect(0);
    let cookie = last(s, PacketType::Cookie, Cookie::read).cookie;
    let wish = s.connect_wish(cookie);
    s.connect(cookie);
    s.index = last(s, PacketType::Accept, |body| {
        Accept::read(body).map(|(accept, _)| accept)
    })
    .server_session;
    s.probe(PacketType::Disconnect, nonce, 1);
    s.expect(&["Disconnected"]);
    wish
}

fn last<T>(s: &mut Script, packet_type: PacketType, read: impl Fn(&[u8]) -> Option<T>) -> T {
    let sent = s.take();
    let (packet, _) = split_first(&sent[0]).expect("a packet");
    assert_eq!((sent.len(), packet.header.packet_type), (1, packet_type));
    read(packet.payload).expect("a body")
}

fn replay(s: &mut Script, connect: &Connect) {
    let header = Header::new(PacketType::Connect, NO_SESSION);
    s.raw(PEER, &header, Seed::NONE, &connect.write());
}

/// A server forgot a nonce with its session, while the cookie was still good for seconds. A
/// duplicate of the CONNECT made the session again, with the same checksums, at the same index
/// where few are in use. A duplicate of a request then ran its handler a second time.
#[test]
fn a_late_connect_does_not_bring_a_session_back() {
    let mut s = Script::server();
    let cookie = {
        // The same wish at the same time has the same cookie.
        s.connect(0);
        last(&mut s, PacketType::Cookie, Cookie::read).cookie
    };
    s.request(1, 0, 100);
    s.expect(&["Response 0"]);
    s.probe(PacketType::Disconnect, NONCE, 1);
    s.expect(&["Disconnected"]);
    let connect = s.connect_wish(cookie);
    replay(&mut s, &connect);
    s.request(1, 0, 100);
    assert_eq!(s.executed(), 1, "the handler ran twice for one request");
    assert_eq!(s.node.endpoint.stats().sessions_server, 0);
    s.expect(&[]);
}

/// The memory of nonces is bounded, and a forgotten nonce takes its cookie along.
#[test]
fn a_late_connect_does_not_come_through_after_many_sessions() {
    let mut s = Script::stranger();
    let first = session_that_ends(&mut s, 1);
    for nonce in 2..5_000 {
        session_that_ends(&mut s, nonce);
    }
    let accepted = |s: &Script| {
        let events = s.node.app.events.iter();
        events
            .filter(|event| matches!(event, Event::Accepted { .. }))
            .count()
    };
    let before = accepted(&s);
    replay(&mut s, &first);
    s.take();
    assert_eq!(accepted(&s), before, "the first session came back");
    session_that_ends(&mut s, 5_000);
}

/// The network duplicated everything, late: a second ACCEPT was taken for an RTT sample as long as
/// its delay, and the timeouts of the session grew with it.
#[test]
fn a_second_accept_is_no_rtt_sample() {
    let mut s = Script::client();
    let session = s.session.expect("a session");
    let stats = |s: &Script| s.node.endpoint.session_stats(session).expect("it stands");
    let before = stats(&s).rtt_samples;
    s.wait(Duration::from_secs(1));
    s.accept(32, 8);
    assert_eq!(stats(&s).rtt_samples, before);
}

/// A whole conversation with its handshake and its end, played back to the server packet by packet.
#[test]
fn a_replayed_conversation_runs_nothing_again() {
    let mut net = Net::new(5, 2, &Config::default());
    net.recorded = Some(Vec::new());
    let session = net.connected(0, 1);
    for tag in 0..20 {
        net.request(0, session, tag, 3_000);
    }
    net.run_for(Duration::from_millis(20));
    let now = net.now;
    net.nodes[0].endpoint.disconnect(now, session);
    net.run_for(Duration::from_millis(20));
    assert_eq!(net.nodes[1].endpoint.stats().sessions_server, 0);
    let recorded = net.recorded.take().expect("recording");
    for (from, to, bytes) in recorded {
        net.inject(to as usize, from, &bytes);
        net.run_for(Duration::from_micros(10));
    }
    assert_eq!(net.nodes[1].app.executed.len(), 20);
    assert!(net.nodes[1].app.executed.values().all(|count| *count == 1));
}

/// Plays back the packets of one side of a conversation, again and again, after that side has died.
fn replayed_for_ever(dead: usize) -> DownReason {
    let mut net = Net::new(7, 2, &Config::default());
    net.recorded = Some(Vec::new());
    let session = net.connected(0, 1);
    for tag in 1..=4 {
        net.request(0, session, tag, 4_000);
    }
    // Long enough for keepalives of both sides.
    net.run_for(Duration::from_secs(3));
    let recorded = net.recorded.take().expect("it recorded");
    net.nodes[dead].is_dead = true;
    let alive = 1 - dead;
    for _ in 0..200 {
        for (_, _, bytes) in recorded.iter().filter(|(from, ..)| *from as usize == dead) {
            net.inject(alive, dead as u32, bytes);
        }
        net.run_for(Duration::from_millis(20));
        let events = &net.nodes[alive].app.events;
        let down = events.iter().find_map(|event| match event {
            Event::Down { reason, .. } => Some(*reason),
            _ => None,
        });
        if let Some(reason) = down {
            return reason;
        }
    }
    panic!("the session of a dead machine stands after four seconds");
}

/// Every sound packet counted as a sign of life. A network that kept playing a dead machine's
/// packets back therefore kept its session, and the requests in it, for ever.
#[test]
fn replays_are_no_sign_of_life() {
    assert_eq!(replayed_for_ever(1), DownReason::TimedOut, "a dead server");
    assert_eq!(replayed_for_ever(0), DownReason::TimedOut, "a dead client");
}
