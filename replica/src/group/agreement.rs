//! Replicas that have applied the same entries hold the same state: this is checked while they run.
//!
//! Behind every [`CHECK_EVERY`]th entry each replica tells the others the hash of its state. A replica that finds a
//! majority of the voters agreeing on another hash than its own has gone astray, by a bug or by broken memory, and takes
//! part no more: nothing that it could say from then on can be trusted.

use std::collections::BTreeMap;

use trine_transport::time::Instant;

use super::{Group, election_timeout};
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
        self.settle_check(index);
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
            self.settle_check(report.index);
        }
    }

    fn is_member(&self, incarnation: Incarnation) -> bool {
        self.state
            .as_ref()
            .is_some_and(|state| state.members().get(incarnation).is_some())
    }

    fn settle_check(&mut self, index: u64) {
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
            self.halt(&format!(
                "its state behind entry {index} differs from the majority's ({:016x}{:016x}, not {:016x}{:016x})",
                own[0], own[1], majority[0], majority[1]
            ));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
