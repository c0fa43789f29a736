//! Sealed handshakes in the hands of somebody who records packets, changes them and sends them from elsewhere.

use super::net::{Net, Ring, key, one_key};
use crate::Config;
use crate::config::{HALF_OPEN_MAX, HALF_OPEN_RESERVE};
use crate::keys::{KeyId, KeyLog, KeyRing, Keys, OwnKey, Psk, SessionSecrets, Stage};
use crate::time::Duration;
use crate::wire::{Connect, Cookie, Features, Header, NO_SESSION, PacketType, Seed};
use std::sync::{Arc, Mutex};
use trine_seal::{CookieKey, Csprng, Initiator, MESSAGE_OVERHEAD};

const CLIENT: usize = 0;
const SERVER: usize = 1;
/// An address that the thief of packets has to itself.
const THIEF: u32 = 7;

/// A client whose first two packets were recorded, and a server that has got neither. The client goes on later.
struct Theft {
    net: Net,
    /// CONNECT without a cookie, as it was sent.
    question: Vec<u8>,
}

fn theft() -> Theft {
    theft_from(Net::sealed(1, 2, &Config::default()))
}

fn theft_from(mut net: Net) -> Theft {
    net.connect(CLIENT, SERVER);
    let now = net.now;
    let sent = net.nodes[CLIENT].turn(now);
    let [(_, question)] = &sent[..] else {
        panic!("one CONNECT: {sent:?}")
    };
    Theft {
        question: question.clone(),
        net,
    }
}

impl Theft {
    /// The only packet that a node sends to an address when it has got this one from there.
    fn answer(&mut self, node: usize, from: u32, packet: &[u8]) -> Option<Vec<u8>> {
        let now = self.net.now;
        self.net.nodes[node].receive(now, from, packet);
        let sent = self.net.nodes[node].turn(now);
        let mut to_sender = sent.into_iter().filter(|(to, _)| *to == from);
        let answer = to_sender.next().map(|(_, packet)| packet);
        assert!(to_sender.next().is_none(), "one packet for one");
        answer
    }

    /// The client's CONNECT for the cookie in this packet, which is said to be the server's.
    fn returned(&mut self, cookie: &[u8]) -> Vec<u8> {
        let connect = self.answer(CLIENT, SERVER as u32, cookie);
        connect.expect("a client returns its cookie")
    }

    fn half_open(&self) -> usize {
        self.net.nodes[SERVER].endpoint.half_open()
    }
}

fn type_of(packet: &[u8]) -> u8 {
    packet[0] & 15
}

/// A CONNECT with this body, and its checksum.
fn connect_with(body: &[u8]) -> Vec<u8> {
    let header = Header::new(PacketType::Connect, NO_SESSION);
    let mut packet = header.write(Seed::NONE, None, body).to_vec();
    packet.extend_from_slice(body);
    packet
}

/// A recorded first message took a handshake's time with any cookie: a stranger could use up the time for handshakes.
#[test]
fn a_recorded_handshake_is_worth_nothing_with_another_cookie() {
    let mut theft = theft();
    let question = theft.question.clone();
    let cookie = theft.answer(SERVER, CLIENT as u32, &question);
    let recorded = theft.returned(&cookie.expect("a cookie"));
    // From its own address, with the cookie that the server gave it for this very wish.
    let cookie = theft.answer(SERVER, THIEF, &question).expect("a cookie");
    let cookie = Cookie::read(&cookie[24..]).expect("a COOKIE").cookie;
    let mut body = recorded[24..].to_vec();
    body[32..40].copy_from_slice(&cookie.to_le_bytes());
    let refusal = theft.answer(SERVER, THIEF, &connect_with(&body));
    assert_eq!(refusal.map(|packet| packet[24]), Some(6), "KEY WRONG");
    assert_eq!(theft.half_open(), 0);
    // As it was, from an address that cannot have got this cookie, and later from the client's own.
    let answer = theft.answer(SERVER, THIEF, &recorded).expect("a cookie");
    assert_eq!(type_of(&answer), PacketType::Cookie as u8);
    theft.net.now += Duration::from_secs(5);
    let answer = theft.answer(SERVER, CLIENT as u32, &recorded);
    assert_eq!(answer.map(|p| type_of(&p)), Some(PacketType::Cookie as u8));
    assert_eq!(theft.half_open(), 0);
}

