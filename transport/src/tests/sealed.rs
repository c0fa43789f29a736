//! Sealed sessions: who gets one, what is opened, and what a stranger or a listener can do to them.

use super::net::{Done, Net, Ring, key, one_key};
use crate::config::HALF_OPEN_MAX;
use crate::keys::{KeyId, Keys, OwnKey, Stage};
use crate::prng::{Prng, Ratio};
use crate::time::Duration;
use crate::{Config, ConnectError, DownReason, Event, KeyObstacle, SessionId};
use std::sync::Arc;

const CLIENT: usize = 0;
const SERVER: usize = 1;

fn net() -> Net {
    Net::sealed(1, 2, &Config::default())
}

fn holding(stage: Stage, own: Option<OwnKey>, known: &[OwnKey]) -> Keys {
    Keys {
        stage,
        ring: Arc::new(Ring(known.to_vec())),
        own,
        entropy: Arc::new(|| [0; 32]),
        key_log: None,
    }
}

/// A client and a server with these keys; `None`: no keys at all.
fn net_with(client: Option<Keys>, server: Option<Keys>) -> Net {
    let mut net = Net::new(1, 2, &Config::default());
    for (node, keys) in [(CLIENT, client), (SERVER, server)] {
        if let Some(mut keys) = keys {
            keys.entropy = Arc::new(move || [node as u8; 32]);
            net.nodes[node].endpoint.set_keys(keys);
        }
    }
    net
}

/// Why a client gets no session.
fn obstacle(mut net: Net) -> ConnectError {
    net.connect(CLIENT, SERVER);
    let reason = |net: &Net| {
        net.nodes[CLIENT]
            .app
            .events
            .iter()
            .find_map(|event| match event {
                Event::ConnectFailed { reason, .. } => Some(*reason),
                _ => None,
            })
    };
    net.run_until(Duration::from_secs(5), |net| reason(net).is_some());
    reason(&net).expect("no session")
}

/// A request of so many bytes is answered.
fn works(net: &mut Net, session: SessionId, tag: u64, bytes: usize) {
    let before = net.nodes[CLIENT].app.completions.len();
    net.request(CLIENT, session, tag, bytes);
    let is_done = |net: &Net| net.nodes[CLIENT].app.completions.len() > before;
    assert!(net.run_until(Duration::from_secs(20), is_done), "no answer");
    let last = net.nodes[CLIENT].app.completions.last();
    assert_eq!(last, Some(&Done::with(tag, bytes)));
}

#[test]
fn requests_of_all_sizes_travel_sealed() {
    let mut net = net();
    let session = net.connected(CLIENT, SERVER);
    net.recorded = Some(Vec::new());
    for (tag, bytes) in [8, 32, 200, 300, 1_424, 1_425, 5_000, 100_000, 2_000_000]
        .into_iter()
        .enumerate()
    {
        works(&mut net, session, tag as u64, bytes);
    }
    assert_eq!(
        net.nodes[CLIENT].endpoint.key(session),
        KeyId::new(b"everybody")
    );
    let known = super::net::pattern(4, 1_424);
    let packets = net.recorded.expect("recorded");
    let shows = |packet: &[u8]| packet.windows(16).any(|part| part == &known[100..116]);
    assert!(
        packets.iter().all(|(_, _, packet)| !shows(packet)),
        "data in clear"
    );
    let stats = net.nodes[SERVER].endpoint.stats();
    assert_eq!(stats.drops.total(), 0, "{:?}", stats.drops);
}

/// Packets of a session that leave together share a tag.
#[test]
fn a_burst_of_small_packets_is_one_run() {
    let mut net = net();
    let session = net.connected(CLIENT, SERVER);
    net.run_for(Duration::from_millis(10));
    net.recorded = Some(Vec::new());
    let opened = net.nodes[SERVER].endpoint.stats().sealed_opened;
    for tag in 0..8 {
        net.request(CLIENT, session, tag, 32);
    }
    let all = |net: &Net| net.nodes[CLIENT].app.completions.len() == 8;
    assert!(net.run_until(Duration::from_secs(1), all));
    assert_eq!(net.nodes[SERVER].endpoint.stats().sealed_opened, opened + 1);
    let from_client = |(from, _, _): &&(u32, u32, Vec<u8>)| *from == CLIENT as u32;
    let sent = net
        .recorded
        .iter()
        .flatten()
        .find(from_client)
        .expect("sent");
    assert_eq!(sent.2.len(), 8 * (24 + 32) + 16, "one tag");
}

