//! A group's lifecycle without faults on the wire: bootstrap, commands, deaths, returns.

use trine_client::{Error, Mode, Obstacle};
use trine_kvstore::{Command, ExecuteMode, List, Response};
use trine_protocol::status::Role;
use trine_transport::time::{Clock, Duration};

use super::world::World;

#[test]
fn a_group_begins_and_serves_put_get_and_delete() {
    let mut world = World::new(1);
    let client = world.open();
    let first = world.put(client, b"key", b"one");
    let second = world.put(client, b"key", b"two");
    assert!(first < second);
    assert_eq!(
        world.get(client, Mode::Read, b"key").as_deref(),
        Some(&b"two"[..])
    );
    assert_eq!(world.get(client, Mode::Read, b"other"), None);
    let finished = world.call(client, Mode::Write, &Command::Delete { key: b"key" });
    let answer = finished.result.expect("the delete succeeds");
    assert_eq!(answer.response(), Ok(Response::Deleted { existed: true }));
    assert_eq!(world.get(client, Mode::Read, b"key"), None);
    let roles: Vec<_> = world
        .roles()
        .into_iter()
        .flatten()
        .map(|(role, ..)| role)
        .collect();
    assert_eq!(
        roles.iter().filter(|role| **role == Role::Leader).count(),
        1
    );
}

#[test]
fn values_of_many_packets_go_in_and_come_out() {
    let mut world = World::new(2);
    let client = world.open();
    let value: Vec<u8> = (0..1_000_000_u32).map(|n| (n % 251) as u8).collect();
    world.put(client, b"large", &value);
    assert_eq!(world.get(client, Mode::Read, b"large"), Some(value));
}

/// Small commands travel in one message, and their answers together were larger than any message may be: the replica
/// answered the whole batch with nothing. The client took that for a replica without memory and sent the same batch
/// again, until the time of all of them was over. Commands that had changed something ended as "outcome unknown" then.
#[test]
fn a_batch_whose_answers_fit_no_message_is_answered_one_by_one() {
    const COMMANDS: i64 = 9;
    let mut world = World::new(4);
    let client = world.open();
    let large = vec![7; 1_000_000];
    world.put(client, b"large", &large);
    let operations = [
        Command::Get { key: b"large" },
        Command::Increment {
            key: b"number",
            delta: 1,
        },
    ];
    let both = Command::Execute {
        mode: ExecuteMode::Independent,
        conditions: List::default(),
        operations: List::from(&operations),
    };
    for (mode, command) in [(Mode::Read, &operations[0]), (Mode::Write, &both)] {
        for tag in 0..COMMANDS as u64 {
            world.submit(client, mode, command, tag);
        }
        world.run_until(Duration::from_secs(10), "all answers", |world| {
            world.finished.len() == COMMANDS as usize
        });
        for finished in world.finished.drain(..) {
            assert!(
                finished.result.is_ok(),
                "{mode:?}: {:?}",
                finished.result.err()
            );
        }
    }
    let number = world.get(client, Mode::Read, b"number").unwrap();
    assert_eq!(
        number,
        COMMANDS.to_string().into_bytes(),
        "each was done once"
    );
}

#[test]
fn nothing_acknowledged_is_lost_with_the_leader() {
    let mut world = World::new(3);
    let client = world.open();
    for n in 0..50_u32 {
        world.put(client, &n.to_le_bytes(), b"before");
    }
    let leader = world.run_until_led();
    world.kill(leader);
    let start = world.client.now();
    world.put(client, b"after", b"the death");
    let failover = world.client.now().saturating_since(start);
    assert!(
        failover < Duration::from_millis(700),
        "the next write took {failover:?}"
    );
    for n in 0..50_u32 {
        assert_eq!(
            world.get(client, Mode::Read, &n.to_le_bytes()).as_deref(),
            Some(&b"before"[..])
        );
    }
}

#[test]
fn writes_in_flight_when_the_leader_dies_are_applied_exactly_once() {
    let mut world = World::new(4);
    let client = world.open();
    world.put(client, b"count", b"");
    for tag in 0..40 {
        world.submit(
            client,
            Mode::Write,
            &Command::Append {
                key: b"count",
                value: b"x",
            },
            tag,
        );
    }
    world.step();
    world.step();
    let leader = world.run_until_led();
    world.kill(leader);
    world.run_until(Duration::from_secs(5), "all outcomes", |world| {
        world.finished.len() == 40
    });
    assert!(
        world
            .finished
            .iter()
            .all(|finished| finished.result.is_ok())
    );
    assert_eq!(
        world
            .get(client, Mode::Read, b"count")
            .map(|value| value.len()),
        Some(40)
    );
}

