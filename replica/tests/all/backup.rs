//! Images for backups, from a serving group on virtual time: what is in them, and when they go.

use std::collections::BTreeMap;

use trine_kvstore::Command;
use trine_protocol::message::{
    AdminCommand, BACKUP_WINDOW, BackupHead, BackupReply, BackupRequest, BackupStep, ClusterId,
    Encode, Incarnation, Member, MemberRole, NodeId, kind,
};
use trine_protocol::status::MemberStatus;
use trine_replica::Replica;
use trine_replica::backup::{Encoder, Header, Restorer, TimeToLive, restore_in_memory};
use trine_replica::config::{BACKUP_IDLE_MAX, RESTORE_INDEX_GAP};
use trine_replica::rights::Caller;
use trine_replica_harness::client::Wish;
use trine_replica_harness::{World, address, small};
use trine_transport::buf::{Pool, PoolConfig};
use trine_transport::prng::Prng;
use trine_transport::time::Duration;

/// What a replica said.
#[derive(Debug, PartialEq, Eq)]
enum Said {
    Begun(BackupHead),
    Later(String),
    Piece(bool, Vec<u8>),
    Gone(String),
    Refused(String),
    Ended,
}

fn ask(world: &mut World, at: u32, cluster: ClusterId, step: BackupStep) -> Said {
    let request = BackupRequest { cluster, step }.encode_to_vec();
    let reply = world.say_kind_as(at, kind::BACKUP, Caller::default(), &request);
    match BackupReply::decode(&reply).expect("a reply") {
        BackupReply::Begun(head) => Said::Begun(head),
        BackupReply::Later(why) => Said::Later(why.to_owned()),
        BackupReply::Piece { last, bytes } => Said::Piece(last, bytes.to_vec()),
        BackupReply::Gone(why) => Said::Gone(why.to_owned()),
        BackupReply::Refused(why) | BackupReply::Denied(why) => Said::Refused(why.to_owned()),
        BackupReply::Ended => Said::Ended,
    }
}

fn cluster(world: &World) -> ClusterId {
    world.replica(1).discovery().cluster
}

fn begin(world: &mut World, at: u32) -> BackupHead {
    let cluster = cluster(world);
    match ask(world, at, cluster, BackupStep::Begin { at_least: 0 }) {
        Said::Begun(head) => head,
        other => panic!("{other:?}"),
    }
}

fn piece(world: &mut World, at: u32, image: u64, number: u32) -> Said {
    let cluster = cluster(world);
    let step = BackupStep::Piece {
        image,
        number,
        needed_from: number,
    };
    ask(world, at, cluster, step)
}

/// The pieces of an image; after each of them `between` may do something.
fn read(
    world: &mut World,
    at: u32,
    image: u64,
    mut between: impl FnMut(&mut World),
) -> Vec<Vec<u8>> {
    let mut pieces = Vec::new();
    loop {
        match piece(world, at, image, pieces.len() as u32) {
            Said::Piece(last, bytes) => {
                pieces.push(bytes);
                if last {
                    return pieces;
                }
            }
            other => panic!("{other:?}"),
        }
        between(world);
    }
}

fn file(head: BackupHead, pieces: &[Vec<u8>]) -> Vec<u8> {
    let header = Header {
        head,
        made_at_ms: 0,
        replica: Incarnation(1),
    };
    let (mut encoder, mut file) = Encoder::begin(&header);
    for piece in pieces {
        file.extend_from_slice(&encoder.frame(piece));
        file.extend_from_slice(piece);
    }
    file.extend_from_slice(&encoder.end());
    file
}

/// A replica that begins with a backup, and leads its group of one; and what it has applied at first.
fn begun(file: &[u8], world: &World) -> (Replica, (u64, u128)) {
    let mut restorer = Restorer::default();
    restorer.feed(file).expect("whole");
    let content = restorer.finish().expect("a state");
    let member = Member {
        node_id: NodeId(1),
        role: MemberRole::Voter,
        incarnation: Incarnation(77),
        address: address(1),
    };
    let (_, restored) =
        restore_in_memory(content, ClusterId(88), member, TimeToLive::Stands).expect("restored");
    let mut now = world.now;
    let pool = Pool::new(PoolConfig::default());
    let peers = vec![(NodeId(1), address(1))];
    let replica = Replica::new(
        small(),
        member.incarnation,
        member.node_id,
        member.address,
        peers,
        pool,
        5,
        now,
    );
    let mut replica = replica.expect("settings").begun_from_backup(restored, now);
    let begins_with = replica.applied_state().expect("a state");
    for _ in 0..1_000 {
        replica.on_turn(now);
        while replica.poll_output().is_some() {}
        let applied = replica.applied_state().expect("a state");
        if replica.leads_in().is_some() && applied.0 > begins_with.0 {
            return (replica, begins_with);
        }
        now += Duration::from_millis(1);
    }
    panic!("it never led: {:?}", replica.status(now));
}