/// Packets of several sessions leave in turns: each session's still share a tag. Each was sealed by itself.
#[test]
fn packets_of_sessions_in_turns_share_tags() {
    let mut net = net();
    let sessions = [net.connected(CLIENT, SERVER), net.connected(CLIENT, SERVER)];
    net.run_for(Duration::from_millis(10));
    let opened = net.nodes[SERVER].endpoint.stats().sealed_opened;
    for tag in 0..8 {
        net.request(CLIENT, sessions[tag as usize % 2], tag, 32);
    }
    let all = |net: &Net| net.nodes[CLIENT].app.completions.len() == 8;
    assert!(net.run_until(Duration::from_secs(1), all));
    assert_eq!(net.nodes[SERVER].endpoint.stats().sealed_opened, opened + 2);
    let config = Config {
        tag_per_run: false,
        ..Config::default()
    };
    let mut net = Net::sealed(1, 2, &config);
    let session = net.connected(CLIENT, SERVER);
    net.run_for(Duration::from_millis(10));
    let opened = net.nodes[SERVER].endpoint.stats().sealed_opened;
    for tag in 0..4 {
        net.request(CLIENT, session, tag, 32);
    }
    let all = |net: &Net| net.nodes[CLIENT].app.completions.len() == 4;
    assert!(net.run_until(Duration::from_secs(1), all));
    assert_eq!(net.nodes[SERVER].endpoint.stats().sealed_opened, opened + 4);
}

#[test]
fn who_has_no_good_key_learns_why() {
    let (ours, other) = (key(b"everybody", 7), key(b"everybody", 8));
    let stranger = key(b"stranger", 7);
    let server = || Some(holding(Stage::Require, None, std::slice::from_ref(&ours)));
    let client = |own: &OwnKey| Some(holding(Stage::Require, Some(own.clone()), &[]));
    assert_eq!(
        obstacle(net_with(None, server())),
        ConnectError::Key(KeyObstacle::Required)
    );
    assert_eq!(
        obstacle(net_with(client(&other), server())),
        ConnectError::Key(KeyObstacle::Wrong)
    );
    assert_eq!(
        obstacle(net_with(client(&stranger), server())),
        ConnectError::Key(KeyObstacle::Unknown)
    );
    assert_eq!(
        obstacle(net_with(client(&ours), None)),
        ConnectError::Key(KeyObstacle::NotTaken)
    );
}

/// In the stage `accept` an endpoint speaks with everybody, and sealed with those that hold a key.
#[test]
fn a_group_changes_to_keys_one_member_at_a_time() {
    let keyed = || Some(one_key(Stage::Accept));
    for (client, server, is_sealed) in [
        (keyed(), keyed(), true),
        (None, keyed(), false),
        (keyed(), None, false),
        (keyed(), Some(one_key(Stage::Require)), true),
    ] {
        let mut net = net_with(client, server);
        let session = net.connected(CLIENT, SERVER);
        works(&mut net, session, 1, 5_000);
        assert_eq!(net.nodes[CLIENT].endpoint.key(session).is_some(), is_sealed);
    }
}

/// The key of a removed user opened sessions for ever, and each told who leads.
#[test]
fn a_key_that_counts_no_more_opens_no_session() {
    let refusing: fn(&KeyId) -> bool = |key| &**key != b"everybody";
    let mut net = net();
    net.nodes[SERVER].app.admits = refusing;
    assert_eq!(obstacle(net), ConnectError::Key(KeyObstacle::Unknown));
    // Who does not hold the key is not told whether it counts.
    let (ours, other) = (key(b"everybody", 7), key(b"everybody", 8));
    let mut net = net_with(
        Some(holding(Stage::Require, Some(other), &[])),
        Some(holding(Stage::Require, None, &[ours])),
    );
    net.nodes[SERVER].app.admits = refusing;
    assert_eq!(obstacle(net), ConnectError::Key(KeyObstacle::Wrong));
}

