//! Linearizable reads that a follower answers: as new as the leader's, whichever replica is cut off, paused or deposed.

use trine_replica_harness as harness;

use harness::World;
use harness::client::{Outcome, Wish};
use trine_protocol::message::ClientStatus;
use trine_replica::ReplicaConfig;
use trine_replica::config::ReadMode;
use trine_transport::time::Duration;

const SECOND: Duration = Duration::from_secs(1);

fn get() -> Wish {
    Wish::HereGet("k".into())
}

fn put(value: &str) -> Wish {
    Wish::Put("k".into(), value.into())
}

fn followers(world: &World) -> Vec<u32> {
    let leader = world.leader();
    let running = world.running().into_iter();
    running.filter(|&node_id| Some(node_id) != leader).collect()
}

/// A client that asks at one replica, waits, and takes the first answer.
fn reader(world: &mut World, node_id: u32) -> usize {
    let reader = world.add_client(node_id);
    world.clients[reader].gives_up = true;
    world.clients[reader].patience = SECOND * 60;
    reader
}

fn is_old(outcome: &Outcome) -> bool {
    outcome.status == ClientStatus::Ok
        && outcome.value.as_ref().map(|(value, _)| &value[..]) != Some(b"new")
}

#[test]
fn every_replica_reads_what_was_acknowledged_just_before() {
    for reads in [ReadMode::Index, ReadMode::Lease] {
        let config = ReplicaConfig {
            reads,
            ..ReplicaConfig::default()
        };
        let mut world = World::serving(3, config, 1);
        let writer = world.registered_client(1);
        let node_ids = world.running();
        let readers: Vec<usize> = node_ids.iter().map(|&p| reader(&mut world, p)).collect();
        for n in 0..100 {
            let written = world.put(writer, "k", &format!("v{n}"));
            for (&node_id, &reader) in node_ids.iter().zip(&readers) {
                world.ask_at(reader, node_id, get());
                let read = world.outcome(reader);
                let expected = (format!("v{n}").into_bytes(), written.position);
                assert_eq!(read.value, Some(expected), "at node {node_id}: {read:?}");
                assert!(read.position >= written.position);
            }
        }
        for node_id in followers(&world) {
            let counters = world.status(node_id).counters;
            assert_eq!(counters.reads_following, 100, "{counters:?}");
        }
    }
}

/// Without it a follower would learn of a commit with the next append or heartbeat only, and answer that late.
#[test]
fn followers_that_serve_reads_hear_of_a_commit_at_once() {
    let mut world = World::serving(3, ReplicaConfig::default(), 2);
    let writer = world.registered_client(1);
    world.put(writer, "k", "v");
    let follower = followers(&world)[0];
    let behind = |world: &mut World| {
        let mut late = 0;
        for n in 0..20 {
            world.put(writer, "k", &n.to_string());
            world.run_for(Duration::from_millis(1));
            let leader = world.leader().unwrap();
            late += u32::from(world.status(follower).committed < world.status(leader).committed);
            world.run_for(Duration::from_millis(7));
        }
        late
    };
    assert!(
        behind(&mut world) > 10,
        "nobody reads at followers: packets are spared"
    );
    let reader = reader(&mut world, follower);
    world.ask_at(reader, follower, get());
    assert_eq!(world.outcome(reader).status, ClientStatus::Ok);
    assert_eq!(behind(&mut world), 0);
    world.run_for(SECOND * 2);
    assert!(
        behind(&mut world) > 10,
        "and spared again when nobody does any more"
    );
}

#[test]
fn a_follower_that_is_cut_off_answers_nothing_old() {
    for seed in 0..10 {
        let mut world = World::serving(3, ReplicaConfig::default(), seed);
        let writer = world.registered_client(1);
        world.put(writer, "k", "old");
        let cut_off = followers(&world)[0];
        let reader = reader(&mut world, cut_off);
        world.isolate(cut_off);
        world.ask_at(reader, cut_off, get());
        world.put(writer, "k", "new");
        let outcome = world.outcome(reader);
        assert_eq!(outcome.status, ClientStatus::NotLeader, "{outcome:?}");
        world.heal();
        world.expect("a follower that is back", SECOND * 5, |world| {
            world.status(cut_off).leader.is_some()
        });
        world.ask_at(reader, cut_off, get());
        assert!(!is_old(&world.outcome(reader)));
    }
}

