//! The ordered index of a group: from the beginning, built while the group serves, over restarts and upgrades.

use crate::upgrade::upgrade;
use trine_replica_harness as harness;

use harness::client::Wish;
use harness::{World, small};
use trine_kvstore::command::{ORDERED_VERSION, STATE_VERSION};
use trine_kvstore::{Command, KeyRange, Position, Response, ScanOptions, StoreError};
use trine_protocol::message::{ClientReply, ClientRequest, ClientStatus, Encode, Operation, kind};
use trine_protocol::status::OrderedStatus;
use trine_replica::ReplicaConfig;
use trine_transport::time::Duration;

use crate::support::users::encoded;

const SECOND: Duration = Duration::from_secs(1);

/// What a replica answers to a read, and at which position.
fn read(world: &mut World, node_id: u32, operation: Operation, command: &Command<'_>) -> Vec<u8> {
    let command = encoded(command);
    let request = ClientRequest {
        command: &command,
        ..ClientRequest::bare(operation)
    };
    world.heard_from_replicas.clear();
    world.inject(node_id, kind::CLIENT, &request.encode_to_vec());
    world.run_for(Duration::from_millis(60));
    let bytes = world.heard_from_replicas.pop().expect("an answer");
    let reply = ClientReply::decode(&bytes).unwrap();
    assert_eq!(reply.status, ClientStatus::Ok);
    assert!(reply.position > 0);
    reply.response.to_vec()
}

/// The keys that begin with a prefix, as this replica has them.
fn keys(world: &mut World, node_id: u32, operation: Operation, prefix: &[u8]) -> Vec<String> {
    let scan = Command::Scan {
        range: KeyRange::Prefix(prefix),
        options: ScanOptions {
            keys_only: true,
            ..ScanOptions::default()
        },
    };
    let response = read(world, node_id, operation, &scan);
    match Response::decode(&response).unwrap() {
        Response::Items { items, next: None } => items
            .iter()
            .map(|item| String::from_utf8_lossy(item.key).into_owned())
            .collect(),
        other => panic!("{other:?}"),
    }
}

fn states(world: &World) -> Vec<OrderedStatus> {
    let running = world.running().into_iter();
    running
        .map(|node_id| world.status(node_id).store.ordered)
        .collect()
}

fn agree(world: &mut World) {
    world.run_for(SECOND);
    let hashes: Vec<_> = world
        .running()
        .into_iter()
        .map(|node_id| {
            let status = world.status(node_id);
            (status.applied, status.store.hash)
        })
        .collect();
    assert!(hashes.iter().all(|hash| *hash == hashes[0]), "{hashes:?}");
}

#[test]
fn a_group_that_begins_with_an_index_has_it_at_every_replica() {
    let config = ReplicaConfig {
        ordered: true,
        ..small()
    };
    let mut world = World::serving(3, config, 1);
    assert_eq!(states(&world), [OrderedStatus::On; 3]);
    let client = world.registered_client(1);
    for key in ["b/1", "a/2", "a/1"] {
        world.put(client, key, "v");
    }
    let leader = world.leader().unwrap();
    let operation = Operation::ReadLinearizable;
    assert_eq!(keys(&mut world, leader, operation, b"a/"), ["a/1", "a/2"]);
    // Followers ask the leader how far they have to be.
    for node_id in world.running() {
        let here = keys(&mut world, node_id, Operation::ReadHere, b"");
        assert_eq!(here, ["a/1", "a/2", "b/1"]);
        let stale = keys(&mut world, node_id, Operation::ReadStale, b"b");
        assert_eq!(stale, ["b/1"]);
    }
    let delete = Command::DeleteRange {
        range: KeyRange::Prefix(b"a/"),
        count: 10,
    };
    world.get_done(client, Wish::Write(encoded(&delete)));
    assert_eq!(keys(&mut world, leader, operation, b""), ["b/1"]);
    agree(&mut world);
}