/// An established session of the stage before stays; `end_sessions_of` ends those of a key.
#[test]
fn sessions_of_a_key_that_is_over_end() {
    let mut net = net();
    let session = net.connected(CLIENT, SERVER);
    works(&mut net, session, 1, 32);
    let now = net.now;
    let ended = net.nodes[SERVER]
        .endpoint
        .end_sessions_of(now, |key| &**key == b"another");
    assert_eq!(ended, 0);
    works(&mut net, session, 2, 32);
    let ended = net.nodes[SERVER]
        .endpoint
        .end_sessions_of(now, |key| &**key == b"everybody");
    assert_eq!(ended, 1);
    assert!(net.run_until(Duration::from_secs(1), |net| is_down(
        net,
        DownReason::PeerDisconnected
    )));
}

fn is_down(net: &Net, reason: DownReason) -> bool {
    let is_it =
        |event: &Event<u32>| matches!(event, Event::Down { reason: why, .. } if *why == reason);
    net.nodes[CLIENT].app.events.iter().any(is_it)
}

/// What was sent is sent again, all of it, in any order: no handler runs, and no session notices.
#[test]
fn replays_change_nothing() {
    let mut net = net();
    net.recorded = Some(Vec::new());
    let session = net.connected(CLIENT, SERVER);
    for tag in 0..20 {
        works(&mut net, session, tag, 100 * (1 + tag as usize));
    }
    let packets = net.recorded.take().expect("recorded");
    let events = net.nodes[SERVER].app.events.len();
    let now = net.now;
    for (from, to, packet) in packets.iter().chain(packets.iter().rev()) {
        net.nodes[*to as usize].receive(now, *from, packet);
    }
    net.run_for(Duration::from_millis(5));
    let server = &net.nodes[SERVER];
    assert!(server.app.executed.values().all(|runs| *runs == 1));
    assert_eq!(server.app.events.len(), events, "{:?}", server.app.events);
    assert!(server.endpoint.stats().drops.replayed > 0);
    works(&mut net, session, 99, 300);
}

/// Not one bit of a sealed packet can be changed: its tag is wrong, or it is no packet.
#[test]
fn every_turned_bit_is_found() {
    let mut net = net();
    let session = net.connected(CLIENT, SERVER);
    works(&mut net, session, 1, 32);
    net.recorded = Some(Vec::new());
    for tag in 2..5 {
        net.request(CLIENT, session, tag, 40);
    }
    let now = net.now;
    let sent = net.nodes[CLIENT].turn(now);
    let [(_, packet)] = &sent[..] else {
        panic!("three requests are one run: {sent:?}")
    };
    for bit in 0..packet.len() * 8 {
        let mut turned = packet.clone();
        turned[bit / 8] ^= 1 << (bit % 8);
        net.nodes[SERVER].receive(now, CLIENT as u32, &turned);
    }
    let server = &net.nodes[SERVER];
    assert_eq!(
        server.app.executed.len(),
        1,
        "a changed packet was believed"
    );
    assert_eq!(server.endpoint.stats().sessions_server, 1);
    net.nodes[SERVER].receive(now, CLIENT as u32, packet);
    assert_eq!(
        net.nodes[SERVER].app.executed.len(),
        4,
        "the right one still counts"
    );
}

/// The packets of one session are nothing in another one, also of the same key and ends.
#[test]
fn packets_of_another_session_are_not_opened() {
    let mut net = net();
    let sessions = [net.connected(CLIENT, SERVER), net.connected(CLIENT, SERVER)];
    for session in sessions {
        works(&mut net, session, u64::from(session.index), 32);
    }
    net.request(CLIENT, sessions[0], 50, 40);
    let now = net.now;
    let mut sent = net.nodes[CLIENT].turn(now);
    let (_, packet) = sent.first_mut().expect("a request");
    // The server's indexes are those of its two sessions.
    packet[2] ^= 1;
    net.nodes[SERVER].receive(now, CLIENT as u32, packet);
    assert_eq!(net.nodes[SERVER].endpoint.stats().drops.forged, 1);
    assert!(!net.nodes[SERVER].app.executed.contains_key(&50));
}

