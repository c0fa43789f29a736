//! Answers that clients fetch (path rfp), between two event loops on regions in memory.

use std::rc::Rc;
use std::sync::Arc;

use super::paths::{
    Loop, answers_stay_the_same_while_somebody_scribbles, call, connect, datagrams, enqueue,
    event_loop, event_loop_with, read, run, sleep, step, writes,
};
use super::world::{TestBackend, World};
use crate::config::{FAST_ANSWERS, FETCH_MISSES_MAX, FETCH_TIME_MAX, SLOTS};
use crate::one_sided::path::OneSidedCounts;
use crate::one_sided::{Fetched, PathFailure, PathSettings};
use crate::one_sided_path::OneSidedPath;
use trine_transport::keys::{KeyId, Keys, NoKeys, OwnKey, Psk, Stage};
use trine_transport::time::Duration;

fn settings(outgoing: usize, incoming: usize) -> PathSettings {
    PathSettings {
        path: OneSidedPath::Rfp,
        outgoing,
        incoming,
        ..PathSettings::default()
    }
}

/// Client 1 with four connections and server 2 with four.
fn pair() -> (Rc<World>, Loop, Loop) {
    pair_of(settings(4, 0), settings(0, 4))
}

fn pair_of(client: PathSettings, server: PathSettings) -> (Rc<World>, Loop, Loop) {
    let world = World::new();
    let client = event_loop(&world, TestBackend::with(&world, 1, client));
    let server = event_loop(&world, TestBackend::with(&world, 2, server));
    (world, client, server)
}

fn counts(end: &Loop) -> OneSidedCounts {
    end.backend().one_sided.as_ref().unwrap().counts()
}

#[test]
fn a_request_and_its_answer_cost_the_server_no_datagram() {
    let (world, mut client, mut server) = pair();
    let session = connect(&world, &mut client, &mut server);
    let before = (datagrams(&world, 1), datagrams(&world, 2));
    call(&world, &mut client, &mut server, session, 500);
    assert_eq!((writes(&client), read(&server)), (500, 500));
    assert_eq!((datagrams(&world, 1), datagrams(&world, 2)), before);
    assert_eq!(counts(&server).answers_left, 500);
    let fetches = counts(&client).fetches;
    assert_eq!((fetches.answers, fetches.reads_of_rest), (500, 0));
    assert_eq!(
        fetches.reads,
        500 + fetches.misses + fetches.forsaken,
        "a READ an answer, and those that were early"
    );
    assert_eq!(server.app().served, 500);
}

#[test]
fn a_client_reads_nothing_while_it_awaits_nothing() {
    let (world, mut client, mut server) = pair();
    let session = connect(&world, &mut client, &mut server);
    call(&world, &mut client, &mut server, session, 20);
    let reads = counts(&client).fetches.reads;
    for _ in 0..1_000 {
        step(&world, &mut client, &mut server);
    }
    assert_eq!(counts(&client).fetches.reads, reads);
}

/// Answers of 300 bytes: with 64 fixed each takes two READs, and otherwise soon one.
#[test]
fn an_answer_that_is_longer_than_the_read_takes_a_second_one() {
    for (fixed, rests) in [(Some(64), 100..=100), (None, 0..=20)] {
        let client = PathSettings {
            fetch_bytes: fixed,
            ..settings(4, 0)
        };
        let (world, mut client, mut server) = pair_of(client, settings(0, 4));
        let session = connect(&world, &mut client, &mut server);
        enqueue(&mut client, session, 200, 100);
        run(&world, &mut client, &mut server, |app| app.answered == 100);
        let fetches = counts(&client).fetches;
        assert_eq!(fetches.answers, 100);
        assert!(
            rests.contains(&fetches.reads_of_rest),
            "{fixed:?}: {fetches:?}"
        );
    }
}

