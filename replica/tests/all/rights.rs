//! The rights of callers at a group at work: commands, client sessions, users that come and go.

mod sessions;

use trine_keys::{Credential, Role};
use trine_kvstore::{Command, Condition, ExecuteMode, List, Response, Rights};
use trine_protocol::message::{
    AdminCommand, AdminStatus, ClientReply, ClientRequest, ClientStatus, ClusterId, Encode,
    ForUser, GroupId, Operation, WatchReply, kind,
};
use trine_replica::ReplicaConfig;
use trine_replica::rights::{Caller, KeyStage};
use trine_replica_harness::client::Wish;
use trine_replica_harness::{World, small};
use trine_transport::time::Duration;

use crate::support::users::{ISSUER, add_user, encoded, name, user};

const MEMBER: Caller = Caller::Proven(Credential::Member);
const STRANGER: Caller = Caller::Unkeyed(KeyStage::Require);

/// A group whose users are alice (keys below a/), bob (all keys, reads only) and a front, with these numbers.
fn group() -> World {
    group_with(small())
}

fn group_with(config: ReplicaConfig) -> World {
    let mut world = World::serving(3, config, 7);
    let admin = world.registered_client(1);
    let users: [(&str, Role, &[u8], bool); 3] = [
        ("alice", Role::Write, b"a/", false),
        ("bob", Role::Read, b"", false),
        ("front", Role::Write, b"", true),
    ];
    for (who, role, prefix, front) in users {
        add_user(
            &mut world,
            admin,
            who,
            Rights {
                role,
                front,
                prefix,
            },
        );
    }
    world
}

const ALICE: u32 = 1;
const BOB: u32 = 2;

/// A client session as its client knows it.
#[derive(Clone, Copy)]
struct Session {
    client: u64,
    number: u64,
    cluster: ClusterId,
}

/// The user that a request names: 0 is none.
fn user_of(number: u32) -> Option<ForUser> {
    (number != 0).then_some(ForUser::of_number(number))
}

fn register(
    world: &mut World,
    caller: Caller,
    number: u64,
    for_user: u32,
) -> Result<Session, ClientStatus> {
    let request = ClientRequest {
        client: number,
        for_user: user_of(for_user),
        ..ClientRequest::bare(Operation::Register)
    };
    let bytes = world.say_as(caller, &request.encode_to_vec());
    let reply = ClientReply::decode(&bytes).expect("a reply");
    match reply.status {
        ClientStatus::Ok => Ok(Session {
            client: reply.position,
            number,
            cluster: reply.cluster,
        }),
        status => Err(status),
    }
}

fn put_request(for_user: Option<ForUser>, session: Session, sequence: u64, key: &str) -> Vec<u8> {
    let put = Command::Put {
        key: key.as_bytes(),
        value: b"v",
    };
    write_request(for_user, session, sequence, &put)
}

fn write_request(
    for_user: Option<ForUser>,
    session: Session,
    sequence: u64,
    command: &Command<'_>,
) -> Vec<u8> {
    let command = encoded(command);
    let request = ClientRequest {
        operation: Operation::Apply,
        timed: false,
        group: GroupId(0),
        cluster: session.cluster,
        client: session.client,
        sequence,
        lowest_awaited: sequence,
        session_number: session.number,
        check: trine_protocol::message::NO_CHECK,
        for_user,
        command: &command,
    };
    request.encode_to_vec()
}

/// What a write or a read is answered: `Ok` with the response shown, or the status.
fn put(world: &mut World, caller: Caller, session: Session, sequence: u64, key: &str) -> String {
    put_for(world, caller, None, session, sequence, key)
}

fn put_for(
    world: &mut World,
    caller: Caller,
    for_user: Option<ForUser>,
    session: Session,
    sequence: u64,
    key: &str,
) -> String {
    let request = put_request(for_user, session, sequence, key);
    said(world, caller, &request)
}

fn get(world: &mut World, caller: Caller, for_user: u32, key: &str) -> String {
    let command = encoded(&Command::Get {
        key: key.as_bytes(),
    });
    let request = ClientRequest {
        for_user: user_of(for_user),
        command: &command,
        ..ClientRequest::bare(Operation::ReadLinearizable)
    };
    said(world, caller, &request.encode_to_vec())
}