#[test]
fn a_paused_leader_does_not_answer_from_the_past() {
    let mut world = World::new(5);
    let client = world.open();
    world.put(client, b"key", b"old");
    let old = world.run_until_led();
    world.paused[old] = true;
    world.put(client, b"key", b"new");
    world.paused[old] = false;
    for _ in 0..20 {
        assert_eq!(
            world.get(client, Mode::Read, b"key").as_deref(),
            Some(&b"new"[..])
        );
    }
}

#[test]
fn a_replica_that_lost_its_memory_comes_back_as_somebody_new() {
    let mut world = World::new(6);
    let client = world.open();
    for n in 0..200_u32 {
        world.put(client, &n.to_le_bytes(), &[7; 100]);
    }
    let victim = (world.run_until_led() + 1) % 3;
    let before = world.status(victim).replica.incarnation;
    let backend = world.kill(victim);
    world.put(client, b"meanwhile", b"it is dead");
    world.restart(victim, backend);
    world.run_until(Duration::from_secs(10), "three voters again", |world| {
        let members = world
            .leader()
            .map(|leader| world.status(leader).replica.members);
        let voters = members
            .iter()
            .flatten()
            .filter(|member| member.voter)
            .count();
        voters == 3 && world.status(victim).replica.role == Role::Follower
    });
    assert_ne!(world.status(victim).replica.incarnation, before);
    // It loses its vote with the change that gives the new one a vote, and is removed by the next change.
    let limit = Duration::from_secs(10);
    world.run_until(limit, "the old identity is gone", |world| {
        let members = world.status(victim).replica.members;
        members.iter().all(|member| member.incarnation != before)
    });
    // Now it counts: with another replica dead, it is half of the quorum.
    let other = world.run_until_led();
    world.kill(other);
    assert_eq!(
        world.get(client, Mode::Read, b"meanwhile").as_deref(),
        Some(&b"it is dead"[..])
    );
    assert_eq!(
        world
            .get(client, Mode::Read, &199_u32.to_le_bytes())
            .as_deref(),
        Some(&[7; 100][..])
    );
}

#[test]
fn without_a_majority_writes_fail_and_stale_reads_are_answered() {
    let mut world = World::new(7);
    let client = world.open();
    world.put(client, b"key", b"value");
    let leader = world.run_until_led();
    world.run_for(Duration::from_millis(100));
    world.kill((leader + 1) % 3);
    world.kill((leader + 2) % 3);
    // Long enough for the client to find out that they are dead: messages sent to them might have arrived.
    world.run_for(Duration::from_millis(2_500));
    let put = Command::Put {
        key: b"key",
        value: b"lost",
    };
    let error = world
        .call(client, Mode::Write, &put)
        .result
        .expect_err("there is no majority");
    assert!(
        matches!(
            error,
            Error::NotReachable {
                obstacle: Obstacle::NoLeader | Obstacle::NoQuorum,
                ..
            }
        ),
        "nothing was proposed, and the client knows: {error:?}"
    );
    assert_eq!(
        world.get(client, Mode::ReadStale, b"key").as_deref(),
        Some(&b"value"[..])
    );
}

#[test]
fn the_last_command_of_a_one_shot_client_closes_its_session() {
    let mut world = World::new(8);
    for n in 0..20_u32 {
        let client = world.open();
        let put = Command::Put {
            key: &n.to_le_bytes(),
            value: b"once",
        };
        assert!(world.call(client, Mode::WriteAndClose, &put).result.is_ok());
    }
    let leader = world.run_until_led();
    let sessions = world.status(leader).replica.sessions;
    assert_eq!((sessions.open, sessions.closed), (0, 20));
}

#[test]
fn a_blocking_client_may_do_something_else_for_seconds() {
    let mut world = World::new(9);
    let client = world.open();
    world.put(client, b"key", b"before");
    for pause_ms in [300, 900, 1_100, 5_000] {
        world.idle_client(Duration::from_millis(pause_ms));
        let start = world.clock.now();
        world.put(client, b"key", b"after");
        let took = world.client.now().saturating_since(start);
        assert!(
            took < Duration::from_millis(50),
            "{took:?} after {pause_ms} ms of silence"
        );
    }
    let leader = world.run_until_led();
    assert_eq!(
        world.status(leader).replica.sessions.open,
        1,
        "the same session with the group all the time"
    );
}
