//! Rolling upgrades: a group with members of two state-machine versions serves, and switches when the last old one is gone.

use trine_replica_harness as harness;

use harness::World;
use trine_kvstore::command::{STATE_VERSION, STATE_VERSION_FIRST, STATE_VERSION_SECOND};
use trine_kvstore::{Command, Response, StoreError};
use trine_protocol::message::{
    AdminCommand, AdminStatus, ClientReply, ClientRequest, ClientStatus, Encode, Operation, kind,
};
use trine_protocol::status::UpgradeStatus;
use trine_replica::ReplicaConfig;
use trine_transport::time::Duration;

const SECOND: Duration = Duration::from_secs(1);

fn old() -> ReplicaConfig {
    ReplicaConfig {
        state_version: STATE_VERSION_FIRST,
        ..ReplicaConfig::default()
    }
}

/// A replica of the newer release takes the place of the one that is there.
pub(crate) fn upgrade(world: &mut World, node_id: u32) {
    replace_by(world, node_id, STATE_VERSION);
}

/// A replica that understands this version takes the place of the one that is there.
fn replace_by(world: &mut World, node_id: u32, version: u8) {
    world.kill(node_id);
    world.run_for(SECOND);
    world.config.state_version = version;
    world.start(node_id, false);
    world.expect("a voter again", SECOND * 10, |world| {
        let status = world.status(node_id);
        status.members.iter().any(|m| m.this && m.voter) && status.members.len() == 3
    });
}

/// The answer to a command of the newer version: nothing if the group has not switched.
fn try_new_command(world: &mut World, client: usize, sequence: u64) -> Result<(), StoreError> {
    let mut command = Vec::new();
    Command::Increment {
        key: b"number",
        delta: 1,
    }
    .encode(&mut command);
    let request = ClientRequest {
        cluster: world.clients[client].cluster,
        client: world.clients[client].id,
        sequence,
        lowest_awaited: sequence,
        session_number: world.clients[client].nonce,
        command: &command,
        ..ClientRequest::bare(Operation::Apply)
    };
    let leader = world.leader().unwrap();
    world.heard_from_replicas.clear();
    world.inject(leader, kind::CLIENT, &request.encode_to_vec());
    world.run_for(Duration::from_millis(20));
    let bytes = world.heard_from_replicas.pop().expect("an answer");
    let reply = ClientReply::decode(&bytes).unwrap();
    assert_eq!(reply.status, ClientStatus::Ok);
    match Response::decode(reply.response).unwrap() {
        Response::Number { .. } => Ok(()),
        Response::Error(error) => Err(error),
        other => panic!("{other:?}"),
    }
}

fn versions(world: &World) -> Vec<u8> {
    let node_ids = world.running().into_iter();
    node_ids
        .map(|node_id| world.status(node_id).state_version)
        .collect()
}

#[test]
fn a_group_switches_when_its_last_old_member_is_gone() {
    let mut world = World::serving(3, old(), 1);
    let client = world.registered_client(1);
    let probe = world.registered_client(1);
    let refused = Err(StoreError::VersionNotActive {
        required: STATE_VERSION_SECOND,
        active: STATE_VERSION_FIRST,
    });
    for (step, node_id) in [1, 2, 3].into_iter().enumerate() {
        assert_eq!(try_new_command(&mut world, probe, 1 + step as u64), refused);
        assert_eq!(versions(&world), [STATE_VERSION_FIRST; 3]);
        upgrade(&mut world, node_id);
        // It serves all the while.
        world.put(client, "k", &node_id.to_string());
        assert_eq!(world.get(client, "k"), Some(node_id.to_string()));
    }
    world.run_for(SECOND * 2);
    assert_eq!(versions(&world), [STATE_VERSION; 3]);
    assert_eq!(try_new_command(&mut world, probe, 10), Ok(()));
    // It was said once.
    let leader = world.leader().unwrap();
    for member in world.status(leader).members {
        assert_eq!(member.state_version, Some(STATE_VERSION));
    }
}

/// The version is a part of the state: a replica that comes later has it from the snapshot.
#[test]
fn a_member_that_joins_after_the_switch_has_the_new_version() {
    let mut world = World::serving(3, ReplicaConfig::default(), 2);
    assert_eq!(versions(&world), [STATE_VERSION; 3]);
    upgrade(&mut world, 2);
    assert_eq!(versions(&world), [STATE_VERSION; 3]);
}

