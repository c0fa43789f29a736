//! Scenarios of a whole group on virtual time, told step by step.

use trine_replica_harness as harness;

use harness::client::Wish;
use harness::{World, address, small};
use prost::Message as _;
use raft::eraftpb::{Entry, Message, MessageType};
use trine_kvstore::{Command, SetExpiry, SetOptions};
use trine_protocol::message::{
    AppendFrame, ClientRequest, ClientStatus, ClusterId, Encode, GroupId, Operation, PeerHeader,
    kind,
};
use trine_protocol::status::Role;
use trine_replica::ReplicaConfig;
use trine_transport::time::Duration;

const SECOND: Duration = Duration::from_secs(1);

fn voters(world: &World, node_id: u32) -> usize {
    world
        .status(node_id)
        .members
        .iter()
        .filter(|member| member.voter)
        .count()
}

fn leaders(world: &World) -> usize {
    world
        .running()
        .into_iter()
        .filter(|&node_id| world.status(node_id).role == Role::Leader)
        .count()
}

fn other_than(world: &World, node_id: u32) -> u32 {
    world
        .running()
        .into_iter()
        .find(|&other| other != node_id)
        .unwrap()
}

#[test]
fn three_five_and_seven_replicas_begin_and_elect_one_leader() {
    for count in [1, 3, 5, 7] {
        let mut world = World::serving(count, ReplicaConfig::default(), 1);
        world.run_for(SECOND);
        assert_eq!(leaders(&world), 1);
        let leader = world.leader().unwrap();
        for node_id in world.running() {
            let status = world.status(node_id);
            assert_eq!(status.leader, Some(address(leader)));
            assert_eq!(status.members.len(), count as usize);
            assert_eq!(status.not_serving, None);
        }
    }
}

#[test]
fn what_is_written_is_read_and_every_replica_applies_it() {
    let mut world = World::serving(3, ReplicaConfig::default(), 2);
    let client = world.registered_client(1);
    let first = world.put(client, "k", "one");
    let second = world.put(client, "k", "two");
    assert!(second.position > first.position);
    let read = world.get_done(client, Wish::Get("k".into()));
    assert_eq!(read.value, Some((b"two".to_vec(), second.position)));
    assert!(
        read.position >= second.position,
        "a read's position is what it has seen"
    );
    assert_eq!(world.get(client, "absent"), None);

    world.run_for(SECOND);
    for node_id in world.running() {
        let outcome = {
            let client = world.add_client(node_id);
            world.clients[client].gives_up = true;
            world.get_done(client, Wish::StaleGet("k".into()))
        };
        assert_eq!(outcome.value, Some((b"two".to_vec(), second.position)));
    }
}

#[test]
fn a_follower_names_the_leader() {
    let mut world = World::serving(3, ReplicaConfig::default(), 3);
    let follower = other_than(&world, world.leader().unwrap());
    let client = world.add_client(follower);
    let outcome = world.get_done(client, Wish::Register);
    assert_eq!((outcome.status, outcome.attempts), (ClientStatus::Ok, 2));
    assert_eq!(
        world.clients[client].heard,
        [ClientStatus::NotLeader, ClientStatus::Ok]
    );
}

#[test]
fn a_new_leader_has_everything_that_was_acknowledged() {
    for seed in 0..10 {
        let mut world = World::serving(3, ReplicaConfig::default(), seed);
        let client = world.registered_client(1);
        for n in 0..20 {
            world.put(client, &format!("k{n}"), "v");
        }
        let old = world.leader().unwrap();
        world.kill(old);
        let killed = world.now;
        world.put(client, "after", "v");
        let failover = world.now.saturating_since(killed);
        assert!(failover < Duration::from_millis(700), "{failover:?}");
        assert_ne!(world.leader(), Some(old));
        for n in 0..20 {
            assert_eq!(world.get(client, &format!("k{n}")).as_deref(), Some("v"));
        }
    }
}

