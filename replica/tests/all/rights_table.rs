//! Every operation of a client, at the leader and at a follower, by every kind of caller, on keys inside and outside of
//! its prefix: through the replica, so that no path goes around the check.

use trine_keys::{Credential, Role};
use trine_kvstore::{
    Command, Condition, Cursor, ExecuteMode, List, Pair, Prefix, Response, Rights, WalkContent,
};
use trine_protocol::message::{
    ClientReply, ClientRequest, ClientStatus, ClusterId, Encode, GroupId, Operation,
};
use trine_replica::rights::{Caller, KeyStage};
use trine_replica_harness::{World, small};

use crate::support::users::{add_user, encoded, name};

const INSIDE: &[u8] = b"a/1";
const OUTSIDE: &[u8] = b"b/1";

/// A caller, and what it may do.
struct Row {
    who: &'static str,
    caller: Caller,
    /// Reads a key inside of `a/`, and outside.
    reads: [bool; 2],
    /// Writes one.
    writes: [bool; 2],
    /// Asks about all keys.
    counts: bool,
}

/// The users, with generations in the order in which they were added.
const USERS: [(&str, Role, &[u8]); 5] = [
    ("writer", Role::Write, b"a/"),
    ("reader", Role::Read, b"a/"),
    ("everywriter", Role::Write, b""),
    ("everyreader", Role::Read, b""),
    ("boss", Role::Admin, b""),
];

fn rows() -> Vec<Row> {
    let user = |generation: u32| {
        let name = name(USERS[generation as usize - 1].0);
        Caller::Proven(Credential::User { name, generation })
    };
    let removed = Caller::Proven(Credential::User {
        name: name("nobody"),
        generation: 1,
    });
    let row = |who, caller, reads, writes, counts| Row {
        who,
        caller,
        reads,
        writes,
        counts,
    };
    let (all, none, inside) = ([true, true], [false, false], [true, false]);
    vec![
        row("no keys", Caller::Unkeyed(KeyStage::None), all, all, true),
        row(
            "accepted",
            Caller::Unkeyed(KeyStage::Accept),
            all,
            all,
            true,
        ),
        row(
            "stranger",
            Caller::Unkeyed(KeyStage::Require),
            none,
            none,
            false,
        ),
        row("member", Caller::Proven(Credential::Member), all, all, true),
        row("holder", Caller::Proven(Credential::Admin), all, all, true),
        row("writer", user(1), inside, inside, false),
        row("reader", user(2), inside, none, false),
        row("everywriter", user(3), all, all, true),
        row("everyreader", user(4), all, none, true),
        row("boss", user(5), all, all, true),
        row("removed", removed, none, none, false),
    ]
}

fn group() -> World {
    let mut world = World::serving(3, small(), 11);
    let admin = world.registered_client(1);
    for (who, role, prefix) in USERS {
        add_user(
            &mut world,
            admin,
            who,
            Rights {
                role,
                front: false,
                prefix,
            },
        );
    }
    world.run_for(trine_transport::time::Duration::from_secs(1));
    world
}

/// Whether the request was done; false if it was denied. Anything else fails the test.
fn is_done(world: &mut World, at: u32, caller: Caller, request: &ClientRequest<'_>) -> bool {
    let bytes = world.say_at_as(at, caller, &request.encode_to_vec());
    let reply = ClientReply::decode(&bytes).expect("a reply");
    match reply.status {
        ClientStatus::Denied => false,
        // A follower that does not know the user sends it to the leader.
        ClientStatus::NotLeader if world.leader() != Some(at) => false,
        ClientStatus::Ok => !matches!(
            Response::decode(reply.response),
            Ok(Response::Denied { .. })
        ),
        other => panic!("neither done nor denied: {other:?}"),
    }
}

/// Reads of one key, the last of some.
fn reads(key: &[u8]) -> [Vec<u8>; 4] {
    let keys = [INSIDE, key];
    [
        encoded(&Command::Get { key }),
        encoded(&Command::TimeToLive { key }),
        encoded(&Command::MultiGet {
            keys: List::from(&keys),
        }),
        encoded(&walk(key)),
    ]
}

