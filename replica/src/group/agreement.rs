//! Checks, while replicas run, that those that have applied the same entries hold the same state.
//!
//! After every [`CHECK_EVERY`]th entry each replica tells the others the hash of its state, and each answers with its
//! own. A report that arrives only raises a suspicion, for any process can write one. The voters' answers over sessions
//! that this replica has opened itself are the proof. A replica has diverged, by a bug or by broken memory, if a
//! majority of them agrees on another hash than its own. It halts: nothing that it could say from then on can be
//! trusted.

use std::collections::BTreeMap;

use trine_protocol::message::{Encode, Incarnation, MemberRole, ReplyToken, StateReport, kind};
use trine_transport::time::Instant;

use super::consensus::Consensus;
use super::local::Local;
use crate::halt::Halt;
use crate::outbox::{Outbox, PeerRequest, Purpose};
use crate::output::Class;
use crate::state_machine::StateMachine;

/// Entries from one check to the next.
const CHECK_EVERY: u64 = 1024;
/// Checks that may wait for the reports of slow members.
const CHECKS_MAX: usize = 8;

/// Who has which state.
type Hashes = BTreeMap<Incarnation, [u64; 2]>;

/// The reported states after one entry.
#[derive(Default)]
struct Check {
    /// As members have told it. Not proven: it only makes this replica ask.
    told: Hashes,
    /// As they have answered over sessions that this replica has opened, and its own.
    answered: Hashes,
    /// When the voters were asked last because of a suspicion.
    asked_at: Option<Instant>,
}

/// The checks that are not settled.
#[derive(Default)]
pub(super) struct Agreement {
    checks: BTreeMap<u64, Check>,
}

impl Agreement {
    /// A member says so by itself.
    fn note_told(&mut self, index: u64, from: Incarnation, hash: [u64; 2]) {
        self.check_mut(index).told.insert(from, hash);
        self.forget_old();
    }

    /// A voter answers so, or this replica has computed it.
    fn note_answered(&mut self, index: u64, from: Incarnation, hash: [u64; 2]) {
        self.check_mut(index).answered.insert(from, hash);
        self.forget_old();
    }

    fn check_mut(&mut self, index: u64) -> &mut Check {
        self.checks.entry(index).or_default()
    }

    fn forget_old(&mut self) {
        while self.checks.len() > CHECKS_MAX {
            self.checks.pop_first();
        }
    }

    /// The hash that `own` has computed itself.
    fn hash_of(&self, index: u64, own: Incarnation) -> Option<[u64; 2]> {
        self.checks.get(&index)?.answered.get(&own).copied()
    }

    /// The hash other than `own`'s that a majority of each of `sides` has, by what was answered.
    fn proven_against(
        &self,
        index: u64,
        own: Incarnation,
        sides: &[Vec<Incarnation>],
    ) -> Option<[u64; 2]> {
        let check = self.checks.get(&index)?;
        against(own, sides, &check.answered, |voter| {
            check.answered.get(&voter)
        })
    }

    /// The entries about which `own` has to ask the voters now: reports contradict it, and the voters were not asked
    /// since `since`.
    fn suspicions(&self, own: Incarnation, sides: &[Vec<Incarnation>], since: Instant) -> Vec<u64> {
        let is_suspect = |check: &Check| {
            let believed = |voter| {
                check
                    .answered
                    .get(&voter)
                    .or_else(|| check.told.get(&voter))
            };
            check.asked_at.is_none_or(|at| at < since)
                && against(own, sides, &check.answered, believed).is_some()
        };
        let suspect = self.checks.iter().filter(|(_, check)| is_suspect(check));
        suspect.map(|(&index, _)| index).collect()
    }
}

