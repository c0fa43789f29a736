//! The ready loop of disk mode: a round's promises leave only once the disk has the round.
//!
//! A leader's appends leave at once, before its own write is even under way. Raft counts the leader itself in only when
//! [`RaftGroup::on_written`] says so, and gives entries out to be applied only when they are on this disk too. Its
//! appends wait only until its term is written. A single voter leads without having asked any other replica, so only
//! its disk keeps it from leading in the same term once more.
//!
//! How far the log is committed is written only along with other things: raft finds it out again. For that it needs the
//! voters of before a change, though, and those may be gone once the change is applied. So a change of the
//! configuration is applied when this disk knows that it is committed, and entries committed after it wait for it.

use raft::StateRole;
use raft::eraftpb::{Entry, EntryType, HardState, Message, Snapshot};
use trine_canary as canary;

use super::{RaftGroup, Work, is_answer};
use crate::disk::Record;
use crate::log::Log;

/// A round of the ready loop that the disk does not have yet.
pub(super) struct Unwritten {
    /// The write that carries it, or the last one in front of it if it carries nothing.
    write: u64,
    /// Raft's number for it.
    number: u64,
    /// The term in which it was made.
    term: u64,
    /// Messages that leave once it is written.
    messages: Vec<Message>,
    snapshot: Option<Snapshot>,
    /// Entries that are applied once it is written.
    committed: Vec<Entry>,
}

impl<L: Log> RaftGroup<L> {
    /// One round of the ready loop in disk mode, or nothing if raft wants nothing. `submit` takes the writes, after the
    /// snapshot that the log is to begin at if there is one, and numbers it.
    pub(crate) fn poll_work_durably(
        &mut self,
        submit: impl FnOnce(Record, Option<&Snapshot>) -> u64,
    ) -> Option<Work> {
        let (ready, round) = self.begin_round()?;
        let mut work = Work {
            messages: round.messages,
            read_states: round.read_states,
            ..Work::default()
        };
        let mut held = Vec::new();
        let term = self.term();
        if self.written_term < term {
            held.append(&mut work.messages);
        } else if !self.unwritten.is_empty() {
            // Answers leave in the order in which raft has made them: those of a follower may still be held.
            (held, work.messages) = work.messages.into_iter().partition(is_answer);
        }
        let mut persisted = round.persisted_messages;
        held.append(&mut persisted);
        let (snapshot, mut committed) = (round.snapshot, round.committed);
        let mut record = Record::default();
        if let Some(snapshot) = &snapshot {
            record.restore(snapshot.get_metadata().index);
        }
        record.entries(ready.entries());
        let changes = committed.iter().any(changes_configuration);
        let waits = |round: &Unwritten| !round.committed.is_empty();
        if !changes && !self.unwritten.iter().any(waits) {
            work.committed = std::mem::take(&mut committed);
        }
        let (number, must_sync) = (ready.number(), ready.must_sync() || changes);
        self.node.advance_append_async(ready);
        let write = if must_sync {
            record.hard_state(&self.hard_state());
            let write = submit(record, snapshot.as_ref());
            if canary::planted("ack before fsync") && snapshot.is_none() {
                self.node.on_persist_ready(number);
                work.messages.append(&mut held);
                work.committed.append(&mut committed);
                return Some(work);
            }
            write
        } else if let Some(before) = self.unwritten.back() {
            before.write
        } else {
            self.node.on_persist_ready(number);
            work.messages.append(&mut held);
            return Some(work);
        };
        let last = self.unwritten.back();
        assert!(
            last.is_none_or(|last| last.write <= write && last.number < number),
            "rounds go to the disk in raft's order"
        );
        self.unwritten.push_back(Unwritten {
            write,
            number,
            term,
            messages: held,
            snapshot,
            committed,
        });
        Some(work)
    }

    fn hard_state(&self) -> HardState {
        let raft = &self.node.raft;
        HardState {
            term: raft.term,
            vote: raft.vote,
            commit: raft.raft_log.committed,
        }
    }