/// Nobody writes: the leader itself moves the building on. A replica that comes back meanwhile has it out of a snapshot.
#[test]
fn an_index_is_built_while_the_group_serves() {
    let mut world = World::serving(3, small(), 2);
    let client = world.registered_client(1);
    for number in 0..700 {
        world.put(client, &format!("k{number:03}"), "v");
    }
    let leader = world.leader().unwrap();
    let count = Command::CountRange {
        range: KeyRange::Prefix(b""),
    };
    let operation = Operation::ReadLinearizable;
    let refused = read(&mut world, leader, operation, &count);
    let error = StoreError::NotOrdered { building: false };
    assert_eq!(Response::decode(&refused), Ok(Response::Error(error)));
    let other = world
        .running()
        .into_iter()
        .find(|&id| id != leader)
        .unwrap();
    world.kill(other);
    let on = encoded(&Command::SetOrdered { on: true });
    world.get_done(client, Wish::Write(on.clone()));
    world.expect("a whole index", SECOND, |world| {
        world.status(leader).store.ordered == OrderedStatus::On
    });
    world.start(other, false);
    world.expect("a voter again", SECOND * 10, |world| {
        let status = world.status(other);
        status.members.iter().any(|m| m.this && m.voter) && status.members.len() == 3
    });
    agree(&mut world);
    assert_eq!(states(&world), [OrderedStatus::On; 3]);
    for node_id in world.running() {
        let all = keys(&mut world, node_id, Operation::ReadHere, b"");
        assert_eq!(all.len(), 700);
        assert!(all.is_sorted());
        assert!(world.status(node_id).store.ordered_bytes > 0);
    }
    world.get_done(client, Wish::Write(on));
    assert_eq!(
        states(&world),
        [OrderedStatus::On; 3],
        "again changes nothing"
    );
    let off = encoded(&Command::SetOrdered { on: false });
    world.get_done(client, Wish::Write(off));
    agree(&mut world);
    assert_eq!(states(&world), [OrderedStatus::Off; 3]);
}

/// The leader dies in the middle: its successor goes on.
#[test]
fn building_goes_on_at_the_next_leader() {
    let mut world = World::serving(3, small(), 3);
    let client = world.registered_client(1);
    for number in 0..1_500 {
        world.put(client, &format!("k{number:04}"), "v");
    }
    let leader = world.leader().unwrap();
    let on = encoded(&Command::SetOrdered { on: true });
    world.get_done(client, Wish::Write(on));
    let status = world.status(leader).store.ordered;
    assert!(
        matches!(status, OrderedStatus::Building { .. }),
        "{status:?}"
    );
    world.kill(leader);
    world.expect("a whole index", SECOND * 5, |world| {
        states(world) == [OrderedStatus::On; 2]
    });
    let next = world.leader().unwrap();
    let all = keys(&mut world, next, Operation::ReadLinearizable, b"k");
    assert_eq!(all.len(), 1_500);
}

/// Any replica that was there gives pages at a pin, also after the leader died. One that came out of a snapshot says that it
/// has not kept the state, and the group's states are equal all the same.
#[test]
fn a_pin_survives_the_leader_and_a_replica_out_of_a_snapshot_has_it_not() {
    let config = ReplicaConfig {
        ordered: true,
        ..small()
    };
    let mut world = World::serving(3, config, 6);
    let client = world.registered_client(1);
    for number in 0..20 {
        world.put(client, &format!("k{number:02}"), "before");
    }
    let done = world.get_done(client, Wish::Write(encoded(&Command::Pin)));
    let position = Position::from_u64(done.position);
    world.put(client, "k05", "later");
    let delete = Command::Delete { key: b"k07" };
    world.get_done(client, Wish::Write(encoded(&delete)));
    let leader = world.leader().unwrap();
    world.kill(leader);
    world.expect("a leader", SECOND * 5, |world| world.leader().is_some());
    world.put(client, "k99", "new");
    world.start(leader, false);
    world.expect("a voter again", SECOND * 10, |world| {
        let status = world.status(leader);
        status.members.iter().any(|m| m.this && m.voter) && status.members.len() == 3
    });
    let page = Command::ScanAt {
        position,
        range: KeyRange::Prefix(b""),
        options: ScanOptions::default(),
    };
    for node_id in world.running() {
        let response = read(&mut world, node_id, Operation::ReadHere, &page);
        match Response::decode(&response).unwrap() {
            Response::Items { items, next: None } if node_id != leader => {
                assert_eq!(items.len(), 20);
                let value = |item: trine_kvstore::RangeItem<'_>| item.item.unwrap().value.to_vec();
                assert!(items.iter().all(|item| value(item) == b"before"));
            }
            Response::Error(StoreError::PinNotHere) if node_id == leader => {}
            other => panic!("node {node_id}: {other:?}"),
        }
    }
    agree(&mut world);
    let unpin = Command::Unpin { position };
    world.get_done(client, Wish::Write(encoded(&unpin)));
    agree(&mut world);
    let next = world.leader().unwrap();
    let ended = read(&mut world, next, Operation::ReadLinearizable, &page);
    let error = Response::Error(StoreError::PinEnded);
    assert_eq!(Response::decode(&ended), Ok(error));
}

