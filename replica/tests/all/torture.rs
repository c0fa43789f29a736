//! Random faults on random schedules, and three questions at the end. Is every acknowledged write there, was none
//! applied twice, and did every read see what it had to?

use trine_replica_harness as harness;

use std::collections::BTreeMap;

use harness::client::{Outcome, Wish};
use harness::{World, small};
use trine_protocol::message::ClientStatus;
use trine_replica::ReplicaConfig;
use trine_replica::config::ReadMode;
use trine_transport::prng::Prng;
use trine_transport::time::{Duration, Instant};

const CLIENTS: usize = 5;
const KEYS: u64 = 4;

/// The faults, one at a time; a majority stays alive and connected most of the time.
#[derive(Clone, Copy, Debug)]
enum Fault {
    KillAndReplace,
    Pause,
    Isolate,
    OneWay,
    Lossy,
    Mute,
}

fn inflict(world: &mut World, fault: Fault, node_id: u32, peer: u32) {
    match fault {
        Fault::KillAndReplace => {
            world.kill(node_id);
            world.start(node_id, false);
        }
        Fault::Pause => world.pause(node_id),
        Fault::Isolate => world.isolate(node_id),
        Fault::OneWay => {
            world.cut.insert((node_id, peer));
        }
        Fault::Lossy => world.loss = "30%".parse().unwrap(),
        Fault::Mute => {
            world.mute.insert(node_id);
        }
    }
}

fn relieve(world: &mut World, node_id: u32) {
    world.heal();
    world.mute.clear();
    world.loss = "2%".parse().unwrap();
    if world.machines[&node_id].paused {
        world.resume(node_id);
    }
}

fn all_vote(world: &World) -> bool {
    world.leader().is_some_and(|leader| {
        let members = world.status(leader).members;
        let present = |node_id: &u32| {
            let incarnation = world.replica(*node_id).incarnation().to_string();
            members
                .iter()
                .any(|member| member.incarnation == incarnation && member.voter)
        };
        members.len() == world.machines.len() && world.machines.keys().all(present)
    })
}

/// Lets idle clients go on; values are unique.
fn drive(world: &mut World, clients: &[usize], prng: &mut Prng, written: &mut u64) {
    for &client in clients {
        if !world.clients[client].is_idle() {
            continue;
        }
        let key = vec![b'k', prng.below(KEYS) as u8];
        let wish = if prng.below(3) == 0 {
            Wish::Get(key)
        } else {
            *written += 1;
            Wish::Put(key, written.to_le_bytes().to_vec())
        };
        world.ask(client, wish);
    }
}

fn run(node_ids: u32, reads: ReadMode, seed: u64, faults: u32) {
    let config = ReplicaConfig { reads, ..small() };
    let mut world = World::serving(node_ids, config, seed);
    world.loss = "2%".parse().unwrap();
    let mut prng = Prng::new(seed ^ 0x7027);
    let clients: Vec<usize> = (0..CLIENTS)
        .map(|n| world.registered_client(1 + n as u32 % node_ids))
        .collect();
    let mut written = 0;
    for _ in 0..faults {
        let kinds = [
            Fault::KillAndReplace,
            Fault::Pause,
            Fault::Isolate,
            Fault::OneWay,
            Fault::Lossy,
            Fault::Mute,
        ];
        let fault = kinds[prng.below(kinds.len() as u64) as usize];
        let node_id = prng.in_range(1..=u64::from(node_ids)) as u32;
        let peer = 1 + node_id % node_ids;
        inflict(&mut world, fault, node_id, peer);
        let bad_until = world.now + Duration::from_millis(prng.in_range(20..=700));
        go_on(&mut world, &clients, &mut prng, &mut written, bad_until);
        relieve(&mut world, node_id);
        let good_until = world.now + Duration::from_secs(8);
        while !(all_vote(&world)) {
            assert!(
                world.now < good_until,
                "seed {seed}: not whole again after {fault:?} of {node_id}"
            );
            let end = world.now + Duration::from_millis(20);
            go_on(&mut world, &clients, &mut prng, &mut written, end);
        }
    }
    for &client in &clients {
        world.expect(
            "an answer for everybody",
            Duration::from_secs(10),
            |world| world.clients[client].is_idle(),
        );
    }
    for key in 0..KEYS {
        let reader = clients[key as usize % clients.len()];
        world.get_done(reader, Wish::Get(vec![b'k', key as u8]));
    }
    let outcomes: Vec<Outcome> = clients
        .iter()
        .flat_map(|&client| world.clients[client].outcomes.clone())
        .collect();
    judge(&outcomes, seed);
    agree(&mut world, seed);
}

