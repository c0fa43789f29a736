//! Notices of the end of a process: a follower that hears of its leader's death leads at once, and no other notice
//! changes anything.

use trine_replica_harness as harness;

use harness::{World, small};
use trine_protocol::message::{Encode, Incarnation, LeaderSecret, PeerHeader, RunSecret, kind};
use trine_replica::ReplicaConfig;
use trine_replica::config::ReadMode;
use trine_transport::time::{Duration, Instant};

use crate::lease::race;

const SECOND: Duration = Duration::from_secs(1);

fn leased() -> ReplicaConfig {
    ReplicaConfig {
        reads: ReadMode::Lease,
        ..small()
    }
}

/// A group whose followers know the secret of their leader, and that leader.
fn settled(config: ReplicaConfig, seed: u64) -> (World, u32) {
    let mut world = World::serving(3, config, seed);
    world.run_for(Duration::from_millis(200));
    let leader = world.leader().unwrap();
    (world, leader)
}

fn term(world: &World) -> u64 {
    let terms = world.running().into_iter().map(|id| world.status(id).term);
    terms.max().unwrap()
}

fn deaths(world: &World) -> u64 {
    let running = world.running().into_iter();
    running
        .map(|id| world.status(id).counters.leader_deaths)
        .sum()
}

#[test]
fn a_follower_that_is_told_of_its_leaders_death_leads_at_once() {
    for (seed, config) in (0..20).zip([small(), leased()].into_iter().cycle()) {
        let (mut world, old) = settled(config, seed);
        let client = world.registered_client(1);
        world.put(client, "k", "v");
        let dead = world.replica(old).incarnation();
        world.kill(old);
        let told = 1 + old % 3;
        let other = 1 + told % 3;
        world.tell_death(told, dead);
        world.run_for(Duration::from_millis(10));
        assert_eq!(world.leader(), Some(told), "seed {seed}");
        assert_eq!(deaths(&world), 1, "seed {seed}");
        // The next one is told later, and again: that leader stays.
        let led = term(&world);
        for id in [other, told, other] {
            world.tell_death(id, dead);
        }
        world.run_for(SECOND);
        assert_eq!((world.leader(), term(&world)), (Some(told), led));
        assert_eq!(world.get(client, "k").as_deref(), Some("v"));
    }
}

#[test]
fn notices_of_other_runs_change_nothing() {
    let (mut world, leader) = settled(small(), 1);
    let follower = 1 + leader % 3;
    let of_follower = world.replica(follower).incarnation();
    let began = term(&world);
    for of in [Incarnation(1), Incarnation(u64::MAX), of_follower] {
        for id in 1..=3 {
            world.tell_death(id, of);
        }
    }
    let random = RunSecret([0x5a; 16]);
    let now = world.now;
    world.replica_mut(follower).on_death_notice(now, &random);
    world.run_for(SECOND);
    assert_eq!((world.leader(), term(&world)), (Some(leader), began));
    let ignored = world.status(follower).counters.death_notices_ignored;
    assert_eq!((ignored, deaths(&world)), (4, 0));
}

/// Its notice comes after the group has elected another leader, or comes again.
#[test]
fn a_notice_that_is_late_changes_nothing() {
    for seed in 0..20 {
        let (mut world, old) = settled(leased(), seed);
        let dead = world.replica(old).incarnation();
        world.kill(old);
        world.expect("another leader", SECOND * 5, |world| {
            world.leader().is_some()
        });
        for _ in 0..100 {
            for id in world.running() {
                world.tell_death(id, dead);
            }
            world.run_for(Duration::from_millis(3));
        }
        assert_eq!(deaths(&world), 0, "seed {seed}");
    }
}

/// A stranger, or a replica that does not lead, says whose secret this is.
#[test]
fn a_secret_counts_only_from_the_leader_and_for_its_term() {
    let (mut world, leader) = settled(small(), 1);
    let follower = 1 + leader % 3;
    let other = 1 + follower % 3;
    let led = term(&world);
    let (to, lies) = (world.replica(follower).incarnation(), Incarnation(77));
    let (of_leader, of_other) = (
        world.replica(leader).incarnation(),
        world.replica(other).incarnation(),
    );
    let mut secret = RunSecret([0; 16]);
    secret.0[..8].copy_from_slice(&lies.0.to_le_bytes());
    let cluster = world.replica(follower).cluster();
    for (from, term) in [
        (of_other, led),
        (lies, led),
        (of_leader, led + 1),
        (of_leader, led - 1),
    ] {
        let said = LeaderSecret {
            header: PeerHeader {
                state_version: 0,
                cluster,
                group: trine_protocol::message::GroupId(0),
                from,
                to,
            },
            term,
            secret,
        };
        world.inject(follower, kind::LEADER_SECRET, &said.encode_to_vec());
        world.run_for(Duration::from_millis(1));
        world.tell_death(follower, lies);
    }
    world.run_for(SECOND);
    assert_eq!((world.leader(), term(&world)), (Some(leader), led));
    assert_eq!(deaths(&world), 0);
}

/// A voter that has lost its memory, or was cut off, is told again.
#[test]
fn a_voter_that_comes_later_learns_the_secret_too() {
    let (mut world, leader) = settled(small(), 3);
    let late = 1 + leader % 3;
    let other = 1 + late % 3;
    world.kill(late);
    world.run_for(SECOND);
    world.start(late, false);
    world.expect("three voters", SECOND * 10, |world| {
        world.leader() == Some(leader) && world.holder(late) == world.replica(late).incarnation()
    });
    world.run_for(SECOND);
    let dead = world.replica(leader).incarnation();
    world.kill(leader);
    world.tell_death(late, dead);
    world.run_for(Duration::from_millis(10));
    assert_eq!((world.leader(), deaths(&world)), (Some(late), 1));
    assert_ne!(world.leader(), Some(other));
}

/// A notice comes to a follower whose leader lives, has a lease, and is cut off from both others. Returns the last old
/// answer and the first new write.
fn false_notice(seed: u64) -> (Instant, Instant) {
    let mut world = World::serving(3, leased(), seed);
    let (writer, reader) = (world.registered_client(1), world.registered_client(1));
    world.put(writer, "k", "old");
    world.run_for(Duration::from_millis(200));
    assert_eq!(world.get(reader, "k").as_deref(), Some("old"));
    let old = world.leader().unwrap();
    world.isolate(old);
    world.tell_death(1 + old % 3, Incarnation(1));
    race(&mut world, old, writer, reader)
}

#[test]
fn a_false_notice_ends_no_lease() {
    for seed in 0..10 {
        let (old_answer, written) = false_notice(seed);
        assert!(
            old_answer < written,
            "seed {seed}: read {old_answer:?}, written {written:?}"
        );
    }
}

#[test]
#[cfg(debug_assertions)]
fn the_planted_belief_in_any_notice_is_found() {
    let _bug = trine_canary::plant("death notice of any run");
    let stale = |seed| {
        let (old_answer, written) = false_notice(seed);
        old_answer >= written
    };
    assert!((0..10).any(stale), "no old answer behind a new write");
}
