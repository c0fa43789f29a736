//! One crash must not leave a group without a leader for good. Nobody may lead without a vote, or vote in a place
//! that it has left.
//!
//! The first question is asked whenever a replica applies a change of the members. A group has to survive a crash if the
//! rest is a quorum of each configuration that any replica still has; a removed replica counts as there for that. Who can
//! win an election is decided by what each replica knows: its own configuration and log, and the logs of the replicas
//! whose votes it needs. A removed replica gives no vote. So what is found is the silence of one that others still need.

use std::collections::{BTreeMap, BTreeSet};
use trine_protocol::message::{Incarnation, Member, MemberRole};

/// A replica's log.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Log {
    /// Term and index of its last entry.
    pub end: (u64, u64),
    /// Term and index of the shortest log that gets its vote.
    pub votes_from: (u64, u64),
    /// The replica knows of committed entries that it has not applied yet. Its configuration may be another one in a
    /// moment, without a word from anybody.
    pub unapplied: bool,
}

/// What a replica shows of itself when it has applied a change.
#[derive(Clone, Debug)]
pub struct Seen<'a> {
    /// The replica.
    pub replica: Incarnation,
    /// The voters of its configuration, and during a joint change those of the one before.
    pub sides: [Vec<Incarnation>; 2],
    /// The members that it knows.
    pub members: &'a [Member],
    /// The last entry that it has applied.
    pub applied: u64,
    /// Whether it goes on answering. It does not once it was removed.
    pub answers: bool,
}

/// A replica that runs, or has crashed.
#[derive(Clone, Debug)]
struct Standing {
    sides: [Vec<Incarnation>; 2],
    /// What it had applied when its configuration became this one.
    since: u64,
    log: Log,
    answers: bool,
    crashed: bool,
}

impl Standing {
    fn voters(&self) -> impl Iterator<Item = Incarnation> {
        self.sides.iter().flatten().copied()
    }

    /// Whether these are a quorum of its configuration, in each half.
    fn is_quorum(&self, votes: impl Fn(Incarnation) -> bool) -> bool {
        let mut sides = self.sides.iter().filter(|side| !side.is_empty());
        sides.all(|side| {
            let given = side.iter().filter(|voter| votes(**voter)).count();
            given * 2 > side.len()
        })
    }
}

/// The replicas of a group, as they were seen last.
#[derive(Clone, Debug, Default)]
pub struct Seats {
    standings: BTreeMap<Incarnation, Standing>,
    /// Those that have become learners while another incarnation votes with their node id, and the entry by which it
    /// was seen.
    left: BTreeMap<Incarnation, u64>,
    judged: u64,
    /// The replica behind whose change it was not clear yet what the others would do.
    unjudged: Option<Incarnation>,
    finding: Option<String>,
}

impl Seats {
    /// The end of a replica's log, behind each of its turns.
    pub fn note_log(&mut self, replica: Incarnation, log: Log) {
        if let Some(standing) = self.standings.get_mut(&replica) {
            standing.log = log;
        }
        if let Some(changed) = self.unjudged {
            self.judge(changed);
        }
    }

    /// A replica has applied a change of the members, or has ceased to answer.
    pub fn note_change(&mut self, seen: &Seen<'_>, log: Log) {
        self.note_places(seen);
        let before = self.standings.get(&seen.replica);
        let since = match before {
            Some(before) if before.sides == seen.sides => before.since,
            _ => seen.applied,
        };
        let standing = Standing {
            sides: seen.sides.clone(),
            since,
            log,
            answers: seen.answers,
            crashed: false,
        };
        self.standings.insert(seen.replica, standing);
        self.judge(seen.replica);
    }

    /// A replica leads although its configuration gives it no vote.
    pub fn note_leader_without_vote(&mut self, replica: Incarnation) {
        self.find(|| {
            format!(
                "seats: replica {:x} leads and has no vote: no vote of its own counts, and nobody takes over from it",
                replica.0
            )
        });
    }

    /// A replica has crashed.
    pub fn note_crash(&mut self, replica: Incarnation) {
        if let Some(standing) = self.standings.get_mut(&replica) {
            standing.crashed = true;
        }
    }

    /// How often it was asked whether the group survives a crash that it has to survive.
    #[must_use]
    pub fn judged(&self) -> u64 {
        self.judged
    }

    /// The first thing that was wrong.
    #[must_use]
    pub fn finding(&self) -> Option<&str> {
        self.finding.as_deref()
    }

    fn find(&mut self, finding: impl FnOnce() -> String) {
        if self.finding.is_none() {
            self.finding = Some(finding());
        }
    }