/// A group with enough state for many pieces.
fn filled(count: u32) -> (World, usize) {
    let mut world = World::serving(count, small(), 21);
    let client = world.registered_client(1);
    for number in 0..60_u32 {
        put(&mut world, client, number, 20_000);
    }
    (world, client)
}

fn put(world: &mut World, client: usize, number: u32, bytes: usize) {
    let key = number.to_le_bytes().to_vec();
    let value = vec![number as u8; bytes];
    world.get_done(client, Wish::Put(key, value));
}

/// What every replica had applied, and its hash, whenever this was called.
type Hashes = BTreeMap<u64, u128>;

fn note(world: &World, hashes: &mut Hashes) {
    for node_id in world.running() {
        let (index, hash) = world.replica(node_id).applied_state().expect("a state");
        let known = hashes.insert(index, hash);
        assert!(
            known.is_none_or(|known| known == hash),
            "replicas are alike"
        );
    }
}

/// Writes go on while the image is read: it is the state of one position, and everything that was acknowledged before it
/// was begun is in it.
#[test]
fn an_image_under_load_is_the_state_of_one_position() {
    for count in [1, 3] {
        let (mut world, client) = filled(count);
        world.run_for(Duration::from_millis(100));
        let leader = world.leader().expect("a leader");
        let at = (1..=count).find(|&id| id != leader).unwrap_or(leader);
        let mut hashes = Hashes::new();
        note(&world, &mut hashes);
        let acknowledged = world.replica(leader).applied_state().expect("a state").0;
        let head = begin(&mut world, at);
        assert!(head.index >= acknowledged);
        let mut number = 0;
        let pieces = read(&mut world, at, head.image, |world| {
            number += 1;
            put(world, client, number * 7 % 80, 9_000);
            note(world, &mut hashes);
        });
        assert!(pieces.len() > 10, "{}", pieces.len());
        assert!(number > 10, "writes went on");
        let (replica, begins_with) = begun(&file(head, &pieces), &world);
        assert_eq!(
            begins_with,
            (head.index + RESTORE_INDEX_GAP + 88, hashes[&head.index])
        );
        let status = replica.status(world.now);
        assert_eq!(status.store.items, head.items);
        assert_eq!(status.store.logical_bytes, head.logical_bytes);
        let counters = world.status(at).counters;
        assert_eq!((counters.backups_begun, counters.backups_read), (1, 1));
    }
}

#[test]
fn a_replica_that_lags_says_later_and_one_of_another_cluster_refuses() {
    let (mut world, _) = filled(3);
    let cluster = cluster(&world);
    let applied = world.status(2).applied;
    let ahead = BackupStep::Begin {
        at_least: applied + 1_000,
    };
    let said = ask(&mut world, 2, cluster, ahead);
    assert!(
        matches!(&said, Said::Later(why) if why.contains("has not applied")),
        "{said:?}"
    );
    let other = ask(
        &mut world,
        2,
        ClusterId(5),
        BackupStep::Begin { at_least: 0 },
    );
    assert!(
        matches!(&other, Said::Refused(why) if why.contains("belongs to cluster")),
        "{other:?}"
    );
}

/// Each image takes memory, and the store makes one at a time.
#[test]
fn a_replica_holds_one_image_and_no_more_of_it_than_its_caller_needs() {
    let (mut world, _) = filled(3);
    let cluster = cluster(&world);
    let head = begin(&mut world, 2);
    let second = ask(&mut world, 2, cluster, BackupStep::Begin { at_least: 0 });
    assert!(
        matches!(&second, Said::Later(why) if why.contains("another backup")),
        "{second:?}"
    );
    let far = BackupStep::Piece {
        image: head.image,
        number: BACKUP_WINDOW + 1,
        needed_from: 0,
    };
    assert!(matches!(ask(&mut world, 2, cluster, far), Said::Refused(_)));
    // A caller that claims to have pieces that were never written must not have the whole state copied into memory.
    let never_written = BackupStep::Piece {
        image: head.image,
        number: u32::MAX - 1,
        needed_from: u32::MAX - 1,
    };
    assert!(matches!(
        ask(&mut world, 2, cluster, never_written),
        Said::Refused(_)
    ));
    let unknown = piece(&mut world, 2, head.image ^ 1, 0);
    assert!(
        matches!(&unknown, Said::Gone(why) if why.contains("no such image")),
        "{unknown:?}"
    );
    let elsewhere = piece(&mut world, 3, head.image, 0);
    assert!(matches!(elsewhere, Said::Gone(_)), "{elsewhere:?}");
    // What the caller has taken is gone, and what it may still need is there.
    for number in 0..4 {
        assert!(matches!(
            piece(&mut world, 2, head.image, number),
            Said::Piece(..)
        ));
    }
    assert!(matches!(
        piece(&mut world, 2, head.image, 2),
        Said::Refused(_)
    ));
    assert!(matches!(
        piece(&mut world, 2, head.image, 3),
        Said::Piece(..)
    ));
    let end = BackupStep::End { image: head.image };
    assert_eq!(ask(&mut world, 2, cluster, end), Said::Ended);
    assert!(matches!(piece(&mut world, 2, head.image, 4), Said::Gone(_)));
    world.run_for(Duration::from_millis(200));
    begin(&mut world, 2);
}

