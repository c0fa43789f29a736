//! A client's error when it has no answer: it is certain exactly when it can be.

use trine_client::{Error, Mode, Obstacle};
use trine_kvstore::{Command, Position, Response, StoreError};
use trine_protocol::message::{ClientStatus, ClusterId};
use trine_protocol::release::Release;
use trine_transport::time::Duration;

use super::world::{Act, Script, World, always, leader};

/// One registered client whose next commands meet `script`, with a deadline of 300 ms.
fn after_one_write(script: Script) -> (World, trine_client::ClientId) {
    let mut world = World::with(vec![leader()], |config| {
        config.operation_timeout = Duration::from_millis(300)
    });
    let client = world.open();
    world.put(client, 1);
    world.run_until_finished(1);
    world.replica(0).script = script;
    (world, client)
}

fn error_of_next_write(world: &mut World, client: trine_client::ClientId) -> Error {
    world.put(client, 2);
    world.run_until_finished(2);
    *world.finished[1].result.as_ref().expect_err("no answer")
}

/// Answers with `refusal`, or only from the second attempt on.
fn refuses(refusal: &Response<'_>, loses_the_first: bool) -> Script {
    let mut bytes = Vec::new();
    refusal.encode(&mut bytes);
    let mut loses = loses_the_first;
    Box::new(move |_| match std::mem::take(&mut loses) {
        true => Act::LeadershipLost(None),
        false => Act::Ok(Position::ZERO, bytes.clone()),
    })
}

#[test]
fn nobody_there_is_not_reachable() {
    let mut world = World::with(vec![leader()], |config| {
        config.operation_timeout = Duration::from_millis(300)
    });
    world.alive[0] = false;
    let client = world.open();
    world.put(client, 1);
    let waited = world.run_until_finished(1);
    let error = *world.finished[0]
        .result
        .as_ref()
        .expect_err("nobody is there");
    assert!(
        matches!(
            error,
            Error::NotReachable {
                obstacle: Obstacle::NoConnection,
                ..
            }
        ),
        "{error:?}"
    );
    assert_eq!(
        world.client.app().in_flight(),
        0,
        "its registration ended with it"
    );
    assert!(
        waited < Duration::from_millis(310),
        "ended {waited:?} after it began"
    );
}

#[test]
fn a_write_that_was_sent_and_not_answered_is_unknown() {
    let (mut world, client) = after_one_write(always(|| Act::Silent));
    let error = error_of_next_write(&mut world, client);
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
}

#[test]
fn a_write_that_everybody_turned_away_is_not_reachable() {
    for (status, expected) in [
        (ClientStatus::NotLeader, Obstacle::NoLeader),
        (ClientStatus::NoQuorum, Obstacle::NoQuorum),
        (ClientStatus::NotAttached, Obstacle::NotAttached),
        (ClientStatus::Busy, Obstacle::Busy),
        (ClientStatus::ReplyShareTaken, Obstacle::ReplyShareTaken),
    ] {
        let (mut world, client) = after_one_write(always(move || Act::Status(status)));
        let error = error_of_next_write(&mut world, client);
        let Error::NotReachable { obstacle, .. } = error else {
            panic!("{status:?} gave {error:?}")
        };
        assert_eq!(obstacle, expected);
    }
}

#[test]
fn once_unknown_a_refusal_does_not_make_it_certain() {
    let mut first = true;
    let script: Script = Box::new(move |_| {
        if std::mem::take(&mut first) {
            Act::Silent
        } else {
            Act::Status(ClientStatus::NoQuorum)
        }
    });
    let mut world = World::with(vec![leader()], |config| {
        config.operation_timeout = Duration::from_millis(300);
        config.attempt_timeout = Duration::from_millis(50);
    });
    let client = world.open();
    world.put(client, 1);
    world.run_until_finished(1);
    world.replica(0).script = script;
    let error = error_of_next_write(&mut world, client);
    assert!(
        matches!(
            error,
            Error::OutcomeUnknown {
                obstacle: Obstacle::NoQuorum,
                ..
            }
        ),
        "{error:?}"
    );
}

