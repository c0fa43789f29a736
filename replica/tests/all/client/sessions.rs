//! The client's session with the group: registration, sequences, the window, eviction, the last command.

use trine_client::{ClientId, Error, IN_FLIGHT_MAX, Mode, Obstacle, SubmitError};
use trine_kvstore::Command;
use trine_protocol::message::{ClientStatus, ClusterId, Operation};
use trine_transport::time::Duration;

use super::world::{Act, CLUSTER, Seen, World, always, commit, leader};

fn applies(seen: &[Seen]) -> Vec<&Seen> {
    seen.iter()
        .filter(|seen| matches!(seen.operation, Operation::Apply | Operation::ApplyAndClose))
        .collect()
}

#[test]
fn writes_are_numbered_under_the_registered_id_and_name_the_cluster() {
    let mut world = World::new(vec![leader()]);
    let client = world.open();
    for tag in 1..=3 {
        world.put(client, tag);
        world.run_until_finished(tag as usize);
    }
    let seen = world.replica(0).seen.clone();
    assert_eq!(
        (seen[0].operation, seen[0].cluster),
        (Operation::Register, ClusterId::NONE)
    );
    let numbers: Vec<_> = applies(&seen)
        .iter()
        .map(|seen| (seen.client, seen.sequence, seen.lowest_awaited))
        .collect();
    let id = 1 << 16; // The position of the registration.
    assert_eq!(numbers, [(id, 1, 1), (id, 2, 2), (id, 3, 3)]);
    assert!(applies(&seen).iter().all(|seen| seen.cluster == CLUSTER));
}

#[test]
fn a_client_that_only_reads_does_not_register() {
    let mut world = World::new(vec![leader()]);
    let client = world.open();
    world
        .submit(client, Mode::Read, &Command::Get { key: b"key" }, 1)
        .expect("room");
    world.run_until_finished(1);
    let operations: Vec<_> = world
        .replica(0)
        .seen
        .iter()
        .map(|seen| seen.operation)
        .collect();
    assert_eq!(operations, [Operation::ReadLinearizable]);
}

#[test]
fn a_repeated_registration_is_recognizable() {
    let mut world = World::with(vec![always(|| Act::Silent)], |config| {
        config.attempt_timeout = Duration::from_millis(50);
    });
    let client = world.open();
    world.put(client, 1);
    world.run_for(Duration::from_millis(120));
    world.replica(0).script = leader();
    world.run_until_finished(1);
    let seen = world.replica(0).seen.clone();
    let registrations: Vec<_> = seen
        .iter()
        .filter(|seen| seen.operation == Operation::Register)
        .collect();
    assert!(registrations.len() >= 2);
    assert!(
        registrations
            .iter()
            .all(|seen| seen.client != 0 && seen.client == registrations[0].client)
    );
}

#[test]
fn sixty_four_are_in_flight_and_no_more() {
    let mut world = World::new(vec![leader()]);
    let client = world.open();
    world.put(client, 0);
    world.run_until_finished(1);
    world.replica(0).script = always(|| Act::Hold);
    for tag in 1..=IN_FLIGHT_MAX as u64 {
        world.put(client, tag);
    }
    let command = Command::Put {
        key: b"key",
        value: b"",
    };
    assert_eq!(
        world.submit(client, Mode::Write, &command, 99),
        Err(SubmitError::InFlight)
    );
    world.run_for(Duration::from_millis(50));
    assert_eq!(
        applies(&world.replica(0).seen.clone()).len(),
        1 + IN_FLIGHT_MAX
    );
    // Everything but the first is answered: the window is stuck at it, and the next command waits.
    world.answer_held(0, |seen| {
        if seen.sequence == 2 {
            Act::Silent
        } else {
            commit(seen, seen.sequence)
        }
    });
    world.run_until_finished(IN_FLIGHT_MAX);
    world.put(client, 100);
    world.run_for(Duration::from_millis(50));
    let seen = world.replica(0).seen.clone();
    assert!(
        applies(&seen)
            .iter()
            .all(|seen| seen.sequence < 2 + IN_FLIGHT_MAX as u64)
    );
    assert!(applies(&seen).iter().all(|seen| seen.lowest_awaited <= 2));
}

#[test]
fn the_replies_come_in_any_order_and_find_their_commands() {
    let mut world = World::new(vec![leader()]);
    let client = world.open();
    world.put(client, 0);
    world.run_until_finished(1);
    world.replica(0).script = always(|| Act::Hold);
    for tag in 1..=20 {
        world.put(client, tag);
    }
    world.run_for(Duration::from_millis(20));
    let mut turn = 0;
    world.answer_held(0, |seen| {
        turn += 1;
        if turn % 2 == 0 {
            commit(seen, 100 + seen.sequence)
        } else {
            Act::Status(ClientStatus::Busy)
        }
    });
    world.replica(0).script = Box::new(|seen| commit(seen, 100 + seen.sequence));
    world.run_until_finished(21);
    for finished in &world.finished[1..] {
        let position = finished.result.as_ref().expect("an answer").position();
        assert_eq!(
            position.index(),
            100 + finished.tag + 1,
            "the tag's own sequence"
        );
    }
}

