//! Reads under a lease: quick while it lasts, and never stale, whatever happens to the leader and its clock.

use trine_replica_harness as harness;

use harness::client::Wish;
use harness::{World, small};
use trine_protocol::message::{
    AdminCommand, AdminRequest, ClientStatus, ClusterId, Encode, Incarnation, NodeId, kind,
};
use trine_protocol::status::Role;
use trine_replica::ReplicaConfig;
use trine_replica::config::{ConfigError, ReadMode};
use trine_transport::time::{Duration, Instant};

const SECOND: Duration = Duration::from_secs(1);

fn leased() -> ReplicaConfig {
    ReplicaConfig {
        reads: ReadMode::Lease,
        ..ReplicaConfig::default()
    }
}

#[test]
fn many_reads_need_few_rounds() {
    let mut world = World::serving(3, leased(), 1);
    let client = world.registered_client(1);
    world.put(client, "k", "v");
    for _ in 0..1000 {
        assert_eq!(world.get(client, "k").as_deref(), Some("v"));
    }
    let status = world.status(world.leader().unwrap());
    assert_eq!(status.counters.reads_linearizable, 1000);
    assert!(
        status.counters.reads_under_lease > 950,
        "{:?}",
        status.counters
    );
    assert!(status.counters.read_rounds < 50, "{:?}", status.counters);
    let lease = status.lease.unwrap();
    assert_eq!((lease.length_ns, lease.drift_ns), (102_000_000, 10_000_000));
    assert!(lease.left_ns.unwrap() <= lease.length_ns);
}

#[test]
fn a_drift_that_eats_the_whole_lease_is_refused() {
    let config = ReplicaConfig {
        lease_drift: Duration::from_millis(140),
        ..leased()
    };
    assert_eq!(config.validate(), Err(ConfigError::Lease));
}

/// Asks the old leader again and again while the others elect a new one and write. Returns when it was last asked for
/// an answer that turned out old, and when the first new write was acknowledged.
pub(crate) fn race(
    world: &mut World,
    old: u32,
    writer: usize,
    reader: usize,
) -> (Instant, Instant) {
    let other = world
        .running()
        .into_iter()
        .find(|&node_id| node_id != old)
        .unwrap();
    world.clients[writer].patience = Duration::from_millis(20);
    world.clients[reader].gives_up = true;
    world.ask_at(writer, other, Wish::Put("k".into(), b"new".to_vec()));
    let mut old_answer = world.now;
    let mut written = None;
    let end = world.now + Duration::from_millis(900);
    while world.now < end {
        if world.clients[writer].is_idle() && written.is_none() {
            written = Some(world.clients[writer].outcomes.last().unwrap().told);
        }
        if world.clients[reader].is_idle() {
            let last = world.clients[reader].outcomes.last();
            if let Some(last) =
                last.filter(|o| o.value.as_ref().is_some_and(|(value, _)| value == b"old"))
            {
                old_answer = last.asked;
            }
            world.ask_at(reader, old, Wish::Get("k".into()));
        }
        world.run_for(Duration::from_micros(300));
    }
    (old_answer, written.expect("a new leader writes"))
}

/// The last old answer of a race was asked for before the first new write was acknowledged.
#[track_caller]
pub(crate) fn assert_fresh(seed: u64, (old_answer, written): (Instant, Instant)) {
    assert!(
        old_answer < written,
        "seed {seed}: read {old_answer:?}, written {written:?}"
    );
}

#[test]
fn a_leader_that_was_cut_off_stops_before_another_one_begins() {
    for seed in 0..10 {
        let mut world = World::serving(3, leased(), seed);
        let (writer, reader) = (world.registered_client(1), world.registered_client(1));
        world.put(writer, "k", "old");
        world.get(reader, "k");
        let old = world.leader().unwrap();
        let began = world.now;
        world.isolate(old);
        let (old_answer, written) = race(&mut world, old, writer, reader);
        assert_fresh(seed, (old_answer, written));
        let lasted = old_answer.saturating_since(began);
        assert!(
            lasted > Duration::from_millis(50),
            "seed {seed}: the lease was of use for {lasted:?} only"
        );
    }
}

