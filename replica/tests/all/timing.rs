//! The stages of a write's time: reported on request, and counted for a sample of all writes.

use trine_replica_harness as harness;

use harness::World;
use trine_kvstore::{Command, Response};
use trine_protocol::message::{ClientReply, ClientRequest, Encode, Operation, kind};
use trine_replica::ReplicaConfig;
use trine_transport::time::Duration;

fn request(world: &World, client: usize, sequence: u64, timed: bool) -> Vec<u8> {
    let mut command = Vec::new();
    Command::Put {
        key: b"k",
        value: b"v",
    }
    .encode(&mut command);
    ClientRequest {
        timed,
        cluster: world.clients[client].cluster,
        client: world.clients[client].id,
        sequence,
        lowest_awaited: sequence,
        session_number: world.clients[client].nonce,
        command: &command,
        ..ClientRequest::bare(Operation::Apply)
    }
    .encode_to_vec()
}

/// One packet takes 20 us at least, so a quorum is two of them away; nothing else takes time in this world.
#[test]
fn a_write_says_where_its_time_went_if_it_is_asked() {
    let mut world = World::serving(3, ReplicaConfig::default(), 1);
    let client = world.registered_client(1);
    let leader = world.leader().unwrap();
    for (sequence, timed) in [(1, true), (2, false), (3, true)] {
        let request = request(&world, client, sequence, timed);
        world.inject(leader, kind::CLIENT, &request);
        world.run_for(Duration::from_millis(5));
        let bytes = world.heard_from_replicas.pop().expect("an answer");
        let reply = ClientReply::decode(&bytes).unwrap();
        let response = Response::decode(reply.response).unwrap();
        assert!(matches!(response, Response::Written { .. }));
        assert_eq!(ClientReply::response_of(&bytes), reply.response);
        assert_eq!(reply.encode_to_vec(), bytes);
        assert_eq!(reply.timing.is_some(), timed);
        if let Some(timing) = reply.timing {
            assert!(timing.quorum_ns >= 40_000, "{timing:?}");
            assert!(timing.total_ns() < 5_000_000, "{timing:?}");
        }
    }
}

#[test]
fn a_sample_of_all_writes_is_counted_by_stage() {
    let mut world = World::serving(3, ReplicaConfig::default(), 2);
    let client = world.registered_client(1);
    for n in 0..300 {
        world.put(client, "k", &n.to_string());
    }
    let status = world.status(world.leader().unwrap());
    let counts = status.stages.stages().map(|(_, histogram)| histogram.count);
    // The registration is a write, too.
    assert_eq!(counts, [301_u64.div_ceil(64); 4]);
    let quorum = &status.stages.quorum;
    assert!(quorum.sum_ns / quorum.count >= 40_000);
    assert!(quorum.percentile_ns(50).unwrap() >= 40_000);
    for node_id in world.running() {
        if Some(node_id) != world.leader() {
            assert_eq!(world.status(node_id).stages.quorum.count, 0);
        }
    }
}