#[test]
fn an_evicted_session_is_opened_again_for_what_was_never_sent_before() {
    let mut world = World::new(vec![leader()]);
    let client = world.open();
    world.put(client, 1);
    world.run_until_finished(1);
    let mut evicted = true;
    world.replica(0).script = Box::new(move |seen| {
        if seen.operation == Operation::Register {
            evicted = false;
            return commit(seen, 50);
        }
        if evicted {
            Act::Status(ClientStatus::SessionExpired)
        } else {
            commit(seen, 51)
        }
    });
    world.put(client, 2);
    world.run_until_finished(2);
    assert!(world.finished[1].result.is_ok());
    let seen = world.replica(0).seen.clone();
    let last = *applies(&seen).last().expect("a write");
    assert_eq!(
        (last.client, last.sequence, last.lowest_awaited),
        (50 << 16, 1, 1),
        "a new session from its start"
    );
}

#[test]
fn an_evicted_session_leaves_what_was_sent_before_unknown() {
    let mut world = World::with(vec![leader()], |config| {
        config.attempt_timeout = Duration::from_millis(50)
    });
    let client = world.open();
    world.put(client, 1);
    world.run_until_finished(1);
    let mut first = true;
    world.replica(0).script = Box::new(move |_| {
        if std::mem::take(&mut first) {
            Act::Silent
        } else {
            Act::Status(ClientStatus::SessionExpired)
        }
    });
    world.put(client, 2);
    world.run_until_finished(2);
    let error = *world.finished[1]
        .result
        .as_ref()
        .expect_err("nobody can tell");
    assert!(
        matches!(
            error,
            Error::OutcomeUnknown {
                obstacle: Obstacle::SessionExpired,
                ..
            }
        ),
        "{error:?}"
    );
    world.replica(0).script = Box::new(|seen| commit(seen, 60));
    world.put(client, 3);
    world.run_until_finished(3);
    assert!(
        world.finished[2].result.is_ok(),
        "the client goes on under a new session"
    );
}

/// A copy of the client's virtual machine writes in its session. The client hears of it, and goes on in a session of its own.
#[test]
fn a_number_that_a_copy_has_used_ends_the_command_and_the_session() {
    let mut world = World::new(vec![leader()]);
    let client = world.open();
    world.put(client, 1);
    world.run_until_finished(1);
    world.replica(0).script = always(|| Act::Status(ClientStatus::SequenceUsed));
    world.put(client, 2);
    world.run_until_finished(2);
    let error = *world.finished[1].result.as_ref().expect_err("refused");
    let obstacle = Obstacle::SequenceUsed;
    assert_eq!(error, Error::Refused { obstacle });
    assert!(error.is_definitely_not_applied());
    world.replica(0).script = Box::new(|seen| commit(seen, 60));
    world.put(client, 3);
    world.run_until_finished(3);
    assert!(world.finished[2].result.is_ok());
    let seen = world.replica(0).seen.clone();
    let last = *applies(&seen).last().expect("a write");
    assert_eq!((last.client, last.sequence), (60 << 16, 1));
}

/// Copies of a virtual machine draw the same numbers. With one number for their next sessions they would have one session
/// again.
#[test]
fn copies_do_not_register_under_one_number() {
    let number = |late: Duration| {
        let mut world = World::new(vec![leader()]);
        let client = world.open();
        world.run_for(late);
        world.put(client, 1);
        world.run_until_finished(1);
        let seen = world.replica(0).seen.clone();
        let registers = |seen: &&Seen| seen.operation == Operation::Register;
        let found = seen.iter().find(registers).expect("it registers first");
        found.client
    };
    let (one, other) = (Duration::from_millis(1), Duration::from_millis(2));
    assert_eq!(number(one), number(one), "the simulator repeats a run");
    assert_ne!(number(one), number(other));
}

/// Each through its copy of the session: of two commands with one number one is executed, and the other says that it was not.
#[test]
fn a_copy_of_a_client_is_told_what_was_not_executed() {
    let mut world = World::new(vec![leader()]);
    let client = world.open();
    world.put(client, 1);
    world.run_until_finished(1);
    let copy = world.client.with(|clients, _| clients.copy_of(client));
    let copy = copy.expect("it has a session and nothing under way");
    world.put(client, 2);
    world.put(copy, 3);
    world.run_until_finished(3);
    let seen = world.replica(0).seen.clone();
    let [.., one, other] = applies(&seen)[..] else {
        panic!("{seen:?}")
    };
    assert_eq!((one.client, one.sequence), (other.client, other.sequence));
    assert_ne!(one.check, other.check, "two commands");
    assert!(one.check != 0 && other.check != 0);
}