#[test]
fn an_image_that_nobody_reads_goes_and_says_why() {
    let (mut world, client) = filled(3);
    let head = begin(&mut world, 2);
    assert_eq!(
        world.status(2).backup.map(|backup| backup.index),
        Some(head.index)
    );
    put(&mut world, client, 1, 100);
    assert!(matches!(
        piece(&mut world, 2, head.image, 0),
        Said::Piece(..)
    ));
    world.run_for(BACKUP_IDLE_MAX);
    world.run_for(Duration::from_secs(1));
    assert_eq!(world.status(2).backup, None);
    let said = piece(&mut world, 2, head.image, 1);
    assert!(
        matches!(&said, Said::Gone(why) if why.contains("in a minute")),
        "{said:?}"
    );
    begin(&mut world, 2);
}

/// A caller that goes on after its session was lost asks at the piece that it needs.
#[test]
fn reading_goes_on_where_it_was_after_a_pause() {
    let (mut world, client) = filled(3);
    let head = begin(&mut world, 2);
    let mut pieces = Vec::new();
    for number in 0..6 {
        let Said::Piece(_, bytes) = piece(&mut world, 2, head.image, number) else {
            panic!("piece {number}");
        };
        pieces.push(bytes);
    }
    for number in 0..20 {
        put(&mut world, client, number, 500);
    }
    world.run_for(Duration::from_secs(30));
    loop {
        match piece(&mut world, 2, head.image, pieces.len() as u32) {
            Said::Piece(last, bytes) => {
                pieces.push(bytes);
                if last {
                    break;
                }
            }
            other => panic!("{other:?}"),
        }
    }
    let behind = piece(&mut world, 2, head.image, pieces.len() as u32);
    assert_eq!(
        behind,
        Said::Piece(true, Vec::new()),
        "there is nothing behind the end"
    );
    let (replica, _) = begun(&file(head, &pieces), &world);
    assert_eq!(replica.status(world.now).store.items, head.items);
}

/// A member without a state cannot wait for a slow backup.
#[test]
fn a_new_member_goes_first() {
    let (mut world, client) = filled(3);
    let leader = world.leader().expect("a leader");
    let head = begin(&mut world, leader);
    assert!(matches!(
        piece(&mut world, leader, head.image, 0),
        Said::Piece(..)
    ));
    let node_id = world.add_node();
    world.start(node_id, false);
    // The log no longer goes back to its beginning.
    for number in 0..300 {
        put(&mut world, client, number, 10);
    }
    let within = Duration::from_secs(10);
    world.admin(AdminCommand::Add { voter: true }, node_id, within);
    world.expect("the new member's state", within, |world| {
        world.status(node_id).store.items >= 60
    });
    let said = piece(&mut world, leader, head.image, 1);
    assert!(
        matches!(&said, Said::Gone(why) if why.contains("another member")),
        "{said:?}"
    );
}

/// A backup has made way for a member. Between its image and the member's, raft asks once more: until then no other backup
/// takes the store's one image, however often its caller asks.
#[test]
fn a_backup_that_begins_again_and_again_keeps_no_member_out() {
    let (mut world, client) = filled(3);
    let leader = world.leader().expect("a leader");
    begin(&mut world, leader);
    let node_id = world.add_node();
    world.start(node_id, false);
    for number in 0..300 {
        put(&mut world, client, number, 10);
    }
    let cluster = cluster(&world);
    let add = AdminCommand::Add { voter: true };
    let (mut begun, mut made_way, mut turns) = (0, 0, 0);
    while world.status(node_id).store.items < 60 {
        world.admin_once(leader, add, node_id, Incarnation::NONE);
        let begin = BackupStep::Begin { at_least: 0 };
        match ask(&mut world, leader, cluster, begin) {
            Said::Begun(_) => begun += 1,
            Said::Later(why) => made_way += u32::from(why.contains("makes way")),
            other => panic!("{other:?}"),
        }
        turns += 1;
        assert!(turns < 5_000, "the new member has its state by then");
    }
    assert!(begun == 0 && made_way > 0, "{begun} {made_way}");
}