/// The hash other than `own`'s that more than half of each side's voters have.
fn against<'a>(
    own: Incarnation,
    sides: &[Vec<Incarnation>],
    answered: &Hashes,
    hash_of: impl Fn(Incarnation) -> Option<&'a [u64; 2]>,
) -> Option<[u64; 2]> {
    let own = answered.get(&own)?;
    let voters = || sides.iter().flatten();
    let held_by = |hash: [u64; 2], side: &Vec<Incarnation>| {
        let holders = side.iter().filter(|&&voter| hash_of(voter) == Some(&hash));
        holders.count() > side.len() / 2
    };
    let mut others = voters()
        .filter_map(|&voter| hash_of(voter))
        .filter(|&hash| hash != own);
    let of_majority = |hash: &&[u64; 2]| {
        let mut sides = sides.iter().filter(|side| !side.is_empty());
        sides.all(|side| held_by(**hash, side))
    };
    others.find(of_majority).copied()
}

impl Agreement {
    /// Everything up to `index` is applied: reports this member's state if a check is due. Returns why to halt, if the
    /// voters' answers prove that this member has diverged.
    pub(super) fn on_applied(
        &mut self,
        index: u64,
        local: &Local,
        state: Option<&StateMachine>,
        consensus: &Consensus,
        out: &mut Outbox,
    ) -> Option<Halt> {
        let state = state.filter(|_| index.is_multiple_of(CHECK_EVERY))?;
        let hash = state.store().state_hash();
        let hash = [(hash >> 64) as u64, hash as u64];
        self.note_answered(index, local.own.incarnation, hash);
        send_report(index, hash, local, state, |_| true, out);
        self.settle(index, local, consensus)
    }

    /// Whether a report about `index` can be one of a member that follows the same log.
    pub(super) fn expects(
        &self,
        from: Incarnation,
        index: u64,
        state: Option<&StateMachine>,
        consensus: &Consensus,
    ) -> bool {
        let ahead = consensus.raft().applied() + CHECK_EVERY * CHECKS_MAX as u64;
        let expected = index.is_multiple_of(CHECK_EVERY) && index <= ahead;
        expected && state.is_some_and(|state| state.members().get(from).is_some())
    }

    /// A member reports its state. The answer is this member's own, if it has got there.
    pub(super) fn on_report(
        &mut self,
        token: ReplyToken,
        report: &StateReport,
        local: &Local,
        out: &mut Outbox,
    ) {
        let (from, index) = (report.header.from, report.index);
        match self.hash_of(index, local.own.incarnation) {
            Some(hash) => {
                let header = local.header_to(from);
                out.reply(
                    token,
                    &StateReport {
                        header,
                        index,
                        hash,
                    },
                );
            }
            None => out.reply_empty(token),
        }
        self.note_told(index, from, report.hash);
    }

    /// A member has answered a report over a session that leads to it. Returns why to halt, if that proves that this
    /// member has diverged.
    pub(super) fn on_answer(
        &mut self,
        report: &StateReport,
        local: &Local,
        consensus: &Consensus,
    ) -> Option<Halt> {
        self.note_answered(report.index, report.header.from, report.hash);
        self.settle(report.index, local, consensus)
    }

    /// Asks the voters if members' reports contradict this member's state; again if the question is not settled.
    pub(super) fn follow_suspicions(
        &mut self,
        now: Instant,
        local: &Local,
        state: Option<&StateMachine>,
        consensus: &Consensus,
        out: &mut Outbox,
    ) {
        let own = local.own.incarnation;
        let patience = local.election_timeout().as_nanos();
        let since = Instant::from_nanos(now.as_nanos().saturating_sub(patience));
        for index in self.suspicions(own, &consensus.voter_sides(), since) {
            let Some(hash) = self.hash_of(index, own) else {
                continue;
            };
            self.check_mut(index).asked_at = Some(now);
            if let Some(state) = state {
                let votes = |role| role == MemberRole::Voter;
                send_report(index, hash, local, state, votes, out);
            }
        }
    }

    /// Why to halt, if the voters' answers prove that this member has diverged. A majority of the voters is sound then, so
    /// the group loses nothing with its files.
    fn settle(&self, index: u64, local: &Local, consensus: &Consensus) -> Option<Halt> {
        let member = local.own.incarnation;
        let own = self.hash_of(index, member)?;
        let majority = self.proven_against(index, member, &consensus.voter_sides())?;
        Some(Halt::Diverged {
            index,
            own,
            majority,
        })
    }
}

