//! Notices of the end of a process: a follower that hears of its leader's death leads at once, and no other notice
//! changes anything.

use trine_replica_harness as harness;

use harness::{World, small};
use trine_protocol::message::{
    Encode, GroupId, Incarnation, LeaderSecret, PeerHeader, RunSecret, kind,
};
use trine_replica::ReplicaConfig;
use trine_replica::config::ReadMode;
use trine_transport::time::{Duration, Instant};

use crate::lease::{assert_fresh, race};

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
    let ignored = world.status(follower).counters.death_notices_unknown;
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

/// The secret of a run that the leader has not: whoever is told that it has ended takes note of who said so.
const CLAIMED: Incarnation = Incarnation(77);

/// Somebody says that `CLAIMED` is the secret of `from` in `term`, and then that this run has ended. Returns the elections
/// of `to`.
fn claim(world: &mut World, to: u32, from: Incarnation, term: u64) -> u64 {
    let mut secret = RunSecret([0; 16]);
    secret.0[..8].copy_from_slice(&CLAIMED.0.to_le_bytes());
    let header = PeerHeader {
        state_version: 0,
        cluster: world.replica(to).cluster(),
        group: GroupId(0),
        from,
        to: world.replica(to).incarnation(),
    };
    let said = LeaderSecret {
        header,
        term,
        secret,
    };
    world.inject(to, kind::LEADER_SECRET, &said.encode_to_vec());
    world.run_for(Duration::from_millis(1));
    world.tell_death(to, CLAIMED);
    world.status(to).counters.leader_deaths
}

/// The last claim shows that the others had all that a claim needs.
#[test]
fn a_secret_counts_only_from_the_leader_and_for_its_term() {
    let (mut world, leader) = settled(small(), 1);
    let follower = 1 + leader % 3;
    let other = world.replica(1 + follower % 3).incarnation();
    let leads = world.replica(leader).incarnation();
    let led = term(&world);
    for (from, term) in [
        (other, led),
        (other, led + 1),
        (Incarnation(5), led),
        (leads, led + 1),
        (leads, led - 1),
    ] {
        assert_eq!(
            claim(&mut world, follower, from, term),
            0,
            "{from:?} {term}"
        );
    }
    world.run_for(SECOND);
    assert_eq!((world.leader(), term(&world)), (Some(leader), led));
    assert_eq!(claim(&mut world, follower, leads, led), 1);
}

/// Without a key a stranger can read each leader's secret, and tell all others of a death that was none. In 8 s that made
/// 1,907 terms, and no command got through.
#[test]
fn a_stranger_who_knows_every_secret_deposes_a_leader_once_in_two_election_timeouts() {
    let (mut world, _) = settled(small(), 1);
    let pause = Duration::from_nanos(small().tick.as_nanos() * small().election_ticks as u64 * 2);
    let client = world.registered_client(1);
    let (began, until) = (world.now, world.now + SECOND * 8);
    while world.now < until {
        if let Some(leader) = world.leader() {
            let leads = world.replica(leader).incarnation();
            for follower in [1 + leader % 3, 1 + (1 + leader % 3) % 3] {
                world.tell_death(follower, leads);
            }
        }
        world.run_for(Duration::from_millis(1));
    }
    let pauses = world.now.saturating_since(began).as_nanos() / pause.as_nanos();
    let mut early = 0;
    for id in 1..=3 {
        let count = world.status(id).counters;
        assert!(count.leader_deaths <= pauses + 1, "{count:?}");
        early += count.death_notices_early;
    }
    assert!(early > 1_000, "{early} notices had no effect");
    assert!(deaths(&world) > pauses / 2, "the stranger was heard");
    world.put(client, "k", "v");
}

/// A follower that has restarted from its disk is who it was, and has forgotten the secret. Here it is another one.
#[test]
fn a_voter_is_told_again_when_its_session_has_ended() {
    for again in [false, true] {
        let (mut world, leader) = settled(small(), 1);
        let follower = 1 + leader % 3;
        let (dead, led) = (world.replica(leader).incarnation(), term(&world));
        claim(&mut world, follower, dead, led + 1);
        claim(&mut world, follower, dead, led + 2);
        assert!(!world.status(follower).awaits_death_notice);
        if again {
            let now = world.now;
            let address = harness::address(follower);
            world.replica_mut(leader).on_peer_unreachable(now, address);
        }
        world.run_for(Duration::from_millis(100));
        assert_eq!(world.status(follower).awaits_death_notice, again);
        world.kill(leader);
        world.tell_death(follower, dead);
        assert_eq!(deaths(&world), u64::from(again));
    }
}

/// Those come first that could take over at once.
#[test]
fn a_voter_that_is_dead_or_behind_is_told_last() {
    let (mut world, leader) = settled(small(), 1);
    let client = world.registered_client(1);
    let others = [1 + leader % 3, 1 + (1 + leader % 3) % 3];
    for late in others {
        world.isolate(late);
        for n in 0..100 {
            world.put(client, "k", &n.to_string());
        }
        world.run_for(SECOND);
        let successors = world.replica(leader).successors(world.now);
        assert_eq!(successors.len(), 2);
        assert_eq!(successors[1], harness::address(late));
        world.heal();
        world.run_for(SECOND);
    }
    for follower in others {
        assert!(world.replica(follower).successors(world.now).is_empty());
    }
}

/// It has another log, so its election fails. The others wait for the election timeout then, and lead.
#[test]
fn a_voter_that_lacks_entries_is_told_first() {
    let (mut world, old) = settled(leased(), 1);
    let client = world.registered_client(1);
    let (late, whole) = (1 + old % 3, 1 + (1 + old % 3) % 3);
    let cut = [old, whole];
    world.partition(&[late], &cut);
    world.put(client, "k", "v");
    let dead = world.replica(old).incarnation();
    world.kill(old);
    world.heal();
    world.tell_death(late, dead);
    world.run_for(Duration::from_millis(10));
    world.tell_death(whole, dead);
    assert_eq!((world.leader(), deaths(&world)), (None, 1));
    world.expect("the whole log leads", SECOND * 5, |world| {
        world.leader() == Some(whole)
    });
    assert_eq!(world.get(client, "k").as_deref(), Some("v"));
}

/// A voter that has lost its memory is told again.
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
        assert_fresh(seed, false_notice(seed));
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