#[test]
fn answers_that_do_not_fit_are_datagrams() {
    let (world, mut client, mut server) = pair();
    let session = connect(&world, &mut client, &mut server);
    let mut answered = 0;
    for bytes in [32, 900, 984, 985, 1_500, 20_000] {
        answered += 3;
        enqueue(&mut client, session, bytes, 3);
        run(&world, &mut client, &mut server, |app| {
            app.answered == answered
        });
    }
    assert_eq!((client.app().failed, client.app().down), (0, 0));
    // Requests above 232 bytes are datagrams, and so are the answers to them: only what is written says how.
    assert_eq!(counts(&client).fetches.answers, 3);
}

/// A client waited for each READ before it posted the next one, so that eight answers cost eight round trips.
#[test]
fn answers_that_wait_together_are_read_together() {
    let (world, mut client, mut server) = pair();
    let session = connect(&world, &mut client, &mut server);
    for round in 1..=100 {
        enqueue(&mut client, session, 32, 8);
        run(&world, &mut client, &mut server, |app| {
            app.answered == 8 * round
        });
    }
    assert_eq!(world.most_reads.get(), SLOTS);
    let fetches = counts(&client).fetches;
    assert_eq!(fetches.answers, 800);
    assert_eq!(
        fetches.reads,
        800 + fetches.misses + fetches.forsaken,
        "each is looked at, or known to be of no use"
    );
    assert_eq!(client.app().failed, 0);
}

#[test]
fn loss_and_torn_slots_cost_retransmissions_and_nothing_else() {
    let world = World::new();
    let [client, server] = [(1, settings(4, 0)), (2, settings(0, 4))]
        .map(|(number, settings)| TestBackend::with(&world, number, settings).tearing(7));
    let (mut client, mut server) = (event_loop(&world, client), event_loop(&world, server));
    let session = connect(&world, &mut client, &mut server);
    world.loss.set(50);
    for _ in 0..40 {
        call(&world, &mut client, &mut server, session, 50);
    }
    assert_eq!((client.app().failed, client.app().down), (0, 0));
    assert_eq!(server.app().served, 2_000, "each once");
    let fetches = counts(&client).fetches;
    assert!(fetches.answers > 500, "the path stays in use: {fetches:?}");
    assert!(
        fetches.forsaken > 0,
        "READs behind one that found nothing are posted again: {fetches:?}"
    );
    assert!(counts(&server).slots.torn > 0);
}

/// The server does nothing until the client has asked for its answers. What it then leaves in its memory before it reads
/// that is sent.
#[test]
fn slow_answers_are_asked_for_as_datagrams_and_fast_ones_fetched_again() {
    let (world, mut client, mut server) = pair();
    let session = connect(&world, &mut client, &mut server);
    call(&world, &mut client, &mut server, session, 10);
    enqueue(&mut client, session, 32, 3);
    let before = counts(&client).fetches;
    for _ in 0..2_000 {
        client.turn().unwrap();
        world.pass_time(Duration::from_micros(1));
        if counts(&client).fetches.replies_asked > 0 {
            break;
        }
    }
    let after = counts(&client).fetches;
    assert_eq!(after.replies_asked, 1);
    assert_eq!(after.misses - before.misses, u64::from(FETCH_MISSES_MAX));
    let (to_client, left) = (datagrams(&world, 1), counts(&server).answers_left);
    run(&world, &mut client, &mut server, |app| app.answered == 13);
    // The client has sent them again meanwhile, and each is answered.
    assert!(datagrams(&world, 1) - to_client >= 3, "an answer each");
    assert!(counts(&server).answers_left > left, "it did not know yet");
    assert_eq!(server.app().served, 13, "each once");
    // Now it answers at once.
    call(
        &world,
        &mut client,
        &mut server,
        session,
        FAST_ANSWERS as usize,
    );
    let fetched = counts(&client).fetches.answers;
    call(&world, &mut client, &mut server, session, 50);
    assert!(
        counts(&client).fetches.answers - fetched >= 42,
        "{:?}",
        counts(&client)
    );
    assert_eq!((client.app().failed, server.app().served), (0, 13 + 8 + 50));
}

