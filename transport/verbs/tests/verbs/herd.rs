//! The path herd on a real device: what it costs, and what it survives.

use trine_transport::backend::{Backend, MonotonicClock};
use trine_transport::time::{Clock, Duration};
use trine_verbs::config::SLOTS;
use trine_verbs::{OneSidedConfig, OneSidedPath, VerbsBackend, VerbsConfig, VerbsStats};

use super::rfp::rfp;
use super::{BOUND, Config, Loop, SessionId, configured, connect, enqueue, lossy, open, run};

/// An endpoint with so many connections in each direction.
fn herd(outgoing: u16, incoming: u16) -> VerbsConfig {
    VerbsConfig {
        one_sided: Some(OneSidedConfig {
            outgoing,
            incoming,
            ..OneSidedConfig::default()
        }),
        ..VerbsConfig::default()
    }
}

/// A client and a server over the path herd, and `sessions` sessions of theirs.
fn pair(sessions: usize) -> (Loop<VerbsBackend>, Loop<VerbsBackend>, Vec<SessionId>) {
    let count = sessions as u16;
    joined(open(&herd(count, 0)), open(&herd(0, count)), sessions)
}

pub(super) fn joined(
    client: VerbsBackend,
    server: VerbsBackend,
    sessions: usize,
) -> (Loop<VerbsBackend>, Loop<VerbsBackend>, Vec<SessionId>) {
    let to = server.route();
    // Longer than an emulated machine takes for a burst, so that little is sent twice.
    let [mut client, mut server] = [(client, 1), (server, 2)].map(|(backend, incarnation)| {
        configured(backend, incarnation, |config| Config {
            sessions: sessions + 8,
            rto_floor: Some(Duration::from_secs(2)),
            rto_max: Duration::from_secs(4),
            hold_timeout: Duration::from_secs(10),
            keepalive_interval: Duration::from_secs(10),
            failure_timeout: Duration::from_secs(30),
            ..config
        })
    });
    let made = (0..sessions).map(|_| connect(&mut client, &mut server, to));
    let made = made.collect();
    (client, server, made)
}

pub(super) fn stats(end: &Loop<VerbsBackend>) -> VerbsStats {
    end.backend().verbs_stats()
}

/// What a server did for `requests`.
struct Cost {
    requests: u64,
    /// Answers left for clients to fetch, and the READs that fetched them, found or not.
    left: u64,
    reads: u64,
    misses: u64,
    sends: u64,
    receives: u64,
    posted: u64,
    /// Cache lines of slots, in the turns that found a request there, and the requests found. Looks at whole regions
    /// are counted apart.
    lines: u64,
    found: u64,
    scans: u64,
    retransmissions: u64,
    notices: u64,
}

/// Each session has a request under way, `rounds` times. Packets of 48 bytes.
fn cost(
    (mut client, mut server, sessions): (Loop<VerbsBackend>, Loop<VerbsBackend>, Vec<SessionId>),
    rounds: usize,
) -> Cost {
    let (before, again) = (stats(&server), client.endpoint().stats().retransmissions);
    let client_before = stats(&client);
    let (mut lines, mut found, mut scans) = (0, 0, 0);
    let deadline = MonotonicClock.now() + BOUND;
    for round in 1..=rounds {
        for session in &sessions {
            enqueue(&mut client, *session, 24, 1);
        }
        while client.app().answered < round * sessions.len() {
            client.turn().unwrap();
            let before = stats(&server);
            server.turn().unwrap();
            let after = stats(&server);
            if after.slot_packets > before.slot_packets {
                found += after.slot_packets - before.slot_packets;
                let scanned = after.slot_scans - before.slot_scans;
                lines += after.slot_lines - before.slot_lines - scanned * SLOTS as u64;
                scans += scanned;
            }
            assert!(MonotonicClock.now() < deadline, "{after:?}");
        }
    }
    let after = stats(&server);
    let client_after = stats(&client);
    Cost {
        left: after.answers_left - before.answers_left,
        reads: client_after.reads - client_before.reads,
        misses: client_after.reads_missed - client_before.reads_missed,
        requests: (rounds * sessions.len()) as u64,
        sends: after.sends - before.sends,
        receives: after.receives - before.receives,
        posted: after.receives_posted - before.receives_posted,
        lines,
        found,
        scans,
        retransmissions: client.endpoint().stats().retransmissions - again,
        notices: after.notices - before.notices,
    }
}