/// A walk over the keys that begin with this.
fn walk(prefix: &[u8]) -> Command<'_> {
    Command::Walk {
        from: Cursor::START,
        count: 10,
        content: WalkContent::Items,
        prefix: Prefix(prefix),
    }
}

/// Writes of one key, the last of some.
fn writes(key: &[u8]) -> [Vec<u8>; 4] {
    let value = b"v".as_slice();
    let pairs = [Pair { key: INSIDE, value }, Pair { key, value }];
    let conditions: [Condition<'_>; 0] = [];
    let operations = [Command::Get { key: INSIDE }, Command::Put { key, value }];
    [
        encoded(&Command::Put { key, value }),
        encoded(&Command::Increment {
            key: &[key, b"n"].concat(),
            delta: 1,
        }),
        encoded(&Command::MultiPut {
            pairs: List::from(&pairs),
        }),
        encoded(&Command::Execute {
            mode: ExecuteMode::AllOrNothing,
            conditions: List::from(&conditions),
            operations: List::from(&operations),
        }),
    ]
}

#[test]
fn every_read_is_checked_wherever_it_is_answered() {
    let mut world = group();
    let leader = world.leader().expect("a leader");
    let follower = (1..=3).find(|&id| id != leader).expect("a follower");
    let ways = [
        (Operation::ReadLinearizable, leader),
        (Operation::ReadHere, leader),
        (Operation::ReadHere, follower),
        (Operation::ReadStale, leader),
        (Operation::ReadStale, follower),
    ];
    for Row {
        who,
        caller,
        reads: may,
        counts,
        ..
    } in rows()
    {
        for (operation, at) in ways {
            let mut asks = |command: &[u8], allowed: bool, what: &str| {
                let request = ClientRequest {
                    command,
                    ..ClientRequest::bare(operation)
                };
                let done = is_done(&mut world, at, caller, &request);
                assert_eq!(done, allowed, "{who}: {operation:?} of {what} at {at}");
            };
            for (key, allowed) in [INSIDE, OUTSIDE].into_iter().zip(may) {
                for command in reads(key) {
                    asks(&command, allowed, &key.escape_ascii().to_string());
                }
            }
            asks(&encoded(&Command::Count), counts, "all keys");
            asks(&encoded(&walk(b"")), counts, "a walk over all keys");
        }
    }
}

#[test]
fn every_write_is_checked() {
    let mut world = group();
    let leader = world.leader().expect("a leader");
    let mut number = 100;
    for Row {
        who,
        caller,
        writes: may,
        ..
    } in rows()
    {
        for operation in [Operation::Apply, Operation::ApplyAndClose] {
            // A flush is last: it removes what the others are about.
            let flush = (
                b"".as_slice(),
                may == [true; 2],
                vec![encoded(&Command::Flush)],
            );
            let of_keys = [INSIDE, OUTSIDE].into_iter().zip(may);
            let of_keys = of_keys.map(|(key, allowed)| (key, allowed, writes(key).to_vec()));
            for (key, allowed, commands) in of_keys.chain([flush]) {
                for command in commands {
                    number += 1;
                    let (client, cluster) = registered(&mut world, caller, number);
                    let request = ClientRequest {
                        operation,
                        timed: false,
                        group: GroupId(0),
                        cluster,
                        client,
                        sequence: 1,
                        lowest_awaited: 1,
                        session_number: number,
                        check: trine_protocol::message::NO_CHECK,
                        for_user: None,
                        command: &command,
                    };
                    let done = is_done(&mut world, leader, caller, &request);
                    let key = key.escape_ascii();
                    assert_eq!(done, allowed, "{who}: {operation:?} of {key}");
                }
            }
        }
    }
}

/// A client session of this caller. One that gets none tries with what it guesses.
fn registered(world: &mut World, caller: Caller, number: u64) -> (u64, ClusterId) {
    let request = ClientRequest {
        client: number,
        ..ClientRequest::bare(Operation::Register)
    };
    let bytes = world.say_as(caller, &request.encode_to_vec());
    let reply = ClientReply::decode(&bytes).expect("a reply");
    (reply.position, reply.cluster)
}