#[test]
fn a_client_that_fetches_does_not_sleep_until_it_has_asked_for_datagrams() {
    let (world, mut client, mut server) = pair();
    let session = connect(&world, &mut client, &mut server);
    call(&world, &mut client, &mut server, session, 10);
    enqueue(&mut client, session, 32, 1);
    client.turn().unwrap();
    let waits = client.backend().waits;
    world.pass_time(Duration::from_micros(6));
    client.turn().unwrap();
    client.pause(None).unwrap();
    assert_eq!(client.backend().waits, waits, "nothing would wake it");
    // A READ that does not end: the server's machine is gone.
    world.read_verdict.set(Fetched::Pending);
    world.pass_time(Duration::from_micros(100));
    client.turn().unwrap();
    world.pass_time(FETCH_TIME_MAX + Duration::from_micros(1));
    for _ in 0..3 {
        client.turn().unwrap();
        world.pass_time(Duration::from_micros(6));
        client.turn().unwrap();
        client.pause(None).unwrap();
    }
    assert_eq!(counts(&client).fetches.replies_asked, 1);
    assert!(
        client.backend().waits > waits,
        "timers and datagrams wake it"
    );
    world.read_verdict.set(Fetched::Done);
    run(&world, &mut client, &mut server, |app| app.answered == 11);
}

/// The device hangs with eight READs, and datagrams arrive. The answers were fast then, and the client fetched again, behind READs
/// that did not end. Each answer cost a retransmission, and the client did not sleep.
#[test]
fn reads_that_hang_are_noticed_again_once_answers_were_fast() {
    let (world, mut client, mut server) = pair();
    let session = connect(&world, &mut client, &mut server);
    for _ in 0..4 {
        call(&world, &mut client, &mut server, session, 8);
    }
    world.read_verdict.set(Fetched::Pending);
    enqueue(&mut client, session, 32, 8);
    // The requests leave in the first turn, and the READs in the second.
    client.turn().unwrap();
    client.turn().unwrap();
    world.pass_time(FETCH_TIME_MAX + Duration::from_micros(1));
    let rest = |client: &mut Loop| {
        for _ in 0..3 {
            client.turn().unwrap();
            world.pass_time(Duration::from_micros(6));
            client.turn().unwrap();
            client.pause(None).unwrap();
        }
    };
    rest(&mut client);
    assert_eq!(counts(&client).fetches.replies_asked, 1);
    run(&world, &mut client, &mut server, |app| app.answered == 40);
    for _ in 0..4 * FAST_ANSWERS {
        call(&world, &mut client, &mut server, session, 1);
        rest(&mut client);
    }
    let fetches = counts(&client).fetches;
    assert!(fetches.replies_asked > 1, "{fetches:?}");
    assert_eq!(client.app().failed, 0);
    world.read_verdict.set(Fetched::Done);
    let answers = fetches.answers;
    for _ in 0..4 * FAST_ANSWERS {
        call(&world, &mut client, &mut server, session, 1);
    }
    assert!(
        counts(&client).fetches.answers > answers,
        "it fetches again"
    );
}

#[test]
fn a_connection_that_breaks_leaves_its_session_with_datagrams_and_is_reported() {
    let (world, mut client, mut server) = pair();
    let session = connect(&world, &mut client, &mut server);
    call(&world, &mut client, &mut server, session, 10);
    world.read_verdict.set(Fetched::Broken);
    call(&world, &mut client, &mut server, session, 100);
    assert_eq!(client.backend().failures.len(), 1);
    assert!(matches!(
        client.backend().failures[0],
        PathFailure::Broken(_)
    ));
    assert_eq!((client.app().failed, server.app().served), (0, 110));
    assert_eq!(counts(&client).failed, 1);
}

/// A wrong key, and a region that ends too early.
#[test]
fn a_read_that_the_servers_device_refuses_costs_no_request() {
    for (key, bytes) in [(1 << 20, 0), (0, 1 << 20)] {
        let (world, mut client, mut server) = pair();
        let session = connect(&world, &mut client, &mut server);
        let one_sided = client.backend_mut().one_sided.as_mut().unwrap();
        one_sided.spoil_grants(|grant| {
            grant.answers.rkey ^= key;
            grant.answers.address += bytes;
        });
        call(&world, &mut client, &mut server, session, 50);
        assert_eq!(counts(&client).failed, 1);
        assert_eq!((client.app().failed, server.app().served), (0, 50));
    }
}

