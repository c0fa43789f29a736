//! The votes that a replica gives after it has lost its own.
//!
//! A replica that has applied the end of its own vote is a learner, and campaigns no more. Others may not know yet that
//! this end is committed: to be elected they need its vote. Raft gives a vote only to a log that is as long as the own
//! one. What a former voter has behind the end of its vote, the others may lack, while the only other replica that has it
//! crashes. Then nobody could ever be elected: not the former voter, because it has no vote, and none of the others,
//! because it gives them none. So it compares as if its log ended where its vote did.
//!
//! No acknowledged write is lost by that, because what is behind the end of the vote is never committed without a replica
//! that stays a voter and that the candidate has to ask, too. Such a replica compares its whole log.
//! - A joint configuration needs a majority of the voters that stay for each decision, and so does every later one. A
//!   candidate whose log has the end of the vote knows that the joint configuration is committed: the leader had applied
//!   it when it proposed the end.
//! - Without a joint configuration the leader counts the former voter until it has applied the change. Of an even number
//!   of voters any two majorities share two, and only one of them loses its vote. Of an odd number they may share the
//!   former voter alone: then it compares its whole log. Such a group loses nothing by that. Of five voters four are left
//!   and any three of them are a majority of the five, and two voters survive no crash.
//! - A former voter that is being made a voter again compares its whole log from the moment at which it has that change in
//!   its log: a leader that has applied the change counts this replica. After a snapshot it does the same, because a
//!   snapshot may hold such a change.
//!
//! A replica whose log begins behind the end of its vote, as after some restarts, has forgotten it, and compares its
//! whole log.

use raft::GetEntriesContext;
use raft::eraftpb::{ConfChangeType, ConfState, Entry, Message};
use trine_canary as canary;

use super::RaftGroup;
use super::durable::changes_configuration;
use crate::log::Log;
use crate::membership::decode_change;

/// Whether a change that takes a replica's vote in this configuration lets it overlook what is behind: see above.
pub(super) fn may_overlook(before: &ConfState) -> bool {
    let joint = !before.voters_outgoing.is_empty();
    joint || before.voters.len().is_multiple_of(2)
}

impl<L: Log> RaftGroup<L> {
    /// Term and index of the shortest log that gets a vote from here.
    pub(crate) fn least_log_voted_for(&self) -> (u64, u64) {
        let last = self.log_end();
        let Some(end) = self.vote_ended else {
            return last;
        };
        if self.becomes_voter() || canary::planted("a former voter compares its whole log") {
            return last;
        }
        (end.term, end.index).min(last)
    }

    /// Raft compares the candidate's log with the whole of its own.
    pub(super) fn overlook_entries_behind_vote(&self, question: &mut Message) {
        let last = self.log_end();
        let candidate = (question.log_term, question.index);
        if self.least_log_voted_for() <= candidate && candidate < last {
            (question.log_term, question.index) = last;
        }
    }

    /// Term and index of the last entry; the term is zero if it is not known any more.
    pub(crate) fn log_end(&self) -> (u64, u64) {
        let index = self.last_index();
        (self.term_at(index).unwrap_or_default(), index)
    }

    /// Whether the log has a change, not applied yet, that gives this replica a vote. Yes if the log cannot be read.
    fn becomes_voter(&self) -> bool {
        let (own, log) = (self.node.raft.id, &self.node.raft.raft_log);
        let gives_vote = |entry: &Entry| {
            let change = decode_change(&entry.data);
            let singles = change.into_iter().flat_map(|change| change.changes);
            singles.into_iter().any(|single| {
                single.node_id == own && single.get_change_type() == ConfChangeType::AddNode
            })
        };
        let (from, end) = (self.applied() + 1, self.last_index() + 1);
        let context = GetEntriesContext::empty(false);
        let unapplied = log.slice(from, end.max(from), None, context);
        unapplied.map_or(true, |entries| {
            let mut changes = entries.iter().filter(|entry| changes_configuration(entry));
            changes.any(gives_vote)
        })
    }
}

#[cfg(test)]
mod tests {
    use prost::Message as _;
    use raft::eraftpb::{ConfChangeV2, EntryType, MessageType};
    use trine_protocol::message::Incarnation;
    use trine_transport::time::Instant;

    use super::*;
    use crate::log::MemoryLog;
    use crate::membership::{demote, leave_joint, promote, replace};
    use crate::raft_group::Proposal;
    use crate::raft_group::tests::{follower, message};