fn said(world: &mut World, caller: Caller, request: &[u8]) -> String {
    let bytes = world.say_as(caller, request);
    let reply = ClientReply::decode(&bytes).expect("a reply");
    if reply.status != ClientStatus::Ok {
        return format!("{:?}", reply.status);
    }
    match Response::decode(reply.response).expect("a response") {
        Response::Denied { reason } => reason.to_owned(),
        Response::Written { .. } => "written".to_owned(),
        other => format!("{other:?}"),
    }
}

#[test]
fn a_user_writes_its_own_keys_and_is_told_what_it_lacks() {
    let mut world = group();
    let alice = user("alice", 1);
    let session = register(&mut world, alice, 77, 0).expect("a session");
    assert_eq!(put(&mut world, alice, session, 1, "a/1"), "written");
    let outside = "user alice may not touch key \"b/1\": its keys begin with \"a/\"";
    assert_eq!(put(&mut world, alice, session, 2, "b/1"), outside);
    assert_eq!(get(&mut world, alice, 0, "b/1"), outside);
    // What was denied has used up no number of the session.
    assert_eq!(put(&mut world, alice, session, 2, "a/2"), "written");
    let bob = user("bob", 2);
    let reader = register(&mut world, bob, 78, 0).expect("a session");
    assert_eq!(
        put(&mut world, bob, reader, 1, "a/1"),
        "user bob has role read, and role write is needed"
    );
    assert!(get(&mut world, bob, 0, "a/2").starts_with("Value"));
    let leader = world.leader().expect("a leader");
    assert_eq!(world.status(leader).counters.denied, 3);
}

/// A user that only reads opens as many sessions as it likes, and could keep every other user from scanning.
#[test]
fn one_users_pins_leave_room_for_others() {
    let config = ReplicaConfig {
        ordered: true,
        ..small()
    };
    let mut world = group_with(config);
    let (bob, alice) = (user("bob", 2), user("alice", 1));
    let pin = |world: &mut World, caller, session, sequence| {
        let request = write_request(None, session, sequence, &Command::Pin);
        said(world, caller, &request)
    };
    for number in 0..2 {
        let session = register(&mut world, bob, 70 + number, 0).expect("a session");
        for sequence in 1..=8 {
            let answer = pin(&mut world, bob, session, sequence);
            assert!(answer.starts_with("Pinned"), "{answer}");
        }
    }
    let third = register(&mut world, bob, 79, 0).expect("a session");
    let answer = pin(&mut world, bob, third, 1);
    assert_eq!(answer, "Error(TooManyPinsOfUser { limit: 16 })");
    let other = register(&mut world, alice, 80, 0).expect("a session");
    let answer = pin(&mut world, alice, other, 1);
    assert!(answer.starts_with("Pinned"), "{answer}");
}

/// Without this, whoever learns the number of a session writes as its user.
#[test]
fn another_users_session_is_answered_as_expired() {
    let mut world = group();
    let session = register(&mut world, user("alice", 1), 77, 0).expect("a session");
    for other in [
        user("bob", 2),
        Caller::default(),
        Caller::Proven(Credential::Admin),
    ] {
        let answer = put(&mut world, other, session, 1, "a/1");
        assert!(
            answer == "SessionExpired" || answer.contains("bob has role"),
            "{answer}"
        );
    }
    let plain = register(&mut world, Caller::default(), 79, 0).expect("a session");
    assert_eq!(
        put(&mut world, user("alice", 1), plain, 1, "a/1"),
        "SessionExpired"
    );
    assert_eq!(
        put(&mut world, user("alice", 1), session, 1, "a/1"),
        "written"
    );
    // A snapshot keeps whose it is.
    for node_id in 1..=3 {
        if world.leader() != Some(node_id) {
            world.kill(node_id);
            world.start(node_id, false);
            world.run_for(Duration::from_secs(5));
        }
    }
    let digests: Vec<_> = (1..=3)
        .map(|node_id| world.replica(node_id).state_digest())
        .collect();
    assert!(
        digests.iter().all(|digest| *digest == digests[0]),
        "{digests:?}"
    );
}