/// A cookie changes while a client waits: its message is the same, and the new cookie's proof makes it good again.
#[test]
fn a_client_proves_each_cookie_with_the_same_message() {
    let mut theft = theft();
    let question = theft.question.clone();
    let cookie = theft.answer(SERVER, CLIENT as u32, &question);
    let first = theft.returned(&cookie.expect("a cookie"));
    theft.net.now += Duration::from_secs(5);
    let cookie = theft.answer(SERVER, CLIENT as u32, &first);
    let second = theft.returned(&cookie.expect("another cookie"));
    let message = 24 + 40..first.len() - 16;
    assert_eq!(first[message.clone()], second[message.clone()]);
    assert_ne!(first[message.end..], second[message.end..]);
    assert_ne!(first[24 + 32..24 + 40], second[24 + 32..24 + 40]);
    let accept = theft.answer(SERVER, CLIENT as u32, &second);
    assert_eq!(accept.map(|p| type_of(&p)), Some(PacketType::Accept as u8));
    assert_eq!(theft.half_open(), 1);
}

/// Somebody on the path makes the client return the cookie of another address, and asks from there with the client's
/// nonce. Half-open sessions were found by their nonce alone, so the client got no answer for as long as that one stood.
#[test]
fn a_half_open_session_of_another_address_keeps_nobody_out() {
    let mut theft = theft();
    let question = theft.question.clone();
    let cookie = theft.answer(SERVER, THIEF, &question).expect("a cookie");
    let proven = theft.returned(&cookie);
    let accept = theft.answer(SERVER, THIEF, &proven).expect("an ACCEPT");
    assert_eq!(type_of(&accept), PacketType::Accept as u8);
    assert_eq!(theft.half_open(), 1);
    let again = theft.answer(SERVER, THIEF, &proven);
    assert_eq!(again.as_ref(), Some(&accept), "the same ACCEPT");
    let mut net = theft.net;
    let limit = Duration::from_millis(100);
    let stands = |net: &Net| net.nodes[SERVER].endpoint.stats().sessions_server == 1;
    assert!(net.run_until(limit, stands), "the client was kept out");
}

/// In the stage `accept` the thief needs no key to ask first, with the client's nonce and without the seal.
#[test]
fn an_unsealed_session_with_the_same_nonce_keeps_nobody_out() {
    let mut net = Net::new(1, 2, &Config::default());
    for node in &mut net.nodes {
        node.endpoint.set_keys(one_key(Stage::Accept));
    }
    let mut theft = theft_from(net);
    let (connect, _) = Connect::read(&theft.question[24..]).expect("a CONNECT");
    let unsealed = Connect {
        features: connect.features.without(Features::SEALED),
        ..connect
    };
    let question = connect_with(&unsealed.write());
    let cookie = theft.answer(SERVER, THIEF, &question).expect("a cookie");
    let cookie = Cookie::read(&cookie[24..]).expect("a COOKIE").cookie;
    let back = Connect { cookie, ..unsealed };
    let accept = theft.answer(SERVER, THIEF, &connect_with(&back.write()));
    assert_eq!(accept.map(|p| type_of(&p)), Some(PacketType::Accept as u8));
    let mut net = theft.net;
    let limit = Duration::from_millis(100);
    let stands = |net: &Net| net.nodes[SERVER].endpoint.stats().sessions_server == 2;
    assert!(net.run_until(limit, stands), "the client was kept out");
}

/// Keys of two kinds.
struct Ranks(Ring);

impl KeyRing for Ranks {
    fn find(&self, key: &KeyId) -> Option<Psk> {
        self.0.find(key)
    }

    fn goes_first(&self, key: &KeyId) -> bool {
        &**key == b"member"
    }
}

fn keys(own: OwnKey) -> Keys {
    Keys {
        stage: Stage::Require,
        ring: Arc::new(Ranks(Ring(vec![key(b"member", 1), key(b"user", 2)]))),
        own: Some(own),
        entropy: Arc::new(|| [3; 32]),
        key_log: None,
    }
}

/// Users who begin handshakes and end none cannot take the place of a member's.
#[test]
fn half_open_sessions_of_users_do_not_push_out_those_of_members() {
    let mut net = Net::new(1, 3, &Config::default());
    let (member, server, user) = (0, SERVER, 2);
    net.nodes[member].endpoint.set_keys(keys(key(b"member", 1)));
    net.nodes[server].endpoint.set_keys(keys(key(b"member", 1)));
    net.nodes[user].endpoint.set_keys(keys(key(b"user", 2)));
    let accept = begin(&mut net, member).expect("an ACCEPT");
    let mut most = 0;
    for count in 0..HALF_OPEN_MAX + 50 {
        if count % 20 == 0 {
            // Another process: one has no room for so many sessions.
            net.restart(user, &Config::default());
            let mut keys = keys(key(b"user", 2));
            keys.entropy = Arc::new(move || [count as u8; 32]);
            net.nodes[user].endpoint.set_keys(keys);
        }
        assert!(begin(&mut net, user).is_some(), "handshake {count}");
        most = most.max(net.nodes[server].endpoint.half_open());
    }
    assert_eq!(most, HALF_OPEN_MAX - HALF_OPEN_RESERVE + 1);
    assert_eq!(ask(&mut net, member), Some(accept), "the same one again");
}

