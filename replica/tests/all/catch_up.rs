//! The amount that a follower that was away is sent at a time.
//!
//! The memory of a replica grew in steps of a hundred MiB, without an explanation. It had run for half an hour while
//! the others were killed every 20 seconds. Message buffers are never given back, and a follower that catches up was
//! thought to need 256 of 64 KiB. Raft was asked to send appends of 60 KiB, and to merge what it sends to one follower
//! in one turn into one message. It merges without looking at that size. The first answer of a follower that was away
//! opened the whole window, and 256 appends went out as one of 15 MiB. Larger than 8 MiB it could not even be sent, and
//! the follower was asked again, with 60 KiB at a time.

use trine_replica_harness as harness;

use harness::{World, small};
use trine_protocol::message::{ChunkAck, ChunkOutcome};
use trine_protocol::status::Status;
use trine_replica::ReplicaConfig;
use trine_replica::config::APPEND_BYTES_UNDER_WAY_MAX;
use trine_transport::time::Duration;

const SECOND: Duration = Duration::from_secs(1);

/// A follower of the present leader.
fn follower(world: &World) -> u32 {
    let leader = world.leader().unwrap();
    let mut others = world
        .running()
        .into_iter()
        .filter(|&node_id| node_id != leader);
    others.next().unwrap()
}

/// Writes so much that the follower lacks it, and lets it come back.
fn behind(world: &mut World, away: u32, writes: usize, value: &str) {
    let writer = world.registered_client(world.leader().unwrap());
    world.isolate(away);
    for n in 0..writes {
        world.put(writer, &n.to_string(), value);
    }
    world.heal();
}

fn expect_in_step(world: &mut World, away: u32) {
    let committed = world.status(world.leader().unwrap()).committed;
    world.expect("caught up", SECOND * 20, |world| {
        world.status(away).applied >= committed
    });
}

#[test]
fn an_append_to_a_follower_that_was_away_is_no_larger_than_asked_for() {
    let mut world = World::serving(3, ReplicaConfig::default(), 1);
    let away = follower(&world);
    // 9 MiB: glued together more than any message can be.
    behind(&mut world, away, 1_200, &"v".repeat(8_000));
    world.largest_append = 0;
    expect_in_step(&mut world, away);
    let most = world.config.append_bytes_max as usize;
    let largest = world.largest_append;
    assert!(largest > most / 2, "{largest} bytes: it was not behind");
    assert!(largest <= 64 << 10, "an append of {largest} bytes");
    let leader = world.leader().unwrap();
    assert_eq!(world.status(leader).counters.messages_unsent, 0);
}

/// Raft counts the appends in flight, whatever they weigh. A follower that answered nothing was sent a window of large
/// ones, 64 of up to 4 MiB, all of them in the leader's memory.
#[test]
fn a_silent_follower_is_sent_so_many_bytes_and_no_more() {
    let mut world = World::serving(3, ReplicaConfig::default(), 2);
    let (leader, silent) = (world.leader().unwrap(), follower(&world));
    let writer = world.registered_client(leader);
    world.pause(silent);
    let value = "v".repeat(1_000_000);
    for n in 0..45 {
        world.put(writer, &n.to_string(), &value);
    }
    let fit = APPEND_BYTES_UNDER_WAY_MAX / value.len() + 1;
    let outstanding = world.outstanding(leader);
    assert!(outstanding <= fit + 8, "{outstanding} requests under way");
    assert!(world.status(leader).counters.appends_withheld > 0);
    world.resume(silent);
    expect_in_step(&mut world, silent);
}

/// A node comes back with a new identity, has the state installed, and the answer that says so is lost. The sender
/// asked again, was refused because the state was there already, took that for a failure, and started over. It did so
/// thirty times a second, each second with a new image. The node stayed out of the group until a write moved the log.
/// Raft's own answer had been dropped, because it left before the new member's state did, and thus before it knew its
/// leader's address.
#[test]
fn an_installed_snapshot_whose_answer_is_lost_is_not_sent_again() {
    for lost in [false, true] {
        let mut world = World::serving(3, small(), 7);
        let away = follower(&world);
        let writer = world.registered_client(world.leader().unwrap());
        for n in 0..50 {
            world.put(writer, &n.to_string(), "v");
        }
        world.kill(away);
        world.run_for(SECOND * 2);
        let installed = |bytes: &[u8]| {
            ChunkAck::decode(bytes).is_ok_and(|ack| ack.outcome == ChunkOutcome::Installed)
        };
        world.lose_answer = lost.then_some(installed);
        world.start(away, false);
        let own = world.replica(away).incarnation().to_string();
        world.expect("a voter again", SECOND * 20, |world| {
            let leader = world.leader().map(|leader| world.status(leader));
            let voter = |status: Status| {
                let mut members = status.members.iter();
                members.any(|member| member.incarnation == own && member.voter)
            };
            leader.is_some_and(voter)
        });
        assert!(world.lose_answer.is_none(), "no answer was lost");
        world.run_for(SECOND * 10);
        let counters = world.status(away).counters;
        assert_eq!(counters.snapshots_installed, 1);
        let counters = world.status(world.leader().unwrap()).counters;
        assert_eq!(counters.snapshots_failed, 0, "lost: {lost}");
    }
}