/// The store keeps what is overwritten for the image's sake, and not without end.
#[test]
fn an_image_that_costs_too_much_is_given_up() {
    let mut world = World::serving(1, small(), 22);
    let client = world.registered_client(1);
    let value = vec![7; 1 << 20];
    let store = |world: &mut World| {
        for number in 0..80_u32 {
            let put = Command::Put {
                key: &number.to_le_bytes(),
                value: &value,
            };
            let mut bytes = Vec::new();
            put.encode(&mut bytes);
            world.get_done(client, Wish::Write(bytes));
        }
    };
    store(&mut world);
    let head = begin(&mut world, 1);
    store(&mut world);
    let said = piece(&mut world, 1, head.image, 1);
    assert!(
        matches!(&said, Said::Gone(why) if why.contains("overwritten")),
        "{said:?}"
    );
    world.run_for(Duration::from_secs(1));
    assert_eq!(world.status(1).backup, None);
    begin(&mut world, 1);
}

/// Takes one backup after the other while replicas die, join, are cut off, and send each other snapshots. Returns how many
/// were read to their end, and how many were given up.
fn backups_under_faults(seed: u64) -> (u64, u64) {
    let mut world = World::serving(3, small(), seed);
    let mut draw = Prng::new(seed ^ 0x5eed);
    let client = world.registered_client(1);
    let mut hashes = Hashes::new();
    let (mut whole, mut given_up) = (0, 0);
    let mut reading: Option<(u32, BackupHead, Vec<Vec<u8>>)> = None;
    for step in 0..400_u32 {
        put(&mut world, client, draw.below(60) as u32, 3_000);
        note_present(&world, &mut hashes);
        let at = draw.in_range(1..=3) as u32;
        match draw.below(60) {
            0 if world.running().len() == 3 && is_whole(&world) => {
                world.heal();
                world.kill(at);
                world.start(at, false);
                // Until the others have noticed.
                world.run_for(Duration::from_secs(1));
                if reading.as_ref().is_some_and(|&(from, ..)| from == at) {
                    reading = None;
                    given_up += 1;
                }
            }
            1 => {
                world.heal();
                world.isolate(at);
            }
            2..8 => world.heal(),
            _ => {}
        }
        let Some((from, head, mut pieces)) = reading.take() else {
            let cluster = world
                .replica(world.leader().unwrap_or(at))
                .discovery()
                .cluster;
            let said = ask(&mut world, at, cluster, BackupStep::Begin { at_least: 0 });
            if let Said::Begun(head) = said {
                note_present(&world, &mut hashes);
                reading = Some((at, head, Vec::new()));
            }
            continue;
        };
        let piece = BackupStep::Piece {
            image: head.image,
            number: pieces.len() as u32,
            needed_from: pieces.len() as u32,
        };
        match ask(&mut world, from, head.cluster, piece) {
            Said::Piece(last, bytes) => {
                pieces.push(bytes);
                if !last {
                    reading = Some((from, head, pieces));
                    continue;
                }
                let (_, begins_with) = begun(&file(head, &pieces), &world);
                let expected = (head.index + RESTORE_INDEX_GAP + 88, hashes[&head.index]);
                assert_eq!(begins_with, expected, "seed {seed}, step {step}");
                let end = BackupStep::End { image: head.image };
                assert_eq!(ask(&mut world, from, head.cluster, end), Said::Ended);
                whole += 1;
            }
            Said::Gone(_) | Said::Refused(_) => given_up += 1,
            other => panic!("seed {seed}, step {step}: {other:?}"),
        }
    }
    (whole, given_up)
}

/// As [`note`], where a replica may have no state yet.
fn note_present(world: &World, hashes: &mut Hashes) {
    for node_id in world.running() {
        let Some((index, hash)) = world.replica(node_id).applied_state() else {
            continue;
        };
        let known = hashes.insert(index, hash);
        assert!(
            known.is_none_or(|known| known == hash),
            "replicas are alike"
        );
    }
}

/// Whether every replica votes, so that one of them may die.
fn is_whole(world: &World) -> bool {
    let leader = world.leader().map(|leader| world.status(leader));
    leader.is_some_and(|leader| {
        let caught_up = |member: &MemberStatus| {
            let is_heard = member.silent_ns.is_some_and(|silent| silent < 500_000_000);
            member.voter && (member.this || is_heard && member.lag.is_some_and(|lag| lag < 50))
        };
        leader.members.len() == 3 && leader.members.iter().all(caught_up)
    })
}

#[test]
fn every_image_is_the_state_of_its_index_whatever_fails_meanwhile() {
    let (mut whole, mut given_up) = (0, 0);
    for seed in 1..=12 {
        let (these, others) = backups_under_faults(seed);
        whole += these;
        given_up += others;
    }
    assert!(
        whole > 30 && given_up > 3,
        "{whole} read, {given_up} given up"
    );
}
