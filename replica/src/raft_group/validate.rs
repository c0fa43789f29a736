//! Which messages from other replicas may reach raft: it panics on senseless ones, so they are stopped here.
//!
//! A message that passes cannot make raft panic, whatever it says; it can still lie, and a crash-tolerant protocol does
//! not defend against that.

use raft::eraftpb::{ConfState, Entry, EntryType, Message, MessageType};
use raft::{INVALID_ID, Raft, StateRole, Storage};

use super::READ_CONTEXT_BYTES;

/// Index questions that a leader keeps in mind, its own included.
const FORWARDED_READS_MAX: usize = 1024;

/// The greatest index that the log's positions can name ([`trine_kvstore::Position`]).
pub(crate) const INDEX_MAX: u64 = (1 << 48) - 1;
/// Terms near this are absurd, and sums with it cannot overflow. The allowance ([`super::terms`]) keeps a group far
/// from it.
pub(crate) const TERM_MAX: u64 = 1 << 62;

/// Why a message was not stepped.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, thiserror::Error)]
pub(crate) enum Refusal {
    /// Its sender or receiver is not who the frame says.
    #[error("the raft message names another sender or receiver than its frame")]
    WrongParty,
    /// Its type is unknown, or one that never travels between replicas.
    #[error("a message type that does not travel")]
    MessageType,
    /// Its term is missing or absurd.
    #[error("a term without a meaning")]
    Term,
    /// Its term is so far ahead that it would use up more terms than the group may use in this time.
    #[error("a term too far ahead")]
    TermTooFarAhead,
    /// An index is absurd or beyond the log.
    #[error("an index without a meaning")]
    Index,
    /// A leader says that this replica has acknowledged entries up to `commit`, and its log ends at `last`.
    #[error("the leader has acknowledgements up to entry {commit}, and the log ends at {last}")]
    LogTooShort {
        /// The leader's commit index, as far as this replica has acknowledged it.
        commit: u64,
        /// The last entry of this replica's log.
        last: u64,
    },
    /// A member that leads a later term says so, while this replica follows another one. Its term counts: this replica
    /// must vote for nobody behind it any more. Its index counts once it is the leader that is followed.
    #[error(
        "a later leader has acknowledgements up to entry {commit}, and another one is followed yet"
    )]
    LaterLeader {
        /// The leader's commit index.
        commit: u64,
    },
    /// Its entries are not contiguous, decrease in term, or are of an unknown type.
    #[error("entries that do not belong behind each other")]
    Entries,
    /// A field is set that belongs to another message type.
    #[error("a field that does not belong to the message type")]
    ForeignField,
    /// A snapshot's metadata contradict themselves.
    #[error("a snapshot without usable metadata")]
    Snapshot,
    /// An answer from a replica that is not a member, or a leader's message from one that does not
    /// lead.
    #[error("the sender is not entitled to this message")]
    NotEntitled,
    /// A vote is asked for too early: less than an election timeout after the start, or after a leader was last
    /// followed.
    #[error("no vote before an election timeout has passed in silence")]
    TooEarlyToVote,
}

/// Checks `message` against everything that raft takes for granted. `sender` is who the frame says it is from.
///
/// # Errors
/// Says what is wrong; the message has to be dropped and counted.
pub(crate) fn validate<L: Storage>(
    raft: &Raft<L>,
    sender: u64,
    message: &Message,
) -> Result<(), Refusal> {
    if message.from != sender || sender == raft.id || sender == 0 || message.to != raft.id {
        return Err(Refusal::WrongParty);
    }
    let known = MessageType::from_i32(message.msg_type).ok_or(Refusal::MessageType)?;
    // A forwarded question belongs to no term: raft takes it for a local one.
    let termless = known == MessageType::MsgReadIndex;
    if (message.term == 0) != termless || message.term > TERM_MAX {
        return Err(Refusal::Term);
    }
    check_foreign_fields(known, message)?;
    match known {
        MessageType::MsgAppend => check_append(message),
        MessageType::MsgHeartbeat => check_heartbeat(raft, message),
        MessageType::MsgSnapshot => check_snapshot(raft.id, message),
        MessageType::MsgAppendResponse => check_append_response(raft, message),
        MessageType::MsgHeartbeatResponse => check_commit(message).and(check_member(raft, sender)),
        MessageType::MsgRequestVote | MessageType::MsgRequestPreVote => check_vote(message),
        MessageType::MsgRequestVoteResponse | MessageType::MsgRequestPreVoteResponse => {
            check_vote(message).and(check_member(raft, sender))
        }
        MessageType::MsgTimeoutNow => check_timeout_now(raft, message),
        MessageType::MsgReadIndex => check_read_index(raft, message),
        MessageType::MsgReadIndexResp => check_read_index_answer(raft, message),
        // Local messages, and proposals that followers forward: clients that write are redirected instead.
        _ => Err(Refusal::MessageType),
    }
}

