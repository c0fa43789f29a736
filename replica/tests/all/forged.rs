//! Packets that a client without any key and without inside knowledge has sent to the first release, and their effects.
//! Each ended a group, or made it lie. STATUS tells everybody who the members are, so every header here is right.

use prost::Message as _;
use raft::eraftpb::{Entry, Message, MessageType};
use trine_kvstore::Command;
use trine_protocol::message::{
    AdminCommand, AdminStatus, AppendFrame, ClientReply, ClientRequest, ClientStatus, ClusterId,
    Encode, GroupId, Incarnation, JoinRefusal, JoinReply, JoinRequest, NodeId, Operation,
    PeerHeader, RaftFrame, StateReport, kind,
};
use trine_protocol::status::Role;
use trine_replica_harness::client::Wish;
use trine_replica_harness::{World, address, small};
use trine_transport::time::Duration;

const SECOND: Duration = Duration::from_secs(1);
/// The incarnation of no replica.
const STRANGER: Incarnation = Incarnation(0x1234_5678);

/// Where an unknown sender sends from: the address of no replica.
fn elsewhere() -> std::net::SocketAddr {
    address(200)
}

fn header(world: &World, from: Incarnation, to: u32) -> PeerHeader {
    PeerHeader {
        state_version: 0,
        cluster: world.replica(to).cluster(),
        group: GroupId(0),
        from,
        to: world.replica(to).incarnation(),
    }
}

/// An empty append of a leader in `term`.
fn append(world: &World, from: Incarnation, to: u32, term: u64) -> Vec<u8> {
    let header = header(world, from, to);
    let mut message = Message::default();
    message.set_msg_type(MessageType::MsgAppend);
    (message.from, message.to, message.term) = (from.0, header.to.0, term);
    (message.index, message.log_term) = (1, 1);
    message.entries = vec![Entry {
        term,
        index: 2,
        ..Entry::default()
    }];
    let message = message.encode_to_vec();
    let (stream, sequence) = (1, 0);
    AppendFrame {
        header,
        stream,
        sequence,
        message: &message,
    }
    .encode_to_vec()
}

fn terms(world: &World) -> Vec<u64> {
    (1..=3).map(|node_id| world.status(node_id).term).collect()
}

/// An unknown sender sends one APPEND in a term near the end of the numbers. Every replica took the term over and
/// refused the next one. No replica could ever be elected again, in disk mode not even after a restart of all.
#[test]
fn one_append_of_an_unknown_sender_does_not_end_a_group() {
    let mut world = World::serving(3, small(), 1);
    let client = world.registered_client(1);
    world.put(client, "k", "before");
    let (leader, before) = (world.leader(), terms(&world));
    for to in 1..=3 {
        for (from, name) in [(elsewhere(), STRANGER), (elsewhere(), world.holder(1))] {
            let bytes = append(&world, name, to, 1 << 56);
            world.inject_from(from, to, kind::APPEND, &bytes);
        }
        assert!(world.status(to).counters.messages_unknown_address >= 2);
    }
    world.run_for(SECOND);
    assert_eq!((world.leader(), terms(&world)), (leader, before));
    world.put(client, "k", "after");
}

/// The same from a member's address, where only the allowance of terms can help: the group goes on, in a later term at most.
#[test]
fn absurd_terms_from_a_members_address_do_not_end_a_group() {
    let mut world = World::serving(3, small(), 2);
    let client = world.registered_client(1);
    for term in [1_u64 << 56, u64::MAX, 1 << 33, (1 << 32) - 1, 1 << 48] {
        for round in 0..20 {
            for to in 1..=3 {
                let name = [STRANGER, world.holder(1 + to % 3)][round % 2];
                let bytes = append(&world, name, to, term);
                world.inject(to, kind::APPEND, &bytes);
            }
        }
        world.expect("a leader", SECOND * 5, |world| world.leader().is_some());
        world.put(client, "k", "v");
    }
    assert!(
        terms(&world).iter().all(|&term| term < 1 << 34),
        "{:?}",
        terms(&world)
    );
}

/// Reports of another state, in the members' names: each replica believed that the majority had it, put its disk into
/// quarantine and ended, all three of them.
#[test]
fn forged_state_reports_halt_nobody() {
    for from_member in [false, true] {
        let mut world = World::serving(3, small(), 3);
        let client = world.registered_client(1);
        while world.status(1).committed < 1100 {
            world.put(client, "k", "v");
        }
        world.run_for(SECOND);
        for to in 1..=3 {
            for name in (1..=3).filter(|&name| name != to) {
                let report = StateReport {
                    header: header(&world, world.holder(name), to),
                    index: 1024,
                    hash: [6, 6],
                };
                let from = if from_member {
                    address(name)
                } else {
                    elsewhere()
                };
                world.inject_from(from, to, kind::AGREE, &report.encode_to_vec());
            }
        }
        world.run_for(SECOND);
        for node_id in 1..=3 {
            assert_eq!(world.replica(node_id).halted(), None, "{from_member}");
        }
        world.put(client, "k", "after");
    }
}