/// The leader is stopped right after it has read the clock. The read arrives while it sleeps, and the others have
/// elected and written long before it wakes up. By its clock the lease still runs.
#[test]
fn a_leader_that_slept_between_the_clock_and_the_read_does_not_answer() {
    for seed in 0..10 {
        let mut world = World::serving(3, leased(), seed);
        let (writer, reader) = (world.registered_client(1), world.registered_client(1));
        world.put(writer, "k", "old");
        world.get(reader, "k");
        let old = world.leader().unwrap();
        assert!(world.status(old).lease.unwrap().left_ns.is_some());
        world.pause(old);
        // Nothing tells it of the new term when it wakes up.
        world.isolate(old);
        world.clients[writer].patience = Duration::from_millis(20);
        world.put(writer, "k", "new");
        world.clients[reader].gives_up = true;
        world.clients[reader].patience = SECOND * 60;
        world.ask_at(reader, old, Wish::Get("k".into()));
        world.run_for(SECOND * 3);
        world.resume(old);
        let outcome = world.outcome(reader);
        let new = outcome
            .value
            .as_ref()
            .is_some_and(|(value, _)| value == b"new");
        assert!(
            outcome.status != ClientStatus::Ok || new,
            "seed {seed}: {outcome:?}"
        );
    }
}

/// A follower acknowledges late, out of its queue, with a clock from before its sleep. Its promise begins when it
/// acknowledges, not when it thinks that it does. A burst of the ticks that it missed would break the promise at once.
#[test]
fn a_follower_that_slept_keeps_its_promise() {
    for seed in 0..12 {
        let mut world = World::serving(3, leased(), seed);
        let (writer, reader) = (world.registered_client(1), world.registered_client(1));
        world.put(writer, "k", "old");
        let old = world.leader().unwrap();
        let others: Vec<u32> = world
            .running()
            .into_iter()
            .filter(|&node_id| node_id != old)
            .collect();
        // One follower is cut off permanently and wants to lead; the other one sleeps through most of its timeout.
        world.partition(&[others[0]], &[old]);
        world.pause(others[1]);
        world.run_for(Duration::from_millis(100 + seed));
        // This round finds the sleeper's queue, and is acknowledged as soon as it wakes up.
        world.ask_at(reader, old, Wish::Get("k".into()));
        world.run_for(Duration::from_millis(1));
        world.resume(others[1]);
        assert_fresh(seed, race(&mut world, old, writer, reader));
    }
}

/// A follower sleeps through ticks that do nothing, and counts them when it wakes up. One that was stopped between reading
/// its clock and the heartbeat that a lease begins with must count none of its pause. Those ticks passed before the
/// heartbeat was sent, though its clock says otherwise.
#[test]
fn ticks_of_a_pause_do_not_shorten_a_promise_made_at_its_end() {
    for seed in 0..80 {
        let mut world = World::serving(3, leased(), seed);
        let (writer, reader) = (world.registered_client(1), world.registered_client(1));
        world.put(writer, "k", "old");
        let old = world.leader().unwrap();
        let (next, sleeper) = (1 + old % 3, 1 + (old + 1) % 3);
        // One follower is to campaign while the lease runs that the other one confirms.
        world.partition(&[next], &[old]);
        world.run_for(Duration::from_millis(60));
        world.pause(sleeper);
        world.run_for(Duration::from_millis(20 + seed));
        world.ask_at(reader, old, Wish::Get("k".into()));
        world.run_for(Duration::from_millis(1));
        world.resume(sleeper);
        world.run_for(Duration::from_millis(1));
        world.isolate(old);
        assert_fresh(seed, race(&mut world, old, writer, reader));
    }
}

/// A process that was stopped finds heartbeats in its queue. It must not take its pause for the leader's silence, whatever
/// it had planned to sleep through.
#[test]
fn a_follower_that_was_paused_disturbs_nobody() {
    for pause_ms in (5..600).step_by(7) {
        let mut world = World::serving(3, leased(), pause_ms);
        world.run_for(Duration::from_millis(200 + pause_ms % 30));
        let leader = world.leader().unwrap();
        let term = world.status(leader).term;
        let paused = 1 + leader % 3;
        world.pause(paused);
        world.run_for(Duration::from_millis(pause_ms));
        world.resume(paused);
        world.run_for(SECOND);
        for node_id in world.running() {
            let status = world.status(node_id);
            assert_eq!(status.term, term, "{pause_ms} ms");
        }
        assert_eq!(world.leader(), Some(leader));
    }
}

