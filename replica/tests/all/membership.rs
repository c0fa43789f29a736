//! An operator changes who is in the group and who leads it, while clients work.

use trine_replica_harness as harness;

use harness::client::Wish;
use harness::{World, address, small};
use trine_protocol::message::{
    AdminCommand, AdminReply, AdminStatus, Incarnation, MEMBERS_MAX, MemberRole, NodeId,
};
use trine_protocol::status::Role;
use trine_replica::ReplicaConfig;
use trine_transport::buf::{Pool, PoolConfig};
use trine_transport::time::{Duration, Instant};

const SECOND: Duration = Duration::from_secs(1);

fn voters(world: &World) -> Vec<u32> {
    let leader = world.leader().unwrap();
    let members = world.status(leader).members;
    members
        .into_iter()
        .filter(|member| member.voter)
        .map(|member| member.node_id)
        .collect()
}

/// A new node, as a learner.
fn add_learner(world: &mut World) -> u32 {
    let node_id = world.add_node();
    world.start(node_id, false);
    let (status, text) = world.admin(AdminCommand::Add { voter: false }, node_id, SECOND * 5);
    assert_eq!(status, AdminStatus::Done, "{text}");
    node_id
}

/// The simulator found a group that was not whole again (seed 8700). The admin command to add a node had been answered
/// "done" by a leader that had slept. Another one led already, and had removed the member that was taken for the new
/// node. An admin command is now answered "done" as a read is: once a quorum has confirmed leadership after the
/// question.
#[test]
fn a_leader_that_slept_does_not_say_that_an_admin_command_is_done() {
    let mut world = World::serving(3, small(), 1);
    let node_id = add_learner(&mut world);
    let slept = world.leader().unwrap();
    world.isolate(slept);
    world.pause(slept);
    world.expect("another leader", SECOND * 5, |world| {
        world.leader().is_some_and(|leader| leader != slept)
    });
    let (status, text) = world.admin(AdminCommand::Remove, node_id, SECOND * 5);
    assert_eq!(status, AdminStatus::Done, "{text}");

    world.resume(slept);
    let add = AdminCommand::Add { voter: false };
    let early = world.admin_once(slept, add, node_id, Incarnation::NONE);
    assert_eq!(early, None, "nobody confirms that it leads");
    world.expect("the end of its lead", SECOND * 5, |world| {
        world.status(slept).role != Role::Leader
    });
    world.run_for(Duration::from_millis(1));
    let reply = world.heard_from_replicas.pop().unwrap();
    let reply = AdminReply::decode(&reply).unwrap();
    assert_eq!(reply.status, AdminStatus::NotLeader, "{}", reply.text);
}

#[test]
fn a_group_grows_from_three_to_five_and_shrinks_again() {
    let mut world = World::serving(3, small(), 1);
    let client = world.registered_client(1);
    world.put(client, "k", "three");
    for expected in [4, 5] {
        let node_id = world.add_node();
        assert_eq!(node_id, expected);
        let asked = world.admin(
            AdminCommand::Add { voter: true },
            node_id,
            Duration::from_millis(100),
        );
        assert_eq!(
            asked.0,
            AdminStatus::InProgress,
            "no replica has the node id yet"
        );
        world.start(node_id, false);
        let (status, text) = world.admin(AdminCommand::Add { voter: true }, node_id, SECOND * 5);
        assert_eq!(status, AdminStatus::Done, "{text}");
        world.expect("another voter", SECOND * 5, |world| {
            world.leader().is_some() && voters(world).contains(&node_id)
        });
        assert_eq!(world.get(client, "k").as_deref(), Some("three"));
    }
    // Five survive the loss of two, the leader among them.
    let leader = world.leader().unwrap();
    let other = world
        .running()
        .into_iter()
        .find(|&node_id| node_id != leader)
        .unwrap();
    world.kill(leader);
    world.kill(other);
    world.put(client, "k", "five");
    for node_id in [leader, other] {
        let (status, text) = world.admin(AdminCommand::Remove, node_id, SECOND * 5);
        assert_eq!(status, AdminStatus::Done, "{text}");
    }
    assert_eq!(voters(&world).len(), 3);
    assert_eq!(world.get(client, "k").as_deref(), Some("five"));
    // And three survive the loss of one.
    let leader = world.leader().unwrap();
    world.kill(leader);
    assert_eq!(world.get(client, "k").as_deref(), Some("five"));
}

