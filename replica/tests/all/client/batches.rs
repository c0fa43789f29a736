//! Commands that share a message: each keeps its own sequence and its own fate.

use trine_client::{ClientConfig, ClientId, Error, Mode, Obstacle};
use trine_kvstore::{Command, Position, Response};
use trine_protocol::message::{ClientStatus, Operation, REFUSAL_TEXT_BYTES_MAX};
use trine_transport::time::Duration;

use super::world::{Act, Script, World, always, commit, follower, leader, ok};
use crate::support::address;

fn batching(config: &mut ClientConfig) {
    config.batch_bytes = 1_400;
}

/// A registered client of a group whose first replica leads.
fn registered(scripts: Vec<Script>) -> (World, ClientId) {
    let mut world = World::with(scripts, batching);
    let client = world.open();
    world.put(client, 0);
    world.run_until_finished(1);
    (world, client)
}

#[test]
fn commands_that_are_ready_together_share_messages() {
    let (mut world, client) = registered(vec![leader()]);
    let before = world.replica(0).messages;
    (1..=40).for_each(|tag| world.put(client, tag));
    world.run_until_finished(41);
    assert!(
        world
            .finished
            .iter()
            .all(|finished| finished.result.is_ok())
    );
    let messages = world.replica(0).messages - before;
    assert!(
        (2..=6).contains(&messages),
        "40 commands came in {messages} messages"
    );
    let positions: std::collections::BTreeSet<_> = world
        .finished
        .iter()
        .flat_map(|finished| finished.result.as_ref().map(|answer| answer.position()))
        .collect();
    assert_eq!(positions.len(), 41, "each has its own answer");
}

#[test]
fn one_command_alone_is_no_batch() {
    let (mut world, client) = registered(vec![leader()]);
    let command = Command::Get { key: b"key" };
    world.submit(client, Mode::Read, &command, 1).expect("room");
    world.put(client, 2);
    world.run_until_finished(3);
    assert_eq!(
        world.replica(0).messages,
        4,
        "a registration, two writes and a read"
    );
}

#[test]
fn each_command_of_a_batch_has_its_own_fate() {
    let (mut world, client) = registered(vec![leader()]);
    world.replica(0).script = Box::new(|seen| match seen.sequence {
        3 => Act::Status(ClientStatus::TooLarge),
        5 => Act::Garbage,
        sequence => commit(seen, sequence),
    });
    (1..=6).for_each(|tag| world.put(client, tag));
    world.run_until_finished(7);
    for finished in &world.finished[1..] {
        match (finished.tag + 1, &finished.result) {
            (3, Err(error)) => assert_eq!(
                *error,
                Error::Refused {
                    obstacle: Obstacle::TooLarge
                }
            ),
            (5, Err(error)) => assert_eq!(error.obstacle(), Obstacle::UnreadableReply),
            (sequence, Ok(answer)) => assert_eq!(answer.position(), Position::new(sequence, 0)),
            (sequence, Err(error)) => panic!("sequence {sequence}: {error:?}"),
        }
    }
}

#[test]
fn a_batch_follows_the_leader_under_its_sequences() {
    let (mut world, client) = registered(vec![leader(), follower(0)]);
    world.replica(0).script = always(|| Act::LeadershipLost(Some(address(1))));
    world.replica(1).script = Box::new(|seen| commit(seen, 100 + seen.sequence));
    (1..=10).for_each(|tag| world.put(client, tag));
    world.run_until_finished(11);
    for finished in &world.finished[1..] {
        let answer = finished.result.as_ref().expect("the new leader commits it");
        assert_eq!(answer.position(), Position::new(100 + finished.tag + 1, 0));
    }
    let applied = world
        .replica(1)
        .seen
        .iter()
        .filter(|seen| seen.operation == Operation::Apply)
        .count();
    assert_eq!(applied, 10, "once each");
}

#[test]
fn a_batch_whose_session_breaks_is_sent_again() {
    let (mut world, client) = registered(vec![leader()]);
    world.replica(0).script = always(|| Act::Silent);
    (1..=10).for_each(|tag| world.put(client, tag));
    world.run_for(Duration::from_millis(5));
    world.reset_sessions(0);
    world.replica(0).script = Box::new(|seen| commit(seen, 100 + seen.sequence));
    world.run_until_finished(11);
    assert!(
        world
            .finished
            .iter()
            .all(|finished| finished.result.is_ok())
    );
}