fn check_foreign_fields(kind: MessageType, message: &Message) -> Result<(), Refusal> {
    let entries_allowed = matches!(
        kind,
        MessageType::MsgAppend | MessageType::MsgReadIndex | MessageType::MsgReadIndexResp
    );
    let snapshot_allowed = kind == MessageType::MsgSnapshot;
    let foreign = (!entries_allowed && !message.entries.is_empty())
        || (!snapshot_allowed && message.snapshot.is_some())
        || message.request_snapshot != 0;
    if foreign {
        Err(Refusal::ForeignField)
    } else {
        Ok(())
    }
}

fn check_append(message: &Message) -> Result<(), Refusal> {
    if message.index > INDEX_MAX || message.commit > INDEX_MAX {
        return Err(Refusal::Index);
    }
    if message.log_term > message.term || (message.index == 0) != (message.log_term == 0) {
        return Err(Refusal::Term);
    }
    if message.entries.len() as u64 > INDEX_MAX - message.index {
        return Err(Refusal::Index);
    }
    let mut previous = (message.index, message.log_term);
    for entry in &message.entries {
        check_entry(entry, previous, message.term)?;
        previous = (entry.index, entry.term);
    }
    Ok(())
}

fn check_entry(entry: &Entry, previous: (u64, u64), leader_term: u64) -> Result<(), Refusal> {
    let known = matches!(
        EntryType::from_i32(entry.entry_type),
        Some(EntryType::EntryNormal | EntryType::EntryConfChangeV2)
    );
    let follows = entry.index == previous.0 + 1 && entry.term >= previous.1 && entry.term != 0;
    if known && follows && entry.term <= leader_term {
        Ok(())
    } else {
        Err(Refusal::Entries)
    }
}

/// Raft keeps each question in mind until a quorum has answered; a leader without one steps down soon.
fn check_read_index<L: Storage>(raft: &Raft<L>, message: &Message) -> Result<(), Refusal> {
    check_member(raft, message.from)?;
    check_context(message)?;
    let may_ask =
        raft.state == StateRole::Leader && raft.pending_read_count() < FORWARDED_READS_MAX;
    if may_ask && message.index == 0 && message.commit == 0 {
        Ok(())
    } else {
        Err(Refusal::NotEntitled)
    }
}

fn check_read_index_answer<L: Storage>(raft: &Raft<L>, message: &Message) -> Result<(), Refusal> {
    check_context(message)?;
    if message.index > INDEX_MAX {
        return Err(Refusal::Index);
    }
    let from_leader = message.term == raft.term && raft.leader_id == message.from;
    if from_leader && raft.state == StateRole::Follower {
        Ok(())
    } else {
        Err(Refusal::NotEntitled)
    }
}

/// One entry, which is none: its data names the question.
fn check_context(message: &Message) -> Result<(), Refusal> {
    match &message.entries[..] {
        [entry] if entry.data.len() == READ_CONTEXT_BYTES && entry.context.is_empty() => Ok(()),
        _ => Err(Refusal::Entries),
    }
}

/// A leader never tells a follower a commit index beyond what that follower has acknowledged. So a greater one means
/// that this replica has lost entries, unless it is absurd.
fn check_heartbeat<L: Storage>(raft: &Raft<L>, message: &Message) -> Result<(), Refusal> {
    check_commit(message)?;
    let (commit, last) = (message.commit, raft.raft_log.last_index());
    if commit <= last {
        return Ok(());
    }
    // It proves a loss only if it comes from a member, and from a term that can still be led. While this replica follows a
    // leader, or leads, no other member's word counts: one that is mistaken must not end the others. A new leader counts on
    // nothing before this replica has answered it.
    let follows_another = raft.leader_id != INVALID_ID && raft.leader_id != message.from;
    let can_lead = check_member(raft, message.from).is_ok() && message.term >= raft.term;
    match (can_lead, follows_another) {
        (true, false) => Err(Refusal::LogTooShort { commit, last }),
        (true, true) if message.term > raft.term => Err(Refusal::LaterLeader { commit }),
        _ => Err(Refusal::Index),
    }
}

fn check_append_response<L: Storage>(raft: &Raft<L>, message: &Message) -> Result<(), Refusal> {
    check_member(raft, message.from)?;
    check_commit(message)?;
    if message.index > INDEX_MAX || message.reject_hint > INDEX_MAX || message.log_term > TERM_MAX {
        return Err(Refusal::Index);
    }
    // Only a leader of this very term acts on the indexes; its log is then at least as long as the entries that it has
    // sent.
    let concerns_us = message.term == raft.term && raft.state == StateRole::Leader;
    let last = raft.raft_log.last_index();
    if concerns_us && (message.index > last || message.reject_hint > last) {
        return Err(Refusal::Index);
    }
    Ok(())
}

fn check_commit(message: &Message) -> Result<(), Refusal> {
    if message.commit > INDEX_MAX {
        Err(Refusal::Index)
    } else {
        Ok(())
    }
}

/// Candidates need not be members: a replica that lags behind may not know of a member that was added since.
fn check_vote(message: &Message) -> Result<(), Refusal> {
    if message.index > INDEX_MAX || message.log_term > TERM_MAX {
        return Err(Refusal::Index);
    }
    check_commit(message)
}