/// A stranger on the path sees all packets and sends what it likes. Sessions end only by their ends' own packets.
#[test]
fn forged_pings_disconnects_and_resets_end_nothing() {
    use crate::wire::{Connect, Header, PacketType, Probe, RequestNumber, Seed};
    let mut net = net();
    net.recorded = Some(Vec::new());
    let session = net.connected(CLIENT, SERVER);
    works(&mut net, session, 1, 32);
    let packets = net.recorded.clone().expect("recorded");
    // Nonce and indexes travel in clear.
    let connect = packets
        .iter()
        .find_map(|(_, _, p)| Connect::read(&p[24..]).filter(|_| p[0] & 15 == 8));
    let (connect, _) = connect.expect("a CONNECT");
    let body = Probe {
        sender_session: 0,
        nonce: connect.nonce,
    }
    .write();
    let now = net.now;
    // The client asks: its token is out.
    net.nodes[SERVER].is_dead = true;
    net.run_for(Duration::from_millis(400));
    net.nodes[SERVER].is_dead = false;
    let token = net
        .recorded
        .iter()
        .flatten()
        .rev()
        .find(|(_, _, p)| p[0] & 15 == 14);
    let token =
        token.map(|(_, _, p)| u64::from_le_bytes([p[12], p[13], p[14], p[15], p[16], p[17], 0, 0]));
    let token = RequestNumber::token(token.expect("a PING"));
    for packet_type in [
        PacketType::Ping,
        PacketType::Disconnect,
        PacketType::Reset,
        PacketType::Pong,
    ] {
        for (to, from) in [(SERVER, CLIENT), (CLIENT, SERVER)] {
            let header = Header {
                request: token,
                ..Header::new(packet_type, 0)
            };
            let payload: &[u8] = match packet_type {
                PacketType::Reset | PacketType::Pong => &[],
                _ => &body,
            };
            for (seed, extra) in [
                (Seed::NONE, 0),
                (Seed::of_nonce(connect.nonce), 0),
                (Seed::NONE, 8),
            ] {
                let payload = [payload, &vec![0; extra][..]].concat();
                let mut packet = header.write(seed, None, &payload).to_vec();
                packet.extend_from_slice(&payload);
                net.nodes[to].receive(now, from as u32, &packet);
                // And as if it were sealed.
                packet[1] |= 4;
                packet.extend_from_slice(&[0; 16]);
                let length = (packet.len() as u16).to_le_bytes();
                packet[4..6].copy_from_slice(&length);
                net.nodes[to].receive(now, from as u32, &packet);
            }
        }
    }
    for node in &net.nodes {
        assert!(
            !node
                .app
                .events
                .iter()
                .any(|event| matches!(event, Event::Down { .. }))
        );
    }
    works(&mut net, session, 2, 32);
}

/// Whoever holds the key proves that it does not know a session, and can be asked to by anybody who has seen a PING: an
/// observer had the client itself make the proof that ended its own session.
#[test]
fn a_proof_that_somebody_else_was_brought_to_make_ends_nothing() {
    let mut net = net();
    let session = net.connected(CLIENT, SERVER);
    works(&mut net, session, 1, 32);
    net.recorded = Some(Vec::new());
    net.nodes[SERVER].is_dead = true;
    net.run_for(Duration::from_millis(300));
    let is_ping = |packet: &&(u32, u32, Vec<u8>)| packet.2[0] & 15 == 14;
    let (_, _, ping) = net
        .recorded
        .iter()
        .flatten()
        .find(is_ping)
        .expect("a PING")
        .clone();
    // To the client, as if it were its peer's: of a session that it does not have.
    let mut asked = ping.clone();
    asked[2..4].copy_from_slice(&[200, 0]);
    let now = net.now;
    net.nodes[CLIENT].receive(now, 7, &asked);
    let answers = net.nodes[CLIENT].turn(now);
    let (_, reset) = answers.iter().find(|(to, _)| *to == 7).expect("a proof");
    assert_eq!(reset[0] & 15, 7);
    let mut reset = reset.clone();
    reset[2..4].copy_from_slice(&[0, 0]);
    net.nodes[CLIENT].receive(now, SERVER as u32, &reset);
    net.nodes[SERVER].is_dead = false;
    net.run_for(Duration::from_millis(300));
    assert!(!is_down(&net, DownReason::Reset));
    works(&mut net, session, 2, 32);
}

