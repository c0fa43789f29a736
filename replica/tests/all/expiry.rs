//! Keys that expire together: the leader says in each entry how many of them go, and all replicas agree on that.

use trine_replica_harness as harness;

use super::upgrade::upgrade;
use harness::World;
use harness::client::Wish;
use trine_kvstore::command::{STATE_VERSION, SWEEP_VERSION};
use trine_kvstore::{Command, ExecuteMode, KeyRange, List, Response, SetExpiry, SetOptions};
use trine_protocol::message::{ClientReply, ClientRequest, ClientStatus, Encode, Operation, kind};
use trine_replica::ReplicaConfig;
use trine_transport::time::Duration;

const SECOND: Duration = Duration::from_secs(1);
const MILLISECOND: Duration = Duration::from_millis(1);

/// So many keys that live for so long from about now on.
fn write_burst(world: &mut World, client: usize, keys: u32, after: Duration) {
    for first in (0..keys).step_by(500) {
        let names: Vec<[u8; 4]> = (first..keys.min(first + 500))
            .map(u32::to_le_bytes)
            .collect();
        let set = |key| Command::Set {
            key,
            value: b"",
            options: SetOptions {
                expiry: SetExpiry::After(after.as_nanos()),
                ..SetOptions::default()
            },
        };
        let operations: Vec<Command<'_>> = names.iter().map(|key| set(key)).collect();
        let mut bytes = Vec::new();
        Command::Execute {
            mode: ExecuteMode::Independent,
            conditions: List::default(),
            operations: List::from(operations.as_slice()),
        }
        .encode(&mut bytes);
        let outcome = world.get_done(client, Wish::Write(bytes));
        assert_eq!(outcome.status, ClientStatus::Ok);
    }
}

fn items(world: &World, node_id: u32) -> u64 {
    world.status(node_id).store.items
}

/// Runs until no replica has an item, and returns how long that took. At each step replicas that have applied the same
/// entries are in the same state.
fn sweep_ends(world: &mut World, most: Duration) -> Duration {
    let began = world.now;
    loop {
        let mut states = std::collections::BTreeMap::new();
        for node_id in world.running() {
            if let Some((applied, hash)) = world.replica(node_id).applied_state() {
                assert_eq!(*states.entry(applied).or_insert(hash), hash, "at {applied}");
            }
        }
        if world
            .running()
            .iter()
            .all(|&node_id| items(world, node_id) == 0)
        {
            return world.now.saturating_since(began);
        }
        let waited = world.now.saturating_since(began);
        assert!(waited < most, "still there after {waited:?}");
        world.run_for(MILLISECOND);
    }
}

fn quiet_until_due(world: &mut World, keys: u32) {
    let leader = world.leader().unwrap();
    assert_eq!(items(world, leader), u64::from(keys));
}

/// 64 items in 10 ms: these would have taken 1.5 s.
#[test]
fn keys_that_expire_together_are_removed_together() {
    const KEYS: u32 = 10_000;
    let mut world = World::serving(3, ReplicaConfig::default(), 41);
    let client = world.registered_client(1);
    write_burst(&mut world, client, KEYS, SECOND);
    quiet_until_due(&mut world, KEYS);
    let leader = world.leader().unwrap();
    world.expect("the first is removed", SECOND * 2, |world| {
        items(world, leader) < u64::from(KEYS)
    });
    // The commands of the burst came one after the other: so do the ends.
    let took = sweep_ends(&mut world, SECOND);
    assert!(took < MILLISECOND * 150, "{took:?}");
    // A group that has nothing to remove is quiet again.
    let ticks = world.status(leader).counters.ticks_proposed;
    world.run_for(SECOND);
    assert_eq!(world.status(leader).counters.ticks_proposed, ticks);
}