/// Tells the members for which `to` returns true this member's state after an entry; each answers with its own.
fn send_report(
    index: u64,
    hash: [u64; 2],
    local: &Local,
    state: &StateMachine,
    to: impl Fn(MemberRole) -> bool,
    out: &mut Outbox,
) {
    for member in state.members().all() {
        if member.incarnation == local.own.incarnation || !to(member.role) {
            continue;
        }
        let to = member.incarnation;
        let report = StateReport {
            header: local.header_to(to),
            index,
            hash,
        };
        let peer_request = PeerRequest {
            to: member.address,
            expect: Some(to),
            kind: kind::AGREE,
            class: Class::Bulk,
            purpose: Purpose::Report { to, index },
            timeout: local.election_timeout(),
            answer_bytes_max: report.encoded_len(),
        };
        out.send(peer_request, &report);
    }
}

#[cfg(test)]
mod tests {
    use trine_transport::buf::{Pool, PoolConfig};

    use super::*;
    use crate::bootstrap::Origin;
    use crate::disk::{Fsync, MemoryDisk, OpenError, OpenOptions, Write, lift_quarantine, open};
    use crate::group::Group;
    use crate::state_machine::Genesis;
    use trine_protocol::message::{ClusterId, Member, Members, NodeId};

    /// It used to be told to start again, and came back with the same state out of its log and its snapshots.
    #[test]
    fn in_disk_mode_the_data_of_a_diverged_replica_is_lost_memory() {
        let config = crate::ReplicaConfig::default();
        let members: Vec<Member> = (1..=3)
            .map(|node_id| Member {
                node_id: NodeId(node_id),
                role: MemberRole::Voter,
                incarnation: Incarnation(u64::from(node_id)),
                address: ([127, 0, 0, 1], 7470).into(),
            })
            .collect();
        let origin = Origin {
            cluster: ClusterId(7),
            members: Members(members.clone()),
            genesis: Genesis::new(&config, [1, 2]),
        };
        let options = |rejoin| OpenOptions {
            node_id: NodeId(1),
            fsync: Fsync::Batch,
            segment_bytes: crate::config::SEGMENT_BYTES_MIN,
            incarnation: Incarnation(1 + u64::from(rejoin) * 10),
            rejoin,
        };
        let mut disk = open(MemoryDisk::default(), options(false)).unwrap().writer;
        let mut out = Outbox::new(Pool::new(PoolConfig::default()));
        let mut group = Group::first_member(config, members[0], origin, 1, Instant::ZERO);
        group.keep_on_disk(&mut out);
        for (from, hash) in [(1, 1), (2, 2), (3, 2)] {
            assert_eq!(group.halted(), None);
            group
                .agreement
                .note_answered(1024, Incarnation(from), [0, hash]);
            let diverged = group.agreement.settle(1024, &group.local, &group.consensus);
            if let Some(why) = diverged {
                group.halt_and_quarantine(why, &mut out);
            }
        }
        assert!(matches!(group.halted(), Some(Halt::Diverged { .. })));
        while let Some((_, write)) = out.pop_write() {
            disk.perform([write]).unwrap();
        }
        let files = disk.disk_mut().clone();
        let Err(OpenError::Quarantined { why, .. }) = open(files.clone(), options(false)) else {
            panic!("it goes on with the same state");
        };
        assert!(why.contains("differs from the majority's"));
        let mut lifted = files.clone();
        assert_eq!(lift_quarantine(&mut lifted), Ok(Some(why)));
        assert_eq!(lift_quarantine(&mut lifted), Ok(None));
        // Opening does not use the mark up: a start may end at once.
        for _ in 0..2 {
            let mut opened = open(lifted, options(false)).unwrap();
            assert_eq!(opened.incarnation, Incarnation(1), "as who it was");
            assert!(opened.restored.is_some_and(|restored| restored.is_lifted));
            lifted = opened.writer.disk_mut().clone();
        }
        let mut opened = open(lifted, options(false)).unwrap();
        opened.writer.perform([Write::LiftEnded]).unwrap();
        let ended = open(opened.writer.disk_mut().clone(), options(false)).unwrap();
        assert!(ended.restored.is_some_and(|restored| !restored.is_lifted));
        let lost_memory = open(files, options(true)).unwrap();
        assert_eq!(lost_memory.incarnation, Incarnation(11));
        assert!(lost_memory.restored.is_none() && lost_memory.lost.is_some());
    }