/// The table of `VERBS.md`: `transport/vm/run TESTS the_verbs_of_a_request --nocapture`.
#[test]
fn the_verbs_of_a_request_are_counted_at_its_server() {
    println!(
        "| path, clients | requests | sends | receives | receives posted | answers left | READs of clients, misses | \
         lines a request | scans | retransmissions |"
    );
    for (path, clients) in [
        (None, 1),
        (Some(OneSidedPath::Herd), 1),
        (Some(OneSidedPath::Herd), 64),
        (Some(OneSidedPath::Herd), 256),
        (Some(OneSidedPath::Rfp), 1),
        (Some(OneSidedPath::Rfp), 64),
    ] {
        let ends = match path {
            None => {
                let (a, b) = (open(&VerbsConfig::default()), open(&VerbsConfig::default()));
                joined(a, b, clients)
            }
            Some(OneSidedPath::Herd) => pair(clients),
            Some(OneSidedPath::Rfp) => {
                let count = clients as u16;
                joined(open(&rfp(count, 0)), open(&rfp(0, count)), clients)
            }
        };
        let cost = cost(ends, 1024 / clients);
        let name = path.map_or("ud", OneSidedPath::name);
        println!(
            "| {name}, {clients} | {} | {} | {} | {} | {} | {}, {} | {:.2} | {} | {} |",
            cost.requests,
            cost.sends,
            cost.receives,
            cost.posted,
            cost.left,
            cost.reads,
            cost.misses,
            cost.lines as f64 / cost.found.max(1) as f64,
            cost.scans,
            cost.retransmissions,
        );
        cost.check(path, clients as u64);
    }
}

impl Cost {
    /// Keepalives and what a slow machine retransmits are allowed, and nothing else.
    fn check(&self, path: Option<OneSidedPath>, clients: u64) {
        let slack = 8 + 4 * self.retransmissions + self.notices + 2 * clients;
        assert!(self.sends <= self.requests + slack, "one send a request");
        match path {
            None => assert!(self.receives >= self.requests && self.found == 0),
            Some(_) => {
                assert!(self.receives <= slack, "{} receives", self.receives);
                assert!(self.found + slack >= self.requests, "{} found", self.found);
            }
        }
        if path == Some(OneSidedPath::Rfp) {
            // What a machine that stands still makes slow is sent.
            assert!(
                self.sends + self.left <= self.requests + slack,
                "one of the two"
            );
            assert!(self.left * 10 >= self.requests * 9, "{} left", self.left);
        }
    }
}

#[test]
fn writes_are_inline_and_one_in_sixteen_asks_for_a_completion() {
    let (mut client, mut server, sessions) = pair(1);
    // The pools grow to what a burst needs.
    enqueue(&mut client, sessions[0], 32, 200);
    run(&mut client, &mut server, |app| app.answered == 200);
    let (sent, registered) = (stats(&client).sends, stats(&server).registrations);
    for burst in 2..=10 {
        enqueue(&mut client, sessions[0], 32, 200);
        run(&mut client, &mut server, |app| app.answered == burst * 200);
    }
    let after = stats(&client);
    assert!(after.slot_writes >= 1_800, "{after:?}");
    assert!(
        after.slot_writes_signaled * 16 <= after.slot_writes + 16,
        "{after:?}"
    );
    let again = client.endpoint().stats().retransmissions;
    assert!(after.sends - sent <= 100 + 4 * again, "{after:?}");
    assert_eq!(stats(&server).registrations, registered, "none on the way");
}

/// Requests of each of these lengths, with many short ones behind them, in every session. All are answered.
pub(super) fn call_long_and_short(
    client: &mut Loop<VerbsBackend>,
    server: &mut Loop<VerbsBackend>,
    sessions: &[SessionId],
    lengths: &[usize],
) {
    let each = 4 + 50;
    for bytes in lengths {
        let before = client.app().answered;
        for session in sessions {
            enqueue(client, *session, *bytes, 4);
            enqueue(client, *session, 24, 50);
        }
        let all = before + sessions.len() * each;
        run(client, server, |app| app.answered == all);
    }
    assert_eq!(client.app().failed, 0);
}

#[test]
fn requests_of_many_packets_and_of_one_share_a_session() {
    let (mut client, mut server, sessions) = pair(2);
    call_long_and_short(&mut client, &mut server, &sessions, &[32, 4_000, 100_000]);
    assert!(stats(&server).slot_packets > 200, "{:?}", stats(&server));
}

