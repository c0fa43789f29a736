//! Replicas that have applied the same entries hold the same state: this is checked while they run.
//!
//! Behind every [`CHECK_EVERY`]th entry each replica tells the others the hash of its state, and each answers with its own.
//! A report that arrives only raises a suspicion, for anybody can write one. What counts is what the voters answer over
//! sessions that this replica has opened itself: a replica that finds a majority of them agreeing on another hash than its
//! own has diverged, by a bug or by broken memory. It takes part no more: nothing that it could say from then on can be
//! trusted.

use std::collections::BTreeMap;

use trine_protocol::message::{
    Encode, Incarnation, MemberRole, PeerHeader, ReplyToken, StateReport, kind,
};
use trine_transport::time::Instant;

use super::Group;
use super::durability::Durability;
use super::local::election_timeout;
use crate::halt::Halt;
use crate::outbox::{Letter, Outbox, Purpose};
use crate::output::Class;

/// Entries from one check to the next.
pub(super) const CHECK_EVERY: u64 = 1024;
/// Checks that may wait for the reports of slow members.
const CHECKS_MAX: usize = 8;

/// Who has which state.
type Hashes = BTreeMap<Incarnation, [u64; 2]>;

/// What is known of the states behind one entry.
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

    /// The entries about which `own` has to ask the voters now: what was told speaks against it, and the voters were not
    /// asked since `since`.
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

impl Group {
    /// Everything up to `index` is applied.
    pub(super) fn report_state(&mut self, index: u64, out: &mut Outbox) {
        let Some(state) = &self.state else { return };
        if !index.is_multiple_of(CHECK_EVERY) {
            return;
        }
        let hash = state.store().state_hash();
        let hash = [(hash >> 64) as u64, hash as u64];
        self.agreement
            .note_answered(index, self.local.own.incarnation, hash);
        self.send_report(index, hash, |_| true, out);
        self.settle_check(index, out);
    }

    /// Tells the members of which `to` says yes this replica's state behind an entry; each answers with its own.
    fn send_report(
        &self,
        index: u64,
        hash: [u64; 2],
        to: impl Fn(MemberRole) -> bool,
        out: &mut Outbox,
    ) {
        let Some(state) = &self.state else { return };
        for member in state.members().all() {
            if member.incarnation == self.local.own.incarnation || !to(member.role) {
                continue;
            }
            let to = member.incarnation;
            let report = StateReport {
                header: self.local.header_to(to),
                index,
                hash,
            };
            let letter = Letter {
                to: member.address,
                expect: Some(to),
                kind: kind::AGREE,
                class: Class::Bulk,
                purpose: Purpose::Report { to, index },
                timeout: election_timeout(&self.local.config),
                answer_bytes_max: report.encoded_len(),
            };
            out.send(letter, &report);
        }
    }

    /// A member says what its state is. The answer is this replica's own, if it has got there.
    pub(crate) fn on_state_report(
        &mut self,
        now: Instant,
        token: ReplyToken,
        report: &StateReport,
        out: &mut Outbox,
    ) {
        let from = report.header.from;
        if !self.is_sensible(&report.header, report.index, out) {
            return out.reply_empty(token);
        }
        match self
            .agreement
            .hash_of(report.index, self.local.own.incarnation)
        {
            Some(hash) => out.reply(
                token,
                &StateReport {
                    header: self.local.header_to(from),
                    index: report.index,
                    hash,
                },
            ),
            None => out.reply_empty(token),
        }
        self.hear(now, from, 0);
        self.agreement.note_told(report.index, from, report.hash);
    }