/// The leader commits and applies a write, and dies before its answer arrives. The client asks the next leader with the
/// same sequence, and has to get the first answer: the same position, and no second application.
#[test]
fn a_write_whose_answer_died_with_the_leader_is_not_applied_twice() {
    let mut world = World::serving(3, ReplicaConfig::default(), 4);
    let writer = world.registered_client(1);
    let other = world.registered_client(1);
    world.put(writer, "k", "zero");
    let leader = world.leader().unwrap();
    let before = world.status(leader).applied;
    world.mute.insert(leader);
    world.ask_at(writer, leader, Wish::Put("k".into(), "one".into()));
    world.expect("an applied write", SECOND, |world| {
        world.status(leader).applied > before
    });
    world.kill(leader);
    // Another command overwrites it first.
    let overwrite = world.put(other, "k", "two");
    let outcome = world.outcome(writer);
    assert_eq!(outcome.status, ClientStatus::Ok);
    assert!(outcome.attempts > 1);
    assert!(
        outcome.position < overwrite.position,
        "the answer is that of the first application"
    );
    assert_eq!(
        world.get(other, "k").as_deref(),
        Some("two"),
        "the retry must not come to pass again"
    );
    let duplicates: u64 = world
        .running()
        .into_iter()
        .map(|node_id| world.status(node_id).sessions.duplicates)
        .sum();
    assert!(duplicates > 0);
}

/// The old leader is cut off, and does not know yet that it no longer leads. It must not answer a linearizable read
/// from its own store, however often it is asked.
#[test]
fn a_leader_that_was_cut_off_never_answers_a_stale_read() {
    for seed in 0..10 {
        let mut world = World::serving(3, ReplicaConfig::default(), seed);
        let client = world.registered_client(1);
        world.put(client, "k", "old");
        let old = world.leader().unwrap();
        let rest: Vec<u32> = world
            .running()
            .into_iter()
            .filter(|&node_id| node_id != old)
            .collect();
        world.partition(&[old], &rest);
        let reader = world.add_client(old);
        world.clients[reader].gives_up = true;
        world.clients[reader].patience = Duration::from_secs(30);
        world.ask_at(reader, old, Wish::Get("k".into()));
        world.clients[client].patience = Duration::from_millis(20);
        world.ask_at(client, rest[0], Wish::Put("k".into(), "new".into()));
        assert_eq!(world.outcome(client).status, ClientStatus::Ok);
        let outcome = world.outcome(reader);
        let honest = outcome.status != ClientStatus::Ok
            || outcome.value.as_ref().is_some_and(|(v, _)| v == b"new");
        assert!(honest, "{outcome:?}");
        // And it is still willing to answer a stale one, without any quorum.
        let stale = world.add_client(old);
        world.ask_at(stale, old, Wish::StaleGet("k".into()));
        assert_eq!(
            world.outcome(stale).value.map(|(value, _)| value),
            Some(b"old".to_vec())
        );
    }
}

/// A leader that was paused for seconds wakes up with a read in its queue.
#[test]
fn a_leader_that_was_paused_never_answers_a_stale_read() {
    for seed in 0..10 {
        let mut world = World::serving(3, ReplicaConfig::default(), seed);
        let client = world.registered_client(1);
        world.put(client, "k", "old");
        let old = world.leader().unwrap();
        world.pause(old);
        let reader = world.add_client(old);
        world.clients[reader].gives_up = true;
        world.clients[reader].patience = Duration::from_secs(30);
        world.ask_at(reader, old, Wish::Get("k".into()));
        world.ask_at(
            client,
            other_than(&world, old),
            Wish::Put("k".into(), "new".into()),
        );
        world.clients[client].patience = Duration::from_millis(20);
        assert_eq!(world.outcome(client).status, ClientStatus::Ok);
        world.run_for(Duration::from_secs(3));
        world.resume(old);
        let outcome = world.outcome(reader);
        let honest = outcome.status != ClientStatus::Ok
            || outcome.value.as_ref().is_some_and(|(v, _)| v == b"new");
        assert!(honest, "{outcome:?}");
    }
}

