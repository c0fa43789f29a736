//! A start from files, message by message: whom it asks, what it drops meanwhile, and what an answer shows.

use prost::Message as _;
use raft::eraftpb::{Entry, EntryType, HardState, Message, MessageType};
use trine_protocol::message::{
    ClusterId, GroupId, Incarnation, Member, MemberRole, Members, NodeId, PeerHeader,
    PromisedPosition, ReplyToken,
};
use trine_transport::buf::{Pool, PoolConfig};
use trine_transport::time::{Duration, Instant};

use super::Group;
use super::asking::Asking;
use super::local::election_timeout;
use crate::bootstrap::Origin;
use crate::config::ReplicaConfig;
use crate::disk::{Identity, Restored, Write};
use crate::halt::Halt;
use crate::membership::{self, MemberTable};
use crate::outbox::Outbox;
use crate::state_machine::Genesis;
use crate::state_machine::genesis::{FIRST_INDEX, FIRST_TERM};

const OWN: u64 = 11;
/// The term of the files, and the index of their last entry.
const TERM: u64 = FIRST_TERM + 2;
const LAST: u64 = FIRST_INDEX + 1;

fn member(id: u64) -> Member {
    Member {
        node_id: NodeId(id as u32 - 10),
        role: MemberRole::Voter,
        incarnation: Incarnation(id),
        address: ([10, 0, 0, id as u8], 7471).into(),
    }
}

fn outbox() -> Outbox {
    Outbox::new(Pool::new(PoolConfig::default()))
}

/// A member of a group of `count` that starts from files.
fn started(count: u64, is_lifted: bool, out: &mut Outbox) -> Group {
    let last = Entry {
        term: FIRST_TERM + 1,
        index: LAST,
        ..Entry::default()
    };
    started_with(count, is_lifted, (vec![last], FIRST_INDEX), out)
}

/// The same, with a log that is committed up to an entry.
fn started_with(
    count: u64,
    is_lifted: bool,
    (entries, commit): (Vec<Entry>, u64),
    out: &mut Outbox,
) -> Group {
    let config = ReplicaConfig::default();
    let own = member(OWN);
    let restored = Restored {
        identity: Identity {
            node_id: own.node_id,
            incarnation: own.incarnation,
            cluster: ClusterId(7),
            origin: Some(Origin {
                cluster: ClusterId(7),
                members: Members((OWN..OWN + count).map(member).collect()),
                genesis: Genesis::new(&config, [1, 2]),
            }),
        },
        snapshot: None,
        hard_state: HardState {
            term: TERM,
            vote: 0,
            commit,
        },
        entries,
        is_lifted,
    };
    let mut group = Group::restored(config, own, restored, (1, Instant::ZERO), out);
    group.on_turn(Instant::ZERO, out);
    group
}

/// Entries that take the member 12 in, first as a learner.
fn taken_in(changes: usize) -> Vec<Entry> {
    let table = MemberTable::new(&[member(OWN)]);
    let newcomer = member(OWN + 1);
    let add = membership::add_learner(&newcomer, &table);
    let all = [add, membership::promote(newcomer.incarnation)];
    let entries = (FIRST_INDEX + 1..).zip(&all[..changes]);
    let entries = entries.map(|(index, change)| {
        let mut entry = Entry {
            term: FIRST_TERM + 1,
            index,
            data: change.encode_to_vec(),
            ..Entry::default()
        };
        entry.set_entry_type(EntryType::EntryConfChangeV2);
        entry
    });
    entries.collect()
}

/// The disk has everything by now.
fn write_all(group: &mut Group, out: &mut Outbox) {
    let writes = std::iter::from_fn(|| out.pop_write());
    if let Some((number, _)) = writes.last() {
        group.on_written(Instant::ZERO, number, out);
        group.on_turn(Instant::ZERO, out);
    }
}

fn lifts_ended(out: &mut Outbox) -> usize {
    let writes = std::iter::from_fn(|| out.pop_write());
    let ended = writes.filter(|(_, write)| matches!(write, Write::LiftEnded));
    ended.count()
}

fn asked(group: &mut Group, now: Instant, out: &mut Outbox) -> Vec<u64> {
    let asked = group.promises_to_ask_for(now, out).into_iter();
    asked.map(|member| member.incarnation.0).collect()
}

fn tick() -> Duration {
    ReplicaConfig::default().tick
}

/// A heartbeat of the member 12, which leads: an answer follows it.
fn is_heard(group: &mut Group, now: Instant, out: &mut Outbox) -> bool {
    let header = PeerHeader {
        cluster: ClusterId(7),
        group: GroupId(0),
        from: Incarnation(OWN + 1),
        to: Incarnation(OWN),
        state_version: 0,
    };
    let mut heartbeat = Message {
        from: OWN + 1,
        to: OWN,
        term: TERM + 1,
        ..Message::default()
    };
    heartbeat.set_msg_type(MessageType::MsgHeartbeat);
    let token = Some(ReplyToken(1));
    group.on_raft_request(now, token, &header, &heartbeat.encode_to_vec(), out);
    group.has_leader()
}

