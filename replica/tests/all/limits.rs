//! The bounds on the path of a write, and the error of a client that meets one.

use trine_replica_harness as harness;

use harness::World;
use harness::client::Wish;
use trine_kvstore::{Command, List, Pair};
use trine_protocol::message::{
    ClientReply, ClientRequest, ClientStatus, Encode, GroupId, Operation, kind,
};
use trine_replica::ReplicaConfig;
use trine_replica::config::{ENTRY_BYTES_MAX, SESSION_WINDOW};
use trine_transport::time::Duration;

/// Several values in one command, of so many bytes together.
fn large_command(bytes: usize) -> Vec<u8> {
    let value = vec![b'v'; 1 << 20];
    let keys: Vec<Vec<u8>> = (0..4).map(|n| format!("k{n}").into_bytes()).collect();
    let mut left = bytes;
    let pairs: Vec<Pair<'_>> = keys
        .iter()
        .map(|key| {
            let len = left.min(value.len());
            left -= len;
            let value = &value[..len];
            Pair { key, value }
        })
        .collect();
    let mut command = Vec::new();
    let pairs = List::from(&pairs[..]);
    Command::MultiPut { pairs }.encode(&mut command);
    command
}

/// A command over the limit would be in every replica's log before it was noticed, so it is refused on arrival.
#[test]
fn a_command_that_no_entry_can_hold_is_refused_before_it_is_proposed() {
    let mut world = World::serving(3, ReplicaConfig::default(), 1);
    let client = world.registered_client(1);
    let leader = world.leader().unwrap();
    let proposed = world.status(leader).counters.entries_proposed;
    let fits = large_command(ENTRY_BYTES_MAX - (1 << 10));
    let outcome = world.get_done(client, Wish::Write(fits));
    assert_eq!(outcome.status, ClientStatus::Ok);
    let too_large = vec![0; ENTRY_BYTES_MAX];
    let outcome = world.get_done(client, Wish::Write(too_large));
    assert_eq!(outcome.status, ClientStatus::TooLarge);
    let counters = world.status(leader).counters;
    assert_eq!(counters.entries_proposed, proposed + 1);
}

/// Without followers nothing commits: proposals wait, and their bytes are counted until it is over.
#[test]
fn the_bytes_of_waiting_writes_are_bounded() {
    let config = ReplicaConfig {
        pending_bytes_max: 8 << 20,
        ..ReplicaConfig::default()
    };
    let mut world = World::serving(3, config, 2);
    let leader = world.leader().unwrap();
    let clients: Vec<usize> = (0..6).map(|_| world.registered_client(leader)).collect();
    world.isolate(leader);
    for &client in &clients {
        world.clients[client].gives_up = true;
        world.clients[client].patience = Duration::from_secs(5);
        world.ask_at(client, leader, Wish::Write(large_command(3 << 20)));
        world.run_for(Duration::from_micros(500));
    }
    world.run_for(Duration::from_millis(5));
    let busy = |world: &World| {
        let is_busy = |&&c: &&usize| world.clients[c].heard.contains(&ClientStatus::Busy);
        clients.iter().filter(is_busy).count()
    };
    assert_eq!(busy(&world), 3, "three of them are more than the bound");
    assert_eq!(world.status(leader).counters.busy, 3);
    // The room comes back with a quorum.
    world.heal();
    world.expect("an answer for each", Duration::from_secs(5), |world| {
        clients.iter().all(|&c| world.clients[c].is_idle())
    });
    let client = world.registered_client(leader);
    world.put(client, "k", "v");
    assert_eq!(busy(&world), 3);
}

#[test]
fn a_sequence_outside_of_the_window_is_refused_before_it_is_proposed() {
    let mut world = World::serving(3, ReplicaConfig::default(), 3);
    let client = world.registered_client(1);
    let leader = world.leader().unwrap();
    let mut command = Vec::new();
    Command::Delete { key: b"k" }.encode(&mut command);
    let proposed = world.status(leader).counters.writes_proposed;
    for (ahead, status) in [
        (SESSION_WINDOW - 1, ClientStatus::Ok),
        (SESSION_WINDOW, ClientStatus::WindowExceeded),
    ] {
        let request = ClientRequest {
            timed: false,
            operation: Operation::Apply,
            group: GroupId(0),
            cluster: world.clients[client].cluster,
            client: world.clients[client].id,
            sequence: 1 + ahead,
            lowest_awaited: 1,
            session_number: world.clients[client].nonce,
            check: trine_protocol::message::NO_CHECK,
            for_user: None,
            command: &command,
        };
        world.inject(leader, kind::CLIENT, &request.encode_to_vec());
        world.run_for(Duration::from_millis(5));
        let heard = world.heard_from_replicas.last().expect("an answer");
        assert_eq!(ClientReply::decode(heard).unwrap().status, status);
    }
    assert_eq!(world.status(leader).counters.writes_proposed, proposed + 1);
}

/// A write without a quorum fails with its reason, the reason is in the status, and a stale read is answered.
#[test]
fn without_a_quorum_the_reason_is_said_and_stale_reads_go_on() {
    let mut world = World::serving(3, ReplicaConfig::default(), 4);
    let client = world.registered_client(1);
    world.put(client, "k", "v");
    // Followers hear of the commit with the next heartbeat.
    world.run_for(Duration::from_millis(100));
    let left = world.running()[2];
    for node_id in world.running() {
        if node_id != left {
            world.kill(node_id);
        }
    }
    world.run_for(Duration::from_secs(3));
    world.clients[client].gives_up = true;
    for wish in [
        Wish::Put("k".into(), "w".into()),
        Wish::Get("k".into()),
        Wish::HereGet("k".into()),
    ] {
        world.ask_at(client, left, wish);
        assert_eq!(world.outcome(client).status, ClientStatus::NoQuorum);
    }
    let why = world.status(left).not_serving.expect("a reason");
    assert!(why.contains("no quorum: 1 of 3 voters"), "{why}");
    world.ask_at(client, left, Wish::StaleGet("k".into()));
    let value = world.outcome(client).value.map(|(value, _)| value);
    assert_eq!(value, Some(b"v".to_vec()));
}