/// A key outside the prefix among others: the error names it and the user, and nothing of the command is applied.
#[test]
fn a_key_outside_the_prefix_inside_a_list_denies_the_whole_command() {
    let mut world = group();
    let alice = user("alice", 1);
    let session = register(&mut world, alice, 77, 0).expect("a session");
    let outside = "user alice may not touch key \"b/1\": its keys begin with \"a/\"";
    let keys: [&[u8]; 3] = [b"a/1", b"b/1", b"a/2"];
    let get_all = encoded(&Command::MultiGet {
        keys: List::from(&keys),
    });
    let request = ClientRequest {
        command: &get_all,
        ..ClientRequest::bare(Operation::ReadLinearizable)
    };
    assert_eq!(said(&mut world, alice, &request.encode_to_vec()), outside);
    let value = b"v".as_slice();
    let put = |key| Command::Put { key, value };
    let operations = [put(b"a/1"), put(b"b/1"), put(b"a/2")];
    let inside = [put(b"a/1"), put(b"a/2")];
    let execute = |mode, absent, operations| Command::Execute {
        mode,
        conditions: absent,
        operations,
    };
    let (here, there) = (
        [Condition::Absent { key: b"a/1" }],
        [Condition::Absent { key: b"b/1" }],
    );
    for mode in [ExecuteMode::AllOrNothing, ExecuteMode::Independent] {
        for (conditions, operations) in [
            (List::from(&here), List::from(&operations)),
            (List::from(&there), List::from(&inside)),
        ] {
            let command = execute(mode, conditions, operations);
            let request = write_request(None, session, 1, &command);
            assert_eq!(said(&mut world, alice, &request), outside);
        }
    }
    for key in ["a/1", "a/2", "b/1"] {
        assert_eq!(get(&mut world, user("bob", 2), 0, key), "NotFound", "{key}");
    }
    // The session goes on, and what is hers alone is done.
    let command = execute(
        ExecuteMode::AllOrNothing,
        List::from(&here),
        List::from(&inside),
    );
    let request = write_request(None, session, 1, &command);
    let done = said(&mut world, alice, &request);
    assert!(!done.contains("alice"), "{done}");
    let found = get(&mut world, user("bob", 2), 0, "a/2");
    assert!(found.starts_with("Value"), "{found}");
}

#[test]
fn a_front_acts_for_users_and_a_user_for_none() {
    let mut world = group();
    let front = user("front", 3);
    let for_alice = register(&mut world, front, 80, ALICE).expect("a session");
    assert_eq!(put(&mut world, front, for_alice, 1, "a/1"), "written");
    let outside = "user alice may not touch key \"b/1\": its keys begin with \"a/\"";
    assert_eq!(put(&mut world, front, for_alice, 2, "b/1"), outside);
    assert_eq!(get(&mut world, front, ALICE, "b/1"), outside);
    assert_eq!(get(&mut world, MEMBER, ALICE, "b/1"), outside);
    assert_eq!(get(&mut world, front, BOB, "b/1"), "NotFound");
    assert_eq!(
        get(&mut world, front, 99, "b/1"),
        "user number 99 does not exist any more"
    );
    assert_eq!(
        get(&mut world, user("bob", 2), ALICE, "a/1"),
        "user bob may not act for other users: it is no front"
    );
    let refused = register(&mut world, user("bob", 2), 81, ALICE);
    assert_eq!(refused.err(), Some(ClientStatus::Denied));
}

const BOSS: u32 = 4;
const READER: u32 = 5;

/// The same group with two more fronts: boss (an administrator) and reader (reads keys below a/). No audit line waits.
fn group_with_fronts() -> World {
    let mut world = group();
    let admin = world.registered_client(1);
    for (who, role, prefix, front) in [
        ("boss", Role::Admin, b"".as_slice(), true),
        ("reader", Role::Read, b"a/", true),
    ] {
        let rights = Rights {
            role,
            front,
            prefix,
        };
        add_user(&mut world, admin, who, rights);
    }
    world.run_for(Duration::from_secs(1));
    let leader = world.leader().expect("a leader");
    while world.replica_mut(leader).next_audit().is_some() {}
    world
}