    /// Follower 1 of 2, with entries of term 2 up to `last` in its log.
    fn following(last: u64) -> RaftGroup<MemoryLog> {
        let mut group = follower(1);
        let mut append = message(MessageType::MsgAppend, 2, 2);
        (append.index, append.log_term, append.commit) = (1, 1, 1);
        let entry = |index| Entry {
            term: 2,
            index,
            ..Entry::default()
        };
        append.entries = (2..=last).map(entry).collect();
        group.step(Instant::ZERO, 2, append).unwrap();
        while group.poll_work().is_some() {}
        assert_eq!(group.last_index(), last);
        group
    }

    /// Whether candidate 3 gets a vote in term 3 for a log that ends there.
    fn votes_for(group: &mut RaftGroup<MemoryLog>, term: u64, index: u64) -> bool {
        let mut question = message(MessageType::MsgRequestVote, 3, 3);
        (question.log_term, question.index) = (term, index);
        // The promise of silence to the leader does not hold for its successor.
        question.context = raft::CAMPAIGN_TRANSFER.to_vec();
        group.step(Instant::ZERO, 3, question).unwrap();
        let mut granted = false;
        while let Some(work) = group.poll_work() {
            granted |= work.messages.iter().any(|m| {
                m.get_msg_type() == MessageType::MsgRequestVoteResponse && m.to == 3 && !m.reject
            });
        }
        granted
    }

    const END: Proposal = Proposal { index: 3, term: 2 };

    fn apply(group: &mut RaftGroup<MemoryLog>, change: &ConfChangeV2) -> ConfState {
        group.apply_conf_change(END, change).unwrap()
    }

    /// 4 has taken the place of 1. The log of 1 ends at entry `last`, and the joint configuration at entry 3.
    fn replaced(last: u64) -> RaftGroup<MemoryLog> {
        let mut group = following(last);
        apply(&mut group, &replace(Incarnation(1), Incarnation(4)));
        assert_eq!(apply(&mut group, &leave_joint()).learners, [1]);
        group
    }

    /// The voter that leads has crashed. 1 has lost its vote by entry 3 and has an entry more; 3 does not know yet that
    /// entry 3 is committed, and needs the vote of 1. It never got it (seed 103 of the simulation).
    #[test]
    fn a_former_voter_overlooks_what_is_behind_the_end_of_its_vote() {
        assert!(votes_for(&mut replaced(4), 2, 3));
        assert!(votes_for(&mut replaced(4), 2, 4));
        let lacks_the_end = votes_for(&mut replaced(4), 2, 2);
        assert!(!lacks_the_end);
        let of_an_earlier_term = votes_for(&mut replaced(4), 1, 9);
        assert!(!of_an_earlier_term);
    }

    #[test]
    fn a_voter_compares_its_whole_log() {
        assert!(votes_for(&mut following(4), 2, 4));
        assert!(!votes_for(&mut following(4), 2, 3));
    }

    /// Of three voters 1 was demoted by entry 3. Before the leader had applied that, entry 4 was committed by the leader
    /// and 1, and the client was told. The leader crashed. A vote for 3, which lacks entry 4, would lose it.
    #[test]
    fn one_of_an_odd_number_compares_its_whole_log() {
        let mut group = following(4);
        assert_eq!(apply(&mut group, &demote(Incarnation(1))).learners, [1]);
        assert!(!votes_for(&mut group, 2, 3));
    }

    #[test]
    fn one_of_an_even_number_overlooks_what_is_behind() {
        let mut group = following(4);
        apply(&mut group, &promote(Incarnation(4)));
        assert_eq!(apply(&mut group, &demote(Incarnation(1))).learners, [1]);
        assert!(votes_for(&mut group, 2, 3));
    }

    /// 1 is made a voter again by entry 5, and acknowledges entry 6 to a leader that has applied entry 5. It hears only
    /// later that entry 5 is committed. The leader crashes: a vote for 3, which lacks entry 6, would lose that.
    #[test]
    fn a_former_voter_that_gets_its_vote_back_compares_its_whole_log() {
        let mut group = replaced(4);
        let mut append = message(MessageType::MsgAppend, 2, 2);
        (append.index, append.log_term, append.commit) = (4, 2, 4);
        let again = Entry {
            entry_type: EntryType::EntryConfChangeV2.into(),
            term: 2,
            index: 5,
            data: promote(Incarnation(1)).encode_to_vec(),
            ..Entry::default()
        };
        let write = Entry {
            term: 2,
            index: 6,
            ..Entry::default()
        };
        append.entries = vec![again, write];
        group.step(Instant::ZERO, 2, append).unwrap();
        while group.poll_work().is_some() {}
        group.applied_to(4);
        assert_eq!((group.applied(), group.last_index()), (4, 6));
        assert!(!votes_for(&mut group, 2, 5));
        assert!(votes_for(&mut group, 2, 6));
    }
}