    /// Who has left its place to a successor does not come back to it.
    fn note_places(&mut self, seen: &Seen<'_>) {
        let [incoming, outgoing] = &seen.sides;
        for member in seen.members {
            let (who, node_id) = (member.incarnation, member.node_id);
            let has_successor = seen.members.iter().any(|other| {
                (other.node_id, other.role) == (node_id, MemberRole::Voter)
                    && other.incarnation != who
            });
            let was_voter = || {
                // One that has started again with an earlier state knows less than before.
                let before = self.standings.get(&seen.replica);
                let before = before.filter(|before| before.since <= seen.applied);
                before.is_some_and(|before| before.voters().any(|voter| voter == who))
            };
            if member.role == MemberRole::Learner
                && outgoing.is_empty()
                && has_successor
                && was_voter()
            {
                self.left.entry(who).or_insert(seen.applied);
            }
            let left_at = self.left.get(&who).copied();
            if left_at.is_some_and(|at| at < seen.applied) && incoming.contains(&who) {
                self.find(|| {
                    format!(
                        "seats: replica {:x} took its seat back: it votes again for node {}, which another replica had taken over",
                        who.0, node_id
                    )
                });
            }
        }
    }

    /// Looks for a crash that would leave no replica that can be elected.
    fn judge(&mut self, changed: Incarnation) {
        let unclear = self.running().any(|standing| standing.log.unapplied);
        self.unjudged = unclear.then_some(changed);
        if unclear {
            return;
        }
        let voters: BTreeSet<_> = self.running().flat_map(Standing::voters).collect();
        // A group need only survive one crash, and it may have happened already.
        let down = voters.iter().filter(|voter| !self.runs(**voter));
        let crashes: Vec<Incarnation> = match down.clone().count() {
            0 => voters.into_iter().collect(),
            1 => down.copied().collect(),
            _ => return,
        };
        for crash in crashes {
            let is_there = |voter| self.runs(voter) && voter != crash;
            if !self.running().all(|standing| standing.is_quorum(is_there)) {
                continue;
            }
            self.judged += 1;
            if !self.can_elect(crash) {
                let finding = format!(
                    "seats: behind the change that {:x} has applied no replica could be elected without {:x}: \
                     a member that others still need has fallen silent; {}",
                    changed.0,
                    crash.0,
                    self.describe()
                );
                return self.find(|| finding);
            }
        }
    }

    /// The replicas that have not crashed: their voters and the ends of their logs.
    fn describe(&self) -> String {
        let words = self.standings.iter().filter(|(_, s)| !s.crashed);
        let words = words.map(|(who, standing)| {
            let [incoming, outgoing] = standing
                .sides
                .clone()
                .map(|side| side.iter().map(|v| format!("{:x}", v.0)).collect::<Vec<_>>().join(" "));
            let ((term, index), answers) = (standing.log.end, standing.answers);
            format!(
                "{:x}: voters [{incoming}] [{outgoing}], log up to {index} of term {term}, answers {answers}",
                who.0
            )
        });
        words.collect::<Vec<_>>().join("; ")
    }

    /// The replicas that run and answer.
    fn running(&self) -> impl Iterator<Item = &Standing> {
        let standings = self.standings.values();
        standings.filter(|standing| !standing.crashed && standing.answers)
    }

    /// Whether a replica has not crashed, though it may have been removed. One that was never seen is about to start.
    fn runs(&self, replica: Incarnation) -> bool {
        let standing = self.standings.get(&replica);
        standing.is_some_and(|standing| !standing.crashed)
    }

    fn answers(&self, replica: Incarnation) -> bool {
        let standing = self.standings.get(&replica);
        standing.is_some_and(|standing| !standing.crashed && standing.answers)
    }