/// The leader alone, both followers dead: an acknowledgement that an unknown sender made up was taken for the quorum.
#[test]
fn a_forged_acknowledgement_commits_nothing() {
    let mut world = World::serving(3, small(), 4);
    let client = world.registered_client(1);
    world.put(client, "k", "before");
    let leader = world.leader().unwrap();
    let followers: Vec<u32> = (1..=3).filter(|&node_id| node_id != leader).collect();
    let names: Vec<Incarnation> = followers
        .iter()
        .map(|&node_id| world.holder(node_id))
        .collect();
    followers.iter().for_each(|&node_id| world.kill(node_id));
    world.ask_at(client, leader, Wish::Put("k".into(), "lost".into()));
    world.run_for(Duration::from_millis(1));
    let status = world.status(leader);
    assert!(status.log.last_index > status.committed);
    for &name in &names {
        let header = header(&world, name, leader);
        let mut message = Message::default();
        message.set_msg_type(MessageType::MsgAppendResponse);
        (message.from, message.to, message.term) = (name.0, header.to.0, status.term);
        message.index = status.log.last_index;
        let message = message.encode_to_vec();
        let frame = RaftFrame {
            header,
            message: &message,
        };
        world.inject_from(elsewhere(), leader, kind::RAFT, &frame.encode_to_vec());
    }
    world.run_for(Duration::from_millis(2));
    assert_eq!(world.status(leader).committed, status.committed);
    assert!(!world.clients[client].is_idle(), "the put has no answer");
}

/// Client ids are positions in the log. A second client walked them downward and used the victim's next sequence, so
/// its junk was recorded there. The victim's own PUT was answered "ok" out of that record, and never happened.
#[test]
fn another_clients_session_cannot_be_used() {
    let mut world = World::serving(3, small(), 5);
    let victim = world.registered_client(1);
    world.put(victim, "victim", "1");
    let thief = world.registered_client(1);
    let leader = world.leader().unwrap();
    let mut junk = Vec::new();
    Command::Put {
        key: b"junk",
        value: b"junk",
    }
    .encode(&mut junk);
    let (cluster, victims) = (world.clients[victim].cluster, world.clients[victim].id);
    for session_number in [world.clients[thief].nonce, 0, 1] {
        for sequence in 2..10 {
            for operation in [Operation::Apply, Operation::ApplyAndClose] {
                let request = ClientRequest {
                    cluster,
                    client: victims,
                    sequence,
                    lowest_awaited: sequence,
                    session_number,
                    command: &junk,
                    ..ClientRequest::bare(operation)
                };
                world.inject_from(elsewhere(), leader, kind::CLIENT, &request.encode_to_vec());
            }
        }
    }
    world.run_for(SECOND);
    for bytes in &world.heard_from_replicas {
        let reply = ClientReply::decode(bytes).unwrap();
        assert_eq!(reply.status, ClientStatus::SessionExpired);
    }
    assert_eq!(world.heard_from_replicas.len(), 48);
    world.put(victim, "victim", "2");
    assert_eq!(world.get(victim, "victim").as_deref(), Some("2"));
    assert_eq!(world.get(victim, "junk"), None);
}

/// No client may register a session that others could use, or use one before the log has given it out. The id of the
/// next registration can be guessed while it is under way.
#[test]
fn a_session_without_a_number_or_of_the_future_is_refused() {
    let mut world = World::serving(3, small(), 6);
    let client = world.registered_client(1);
    let leader = world.leader().unwrap();
    let cluster = world.clients[client].cluster;
    let register = ClientRequest {
        cluster,
        ..ClientRequest::bare(Operation::Register)
    };
    world.inject_from(elsewhere(), leader, kind::CLIENT, &register.encode_to_vec());
    world.run_for(Duration::from_millis(10));
    let reply = world.heard_from_replicas.pop().unwrap();
    let reply = ClientReply::decode(&reply).unwrap();
    assert_eq!(reply.status, ClientStatus::Malformed);

    let mut junk = Vec::new();
    Command::Delete { key: b"k" }.encode(&mut junk);
    let next = world.status(leader).log.last_index + 1;
    for index in next..next + 8 {
        let request = ClientRequest {
            cluster,
            client: index << 16,
            sequence: 1,
            lowest_awaited: 1,
            session_number: 7,
            command: &junk,
            ..ClientRequest::bare(Operation::Apply)
        };
        world.inject_from(elsewhere(), leader, kind::CLIENT, &request.encode_to_vec());
    }
    let late = world.registered_client(leader);
    world.run_for(Duration::from_millis(10));
    for bytes in &world.heard_from_replicas {
        let reply = ClientReply::decode(bytes).unwrap();
        assert_eq!(reply.status, ClientStatus::SessionExpired);
    }
    assert_eq!(world.heard_from_replicas.len(), 8);
    world.put(late, "k", "v");
    assert_eq!(world.get(late, "k").as_deref(), Some("v"));
}

