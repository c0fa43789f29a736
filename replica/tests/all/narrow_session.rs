//! A session to a follower that takes few requests at a time.
//!
//! `trine sim --measure`, seed 1, without any fault: clients as fast as they are answered, and a follower whose session
//! took one request at a time. Its disk needed up to 2 ms for each. The leader kept 256 appends in flight, and all but
//! one of them waited in the session. Heartbeats and the answers to the follower's ReadIndex questions queued behind
//! them, became older than the 150 ms that they are worth sending for, and never left. Each read at that follower took
//! 1, 2, 3 or 4 s, which is how often its client gave an attempt up. The appends in flight are now bounded by the
//! session's slots. Further entries wait in the log, and go out in fewer, larger appends.

use trine_replica_harness as harness;

use harness::client::{Outcome, Wish};
use harness::{World, address};
use trine_protocol::message::ClientStatus;
use trine_replica::ReplicaConfig;
use trine_replica::config::APPENDS_PER_SLOT;
use trine_transport::time::Duration;

const SECOND: Duration = Duration::from_secs(1);
/// Writes while the follower answers nothing: each would be an append of its own.
const WRITES: usize = 200;
/// Heartbeats and questions of the time in which they are made.
const OTHERS_MAX: usize = 16;

/// Writes one by one while a follower is silent; returns the leader's open requests after the last one.
fn outstanding_with(slots: Option<usize>) -> usize {
    let mut world = World::serving(3, ReplicaConfig::default(), 1);
    let leader = world.leader().unwrap();
    let slow = world
        .running()
        .into_iter()
        .find(|&node_id| node_id != leader)
        .unwrap();
    let node = world.machines.get_mut(&leader).unwrap();
    node.replica
        .as_mut()
        .unwrap()
        .on_peer_session(address(slow), slots);
    let writer = world.registered_client(leader);
    // The limit comes into force with the next tick.
    world.run_for(Duration::from_millis(50));
    world.pause(slow);
    for n in 0..WRITES {
        world.put(writer, "k", &n.to_string());
    }
    let outstanding = world.outstanding(leader);
    world.resume(slow);
    let read = read_at(&mut world, slow);
    assert_eq!(read.status, ClientStatus::Ok, "{read:?}");
    let last = (WRITES - 1).to_string().into_bytes();
    assert_eq!(read.value.map(|(value, _)| value), Some(last));
    outstanding
}

fn read_at(world: &mut World, node_id: u32) -> Outcome {
    let reader = world.add_client(node_id);
    world.clients[reader].patience = SECOND * 10;
    world.ask_at(reader, node_id, Wish::HereGet("k".into()));
    world.outcome(reader)
}

#[test]
fn appends_do_not_pile_up_in_front_of_a_narrow_session() {
    for slots in [1, 4] {
        let outstanding = outstanding_with(Some(slots));
        let most = slots * APPENDS_PER_SLOT + OTHERS_MAX;
        assert!(outstanding <= most, "{slots} slots: {outstanding} requests");
    }
}

#[test]
fn a_wide_session_takes_what_the_settings_allow() {
    for slots in [Some(32), None] {
        let outstanding = outstanding_with(slots);
        let least = ReplicaConfig::default().appends_in_flight_max;
        assert!(outstanding >= least, "{slots:?}: {outstanding} requests");
    }
}