/// A front with role read and a prefix named an administrator, and read and wrote every key.
#[test]
fn a_front_reads_and_writes_what_both_may() {
    let mut world = group_with_fronts();
    let leader = world.leader().expect("a leader");
    let reader = user("reader", READER);
    // Reads of every way, at every replica.
    let outside =
        "user reader, acting for user boss, may not touch key \"b/1\": its keys begin with \"a/\"";
    let command = encoded(&Command::Get { key: b"b/1" });
    for operation in [
        Operation::ReadLinearizable,
        Operation::ReadHere,
        Operation::ReadStale,
    ] {
        for at in 1..=3 {
            let request = ClientRequest {
                for_user: user_of(BOSS),
                command: &command,
                ..ClientRequest::bare(operation)
            };
            if operation == Operation::ReadLinearizable && at != leader {
                continue;
            }
            let bytes = world.say_at_as(at, reader, &request.encode_to_vec());
            let reply = ClientReply::decode(&bytes).expect("a reply");
            let Ok(Response::Denied { reason }) = Response::decode(reply.response) else {
                panic!("{operation:?} at {at}: {reply:?}")
            };
            assert_eq!(reason, outside, "{operation:?} at {at}");
        }
    }

    // Writes: over a session of the named user, over its own, and with nobody named in the other's session.
    let of_boss = register(&mut world, reader, 90, BOSS).expect("a session");
    let own = register(&mut world, reader, 91, 0).expect("a session");
    let lacks = "user reader, acting for user boss, has role read, and role write is needed";
    for (session, named) in [(of_boss, BOSS), (of_boss, 0), (own, BOSS)] {
        let said = put_for(&mut world, reader, user_of(named), session, 1, "a/1");
        assert_eq!(said, lacks);
    }
}

const ADMINISTRATES: &str = "may not administrate the group: such a command needs the sender's own session, and is for \
                             nobody else";

/// A front added an administrator of its own, and the audit line was about the administrator that it had named.
#[test]
fn a_front_administrates_for_nobody_and_the_audit_names_both() {
    let mut world = group_with_fronts();
    let (boss, reader) = (user("boss", BOSS), user("reader", READER));
    let of_boss = register(&mut world, reader, 90, BOSS).expect("a session");
    let own = register(&mut world, reader, 91, 0).expect("a session");
    let memory = Command::SetMemory {
        memory_bytes: 1 << 20,
    };
    for (session, named) in [(of_boss, BOSS), (of_boss, 0), (own, BOSS)] {
        let request = write_request(user_of(named), session, 1, &memory);
        let said = said(&mut world, reader, &request);
        assert_eq!(
            said,
            format!("user reader, acting for user boss, {ADMINISTRATES}")
        );
    }
    let of_alice = register(&mut world, boss, 92, ALICE).expect("a session");
    let of_itself = register(&mut world, boss, 93, 0).expect("a session");
    for (session, named, who) in [
        (of_alice, ALICE, "user boss, acting for user alice,"),
        (of_alice, 0, "user boss, acting for user alice,"),
        // In a session of alice it would be in the audit as a command of hers.
        (of_alice, BOSS, "user boss"),
        (of_itself, ALICE, "user boss, acting for user alice,"),
    ] {
        let request = write_request(user_of(named), session, 1, &memory);
        assert_eq!(
            said(&mut world, boss, &request),
            format!("{who} {ADMINISTRATES}")
        );
    }
    let request = write_request(None, of_itself, 1, &memory);
    assert_eq!(said(&mut world, boss, &request), "Done");
    let lines = audit_lines(&mut world);
    assert_eq!(
        lines[0],
        "user boss (number 4): set memory to 1048576 bytes: done"
    );
    for begin in [
        "user reader, acting for user boss (number 4): set memory to 1048576 bytes: denied: user reader, acting for ",
        "user boss, acting for user alice (number 1): set memory to 1048576 bytes: denied: ",
    ] {
        let of_it = lines.iter().filter(|line| line.starts_with(begin)).count();
        assert_eq!(of_it, 3, "{lines:?}");
    }
}