/// Any process that could send packets could take the node id of a member that died: it asked for it, from wherever it
/// was.
#[test]
fn nobody_takes_a_node_id_from_an_address_that_nobody_has_named() {
    let mut world = World::serving(3, small(), 7);
    let leader = world.leader().unwrap();
    let dead = 1 + leader % 3;
    let before = world.holder(dead);
    world.kill(dead);
    world.run_for(SECOND);
    let asked = |world: &mut World, from, named| {
        let join = JoinRequest {
            node_id: NodeId(dead),
            incarnation: STRANGER,
            address: named,
            cluster: ClusterId::NONE,
            state_version: trine_kvstore::command::STATE_VERSION,
            member: false,
        };
        world.heard_from_replicas.clear();
        world.inject_from(from, leader, kind::JOIN, &join.encode_to_vec());
        world.run_for(Duration::from_millis(300));
        JoinReply::decode(&world.heard_from_replicas.pop().unwrap()).unwrap()
    };
    let reason = |reply| match reply {
        JoinReply::Refused { reason, .. } => Some(reason),
        JoinReply::Accepted { .. } => None,
    };
    let reply = asked(&mut world, elsewhere(), elsewhere());
    assert_eq!(reason(reply), Some(JoinRefusal::UnknownAddress));
    let reply = asked(&mut world, elsewhere(), address(dead));
    assert_eq!(reason(reply), Some(JoinRefusal::OtherSource));
    assert_eq!(world.holder(dead), before);
    assert_eq!(world.status(leader).members.len(), 3);

    world.newcomer = Some(elsewhere());
    let (status, text) = world
        .admin_once(leader, AdminCommand::Replace, dead, before)
        .unwrap();
    assert_eq!(status, AdminStatus::InProgress, "{text}");
    asked(&mut world, elsewhere(), elsewhere());
    assert_eq!(
        world.status(leader).members.len(),
        4,
        "an operator has named it"
    );
}

/// Addresses are compared and never incarnations. Replica 2 is cut off while all others are restarted in memory mode,
/// one after the other. It knows none of their incarnations, and once two more have died only those can lead. If it
/// dropped their appends and votes, a living quorum would be without a leader for ever.
#[test]
fn a_voter_that_missed_a_whole_exchange_of_members_votes_and_catches_up() {
    for seed in 1..=4 {
        let mut world = World::serving(5, small(), seed);
        let client = world.registered_client(1);
        world.put(client, "k", "before");
        world.isolate(2);
        for node_id in [1, 3, 4, 5] {
            world.kill(node_id);
            world.run_for(SECOND / 2);
            world.start(node_id, false);
            world.expect("the next life as a voter", SECOND * 10, |world| {
                let Some(leader) = world.leader().filter(|&leader| leader != 2) else {
                    return false;
                };
                let own = world.replica(node_id).incarnation();
                let members = world.replica(leader).discovery().members.0;
                members.len() == 5 && members.iter().any(|member| member.incarnation == own)
            });
        }
        world.put(client, "k", "after");
        // Three of five are left, and 2 knows of neither of the others.
        world.kill(1);
        world.kill(5);
        world.heal();
        world.expect("a leader", SECOND * 10, |world| {
            world.leader().is_some_and(|leader| leader != 2)
        });
        assert_eq!(
            world.get(client, "k").as_deref(),
            Some("after"),
            "seed {seed}"
        );
        world.put(client, "k", "last");
        assert_eq!(world.status(2).role, Role::Follower);
    }
}

