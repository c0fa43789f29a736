//! A slot's reaction in each of its states to each packet of its past, present and future, compared with the stored
//! tables beside this file. A change of the protocol shows as a change of a line; the session's own table is in
//! `session/state.rs`.

use super::net::Manner;
use super::script::{FULL, Script};
use crate::Config;
use crate::time::Duration;
use crate::wire::{Flags, Header, PacketType, RequestNumber, Seed, deadline_extension};

type Setup = fn() -> Script;
type Act = fn(&mut Script);

/// Of three packets.
const MESSAGE: usize = 3 * FULL;

fn slot(s: &Script) -> String {
    s.node.endpoint.describe_slot()
}

/// A line for each state and input: the slot's new state, the packets sent, the counters raised.
fn table(states: &[(&str, Setup)], inputs: &[(&str, Act)]) -> String {
    let mut lines = String::new();
    for (state, setup) in states {
        lines += &format!("{state}: {}\n", slot(&setup()));
        for (input, act) in inputs {
            let mut s = setup();
            let (before, executed) = (s.drops().named(), s.executed());
            act(&mut s);
            let sent = s.words().join(", ");
            let mut after = match s.down() {
                None => slot(&s),
                Some(reason) => format!("session over: {reason:?}"),
            };
            let ran = s.executed() - executed;
            let counted = before.into_iter().zip(s.drops().named());
            for ((name, before), (_, now)) in counted.filter(|(before, now)| before != now) {
                after += &format!("; {name} {}", now - before);
            }
            if ran > 0 {
                after += &format!("; handler runs {ran}");
            }
            if !sent.is_empty() {
                after += &format!("; sends {sent}");
            }
            lines += &format!("  {input:27} {after}\n");
        }
    }
    lines
}

fn compare(table: &str, stored: &str) {
    assert!(
        table == stored,
        "it is no more as stored; the whole table is now:\n{table}"
    );
}

/// A server whose slot 0 has answered the request before the one of the test, sequence 2.
fn server() -> Script {
    let mut s = Script::server();
    s.request(1, 0, 100);
    s.take();
    s.node.app.manner = Manner::Later;
    s
}

fn receiving() -> Script {
    let mut s = server();
    s.request(2, 0, MESSAGE);
    s.take();
    s
}

fn executing() -> Script {
    let mut s = receiving();
    s.request(2, 1, MESSAGE);
    s.request(2, 2, MESSAGE);
    s.take();
    s
}

fn answered() -> Script {
    let mut s = executing();
    let (handle, response) = s.node.app.waiting.pop().expect("it executes");
    let answer = s.node.endpoint.enqueue_response(s.now, handle, response);
    answer.expect("in time");
    s.take();
    s
}

/// The deadline came with the first packet and has passed when the last one arrives.
fn expired() -> Script {
    let mut s = server();
    let header = Header {
        kind: 7,
        message_bytes: MESSAGE as u32,
        request: RequestNumber::new(0, 2),
        ..s.header(PacketType::Request)
    };
    let (seed, body): (Seed, _) = (s.seed, [0; FULL]);
    let head = header.write(seed, Some(deadline_extension(5_000)), &body);
    let bytes = [&head[..], &body].concat();
    s.node.receive(s.now, super::script::PEER, &bytes);
    s.take();
    s.wait(Duration::from_micros(10));
    s.request(2, 1, MESSAGE);
    s.request(2, 2, MESSAGE);
    s.take();
    s
}

/// Left half sent for longer than the server holds it; the peer answers its PINGs.
fn given_up() -> Script {
    let mut s = receiving();
    super::holds::idle(&mut s, Duration::from_secs(5), |_, _| {});
    s
}

const SERVER_STATES: [(&str, Setup); 6] = [
    ("done with the request before", server),
    ("receiving", receiving),
    ("executing", executing),
    ("answered", answered),
    ("expired", expired),
    ("given up", given_up),
];