#[test]
fn a_follower_that_the_log_cannot_help_any_more_gets_a_snapshot() {
    let mut world = World::serving(3, small(), 5);
    let client = world.registered_client(1);
    let leader = world.leader().unwrap();
    let behind = other_than(&world, leader);
    world.isolate(behind);
    for n in 0..1000 {
        world.put(client, &format!("k{}", n % 300), &format!("v{n}"));
    }
    let log = world.status(leader).log;
    assert!(log.compactions > 0 && log.entries <= 201, "{log:?}");
    assert!(world.status(behind).applied < log.first_index);
    world.heal();
    world.expect("caught up follower", Duration::from_secs(5), |world| {
        world.status(behind).applied == world.status(leader).applied
    });
    assert!(world.status(behind).counters.snapshots_installed > 0);
    let reader = world.add_client(behind);
    for n in 700..1000 {
        let outcome = {
            world.ask_at(
                reader,
                behind,
                Wish::StaleGet(format!("k{}", n % 300).into()),
            );
            world.outcome(reader)
        };
        assert_eq!(
            outcome.value.map(|(value, _)| value),
            Some(format!("v{n}").into_bytes())
        );
    }
    assert_eq!(world.status(behind).store, world.status(leader).store);
}

/// The state is written chunk by chunk while clients go on overwriting it, over a link that loses chunks. The state
/// that arrives is that of one index, and the log from there on is still there.
#[test]
fn a_snapshot_travels_while_the_group_serves() {
    for seed in 0..5 {
        let config = ReplicaConfig {
            log_bytes_max: 256 << 10,
            ..small()
        };
        let mut world = World::serving(3, config, seed);
        let clients: Vec<usize> = (0..4).map(|_| world.registered_client(1)).collect();
        let leader = world.leader().unwrap();
        let behind = other_than(&world, leader);
        world.isolate(behind);
        let value = vec![7; 2000];
        for n in 0..600_u32 {
            let key = (n % 400).to_le_bytes().to_vec();
            world.get_done(clients[0], Wish::Put(key, value.clone()));
        }
        world.heal();
        world.loss = "10%".parse().unwrap();
        let from = world.status(leader).applied;
        let mut n = 0_u32;
        let end = world.now + SECOND * 20;
        let (mut bytes, mut steps) = (0, 0);
        while world.status(behind).counters.snapshots_installed == 0 {
            if let Some(receiving) = world.status(behind).receiving {
                assert!(receiving.bytes <= receiving.bytes_total, "{receiving:?}");
                steps += u32::from(receiving.bytes > bytes);
                bytes = receiving.bytes;
            }
            assert!(world.now < end, "seed {seed}: {:#?}", world.status(leader));
            for &client in &clients {
                if world.clients[client].is_idle() {
                    n += 1;
                    let key = (n * 7 % 400).to_le_bytes().to_vec();
                    world.ask(client, Wish::Put(key, n.to_le_bytes().to_vec()));
                }
            }
            world.run_for(Duration::from_millis(1));
        }
        assert!(
            world.status(leader).applied > from + 20,
            "the group served meanwhile"
        );
        assert!(steps > 1, "seed {seed}: seen at {steps} stages");
        assert_eq!(world.status(behind).receiving, None);
        world.loss = "0%".parse().unwrap();
        world.expect("equal replicas", SECOND * 10, |world| {
            let (a, b) = (world.status(behind), world.status(leader));
            a.applied == b.applied && a.applied == b.log.last_index
        });
        assert_eq!(world.status(behind).store, world.status(leader).store);
        assert_eq!(
            world.status(behind).sessions.reply_bytes,
            world.status(leader).sessions.reply_bytes
        );
    }
}

/// Kills `node_id`, starts it again without any memory, and waits until it votes.
fn replace(world: &mut World, node_id: u32) {
    world.kill(node_id);
    world.run_for(Duration::from_millis(50));
    world.start(node_id, false);
    let incarnation = world.replica(node_id).incarnation().to_string();
    let size = world.machines.len();
    world.expect("a promoted replica", Duration::from_secs(10), |world| {
        let status = world.status(node_id);
        let votes = status
            .members
            .iter()
            .any(|member| member.incarnation == incarnation && member.voter);
        votes && status.members.len() == size && !status.change_in_progress
    });
}