fn is_due_at(group: &Group) -> Option<Instant> {
    group.asking.as_ref().map(Asking::next_timeout)
}

fn position(term: u64, index: u64) -> Option<PromisedPosition> {
    Some(PromisedPosition { term, index })
}

#[test]
fn nobody_is_heard_until_all_have_said_what_they_remember() {
    let (mut out, now) = (outbox(), Instant::ZERO);
    let mut group = started(3, false, &mut out);
    assert_eq!(asked(&mut group, now, &mut out), [12, 13]);
    assert!(!is_heard(&mut group, now, &mut out));
    // Neither again while the questions are under way, nor before a tick has passed.
    let next = now + tick();
    assert!(asked(&mut group, next, &mut out).is_empty());
    group.on_promise(Incarnation(12), None, &mut out);
    group.on_no_promise(Incarnation(13));
    assert!(asked(&mut group, next, &mut out).is_empty());
    let later = next + tick();
    assert_eq!(is_due_at(&group), Some(later));
    assert_eq!(asked(&mut group, later, &mut out), [13]);
    assert!(!is_heard(&mut group, later, &mut out));
    group.on_promise(Incarnation(13), position(TERM, LAST), &mut out);
    assert!(asked(&mut group, later, &mut out).is_empty());
    assert!(is_heard(&mut group, later, &mut out));
    assert_eq!(group.halted(), None);
}

/// The time ran while the log was applied, and was over before the first question had left.
#[test]
fn whoever_does_not_answer_is_waited_for_an_election_timeout_from_when_the_log_is_applied() {
    let (mut out, now) = (outbox(), Instant::ZERO);
    let mut group = started(3, false, &mut out);
    assert_eq!(asked(&mut group, now, &mut out), [12, 13]);
    for of in [12, 13] {
        group.on_no_promise(Incarnation(of));
    }
    let applied = now + Duration::from_millis(700);
    assert_eq!(asked(&mut group, applied, &mut out), [12, 13]);
    let end = applied + election_timeout(&ReplicaConfig::default());
    let before = Instant::from_nanos(end.as_nanos() - 1);
    assert!(asked(&mut group, before, &mut out).is_empty());
    assert!(!is_heard(&mut group, before, &mut out));
    assert_eq!(is_due_at(&group), Some(end));
    assert!(asked(&mut group, end, &mut out).is_empty());
    assert!(is_heard(&mut group, end, &mut out));
}

#[test]
fn a_member_that_is_alone_asks_nobody() {
    let mut out = outbox();
    let mut group = started(1, false, &mut out);
    assert!(asked(&mut group, Instant::ZERO, &mut out).is_empty());
    assert!(group.asking.is_none());
}

/// At the first turn the members were those of the group's beginning, so one that was alone then asked nobody, although its log
/// said who had come in since.
#[test]
fn a_voter_that_only_the_log_knows_is_asked_and_waited_for() {
    let last = FIRST_INDEX + 2;
    for commit in FIRST_INDEX..=last {
        let mut out = outbox();
        let mut group = started_with(1, false, (taken_in(2), commit), &mut out);
        assert_eq!(asked(&mut group, Instant::ZERO, &mut out), [12]);
        assert!(group.asking.is_some(), "before it is applied");
        write_all(&mut group, &mut out);
        let is_member = group.members().any(|member| member.incarnation.0 == 12);
        assert_eq!(is_member, commit > FIRST_INDEX);
        let next = Instant::ZERO + tick();
        assert!(asked(&mut group, next, &mut out).is_empty());
        assert!(group.asking.is_some(), "applied up to {commit}");
        group.on_promise(Incarnation(12), None, &mut out);
        assert!(asked(&mut group, next, &mut out).is_empty());
        assert!(group.asking.is_none(), "applied up to {commit}");

        let mut group = started_with(1, false, (taken_in(2), commit), &mut out);
        group.on_promise(Incarnation(12), position(TERM + 1, 0), &mut out);
        assert!(group.halted().is_some(), "applied up to {commit}");
    }
}

/// Before all that is committed is applied, nobody knows who votes.
#[test]
fn nothing_ends_before_what_is_committed_is_applied() {
    let mut out = outbox();
    let log = (taken_in(2), FIRST_INDEX + 2);
    let mut group = started_with(1, false, log, &mut out);
    assert_eq!(asked(&mut group, Instant::ZERO, &mut out), [12]);
    group.on_promise(Incarnation(12), None, &mut out);
    let later = Instant::ZERO + Duration::from_secs(9);
    assert!(asked(&mut group, later, &mut out).is_empty());
    assert!(group.asking.is_some());
    write_all(&mut group, &mut out);
    assert!(asked(&mut group, later, &mut out).is_empty());
    assert!(group.asking.is_none());
}