#[test]
fn a_read_is_never_unknown() {
    let (mut world, client) = after_one_write(always(|| Act::Silent));
    world
        .submit(client, Mode::Read, &Command::Get { key: b"key" }, 2)
        .expect("room");
    world.run_until_finished(2);
    let error = *world.finished[1].result.as_ref().expect_err("no answer");
    assert!(
        matches!(
            error,
            Error::NotReachable {
                obstacle: Obstacle::NoAnswer,
                ..
            }
        ),
        "{error:?}"
    );
}

#[test]
fn another_cluster_is_refused_at_once() {
    let mut world = World::with(vec![leader(), leader()], |config| {
        config.cluster = ClusterId(0x99)
    });
    let client = world.open();
    world.put(client, 1);
    let waited = world.run_until_finished(1);
    let error = *world.finished[0]
        .result
        .as_ref()
        .expect_err("another cluster");
    let obstacle = Obstacle::WrongCluster {
        theirs: super::world::CLUSTER,
    };
    assert_eq!(error, Error::Refused { obstacle });
    assert!(waited < Duration::from_millis(100), "said after {waited:?}");
}

#[test]
fn a_foreign_replica_among_ours_is_left_out() {
    let foreign = always(|| Act::Foreign(ClusterId(0x99)));
    let mut world = World::new(vec![leader(), foreign]);
    let client = world.open();
    world.put(client, 1);
    world.run_until_finished(1);
    world.replica(0).script = always(|| Act::NotLeader(None));
    world.put(client, 2);
    world.run_for(Duration::from_millis(100));
    world.replica(0).script = leader();
    world.run_until_finished(2);
    assert!(world.finished[1].result.is_ok());
    assert!(world.replica(1).seen.len() <= 1, "it is not asked again");
}

/// A replica was in a group's list but on another group's files, had no leader, and answered first. The client took its
/// refusal as the answer of the group that it was looking for, and took the replicas of the right group for foreign
/// ones.
#[test]
fn a_refusal_does_not_say_which_group_is_meant() {
    for status in [ClientStatus::NoQuorum, ClientStatus::NotAttached] {
        let foreign = always(move || Act::ForeignStatus(ClusterId(0x99), status));
        let mut world = World::new(vec![leader(), foreign]);
        let client = world.open();
        world.put(client, 1);
        world.run_until_finished(1);
        assert!(world.finished[0].result.is_ok(), "{:?}", world.finished[0]);
        assert!(!world.replica(1).seen.is_empty(), "it was asked first");
    }
}

#[test]
fn what_cannot_help_is_refused_without_waiting() {
    let release = Some(Release::THIS);
    for (status, expected) in [
        (ClientStatus::TooLarge, Obstacle::TooLarge),
        (ClientStatus::Malformed, Obstacle::Malformed { release }),
    ] {
        let (mut world, client) = after_one_write(always(move || Act::Status(status)));
        assert_eq!(
            error_of_next_write(&mut world, client),
            Error::Refused { obstacle: expected }
        );
    }
}

#[test]
fn a_reply_that_cannot_be_read_leaves_a_write_unknown() {
    let (mut world, client) = after_one_write(always(|| Act::Garbage));
    let error = error_of_next_write(&mut world, client);
    assert!(
        matches!(
            error,
            Error::OutcomeUnknown {
                obstacle: Obstacle::UnreadableReply,
                ..
            }
        ),
        "{error:?}"
    );
}