/// A peer that has restarted is found as fast as without keys: its RESET proves the key.
#[test]
fn a_restarted_server_is_found_within_a_timeout() {
    let mut net = net();
    let session = net.connected(CLIENT, SERVER);
    works(&mut net, session, 1, 32);
    net.restart(SERVER, &Config::default());
    net.request(CLIENT, session, 2, 32);
    let limit = Duration::from_millis(40);
    assert!(net.run_until(limit, |net| is_down(net, DownReason::Reset)));
    let session = net.connected(CLIENT, SERVER);
    works(&mut net, session, 3, 32);
}

/// A handshake is repeated byte for byte: a second message with the same keys would break the cipher.
#[test]
fn what_is_lost_of_a_handshake_is_repeated_as_it_was() {
    let (mut connects, mut accepts) = (0, 0);
    for seed in 0..30 {
        let patient = Config {
            connect_timeout: Duration::from_secs(60),
            // A half-open session lasts as long.
            failure_timeout: Duration::from_secs(60),
            ..Config::default()
        };
        let mut net = Net::sealed(seed, 2, &patient);
        net.recorded = Some(Vec::new());
        net.faults.loss = Ratio::percent(45);
        let session = net.connected(CLIENT, SERVER);
        net.faults.loss = Ratio::ZERO;
        works(&mut net, session, 1, 32);
        let packets = net.recorded.expect("recorded");
        let of_type = |packet_type: u8| {
            let is_it = |packet: &Vec<u8>| packet[0] & 15 == packet_type && packet.len() > 64;
            let all = packets.iter().map(|(_, _, packet)| packet.clone());
            let mut found: Vec<_> = all.filter(is_it).collect();
            let count = found.len();
            found.dedup();
            assert_eq!(
                found.len(),
                1,
                "different ones of type {packet_type}, seed {seed}"
            );
            count
        };
        connects += of_type(8);
        accepts += of_type(10);
    }
    assert!(
        connects > 15 && accepts > 12,
        "{connects} CONNECTs, {accepts} ACCEPTs"
    );
}

/// A thief of packets replays handshakes that it recorded. They cost the server little memory and a tenth of its time,
/// they are nobody's sessions, and holders of a key still get theirs.
#[test]
fn replayed_handshakes_are_bounded() {
    let mut net = Net::sealed(1, 3, &Config::default());
    let mut made = 0;
    for _ in 0..20 {
        // Clients that never prove anything: their handshakes are known, their first sealed packet never comes.
        for _ in 0..30 {
            net.connect(CLIENT, SERVER);
            made += 1;
        }
        net.run_for(Duration::from_micros(50));
        net.nodes[CLIENT].is_dead = true;
        net.run_for(Duration::from_millis(30));
        net.restart(CLIENT, &Config::default());
        net.nodes[CLIENT].is_dead = false;
    }
    let stats = net.nodes[SERVER].endpoint.stats();
    assert!(
        stats.handshakes_deferred > 0,
        "of {made} handshakes none was put off"
    );
    assert!(net.nodes[SERVER].endpoint.half_open() <= HALF_OPEN_MAX);
    net.nodes[CLIENT].is_dead = true;
    let session = net.connected(2, SERVER);
    assert!(net.nodes[2].endpoint.key(session).is_some());
    net.run_for(Duration::from_secs(3));
    assert_eq!(
        net.nodes[SERVER].endpoint.half_open(),
        0,
        "they are forgotten"
    );
}

/// Random bytes in place of parts of good packets, by the million in the fuzzer and by the thousand here.
#[test]
fn mutated_packets_are_never_believed() {
    let mut net = net();
    let session = net.connected(CLIENT, SERVER);
    works(&mut net, session, 1, 32);
    net.recorded = Some(Vec::new());
    for tag in 2..8 {
        works(&mut net, session, tag, 30 * tag as usize);
    }
    let packets = net.recorded.take().expect("recorded");
    let (mut prng, now) = (Prng::new(5), net.now);
    let before = net.nodes[SERVER].app.executed.clone();
    for _ in 0..20_000 {
        let (from, to, packet) = &packets[prng.below(packets.len() as u64) as usize];
        let mut packet = packet.clone();
        for _ in 0..=prng.below(4) {
            let at = prng.below(packet.len() as u64) as usize;
            packet[at] = prng.next_u64() as u8;
        }
        if prng.below(4) == 0 {
            packet.truncate(prng.below(packet.len() as u64 + 1) as usize);
        }
        net.nodes[*to as usize].receive(now, *from, &packet);
    }
    assert_eq!(net.nodes[SERVER].app.executed, before);
    net.run_for(Duration::from_millis(10));
    works(&mut net, session, 100, 32);
}