/// The replicas are replaced one after the other, the leader included: the group lives on although none of its first
/// members does.
#[test]
fn a_replica_without_memory_comes_back_as_a_new_identity() {
    for seed in 0..5 {
        let mut world = World::serving(3, small(), seed);
        let client = world.registered_client(1);
        let first: Vec<String> = world
            .status(1)
            .members
            .into_iter()
            .map(|member| member.incarnation)
            .collect();
        for round in 0..2 {
            for node_id in [1, 2, 3] {
                world.put(client, "k", &format!("{round}{node_id}"));
                replace(&mut world, node_id);
                assert_eq!(world.get(client, "k"), Some(format!("{round}{node_id}")));
                assert_eq!(voters(&world, node_id), 3);
            }
        }
        let last: Vec<String> = world
            .status(1)
            .members
            .into_iter()
            .map(|member| member.incarnation)
            .collect();
        assert!(first.iter().all(|incarnation| !last.contains(incarnation)));
    }
}

/// Two processes claim one node id, and the first of them is alive: the second has to stay outside.
#[test]
fn a_node_id_that_is_taken_is_not_given_away() {
    let mut world = World::serving(3, ReplicaConfig::default(), 6);
    world.run_for(SECOND);
    world.claim(2);
    world.run_for(SECOND);
    for node_id in world.running() {
        assert_eq!(world.status(node_id).members.len(), 3);
    }
}

/// After the loss of a majority's memory the group stays down, and says so; new processes do not begin a new one.
#[test]
fn a_group_that_has_lost_its_majority_stays_down() {
    let mut world = World::serving(3, ReplicaConfig::default(), 7);
    let client = world.registered_client(1);
    world.put(client, "k", "v");
    let leader = world.leader().unwrap();
    let rest: Vec<u32> = world
        .running()
        .into_iter()
        .filter(|&node_id| node_id != leader)
        .collect();
    for &node_id in &rest {
        world.kill(node_id);
        world.start(node_id, false);
    }
    world.run_for(Duration::from_secs(5));
    assert_eq!(world.leader(), None);
    let why = world.status(leader).not_serving.unwrap();
    assert!(why.contains("no quorum: 1 of 3"), "{why}");
    for &node_id in &rest {
        assert_eq!(world.status(node_id).role, Role::Unattached);
        assert!(world.status(node_id).not_serving.is_some());
    }
    world.clients[client].gives_up = true;
    world.ask_at(client, leader, Wish::Put("k".into(), "w".into()));
    assert_eq!(world.outcome(client).status, ClientStatus::NoQuorum);
    let stale = world.add_client(leader);
    world.ask_at(stale, leader, Wish::StaleGet("k".into()));
    assert_eq!(
        world.outcome(stale).value.map(|(value, _)| value),
        Some(b"v".to_vec())
    );
}

#[test]
fn a_client_of_another_cluster_is_told_so() {
    let mut world = World::serving(3, ReplicaConfig::default(), 8);
    let client = world.registered_client(1);
    world.clients[client].cluster = ClusterId(12345);
    let outcome = world.get_done(client, Wish::Put("k".into(), "v".into()));
    assert_eq!(outcome.status, ClientStatus::WrongCluster);
    let outcome = world.get_done(client, Wish::Get("k".into()));
    assert_eq!(outcome.status, ClientStatus::WrongCluster);
}

#[test]
fn a_session_that_never_was_is_refused_through_the_log() {
    let mut world = World::serving(3, ReplicaConfig::default(), 9);
    let client = world.registered_client(1);
    world.clients[client].id += 1;
    let outcome = world.get_done(client, Wish::Put("k".into(), "v".into()));
    assert_eq!(outcome.status, ClientStatus::SessionExpired);
    assert_eq!(world.get(client, "k"), None);
}

