//! The state machine answers every entry alike, at every replica.

use super::entry::{EntryBuilder, move_member};
use super::*;
use crate::config::ReplicaConfig;
use trine_kvstore::Response;
use trine_protocol::message::{ClientRequest, GroupId, Incarnation};

fn machine() -> StateMachine {
    StateMachine::new(
        ClusterId(7),
        Genesis::new(&ReplicaConfig::default(), [1, 2]),
        &[],
        1,
    )
}

fn request<'a>(
    operation: Operation,
    client: u64,
    sequence: u64,
    command: &'a [u8],
) -> ClientRequest<'a> {
    ClientRequest {
        timed: false,
        operation,
        group: GroupId(0),
        cluster: ClusterId(7),
        client,
        sequence,
        lowest_awaited: sequence,
        session_number: 0,
        check: NO_CHECK,
        for_user: None,
        command,
    }
}

fn put(key: &[u8], value: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    Command::Put { key, value }.encode(&mut bytes);
    bytes
}

type Told = (ClientStatus, Position, Vec<u8>);

fn apply(machine: &mut StateMachine, time: u64, requests: &[ClientRequest<'_>]) -> Vec<Told> {
    let mut builder = EntryBuilder::default();
    requests.iter().for_each(|request| builder.push(request));
    let data = builder.finish(time);
    let mut told = Vec::new();
    let answers = |place, answer: CommandReply<'_>| {
        assert_eq!(place, told.len());
        told.push((answer.status, answer.position, answer.response.to_vec()));
    };
    machine
        .apply(machine.applied_index() + 1, &data, answers)
        .unwrap();
    told
}

#[test]
fn one_entry_answers_each_of_its_commands_at_its_place() {
    let mut machine = machine();
    let register = [
        request(Operation::Register, 11, 0, b""),
        request(Operation::Register, 12, 0, b""),
    ];
    let told = apply(&mut machine, 0, &register);
    let clients = [Position::new(2, 0).as_u64(), Position::new(2, 1).as_u64()];
    assert_eq!(
        told.iter().map(|t| t.1.as_u64()).collect::<Vec<_>>(),
        clients
    );

    let command = put(b"k", b"v");
    let told = apply(
        &mut machine,
        0,
        &clients.map(|client| request(Operation::Apply, client, 1, &command)),
    );
    let second = Position::new(3, 1);
    assert_eq!(
        Response::decode(&told[1].2),
        Ok(Response::Written { version: second })
    );
    assert_eq!(machine.applied_position(), second);

    let again = apply(
        &mut machine,
        0,
        &[request(Operation::Apply, clients[1], 1, &command)],
    );
    assert_eq!(
        again[0], told[1],
        "a duplicate gets the first answer, position included"
    );
    assert_eq!(
        machine.store().applied(),
        second,
        "and is not applied again"
    );
}

/// Before the group has switched, members of earlier releases apply the same entries, and know of no check.
#[test]
fn another_command_of_a_number_is_refused_from_its_state_version_on() {
    for version in [CHECK_VERSION - 1, CHECK_VERSION] {
        let config = ReplicaConfig {
            state_version: version,
            ..ReplicaConfig::default()
        };
        let genesis = Genesis::new(&config, [1, 2]);
        let mut machine = StateMachine::new(ClusterId(7), genesis, &[], 1);
        let register = request(Operation::Register, 5, 0, b"");
        let client = apply(&mut machine, 0, &[register])[0].1.as_u64();
        let commands = [put(b"k", b"v"), put(b"l", b"w")];
        let [one, mut other] = [0, 1].map(|at| ClientRequest {
            check: at as u32 + 1,
            ..request(Operation::ApplyAndClose, client, 1, &commands[at])
        });
        other.operation = Operation::Apply;
        let first = apply(&mut machine, 0, &[other]);
        assert_eq!(first[0].0, ClientStatus::Ok);
        let second = apply(&mut machine, 0, &[one]);
        match version < CHECK_VERSION {
            true => assert_eq!(second, first),
            false => {
                assert_eq!(second[0].0, ClientStatus::SequenceUsed);
                // It was not executed, so it does not close the session either.
                assert_eq!(machine.sessions().open_count(), 1);
            }
        }
        assert_eq!(apply(&mut machine, 0, &[other]), first);
        assert_eq!(machine.store().stats().items, 1);
    }
}

#[test]
fn closing_with_the_last_command_still_answers_its_retry() {
    let mut machine = machine();
    let client = apply(&mut machine, 0, &[request(Operation::Register, 5, 0, b"")])[0]
        .1
        .as_u64();
    let command = put(b"k", b"v");
    let last = request(Operation::ApplyAndClose, client, 1, &command);
    let first = apply(&mut machine, 0, &[last]);
    assert_eq!(apply(&mut machine, 0, &[last]), first);
    let more = apply(
        &mut machine,
        0,
        &[request(Operation::Apply, client, 2, &command)],
    );
    assert_eq!(more[0].0, ClientStatus::SessionExpired);
}

#[test]
fn group_time_never_goes_back() {
    let mut machine = machine();
    apply(&mut machine, 50, &[]);
    apply(&mut machine, 40, &[]);
    assert_eq!(machine.group_time_ns(), 50);
    assert_eq!(machine.applied_position(), Position::new(3, 0));
}