#[test]
fn a_replica_that_is_older_than_its_group_is_told_so() {
    let mut world = World::serving(3, ReplicaConfig::default(), 3);
    let client = world.registered_client(1);
    world.kill(3);
    world.config.state_version = STATE_VERSION_FIRST;
    world.start(3, false);
    world.run_for(SECOND * 3);
    let status = world.status(3);
    let why = status.not_serving.expect("a reason");
    assert!(why.contains("newer state machine than version 1"), "{why}");
    assert!(why.contains("run the group's release"), "{why}");
    world.put(client, "k", "v");
    assert_eq!(world.status(1).members.len(), 3, "it was not taken in");
}

#[test]
fn a_group_begins_with_what_all_of_its_members_understand() {
    let mut world = World::new(3, ReplicaConfig::default(), 4);
    world.config.state_version = STATE_VERSION_FIRST;
    world.start(2, false);
    world.config.state_version = STATE_VERSION;
    world.start(3, false);
    world.start(1, true);
    world.expect("a leader", SECOND * 5, |world| world.leader().is_some());
    world.run_for(SECOND * 2);
    assert_eq!(versions(&world), [STATE_VERSION_FIRST; 3]);
    upgrade(&mut world, 2);
    world.run_for(SECOND * 2);
    assert_eq!(versions(&world), [STATE_VERSION; 3]);
}

/// Three members of the newer release in a group that still runs the old version, whose leader waits for so long.
fn waiting(after: Option<Duration>, seed: u64) -> World {
    let mut world = World::serving(3, old(), seed);
    world.config.upgrade_after = after;
    for node_id in [1, 2, 3] {
        upgrade(&mut world, node_id);
    }
    world.expect("a leader", SECOND * 5, |world| world.leader().is_some());
    // A leader looks at what its members understand once a tick.
    world.run_for(SECOND);
    assert_eq!(versions(&world), [STATE_VERSION_FIRST; 3]);
    world
}

fn upgrade_of(world: &World) -> UpgradeStatus {
    let leader = world.leader().expect("a leader");
    world.status(leader).upgrade.expect("leaders know")
}

/// Until the switch there is a way back, and a day is enough to want it.
#[test]
fn a_group_switches_when_all_have_understood_it_for_long_enough() {
    const HOUR: Duration = Duration::from_secs(3_600);
    let mut world = waiting(Some(HOUR), 11);
    let probe = world.registered_client(1);
    let status = upgrade_of(&world);
    assert_eq!(
        (status.newest, status.understood_by_all),
        (STATE_VERSION, STATE_VERSION)
    );
    assert_eq!((status.lacking, status.silent), (vec![], vec![]));
    let left = status.left_ns.expect("it switches by itself") / 1_000_000_000;
    assert!((3_580..=3_600).contains(&left), "{left} s");
    let Err(StoreError::SwitchWaits {
        required,
        active,
        seconds: Some(seconds),
    }) = try_new_command(&mut world, probe, 1)
    else {
        panic!("the command waits for the switch")
    };
    assert_eq!(
        (required, active),
        (STATE_VERSION_SECOND, STATE_VERSION_FIRST)
    );
    assert!((3_580..=3_600).contains(&seconds), "{seconds} s");
    // Another leader knows nothing of the time that has passed.
    world.run_for(SECOND * 60);
    let before = upgrade_of(&world).left_ns;
    let old_leader = world.leader().unwrap();
    let to = 1 + old_leader % 3;
    world.admin(AdminCommand::TransferLeadership, to, SECOND * 5);
    world.expect("another leader", SECOND * 5, |world| {
        world.leader() == Some(to)
    });
    world.run_for(SECOND);
    assert!(upgrade_of(&world).left_ns > before, "it counts anew");
    assert_eq!(versions(&world), [STATE_VERSION_FIRST; 3]);
}

#[test]
fn the_wait_ends_with_the_switch_and_not_before() {
    let mut world = waiting(Some(SECOND * 20), 12);
    let left = Duration::from_nanos(upgrade_of(&world).left_ns.expect("it waits"));
    world.run_for(left.saturating_sub(SECOND / 2));
    assert_eq!(versions(&world), [STATE_VERSION_FIRST; 3]);
    world.run_for(SECOND);
    assert_eq!(versions(&world), [STATE_VERSION; 3]);
}

