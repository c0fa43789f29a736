//! The answers that a group keeps for its clients: one user that acknowledges none does not stop the others.

use trine_keys::Role;
use trine_kvstore::{Command, Rights};
use trine_protocol::message::{
    ClientReply, ClientRequest, ClientStatus, ClusterId, Encode, GroupId, Operation, kind,
};
use trine_replica::ReplicaConfig;
use trine_replica::rights::{Caller, KeyStage};
use trine_replica_harness::{World, small};
use trine_transport::time::Duration;

use crate::support::users::{add_user, encoded, user};

const MEMORY: u64 = 1 << 20;
const VALUE_BYTES: usize = 100_000;
const NOBODY: Caller = Caller::Unkeyed(KeyStage::None);

/// A group with a large value and little memory for answers, whose users are alice and carol.
fn group() -> World {
    let mut config = ReplicaConfig { ..small() };
    config.session_limits.reply_bytes_max = MEMORY;
    let mut world = World::serving(3, config, 11);
    let admin = world.registered_client(1);
    for who in ["alice", "carol"] {
        let rights = Rights {
            role: Role::Write,
            front: false,
            prefix: b"",
        };
        add_user(&mut world, admin, who, rights);
    }
    let large = "v".repeat(VALUE_BYTES);
    world.put(admin, "large", &large);
    world
}

/// A client session as its client knows it.
#[derive(Clone, Copy)]
struct Session {
    caller: Caller,
    client: u64,
    number: u64,
    cluster: ClusterId,
}

impl Session {
    fn open(world: &mut World, caller: Caller, number: u64) -> Self {
        let request = ClientRequest {
            client: number,
            ..ClientRequest::bare(Operation::Register)
        };
        let bytes = world.say_as(caller, &request.encode_to_vec());
        let reply = ClientReply::decode(&bytes).expect("a reply");
        assert_eq!(reply.status, ClientStatus::Ok);
        Self {
            caller,
            client: reply.position,
            number,
            cluster: reply.cluster,
        }
    }

    fn request(&self, sequence: u64, lowest_awaited: u64, command: &Command<'_>) -> Vec<u8> {
        let command = encoded(command);
        let request = ClientRequest {
            operation: Operation::Apply,
            timed: false,
            group: GroupId(0),
            cluster: self.cluster,
            client: self.client,
            sequence,
            lowest_awaited,
            session_number: self.number,
            check: trine_protocol::message::NO_CHECK,
            for_user: None,
            command: &command,
        };
        request.encode_to_vec()
    }

    /// Asks for the large value through the log.
    fn ask(&self, world: &mut World, sequence: u64, lowest_awaited: u64) -> ClientStatus {
        let request = self.request(sequence, lowest_awaited, &Command::Get { key: b"large" });
        status_of(&world.say_as(self.caller, &request))
    }

    /// Asks for it with each of these sequences before it hears the first answer. Returns how often it was told to wait, after
    /// all others have their answers.
    fn ask_at_once(
        &self,
        world: &mut World,
        sequences: std::ops::RangeInclusive<u64>,
        lowest_awaited: u64,
    ) -> usize {
        let count = sequences.clone().count();
        let leader = world.leader().expect("somebody leads");
        world.heard_from_replicas.clear();
        world.as_caller(self.caller, |world| {
            for sequence in sequences {
                let get = Command::Get { key: b"large" };
                let request = self.request(sequence, lowest_awaited, &get);
                world.inject(leader, kind::CLIENT, &request);
            }
        });
        world.expect("an answer to each", Duration::from_secs(1), |world| {
            world.heard_from_replicas.len() == count
        });
        let mut waits = 0;
        for reply in &world.heard_from_replicas {
            match status_of(reply) {
                ClientStatus::ReplyShareTaken => waits += 1,
                status => assert_eq!(status, ClientStatus::Ok),
            }
        }
        waits
    }

    fn put(&self, world: &mut World, sequence: u64) -> ClientStatus {
        let put = Command::Put {
            key: b"small",
            value: b"v",
        };
        status_of(&world.say_as(self.caller, &self.request(sequence, sequence, &put)))
    }
}

fn status_of(reply: &[u8]) -> ClientStatus {
    ClientReply::decode(reply).expect("a reply").status
}

fn kept(world: &World) -> u64 {
    let leader = world.leader().expect("somebody leads");
    world.status(leader).sessions.reply_bytes
}