    /// The answer of the member `to` to a report, over a session that leads to it.
    pub(crate) fn on_report_answer(
        &mut self,
        now: Instant,
        to: Incarnation,
        index: u64,
        answer: &[u8],
        out: &mut Outbox,
    ) {
        // Empty: it has not got there, or belongs to an earlier release.
        let Ok(report) = StateReport::decode(answer) else {
            return;
        };
        let is_its = report.header.from == to && report.index == index;
        if is_its && self.is_sensible(&report.header, index, out) {
            self.hear(now, to, 0);
            self.agreement.note_answered(index, to, report.hash);
            self.settle_check(index, out);
        }
    }

    fn is_sensible(&self, header: &PeerHeader, index: u64, out: &mut Outbox) -> bool {
        let ahead = self.consensus.raft().applied() + CHECK_EVERY * CHECKS_MAX as u64;
        let expected = index.is_multiple_of(CHECK_EVERY) && index <= ahead;
        self.concerns(header, out) && self.is_member(header.from) && expected
    }

    /// Asks the voters where what members have told speaks against this replica; again if nobody has settled it.
    pub(super) fn follow_suspicions(&mut self, now: Instant, out: &mut Outbox) {
        let own = self.local.own.incarnation;
        let patience = election_timeout(&self.local.config).as_nanos();
        let since = Instant::from_nanos(now.as_nanos().saturating_sub(patience));
        for index in self.agreement.suspicions(own, &self.voter_sides(), since) {
            let Some(hash) = self.agreement.hash_of(index, own) else {
                continue;
            };
            self.agreement.check_mut(index).asked_at = Some(now);
            self.send_report(index, hash, |role| role == MemberRole::Voter, out);
        }
    }

    fn is_member(&self, incarnation: Incarnation) -> bool {
        self.state
            .as_ref()
            .is_some_and(|state| state.members().get(incarnation).is_some())
    }

    /// Halts if the voters' answers prove that this replica has diverged. A majority of the voters is sound then, so the
    /// group loses nothing with its files.
    fn settle_check(&mut self, index: u64, out: &mut Outbox) {
        let own = self.local.own.incarnation;
        let Some(hash) = self.agreement.hash_of(index, own) else {
            return;
        };
        let Some(majority) = self
            .agreement
            .proven_against(index, own, &self.voter_sides())
        else {
            return;
        };
        let why = Halt::Diverged {
            index,
            own: hash,
            majority,
        };
        if self.disk.is_some() && self.halted.is_none() {
            Durability::quarantine(why.to_string(), out);
        }
        self.halt(why);
    }
}

#[cfg(test)]
mod tests {
    use trine_transport::buf::{Pool, PoolConfig};

    use super::*;
    use crate::bootstrap::Origin;
    use crate::disk::{Fsync, MemoryDisk, OpenError, OpenOptions, lift_quarantine, open};
    use crate::state_machine::Genesis;
    use trine_protocol::message::{ClusterId, Member, Members, PlaceId};

    /// It used to be told to start again, and came back with the same state out of its log and its snapshots.
    #[test]
    fn in_disk_mode_the_data_of_a_replica_gone_astray_is_lost_memory() {
        let config = crate::ReplicaConfig::default();
        let members: Vec<Member> = (1..=3)
            .map(|place| Member {
                place: PlaceId(place),
                role: MemberRole::Voter,
                incarnation: Incarnation(u64::from(place)),
                address: ([127, 0, 0, 1], 7470).into(),
            })
            .collect();
        let origin = Origin {
            cluster: ClusterId(7),
            members: Members(members.clone()),
            genesis: Genesis::new(&config, [1, 2]),
        };
        let options = |rejoin| OpenOptions {
            place: PlaceId(1),
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
            group.settle_check(1024, &mut out);
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
        let restored = open(lifted, options(false)).unwrap();
        assert_eq!(restored.incarnation, Incarnation(1), "as who it was");
        let anew = open(files, options(true)).unwrap();
        assert_eq!(anew.incarnation, Incarnation(11));
        assert!(anew.restored.is_none() && anew.lost.is_some());
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

    /// Forged reports made all replicas of a group quarantine their disks: what is told proves nothing, and makes a replica
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
