//! Replicas that have applied the same entries hold the same state: this is checked while they run.
//!
//! Behind every [`CHECK_EVERY`]th entry each replica tells the others the hash of its state. A replica that finds a
//! majority of the voters agreeing on another hash than its own has gone astray, by a bug or by broken memory, and takes
//! part no more: nothing that it could say from then on can be trusted.

use std::collections::BTreeMap;

use trine_transport::time::Instant;

use super::{Group, election_timeout};
use crate::disk::Write;
use crate::message::{Incarnation, MemberRole, ReplyToken, StateReport, kind};
use crate::outbox::{Letter, Outbox, Purpose};
use crate::output::Class;

/// Entries from one check to the next.
pub(super) const CHECK_EVERY: u64 = 1024;
/// Checks that may wait for the reports of slow members.
const CHECKS_MAX: usize = 8;

/// One agreed index: who has which state there.
type Check = BTreeMap<Incarnation, [u64; 2]>;

/// The checks that are not settled.
#[derive(Default)]
pub(super) struct Agreement {
    checks: BTreeMap<u64, Check>,
    /// This replica's state was found to be another than the majority's.
    astray: bool,
}

impl Agreement {
    fn note(&mut self, index: u64, from: Incarnation, hash: [u64; 2]) {
        self.checks.entry(index).or_default().insert(from, hash);
        while self.checks.len() > CHECKS_MAX {
            self.checks.pop_first();
        }
    }

    /// The hash that more than half of `voters` have at `index`.
    fn majority(&self, index: u64, voters: &[Incarnation]) -> Option<[u64; 2]> {
        let check = self.checks.get(&index)?;
        let hashes = || voters.iter().filter_map(|voter| check.get(voter));
        let held = |hash: &&[u64; 2]| hashes().filter(|other| other == hash).count();
        hashes().find(|hash| held(hash) > voters.len() / 2).copied()
    }

    fn hash_of(&self, index: u64, member: Incarnation) -> Option<[u64; 2]> {
        self.checks.get(&index)?.get(&member).copied()
    }
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
        let others = state
            .members()
            .all()
            .iter()
            .filter(|m| m.incarnation != self.own.incarnation);
        for member in others {
            let to = member.incarnation;
            let letter = Letter {
                to: member.address,
                expect: Some(to),
                kind: kind::AGREE,
                class: Class::Bulk,
                purpose: Purpose::Report,
                timeout: election_timeout(&self.config),
                answer_bytes_max: 0,
            };
            out.send(
                letter,
                &StateReport {
                    header: self.header_to(to),
                    index,
                    hash,
                },
            );
        }
        self.agreement.note(index, self.own.incarnation, hash);
        self.settle_check(index, out);
    }

    /// A member says what its state is.
    pub(crate) fn on_state_report(
        &mut self,
        now: Instant,
        token: ReplyToken,
        report: &StateReport,
        out: &mut Outbox,
    ) {
        out.reply_empty(token);
        let from = report.header.from;
        let ahead = self.raft.applied() + CHECK_EVERY * CHECKS_MAX as u64;
        let sensible = report.index.is_multiple_of(CHECK_EVERY) && report.index <= ahead;
        if self.concerns(&report.header, out) && self.is_member(from) && sensible {
            self.hear(now, from, 0);
            self.agreement.note(report.index, from, report.hash);
            self.settle_check(report.index, out);
        }
    }

    /// Takes part no more, and in disk mode neither does what its log and its snapshots have kept: the same state would
    /// come out of them.
    fn go_astray(&mut self, why: &str, out: &mut Outbox) {
        if self.disk.is_some() && self.halted.is_none() {
            out.write(Write::Condemned(why.to_owned()));
        }
        self.agreement.astray = true;
        self.halt(why);
    }

    /// Whether this replica has halted because its state is not the group's.
    pub(crate) fn is_astray(&self) -> bool {
        self.agreement.astray
    }

    fn is_member(&self, incarnation: Incarnation) -> bool {
        self.state
            .as_ref()
            .is_some_and(|state| state.members().get(incarnation).is_some())
    }

    fn settle_check(&mut self, index: u64, out: &mut Outbox) {
        let Some(state) = &self.state else { return };
        let voters: Vec<Incarnation> = state
            .members()
            .all()
            .iter()
            .filter(|member| member.role == MemberRole::Voter)
            .map(|member| member.incarnation)
            .collect();
        let majority = self.agreement.majority(index, &voters);
        let own = self.agreement.hash_of(index, self.own.incarnation);
        if let (Some(majority), Some(own)) = (majority, own)
            && majority != own
        {
            self.go_astray(
                &format!(
                    "its state behind entry {index} differs from the majority's ({:016x}{:016x}, not {:016x}{:016x})",
                    own[0], own[1], majority[0], majority[1]
                ),
                out,
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use trine_transport::buf::{Pool, PoolConfig};

    use super::*;
    use crate::bootstrap::Origin;
    use crate::disk::{Fsync, MemoryDisk, OpenError, OpenOptions, open};
    use crate::message::{ClusterId, Member, Members, PlaceId};
    use crate::state_machine::Genesis;

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
            assert!(!group.is_astray());
            group.agreement.note(1024, Incarnation(from), [0, hash]);
            group.settle_check(1024, &mut out);
        }
        assert!(group.is_astray() && group.halted().is_some());
        while let Some((_, write)) = out.pop_write() {
            disk.perform([write]).unwrap();
        }
        let files = disk.disk_mut().clone();
        let Err(OpenError::Lost(lost)) = open(files.clone(), options(false)) else {
            panic!("it goes on with the same state");
        };
        assert!(lost.to_string().contains("differs from the majority's"));
        let anew = open(files, options(true)).unwrap();
        assert_eq!(anew.incarnation, Incarnation(11));
        assert!(anew.restored.is_none() && anew.lost.is_some());
    }

    #[test]
    fn only_more_than_half_of_the_voters_are_a_majority() {
        let voters = [1, 2, 3, 4, 5].map(Incarnation);
        let mut agreement = Agreement::default();
        agreement.note(1024, Incarnation(1), [0, 1]);
        agreement.note(1024, Incarnation(2), [0, 1]);
        agreement.note(1024, Incarnation(9), [0, 1]);
        assert_eq!(
            agreement.majority(1024, &voters),
            None,
            "who does not vote does not count"
        );
        agreement.note(1024, Incarnation(3), [0, 2]);
        assert_eq!(agreement.majority(1024, &voters), None);
        agreement.note(1024, Incarnation(5), [0, 1]);
        assert_eq!(agreement.majority(1024, &voters), Some([0, 1]));
        assert_eq!(agreement.majority(2048, &voters), None);
    }

    #[test]
    fn old_checks_are_forgotten() {
        let mut agreement = Agreement::default();
        (0..100).for_each(|n| agreement.note(n * CHECK_EVERY, Incarnation(1), [0, 0]));
        assert_eq!(agreement.checks.len(), CHECKS_MAX);
        assert_eq!(
            agreement.hash_of(99 * CHECK_EVERY, Incarnation(1)),
            Some([0, 0])
        );
    }
}