#[test]
fn a_deadline_inside_a_batch_leaves_the_others_theirs() {
    let (mut world, client) = registered(vec![leader()]);
    world.replica(0).script = always(|| Act::Silent);
    let soon = world.client.now() + Duration::from_millis(30);
    let command = Command::Put {
        key: b"key",
        value: b"soon",
    };
    world
        .submit_until(client, Mode::Write, &command, 1, soon)
        .expect("room");
    (2..=5).for_each(|tag| world.put(client, tag));
    world.run_until_finished(2);
    let error = *world.finished[1]
        .result
        .as_ref()
        .expect_err("its time is over");
    assert!(
        matches!(
            error,
            Error::OutcomeUnknown {
                obstacle: Obstacle::NoAnswer,
                ..
            }
        ),
        "{error:?}"
    );
    world.replica(0).script = Box::new(|seen| commit(seen, 100 + seen.sequence));
    world.run_until_finished(6);
    assert!(
        world.finished[2..]
            .iter()
            .all(|finished| finished.result.is_ok())
    );
}

#[test]
fn reads_whose_values_are_too_large_together_come_one_by_one() {
    let value = vec![9; 20_000];
    let expected = value.clone();
    let mut world = world_of_value(value);
    let client = world.open();
    for tag in 0..8 {
        world
            .submit(client, Mode::Read, &Command::Get { key: b"key" }, tag)
            .expect("room");
    }
    world.run_until_finished(8);
    for finished in &world.finished {
        let answer = finished.result.as_ref().expect("an answer");
        assert_eq!(
            answer.response(),
            Ok(Response::Value {
                value: &expected,
                version: Position::new(2, 0)
            })
        );
    }
}

/// Fifty clients read 1 MiB each, and none got an answer. Each response buffer grew to 8 MiB, and the reads were put
/// into batches again whose common response no message could hold. So nothing was sent any more until the reads' time
/// was over.
#[test]
fn many_large_reads_take_turns_and_all_of_them_are_answered() {
    const READS: u64 = 50;
    let value = vec![9; 1 << 20];
    let mut world = world_of_value(value);
    let client = world.open();
    for tag in 0..READS {
        world
            .submit(client, Mode::Read, &Command::Get { key: b"key" }, tag)
            .expect("room");
        // Some of them leave alone, others together.
        if tag % 5 < 3 {
            world.step();
        }
    }
    world.run_until_finished(READS as usize);
    for finished in &world.finished {
        let answer = finished.result.as_ref().expect("an answer");
        let response = answer.response();
        assert!(matches!(response, Ok(Response::Value { value, .. }) if value.len() == 1 << 20));
    }
    let attempts = world.replica(0).seen.len() as u64;
    assert!(attempts <= 3 * READS, "{attempts} attempts");
}

#[test]
fn large_commands_travel_alone() {
    let (mut world, client) = registered(vec![leader()]);
    let value = vec![1; 10_000];
    for tag in 1..=4 {
        let command = Command::Put {
            key: b"key",
            value: &value,
        };
        world
            .submit(client, Mode::Write, &command, tag)
            .expect("room");
    }
    world.run_until_finished(5);
    assert_eq!(
        world.replica(0).messages,
        6,
        "a registration and five writes"
    );
}

/// A replica that answers every read with this value, and a client that sends batches to it.
fn world_of_value(value: Vec<u8>) -> World {
    World::with(
        vec![Box::new(move |_| {
            ok(
                Position::new(3, 0),
                &Response::Value {
                    value: &value,
                    version: Position::new(2, 0),
                },
            )
        })],
        batching,
    )
}

/// Eight writes that are denied with a long reason were more than the batch had room for. Each was asked again alone, refused
/// once more, and its caller heard that it may have been applied.
#[test]
fn a_batch_has_room_for_the_reason_of_each_refusal() {
    let (mut world, client) = registered(vec![leader()]);
    let reason = "x".repeat(REFUSAL_TEXT_BYTES_MAX);
    let refusal = Response::Denied { reason: &reason };
    let mut bytes = Vec::new();
    refusal.encode(&mut bytes);
    world.replica(0).script = Box::new(move |_| Act::Ok(Position::ZERO, bytes.clone()));
    (1..=40).for_each(|tag| world.put(client, tag));
    world.run_until_finished(41);
    for finished in &world.finished[1..] {
        let answer = finished.result.as_ref().expect("an answer");
        assert_eq!(answer.response(), Ok(refusal.clone()));
    }
}