#[test]
fn loss_and_torn_slots_are_survived() {
    let torn = VerbsConfig {
        one_sided: Some(OneSidedConfig {
            outgoing: 1,
            incoming: 0,
            tear_interval: 20,
            ..OneSidedConfig::default()
        }),
        ..VerbsConfig::default()
    };
    let (mut client, mut server, session) = lossy(open(&torn), open(&herd(0, 1)), "1%");
    enqueue(&mut client, session, 32, 3_000);
    run(&mut client, &mut server, |app| app.answered == 3_000);
    assert_eq!((client.app().failed, client.app().down.len()), (0, 0));
    let after = server.backend().inner().verbs_stats();
    assert!(
        after.slots_torn > 0 && after.slot_packets > 1_000,
        "{after:?}"
    );
}

#[test]
fn a_server_that_sleeps_is_woken() {
    let (mut client, mut server, sessions) = pair(1);
    enqueue(&mut client, sessions[0], 32, 50);
    run(&mut client, &mut server, |app| app.answered == 50);
    for round in 1..=5 {
        let (waits, notices) = (server.backend().stats().waits, stats(&server).notices);
        let deadline = MonotonicClock.now() + BOUND;
        while server.backend().stats().waits == waits {
            server.turn().unwrap();
            let soon = server.now() + Duration::from_millis(1);
            server.pause(Some(soon)).unwrap();
            assert!(MonotonicClock.now() < deadline, "it never sleeps");
        }
        assert!(stats(&server).notices > notices, "its client is told");
        enqueue(&mut client, sessions[0], 32, 3);
        run(&mut client, &mut server, |app| {
            app.answered == 50 + 3 * round
        });
    }
    assert_eq!(client.app().failed, 0);
}

#[test]
fn connections_that_break_leave_their_sessions_with_datagrams() {
    let (mut client, mut server, sessions) = pair(2);
    client.backend().fail_connections().unwrap();
    for session in &sessions {
        enqueue(&mut client, *session, 32, 200);
    }
    run(&mut client, &mut server, |app| app.answered == 400);
    assert_eq!((client.app().failed, client.app().down.len()), (0, 0));
}

/// Each region is in a protection domain of its own: another client's key works on no other queue pair.
#[test]
fn a_client_that_knows_anothers_key_cannot_write_into_its_slots() {
    let (mut client, mut server, sessions) = pair(2);
    for session in &sessions {
        enqueue(&mut client, *session, 32, 20);
    }
    run(&mut client, &mut server, |app| app.answered == 40);
    assert!(stats(&server).slot_packets >= 20, "{:?}", stats(&server));
    client.backend_mut().exchange_grants();
    let before = (stats(&server), stats(&client).slot_writes);
    for session in &sessions {
        enqueue(&mut client, *session, 32, 20);
    }
    run(&mut client, &mut server, |app| app.answered == 80);
    assert_eq!(client.app().failed, 0, "they go as datagrams");
    let after = (stats(&server), stats(&client).slot_writes);
    assert!(after.1 > before.1, "it has tried");
    assert_eq!(
        after.0.slot_packets, before.0.slot_packets,
        "and none arrived"
    );
    assert_eq!(after.0.slots_torn, before.0.slots_torn, "not even a part");
}

#[test]
fn a_connection_serves_one_session_after_another() {
    let (mut client, mut server, sessions) = pair(1);
    let to = server.backend().route();
    let mut session = sessions[0];
    for round in 1..=5 {
        let before = stats(&server).slot_packets;
        enqueue(&mut client, session, 32, 50);
        run(&mut client, &mut server, |app| app.answered == 50 * round);
        assert!(stats(&server).slot_packets > before, "round {round}");
        client.with(|_, cx| cx.disconnect(session));
        run(&mut client, &mut server, |app| app.down.len() == round);
        // Both ends make their queue pairs ready again.
        let deadline = MonotonicClock.now() + BOUND;
        let mark = MonotonicClock.now() + Duration::from_millis(20);
        while MonotonicClock.now() < mark {
            client.turn().unwrap();
            server.turn().unwrap();
            assert!(MonotonicClock.now() < deadline);
        }
        session = connect(&mut client, &mut server, to);
    }
    assert_eq!(client.app().failed, 0);
    assert_eq!(server.backend().connections_open(), (0, 1));
}

#[test]
fn both_ends_need_not_know_the_path() {
    let plain = VerbsConfig::default();
    for (client, server) in [(herd(4, 4), plain.clone()), (plain, herd(4, 4))] {
        let (mut client, mut server, sessions) = joined(open(&client), open(&server), 1);
        enqueue(&mut client, sessions[0], 32, 200);
        run(&mut client, &mut server, |app| app.answered == 200);
        assert_eq!(stats(&server).slot_packets, 0);
        assert_eq!(client.backend().connections_open(), (0, 0));
    }
}