    /// Every write up to `write` is durable: messages that were held back for them may leave.
    pub(crate) fn on_written(&mut self, write: u64) -> Option<Work> {
        let mut work = None;
        while self
            .unwritten
            .front()
            .is_some_and(|front| front.write <= write)
            && let Some(mut front) = self.unwritten.pop_front()
        {
            self.node.on_persist_ready(front.number);
            assert!(self.written_term <= front.term, "a term never goes back");
            self.written_term = front.term;
            let work = work.get_or_insert_with(Work::default);
            work.messages.append(&mut front.messages);
            if front.snapshot.is_some() {
                // It replaces all entries that were to be applied before it.
                work.committed.clear();
                work.snapshot = front.snapshot;
            }
            work.committed.append(&mut front.committed);
        }
        work
    }

    /// The last entry that the disk lets be applied here. It is durable, and a change of the members ahead of it is known on the
    /// disk to be committed.
    pub(crate) fn persisted(&self) -> u64 {
        let mut held = self.unwritten.iter().flat_map(|round| &round.committed);
        let before_held = held.next().map_or(u64::MAX, |entry| entry.index - 1);
        self.node.raft.raft_log.persisted.min(before_held)
    }

    /// Whether the disk has everything that raft has handed out.
    pub(crate) fn is_settled(&self) -> bool {
        self.unwritten.is_empty() && !self.node.has_ready()
    }

    /// Whether a snapshot is on its way to the disk.
    pub(crate) fn awaits_snapshot(&self) -> bool {
        self.unwritten.iter().any(|round| round.snapshot.is_some())
    }

    /// A single voter would make itself the leader at once, which raft allows only where its whole log is written. Raft
    /// also looks for changes of the configuration among the entries after the applied one before it campaigns. They
    /// are not there while the snapshot that replaces them is on its way to the disk.
    pub(super) fn must_not_campaign_yet(&self) -> bool {
        if self.unwritten.is_empty() || self.node.raft.state == StateRole::Leader {
            return false;
        }
        let conf = self.node.raft.prs().conf().to_conf_state();
        let alone = conf.voters.len() <= 1 && conf.voters_outgoing.is_empty();
        alone || self.awaits_snapshot()
    }
}

pub(super) fn changes_configuration(entry: &Entry) -> bool {
    entry.get_entry_type() != EntryType::EntryNormal
}

#[cfg(test)]
mod tests {
    use raft::eraftpb::{ConfState, MessageType};
    use trine_transport::time::Instant;

    use super::*;
    use crate::config::ReplicaConfig;
    use crate::log::MemoryLog;
    use crate::raft_group::Refusal;

    fn message(kind: MessageType, term: u64) -> Message {
        let mut message = Message::default();
        message.set_msg_type(kind);
        (message.from, message.to, message.term) = (2, 1, term);
        message
    }

    fn snapshot_of(index: u64) -> Message {
        let mut message = message(MessageType::MsgSnapshot, 2);
        let metadata = message.mut_snapshot().mut_metadata();
        (metadata.index, metadata.term) = (index, 2);
        metadata.conf_state = Some(ConfState {
            voters: vec![1, 2, 3],
            ..ConfState::default()
        });
        message
    }

    fn follower() -> RaftGroup<MemoryLog> {
        let log = MemoryLog::with_base(1, 1, vec![1, 2, 3]);
        let (config, now) = (ReplicaConfig::default(), Instant::ZERO);
        RaftGroup::new(&config, 1, log, 1, 1, now, now)
    }

    /// A follower on a slow disk had installed a snapshot, lost its leader before the disk had it, and campaigned. Raft
    /// looked for the entries after the applied one, which the snapshot had replaced, and panicked (simulator, found
    /// with the first run on disks). A message that tells it to campaign at once does the same.
    #[test]
    fn nobody_campaigns_while_a_snapshot_is_on_its_way_to_the_disk() {
        let config = ReplicaConfig::default();
        let mut group = follower();
        let mut now = Instant::ZERO;
        group.step(now, 2, snapshot_of(100)).unwrap();
        while group.poll_work_durably(|_, _| 1).is_some() {}
        assert!(group.awaits_snapshot());
        for _ in 0..3 * config.election_ticks {
            now += config.tick;
            group.tick_if_due(now);
        }
        assert_eq!(group.role(), StateRole::Follower);
        let order = message(MessageType::MsgTimeoutNow, 2);
        assert_eq!(group.step(now, 2, order), Err(Refusal::NotEntitled));
        let work = group.on_written(1).unwrap();
        assert!(work.snapshot.is_some());
        group.applied_to(100);
        for _ in 0..3 * config.election_ticks {
            now += config.tick;
            group.tick_if_due(now);
        }
        assert_ne!(group.role(), StateRole::Follower);
    }