/// Two commands were under way when the session was evicted. One of them was told so and was done under the next
/// session; the other was turned away by a busy leader a little later. It then waited for a session although there was
/// one: it was never given a sequence, and it ended as "not reachable" at its deadline.
#[test]
fn a_command_that_is_turned_away_behind_its_session_goes_on_under_the_next_one() {
    let mut world = World::with(vec![leader()], |config| config.batch_bytes = 0);
    let client = world.open();
    world.put(client, 1);
    world.run_until_finished(1);
    world.replica(0).script = Box::new(|seen| match (seen.operation, seen.sequence) {
        (Operation::Apply, 2) => Act::Status(ClientStatus::SessionExpired),
        (Operation::Apply, 3) => Act::Hold,
        _ => commit(seen, 50),
    });
    world.put(client, 2);
    world.put(client, 3);
    world.run_until_finished(2);
    world.answer_held(0, |_| Act::Status(ClientStatus::Busy));
    world.run_until_finished(3);
    assert!(world.finished[2].result.is_ok(), "{:?}", world.finished[2]);
}

/// A client with a session, whose second write is not answered until the test says so.
fn with_a_write_that_is_held() -> (World, ClientId) {
    let mut world = World::new(vec![leader()]);
    let client = world.open();
    world.put(client, 1);
    world.run_until_finished(1);
    world.replica(0).script = always(|| Act::Hold);
    world.put(client, 2);
    (world, client)
}

/// The last command of a client waits for the one before it, whose session was evicted. That one was put after the last
/// one, to wait for the next session: each waited for the other until its time was over.
#[test]
fn the_last_command_does_not_wait_for_one_that_waits_behind_it() {
    let (mut world, client) = with_a_write_that_is_held();
    let command = Command::Delete { key: b"key" };
    world
        .submit(client, Mode::WriteAndClose, &command, 3)
        .expect("room");
    world.run_for(Duration::from_millis(20));
    world.replica(0).script = Box::new(|seen| commit(seen, 50));
    world.answer_held(0, |_| Act::Status(ClientStatus::SessionExpired));
    world.run_until_finished(3);
    for finished in &world.finished {
        assert!(finished.result.is_ok(), "{finished:?}");
    }
}

#[test]
fn the_last_command_waits_for_the_others_and_ends_the_client() {
    let (mut world, client) = with_a_write_that_is_held();
    let command = Command::Put {
        key: b"key",
        value: b"last",
    };
    world
        .submit(client, Mode::WriteAndClose, &command, 3)
        .expect("room");
    assert_eq!(
        world.submit(client, Mode::Write, &command, 4),
        Err(SubmitError::Closed)
    );
    world.run_for(Duration::from_millis(20));
    let closing = |world: &mut World| {
        world
            .replica(0)
            .seen
            .iter()
            .filter(|seen| seen.operation == Operation::ApplyAndClose)
            .count()
    };
    assert_eq!(closing(&mut world), 0, "another command is in flight");
    world.answer_held(0, |seen| commit(seen, 8));
    world.replica(0).script = Box::new(|seen| commit(seen, 9));
    world.run_until_finished(3);
    assert_eq!(closing(&mut world), 1);
    assert!(!world.client.app().is_open(client));
}

#[test]
fn a_write_cannot_be_submitted_as_a_read() {
    let mut world = World::new(vec![leader()]);
    let client = world.open();
    let command = Command::Delete { key: b"key" };
    assert_eq!(
        world.submit(client, Mode::Read, &command, 1),
        Err(SubmitError::NotARead)
    );
}

/// The write waits for a registration that the group refuses. The reason was given as silence: "the replica did not answer
/// in time".
#[test]
fn a_write_that_finds_no_session_says_so() {
    let refusals = [
        (ClientStatus::SessionsFull, Obstacle::SessionsFull),
        (ClientStatus::SessionShareTaken, Obstacle::SessionShareTaken),
    ];
    for (status, obstacle) in refusals {
        let mut world = World::new(vec![Box::new(move |seen| match seen.operation {
            Operation::Register => Act::Status(status),
            _ => commit(seen, 70),
        })]);
        let client = world.open();
        world.put(client, 1);
        world.run_until_finished(1);
        let Err(Error::NotReachable { obstacle: told, .. }) = world.finished[0].result else {
            panic!("{:?}", world.finished[0].result);
        };
        assert_eq!(told, obstacle);
    }
}

#[test]
fn a_group_with_every_session_in_use_is_asked_again() {
    let mut refusals = 3;
    let mut world = World::new(vec![Box::new(move |seen| {
        if seen.operation == Operation::Register && refusals > 0 {
            refusals -= 1;
            return Act::Status(ClientStatus::SessionsFull);
        }
        commit(seen, 70)
    })]);
    let client = world.open();
    world.put(client, 1);
    world.run_until_finished(1);
    assert!(world.finished[0].result.is_ok());
}
