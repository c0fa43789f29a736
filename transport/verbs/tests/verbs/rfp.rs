//! The path rfp on a real device: what it costs, and what it survives.

use std::sync::atomic::{AtomicUsize, Ordering};

use trine_transport::backend::{Backend, MonotonicClock};
use trine_transport::time::{Clock, Duration};
use trine_verbs::{OneSidedConfig, OneSidedPath, VerbsConfig, VerbsError};

use super::herd::{call_long_and_short, joined, stats};
use super::{BOUND, connect, enqueue, lossy, open, run};

/// An endpoint with so many connections in each direction.
pub(super) fn rfp(outgoing: u16, incoming: u16) -> VerbsConfig {
    with(OneSidedConfig {
        outgoing,
        incoming,
        ..OneSidedConfig::default()
    })
}

fn with(config: OneSidedConfig) -> VerbsConfig {
    VerbsConfig {
        one_sided: Some(OneSidedConfig {
            path: OneSidedPath::Rfp,
            ..config
        }),
        ..VerbsConfig::default()
    }
}

#[test]
fn a_request_and_its_answer_cost_the_server_no_post() {
    let (mut client, mut server, sessions) = joined(open(&rfp(1, 0)), open(&rfp(0, 1)), 1);
    enqueue(&mut client, sessions[0], 32, 16);
    run(&mut client, &mut server, |app| app.answered == 16);
    let (before, registered) = (stats(&server), stats(&server).registrations);
    for round in 1..=50 {
        enqueue(&mut client, sessions[0], 32, 8);
        run(&mut client, &mut server, |app| {
            app.answered == 16 + 8 * round
        });
    }
    let (after, client) = (stats(&server), stats(&client));
    // An emulated machine that stands still for long makes a session ask for datagrams: at most some of the 400.
    let left = after.answers_left - before.answers_left;
    println!("of 400 answers {left} were left; {client:?}");
    assert!(left >= 300, "{after:?} {client:?}");
    let sent = after.sends - before.sends;
    assert!(
        sent <= 400 - left + 8 + 9 * client.replies_asked + after.notices,
        "{sent}: {after:?}"
    );
    assert!(client.answers_fetched >= 300 && client.reads >= client.answers_fetched);
    assert_eq!(after.registrations, registered, "none on the way");
    assert_eq!(client.connections_failed, 0);
}

/// Answers of 300 bytes, with READs of 64, and with READs as long as the last answers.
#[test]
fn a_long_answer_takes_a_second_read_unless_its_size_is_known() {
    for (fixed, most) in [(Some(64), u64::MAX), (None, 60)] {
        let client = with(OneSidedConfig {
            outgoing: 1,
            incoming: 0,
            fetch_bytes: fixed,
            ..OneSidedConfig::default()
        });
        let (mut client, mut server, sessions) = joined(open(&client), open(&rfp(0, 1)), 1);
        enqueue(&mut client, sessions[0], 200, 300);
        run(&mut client, &mut server, |app| app.answered == 300);
        let after = stats(&client);
        println!(
            "READs fixed at {fixed:?}: {} answers fetched, {} second READs, {} misses",
            after.answers_fetched, after.reads_of_rest, after.reads_missed
        );
        assert!(after.answers_fetched >= 100, "{after:?}");
        assert!(after.reads_of_rest <= most, "{after:?}");
        assert!(
            fixed.is_none() || after.reads_of_rest >= after.answers_fetched,
            "{after:?}"
        );
    }
}

#[test]
fn loss_and_torn_slots_are_survived() {
    let torn = |outgoing, incoming| {
        with(OneSidedConfig {
            outgoing,
            incoming,
            tear_interval: 20,
            ..OneSidedConfig::default()
        })
    };
    let (mut client, mut server, session) = lossy(open(&torn(1, 0)), open(&torn(0, 1)), "1%");
    enqueue(&mut client, session, 32, 3_000);
    run(&mut client, &mut server, |app| app.answered == 3_000);
    assert_eq!((client.app().failed, client.app().down.len()), (0, 0));
    let (client, server) = (client.backend().inner(), server.backend().inner());
    let (client, server) = (client.verbs_stats(), server.verbs_stats());
    assert!(server.slots_torn > 0, "{server:?}");
    assert!(client.answers_fetched > 500, "{client:?}");
    assert_eq!(client.connections_failed, 0, "{client:?}");
}

#[test]
fn requests_and_answers_of_many_packets_and_of_one_share_a_session() {
    let (mut client, mut server, sessions) = joined(open(&rfp(2, 0)), open(&rfp(0, 2)), 2);
    let lengths = [32, 1_000, 4_000, 100_000];
    call_long_and_short(&mut client, &mut server, &sessions, &lengths);
    assert!(stats(&client).answers_fetched > 100, "{:?}", stats(&client));
}

