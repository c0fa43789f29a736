//! Finding the leader, and the outcome of commands when it changes.

use trine_client::{Error, Mode, Obstacle};
use trine_kvstore::{Command, Position, Response};
use trine_protocol::message::{ClientStatus, Operation};
use trine_transport::App;
use trine_transport::time::Duration;

use super::world::{Act, World, always, commit, follower, leader, ok};
use crate::support::address;

#[test]
fn a_follower_shows_the_way_and_the_command_goes_to_the_leader_once() {
    let mut world = World::new(vec![follower(2), follower(2), leader()]);
    let client = world.open();
    world.put(client, 1);
    world.run_until_finished(1);
    let answer = world.finished[0].result.as_ref().expect("an answer");
    assert_eq!(
        answer.response(),
        Ok(Response::Written {
            version: answer.position()
        })
    );
    let operations: Vec<_> = world
        .replica(2)
        .seen
        .iter()
        .map(|seen| seen.operation)
        .collect();
    assert_eq!(operations, [Operation::Register, Operation::Apply]);
}

#[test]
fn a_hint_to_a_replica_that_was_not_named_is_followed() {
    let mut world = World::with(vec![follower(1), leader()], |config| {
        config.peers = vec![address(0)]
    });
    let client = world.open();
    world.put(client, 1);
    world.run_until_finished(1);
    assert!(world.finished[0].result.is_ok());
}

/// Found by the simulator, as turns without packets: a client's hint led to a replica that was down. The client named
/// the present as its next deadline until the connection had failed, and kept a processor busy for that long.
#[test]
fn while_a_hint_is_connected_to_there_is_nothing_to_do() {
    let mut world = World::new(vec![follower(1), leader()]);
    world.knows_leader(0, 1, 1);
    world.alive[1] = false;
    let client = world.open();
    world.put(client, 1);
    // The other one is asked for the leader after 15 ms.
    for _ in 0..100 {
        world.run_for(Duration::from_millis(5));
        assert_eq!(world.client.app().leader(), Some(address(1)));
        let due = world.client.app().next_timeout().expect("a deadline");
        assert!(due > world.client.now(), "it would spin");
    }
    let questions = world.replica(0).questions;
    assert!(
        (1..=40).contains(&questions),
        "{questions} in half a second"
    );
    world.alive[1] = true;
    world.run_until_finished(1);
    assert!(world.finished[0].result.is_ok());
}

/// A new client after `kill -9` of a leader: the others named the dead one until they had elected another. The client waited
/// for a connection to the dead one, for a whole second, and asked nobody meanwhile.
#[test]
fn a_hint_to_a_replica_that_has_ended_is_given_up_once_another_leads() {
    let mut world = World::new(vec![follower(2), follower(2), leader()]);
    world.alive[2] = false;
    let client = world.open();
    world.put(client, 1);
    world.run_for(Duration::from_millis(5));
    assert_eq!(world.client.app().leader(), Some(address(2)));
    world.replica(0).script = leader();
    world.knows_leader(0, 0, 2);
    world.knows_leader(1, 0, 2);
    let waited = world.run_until_finished(1);
    assert!(world.finished[0].result.is_ok());
    assert!(
        waited < Duration::from_millis(50),
        "the dead one was given up after {waited:?}"
    );
}

/// A client that names no cluster may be told of a leader by a replica of another one, in a higher term than any of its own.
/// It believed no leader of its own cluster after that.
#[test]
fn the_term_of_another_cluster_is_forgotten() {
    let mut world = World::new(vec![leader(), follower(0), always(|| Act::Silent)]);
    world.knows_foreign_leader(2, 0, 500);
    world.replica(0).script = always(|| Act::Silent);
    let client = world.open();
    world.put(client, 1);
    world.run_for(Duration::from_millis(100));
    assert!(world.replica(2).questions > 0);
    world.replica(0).script = leader();
    world.run_until_finished(1);
    // Its own cluster's leader changes now.
    world.alive[0] = false;
    world.replica(1).script = leader();
    world.knows_leader(1, 1, 3);
    world.knows_leader(2, 1, 3);
    world.put(client, 2);
    let waited = world.run_until_finished(2);
    assert!(
        waited < Duration::from_millis(100),
        "found after {waited:?}"
    );
}