#[test]
fn a_learner_follows_without_a_vote_until_it_is_promoted() {
    let mut world = World::serving(3, ReplicaConfig::default(), 2);
    let node_id = add_learner(&mut world);
    world.run_for(SECOND * 2);
    assert_eq!(world.status(node_id).role, Role::Learner);
    assert_eq!(voters(&world), [1, 2, 3]);
    let client = world.registered_client(1);
    world.put(client, "k", "v");
    world.run_for(SECOND);
    world.ask_at(client, node_id, Wish::StaleGet("k".into()));
    assert_eq!(
        world.outcome(client).value.map(|(value, _)| value),
        Some(b"v".to_vec())
    );
    let (status, text) = world.admin(AdminCommand::Promote, node_id, SECOND * 5);
    assert_eq!(status, AdminStatus::Done, "{text}");
    assert_eq!(voters(&world), [1, 2, 3, 4]);
}

/// Seed 1551 of the simulator: a learner had died an instant before it was to be promoted. With one voter beside it
/// that was the end of the group.
#[test]
fn a_learner_that_died_just_now_is_not_promoted() {
    let mut world = World::serving(3, ReplicaConfig::default(), 2);
    let node_id = add_learner(&mut world);
    world.run_for(SECOND);
    world.kill(node_id);
    let (status, text) = world.admin(AdminCommand::Promote, node_id, SECOND * 2);
    assert_eq!(status, AdminStatus::InProgress);
    assert!(text.contains("not caught up"), "{text}");
    assert_eq!(voters(&world), [1, 2, 3]);
}

/// Seed 20043 of the simulator, when it began to ask at its end whether every node votes. A learner died before it had
/// become a voter, after a change of the leader. The new leader had never been told to add the node, and found its dead
/// learner when it was told. It waited for that one to catch up, and refused the next incarnation of the same node for
/// ever.
#[test]
fn the_next_incarnation_of_a_learner_that_died_is_taken_in() {
    for seed in 1..=4 {
        let mut world = World::serving(3, small(), seed);
        let node_id = add_learner(&mut world);
        world.run_for(SECOND);
        let successor = world.leader().unwrap() % 3 + 1;
        let (status, text) = world.admin(AdminCommand::TransferLeadership, successor, SECOND * 5);
        assert_eq!(status, AdminStatus::Done, "{text}");
        world.kill(node_id);
        world.start(node_id, false);
        // The admin command need not be repeated: it is a learner, as it was before.
        world.expect("the learner to be back", SECOND * 5, |world| {
            world.status(node_id).role == Role::Learner
                && world.status(node_id).not_serving.is_none()
        });
        world.kill(node_id);
        world.start(node_id, false);
        let (status, text) = world.admin(AdminCommand::Add { voter: true }, node_id, SECOND * 10);
        assert_eq!(status, AdminStatus::Done, "seed {seed}: {text}");
        assert!(voters(&world).contains(&node_id), "seed {seed}");
    }
}

/// Seed 413 of the simulator: an admin command to remove a node was in the log, and not committed yet, when another one
/// came to add it. The leader said that the node was there, and the removal came after that. The operator had been told
/// that all was done, and no replica had the node id for ever after.
#[test]
fn a_node_that_is_on_its_way_out_does_not_count_as_filled() {
    let mut world = World::serving(3, small(), 5);
    world.run_for(SECOND);
    let leader = world.leader().unwrap();
    let node_id = leader % 3 + 1;
    let asked = |world: &mut World, command| {
        let answer = world.admin_once(leader, command, node_id, Incarnation::NONE);
        answer.expect("an answer to an order")
    };
    let (status, text) = asked(&mut world, AdminCommand::Remove);
    assert_eq!(status, AdminStatus::InProgress);
    assert!(text.contains("waiting to hear"), "{text}");
    world.run_for(Duration::from_millis(100));
    world.isolate(leader);
    let (status, text) = asked(&mut world, AdminCommand::Remove);
    assert_eq!(status, AdminStatus::InProgress);
    assert!(text.contains("removing"), "{text}");
    let add = AdminCommand::Add { voter: true };
    let (status, text) = asked(&mut world, add);
    assert_eq!(status, AdminStatus::InProgress, "{text}");
    world.heal();
    world.expect("the removal", SECOND, |world| {
        world.leader().is_some() && voters(world).len() == 2
    });
    world.kill(node_id);
    world.start(node_id, false);
    let (status, text) = world.admin(add, node_id, SECOND * 5);
    assert_eq!(status, AdminStatus::Done, "{text}");
    assert_eq!(voters(&world), [1, 2, 3]);
}