/// What [`on_failure`] was told, by the fault: access refused, in error, any other.
static TOLD: [AtomicUsize; 3] = [const { AtomicUsize::new(0) }; 3];

fn on_failure(error: &VerbsError) {
    let text = error.to_string();
    println!("{text}");
    assert!(
        text.contains("path rfp on RDMA device") && text.contains("--path ud"),
        "{text}"
    );
    let at = match () {
        () if text.contains("refused the access") => 0,
        () if text.contains("error state") => 1,
        () => 2,
    };
    TOLD[at].fetch_add(1, Ordering::Relaxed);
}

/// A refused key, a region that ends too early, and a queue pair that dies. The device says so in a completion.
#[test]
fn a_connection_that_fails_is_named_and_its_session_goes_on_with_datagrams() {
    for (case, at) in [("key", 0), ("region", 0), ("queue pair", 1)] {
        let client = with(OneSidedConfig {
            outgoing: 1,
            incoming: 0,
            on_failure: Some(on_failure),
            ..OneSidedConfig::default()
        });
        let (mut client, mut server, sessions) = joined(open(&client), open(&rfp(0, 1)), 1);
        enqueue(&mut client, sessions[0], 32, 20);
        run(&mut client, &mut server, |app| app.answered == 20);
        let before = TOLD[at].load(Ordering::Relaxed);
        match case {
            "key" => client.backend_mut().spoil_grants(0x5500, 0),
            "region" => client.backend_mut().spoil_grants(0, 1 << 16),
            _ => client.backend().fail_connections().unwrap(),
        }
        enqueue(&mut client, sessions[0], 32, 50);
        run(&mut client, &mut server, |app| app.answered == 70);
        assert_eq!(client.app().failed, 0, "{case}");
        assert_eq!(stats(&client).connections_failed, 1, "{case}");
        assert_eq!(TOLD[at].load(Ordering::Relaxed), before + 1, "{case}");
        assert_eq!(TOLD[2].load(Ordering::Relaxed), 0, "{case}");
    }
}

/// All memory of a connection is in a protection domain of its own.
#[test]
fn a_client_that_knows_anothers_keys_reads_and_writes_nothing_of_it() {
    let (mut client, mut server, sessions) = joined(open(&rfp(2, 0)), open(&rfp(0, 2)), 2);
    for session in &sessions {
        enqueue(&mut client, *session, 32, 20);
    }
    run(&mut client, &mut server, |app| app.answered == 40);
    client.backend_mut().exchange_grants();
    let before = stats(&server).slot_packets;
    for session in &sessions {
        enqueue(&mut client, *session, 32, 20);
    }
    run(&mut client, &mut server, |app| app.answered == 80);
    assert_eq!(client.app().failed, 0, "they go as datagrams");
    assert_eq!(stats(&client).connections_failed, 2);
    assert_eq!(stats(&server).slot_packets, before, "none arrived");
}

#[test]
fn a_server_that_dies_ends_the_session_and_hangs_nobody() {
    let (mut client, mut server, sessions) = joined(open(&rfp(1, 0)), open(&rfp(0, 1)), 1);
    enqueue(&mut client, sessions[0], 32, 20);
    run(&mut client, &mut server, |app| app.answered == 20);
    drop(server);
    enqueue(&mut client, sessions[0], 32, 4);
    let deadline = MonotonicClock.now() + BOUND;
    while client.app().failed < 4 {
        client.turn().unwrap();
        let soon = client.now() + Duration::from_millis(1);
        client.pause(Some(soon)).unwrap();
        assert!(
            MonotonicClock.now() < deadline,
            "it hangs: {:?}",
            stats(&client)
        );
    }
    assert!(client.backend().stats().waits > 0, "and it slept meanwhile");
    assert!(stats(&client).connections_failed <= 1);
}

#[test]
fn a_connection_serves_one_session_after_another() {
    let (mut client, mut server, sessions) = joined(open(&rfp(1, 0)), open(&rfp(0, 1)), 1);
    let to = server.backend().route();
    let mut session = sessions[0];
    for round in 1..=5 {
        let before = stats(&client).answers_fetched;
        enqueue(&mut client, session, 32, 50);
        run(&mut client, &mut server, |app| app.answered == 50 * round);
        assert!(stats(&client).answers_fetched > before, "round {round}");
        client.with(|_, cx| cx.disconnect(session));
        run(&mut client, &mut server, |app| app.down.len() == round);
        // Both ends make their queue pairs ready again.
        let mark = MonotonicClock.now() + Duration::from_millis(20);
        while MonotonicClock.now() < mark {
            client.turn().unwrap();
            server.turn().unwrap();
        }
        session = connect(&mut client, &mut server, to);
    }
    assert_eq!(
        (client.app().failed, stats(&client).connections_failed),
        (0, 0)
    );
}