/// The first attempt may be in the log. A replica that refuses the next one, because the user was removed meanwhile, does not
/// look for it: the caller heard that nothing had been done.
#[test]
fn a_repeat_that_is_refused_leaves_a_write_unknown() {
    let reason = "user number 3 does not exist any more";
    let (required, active) = (6, 5);
    for refusal in [
        Response::Denied { reason },
        Response::Error(StoreError::VersionNotActive { required, active }),
    ] {
        let (mut world, client) = after_one_write(refuses(&refusal, true));
        let error = error_of_next_write(&mut world, client);
        assert!(
            matches!(
                error,
                Error::OutcomeUnknown {
                    obstacle: Obstacle::RepeatRefused,
                    ..
                }
            ),
            "{error:?}"
        );
        // The first attempt says what it says.
        let (mut world, client) = after_one_write(refuses(&refusal, false));
        world.put(client, 2);
        world.run_until_finished(2);
        let answer = world.finished[1].result.as_ref().expect("an answer");
        assert_eq!(answer.response(), Ok(refusal));
    }
}

#[test]
fn without_a_group_the_registration_ends_with_the_command() {
    let mut world = World::with(
        vec![always(|| Act::Status(ClientStatus::NotAttached))],
        |config| {
            config.operation_timeout = Duration::from_millis(200);
        },
    );
    let client = world.open();
    world.put(client, 1);
    world.run_until_finished(1);
    let error = *world.finished[0].result.as_ref().expect_err("no group");
    assert!(matches!(error, Error::NotReachable { .. }), "{error:?}");
    world.run_for(Duration::from_millis(500));
    assert_eq!(
        world.client.app().in_flight(),
        0,
        "nothing goes on by itself"
    );
}

/// A client that asked a dead group kept its registration for ever, and so did every caller that waited for "nothing in
/// flight".
#[test]
fn a_group_that_dies_during_registrations_leaves_nothing_in_flight() {
    let mut world = World::with(vec![always(|| Act::Silent)], |config| {
        config.operation_timeout = Duration::from_millis(300);
    });
    let clients: Vec<_> = (0..16).map(|_| world.open()).collect();
    for (tag, client) in clients.iter().enumerate() {
        world.put(*client, tag as u64);
        let command = Command::Put {
            key: b"key",
            value: b"last",
        };
        world
            .submit(*client, Mode::WriteAndClose, &command, 100 + tag as u64)
            .expect("room");
    }
    world.run_for(Duration::from_millis(100));
    world.alive[0] = false;
    world.run_until_finished(32);
    // The registrations were sent before the group died: the end of their attempts ends them.
    world.run_for(Duration::from_secs(3));
    assert_eq!(world.client.app().in_flight(), 0);
    assert!(
        world
            .finished
            .iter()
            .all(|finished| finished.result.is_err())
    );
    assert!(
        clients
            .iter()
            .all(|client| !world.client.app().is_open(*client))
    );
}

/// Found by review: when the only thing left to watch was an attempt that took too long, the deadline of its operation
/// was forgotten with it. The operation waited for as long as nothing was sent: here for the pause that a busy leader
/// gets.
#[test]
fn a_deadline_outlives_an_attempt_that_took_too_long() {
    let mut world = World::with(vec![leader()], |config| {
        config.operation_timeout = Duration::from_millis(300);
        config.attempt_timeout = Duration::from_millis(100);
        config.pause_min = Duration::from_secs(8);
        config.pause_max = Duration::from_secs(8);
    });
    let client = world.open();
    world.put(client, 1);
    world.run_until_finished(1);
    world.replica(0).script = always(|| Act::Silent);
    world.put(client, 2);
    world.run_for(Duration::from_millis(20));
    // The leader is left alone from here on, and before the write's attempt ends this read is over.
    world.replica(0).script = always(|| Act::Status(ClientStatus::Busy));
    let soon = world.client.now() + Duration::from_millis(30);
    world
        .submit_until(client, Mode::Read, &Command::Get { key: b"key" }, 3, soon)
        .expect("room");
    world.run_until_finished(2);
    world.run_until_finished(3);
    let write = &world.finished[2];
    assert_eq!(write.tag, 2);
    let took = write.ended.saturating_since(write.started);
    assert!(took < Duration::from_millis(310), "ended after {took:?}");
    let error = *write.result.as_ref().expect_err("no answer");
    assert!(matches!(error, Error::OutcomeUnknown { .. }), "{error:?}");
}