/// The same client had no answer yet. Its own leader's term was lower than the foreign one, so it went to no leader at all.
#[test]
fn the_term_of_another_cluster_hides_no_leader_before_the_first_answer() {
    let mut world = World::new(vec![
        always(|| Act::Silent),
        always(|| Act::Silent),
        always(|| Act::Silent),
    ]);
    world.knows_foreign_leader(2, 2, 500);
    let client = world.open();
    world.put(client, 1);
    world.run_for(Duration::from_millis(300));
    assert!(world.replica(2).questions > 0);
    assert_eq!(world.client.app().leader(), Some(address(2)));
    world.knows_leader(0, 1, 3);
    world.replica(2).discovery = None;
    world.run_for(Duration::from_secs(3));
    assert_eq!(world.client.app().leader(), Some(address(1)));
}

#[test]
fn hints_in_a_circle_are_followed_with_pauses_until_somebody_leads() {
    let mut world = World::new(vec![follower(1), follower(0)]);
    let client = world.open();
    world.put(client, 1);
    world.run_for(Duration::from_millis(500));
    let asked = world.replica(0).seen.len() + world.replica(1).seen.len();
    assert!(
        (10..100).contains(&asked),
        "{asked} requests in half a second: neither a storm nor silence"
    );
    world.replica(1).script = leader();
    let waited = world.run_until_finished(1);
    assert!(
        waited < Duration::from_millis(100),
        "found the new leader after {waited:?}"
    );
    assert!(world.finished[0].result.is_ok());
}

#[test]
fn a_leader_that_dies_after_the_commit_leaves_the_retry_its_sequence() {
    // Replica 0 commits the write and dies before it answers; replica 1 leads next and knows the sequence.
    let mut world = World::new(vec![leader(), always(|| Act::NotLeader(None)), follower(1)]);
    let client = world.open();
    world.put(client, 1);
    world.run_until_finished(1);
    world.replica(0).script = always(|| Act::Silent);
    world.put(client, 2);
    world.run_for(Duration::from_millis(5));
    let first = world
        .replica(0)
        .seen
        .last()
        .expect("it has seen the write")
        .clone();
    world.alive[0] = false;
    world.replica(1).script = Box::new(|seen| commit(seen, 9));
    world.knows_leader(1, 1, 2);
    world.knows_leader(2, 1, 2);
    let waited = world.run_until_finished(2);
    let answer = world.finished[1]
        .result
        .as_ref()
        .expect("an answer from the new leader");
    assert_eq!(answer.position(), Position::new(9, 0));
    let retry = world
        .replica(1)
        .seen
        .last()
        .expect("it has seen the retry")
        .clone();
    assert_eq!(
        (retry.client, retry.sequence, &retry.command),
        (first.client, first.sequence, &first.command)
    );
    assert!(
        waited < Duration::from_millis(150),
        "the silent leader was given up after {waited:?}"
    );
}

#[test]
fn a_late_answer_of_the_old_leader_is_no_second_outcome() {
    let mut world = World::new(vec![leader(), always(|| Act::NotLeader(None))]);
    let client = world.open();
    world.put(client, 1);
    world.run_until_finished(1);
    world.replica(0).script = always(|| Act::Hold);
    world.put(client, 2);
    world.run_for(Duration::from_millis(5));
    world.replica(1).script = Box::new(|seen| commit(seen, 9));
    world.knows_leader(1, 1, 2);
    world.run_until_finished(2);
    world.answer_held(0, |seen| commit(seen, 8));
    world.run_for(Duration::from_millis(50));
    assert_eq!(world.finished.len(), 2, "one outcome for each command");
    assert_eq!(
        world.finished[1]
            .result
            .as_ref()
            .map(|answer| answer.position())
            .ok(),
        Some(Position::new(9, 0))
    );
    assert_eq!(world.client.app().in_flight(), 0);
}