#[test]
fn a_newer_entry_stops_and_a_damaged_one_is_skipped() {
    let mut machine = machine();
    assert!(machine.apply(2, &[9, 9, 0, 0], |_, _| {}).is_err());
    assert_eq!(machine.applied_index(), 1);
    machine.apply(2, &[1, 1, 0], |_, _| {}).unwrap();
    assert_eq!(machine.applied_index(), 2);
}

#[test]
fn a_command_that_cannot_be_read_is_answered_and_uses_no_sequence() {
    let mut machine = machine();
    let client = apply(&mut machine, 0, &[request(Operation::Register, 5, 0, b"")])[0]
        .1
        .as_u64();
    let told = apply(
        &mut machine,
        0,
        &[request(Operation::Apply, client, 1, b"\xff\xff")],
    );
    assert_eq!(told[0].0, ClientStatus::Malformed);
    let command = put(b"k", b"v");
    assert_eq!(
        apply(
            &mut machine,
            0,
            &[request(Operation::Apply, client, 1, &command)]
        )[0]
        .0,
        ClientStatus::Ok
    );
}

/// The replies of another client fill the memory for replies. The last command of a one-shot client is refused, and asked
/// again once there is room: its session must still be there.
#[test]
fn a_last_command_that_was_refused_does_not_end_its_session() {
    let mut genesis = Genesis::new(&ReplicaConfig::default(), [1, 2]);
    genesis.session_limits.reply_bytes_max = 700;
    let mut machine = StateMachine::new(ClusterId(7), genesis, &[], 1);
    let register = [5, 6].map(|nonce| request(Operation::Register, nonce, 0, b""));
    let told = apply(&mut machine, 0, &register);
    let (other, client) = (told[0].1.as_u64(), told[1].1.as_u64());
    let command = put(b"k", b"v");
    let mut sequence = 0;
    let full = loop {
        sequence += 1;
        let mut more = request(Operation::Apply, other, sequence, &command);
        more.lowest_awaited = 1;
        let status = apply(&mut machine, 0, &[more])[0].0;
        if status != ClientStatus::Ok {
            break status;
        }
    };
    assert_eq!(full, ClientStatus::SessionsFull);
    let last = request(Operation::ApplyAndClose, client, 1, &command);
    assert_eq!(
        apply(&mut machine, 0, &[last])[0].0,
        ClientStatus::SessionsFull
    );
    // The other client awaits nothing any more.
    apply(
        &mut machine,
        0,
        &[request(Operation::Apply, other, sequence + 1, &command)],
    );
    assert_eq!(apply(&mut machine, 0, &[last])[0].0, ClientStatus::Ok);
}

/// The state of a group of this version with two members, known to a program that understands `known`.
fn with_members(version: u8, known: u8) -> StateMachine {
    let config = ReplicaConfig {
        state_version: version,
        ..ReplicaConfig::default()
    };
    let member = |node_id: u32| Member {
        node_id: trine_protocol::message::NodeId(node_id),
        role: trine_protocol::message::MemberRole::Voter,
        incarnation: Incarnation(u64::from(node_id)),
        address: ([10, 0, 0, node_id as u8], 7471).into(),
    };
    let members = [member(1), member(2)];
    let genesis = Genesis::new(&config, [1, 2]);
    StateMachine::new(ClusterId(7), genesis, &members, 1).understanding(known)
}

#[test]
fn a_member_is_where_the_log_says() {
    let mut machine = with_members(PLACE_VERSION, STATE_VERSION);
    let (of, to) = (Incarnation(2), "10.9.0.2:7471".parse().unwrap());
    let before = machine.digest();
    let entry = move_member(5, of, to);
    machine
        .apply(2, &entry, |_, _| panic!("no command"))
        .unwrap();
    assert_eq!(machine.members().get(of).unwrap().address, to);
    assert_eq!(machine.group_time_ns(), 5);
    let mut other = with_members(PLACE_VERSION, STATE_VERSION);
    let elsewhere = move_member(5, of, "10.9.0.3:7471".parse().unwrap());
    other.apply(2, &elsewhere, |_, _| {}).unwrap();
    assert_ne!(machine.digest(), before);
    assert_ne!(
        machine.digest(),
        other.digest(),
        "places are part of the state"
    );
    // One that has left meanwhile is nowhere.
    let gone = move_member(6, Incarnation(9), to);
    let members = machine.members().clone();
    machine.apply(3, &gone, |_, _| {}).unwrap();
    assert_eq!(machine.members(), &members);
}

#[test]
fn an_older_program_stops_at_a_place_and_an_older_group_has_none() {
    let entry = move_member(5, Incarnation(2), "10.9.0.2:7471".parse().unwrap());
    let mut old = with_members(PLACE_VERSION - 1, PLACE_VERSION - 1);
    let unknown = EntryError::Unknown {
        version: 1,
        kind: 3,
    };
    assert_eq!(old.apply(2, &entry, |_, _| {}), Err(unknown));
    assert_eq!(old.applied_index(), 1);
    let mut early = with_members(PLACE_VERSION - 1, STATE_VERSION);
    let members = early.members().clone();
    early.apply(2, &entry, |_, _| {}).unwrap();
    assert_eq!(early.members(), &members);
}