/// A member lends a user its word for keys, and changes the group in its own name alone.
#[test]
fn a_member_administrates_for_nobody() {
    let mut world = group_with_fronts();
    let memory = Command::SetMemory {
        memory_bytes: 1 << 20,
    };
    let member = register(&mut world, MEMBER, 94, BOSS).expect("a session");
    let request = write_request(user_of(BOSS), member, 1, &memory);
    assert_eq!(
        said(&mut world, MEMBER, &request),
        format!("user boss {ADMINISTRATES}")
    );
}

/// The lines of the leader, each of which says of itself whether it is about a denial.
fn audit_lines(world: &mut World) -> Vec<String> {
    world.run_for(Duration::from_secs(1));
    let leader = world.leader().expect("a leader");
    let mut lines = Vec::new();
    while let Some((audit, _)) = world.replica_mut(leader).next_audit() {
        assert_eq!(audit.is_denial(), audit.outcome != "done", "{audit}");
        lines.push(audit.to_string());
    }
    lines
}

/// A user that tries again and again would fill the log.
#[test]
fn a_user_has_few_lines_about_what_it_was_denied() {
    let mut world = group();
    let leader = world.leader().expect("a leader");
    while world.replica_mut(leader).next_audit().is_some() {}
    let (alice, bob) = (user("alice", 1), user("bob", 2));
    let sessions = [alice, bob].map(|who| (who, register(&mut world, who, 95, 0)));
    let remove = Command::RemoveUser {
        name: name("front"),
    };
    for (who, session) in sessions {
        let session = session.expect("a session");
        for _ in 0..20 {
            let request = write_request(None, session, 1, &remove);
            let said = said(&mut world, who, &request);
            assert!(said.ends_with("role admin is needed"), "{said}");
        }
    }
    let (mut lines, mut lost_in_all) = (0, 0);
    while let Some((audit, lost)) = world.replica_mut(leader).next_audit() {
        assert!(audit.is_denial());
        (lines, lost_in_all) = (lines + 1, lost_in_all + lost);
    }
    assert_eq!((lines, lost_in_all), (32, 8));
}

/// Redis clients of many users share the sessions of the replica that serves them.
#[test]
fn a_shared_session_gives_each_write_the_rights_of_its_user_alone() {
    let mut world = group();
    let admin = world.registered_client(1);
    let shared = register(&mut world, MEMBER, 80, 0).expect("a session");
    let alice = Some(ForUser {
        number: ALICE,
        generation: 1,
    });
    let bob = user_of(BOB);
    let put = |world: &mut World, user, sequence, key| {
        put_for(world, MEMBER, user, shared, sequence, key)
    };
    assert_eq!(put(&mut world, alice, 1, "a/1"), "written");
    let outside = "user alice may not touch key \"b/1\": its keys begin with \"a/\"";
    assert_eq!(put(&mut world, alice, 2, "b/1"), outside);
    assert_eq!(
        put(&mut world, bob, 2, "a/1"),
        "user bob has role read, and role write is needed"
    );
    assert_eq!(put(&mut world, None, 2, "b/1"), "written");
    // Without keys nobody is stopped, and yet a front may say for whom it asks.
    let plain = register(&mut world, Caller::default(), 81, 0).expect("a session");
    let said = put_for(&mut world, Caller::default(), alice, plain, 1, "b/1");
    assert_eq!(said, outside);
    let rotate = Command::RotateUser {
        issuer: ISSUER,
        name: name("alice"),
    };
    world.get_done(admin, Wish::Write(encoded(&rotate)));
    let put = |world: &mut World, user, sequence, key| {
        put_for(world, MEMBER, user, shared, sequence, key)
    };
    assert_eq!(
        put(&mut world, alice, 3, "a/1"),
        "the key of user alice, generation 1, does not count any more"
    );
    assert_eq!(put(&mut world, user_of(ALICE), 3, "a/1"), "written");
    let remove = Command::RemoveUser {
        name: name("alice"),
    };
    world.get_done(admin, Wish::Write(encoded(&remove)));
    assert_eq!(
        put_for(&mut world, MEMBER, alice, shared, 4, "a/1"),
        "user number 1 does not exist any more"
    );
}