#[test]
fn bootstrap_waits_for_every_named_peer() {
    let mut world = World::new(3, ReplicaConfig::default(), 10);
    world.start(1, true);
    world.start(2, false);
    world.run_for(Duration::from_secs(3));
    assert_eq!(world.leader(), None);
    let why = world.status(1).not_serving.unwrap();
    assert!(
        why.contains("no answer from node 3 at 10.0.0.3:7471"),
        "{why}"
    );
    assert_eq!(world.status(2).role, Role::Unattached);
    world.start(3, false);
    world.expect("a leader", SECOND, |world| world.leader().is_some());
}

#[test]
fn without_bootstrap_nobody_begins() {
    let mut world = World::new(3, ReplicaConfig::default(), 11);
    (1..=3).for_each(|node_id| world.start(node_id, false));
    world.run_for(Duration::from_secs(5));
    assert_eq!(world.leader(), None);
    assert!(world.status(1).not_serving.unwrap().contains("--bootstrap"));
    let client = world.add_client(1);
    world.clients[client].gives_up = true;
    assert_eq!(
        world.get_done(client, Wish::Register).status,
        ClientStatus::NotAttached
    );
}

#[test]
fn bootstrapping_an_existing_group_joins_it_instead() {
    let mut world = World::serving(3, ReplicaConfig::default(), 12);
    let client = world.registered_client(1);
    world.put(client, "k", "v");
    let cluster = world.status(1).cluster;
    world.kill(1);
    world.start(1, true);
    world.expect("joined replica", Duration::from_secs(10), |world| {
        let status = world.status(1);
        status.cluster == cluster
            && status
                .members
                .iter()
                .any(|member| member.this && member.voter)
    });
    assert_eq!(world.get(client, "k").as_deref(), Some("v"));
}

#[test]
fn of_several_bootstrappers_one_prevails() {
    for seed in 0..40 {
        let mut world = World::new(3, ReplicaConfig::default(), seed);
        world.loss = "10%".parse().unwrap();
        for node_id in [3, 1, 2] {
            world.start(node_id, node_id != 2 || seed % 2 == 0);
        }
        world.expect("a leader", Duration::from_secs(5), |world| {
            world.leader().is_some()
        });
        world.run_for(Duration::from_secs(2));
        let clusters: Vec<_> = (1..=3)
            .map(|node_id| world.status(node_id).cluster)
            .collect();
        assert!(
            clusters
                .iter()
                .all(|cluster| cluster.is_some() && *cluster == clusters[0]),
            "seed {seed}: {clusters:?}"
        );
        assert_eq!(voters(&world, 1), 3);
    }
}

/// The bootstrapper dies in the middle of telling its peers. A peer that was told must find the others, or be found.
#[test]
fn a_bootstrapper_that_dies_halfway_leaves_no_stuck_group() {
    for step in 0..40 {
        let mut world = World::new(3, ReplicaConfig::default(), 13);
        world.start(2, false);
        world.start(3, false);
        world.start(1, true);
        world.run_for(Duration::from_micros(20 * step));
        world.kill(1);
        world.run_for(Duration::from_secs(1));
        world.start(1, true);
        world.expect("three voters", Duration::from_secs(10), |world| {
            world.leader().is_some_and(|leader| {
                voters(world, leader) == 3
                    && world.status(1).members.iter().any(|m| m.this && m.voter)
            })
        });
    }
}

#[test]
fn a_graceful_stop_transfers_leadership_first() {
    let mut world = World::serving(3, ReplicaConfig::default(), 14);
    let client = world.registered_client(1);
    world.put(client, "k", "v");
    world.run_for(Duration::from_millis(200));
    let leader = world.leader().unwrap();
    let now = world.now;
    world
        .machines
        .get_mut(&leader)
        .unwrap()
        .replica
        .as_mut()
        .unwrap()
        .stop(now);
    world.expect("a stopped leader", Duration::from_millis(300), |world| {
        world.replica(leader).is_stopped(world.now)
    });
    assert!(
        world.now.saturating_since(now) < Duration::from_millis(50),
        "without waiting for an election timeout"
    );
    world.kill(leader);
    world.put(client, "k", "w");
    assert!(world.now.saturating_since(now) < Duration::from_millis(150));
}