fn check_member<L: Storage>(raft: &Raft<L>, sender: u64) -> Result<(), Refusal> {
    if raft.prs().get(sender).is_some() {
        Ok(())
    } else {
        Err(Refusal::NotEntitled)
    }
}

fn check_timeout_now<L: Storage>(raft: &Raft<L>, message: &Message) -> Result<(), Refusal> {
    let from_leader = message.term == raft.term && raft.leader_id == message.from;
    if from_leader && raft.state == StateRole::Follower {
        Ok(())
    } else {
        Err(Refusal::NotEntitled)
    }
}

fn check_snapshot(id: u64, message: &Message) -> Result<(), Refusal> {
    let metadata = message
        .snapshot
        .as_ref()
        .and_then(|s| s.metadata.as_ref())
        .ok_or(Refusal::Snapshot)?;
    let conf = metadata.conf_state.as_ref().ok_or(Refusal::Snapshot)?;
    let sane = metadata.index != 0
        && metadata.index <= INDEX_MAX
        && metadata.term != 0
        && metadata.term <= message.term
        && is_sane(conf)
        && (conf.voters.contains(&id)
            || conf.learners.contains(&id)
            || conf.voters_outgoing.contains(&id));
    if sane { Ok(()) } else { Err(Refusal::Snapshot) }
}

/// Whether raft can build its configuration from this: it asserts where this is false.
#[must_use]
pub(crate) fn is_sane(conf: &ConfState) -> bool {
    let lists = [
        &conf.voters,
        &conf.learners,
        &conf.voters_outgoing,
        &conf.learners_next,
    ];
    let unique = |list: &Vec<u64>| {
        let mut sorted = list.clone();
        sorted.sort_unstable();
        sorted.first() != Some(&0) && sorted.windows(2).all(|pair| pair[0] != pair[1])
    };
    let joint = !conf.voters_outgoing.is_empty();
    lists
        .iter()
        .all(|list| list.len() <= trine_protocol::message::MEMBERS_MAX && unique(list))
        && !conf.voters.is_empty()
        && conf
            .learners
            .iter()
            .all(|id| !conf.voters.contains(id) && !conf.voters_outgoing.contains(id))
        && conf
            .learners_next
            .iter()
            .all(|id| conf.voters_outgoing.contains(id) && !conf.voters.contains(id))
        && (joint || (conf.learners_next.is_empty() && !conf.auto_leave))
}

#[cfg(test)]
pub(crate) mod tests {
    use raft::storage::MemStorage;
    use raft::{Config, Raft};

    use super::*;

    /// Replica 1 of three, with an empty log.
    fn replica() -> Raft<MemStorage> {
        let config = Config {
            election_tick: 10,
            heartbeat_tick: 1,
            ..Config::new(1)
        };
        let storage = MemStorage::new_with_conf_state((vec![1, 2, 3], vec![]));
        let logger = slog::Logger::root(slog::Discard, slog::o!());
        Raft::new(&config, storage, &logger).expect("a replica")
    }

    pub(crate) fn heartbeat(from: u64, term: u64, commit: u64) -> Message {
        let mut message = Message {
            from,
            to: 1,
            term,
            commit,
            ..Message::default()
        };
        message.set_msg_type(MessageType::MsgHeartbeat);
        message
    }

    /// Such a heartbeat halted a replica with its log on disk. Any member could end all others, one message each.
    #[test]
    fn only_the_leader_that_is_followed_can_tell_that_entries_were_lost() {
        let mut raft = replica();
        let lost = |raft: &Raft<MemStorage>, from, term| {
            let told = validate(raft, from, &heartbeat(from, term, 100));
            let proof = Refusal::LogTooShort {
                commit: 100,
                last: 0,
            };
            let later = Refusal::LaterLeader { commit: 100 };
            match told {
                Err(Refusal::Index) => assert!(term <= raft.term),
                Err(refusal) if refusal == later => assert!(term > raft.term),
                told => assert_eq!(told, Err(proof)),
            }
            told == Err(proof)
        };
        // It has just been started, perhaps on an old copy of its directory.
        assert!(lost(&raft, 2, 5));
        raft.step(heartbeat(2, 5, 0)).expect("stepped");
        assert_eq!(raft.leader_id, 2);
        for (from, term, is_proof) in [
            (2, 5, true),
            (2, 4, false),
            (3, 5, false),
            (3, 6, false),
            (9, 5, false),
        ] {
            assert_eq!(lost(&raft, from, term), is_proof, "{from} in term {term}");
        }
        // Another leader is followed before it counts on anything.
        raft.step(heartbeat(3, 6, 0)).expect("stepped");
        assert!(lost(&raft, 3, 6) && !lost(&raft, 2, 6));
        // A leader hears it from nobody.
        raft.become_candidate();
        raft.become_leader();
        assert!(!lost(&raft, 2, raft.term) && !lost(&raft, 3, raft.term + 1));
    }
}