/// Without this, a user with a key of its own could say that it is another one.
#[test]
fn a_user_that_is_no_front_writes_for_nobody_else() {
    let mut world = group();
    let bob = user("bob", 2);
    let session = register(&mut world, bob, 77, 0).expect("a session");
    assert_eq!(
        put_for(&mut world, bob, user_of(ALICE), session, 1, "a/1"),
        "user bob may not act for other users: it is no front"
    );
    let holder = Caller::Proven(Credential::Admin);
    let session = register(&mut world, holder, 78, 0).expect("a session");
    assert_eq!(
        put_for(&mut world, holder, user_of(ALICE), session, 1, "a/1"),
        "the holder of the cluster key file may not act for other users: it is no front"
    );
}

#[test]
fn a_removed_user_and_an_old_key_have_no_rights_and_the_owner_of_sessions_learns_it() {
    let mut world = group();
    let admin = world.registered_client(1);
    let alice = user("alice", 1);
    let session = register(&mut world, alice, 77, 0).expect("a session");
    let leader = world.leader().expect("a leader");
    let changed = |world: &World| world.replica(leader).users().expect("a state").changed_at();
    let before = changed(&world);
    assert_eq!(put(&mut world, alice, session, 1, "a/1"), "written");
    assert_eq!(changed(&world), before);
    assert!(world.replica(leader).is_current(name("alice"), 1).is_some());
    let rotate = Command::RotateUser {
        issuer: ISSUER,
        name: name("alice"),
    };
    world.get_done(admin, Wish::Write(encoded(&rotate)));
    assert_ne!(changed(&world), before);
    assert!(world.replica(leader).is_current(name("alice"), 1).is_none());
    let old = "the key of user alice, generation 1, does not count any more";
    assert_eq!(put(&mut world, alice, session, 2, "a/1"), old);
    assert_eq!(
        put(&mut world, user("alice", 4), session, 2, "a/1"),
        "written"
    );
    let remove = Command::RemoveUser {
        name: name("alice"),
    };
    world.get_done(admin, Wish::Write(encoded(&remove)));
    assert_eq!(
        put(&mut world, user("alice", 4), session, 3, "a/1"),
        "the key of user alice, generation 4, does not count any more"
    );
}

#[test]
fn a_stranger_gets_no_session_where_keys_are_required() {
    let mut world = group();
    let refused = register(&mut world, STRANGER, 90, 0);
    assert_eq!(refused.err(), Some(ClientStatus::Denied));
    assert_eq!(
        get(&mut world, STRANGER, 0, "a/1"),
        "a caller without a key may do nothing here: role read is needed"
    );
    assert_eq!(
        get(&mut world, Caller::Unkeyed(KeyStage::Accept), 0, "a/1"),
        "NotFound"
    );
}

#[test]
fn every_admin_command_leaves_a_line_on_each_replica() {
    let mut world = group();
    let boss = world.registered_client(1);
    world.get_done(
        boss,
        Wish::Write(encoded(&Command::SetMemory {
            memory_bytes: 1 << 20,
        })),
    );
    let front_session = register(&mut world, user("front", 3), 80, ALICE).expect("a session");
    assert_eq!(
        put(&mut world, user("front", 3), front_session, 1, "a/1"),
        "written"
    );
    world.run_for(Duration::from_secs(1));
    let leader = world.leader().expect("a leader");
    let mut lines = Vec::new();
    while let Some((audit, lost)) = world.replica_mut(leader).next_audit() {
        assert_eq!(lost, 0);
        lines.push(audit.to_string());
    }
    assert_eq!(
        lines,
        [
            "a caller without a key: add user alice, role write, prefix \"a/\": done, number 1, generation 1",
            "a caller without a key: add user bob, role read, prefix \"\": done, number 2, generation 2",
            "a caller without a key: add user front, role write, front, prefix \"\": done, number 3, generation 3",
            "a caller without a key: set memory to 1048576 bytes: done",
        ]
    );
    let other = (1..=3)
        .find(|&node_id| node_id != leader)
        .expect("a follower");
    let (first, _) = world.replica_mut(other).next_audit().expect("its own line");
    // It knows no more than the entry says. The leader has seen the caller.
    let seen = lines[0].strip_prefix("a caller without a key: ");
    let said = first.to_string();
    assert_eq!(said.strip_prefix("no user: "), seen);
}