#[test]
fn too_many_waiting_requests_are_told_to_come_back() {
    let config = ReplicaConfig {
        pending_requests_max: 8,
        ..ReplicaConfig::default()
    };
    let mut world = World::serving(3, config, 15);
    let leader = world.leader().unwrap();
    let clients: Vec<usize> = (0..12).map(|_| world.registered_client(leader)).collect();
    // Without followers nothing commits, so everything waits.
    world.isolate(leader);
    for &client in &clients {
        world.clients[client].gives_up = true;
        world.clients[client].patience = Duration::from_secs(5);
        world.ask_at(client, leader, Wish::Put("k".into(), "v".into()));
    }
    world.run_for(Duration::from_millis(5));
    let busy = clients
        .iter()
        .filter(|&&client| world.clients[client].heard.contains(&ClientStatus::Busy))
        .count();
    assert_eq!(busy, 4);
    // The others learn that leadership was lost, not that nothing happened.
    world.run_for(SECOND);
    let lost = clients
        .iter()
        .filter(|&&c| {
            world.clients[c]
                .heard
                .contains(&ClientStatus::LeadershipLost)
        })
        .count();
    assert_eq!(lost, 8);
}

fn put_that_expires(key: &[u8], after: Duration) -> Wish {
    let options = SetOptions {
        expiry: SetExpiry::After(after.as_nanos()),
        ..SetOptions::default()
    };
    let mut bytes = Vec::new();
    Command::Set {
        key,
        value: b"v",
        options,
    }
    .encode(&mut bytes);
    Wish::Write(bytes)
}

/// No client writes, so only the leader's own entry can move group time to the key's end.
#[test]
fn a_key_expires_on_time_in_a_quiet_group() {
    let mut world = World::serving(3, ReplicaConfig::default(), 16);
    let client = world.registered_client(1);
    world.put(client, "stays", "v");
    world.get_done(client, put_that_expires(b"goes", SECOND));
    let written = world.now;
    while world.get(client, "goes").is_some() {
        assert!(world.now.saturating_since(written) < Duration::from_secs(2));
        world.run_for(Duration::from_millis(1));
    }
    let lived = world.now.saturating_since(written);
    assert!(lived >= SECOND, "never early: {lived:?}");
    assert!(
        lived < SECOND + Duration::from_millis(25),
        "a pause and a commit late: {lived:?}"
    );
    assert_eq!(world.get(client, "stays").as_deref(), Some("v"));
    let leader = world.leader().unwrap();
    let ticks = world.status(leader).counters.ticks_proposed;
    world.run_for(SECOND);
    assert_eq!(
        world.status(leader).counters.ticks_proposed,
        ticks,
        "a quiet group stays quiet"
    );
}

/// Without a leader group time does not advance, whatever the clocks of the replicas do meanwhile.
#[test]
fn group_time_does_not_advance_without_a_leader() {
    let mut world = World::serving(3, ReplicaConfig::default(), 17);
    let client = world.registered_client(1);
    world.get_done(client, put_that_expires(b"k", SECOND));
    let leader = world.leader().unwrap();
    let rest: Vec<u32> = world
        .running()
        .into_iter()
        .filter(|&node_id| node_id != leader)
        .collect();
    world.partition(&[1], &[2, 3]);
    world.partition(&[2], &[3]);
    world.run_for(Duration::from_secs(20));
    world.heal();
    let client = world.add_client(rest[0]);
    world.clients[client].patience = Duration::from_millis(20);
    assert_eq!(
        world.get(client, "k").as_deref(),
        Some("v"),
        "the time without a leader does not count"
    );
    world.run_for(Duration::from_millis(1100));
    assert_eq!(world.get(client, "k"), None);
}