    /// A leader whose disk hangs hands over to a voter that looks alive. If that one's disk hangs, too, it asks nobody for a
    /// vote before its own is durable, so it never leads, and the next attempt can name another one.
    #[test]
    fn a_candidate_whose_disk_hangs_cannot_win() {
        let (config, mut now) = (ReplicaConfig::default(), Instant::ZERO);
        let mut group = follower();
        group
            .step(now, 2, message(MessageType::MsgHeartbeat, 2))
            .unwrap();
        while group.poll_work_durably(|_, _| 1).is_some() {}
        group.on_written(1);
        group
            .step(now, 2, message(MessageType::MsgTimeoutNow, 2))
            .unwrap();
        assert_eq!(group.role(), StateRole::Candidate);
        let term = group.term();
        let mut write = 1;
        let mut asked = Vec::new();
        for _ in 0..3 * config.election_ticks {
            while let Some(mut work) = group.poll_work_durably(|_, _| {
                write += 1;
                write
            }) {
                asked.append(&mut work.messages);
            }
            now += config.tick;
            group.tick_if_due(now);
        }
        assert!(asked.is_empty(), "nothing leaves: {asked:?}");
        assert!(!group.is_leader());
        // Its disk works again: only now the others hear of the candidate.
        let released = group.on_written(write).unwrap().messages;
        let requests = released
            .iter()
            .filter(|sent| sent.get_msg_type() == MessageType::MsgRequestVote && sent.term >= term);
        assert!(requests.count() >= 2, "{released:?}");
    }

    /// The only voter of a group made itself the leader. It sent its first entries to a learner while its new term was
    /// still on its way to the disk. It died, came back in the term before, and led in the same term again with other
    /// entries, which the learner took for those that it had.
    #[test]
    fn a_single_voter_sends_nothing_in_a_term_that_its_disk_does_not_have() {
        let conf = ConfState {
            voters: vec![1],
            learners: vec![2],
            ..ConfState::default()
        };
        let hard_state = HardState {
            term: 1,
            vote: 0,
            commit: 1,
        };
        let log = MemoryLog::restored((1, 1), conf, hard_state, Vec::new());
        let (config, mut now) = (ReplicaConfig::default(), Instant::ZERO);
        let mut group = RaftGroup::new(&config, 1, log, 1, 1, now, now);
        let mut early = Vec::new();
        while !group.is_leader() {
            now += config.tick;
            group.tick_if_due(now);
        }
        group.propose(b"one".to_vec()).unwrap();
        while let Some(mut work) = group.poll_work_durably(|_, _| 1) {
            early.append(&mut work.messages);
        }
        assert!(early.is_empty(), "{early:?}");
        let released = group.on_written(1).unwrap().messages;
        assert!(released.iter().any(|m| m.to == 2 && m.term == 2));
        // From here on its appends are ahead of its own writes again.
        while group.poll_work_durably(|_, _| 2).is_some() {}
        let mut taken = message(MessageType::MsgAppendResponse, 2);
        taken.index = group.last_index();
        group.step(now, 2, taken).unwrap();
        while group.poll_work_durably(|_, _| 2).is_some() {}
        group.propose(b"two".to_vec()).unwrap();
        let work = group.poll_work_durably(|_, _| 3).unwrap();
        assert!(!work.messages.is_empty());
    }