/// An operator tells the leader to transfer leadership to the member at `next`.
fn transfer_leadership_to(world: &mut World, leader: u32, next: u32) {
    let command = AdminRequest {
        command: AdminCommand::TransferLeadership,
        node_id: NodeId(next),
        incarnation: Incarnation::NONE,
        cluster: ClusterId::NONE,
        address: None,
    };
    world.inject(leader, kind::ADMIN, &command.encode_to_vec());
}

#[test]
fn transferring_leadership_ends_the_lease_at_once() {
    for seed in 0..10 {
        let mut world = World::serving(3, leased(), seed);
        let (writer, reader) = (world.registered_client(1), world.registered_client(1));
        world.put(writer, "k", "old");
        world.get(reader, "k");
        world.run_for(Duration::from_millis(200));
        world.get(reader, "k");
        let old = world.leader().unwrap();
        transfer_leadership_to(&mut world, old, 1 + old % 3);
        // From here on the old leader hears nothing: neither of the new term nor of its own end.
        world.isolate(old);
        assert_eq!(world.status(old).lease.unwrap().left_ns, None);
        assert_fresh(seed, race(&mut world, old, writer, reader));
    }
}

/// The message to take over is late. It lies in the successor's queue until the old leader has given the transfer up
/// and leads on in the same term. The third replica has confirmed its leadership by then. Then the successor is elected
/// at once, for no vote is held back from such a candidate. The old leader, cut off from both, does not hear of it.
/// Returns the last old answer and the first new write.
fn late_transfer(seed: u64) -> (Instant, Instant) {
    let mut world = World::serving(3, leased(), seed);
    let (writer, reader) = (world.registered_client(1), world.registered_client(1));
    world.put(writer, "k", "old");
    world.run_for(Duration::from_millis(200));
    let old = world.leader().unwrap();
    let next = 1 + old % 3;
    world.pause(next);
    transfer_leadership_to(&mut world, old, next);
    assert!(world.replica(old).is_handing_over(), "seed {seed}");
    world.expect("the transfer is given up", SECOND, |world| {
        !world.replica(old).is_handing_over()
    });
    assert_eq!(world.leader(), Some(old));
    assert_eq!(world.get(reader, "k").as_deref(), Some("old"));
    world.isolate(old);
    world.resume(next);
    race(&mut world, old, writer, reader)
}

#[test]
fn a_transfer_that_comes_too_late_finds_no_lease() {
    for seed in 0..10 {
        assert_fresh(seed, late_transfer(seed));
    }
}

/// The simulator finds this bug with no seed (chaos/README.md).
#[test]
#[cfg(debug_assertions)]
fn the_planted_lease_that_survives_a_transfer_is_found() {
    let _bug = trine_canary::plant("lease survives a transfer");
    let stale = |seed| {
        let (old_answer, written) = late_transfer(seed);
        old_answer >= written
    };
    assert!((0..10).any(stale), "no old answer behind a new write");
}

/// A replica with hasty timers joins a group that has promised its leaders more than that.
#[test]
fn a_hasty_replica_adopts_the_promise_of_its_group() {
    let mut world = World::serving(
        3,
        ReplicaConfig {
            reads: ReadMode::Lease,
            ..small()
        },
        3,
    );
    let (writer, reader) = (world.registered_client(1), world.registered_client(1));
    world.put(writer, "k", "old");
    let leader = world.leader().unwrap();
    let node_id = 1 + leader % 3;
    world.kill(node_id);
    world.config.election_ticks = 5;
    world.config.reads = ReadMode::Index;
    world.start(node_id, false);
    world.expect("the hasty voter", SECOND * 5, |world| {
        world.leader().is_some() && world.holder(node_id) == world.replica(node_id).incarnation()
    });
    world.run_for(SECOND);
    world.get(reader, "k");
    world.partition(&[leader], &[node_id]);
    world.kill(1 + node_id % 3);
    for _ in 0..110 {
        world.run_for(Duration::from_millis(1));
        assert_eq!(
            world.status(node_id).role,
            Role::Follower,
            "it campaigns no sooner than the others would"
        );
    }
    world.expect("a candidate after all", SECOND, |world| {
        world.status(node_id).role == Role::Candidate
    });
}