/// A member that goes back to the old release begins the wait anew.
#[test]
fn the_wait_begins_anew_when_a_member_went_back() {
    let mut world = waiting(Some(SECOND * 30), 13);
    let other = 1 + world.leader().unwrap() % 3;
    world.run_for(SECOND * 10);
    replace_by(&mut world, other, STATE_VERSION_FIRST);
    world.run_for(SECOND * 40);
    assert_eq!(versions(&world), [STATE_VERSION_FIRST; 3]);
    assert_eq!(upgrade_of(&world).lacking, [other]);
    let (status, text) = world.admin(AdminCommand::FinishUpgrade, 0, SECOND * 5);
    assert_eq!(status, AdminStatus::Refused, "{text}");
    assert!(text.contains(&format!("node {other} ")), "{text}");
    upgrade(&mut world, other);
    let left = upgrade_of(&world).left_ns.expect("it waits");
    assert!(left > 15_000_000_000, "{left} ns");
}

/// The time is over, and one member is silent: it may come back with the older release, and here it does.
#[test]
fn a_member_that_comes_back_older_when_the_time_is_over_holds_the_switch_back() {
    for seed in 20..30 {
        let mut world = waiting(Some(SECOND * 20), seed);
        let other = 1 + world.leader().unwrap() % 3;
        world.kill(other);
        world.run_for(SECOND * 40);
        assert_eq!(versions(&world), [STATE_VERSION_FIRST; 2]);
        assert_eq!(upgrade_of(&world).silent, [other]);
        world.config.state_version = STATE_VERSION_FIRST;
        world.start(other, false);
        world.run_for(SECOND * 10);
        assert_eq!(versions(&world), [STATE_VERSION_FIRST; 3]);
        assert_eq!(upgrade_of(&world).lacking, [other]);
    }
}

#[test]
fn an_operator_switches_where_no_leader_does() {
    let mut world = waiting(None, 14);
    let probe = world.registered_client(1);
    world.run_for(SECOND * 100);
    assert_eq!(versions(&world), [STATE_VERSION_FIRST; 3]);
    let status = upgrade_of(&world);
    assert!(status.by_hand && status.left_ns.is_none(), "{status:?}");
    let waits = StoreError::SwitchWaits {
        required: STATE_VERSION_SECOND,
        active: STATE_VERSION_FIRST,
        seconds: None,
    };
    assert_eq!(try_new_command(&mut world, probe, 1), Err(waits));
    let text = waits.to_string();
    assert!(text.contains("`trine upgrade finish`"), "{text}");
    // One that is silent may come back with any release.
    let other = 1 + world.leader().unwrap() % 3;
    world.pause(other);
    world.run_for(SECOND * 2);
    let (status, text) = world.admin(AdminCommand::FinishUpgrade, 0, SECOND * 5);
    assert_eq!(status, AdminStatus::Refused, "{text}");
    assert!(text.contains(&format!("node {other} is silent")), "{text}");
    assert_eq!(upgrade_of(&world).silent, [other]);
    world.resume(other);
    world.run_for(SECOND * 2);
    let (status, text) = world.admin(AdminCommand::FinishUpgrade, 0, SECOND * 5);
    assert_eq!(status, AdminStatus::Done, "{text}");
    world.run_for(SECOND);
    assert_eq!(versions(&world), [STATE_VERSION; 3]);
    assert_eq!(try_new_command(&mut world, probe, 2), Ok(()));
}

/// Only the leader knows when every member is ready.
#[test]
fn a_client_cannot_switch_the_group() {
    let mut world = World::serving(3, old(), 5);
    let client = world.registered_client(1);
    let mut command = Vec::new();
    Command::RaiseVersion {
        version: STATE_VERSION,
    }
    .encode(&mut command);
    let request = ClientRequest {
        cluster: world.clients[client].cluster,
        client: world.clients[client].id,
        sequence: 1,
        lowest_awaited: 1,
        session_number: world.clients[client].nonce,
        command: &command,
        ..ClientRequest::bare(Operation::Apply)
    };
    world.inject(
        world.leader().unwrap(),
        kind::CLIENT,
        &request.encode_to_vec(),
    );
    world.run_for(SECOND);
    assert_eq!(versions(&world), [STATE_VERSION_FIRST; 3]);
    assert_eq!(world.running().len(), 3);
    world.put(client, "k", "v");
}