fn go_on(world: &mut World, clients: &[usize], prng: &mut Prng, written: &mut u64, end: Instant) {
    while world.now < end {
        drive(world, clients, prng, written);
        let next = (world.now + Duration::from_millis(1)).min(end);
        world.run_until(next);
    }
}

/// The order of the positions is the witness: it has to respect real time and the meaning of a register.
fn judge(outcomes: &[Outcome], seed: u64) {
    let mut writes: BTreeMap<(Vec<u8>, u64), &Vec<u8>> = BTreeMap::new();
    for outcome in outcomes {
        match (&outcome.wish, outcome.status) {
            (Wish::Put(key, value), ClientStatus::Ok) => {
                let twice = writes.insert((key.clone(), outcome.position), value);
                assert!(twice.is_none(), "seed {seed}: two writes at one position");
            }
            (Wish::Put(..), status) => panic!("seed {seed}: a write ended as {status:?}"),
            _ => {}
        }
    }
    for read in outcomes {
        let Wish::Get(key) = &read.wish else { continue };
        assert_eq!(read.status, ClientStatus::Ok);
        let seen = writes
            .range((key.clone(), 0)..=(key.clone(), read.position))
            .next_back();
        let version = read.value.as_ref().map(|(_, version)| *version);
        assert_eq!(
            version,
            seen.map(|((_, position), _)| *position),
            "seed {seed}: {read:?}"
        );
        assert_eq!(
            read.value.as_ref().map(|(value, _)| value),
            seen.map(|(_, value)| *value),
            "seed {seed}"
        );
    }
    respects_real_time(outcomes, seed);
}

fn respects_real_time(outcomes: &[Outcome], seed: u64) {
    let mut ended: Vec<(Instant, u64)> = Vec::new();
    let mut ordered: Vec<&Outcome> = outcomes
        .iter()
        .filter(|outcome| outcome.wish != Wish::Register)
        .collect();
    ordered.sort_by_key(|outcome| outcome.told);
    for outcome in ordered {
        // Whatever had ended before this began has an earlier place in the order.
        let before = ended.partition_point(|&(told, _)| told < outcome.asked);
        let highest = ended[..before].last().map_or(0, |&(_, highest)| highest);
        let is_read = matches!(outcome.wish, Wish::Get(_));
        let in_order = if is_read {
            outcome.position >= highest
        } else {
            outcome.position > highest
        };
        assert!(
            in_order,
            "seed {seed}: {outcome:?} began after {highest} had ended"
        );
        let so_far = ended.last().map_or(0, |&(_, highest)| highest);
        ended.push((outcome.told, so_far.max(outcome.position)));
    }
}

/// In the end all replicas hold the same.
fn agree(world: &mut World, seed: u64) {
    world.loss = "0%".parse().unwrap();
    let end = world.now + Duration::from_secs(5);
    let level = |world: &World| {
        let mut statuses = world
            .running()
            .into_iter()
            .map(|node_id| world.status(node_id));
        let first = statuses.next().unwrap();
        statuses.all(|status| {
            status.applied == first.applied
                && status.store == first.store
                && status.sessions.open == first.sessions.open
        })
    };
    while !level(world) {
        assert!(world.now < end, "seed {seed}: the replicas differ");
        world.run_for(Duration::from_millis(10));
    }
}

/// `TRINE_SEEDS=from..to` asks for others.
fn seeds(default: std::ops::Range<u64>) -> std::ops::Range<u64> {
    let Ok(text) = std::env::var("TRINE_SEEDS") else {
        return default;
    };
    let (from, to) = text.split_once("..").expect("TRINE_SEEDS=from..to");
    from.parse().unwrap()..to.parse().unwrap()
}

#[test]
fn three_replicas_survive_what_they_promise_to_survive() {
    for seed in seeds(0..4) {
        run(3, ReadMode::Index, seed, 8);
    }
}

#[test]
fn five_replicas_survive_what_they_promise_to_survive() {
    for seed in seeds(100..102) {
        run(5, ReadMode::Index, seed, 8);
    }
}

#[test]
fn reads_under_a_lease_survive_it_too() {
    for seed in seeds(200..204) {
        run(3, ReadMode::Lease, seed, 8);
    }
}

#[test]
#[cfg(debug_assertions)]
fn the_planted_stale_read_is_found() {
    let _bug = trine_canary::plant("read without ReadIndex");
    let found =
        (0..12).any(|seed| std::panic::catch_unwind(|| run(3, ReadMode::Index, seed, 8)).is_err());
    assert!(
        found,
        "a replica that answers reads from its own store went unnoticed"
    );
}