/// In memory mode every restart is a new incarnation. 3 comes back as another one, and 2 is cut off before it hears that
/// this one votes now. 1 dies, and 2 returns. Only the new 3 has the whole log, so 2 has to vote for an incarnation that
/// it takes for no voter.
#[test]
fn a_voter_that_has_not_heard_of_the_new_incarnation_votes_for_it() {
    for seed in 1..=8 {
        let mut world = World::serving(3, small(), seed);
        let client = world.registered_client(1);
        world.put(client, "k", "before");
        assert_eq!(world.leader(), Some(1), "seed {seed}");
        world.kill(3);
        world.start(3, false);
        let own = world.replica(3).incarnation();
        let votes = |world: &World, at: u32| {
            let sides = world.replica(at).voter_sides();
            sides[0].contains(&own) && sides[1].is_empty()
        };
        let until = world.now + SECOND * 10;
        while !votes(&world, 1) && world.now < until {
            world.run_for(Duration::from_micros(5));
        }
        assert!(votes(&world, 1), "seed {seed}");
        world.isolate(2);
        assert!(!votes(&world, 2), "seed {seed}: 2 has heard of it already");
        world.put(client, "k", "after");
        world.kill(1);
        world.heal();
        world.expect("a leader", SECOND * 10, |world| world.leader() == Some(3));
        let read = world.get(client, "k");
        assert_eq!(read.as_deref(), Some("after"), "seed {seed}");
    }
}

/// A group of five, one of which was cut off while nodes 4 and 5 were added.
struct Away {
    world: World,
    client: usize,
    cut: u32,
    /// Those that it knows.
    known: Vec<u32>,
}

fn grown_while_one_was_away(seed: u64) -> Away {
    let mut world = World::serving(3, small(), seed);
    let client = world.registered_client(1);
    world.put(client, "k", "before");
    let cut = if world.leader() == Some(2) { 3 } else { 2 };
    let known: Vec<u32> = (1..=3).filter(|&node_id| node_id != cut).collect();
    world.isolate(cut);
    for _ in 0..2 {
        let node_id = world.add_node();
        world.partition(&[node_id], &[cut]);
        world.start(node_id, false);
        let (status, text) = world.admin(AdminCommand::Add { voter: true }, node_id, SECOND * 10);
        assert_eq!(status, AdminStatus::Done, "{text}");
    }
    world.put(client, "k", "after");
    Away {
        world,
        client,
        cut,
        known,
    }
}

/// Replica 2 is cut off while the group gets new members at new addresses, and comes back to a quorum in which only those can
/// lead. It knows neither of them; of those that it knows one is alive, and tells it. (Found by review: it dropped their votes
/// and appends for ever, and the group had no leader.)
#[test]
fn a_voter_that_does_not_know_the_new_members_addresses_asks_for_them() {
    for seed in 1..=4 {
        let Away {
            mut world,
            client,
            cut,
            known,
        } = grown_while_one_was_away(seed);
        // One of those that it knows stays; the rest of the quorum is new.
        world.kill(known[0]);
        world.kill(4);
        world.heal();
        world.expect("a leader", SECOND * 20, |world| world.leader().is_some());
        assert_eq!(
            world.get(client, "k").as_deref(),
            Some("after"),
            "seed {seed}"
        );
        world.expect("everything at the one that was away", SECOND * 5, |world| {
            world.status(cut).role == Role::Follower
                && Some(world.status(cut).applied)
                    == world.leader().map(|l| world.status(l).applied)
        });
    }
}

/// The same where all members whom it knows are dead: none can tell it, but an operator can, although no replica leads.
#[test]
fn an_operator_tells_a_voter_where_the_others_are_although_nobody_leads() {
    let Away {
        mut world,
        client,
        cut,
        known,
    } = grown_while_one_was_away(3);
    known.iter().for_each(|&node_id| world.kill(node_id));
    world.heal();
    world.run_for(SECOND * 5);
    assert_eq!(world.leader(), None, "it trusts neither of the two");
    assert!(world.status(cut).counters.messages_unknown_address > 0);
    // They do not take it for alive, either: an admin command that counts on its vote would end the
    // group.
    for node_id in [4, 5] {
        let members = world.status(node_id).members;
        let silent = members.iter().find(|member| member.node_id == cut).unwrap();
        assert!(
            silent.silent_ns.is_none_or(|ns| ns > SECOND.as_nanos() * 4),
            "{silent:?}"
        );
    }
    for node_id in [4, 5] {
        world.admin_once(
            cut,
            AdminCommand::Add { voter: true },
            node_id,
            Incarnation::NONE,
        );
    }
    world.expect("a leader", SECOND * 10, |world| world.leader().is_some());
    assert_eq!(world.get(client, "k").as_deref(), Some("after"));
}