/// A day of it is played quickly.
fn net_with_rare_keepalives() -> Net {
    let config = Config {
        keepalive_interval: Duration::from_secs(10),
        failure_timeout: Duration::from_secs(20),
        ..Config::default()
    };
    Net::sealed(1, 2, &config)
}

/// A client ends a session whose keys have been used for a day.
#[test]
fn keys_do_not_last_for_ever() {
    let mut net = net();
    let session = net.connected(CLIENT, SERVER);
    works(&mut net, session, 1, 32);
    net.nodes[CLIENT].endpoint.wear_keys(session);
    let limit = Duration::from_secs(2);
    assert!(net.run_until(limit, |net| is_down(net, DownReason::NumbersUsedUp)));
}

/// Packets put the timers of a session off. They must not put off for ever what only its timers look at.
#[test]
fn keys_do_not_last_for_ever_where_packets_never_pause() {
    let mut net = net_with_rare_keepalives();
    let session = net.connected(CLIENT, SERVER);
    net.run_for(Duration::from_secs(24 * 3_600 - 30));
    for round in 1..=90 {
        if is_down(&net, DownReason::NumbersUsedUp) {
            return;
        }
        net.request(CLIENT, session, round, 32);
        net.run_for(Duration::from_secs(1));
    }
    panic!("nobody has looked at the age of the keys");
}

/// A server does not wait for ever for a client to do that.
#[test]
fn a_server_ends_sessions_of_clients_that_do_not() {
    let mut net = net_with_rare_keepalives();
    let session = net.connected(CLIENT, SERVER);
    works(&mut net, session, 1, 32);
    let hours = |hours: u64| Duration::from_secs(hours * 3_600);
    net.run_for(hours(23));
    let now = net.now;
    net.nodes[CLIENT].endpoint.renew_keys(session, now);
    net.run_for(hours(1));
    works(&mut net, session, 2, 32);
    let limit = hours(2);
    assert!(net.run_until(limit, |net| is_down(net, DownReason::PeerDisconnected)));
    assert!(net.nodes[SERVER].app.events.iter().any(|event| matches!(
        event,
        Event::Down {
            reason: DownReason::NumbersUsedUp,
            ..
        }
    )));

    let mut net = self::net();
    let session = net.connected(CLIENT, SERVER);
    works(&mut net, session, 1, 32);
    let at_server = accepted(&net);
    net.nodes[SERVER].endpoint.wear_keys_of_peer(at_server);
    let limit = Duration::from_secs(10);
    assert!(net.run_until(limit, |net| is_down(net, DownReason::PeerDisconnected)));
}

/// The server's end of the last session.
fn accepted(net: &Net) -> SessionId {
    let events = net.nodes[SERVER].app.events.iter().rev();
    let mut sessions = events.filter_map(|event| match event {
        Event::Accepted { session, .. } => Some(*session),
        _ => None,
    });
    sessions.next().expect("a session")
}

/// The keys of one step of a change: this one for own sessions, and these for callers.
fn step(own: &OwnKey, known: &[&OwnKey]) -> Keys {
    let known: Vec<OwnKey> = known.iter().map(|key| (*key).clone()).collect();
    holding(Stage::Require, Some(own.clone()), &known)
}