    const OWN: Incarnation = Incarnation(9);

    fn agreement(own: u64, answered: &[(u64, u64)]) -> Agreement {
        let mut agreement = Agreement::default();
        agreement.note_answered(1024, OWN, [0, own]);
        for &(voter, hash) in answered {
            agreement.note_answered(1024, Incarnation(voter), [0, hash]);
        }
        agreement
    }

    #[test]
    fn only_more_than_half_of_the_voters_are_a_majority() {
        let voters = [[1, 2, 3, 4, 5].map(Incarnation).to_vec(), Vec::new()];
        let mut agreement = agreement(2, &[(1, 1), (2, 1), (8, 1)]);
        let proven = |agreement: &Agreement| agreement.proven_against(1024, OWN, &voters);
        assert_eq!(proven(&agreement), None, "who does not vote does not count");
        agreement.note_answered(1024, Incarnation(3), [0, 2]);
        assert_eq!(proven(&agreement), None);
        agreement.note_answered(1024, Incarnation(5), [0, 1]);
        assert_eq!(proven(&agreement), Some([0, 1]));
        assert_eq!(agreement.proven_against(2048, OWN, &voters), None);
    }

    /// During a joint change a decision takes a majority of either side.
    #[test]
    fn a_joint_configuration_needs_a_majority_of_both_sides() {
        let sides = [
            [1, 2, 3].map(Incarnation).to_vec(),
            [3, 4, 5].map(Incarnation).to_vec(),
        ];
        let mut agreement = agreement(2, &[(1, 1), (2, 1), (3, 1)]);
        assert_eq!(agreement.proven_against(1024, OWN, &sides), None);
        agreement.note_answered(1024, Incarnation(4), [0, 1]);
        assert_eq!(agreement.proven_against(1024, OWN, &sides), Some([0, 1]));
    }

    /// Forged reports made all replicas of a group quarantine their disks: a report proves nothing, and makes a replica
    /// ask, once an election timeout.
    #[test]
    fn what_is_told_is_a_suspicion_and_no_proof() {
        let voters = [[1, 2, 9].map(Incarnation).to_vec(), Vec::new()];
        let mut agreement = agreement(2, &[]);
        let at = |ns| Instant::from_nanos(ns);
        assert!(agreement.suspicions(OWN, &voters, at(5)).is_empty());
        agreement.note_told(1024, Incarnation(1), [0, 1]);
        agreement.note_told(1024, Incarnation(2), [0, 1]);
        assert_eq!(agreement.proven_against(1024, OWN, &voters), None);
        assert_eq!(agreement.suspicions(OWN, &voters, at(5)), [1024]);
        agreement.check_mut(1024).asked_at = Some(at(5));
        assert!(agreement.suspicions(OWN, &voters, at(5)).is_empty());
        assert_eq!(agreement.suspicions(OWN, &voters, at(6)), [1024]);
        agreement.note_answered(1024, Incarnation(1), [0, 2]);
        assert!(
            agreement.suspicions(OWN, &voters, at(6)).is_empty(),
            "an answer outweighs it"
        );
    }

    #[test]
    fn old_checks_are_forgotten() {
        let mut agreement = Agreement::default();
        (0..100).for_each(|n| agreement.note_told(n * CHECK_EVERY, OWN, [0, 0]));
        agreement.note_answered(99 * CHECK_EVERY, OWN, [0, 0]);
        assert_eq!(agreement.checks.len(), CHECKS_MAX);
        assert_eq!(agreement.hash_of(99 * CHECK_EVERY, OWN), Some([0, 0]));
    }
}