    /// Whether any replica that is left would get the votes of a quorum of its own configuration.
    fn can_elect(&self, without: Incarnation) -> bool {
        let mut candidates = self.standings.iter();
        candidates.any(|(&who, candidate)| {
            let grants = |voter: Incarnation| {
                self.answers(voter)
                    && voter != without
                    && self.standings[&voter].log.votes_from <= candidate.log.end
            };
            candidate.voters().any(|voter| voter == who)
                && self.answers(who)
                && who != without
                && candidate.is_quorum(grants)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use trine_protocol::message::NodeId;

    fn ids(list: &[u64]) -> Vec<Incarnation> {
        list.iter().copied().map(Incarnation).collect()
    }

    /// Replica `who` votes for node `who % 10`.
    fn member(who: u64, role: MemberRole) -> Member {
        Member {
            node_id: NodeId((who % 10) as u32),
            role,
            incarnation: Incarnation(who),
            address: ([10, 0, 0, 1], 7471).into(),
        }
    }

    fn members(voters: &[u64], learners: &[u64]) -> Vec<Member> {
        let voters = voters.iter().map(|&who| member(who, MemberRole::Voter));
        let learners = learners.iter().map(|&who| member(who, MemberRole::Learner));
        voters.chain(learners).collect()
    }

    fn log(end: u64) -> Log {
        Log {
            end: (1, end),
            votes_from: (1, end),
            unapplied: false,
        }
    }

    struct Group(Seats);

    impl Group {
        fn of(voters: &[u64]) -> Self {
            let mut group = Self(Seats::default());
            for &who in voters {
                group.applies(who, 1, (voters, &[]), &[]);
            }
            group
        }

        /// A replica whose log ends here applies a configuration.
        fn applies(&mut self, who: u64, at: u64, sides: (&[u64], &[u64]), learners: &[u64]) {
            self.shows(who, at, sides, learners, true);
        }

        fn shows(
            &mut self,
            who: u64,
            at: u64,
            (incoming, outgoing): (&[u64], &[u64]),
            learners: &[u64],
            answers: bool,
        ) {
            let mut voters: Vec<u64> = incoming.iter().chain(outgoing).copied().collect();
            voters.sort_unstable();
            voters.dedup();
            let seen = Seen {
                replica: Incarnation(who),
                sides: [ids(incoming), ids(outgoing)],
                members: &members(&voters, learners),
                applied: at,
                answers,
            };
            self.0.note_change(&seen, log(at));
        }

        fn log(&mut self, who: u64, end: u64) {
            self.0.note_log(Incarnation(who), log(end));
        }
    }

    const OLD: &[u64] = &[1, 2, 3];
    const NEW: &[u64] = &[11, 2, 3];

    /// 11 is to replace 1. All but 3 have the joint configuration, and 11 does not know its end yet.
    fn amid() -> Group {
        let mut group = Group::of(OLD);
        group.applies(11, 1, (OLD, &[]), &[11]);
        for who in [2, 1, 11] {
            group.log(who, 3);
            group.applies(who, 2, (NEW, OLD), &[]);
        }
        group.log(11, 3);
        group.applies(2, 3, (NEW, &[]), &[1]);
        assert_eq!(group.0.finding(), None);
        group
    }

    /// The trial with raft alone: with leader 2 gone, 11 needs a vote of 1, of 2 or of both others of the old half.
    #[test]
    fn a_voter_that_falls_silent_while_it_is_needed_is_found() {
        let mut group = amid();
        group.shows(1, 3, (NEW, &[]), &[], false);
        let finding = group.0.finding().expect("a finding");
        assert!(finding.contains("without 2"), "{finding}");
    }

    #[test]
    fn a_voter_that_remains_as_a_learner_is_no_finding() {
        let mut group = amid();
        group.applies(1, 3, (NEW, &[]), &[1]);
        group.log(3, 3);
        group.applies(3, 3, (NEW, &[]), &[1]);
        group.applies(11, 3, (NEW, &[]), &[1]);
        group.shows(1, 4, (NEW, &[]), &[], false);
        assert_eq!(group.0.finding(), None);
        assert!(group.0.judged() > 10);
    }

    /// A replica that had just started on its log seemed to have an old configuration (seed 37).
    #[test]
    fn nothing_is_judged_while_a_replica_has_committed_entries_to_apply() {
        let mut group = amid();
        let unapplied = Log {
            unapplied: true,
            ..log(3)
        };
        group.0.note_log(Incarnation(11), unapplied);
        group.shows(1, 3, (NEW, &[]), &[], false);
        assert_eq!(group.0.finding(), None);
        group.log(11, 3);
        assert!(group.0.finding().is_some(), "the question is still there");
    }

    /// Two crashes are one too many, and two voters bear none, also while one becomes the third.
    #[test]
    fn what_no_group_survives_is_no_finding() {
        let mut group = amid();
        group.0.note_crash(Incarnation(3));
        group.0.note_crash(Incarnation(11));
        group.shows(1, 3, (NEW, &[]), &[], false);
        assert_eq!(group.0.finding(), None);

        let mut group = Group::of(OLD);
        group.applies(2, 2, (&[2, 3], &[]), &[1]);
        group.shows(1, 2, (&[2, 3], &[]), &[], false);
        assert_eq!(group.0.finding(), None);

        let mut group = Group::of(&[1, 2]);
        group.applies(3, 1, (&[1, 2], &[]), &[3]);
        for who in [1, 2, 3] {
            group.log(who, 2);
        }
        group.applies(1, 2, (OLD, &[]), &[]);
        assert_eq!(group.0.finding(), None);
    }

    #[test]
    fn who_votes_again_where_another_has_taken_over_is_found() {
        let mut group = amid();
        group.applies(1, 3, (NEW, &[]), &[1]);
        // One that lags shows what was true before, and so does one that has started again.
        group.applies(3, 2, (NEW, OLD), &[]);
        group.applies(2, 1, (OLD, &[]), &[11]);
        group.applies(2, 3, (NEW, &[]), &[1]);
        assert_eq!(group.0.finding(), None);
        group.applies(2, 5, (OLD, NEW), &[]);
        let finding = group.0.finding().expect("a finding");
        assert!(finding.contains("took its seat back"), "{finding}");
    }
}