#[test]
fn an_old_term_does_not_take_the_client_away_from_the_leader() {
    let mut world = World::new(vec![leader(), always(|| Act::NotLeader(None)), follower(0)]);
    let client = world.open();
    world.put(client, 1);
    world.run_until_finished(1);
    world.knows_leader(1, 0, 5);
    world.knows_leader(2, 1, 4);
    world.replica(0).script = always(|| Act::Hold);
    world.put(client, 2);
    world.run_for(Duration::from_millis(200));
    assert!(
        world.replica(1).questions > 0 && world.replica(2).questions > 0,
        "a slow leader is asked about"
    );
    world.answer_held(0, |seen| commit(seen, 8));
    world.run_until_finished(2);
    assert!(world.finished[1].result.is_ok());
    assert_eq!(world.client.app().leader(), Some(address(0)));
}

#[test]
fn a_session_that_ends_during_a_command_leads_to_a_retry_on_the_next_one() {
    let mut world = World::new(vec![leader()]);
    let client = world.open();
    world.put(client, 1);
    world.run_until_finished(1);
    world.replica(0).script = always(|| Act::Silent);
    world.put(client, 2);
    world.run_for(Duration::from_millis(5));
    world.reset_sessions(0);
    world.replica(0).script = Box::new(|seen| commit(seen, 9));
    world.run_until_finished(2);
    assert!(world.finished[1].result.is_ok());
    let writes: Vec<_> = world
        .replica(0)
        .seen
        .iter()
        .filter(|seen| seen.operation == Operation::Apply)
        .collect();
    assert_eq!(writes.len(), 3);
    assert_eq!(
        (writes[1].client, writes[1].sequence),
        (writes[2].client, writes[2].sequence)
    );
}

#[test]
fn lost_leadership_is_retried_and_never_called_unreachable() {
    let mut world = World::with(vec![leader()], |config| {
        config.operation_timeout = Duration::from_millis(300)
    });
    let client = world.open();
    world.put(client, 1);
    world.run_until_finished(1);
    let mut first = true;
    world.replica(0).script = Box::new(move |_| {
        let lost = std::mem::take(&mut first);
        if lost {
            Act::LeadershipLost(None)
        } else {
            Act::NotLeader(None)
        }
    });
    world.put(client, 2);
    world.run_until_finished(2);
    let error = *world.finished[1].result.as_ref().expect_err("nobody leads");
    assert!(
        matches!(
            error,
            Error::OutcomeUnknown {
                obstacle: Obstacle::NoLeader,
                ..
            }
        ),
        "{error:?}"
    );
}

#[test]
fn a_busy_leader_gets_pauses_that_grow() {
    let mut world = World::new(vec![leader()]);
    let client = world.open();
    world.put(client, 1);
    world.run_until_finished(1);
    world.replica(0).script = always(|| Act::Status(ClientStatus::Busy));
    world.put(client, 2);
    world.run_for(Duration::from_millis(500));
    let asked = world.replica(0).seen.len();
    assert!(
        (8..60).contains(&asked),
        "{asked} requests in half a second"
    );
    world.replica(0).script = leader();
    world.run_until_finished(2);
    assert!(world.finished[1].result.is_ok());
}

#[test]
fn a_stale_read_needs_no_leader() {
    let mut world = World::new(vec![
        always(|| Act::Silent),
        Box::new(|seen| match seen.operation {
            Operation::ReadStale => ok(
                Position::new(3, 1),
                &Response::Value {
                    value: b"old",
                    version: Position::new(2, 0),
                },
            ),
            _ => Act::NotLeader(None),
        }),
    ]);
    world.alive[0] = false;
    let client = world.open();
    world
        .submit(client, Mode::ReadStale, &Command::Get { key: b"key" }, 1)
        .expect("room");
    world.run_until_finished(1);
    let answer = world.finished[0].result.as_ref().expect("an answer");
    assert_eq!(answer.position(), Position::new(3, 1));
    assert_eq!(
        answer.response(),
        Ok(Response::Value {
            value: b"old",
            version: Position::new(2, 0)
        })
    );
}