/// A learner's node id goes to its next incarnation, not to another process that claims it while the learner is alive.
/// Two processes that were started with a node id that an operator had just added drove each other out, for as long as
/// the command was remembered.
#[test]
fn the_node_id_of_a_learner_that_is_alive_is_not_given_away() {
    let mut world = World::serving(3, small(), 2);
    let node_id = add_learner(&mut world);
    world.run_for(SECOND);
    let before = world.holder(node_id);
    world.claim(node_id);
    world.run_for(SECOND);
    assert_eq!(world.holder(node_id), before);
}

/// An admin command to replace a learner was remembered when it was done. The process that had been replaced was
/// started again, asked for its node id, and the command was done once more: to the new member.
#[test]
fn a_command_to_replace_a_learner_is_done_once() {
    let mut world = World::serving(3, small(), 2);
    let node_id = add_learner(&mut world);
    let old = world.holder(node_id);
    let replace = |world: &mut World| {
        let leader = world.leader().expect("nobody dies");
        let answer = world.admin_once(leader, AdminCommand::Replace, node_id, old);
        answer.expect("an answer").0
    };
    assert_eq!(replace(&mut world), AdminStatus::InProgress);
    world.kill(node_id);
    world.start(node_id, false);
    world.expect("the new holder", SECOND * 5, |world| {
        world.holder(node_id) != old && world.status(node_id).role == Role::Learner
    });
    assert_eq!(replace(&mut world), AdminStatus::Done);
    let new = world.holder(node_id);
    world.claim(node_id);
    world.run_for(SECOND);
    assert_eq!(world.holder(node_id), new);
}

/// A learner goes on asking for its node id until it votes. The command to add it was remembered for a minute, and only
/// a replica that asked whether it still was a member heard of a removal. So the next question of the removed learner
/// got it taken in again, as the same incarnation, and it stayed a member when its process ended.
#[test]
fn a_removed_learner_does_not_come_back_on_the_command_that_has_added_it() {
    for seed in 1..=8 {
        let mut world = World::serving(3, small(), seed);
        let node_id = world.add_node();
        world.start(node_id, false);
        let add = AdminCommand::Add { voter: false };
        assert_eq!(world.admin(add, node_id, SECOND * 5).0, AdminStatus::Done);
        let removed = world.admin(AdminCommand::Remove, node_id, SECOND * 5);
        assert_eq!(removed.0, AdminStatus::Done, "{}", removed.1);
        world.run_for(SECOND * 2);
        let leader = world.leader().unwrap();
        let members = world.status(leader).members;
        assert!(
            members.iter().all(|member| member.node_id != node_id),
            "seed {seed}"
        );
    }
}

#[test]
fn a_change_that_would_lose_the_quorum_is_refused_with_a_reason() {
    let mut world = World::serving(3, ReplicaConfig::default(), 3);
    world.run_for(SECOND);
    let leader = world.leader().unwrap();
    let dead = world
        .running()
        .into_iter()
        .find(|&node_id| node_id != leader)
        .unwrap();
    let alive = world
        .running()
        .into_iter()
        .find(|&node_id| node_id != leader && node_id != dead)
        .unwrap();
    world.kill(dead);
    world.run_for(SECOND);
    let (status, text) = world.admin(AdminCommand::Remove, alive, SECOND);
    assert_eq!(status, AdminStatus::Refused);
    assert!(text.contains("only 1 of the 2 voters"), "{text}");
    assert_eq!(voters(&world).len(), 3);
    // The dead one may go: the two that are left are both alive.
    assert_eq!(
        world.admin(AdminCommand::Remove, dead, SECOND * 5).0,
        AdminStatus::Done
    );
    assert_eq!(voters(&world).len(), 2);
    assert_eq!(
        world.admin(AdminCommand::Promote, 9, SECOND).0,
        AdminStatus::Refused
    );
}