/// An entry that the leader never made gets into one follower, as if its memory had broken. The log goes on above it as
/// if nothing had happened, and only the state differs.
#[test]
fn a_replica_whose_state_differs_halts() {
    let mut world = World::serving(3, ReplicaConfig::default(), 18);
    let client = world.registered_client(1);
    world.put(client, "k", "v");
    world.run_for(Duration::from_millis(100));
    let leader = world.leader().unwrap();
    let victim = other_than(&world, leader);
    let (status, last) = (world.status(leader), world.status(leader).log.last_index);
    let put = put_that_expires(b"k", SECOND * 1000);
    let Wish::Write(command) = put else {
        unreachable!()
    };
    // An entry in the layout of `state_machine/entry.rs`: one command of the client's session.
    let mut data = vec![1, 1, 0, 0, 1, 0, 0, 0];
    data.extend(status.group_time_ns.to_le_bytes());
    data.extend((command.len() as u32).to_le_bytes());
    data.extend([2, 0, 0, 0]);
    for word in [world.clients[client].id, 2, 2] {
        data.extend(word.to_le_bytes());
    }
    data.extend(&command);
    let entry = Entry {
        index: last + 1,
        term: status.term,
        data,
        ..Entry::default()
    };
    let append = Message {
        msg_type: MessageType::MsgAppend.into(),
        from: world.replica(leader).incarnation().0,
        to: world.replica(victim).incarnation().0,
        term: status.term,
        log_term: status.term,
        index: last,
        commit: last + 1,
        entries: vec![entry],
        ..Message::default()
    };
    let header = PeerHeader {
        state_version: 0,
        cluster: world.replica(leader).cluster(),
        group: GroupId(0),
        from: world.replica(leader).incarnation(),
        to: world.replica(victim).incarnation(),
    };
    let message = append.encode_to_vec();
    let frame = AppendFrame {
        header,
        stream: 0,
        sequence: 0,
        message: &message,
    };
    world.inject(victim, kind::APPEND, &frame.encode_to_vec());
    assert_eq!(world.status(victim).applied, last + 1);

    for n in 0..1100 {
        world.put(client, "other", &n.to_string());
    }
    world.run_for(Duration::from_millis(100));
    let why = world
        .replica(victim)
        .halted()
        .expect("the victim has noticed")
        .to_string();
    assert!(why.contains("differs from the majority's"), "{why}");
    assert!(world.status(victim).not_serving.unwrap().contains(&why));
    for node_id in world
        .running()
        .into_iter()
        .filter(|&node_id| node_id != victim)
    {
        assert_eq!(world.replica(node_id).halted(), None);
    }
    assert_eq!(world.get(client, "other").as_deref(), Some("1099"));
    replace(&mut world, victim);
    world.run_for(SECOND);
    assert_eq!(world.status(victim).store, world.status(leader).store);
}

#[test]
fn the_same_seed_gives_the_same_history() {
    let run = |seed| {
        let mut world = World::serving(3, small(), seed);
        world.loss = "5%".parse().unwrap();
        let client = world.registered_client(2);
        for n in 0..100 {
            world.put(client, &format!("k{n}"), "v");
            if n == 50 {
                let leader = world.leader().unwrap();
                world.kill(leader);
                world.start(leader, false);
            }
        }
        world.run_for(SECOND);
        (world.trace, world.deliveries)
    };
    assert_eq!(run(1), run(1));
    assert_ne!(run(1), run(2));
}