/// One that was dead made each start of the others deaf for an election timeout.
#[test]
fn a_learner_is_asked_and_not_waited_for() {
    let mut out = outbox();
    let log = (taken_in(1), FIRST_INDEX + 1);
    let mut group = started_with(1, false, log, &mut out);
    write_all(&mut group, &mut out);
    assert_eq!(asked(&mut group, Instant::ZERO, &mut out), [12]);
    assert!(group.asking.is_none());
    group.on_promise(Incarnation(12), position(TERM + 1, 0), &mut out);
    assert!(group.halted().is_some(), "its answer counts");
}

/// The mark was used up by the first start. If that one ended early, the next one put the files into quarantine again.
#[test]
fn a_lifted_quarantine_holds_until_nobody_remembers_more() {
    let (mut out, now) = (outbox(), Instant::ZERO);
    let mut group = started(3, true, &mut out);
    assert_eq!(asked(&mut group, now, &mut out), [12, 13]);
    group.on_promise(Incarnation(12), position(TERM + 1, 0), &mut out);
    group.on_promise(Incarnation(13), None, &mut out);
    assert!(asked(&mut group, now, &mut out).is_empty());
    assert!(group.asking.is_none());
    group.on_promise(Incarnation(13), position(TERM + 9, 0), &mut out);
    assert_eq!(group.halted(), None);
    assert_eq!(lifts_ended(&mut out), 0);

    // Nobody says anything: that is no reason to forget it.
    let mut group = started(3, true, &mut out);
    for at in [Duration::ZERO, tick(), Duration::from_secs(9)] {
        asked(&mut group, now + at, &mut out);
    }
    assert!(group.asking.is_none());
    assert_eq!(lifts_ended(&mut out), 0);

    let mut group = started(3, true, &mut out);
    asked(&mut group, now, &mut out);
    group.on_promise(Incarnation(12), position(TERM, LAST), &mut out);
    asked(&mut group, now, &mut out);
    assert_eq!(lifts_ended(&mut out), 0, "one has not answered");
    group.on_promise(Incarnation(13), None, &mut out);
    asked(&mut group, now, &mut out);
    assert_eq!(lifts_ended(&mut out), 1);
    group.on_promise(Incarnation(12), position(TERM + 9, 0), &mut out);
    assert!(group.halted().is_some(), "the files count again");
}

/// The copy of a directory took part without a word if a leader was elected after it had come back.
#[test]
fn a_member_of_which_more_is_remembered_halts_and_its_files_are_in_quarantine() {
    for (remembered, is_more) in [
        (None, false),
        (position(TERM - 1, LAST + 100), false),
        (position(TERM, LAST), false),
        (position(TERM, LAST + 1), true),
        (position(TERM + 1, 0), true),
    ] {
        let mut out = outbox();
        let mut group = started(3, false, &mut out);
        asked(&mut group, Instant::ZERO, &mut out);
        group.on_promise(Incarnation(13), remembered, &mut out);
        let halts = matches!(
            group.halted(),
            Some(Halt::OlderCopy {
                node_id: NodeId(3),
                own: (TERM, LAST),
                ..
            })
        );
        assert_eq!(halts, is_more, "{remembered:?}: {:?}", group.halted());
        let writes = std::iter::from_fn(|| out.pop_write()).map(|(_, write)| write);
        let quarantines = writes.filter_map(|write| match write {
            Write::Quarantined(why) => Some(why),
            _ => None,
        });
        let quarantines: Vec<String> = quarantines.collect();
        assert_eq!(quarantines.len(), usize::from(is_more));
        if let [why] = &quarantines[..] {
            let node = "node 3 at 10.0.0.13:7471";
            assert!(why.contains(node), "{why}");
            assert!(asked(&mut group, Instant::ZERO, &mut out).is_empty());
        }
    }
}

/// What somebody who is no member says counts for nothing, and neither does an answer of its own.
#[test]
fn only_another_members_word_counts() {
    let mut out = outbox();
    let mut group = started(3, false, &mut out);
    for of in [OWN, 99] {
        group.on_promise(Incarnation(of), position(TERM + 9, 9), &mut out);
        assert_eq!(group.halted(), None, "{of}");
    }
    // The time for questions is over, and an answer comes late.
    for at in [Duration::ZERO, tick(), Duration::from_secs(9)] {
        asked(&mut group, Instant::ZERO + at, &mut out);
    }
    assert!(group.asking.is_none());
    group.on_promise(Incarnation(12), position(TERM + 9, 9), &mut out);
    assert!(group.halted().is_some());
}

/// What a member hears is what it tells.
#[test]
fn a_member_remembers_what_others_have_said_to_it() {
    let (mut out, now) = (outbox(), Instant::ZERO);
    let group = started(1, false, &mut out);
    assert_eq!(group.promised_by(Incarnation(12)), None);
    let mut group = started(3, false, &mut out);
    for of in [12, 13] {
        group.on_promise(Incarnation(of), None, &mut out);
    }
    asked(&mut group, now, &mut out);
    assert!(is_heard(&mut group, now, &mut out));
    assert_eq!(group.promised_by(Incarnation(12)), position(TERM + 1, 0));
    assert_eq!(group.promised_by(Incarnation(13)), None);
}