/// A client repeats its command until the group has done it: it has one line nevertheless, at the leader that was asked.
#[test]
fn a_change_of_the_members_leaves_one_line_that_names_who_made_it() {
    let mut world = group();
    let leader = world.leader().expect("a leader");
    let others: Vec<u32> = (1..=3).filter(|&node_id| node_id != leader).collect();
    let (gone, next) = (others[0], others[1]);
    let limit = Duration::from_secs(20);
    let (status, text) = world.as_caller(user("alice", 1), |world| {
        world.admin(AdminCommand::Remove, gone, limit)
    });
    assert_eq!(status, AdminStatus::Done, "{text}");
    world.as_caller(Caller::Proven(Credential::Admin), |world| {
        world.admin(AdminCommand::TransferLeadership, next, limit)
    });
    let mut lines = Vec::new();
    while let Some((audit, _)) = world.replica_mut(leader).next_audit() {
        lines.push(audit.to_string());
    }
    let of_members: Vec<&String> = lines
        .iter()
        .filter(|line| line.contains("member") || line.contains("leadership"))
        .collect();
    let [removal, transfer] = &of_members[..] else {
        panic!("a line for each command: {lines:?}")
    };
    let begin = format!("user alice (number 1): remove member {gone}: ");
    assert!(removal.starts_with(&begin), "{removal}");
    let begin = format!("the holder of the cluster key file: transfer leadership to {next}: ");
    assert!(transfer.starts_with(&begin), "{transfer}");
}

/// A removal was acknowledged, and a new leader that had not applied it yet let the removed user write. Another one had not
/// applied an addition yet, and told a user that its key does not count any more (seeds 4 and 35 of sealed groups).
#[test]
fn a_leader_that_does_not_know_all_changes_of_users_yet_lets_them_wait() {
    let mut world = group();
    let alice = user("alice", 1);
    let session = register(&mut world, alice, 77, 0).expect("a session");
    let admin = world.registered_client(1);
    let old = world.leader().expect("a leader");
    let remove = Command::RemoveUser {
        name: name("alice"),
    };
    world.get_done(admin, Wish::Write(encoded(&remove)));
    world.kill(old);
    let successor = loop {
        world.run_for(Duration::from_micros(5));
        let mut others = world.running().into_iter().filter(|node| *node != old);
        if let Some(leader) = others.find(|node| world.replica(*node).leads_in().is_some()) {
            break leader;
        }
    };
    // It leads, and nothing of its term is committed.
    world.isolate(successor);
    let request = put_request(None, session, 1, "a/1");
    let bytes = world.say_at_as(successor, alice, &request);
    let reply = ClientReply::decode(&bytes).expect("a reply");
    assert_eq!(reply.status, ClientStatus::Busy);
    world.heal();
    world.run_for(Duration::from_millis(500));
    let void = "the key of user alice, generation 1, does not count any more";
    assert_eq!(put(&mut world, alice, session, 1, "a/1"), void);
}

/// A leader had been cut off and did not know it yet. It told a user that had been added since that its key does not count
/// any more (seed 655 of sealed groups). A denial now waits for the confirmation that a read waits for.
#[test]
fn a_deposed_leader_denies_nothing() {
    let mut world = group();
    let mut leader = world.leader().expect("a leader");
    let dave = user("dave", 4);
    let command = encoded(&Command::Get { key: b"a/1" });
    for request in [
        ClientRequest {
            command: &command,
            ..ClientRequest::bare(Operation::ReadLinearizable)
        },
        ClientRequest {
            client: 77,
            ..ClientRequest::bare(Operation::Register)
        },
    ] {
        // It still leads in its own eyes.
        world.isolate(leader);
        assert!(world.replica(leader).leads_in().is_some());
        let bytes = world.say_at_as(leader, dave, &request.encode_to_vec());
        let status = ClientReply::decode(&bytes).expect("a reply").status;
        let is_refused_for_now = matches!(
            status,
            ClientStatus::NotLeader | ClientStatus::NoQuorum | ClientStatus::Busy
        );
        assert!(is_refused_for_now, "{status:?}");
        world.heal();
        world.run_for(Duration::from_millis(500));
        leader = world.leader().expect("a leader");
        let bytes = world.say_at_as(leader, dave, &request.encode_to_vec());
        let reply = ClientReply::decode(&bytes).expect("a reply");
        let is_denial = match request.operation {
            Operation::Register => reply.status == ClientStatus::Denied,
            _ => matches!(
                Response::decode(reply.response).expect("a response"),
                Response::Denied { .. }
            ),
        };
        assert!(is_denial, "{reply:?}");
    }
}