fn refused(world: &World) -> u64 {
    let leader = world.leader().expect("somebody leads");
    world.status(leader).counters.reply_share_refused
}

/// A client that never acknowledged kept all answers of its 64 commands. Ten large ones filled the memory of this group, and
/// the writes of every other client were refused as long as the session was in use.
#[test]
fn a_user_that_acknowledges_nothing_leaves_room_for_others() {
    let mut world = group();
    let (alice, carol) = (user("alice", 1), user("carol", 2));
    let greedy = Session::open(&mut world, alice, 70);
    let other = Session::open(&mut world, carol, 71);
    // All of them come before the first is applied.
    let waits = greedy.ask_at_once(&mut world, 2..=40, 1);
    let most = (MEMORY / 2) as usize / VALUE_BYTES + 1;
    assert!((39 - most..39).contains(&waits), "{waits} wait");
    assert!(kept(&world) < MEMORY / 2 + VALUE_BYTES as u64 * 2);
    assert_eq!(refused(&world), waits as u64);
    for sequence in 1..=20 {
        assert_eq!(other.put(&mut world, sequence), ClientStatus::Ok);
    }
    assert_eq!(other.ask_at_once(&mut world, 22..=23, 21), 0);

    // Neither does another session of the same user get more.
    let more = Session::open(&mut world, alice, 72);
    let share_taken = ClientStatus::ReplyShareTaken;
    assert_eq!(more.ask(&mut world, 2, 1), share_taken);
    // What nothing else can come before is never refused, and a duplicate is answered.
    assert_eq!(more.ask(&mut world, 1, 1), ClientStatus::Ok);
    assert_eq!(greedy.ask(&mut world, 2, 1), ClientStatus::Ok);
    assert_eq!(greedy.ask(&mut world, 41, 1), share_taken);
    assert_eq!(greedy.ask(&mut world, 1, 1), ClientStatus::Ok);
    // Whoever acknowledges goes on.
    assert_eq!(greedy.ask(&mut world, 42, 41), ClientStatus::Ok);
    assert_eq!(greedy.ask(&mut world, 43, 41), ClientStatus::Ok);
}

/// Clients without names are not one user: one that acknowledges nothing makes no other wait.
#[test]
fn without_users_each_session_has_a_share() {
    let mut world = group();
    let greedy = Session::open(&mut world, NOBODY, 70);
    let other = Session::open(&mut world, NOBODY, 71);
    assert!(greedy.ask_at_once(&mut world, 2..=40, 1) > 30);
    assert_eq!(other.ask_at_once(&mut world, 2..=3, 1), 0);
    assert_eq!(other.put(&mut world, 1), ClientStatus::Ok);
    assert_eq!(greedy.ask(&mut world, 1, 1), ClientStatus::Ok);
}

/// A client that has everything in flight that it may, and takes its answers, has all of them in the end: whatever is refused
/// is let in once the client has acknowledged more.
#[test]
fn a_client_that_takes_its_answers_always_gets_ahead() {
    const COMMANDS: u64 = 100;
    let mut world = group();
    let client = Session::open(&mut world, user("alice", 1), 70);
    let mut done = [false; COMMANDS as usize + 1];
    let mut lowest = 1;
    let mut rounds = 0;
    while lowest <= COMMANDS {
        rounds += 1;
        assert!(rounds <= COMMANDS, "each round answers one at least");
        for sequence in lowest..=COMMANDS.min(lowest + 63) {
            if !done[sequence as usize] {
                let status = client.ask(&mut world, sequence, lowest);
                done[sequence as usize] = status == ClientStatus::Ok;
                assert!(done[sequence as usize] || status == ClientStatus::ReplyShareTaken);
            }
        }
        assert!(done[lowest as usize], "the lowest is never refused");
        while lowest <= COMMANDS && done[lowest as usize] {
            lowest += 1;
        }
    }
    assert!(rounds > 2, "something had to wait");
}

/// The bug that no seed of the simulator finds: its clients acknowledge.
#[test]
#[cfg(debug_assertions)]
fn the_planted_user_that_has_all_kept_answers_is_found() {
    let _bug = trine_canary::plant("one user has all kept answers");
    let mut world = group();
    let greedy = Session::open(&mut world, user("alice", 1), 70);
    let other = Session::open(&mut world, user("carol", 2), 71);
    for sequence in 2..=12 {
        greedy.ask(&mut world, sequence, 1);
    }
    assert_eq!(other.put(&mut world, 1), ClientStatus::SessionsFull);
}