/// First both ends accept the new key, then both use it, then the old one goes. No step disturbs a session before the
/// last, and afterwards the old key opens none.
#[test]
fn a_key_is_changed_in_three_steps() {
    let (old, new) = (key(b"old", 1), key(b"new", 2));
    let steps = [
        step(&old, &[&old]),
        step(&old, &[&old, &new]),
        step(&new, &[&old, &new]),
    ];
    let mut net = net_with(Some(steps[0].clone()), Some(steps[0].clone()));
    let session = net.connected(CLIENT, SERVER);
    for keys in &steps[1..] {
        for node in [SERVER, CLIENT] {
            let now = net.now;
            let ended = net.nodes[node].endpoint.change_keys(now, keys.clone());
            assert_eq!(ended, 0);
            works(&mut net, session, 1, 5_000);
            // Others connect also between the ends' steps.
            let other = net.connected(CLIENT, SERVER);
            works(&mut net, other, 2, 32);
            net.nodes[CLIENT].endpoint.disconnect(net.now, other);
        }
    }
    // The session of the old key stands under the last step's keys no more, whichever end comes first.
    let last = step(&new, &[&new]);
    let now = net.now;
    net.nodes[SERVER].app.events.clear();
    let ended = net.nodes[SERVER].endpoint.change_keys(now, last.clone());
    assert_eq!(ended, 1);
    assert!(net.run_until(Duration::from_secs(1), |net| is_down(
        net,
        DownReason::PeerDisconnected
    )));
    let session = net.connected(CLIENT, SERVER);
    works(&mut net, session, 3, 5_000);
    let now = net.now;
    assert_eq!(net.nodes[CLIENT].endpoint.change_keys(now, last.clone()), 0);
    works(&mut net, session, 4, 32);
    assert_eq!(
        obstacle(net_with(Some(step(&old, &[&old])), Some(last))),
        ConnectError::Key(KeyObstacle::Unknown)
    );
}

/// A group without keys gets them without a restart, and sessions without a seal end once keys are required.
#[test]
fn the_stage_changes_while_sessions_stand() {
    let mut net = net_with(None, None);
    let plain = net.connected(CLIENT, SERVER);
    works(&mut net, plain, 1, 5_000);
    assert_eq!(net.nodes[SERVER].endpoint.key_stage(), None);
    let now = net.now;
    for node in [CLIENT, SERVER] {
        let ended = net.nodes[node]
            .endpoint
            .change_keys(now, one_key(Stage::Accept));
        assert_eq!(ended, 0);
    }
    works(&mut net, plain, 2, 5_000);
    let callers: Vec<u32> = net.nodes[SERVER]
        .endpoint
        .unsealed_callers()
        .map(|(_, route)| route)
        .collect();
    assert_eq!(callers, [CLIENT as u32]);
    assert_eq!(net.nodes[CLIENT].endpoint.unsealed_callers().count(), 0);
    assert_eq!(net.nodes[SERVER].endpoint.sealed_callers().count(), 0);
    let sealed = net.connected(CLIENT, SERVER);
    assert!(net.nodes[CLIENT].endpoint.key(sealed).is_some());
    works(&mut net, sealed, 3, 5_000);
    let callers: Vec<KeyId> = net.nodes[SERVER].endpoint.sealed_callers().collect();
    assert_eq!(callers, [KeyId::new(b"everybody").expect("a name")]);
    assert_eq!(net.nodes[CLIENT].endpoint.sealed_callers().count(), 0);
    let now = net.now;
    let ended = net.nodes[SERVER]
        .endpoint
        .change_keys(now, one_key(Stage::Require));
    assert_eq!(ended, 1);
    assert_eq!(net.nodes[SERVER].endpoint.key_stage(), Some(Stage::Require));
    assert!(net.run_until(Duration::from_secs(1), |net| is_down(
        net,
        DownReason::PeerDisconnected
    )));
    works(&mut net, sealed, 4, 5_000);
    assert_eq!(net.nodes[SERVER].endpoint.unsealed_callers().count(), 0);
}

/// A session that was asked for before the keys changed would stand with the keys from before.
#[test]
fn what_is_asked_for_with_the_old_keys_is_given_up() {
    for (before, after) in [
        (None, one_key(Stage::Accept)),
        (Some(step(&key(b"old", 1), &[])), step(&key(b"new", 2), &[])),
    ] {
        let mut net = net_with(before, Some(one_key(Stage::Accept)));
        let session = net.connect(CLIENT, SERVER);
        let now = net.now;
        net.nodes[CLIENT].endpoint.change_keys(now, after);
        net.run_for(Duration::from_millis(10));
        let is_cancelled = |event: &Event<u32>| matches!(event, Event::ConnectFailed { session: s, reason: ConnectError::Cancelled, .. } if *s == session);
        assert!(net.nodes[CLIENT].app.events.iter().any(is_cancelled));
    }
}