/// A follower's messages do not reach its leader any more, but the leader's still reach it. It knows how far it has to
/// be for a read, and is not sent the entries. Such a read used to wait as long as the link was broken in one
/// direction: only questions without an answer were given up.
#[test]
fn a_read_whose_entries_do_not_come_is_given_back() {
    for seed in 0..10 {
        let mut world = World::serving(3, ReplicaConfig::default(), seed);
        let writer = world.registered_client(1);
        world.put(writer, "k", "old");
        let (leader, mute) = (world.leader().unwrap(), followers(&world)[0]);
        let reader = reader(&mut world, mute);
        // It misses the write, asks, and can say nothing more.
        world.partition(&[leader], &[mute]);
        world.put(writer, "k", "new");
        world.heal();
        world.ask_at(reader, mute, get());
        while world.status(mute).counters.read_rounds == 0 {
            world.run_for(Duration::from_micros(1));
        }
        world.cut.insert((mute, leader));
        let outcome = world.outcome(reader);
        assert_eq!(outcome.status, ClientStatus::NotLeader, "{outcome:?}");
        let waited = outcome.told.saturating_since(outcome.asked);
        assert!(waited < SECOND, "seed {seed}: {waited:?}");
    }
}

/// It answers out of a queue that is seconds old: the question that it asks then is new.
#[test]
fn a_follower_that_was_paused_answers_nothing_old() {
    for seed in 0..10 {
        let mut world = World::serving(3, ReplicaConfig::default(), seed);
        let writer = world.registered_client(1);
        world.put(writer, "k", "old");
        let paused = followers(&world)[0];
        let reader = reader(&mut world, paused);
        // One read is on its way to the leader and back, the other arrives in the pause.
        world.ask_at(reader, paused, get());
        world.pause(paused);
        let late = self::reader(&mut world, paused);
        world.put(writer, "k", "new");
        world.ask_at(late, paused, get());
        world.run_for(SECOND * 3);
        world.resume(paused);
        let outcome = world.outcome(late);
        assert!(!is_old(&outcome), "seed {seed}: {outcome:?}");
    }
}

/// Leader and one follower on the losing side of a partition believe in each other for a while.
#[test]
fn the_follower_of_a_deposed_leader_answers_nothing_old() {
    for seed in 0..10 {
        for reads in [ReadMode::Index, ReadMode::Lease] {
            let config = ReplicaConfig {
                reads,
                ..ReplicaConfig::default()
            };
            let mut world = World::serving(5, config, seed);
            let writer = world.registered_client(1);
            world.put(writer, "k", "old");
            let leader = world.leader().unwrap();
            let rest = followers(&world);
            let (with_it, majority) = rest.split_first().unwrap();
            world.partition(&[leader, *with_it], majority);
            let reader = reader(&mut world, *with_it);
            world.clients[writer].patience = Duration::from_millis(20);
            world.ask_at(writer, majority[0], put("new"));
            while !world.clients[writer].is_idle() {
                world.run_for(Duration::from_micros(300));
                if world.clients[reader].is_idle() {
                    world.ask_at(reader, *with_it, get());
                }
            }
            let written = world.outcome(writer).told;
            world.outcome(reader);
            world.ask_at(reader, *with_it, get());
            world.outcome(reader);
            let mut late = world.clients[reader].outcomes.iter();
            let stale = late.find(|outcome| outcome.asked >= written && is_old(outcome));
            assert!(stale.is_none(), "seed {seed}: {stale:?}");
        }
    }
}

/// Only the follower itself repeats a question that got lost on its way to the leader.
#[test]
fn a_question_that_got_lost_is_asked_again() {
    let mut world = World::serving(3, ReplicaConfig::default(), 3);
    let writer = world.registered_client(1);
    world.put(writer, "k", "new");
    let (leader, follower) = (world.leader().unwrap(), followers(&world)[0]);
    let reader = reader(&mut world, follower);
    world.cut.insert((follower, leader));
    world.ask_at(reader, follower, get());
    world.run_for(Duration::from_millis(20));
    assert!(!world.clients[reader].is_idle());
    world.heal();
    let outcome = world.outcome(reader);
    assert_eq!(outcome.status, ClientStatus::Ok, "{outcome:?}");
    assert!(!is_old(&outcome));
    let took = outcome.told.saturating_since(outcome.asked);
    assert!(took < Duration::from_millis(100), "{took:?}");
}

/// The read waits at a follower when that becomes the leader.
#[test]
fn a_read_outlives_the_change_of_leader_or_is_refused() {
    for seed in 0..20 {
        let mut world = World::serving(3, ReplicaConfig::default(), seed);
        let writer = world.registered_client(1);
        world.put(writer, "k", "new");
        world.kill(world.leader().unwrap());
        let readers: Vec<(u32, usize)> = world
            .running()
            .into_iter()
            .map(|node_id| (node_id, reader(&mut world, node_id)))
            .collect();
        for _ in 0..200 {
            for &(node_id, reader) in &readers {
                if world.clients[reader].is_idle() {
                    world.ask_at(reader, node_id, get());
                }
            }
            world.run_for(Duration::from_millis(5));
        }
        for (node_id, reader) in readers {
            let last = world.outcome(reader);
            assert_eq!(last.status, ClientStatus::Ok, "node {node_id}: {last:?}");
            assert!(!world.clients[reader].outcomes.iter().any(is_old));
        }
    }
}