const SERVER_INPUTS: [(&str, Act); 12] = [
    ("REQUEST 0 of the past", |s| s.request(1, 0, 100)),
    ("REQUEST 0", |s| s.request(2, 0, MESSAGE)),
    ("REQUEST 1", |s| s.request(2, 1, MESSAGE)),
    ("REQUEST 2", |s| s.request(2, 2, MESSAGE)),
    ("REQUEST 1, another size", |s| {
        s.request(2, 1, MESSAGE + FULL);
    }),
    ("REQUEST 0 of the future", |s| s.request(3, 0, 100)),
    ("REQUEST 1 of the future", |s| s.request(3, 1, MESSAGE)),
    ("RFR of the past", |s| s.request_for_response(1, 1, 1)),
    ("RFR 1", |s| s.request_for_response(2, 1, 1)),
    ("RFR beyond", |s| s.request_for_response(2, 3, 1)),
    ("RFR of the future", |s| s.request_for_response(3, 1, 1)),
    ("CR, for a client end", |s| {
        s.answer(PacketType::CreditReturn, 2, 0, Flags::default());
    }),
];

#[test]
fn server_slot_transitions() {
    compare(
        &table(&SERVER_STATES, &SERVER_INPUTS),
        include_str!("transitions_server.txt"),
    );
}

/// A client with two credits whose slot 0 has completed one request.
fn client() -> Script {
    let config = Config {
        credits: 2,
        slots: 1,
        ..Config::default()
    };
    let mut s = Script::asking(&config);
    s.cookie(0xc00c);
    s.expect(&["Connect"]);
    s.accept(2, 1);
    s.enqueue(1, 100, 100);
    s.take();
    s.response(1, 0, 100);
    s.take();
    s
}

fn sending() -> Script {
    let mut s = client();
    s.enqueue(2, MESSAGE, MESSAGE);
    s.expect(&["Request 0 sequence 2", "Request 1 sequence 2"]);
    s
}

fn sent() -> Script {
    let mut s = sending();
    for number in 0..2 {
        s.answer(PacketType::CreditReturn, 2, number, Flags::default());
    }
    s.expect(&["Request 2 sequence 2"]);
    s
}

fn collecting() -> Script {
    let mut s = sent();
    s.response(2, 0, MESSAGE);
    s.take();
    s
}

fn busy() -> Script {
    let mut s = sent();
    s.answer(PacketType::Busy, 2, 0, Flags::default());
    s.take();
    s
}

fn cancelled() -> Script {
    let mut s = client();
    let request = s.enqueue(2, MESSAGE, MESSAGE);
    s.take();
    s.node.endpoint.cancel(request);
    s
}

const CLIENT_STATES: [(&str, Setup); 6] = [
    ("free", client),
    ("sending", sending),
    ("sent", sent),
    ("busy", busy),
    ("collecting", collecting),
    ("cancelled", cancelled),
];

const CLIENT_INPUTS: [(&str, Act); 16] = [
    ("CR 0 of the past", |s| {
        s.answer(PacketType::CreditReturn, 1, 0, Flags::default());
    }),
    ("CR 0", |s| {
        s.answer(PacketType::CreditReturn, 2, 0, Flags::default());
    }),
    ("CR 1", |s| {
        s.answer(PacketType::CreditReturn, 2, 1, Flags::default());
    }),
    ("CR 2, the last packet's", |s| {
        s.answer(PacketType::CreditReturn, 2, 2, Flags::default());
    }),
    ("CR 0 of the future", |s| {
        s.answer(PacketType::CreditReturn, 3, 0, Flags::default());
    }),
    ("GAP 0", |s| {
        s.answer(
            PacketType::CreditReturn,
            2,
            0,
            Flags::default().with(Flags::GAP),
        );
    }),
    ("GAP 1", |s| {
        s.answer(
            PacketType::CreditReturn,
            2,
            1,
            Flags::default().with(Flags::GAP),
        );
    }),
    ("BUSY", |s| {
        s.answer(PacketType::Busy, 2, 0, Flags::default())
    }),
    ("RESPONSE 0 of the past", |s| s.response(1, 0, 100)),
    ("RESPONSE 0", |s| s.response(2, 0, MESSAGE)),
    ("RESPONSE 0, the whole", |s| s.response(2, 0, 100)),
    ("RESPONSE 1", |s| s.response(2, 1, MESSAGE)),
    ("RESPONSE 2", |s| s.response(2, 2, MESSAGE)),
    ("RESPONSE 0 of the future", |s| s.response(3, 0, MESSAGE)),
    ("REQUEST 0, for a server end", |s| s.request(2, 0, 100)),
    ("timer", |s| s.wait(Duration::from_millis(20))),
];

#[test]
fn client_slot_transitions() {
    compare(
        &table(&CLIENT_STATES, &CLIENT_INPUTS),
        include_str!("transitions_client.txt"),
    );
}
