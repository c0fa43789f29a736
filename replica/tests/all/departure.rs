//! Memberships that end without an announcement: removal of a replica that is cut off, groups that never begin, and the
//! stop of one that is alone.

use trine_replica_harness as harness;

use harness::World;
use trine_protocol::message::{AdminCommand, AdminStatus};
use trine_replica::{Halt, ReplicaConfig};
use trine_transport::time::Duration;

const SECOND: Duration = Duration::from_secs(1);

/// Removes a node while it is cut off.
fn finds_out(world: &mut World, removed: u32) {
    world.isolate(removed);
    world.run_for(SECOND);
    let (status, text) = world.admin(AdminCommand::Remove, removed, SECOND * 5);
    assert_eq!(status, AdminStatus::Done, "{text}");
    world.run_for(SECOND * 2);
    assert_eq!(world.replica(removed).halted(), None, "it cannot know yet");
    world.heal();
    world.expect("word of its removal", SECOND * 5, |world| {
        matches!(world.replica(removed).halted(), Some(Halt::Removed { .. }))
    });
    let why = world.status(removed).not_serving.unwrap();
    assert!(why.contains("was removed from cluster"), "{why}");
}

/// While it was cut off it was removed, so the members send it nothing any more.
#[test]
fn a_member_that_was_removed_behind_its_back_finds_out() {
    let mut world = World::serving(3, ReplicaConfig::default(), 1);
    let client = world.registered_client(1);
    world.put(client, "k", "v");
    let removed = world
        .running()
        .into_iter()
        .find(|&p| Some(p) != world.leader())
        .unwrap();
    finds_out(&mut world, removed);
    world.put(client, "k", "w");
}

/// A learner keeps asking to be taken in, because it has no vote yet. The answer to that question presented its removal
/// as a reason to ask again. It kept naming its old leader, because raft's learners never look for another, and
/// answered stale reads from a state that no longer moved.
#[test]
fn a_learner_that_was_removed_behind_its_back_finds_out() {
    let mut world = World::serving(3, ReplicaConfig::default(), 3);
    let learner = world.add_learner();
    finds_out(&mut world, learner);
}

/// It hears of its removal with the entry itself.
#[test]
fn a_member_that_sees_its_removal_halts() {
    for node_id in 1..=3 {
        let mut world = World::serving(3, ReplicaConfig::default(), 2);
        let (status, text) = world.admin(AdminCommand::Remove, node_id, SECOND * 5);
        assert_eq!(status, AdminStatus::Done, "{text}");
        world.expect("word of its removal", SECOND * 5, |world| {
            matches!(world.replica(node_id).halted(), Some(Halt::Removed { .. }))
        });
        let client = world.registered_client(node_id % 3 + 1);
        world.put(client, "k", "v");
    }
}

#[test]
fn members_without_a_leader_are_not_taken_for_removed() {
    let mut world = World::serving(3, ReplicaConfig::default(), 3);
    world.run_for(SECOND);
    let left = world.running()[0];
    for node_id in world.running() {
        if node_id != left {
            world.kill(node_id);
        }
    }
    world.run_for(SECOND * 20);
    assert_eq!(world.replica(left).halted(), None);
}

/// A process's reaction to such a replica.
fn replace_spent(world: &mut World, bootstrap: &[u32]) {
    for node_id in world.running() {
        if matches!(
            world.replica(node_id).halted(),
            Some(Halt::NeverBegan { .. })
        ) {
            world.kill(node_id);
            world.start(node_id, bootstrap.contains(&node_id));
        }
    }
}

fn led_within(world: &mut World, bootstrap: &[u32], limit: Duration) -> bool {
    let end = world.now + limit;
    while world.now < end && world.leader().is_none() {
        world.run_for(Duration::from_millis(50));
        replace_spent(world, bootstrap);
    }
    world.leader().is_some()
}

/// The bootstrapper dies permanently in the middle, and so do the peers that it has not told; others replace them.
#[test]
fn those_who_are_left_of_a_beginning_begin_again() {
    for step in 0..40 {
        let mut world = World::new(3, ReplicaConfig::default(), 4);
        world.start(2, false);
        world.start(3, false);
        world.start(1, true);
        world.run_for(Duration::from_micros(25 * step));
        world.kill(1);
        world.kill(3);
        world.run_for(Duration::from_secs(1));
        world.start(1, true);
        world.start(3, false);
        assert!(led_within(&mut world, &[1], SECOND * 20), "step {step}");
    }
}

/// Two bootstrappers, and a third replica that is restarted between the messages of the one and of the other. Each had
/// told an incarnation of it, and waited for the other for ever.
#[test]
fn two_bootstrappers_never_wait_for_each_other() {
    for step in 0..120 {
        let mut world = World::new(3, ReplicaConfig::default(), step);
        world.start(1, false);
        world.start(2, true);
        world.start(3, true);
        for _ in 0..3 {
            let span = world.prng.in_range(1..=400_000);
            world.run_for(Duration::from_nanos(span));
            world.kill(1);
            world.start(1, false);
        }
        assert!(led_within(&mut world, &[2, 3], SECOND * 30), "step {step}");
    }
}

/// The only voter waited for half a second until somebody else led, and there was nobody.
#[test]
fn the_only_voter_stops_at_once() {
    let mut world = World::serving(1, ReplicaConfig::default(), 14);
    let client = world.registered_client(1);
    world.put(client, "k", "v");
    let leader = world.leader().unwrap();
    let now = world.now;
    let machine = world.machines.get_mut(&leader).unwrap();
    machine.replica.as_mut().unwrap().stop(now);
    world.expect("a stopped leader", Duration::from_millis(300), |world| {
        world.replica(leader).is_stopped(world.now)
    });
    assert!(world.now.saturating_since(now) < Duration::from_millis(10));
}