/// The promise of docs/security.md: what comes after the removal was acknowledged is denied. A write that the leader had taken
/// while the removal was on its way into the log may land behind it.
#[test]
fn a_removal_denies_what_comes_later_and_not_what_was_under_way() {
    let mut world = group();
    let alice = user("alice", 1);
    let session = register(&mut world, alice, 77, 0).expect("a session");
    let admin = register(&mut world, MEMBER, 78, 0).expect("a session");
    let leader = world.leader().expect("a leader");
    let remove = Command::RemoveUser {
        name: name("alice"),
    };
    world.inject(
        leader,
        kind::CLIENT,
        &write_request(None, admin, 1, &remove),
    );
    let late = put_request(None, session, 1, "a/late");
    let bytes = world.say_at_as(leader, alice, &late);
    let reply = ClientReply::decode(&bytes).expect("a reply");
    assert_eq!(reply.status, ClientStatus::Ok);
    world.run_for(Duration::from_millis(100));
    let found = get(&mut world, MEMBER, 0, "a/late");
    assert!(found.starts_with("Value"), "{found}");
    let void = "the key of user alice, generation 1, does not count any more";
    assert_eq!(put(&mut world, alice, session, 2, "a/later"), void);
    assert_eq!(get(&mut world, MEMBER, 0, "a/later"), "NotFound");
}

/// A user that had just been added read at a follower that had not heard of it, and was told that its key does not count any
/// more. The leader is asked instead.
#[test]
fn a_follower_sends_a_user_that_it_does_not_know_to_the_leader() {
    let mut world = group();
    let admin = world.registered_client(1);
    let leader = world.leader().expect("a leader");
    let follower = leader % 3 + 1;
    world.isolate(follower);
    add_user(
        &mut world,
        admin,
        "carol",
        Rights {
            role: Role::Read,
            front: false,
            prefix: b"",
        },
    );
    let command = encoded(&Command::Get { key: b"a/1" });
    let request = ClientRequest {
        command: &command,
        ..ClientRequest::bare(Operation::ReadHere)
    };
    let ask = |world: &mut World| {
        let bytes = world.say_at_as(follower, user("carol", 4), &request.encode_to_vec());
        ClientReply::decode(&bytes).expect("a reply").status
    };
    assert_eq!(ask(&mut world), ClientStatus::NotLeader);
    world.heal();
    world.run_for(Duration::from_secs(1));
    assert_eq!(ask(&mut world), ClientStatus::Ok);
}

/// The watch of a removed user never ended: followers took it for a user of whom they had not heard yet, and the client asked
/// them again and again.
#[test]
fn followers_deny_a_watch_whose_key_they_know_to_be_void() {
    let mut world = group();
    let follower = world
        .running()
        .into_iter()
        .find(|&node| Some(node) != world.leader())
        .expect("two of them follow");
    let ask = |world: &mut World, generation| {
        let cluster = world.replica(follower).cluster();
        let request = crate::watches::request(cluster, 0, b"a/x");
        let caller = user("alice", generation);
        let answer = world.say_kind_as(follower, kind::WATCH, caller, &request);
        format!("{:?}", WatchReply::decode(&answer))
    };
    // It has a right to it, and no replica knows what was before the group.
    let known = ask(&mut world, ALICE);
    assert!(known.contains("Compacted"), "{known}");
    let unknown = ask(&mut world, 77);
    assert!(unknown.contains("may not have heard yet"), "{unknown}");
    let admin = world.registered_client(1);
    let remove = Command::RemoveUser {
        name: name("alice"),
    };
    world.get_done(admin, Wish::Write(encoded(&remove)));
    world.run_for(Duration::from_secs(1));
    let removed = ask(&mut world, ALICE);
    assert!(removed.contains("Denied"), "{removed}");
    let unknown = ask(&mut world, 77);
    assert!(unknown.contains("may not have heard yet"), "{unknown}");
}