/// The next packet of a client, which has one request for it.
fn packet_of(net: &mut Net, session: SessionId, tag: u64) -> Vec<u8> {
    net.request(CLIENT, session, tag, 40);
    let now = net.now;
    let sent = net.nodes[CLIENT].turn(now);
    let [(_, packet)] = &sent[..] else {
        panic!("a request is a packet: {sent:?}")
    };
    packet.clone()
}

/// Packets of the next epoch come before the last ones of an epoch, and each is taken once.
#[test]
fn packets_overtake_each_other_across_an_epoch() {
    let mut net = net();
    let session = net.connected(CLIENT, SERVER);
    works(&mut net, session, 1, 32);
    for node in [CLIENT, SERVER] {
        net.nodes[node].endpoint.skip_packets(0, (1 << 24) - 4);
    }
    let packets: Vec<_> = (10..18)
        .map(|tag| packet_of(&mut net, session, tag))
        .collect();
    let counters = packets.iter().map(|packet| packet[23]);
    assert_eq!(counters.collect::<Vec<_>>(), [0, 0, 0, 0, 1, 1, 1, 1]);
    let now = net.now;
    for index in [5, 1, 7, 0, 4, 3, 2, 6] {
        for _ in 0..2 {
            net.nodes[SERVER].receive(now, CLIENT as u32, &packets[index]);
        }
    }
    let stats = net.nodes[SERVER].endpoint.stats();
    assert_eq!(stats.drops.replayed, 8, "{:?}", stats.drops);
    assert_eq!(stats.drops.forged, 0);
    let all = |net: &Net| net.nodes[CLIENT].app.completions.len() == 9;
    assert!(net.run_until(Duration::from_secs(1), all));
    let executed = &net.nodes[SERVER].app.executed;
    assert!((10..18).all(|tag| executed[&tag] == 1), "{executed:?}");
}

/// A packet that is older than the window is not taken, though nobody has seen it. The session goes on.
#[test]
fn a_packet_that_comes_after_a_thousand_others_is_too_old() {
    let mut net = net();
    let session = net.connected(CLIENT, SERVER);
    works(&mut net, session, 1, 32);
    let late = packet_of(&mut net, session, 2);
    let opened = net.nodes[SERVER].endpoint.stats().sealed_opened;
    let mut tag = 10;
    while net.nodes[SERVER].endpoint.stats().sealed_opened <= opened + 1_024 {
        works(&mut net, session, tag, 32);
        tag += 1;
    }
    let now = net.now;
    let before = net.nodes[SERVER].endpoint.stats();
    net.nodes[SERVER].receive(now, CLIENT as u32, &late);
    let after = net.nodes[SERVER].endpoint.stats();
    assert_eq!(after.drops.replayed, before.drops.replayed + 1);
    assert_eq!(after.sealed_opened, before.sealed_opened);
    // It was sent again in the meantime.
    assert_eq!(net.nodes[SERVER].app.executed[&2], 1);
    works(&mut net, session, tag, 300);
}

/// The two directions of a session have keys of their own, and so has the next session at the same place.
#[test]
fn packets_are_good_in_their_own_direction_and_session_alone() {
    let mut net = net();
    let session = net.connected(CLIENT, SERVER);
    works(&mut net, session, 1, 32);
    let packet = packet_of(&mut net, session, 2);
    let now = net.now;
    net.nodes[CLIENT].receive(now, SERVER as u32, &packet);
    assert_eq!(net.nodes[CLIENT].endpoint.stats().drops.forged, 1);
    // Both ends forget the session, and the next one has its indexes.
    net.restart(SERVER, &Config::default());
    net.restart(CLIENT, &Config::default());
    let session = net.connected(CLIENT, SERVER);
    net.run_for(Duration::from_millis(5));
    let now = net.now;
    net.nodes[SERVER].receive(now, CLIENT as u32, &packet);
    let drops = net.nodes[SERVER].endpoint.stats().drops;
    assert_eq!(drops.forged + drops.replayed, 1, "{drops:?}");
    assert!(!net.nodes[SERVER].app.executed.contains_key(&2));
    works(&mut net, session, 3, 32);
}