/// A node asks the server for a session. Returns the server's ACCEPT, which the node does not get.
fn begin(net: &mut Net, node: usize) -> Option<Vec<u8>> {
    net.connect(node, SERVER);
    ask(net, node)
}

/// A node asks the server as its sessions want it now.
fn ask(net: &mut Net, node: usize) -> Option<Vec<u8>> {
    net.now += Duration::from_millis(1);
    let (now, mut accept) = (net.now, None);
    for _ in 0..2 {
        for (_, packet) in net.nodes[node].turn(now) {
            net.nodes[SERVER].receive(now, node as u32, &packet);
        }
        for (to, packet) in net.nodes[SERVER].turn(now) {
            if type_of(&packet) == PacketType::Cookie as u8 {
                net.nodes[to as usize].receive(now, SERVER as u32, &packet);
            } else if to as usize == node {
                accept = Some(packet);
            }
        }
    }
    accept
}

/// Keeps what it gets.
#[derive(Default)]
struct Kept(Mutex<Vec<String>>);

impl KeyLog for Kept {
    fn on_session(&self, secrets: &SessionSecrets) {
        self.0
            .lock()
            .expect("no test panics")
            .push(secrets.to_string());
    }
}

/// Each end writes the secrets of a session once, and both write the same. Nothing is written for a session that does not
/// stand.
#[test]
fn both_ends_log_the_same_secrets_once() {
    let mut net = Net::new(1, 2, &Config::default());
    let logs = [Arc::new(Kept::default()), Arc::new(Kept::default())];
    for (node, log) in logs.iter().enumerate() {
        let mut keys = one_key(Stage::Require);
        keys.entropy = Arc::new(move || [node as u8; 32]);
        keys.key_log = Some(Arc::<Kept>::clone(log));
        net.nodes[node].endpoint.set_keys(keys);
    }
    net.connected(CLIENT, SERVER);
    net.run_for(Duration::from_millis(20));
    net.connected(CLIENT, SERVER);
    net.run_for(Duration::from_millis(20));
    let [client, server] = logs.map(|log| log.0.lock().expect("no test panics").clone());
    assert_eq!(client, server);
    let [first, second] = &client[..] else {
        panic!("two sessions: {client:?}")
    };
    assert_ne!(first, second);
    let secrets: Vec<_> = first.lines().map(|line| line.rsplit(' ').next()).collect();
    assert_ne!(secrets[0], secrets[1], "one for each direction");
    assert!(secrets.iter().flatten().all(|secret| secret.len() == 64));
}

/// The server's answer to a first message with these bytes behind the incarnation, from a client that holds the key.
fn answer_to_longer(more: &[u8]) -> Vec<u8> {
    let mut theft = theft();
    let question = theft.question.clone();
    let cookie = theft.answer(SERVER, THIEF, &question).expect("a cookie");
    let own = key(b"everybody", 7);
    let prologue = [b"trine 1 ", &question[24..56], &own.id[..]].concat();
    let payload = [&0u64.to_le_bytes()[..], more].concat();
    let mut message = vec![0; payload.len() + MESSAGE_OVERHEAD];
    let mut rng = Csprng::new([5; 32]);
    let (_, len) = Initiator::begin(&own.psk, &prologue, &mut rng, &payload, &mut message);
    assert_eq!(len, message.len());
    let (readable, cookie) = (&question[24..56], &cookie[24..32]);
    let mut body = [readable, cookie, &[9], &own.id[..], &message].concat();
    let proof = CookieKey::of(&own.psk).proof(&body);
    body.extend_from_slice(&proof);
    let answer = theft.answer(SERVER, THIEF, &connect_with(&body));
    answer.expect("an answer")
}

/// A client of a later release that said more was refused, as if its key were wrong.
#[test]
fn a_first_message_may_say_more_than_this_release_reads() {
    for more in [0, 1, 64] {
        let answer = answer_to_longer(&vec![7; more]);
        assert_eq!(type_of(&answer), PacketType::Accept as u8, "{more}");
    }
    // Far more than is promised.
    let answer = answer_to_longer(&[7; 200]);
    assert_eq!(type_of(&answer), PacketType::Refuse as u8);
}
