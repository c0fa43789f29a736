//! Sessions that the caller keeps: what is sent for them, over changes of leader, and how a session's refusal ends.

use std::cell::Cell;
use std::rc::Rc;

use trine_client::{
    ClientId, EncodedCommand, Error, NamedSession, Numbered, Obstacle, SessionRefusal,
};
use trine_kvstore::{Command, Response};
use trine_protocol::message::{ClientStatus, Operation, check_of};
use trine_transport::time::Duration;

use super::world::{Act, CLUSTER, Script, Seen, World, always, leader};
use crate::support::address;

const NUMBER: u64 = 0xabcd;

const SESSION: NamedSession = NamedSession {
    client: 0x4_0000,
    number: NUMBER,
};

fn submit(world: &mut World, client: ClientId, sequence: u64, lowest: u64, tag: u64) {
    let increment = Command::Increment {
        key: b"n",
        delta: 1,
    };
    let command = EncodedCommand::for_sender(&world.pool, None, 77, &increment).expect("encoded");
    let numbered = Numbered {
        session: SESSION,
        sequence,
        lowest,
    };
    world
        .client
        .with(|clients, cx| clients.submit_numbered(cx.now(), client, command, numbered, tag))
        .expect("room");
}

fn place(seen: &Seen) -> (u64, u64, u64, u32) {
    (seen.client, seen.sequence, seen.lowest_awaited, seen.check)
}

#[test]
fn a_write_has_the_place_that_its_caller_names_and_the_clients_own_have_theirs() {
    let mut world = World::new(vec![leader()]);
    let client = world.open();
    submit(&mut world, client, 70, 9, 1);
    world.run_until_finished(1);
    world.put(client, 2);
    world.run_until_finished(2);
    submit(&mut world, client, 3, 3, 3);
    world.run_until_finished(3);
    assert!(
        world
            .finished
            .iter()
            .all(|finished| finished.result.is_ok())
    );
    let seen = world.replica(0).seen.clone();
    let operations: Vec<_> = seen.iter().map(|seen| seen.operation).collect();
    use Operation::{Apply, Register};
    // A write without the cluster's name would be taken for one of another cluster.
    assert_eq!(operations, [Register, Apply, Apply, Apply]);
    assert!(seen[1..].iter().all(|seen| seen.cluster == CLUSTER));
    assert_eq!(place(&seen[1]), (SESSION.client, 70, 9, check_of(77)));
    assert_eq!((seen[2].client, seen[2].sequence), (1 << 16, 1));
    assert_eq!(place(&seen[3]), (SESSION.client, 3, 3, check_of(77)));
}

#[test]
fn a_change_of_leader_repeats_a_write_in_its_place() {
    let is_first = Rc::new(Cell::new(true));
    let script = |other| {
        let (is_first, mut commits) = (Rc::clone(&is_first), leader());
        let script = move |seen: &Seen| match seen.operation == Operation::Apply
            && is_first.replace(false)
        {
            true => Act::LeadershipLost(Some(address(other))),
            false => commits(seen),
        };
        Box::new(script) as Script
    };
    let mut world = World::new(vec![script(1), script(0)]);
    let client = world.open();
    submit(&mut world, client, 5, 2, 1);
    world.run_until_finished(1);
    assert!(world.finished[0].result.is_ok());
    let writes = |at| -> Vec<Seen> {
        let seen = world.replica(at).seen.iter();
        let seen = seen.filter(|seen| seen.operation == Operation::Apply);
        seen.cloned().collect()
    };
    let seen: Vec<Vec<Seen>> = (0..2).map(writes).collect();
    let ([first], [second]) = (&seen[0][..], &seen[1][..]) else {
        panic!("one attempt at each: {seen:?}")
    };
    assert_eq!(place(first), (SESSION.client, 5, 2, check_of(77)));
    assert_eq!(place(first), place(second));
    assert_eq!(first.command, second.command);
}

/// The word of the session ends a write, also if an attempt before it may have been applied. A client with sessions of its own
/// would have opened another one and gone on.
#[test]
fn the_refusal_of_a_session_ends_its_write_and_nothing_else() {
    for (status, refusal) in [
        (ClientStatus::Stale, SessionRefusal::Stale),
        (ClientStatus::SequenceUsed, SessionRefusal::SequenceUsed),
        (ClientStatus::SessionExpired, SessionRefusal::Lost),
        (ClientStatus::WindowExceeded, SessionRefusal::Window),
    ] {
        let mut commits = leader();
        let script = move |seen: &Seen| match seen.client == SESSION.client {
            true => Act::Status(status),
            false => commits(seen),
        };
        let mut world = World::new(vec![Box::new(script)]);
        let client = world.open();
        world.put(client, 1);
        world.run_until_finished(1);
        submit(&mut world, client, 1, 1, 2);
        world.run_until_finished(2);
        world.put(client, 3);
        world.run_until_finished(3);
        let obstacle = Obstacle::NamedSession(refusal);
        let results: Vec<_> = world
            .finished
            .iter()
            .map(|one| one.result.as_ref().err())
            .collect();
        assert_eq!(results, [None, Some(&Error::Refused { obstacle }), None]);
        let seen = &world.replica(0).seen;
        let attempts = seen
            .iter()
            .filter(|seen| seen.client == SESSION.client)
            .count();
        assert_eq!(attempts, 1, "{status:?} is final");
        let registrations = seen
            .iter()
            .filter(|seen| seen.operation == Operation::Register);
        assert_eq!(registrations.count(), 1, "its own session goes on");
    }
}

#[test]
fn a_session_is_opened_under_its_number_and_repeated_under_it() {
    let mut world = World::with(vec![always(|| Act::Silent)], |config| {
        config.attempt_timeout = Duration::from_millis(50);
    });
    let client = world.open();
    world
        .client
        .with(|clients, cx| clients.open_session(cx.now(), client, NUMBER, None, 9))
        .expect("room");
    world.run_for(Duration::from_millis(120));
    assert!(world.finished.is_empty());
    world.replica(0).script = leader();
    world.run_until_finished(1);
    let answer = world.finished[0].result.as_ref().expect("opened");
    assert_eq!(answer.response(), Ok(Response::Done));
    assert_eq!(answer.position().as_u64(), 1 << 16, "the client id");
    assert_eq!(world.finished[0].tag, 9);
    let seen = world.replica(0).seen.clone();
    assert!(seen.len() >= 2);
    let is_it = |seen: &Seen| seen.operation == Operation::Register && seen.client == NUMBER;
    assert!(seen.iter().all(is_it), "{seen:?}");
    // The logical client has no session by that.
    assert_eq!(world.client.app_mut().group_session(client), None);
}

#[test]
fn a_session_that_is_refused_is_told_and_is_nobody_elses_affair() {
    let mut world = World::new(vec![always(|| Act::Status(ClientStatus::Denied))]);
    let client = world.open();
    world
        .client
        .with(|clients, cx| clients.open_session(cx.now(), client, NUMBER, None, 9))
        .expect("room");
    world.run_until_finished(1);
    let obstacle = Obstacle::Denied;
    let result = world.finished[0].result.as_ref().err();
    assert_eq!(result, Some(&Error::Refused { obstacle }));
    world.replica(0).script = leader();
    world.put(client, 2);
    world.run_until_finished(2);
    assert!(world.finished[1].result.is_ok());
    assert_eq!(world.client.app_mut().in_flight_of(client), 0);
}