/// Seeds 1280 and 1884 of the simulator: a voter had died an instant before another one was to be removed. The leader had
/// heard from it lately, took it for alive, and made a group of itself and a dead one: without a quorum, for ever.
#[test]
fn who_died_just_now_is_no_part_of_the_quorum_that_a_removal_leaves() {
    let mut world = World::serving(3, ReplicaConfig::default(), 3);
    world.run_for(SECOND);
    let leader = world.leader().unwrap();
    let others: Vec<u32> = world
        .running()
        .into_iter()
        .filter(|&node_id| node_id != leader)
        .collect();
    world.kill(others[0]);
    let (status, text) = world.admin(AdminCommand::Remove, others[1], SECOND * 2);
    assert_eq!(status, AdminStatus::Refused);
    assert!(text.contains("only 1 of the 2 voters"), "{text}");
    assert_eq!(voters(&world).len(), 3);
    let client = world.registered_client(1);
    world.put(client, "k", "the two that are left serve");
}

/// Seed 1168 of the simulator: one operator wanted a node removed, which transferred leadership away from it, another
/// one wanted it to lead, which transferred it back. Both asked many times a second, and the group did nothing else.
#[test]
fn a_node_that_is_to_go_gets_no_leadership() {
    let mut world = World::serving(3, ReplicaConfig::default(), 4);
    world.run_for(SECOND);
    let node_id = world.leader().unwrap();
    let end = world.now + SECOND * 5;
    let mut leaders = 0;
    let mut last = node_id;
    while voters(&world).contains(&node_id) {
        assert!(
            world.now < end,
            "{leaders} changes of leader and no removal"
        );
        // The other operator's question is always the first one that a new leader hears.
        world.admin(AdminCommand::TransferLeadership, node_id, Duration::ZERO);
        world.admin(AdminCommand::Remove, node_id, Duration::ZERO);
        let leader = world.leader().unwrap_or(last);
        leaders += u32::from(leader != last);
        last = leader;
    }
    assert!(leaders <= 2, "{leaders} changes of leader");
}

#[test]
fn a_leader_that_is_removed_transfers_leadership_first() {
    let mut world = World::serving(3, ReplicaConfig::default(), 4);
    let client = world.registered_client(1);
    world.put(client, "k", "v");
    world.run_for(SECOND);
    let leader = world.leader().unwrap();
    let began = world.now;
    let (status, text) = world.admin(AdminCommand::Remove, leader, SECOND * 5);
    assert_eq!(status, AdminStatus::Done, "{text}");
    assert!(world.now.saturating_since(began) < SECOND);
    assert!(!voters(&world).contains(&leader));
    world.kill(leader);
    assert_eq!(world.get(client, "k").as_deref(), Some("v"));
}

#[test]
fn leadership_is_transferred_to_the_node_that_is_named() {
    let mut world = World::serving(3, ReplicaConfig::default(), 5);
    let client = world.registered_client(1);
    for node_id in [3, 2, 1, 2] {
        world.put(client, "k", &node_id.to_string());
        world.run_for(Duration::from_millis(100));
        let began = world.now;
        let (status, text) = world.admin(AdminCommand::TransferLeadership, node_id, SECOND);
        assert_eq!(status, AdminStatus::Done, "{text}");
        assert!(world.now.saturating_since(began) < Duration::from_millis(100));
        assert_eq!(world.leader(), Some(node_id));
        assert_eq!(world.get(client, "k"), Some(node_id.to_string()));
    }
    world.kill(3);
    world.run_for(SECOND);
    assert_eq!(
        world.admin(AdminCommand::TransferLeadership, 3, SECOND).0,
        AdminStatus::Refused
    );
}

/// The member with the node id is alive but has to go: its process is cut off from the operator, not from the group.
#[test]
fn a_living_member_is_replaced_when_the_operator_says_so() {
    let mut world = World::serving(3, small(), 6);
    let client = world.registered_client(1);
    for n in 0..300 {
        world.put(client, &format!("k{}", n % 7), &n.to_string());
    }
    let leader = world.leader().unwrap();
    let node_id = world
        .running()
        .into_iter()
        .find(|&node_id| node_id != leader)
        .unwrap();
    let old = world.holder(node_id);
    let asked = world.admin(AdminCommand::Replace, node_id, Duration::from_millis(100));
    assert_eq!(asked.0, AdminStatus::InProgress);
    world.kill(node_id);
    world.start(node_id, false);
    world.expect("the new holder", SECOND * 5, |world| {
        world.leader().is_some()
            && world.holder(node_id) == world.replica(node_id).incarnation()
            && voters(world).len() == 3
    });
    assert_ne!(world.holder(node_id), old);
    assert_eq!(world.get(client, "k0").as_deref(), Some("294"));
}

