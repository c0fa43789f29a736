//! A client and a replica of a later release: whatever the answer, the caller hears the truth about its command.

use trine_client::{ClientId, Error, Mode, Obstacle};
use trine_kvstore::{Command, OtherError, Position, Response};
use trine_protocol::message::{ClientStatus, OtherStatus, OtherVersion};
use trine_protocol::release::Release;
use trine_transport::time::Duration;

use super::world::{Act, Script, World, always, leader, ok};

fn later(status: u8) -> ClientStatus {
    ClientStatus::Other(OtherStatus::of_byte(status).expect("a class"))
}

/// A registered client of one replica, which answers by `script` from now on.
fn registered(script: Script, batch: bool) -> (World, ClientId) {
    let mut world = World::with(vec![leader()], |config| {
        config.operation_timeout = Duration::from_millis(300);
        config.batch_bytes = if batch { 1_400 } else { 0 };
    });
    let client = world.open();
    world.put(client, 1);
    world.run_until_finished(1);
    world.replica(0).script = script;
    (world, client)
}

fn end_of_write(script: Script) -> Result<(), Error> {
    let (mut world, client) = registered(script, false);
    world.put(client, 2);
    world.run_until_finished(2);
    world.finished[1]
        .result
        .as_ref()
        .map(|_| ())
        .map_err(|error| *error)
}

#[test]
fn an_unknown_status_has_the_outcome_of_its_class() {
    for status in [0x40, 0x7f] {
        let error = end_of_write(always(move || Act::Status(later(status)))).unwrap_err();
        let release = None;
        assert!(
            matches!(error, Error::NotReachable { obstacle, .. } if obstacle == Obstacle::OtherStatus { status, release }),
            "{error:?}"
        );
    }
    for status in [0x81, 0xbf] {
        let error = end_of_write(always(move || Act::Status(later(status)))).unwrap_err();
        let release = None;
        let obstacle = Obstacle::OtherStatus { status, release };
        assert_eq!(error, Error::Refused { obstacle });
    }
    for status in [0xc0, 0xff] {
        let error = end_of_write(always(move || Act::Status(later(status)))).unwrap_err();
        assert!(matches!(error, Error::OutcomeUnknown { .. }), "{error:?}");
        assert!(error.to_string().contains(&status.to_string()), "{error}");
    }
}

#[test]
fn a_write_is_tried_again_after_a_status_that_allows_it() {
    for status in [0x41, 0xc1] {
        let mut first = true;
        let mut serve = leader();
        let script: Script = Box::new(move |seen| match std::mem::take(&mut first) {
            true => Act::Status(later(status)),
            false => serve(seen),
        });
        assert_eq!(end_of_write(script), Ok(()));
    }
}

#[test]
fn a_refusal_after_an_unknown_outcome_makes_nothing_certain() {
    let mut first = true;
    let script: Script = Box::new(move |_| match std::mem::take(&mut first) {
        true => Act::Status(later(0xc8)),
        false => Act::Status(later(0x88)),
    });
    let error = end_of_write(script).unwrap_err();
    assert!(matches!(error, Error::OutcomeUnknown { .. }), "{error:?}");
}

/// Whichever class a status has: a read has changed nothing.
#[test]
fn a_read_is_never_unknown() {
    for status in [0x40, 0x81, 0xc0] {
        let (mut world, client) = registered(always(move || Act::Status(later(status))), false);
        world
            .submit(client, Mode::Read, &Command::Get { key: b"k" }, 2)
            .expect("room");
        world.run_until_finished(2);
        let error = world.finished[1].result.as_ref().unwrap_err();
        assert!(error.is_definitely_not_applied(), "{error:?}");
    }
}

#[test]
fn an_error_of_a_later_release_is_an_answer_with_its_number_and_text() {
    let error = OtherError {
        code: 77,
        first: 3,
        second: 1,
        text: "the key holds a list",
        index: None,
    };
    let (mut world, client) = registered(
        Box::new(move |_| ok(Position::new(9, 0), &Response::OtherError(error))),
        false,
    );
    world.put(client, 2);
    world.run_until_finished(2);
    let answer = world.finished[1].result.as_ref().expect("an answer");
    assert_eq!(answer.response(), Ok(Response::OtherError(error)));
    let text = error.to_string();
    assert!(
        text.contains("the key holds a list") && text.contains("77"),
        "{text}"
    );
}

/// A replica that knows no batches, or no messages of this version, has read none of the requests.
#[test]
fn a_replica_that_cannot_read_the_message_has_not_done_it() {
    let other = OtherVersion {
        release: Release::THIS,
        understood: 0,
        met: 1,
        kind: 9,
    };
    for batch in [false, true] {
        let (mut world, client) = registered(always(move || Act::OtherVersion(other)), batch);
        for tag in 2..6 {
            world.put(client, tag);
        }
        world.run_until_finished(5);
        for finished in &world.finished[1..] {
            let obstacle = Obstacle::OtherVersion(other);
            let error = *finished.result.as_ref().unwrap_err();
            assert_eq!(error, Error::Refused { obstacle });
            assert!(error.to_string().contains("version 1"), "{error}");
        }
    }
}