/// A replica that led long ago is elected again after a time without a leader, and a client's write arrives together
/// with the vote that elects it. The write used to be stamped by the clock of the earlier leadership, before the
/// replica had noticed the new one. Group time jumped over all the time without a leader, keys expired early and
/// sessions were idle.
#[test]
fn a_write_that_arrives_with_the_deciding_vote_does_not_move_group_time_ahead() {
    let mut world = World::serving(3, ReplicaConfig::default(), 19);
    let client = world.registered_client(1);
    world.get_done(client, put_that_expires(b"k", SECOND * 10));
    let leader = world.leader().unwrap();
    let rest: Vec<u32> = (1..=3).filter(|&node_id| node_id != leader).collect();
    let asks_for_votes = |world: &World| {
        let status = world.status(leader);
        status.role == Role::Candidate && status.term > world.status(rest[0]).term
    };
    for round in 0.. {
        assert!(round < 50, "the old leader never stood for election first");
        world.partition(&[1], &[2, 3]);
        world.partition(&[2], &[3]);
        world.run_for(SECOND * 20);
        world.heal();
        world.isolate(rest[1]);
        let mut stands = false;
        world.expect("an election", Duration::from_secs(5), |world| {
            stands = asks_for_votes(world);
            stands || leaders(world) > 0
        });
        if stands {
            break;
        }
    }
    let before = world.status(leader).group_time_ns;
    world.pause(leader);
    world.run_for(Duration::from_millis(1));
    world.ask_at(client, leader, Wish::Put("other".into(), "v".into()));
    world.run_for(Duration::from_millis(1));
    world.resume(leader);
    assert_eq!(world.outcome(client).status, ClientStatus::Ok);
    let passed = world.status(leader).group_time_ns - before;
    assert!(
        passed < SECOND.as_nanos(),
        "group time moved by {passed} ns within a few milliseconds"
    );
}

fn request_of(world: &World, client: usize, sequence: u64, command: &Command<'_>) -> Vec<u8> {
    let mut bytes = Vec::new();
    command.encode(&mut bytes);
    ClientRequest {
        timed: false,
        operation: Operation::Apply,
        group: GroupId(0),
        cluster: world.clients[client].cluster,
        client: world.clients[client].id,
        sequence,
        lowest_awaited: 1,
        session_number: world.clients[client].nonce,
        check: trine_protocol::message::NO_CHECK,
        for_user: None,
        command: &bytes,
    }
    .encode_to_vec()
}

/// A client reads a large value through the log, again and again, and still awaits its first command: the group has to
/// remember all those answers. They used to travel in one chunk of the snapshot, which no message could hold any more.
/// A replica that came back could never be taken in while that session existed.
#[test]
fn a_session_with_more_answers_than_a_message_holds_does_not_stop_snapshots() {
    let mut world = World::serving(3, small(), 20);
    let client = world.registered_client(1);
    let leader = world.leader().unwrap();
    let value = vec![7; 1 << 20];
    let put = Command::Put {
        key: b"large",
        value: &value,
    };
    let bytes = request_of(&world, client, 1, &put);
    world.inject(leader, kind::CLIENT, &bytes);
    for sequence in 2..=12 {
        let bytes = request_of(&world, client, sequence, &Command::Get { key: b"large" });
        world.inject(leader, kind::CLIENT, &bytes);
        world.run_for(Duration::from_millis(5));
    }
    assert!(world.status(leader).sessions.reply_bytes > 11 << 20);
    let node_id = other_than(&world, leader);
    replace(&mut world, node_id);
    // An entry that moves group time may be on its way at any moment.
    world.expect("one state", SECOND, |world| {
        let mut digests = (1..=3).map(|node_id| world.replica(node_id).state_digest());
        let first = digests.next().flatten();
        first.is_some() && digests.all(|digest| digest == first)
    });
}

/// Reads that wait for a quorum are kept with their commands. Their number was bounded, their bytes were not: a leader that
/// has lost its followers could be made to hold many gigabytes of keys before it found out.
#[test]
fn the_bytes_of_waiting_reads_are_bounded() {
    let config = ReplicaConfig {
        pending_bytes_max: 4 << 20,
        ..ReplicaConfig::default()
    };
    let mut world = World::serving(3, config, 21);
    let leader = world.leader().unwrap();
    world.isolate(leader);
    let clients: Vec<usize> = (0..100).map(|_| world.add_client(leader)).collect();
    for &client in &clients {
        world.clients[client].gives_up = true;
        world.clients[client].patience = Duration::from_secs(5);
        world.ask_at(client, leader, Wish::Get(vec![b'k'; 60_000]));
    }
    world.run_for(Duration::from_millis(5));
    let busy = clients
        .iter()
        .filter(|&&client| world.clients[client].heard.contains(&ClientStatus::Busy))
        .count();
    assert_eq!(
        busy,
        100 - (4_usize << 20).div_ceil(60_000 + 5),
        "as many as fit wait"
    );
}