/// The largest group has to be able to replace its members, too. Learners that came back at the same time used to grow
/// the table of members beyond what a message can list. Any client that asked who leads then brought the leader down,
/// and no snapshot with that table could be read.
#[test]
fn the_largest_group_replaces_its_members_one_after_the_other() {
    let count = MEMBERS_MAX as u32 - 1;
    let mut world = World::serving(count, small(), 7);
    let leader = world.leader().unwrap();
    let gone: Vec<u32> = (1..=count).filter(|&p| p != leader).take(2).collect();
    let old: Vec<_> = gone.iter().map(|&node_id| world.holder(node_id)).collect();
    gone.iter().for_each(|&node_id| world.kill(node_id));
    world.run_for(Duration::from_millis(400));
    gone.iter().for_each(|&node_id| world.start(node_id, false));
    world.expect("both replaced", Duration::from_secs(10), |world| {
        let Some(leader) = world.leader() else {
            return false;
        };
        let discovery = world.replica(leader).discovery();
        assert!(discovery.members.0.len() <= MEMBERS_MAX);
        let members = discovery.members.0;
        let voters = members.iter().filter(|m| m.role == MemberRole::Voter);
        voters.filter(|m| !old.contains(&m.incarnation)).count() == count as usize
            && members.len() == count as usize
    });
}

/// A group with as many nodes as a message can list could never take a new identity in.
#[test]
fn a_group_without_room_for_a_newcomer_is_not_begun() {
    let peers: Vec<_> = (1..=MEMBERS_MAX as u32)
        .map(|node_id| (NodeId(node_id), address(node_id)))
        .collect();
    let begun = trine_replica::Replica::new(
        small(),
        Incarnation(1),
        NodeId(1),
        address(1),
        peers,
        Pool::new(PoolConfig::default()),
        1,
        Instant::ZERO,
    );
    assert!(begun.is_err());
}

/// A voter fell silent and a newcomer asked for its node id; the voter came back before the newcomer had caught up, so
/// both stay. A newly elected leader, which had heard only from the members that elected it, used to take the voter for
/// dead at once and gave its node id away.
#[test]
fn a_new_leader_does_not_take_silence_for_death_at_once() {
    let mut world = World::serving(3, ReplicaConfig::default(), 8);
    let leader = world.leader().unwrap();
    let others: Vec<u32> = (1..=3).filter(|&node_id| node_id != leader).collect();
    let (next, silent) = (others[0], others[1]);
    let voter = world.holder(silent);
    world.pause(silent);
    world.run_for(Duration::from_millis(500));
    let newcomer = world.add_node();
    let peers = [leader, next]
        .map(|node_id| (NodeId(node_id), address(node_id)))
        .into_iter()
        .chain([(NodeId(silent), address(newcomer))])
        .collect();
    let replica = trine_replica::Replica::new(
        ReplicaConfig::default(),
        Incarnation(77),
        NodeId(silent),
        address(newcomer),
        peers,
        world.pool.clone(),
        1,
        world.now,
    );
    world.machines.get_mut(&newcomer).unwrap().replica = Some(replica.unwrap());
    // It comes from another address than the silent one, so an operator has to name it.
    world.newcomer = Some(address(newcomer));
    world.admin_once(leader, AdminCommand::Replace, silent, voter);
    world.expect("a learner", SECOND, |world| {
        world.status(leader).members.len() == 4
    });
    world.isolate(newcomer);
    world.resume(silent);
    // A command about an incarnation that is gone is done, and nothing is remembered any more.
    let gone = Incarnation(78);
    world.admin_once(leader, AdminCommand::Replace, silent, gone);
    world.heal();
    world.run_for(SECOND);
    assert_eq!(
        (world.leader(), voters(&world)),
        (Some(leader), vec![1, 2, 3])
    );
    assert_eq!(world.status(leader).members.len(), 4);
    world.partition(&[next], &[silent]);
    let (status, why) = world.admin(AdminCommand::TransferLeadership, next, SECOND);
    assert_eq!(status, AdminStatus::Done, "{why}");
    world.run_for(Duration::from_millis(40));
    world.heal();
    world.run_for(SECOND);
    let members = world.replica(next).discovery().members.0;
    let still = members.iter().find(|member| member.incarnation == voter);
    assert_eq!(still.map(|member| member.role), Some(MemberRole::Voter));
}