/// Two scans come one right after the other. With a write between them the second has to wait, and without one it need not.
#[test]
fn a_scan_right_behind_another_gives_way_to_writers() {
    let config = ReplicaConfig {
        ordered: true,
        ..small()
    };
    let mut world = World::serving(3, config, 7);
    let client = world.registered_client(1);
    let leader = world.leader().unwrap();
    let scan = encoded(&Command::Scan {
        range: KeyRange::Prefix(b""),
        options: ScanOptions::default(),
    });
    let request = ClientRequest {
        command: &scan,
        ..ClientRequest::bare(Operation::ReadLinearizable)
    };
    let asked = |world: &mut World| {
        world.heard_from_replicas.clear();
        world.inject(leader, kind::CLIENT, &request.encode_to_vec());
        world.run_for(Duration::from_millis(10));
        let bytes = world.heard_from_replicas.pop().expect("an answer");
        ClientReply::decode(&bytes).unwrap().status
    };
    world.put(client, "k", "v");
    assert_eq!(asked(&mut world), ClientStatus::Ok);
    assert_eq!(asked(&mut world), ClientStatus::Ok);
    world.put(client, "k", "v");
    assert_eq!(asked(&mut world), ClientStatus::Busy);
    assert_eq!(world.status(leader).counters.scans_deferred, 1);
    world.run_for(Duration::from_millis(40));
    assert_eq!(asked(&mut world), ClientStatus::Ok);
}

#[test]
fn a_group_of_the_release_before_gets_its_index_after_the_upgrade() {
    let before = ReplicaConfig {
        state_version: ORDERED_VERSION - 1,
        ..small()
    };
    let mut world = World::serving(3, before, 4);
    let client = world.registered_client(1);
    world.put(client, "k", "v");
    let leader = world.leader().unwrap();
    let scan = Command::CountRange {
        range: KeyRange::Prefix(b""),
    };
    let refused = read(&mut world, leader, Operation::ReadLinearizable, &scan);
    // A read is answered by the state, which has no index then.
    let error = StoreError::NotOrdered { building: false };
    assert_eq!(Response::decode(&refused), Ok(Response::Error(error)));
    for node_id in [1, 2, 3] {
        upgrade(&mut world, node_id);
    }
    world.run_for(SECOND * 2);
    let on = encoded(&Command::SetOrdered { on: true });
    world.get_done(client, Wish::Write(on));
    world.run_for(SECOND);
    assert_eq!(states(&world), [OrderedStatus::On; 3]);
    let leader = world.leader().unwrap();
    let all = keys(&mut world, leader, Operation::ReadLinearizable, b"");
    assert_eq!(all, ["k"]);
    agree(&mut world);
}

/// It would begin without the index that was asked for, and nobody would know.
#[test]
fn a_group_with_an_index_does_not_begin_with_a_peer_of_the_release_before() {
    let config = ReplicaConfig {
        ordered: true,
        ..ReplicaConfig::default()
    };
    let mut world = World::new(3, config, 5);
    world.config.ordered = false;
    world.config.state_version = ORDERED_VERSION - 1;
    world.start(2, false);
    world.config.ordered = true;
    world.config.state_version = STATE_VERSION;
    world.start(3, false);
    world.start(1, true);
    world.run_for(SECOND * 2);
    assert_eq!(world.leader(), None);
    let why = world.status(1).not_serving.expect("a reason");
    assert!(why.contains("node 2") && why.contains("--ordered"), "{why}");
    world.kill(2);
    world.start(2, false);
    world.expect("a leader", SECOND * 5, |world| world.leader().is_some());
    world.run_for(SECOND);
    assert_eq!(states(&world), [OrderedStatus::On; 3]);
}