    /// Simulator, seed 742: node 1 of three had been replaced, the change was over, and so the disk of node 3 could be
    /// spared. Both others lost power, and came back in the middle of the change. Its last entry was on their disks,
    /// but not that it was committed. The voters of before had to find that out again, and two of those three were
    /// permanently gone.
    #[test]
    fn a_change_is_applied_when_the_disk_knows_that_it_is_committed() {
        let mut group = follower();
        let now = Instant::ZERO;
        let mut append = message(MessageType::MsgAppend, 2);
        (append.index, append.log_term) = (1, 1);
        let kinds = [
            EntryType::EntryNormal,
            EntryType::EntryConfChangeV2,
            EntryType::EntryNormal,
        ];
        append.entries = (2..)
            .zip(kinds)
            .map(|(index, kind)| entry(index, kind))
            .collect();
        group.step(now, 2, append).unwrap();
        while group.poll_work_durably(|_, _| 7).is_some() {}
        group.on_written(7);
        let mut heartbeat = message(MessageType::MsgHeartbeat, 2);
        let mut committed_on_disk = Vec::new();
        let mut applied = Vec::new();
        for commit in [2, 3, 4] {
            heartbeat.commit = commit;
            group.step(now, 2, heartbeat.clone()).unwrap();
            while let Some(work) = group.poll_work_durably(|record, _| {
                committed_on_disk.push(record.committed());
                8
            }) {
                applied.extend(work.committed.iter().map(|entry| entry.index));
            }
        }
        assert_eq!((applied, committed_on_disk), (vec![2], vec![3]));
        let work = group.on_written(8).unwrap();
        let indexes: Vec<_> = work.committed.iter().map(|entry| entry.index).collect();
        assert_eq!(indexes, [3, 4], "what is behind it keeps its order");
    }

    /// A voter loses its vote by one change and is removed by another. A replica may need the removed one's vote until it
    /// knows that the first change is committed, also after a restart. So whoever has promised to have the second one has
    /// the commit index of the first one on its disk.
    #[test]
    fn the_disk_that_has_a_removal_knows_that_the_demotion_is_committed() {
        let mut group = follower();
        let now = Instant::ZERO;
        for (index, commit) in [(2, 1), (3, 2)] {
            let mut append = message(MessageType::MsgAppend, 2);
            let log_term = if index == 2 { 1 } else { 2 };
            (append.index, append.log_term, append.commit) = (index - 1, log_term, commit);
            append.entries = vec![entry(index, EntryType::EntryConfChangeV2)];
            group.step(now, 2, append).unwrap();
            let mut on_disk = Vec::new();
            let mut promised = 0;
            while let Some(work) = group.poll_work_durably(|record, _| {
                on_disk.push((record.last_index, record.committed()));
                index
            }) {
                promised += work.messages.len();
            }
            assert_eq!(promised, 0, "the append is answered once it is written");
            assert_eq!(on_disk.first(), Some(&(index, commit)));
            let work = group.on_written(index).unwrap();
            assert_eq!(work.messages.len(), 1);
        }
    }

    fn entry(index: u64, kind: EntryType) -> Entry {
        let mut entry = Entry {
            index,
            term: 2,
            ..Entry::default()
        };
        entry.set_entry_type(kind);
        entry
    }

    #[test]
    fn what_a_round_promises_leaves_behind_its_write_and_in_order() {
        let mut group = follower();
        let now = Instant::ZERO;
        let mut append = message(MessageType::MsgAppend, 2);
        (append.index, append.log_term) = (1, 1);
        append.entries.push(entry(2, EntryType::EntryNormal));
        group.step(now, 2, append).unwrap();
        let mut records = Vec::new();
        let work = group.poll_work_durably(|record, _| {
            records.push(record);
            7
        });
        assert!(work.unwrap().messages.is_empty());
        assert_eq!(records[0].last_index, 2);
        // A heartbeat promises nothing that has to be written, and waits behind the append all the same.
        group
            .step(now, 2, message(MessageType::MsgHeartbeat, 2))
            .unwrap();
        let work = group.poll_work_durably(|_, _| panic!("nothing to write"));
        assert!(work.unwrap().messages.is_empty());
        assert!(group.on_written(6).is_none());
        let kinds: Vec<MessageType> = group
            .on_written(7)
            .unwrap()
            .messages
            .iter()
            .map(Message::get_msg_type)
            .collect();
        let expected = [
            MessageType::MsgAppendResponse,
            MessageType::MsgHeartbeatResponse,
        ];
        assert_eq!(kinds, expected);
    }
}