fn read_stale(world: &mut World, tag: u64) {
    let client = world.open();
    world
        .submit(client, Mode::ReadStale, &Command::Get { key: b"key" }, tag)
        .expect("room");
}

/// Found by review: a client that only reads stale never learns of a leader, so that the replica it asked was always the
/// same one. If that had no state it was asked again at the speed of the network, thousands of times, until the
/// deadline, while the others had the answer.
#[test]
fn a_stale_read_that_is_refused_turns_to_another_replica() {
    for status in [
        ClientStatus::NotAttached,
        ClientStatus::Busy,
        ClientStatus::NotLeader,
        ClientStatus::NoQuorum,
    ] {
        // Each of them in turn is the one that refuses, for one of them is asked first.
        for refusing in 0..3 {
            let mut world = World::new(vec![leader(), leader(), leader()]);
            world.replica(refusing).script = always(move || Act::Status(status));
            read_stale(&mut world, 1);
            let waited = world.run_until_finished(1);
            assert!(world.finished[0].result.is_ok(), "{:?}", world.finished[0]);
            assert!(waited < Duration::from_millis(10), "took {waited:?}");
            assert!(world.replica(refusing).seen.len() <= 1, "{status:?}");
        }
    }
}

#[test]
fn a_stale_read_that_everybody_refuses_is_repeated_with_pauses() {
    let refusing = || always(|| Act::Status(ClientStatus::NotAttached));
    let mut world = World::new(vec![refusing(), refusing(), refusing()]);
    read_stale(&mut world, 1);
    world.run_for(Duration::from_millis(500));
    let asked: usize = (0..3).map(|index| world.replica(index).seen.len()).sum();
    assert!(
        (10..100).contains(&asked),
        "{asked} requests in half a second: neither a storm nor silence"
    );
    let due = world.client.app().next_timeout().expect("a deadline");
    assert!(due > world.client.now(), "it would spin");
    world.replica(2).script = leader();
    let waited = world.run_until_finished(1);
    assert!(world.finished[0].result.is_ok());
    assert!(waited < Duration::from_millis(100), "took {waited:?}");
}

/// The same with one that says nothing: each attempt went there, until the deadline.
#[test]
fn a_stale_read_that_is_not_answered_turns_to_another_replica() {
    let mut world = World::with(vec![leader(), leader()], |config| {
        config.attempt_timeout = Duration::from_millis(100)
    });
    let client = world.open();
    world.put(client, 1);
    world.run_until_finished(1);
    let led_by = world.client.app().leader().expect("it has answered");
    let silent = (0..2).find(|&index| address(index) == led_by).unwrap();
    world.replica(usize::from(silent)).script = always(|| Act::Silent);
    for (tag, reads) in [(10, 1), (20, 3)] {
        // One alone, and several in a batch.
        for read in 0..reads {
            read_stale(&mut world, tag + read);
        }
        let before = world.finished.len();
        let waited = world.run_until_finished(before + reads as usize);
        assert!(waited < Duration::from_millis(150), "took {waited:?}");
    }
    assert!(
        world
            .finished
            .iter()
            .all(|finished| finished.result.is_ok())
    );
}

#[test]
fn a_value_larger_than_the_buffer_comes_with_the_second_attempt() {
    let value = vec![7; 300_000];
    let expected = value.clone();
    let mut world = World::new(vec![Box::new(move |_| {
        ok(
            Position::new(3, 0),
            &Response::Value {
                value: &value,
                version: Position::new(2, 0),
            },
        )
    })]);
    let client = world.open();
    world
        .submit(client, Mode::Read, &Command::Get { key: b"key" }, 1)
        .expect("room");
    world.run_until_finished(1);
    let answer = world.finished[0].result.as_ref().expect("an answer");
    assert_eq!(
        answer.response(),
        Ok(Response::Value {
            value: &expected,
            version: Position::new(2, 0)
        })
    );
}