#[test]
fn the_sweep_goes_on_under_another_leader_and_at_a_replica_that_comes_back() {
    const KEYS: u32 = 30_000;
    let mut world = World::serving(3, ReplicaConfig::default(), 42);
    let client = world.registered_client(1);
    write_burst(&mut world, client, KEYS, SECOND * 2);
    let leader = world.leader().unwrap();
    let follower = world
        .running()
        .into_iter()
        .find(|&other| other != leader)
        .unwrap();
    world.kill(follower);
    world.run_for(SECOND);
    world.expect("the sweep has begun", SECOND * 4, |world| {
        items(world, leader) < u64::from(KEYS)
    });
    // Its snapshot is taken in the middle.
    world.start(follower, false);
    world.run_for(MILLISECOND * 5);
    world.expect("it is back", SECOND * 10, |world| {
        let status = world.status(follower);
        status
            .members
            .iter()
            .any(|member| member.this && member.voter)
    });
    sweep_ends(&mut world, SECOND * 3);

    let client = world.registered_client(1);
    write_burst(&mut world, client, KEYS, SECOND * 2);
    let leader = world.leader().unwrap();
    world.expect("the sweep has begun", SECOND * 4, |world| {
        items(world, leader) < u64::from(KEYS)
    });
    assert!(items(&world, leader) > 0, "in the middle");
    world.kill(leader);
    world.expect("another leads", SECOND * 5, |world| {
        world.leader().is_some_and(|other| other != leader)
    });
    sweep_ends(&mut world, SECOND * 3);
}

/// A member of the older release removes 64 items an entry, whatever the entry says.
#[test]
fn a_group_with_an_older_member_removes_as_few_as_that_does() {
    const KEYS: u32 = 3_000;
    let old = ReplicaConfig {
        state_version: SWEEP_VERSION - 1,
        ..ReplicaConfig::default()
    };
    let mut world = World::serving(3, old, 43);
    for node_id in [1, 2] {
        upgrade(&mut world, node_id);
    }
    let client = world.registered_client(1);
    // A leader of the newer release.
    let is_new = |world: &World| world.leader().is_some_and(|leader| leader != 3);
    if !is_new(&world) {
        world.pause(3);
        world.run_for(SECOND * 2);
        world.resume(3);
        world.run_for(SECOND);
    }
    assert!(is_new(&world));
    write_burst(&mut world, client, KEYS, SECOND);
    let leader = world.leader().unwrap();
    world.expect("the first is removed", SECOND * 2, |world| {
        items(world, leader) < u64::from(KEYS)
    });
    let took = sweep_ends(&mut world, SECOND * 3);
    let least = u64::from(KEYS / 64 - 6) * 10;
    assert!(took >= Duration::from_millis(least), "{took:?}");
    upgrade(&mut world, 3);
    world.run_for(SECOND * 2);
    for node_id in world.running() {
        assert_eq!(world.status(node_id).state_version, STATE_VERSION);
    }
    write_burst(&mut world, client, KEYS, SECOND);
    let leader = world.leader().unwrap();
    world.expect("the first is removed", SECOND * 2, |world| {
        items(world, leader) < u64::from(KEYS)
    });
    let took = sweep_ends(&mut world, SECOND);
    assert!(took < Duration::from_millis(least / 3), "{took:?}");
}

/// A COUNT failed while too many expired keys were left, and a caller could only ask again.
#[test]
fn a_count_waits_for_the_sweep() {
    const KEYS: u32 = 40_000;
    let config = ReplicaConfig {
        ordered: true,
        ..ReplicaConfig::default()
    };
    let mut world = World::serving(3, config, 44);
    let client = world.registered_client(1);
    world.put(client, "stays", "v");
    let longest = Duration::from_millis(1_500);
    write_burst(&mut world, client, KEYS, longest);
    let leader = world.leader().unwrap();
    world.expect("the first is removed", SECOND * 3, |world| {
        items(world, leader) < u64::from(KEYS)
    });
    let ask = |command: &Command<'_>, world: &mut World| {
        let mut bytes = Vec::new();
        command.encode(&mut bytes);
        let request = ClientRequest {
            cluster: world.clients[client].cluster,
            command: &bytes,
            ..ClientRequest::bare(Operation::ReadLinearizable)
        };
        world.inject(leader, kind::CLIENT, &request.encode_to_vec());
    };
    // More are due from one moment on than a count can leave out.
    world.run_for(MILLISECOND * 10);
    world.heard_from_replicas.clear();
    ask(&Command::Count, &mut world);
    let range = KeyRange::Prefix(b"");
    ask(&Command::CountRange { range }, &mut world);
    world.expect("both answers", SECOND * 3, |world| {
        world.heard_from_replicas.len() >= 2
    });
    for bytes in &world.heard_from_replicas {
        let reply = ClientReply::decode(bytes).unwrap();
        assert_eq!(reply.status, ClientStatus::Ok);
        let response = Response::decode(reply.response).unwrap();
        assert!(matches!(response, Response::Count { .. }), "{response:?}");
    }
}