#[test]
fn a_server_that_sleeps_is_woken_by_a_datagram_and_then_read_from() {
    let (world, mut client, mut server) = pair();
    let session = connect(&world, &mut client, &mut server);
    call(&world, &mut client, &mut server, session, 20);
    for _ in 0..3 {
        sleep(&world, &mut server);
        client.turn().unwrap();
        let to_server = datagrams(&world, 2);
        call(&world, &mut client, &mut server, session, 1);
        assert_eq!(datagrams(&world, 2) - to_server, 1);
        let fetched = counts(&client).fetches.answers;
        call(&world, &mut client, &mut server, session, 5);
        assert_eq!(counts(&client).fetches.answers - fetched, 5);
    }
}

#[test]
fn ends_of_different_paths_and_releases_use_datagrams() {
    let herd = |outgoing, incoming| PathSettings {
        path: OneSidedPath::Herd,
        ..settings(outgoing, incoming)
    };
    for (client, server) in [(settings(4, 0), herd(0, 4)), (herd(4, 0), settings(0, 4))] {
        let (world, mut client, mut server) = pair_of(client, server);
        let session = connect(&world, &mut client, &mut server);
        call(&world, &mut client, &mut server, session, 50);
        assert_eq!((writes(&client), counts(&server).answers_left), (0, 0));
        assert_eq!(server.app().served, 50);
    }
}

/// A client judges what it has read as a server judges what was written to it.
#[test]
fn whatever_lies_in_regions_changes_no_answer() {
    let (world, mut client, mut server) = pair();
    answers_stay_the_same_while_somebody_scribbles(&world, &mut client, &mut server);
}

/// Sealed packets were datagrams all: they end with a tag, which the reader of unsealed packets refuses. Several that
/// leave together share one, and are a datagram where they are too long for a slot.
#[test]
fn packets_of_sealed_sessions_take_the_same_ways() {
    let own = OwnKey {
        id: KeyId::new(b"everybody").unwrap(),
        psk: Psk::new([7; 32]),
    };
    for (path, left) in [(OneSidedPath::Herd, 0), (OneSidedPath::Rfp, 50)] {
        let world = World::new();
        let of_path = |settings| PathSettings { path, ..settings };
        let ends = [(1, settings(4, 0)), (2, settings(0, 4))].map(|(number, settings)| {
            let backend = TestBackend::with(&world, number, of_path(settings));
            let keys = Keys {
                stage: Stage::Require,
                ring: Arc::new(NoKeys),
                own: Some(own.clone()),
                entropy: Arc::new(move || [number as u8; 32]),
                key_log: None,
            };
            event_loop_with(&world, backend, Some(keys))
        });
        let [mut client, mut server] = ends;
        let session = connect(&world, &mut client, &mut server);
        for _ in 0..50 {
            call(&world, &mut client, &mut server, session, 1);
        }
        assert_eq!((writes(&client), read(&server)), (50, 50), "{path:?}");
        assert_eq!(counts(&server).answers_left, left);
        assert_eq!(counts(&client).fetches.answers, left);
        let written = writes(&client);
        call(&world, &mut client, &mut server, session, 8);
        assert_eq!(writes(&client), written, "eight are longer than a slot");
        assert_eq!(server.app().served, 58);
    }
}

#[test]
fn a_connection_serves_one_session_after_another() {
    let (world, mut client, mut server) = pair_of(settings(1, 0), settings(0, 1));
    for round in 1..=4 {
        let session = connect(&world, &mut client, &mut server);
        let fetched = counts(&client).fetches.answers;
        call(&world, &mut client, &mut server, session, 11);
        assert_eq!(
            counts(&client).fetches.answers - fetched,
            11,
            "round {round}"
        );
        client.with(|_, cx| cx.disconnect(session));
        run(&world, &mut client, &mut server, |app| app.down == round);
        for _ in 0..20 {
            world.pass_time(Duration::from_millis(1));
            step(&world, &mut client, &mut server);
        }
    }
    assert!(client.backend().failures.is_empty());
}
