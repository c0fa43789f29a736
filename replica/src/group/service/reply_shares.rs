//! One caller does not get all the memory for kept answers.
//!
//! A client that acknowledges nothing, and goes on with later commands, makes the group keep every answer. When these
//! answers fill their memory, the log refuses everybody's writes. So the leader refuses such commands before it proposes
//! them, while one user's answers take more than their share. The log knows nothing of shares.
//!
//! A burst of commands is proposed before the first of them is applied. So the leader also counts the answers under way:
//! the present lengths of the values that proposed commands will return. That is an estimate: a value can grow before its
//! turn comes. Other answers are a few bytes long and are not counted before they are kept.

use std::collections::{BTreeMap, VecDeque};

use trine_canary as canary;
use trine_kvstore::config::LIST_RESPONSE_BYTES_MAX;
use trine_kvstore::{Command, Store};
use trine_protocol::message::{ClientRequest, Operation};

use crate::client_sessions::{AnswerOwner, ClientSessions};
use crate::config::{REPLIES_BUSY_PART, REPLY_SHARE_PART};

/// Of a command that was proposed and is not applied yet.
struct UnderWay {
    /// The entry that has it; nothing while it waits for the next one.
    index: Option<u64>,
    owner: AnswerOwner,
    bytes: u64,
}

/// The long answers under way, by who will be charged for them.
#[derive(Default)]
pub(super) struct ReplyShares {
    /// In the order of the log. There are at most as many as requests may wait.
    under_way: VecDeque<UnderWay>,
    by_owner: BTreeMap<AnswerOwner, u64>,
    total: u64,
}

impl ReplyShares {
    /// Whether there is room for the answer of a command that is not in the log yet.
    ///
    /// There is none if the kept answers, with those under way, take more than half of their memory, and those of this
    /// command's owner more than a quarter. What the command acknowledges counts as gone. The lowest command that a client
    /// awaits always has room, since the client acknowledges nothing without its answer. So every session goes on. A command
    /// that closes its session has room, too: closed sessions give way to others.
    pub(super) fn has_room(&self, sessions: &ClientSessions, request: &ClientRequest<'_>) -> bool {
        let memory = sessions.limits().reply_bytes_max;
        let total = sessions.bytes() + self.total;
        if total <= memory / REPLIES_BUSY_PART || request.operation == Operation::ApplyAndClose {
            return true;
        }
        if canary::planted("one user has all kept answers") {
            return true;
        }
        let (sequence, lowest) = (request.sequence, request.lowest_awaited);
        let Some(early) = sessions.early_command(request.client, sequence, lowest) else {
            return true;
        };
        let held = early.held + self.by_owner.get(&early.owner).copied().unwrap_or(0);
        total - early.acknowledged <= memory / REPLIES_BUSY_PART
            || held - early.acknowledged <= memory / REPLY_SHARE_PART
    }

    /// A command waits for the next entry.
    pub(super) fn note(
        &mut self,
        sessions: &ClientSessions,
        store: &Store,
        client: u64,
        command: &Command<'_>,
    ) {
        let bytes = value_bytes(store, command);
        if bytes == 0 {
            return;
        }
        let Some(owner) = sessions.answer_owner(client) else {
            return;
        };
        self.total += bytes;
        *self.by_owner.entry(owner).or_default() += bytes;
        self.under_way.push_back(UnderWay {
            index: None,
            owner,
            bytes,
        });
    }

    /// The commands that waited are in the entry at `index`.
    pub(super) fn on_proposed(&mut self, index: u64) {
        let waiting = self.under_way.iter_mut().rev();
        let waiting = waiting.take_while(|answer| answer.index.is_none());
        waiting.for_each(|answer| answer.index = Some(index));
    }

    /// The commands that waited will not be proposed.
    pub(super) fn on_refused(&mut self) {
        while let Some(answer) = self.under_way.pop_back_if(|answer| answer.index.is_none()) {
            self.give_back(&answer);
        }
    }

    /// The entry at `index` is applied: what its commands were answered with is kept, or was never made.
    pub(super) fn on_applied(&mut self, index: u64) {
        let is_applied = |answer: &mut UnderWay| answer.index.is_some_and(|at| at <= index);
        while let Some(answer) = self.under_way.pop_front_if(is_applied) {
            self.give_back(&answer);
        }
    }

    /// This replica no longer leads.
    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }

    fn give_back(&mut self, answer: &UnderWay) {
        let held = self.by_owner.get_mut(&answer.owner);
        let held = held.expect("what is under way has an owner");
        assert!(*held >= answer.bytes, "an owner's answers were counted");
        *held -= answer.bytes;
        if *held == 0 {
            self.by_owner.remove(&answer.owner);
        }
        assert!(self.total >= answer.bytes, "all answers were counted");
        self.total -= answer.bytes;
        assert!(
            !self.under_way.is_empty() || self.total == 0,
            "what is counted is under way"
        );
    }
}

/// The bytes of the values that a command would return now. A list that would be too long is answered with an error.
fn value_bytes(store: &Store, command: &Command<'_>) -> u64 {
    let list_max = LIST_RESPONSE_BYTES_MAX as u64;
    let value_of = |key: &[u8]| store.get(key).map_or(0, |found| found.value.len() as u64);
    match command {
        Command::Get { key } | Command::GetDelete { key } => value_of(key),
        Command::Set { key, options, .. } if options.return_previous => value_of(key),
        Command::MultiGet { keys } => keys.iter().map(value_of).sum::<u64>().min(list_max),
        Command::Execute { operations, .. } => {
            let values = operations
                .iter()
                .map(|operation| value_bytes(store, &operation));
            values.sum::<u64>().min(list_max)
        }
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::SessionLimits;
    use trine_kvstore::{Limits, List, Position};
    use trine_protocol::message::NO_CHECK;

    const MEMORY: u64 = 64_000;

    fn at(index: u64) -> Position {
        Position::new(index, 0)
    }

    /// Sessions 1 and 2 belong to user 7, session 3 to user 8, and sessions 4 and 5 to nobody.
    fn sessions() -> ClientSessions {
        let mut sessions = ClientSessions::new(SessionLimits {
            reply_bytes_max: MEMORY,
            ..SessionLimits::default()
        });
        for (index, user) in [(1, 7), (2, 7), (3, 8), (4, 0), (5, 0)] {
            sessions.register_for(at(index), index, user, 0);
        }
        sessions
    }

    /// The session keeps an answer of so many bytes.
    fn keep(sessions: &mut ClientSessions, session: u64, sequence: u64, bytes: usize) {
        let name = (at(session).as_u64(), sequence, NO_CHECK);
        sessions.judge(name, 1, 0);
        sessions.record(name, at(100), &vec![0; bytes]);
    }

    fn request(session: u64, sequence: u64, lowest_awaited: u64) -> ClientRequest<'static> {
        ClientRequest {
            client: at(session).as_u64(),
            sequence,
            lowest_awaited,
            ..ClientRequest::bare(Operation::Apply)
        }
    }

    fn has_room(shares: &ReplyShares, sessions: &ClientSessions, asked: (u64, u64, u64)) -> bool {
        let (session, sequence, lowest) = asked;
        shares.has_room(sessions, &request(session, sequence, lowest))
    }

    #[test]
    fn a_user_beyond_its_share_waits_and_others_do_not() {
        let (mut sessions, shares) = (sessions(), ReplyShares::default());
        keep(&mut sessions, 1, 2, 20_000);
        // More than a quarter, but there is room for all.
        assert!(has_room(&shares, &sessions, (1, 3, 1)));
        keep(&mut sessions, 1, 3, 14_000);
        assert!(!has_room(&shares, &sessions, (1, 4, 1)));
        assert!(!has_room(&shares, &sessions, (2, 2, 1)), "the same user's");
        assert!(has_room(&shares, &sessions, (3, 2, 1)), "another user's");
        assert!(has_room(&shares, &sessions, (4, 2, 1)), "nobody's");
        // It goes on where it has to, and where it acknowledges.
        assert!(has_room(&shares, &sessions, (1, 1, 1)));
        assert!(has_room(&shares, &sessions, (2, 1, 1)));
        assert!(has_room(&shares, &sessions, (1, 3, 1)), "a duplicate");
        assert!(!has_room(&shares, &sessions, (1, 5, 2)), "nothing yet");
        assert!(has_room(&shares, &sessions, (1, 5, 3)));
        let last = ClientRequest {
            operation: Operation::ApplyAndClose,
            ..request(1, 4, 1)
        };
        assert!(shares.has_room(&sessions, &last), "it ends its session");
    }

    #[test]
    fn each_nameless_session_has_a_share() {
        let (mut sessions, shares) = (sessions(), ReplyShares::default());
        keep(&mut sessions, 4, 2, 34_000);
        assert!(!has_room(&shares, &sessions, (4, 3, 1)));
        assert!(has_room(&shares, &sessions, (5, 3, 1)));
        let bug = canary::plant("one user has all kept answers");
        assert!(has_room(&shares, &sessions, (4, 3, 1)));
        drop(bug);
    }

    /// All commands of a burst are there before the first of them is applied.
    #[test]
    fn answers_under_way_count_until_they_are_kept() {
        let sessions = sessions();
        let mut store = Store::new(Limits::default(), [1, 2]);
        let value = vec![7; 10_000];
        let put = Command::Put {
            key: b"k",
            value: &value,
        };
        store.apply(at(1), &put);
        let mut shares = ReplyShares::default();
        let note = |shares: &mut ReplyShares, session, command: &Command<'_>| {
            shares.note(&sessions, &store, at(session).as_u64(), command);
        };
        note(&mut shares, 1, &put);
        assert!(shares.under_way.is_empty(), "it is answered in a few bytes");
        note(&mut shares, 1, &Command::GetDelete { key: b"k" });
        note(&mut shares, 3, &Command::Get { key: b"k" });
        shares.on_proposed(10);
        let keys: [&[u8]; 3] = [b"k", b"gone", b"k"];
        let keys = List::from(&keys[..]);
        note(&mut shares, 2, &Command::MultiGet { keys });
        assert_eq!(shares.total, 40_000);
        assert!(!has_room(&shares, &sessions, (1, 3, 1)));
        assert!(has_room(&shares, &sessions, (1, 1, 1)));
        assert!(has_room(&shares, &sessions, (3, 3, 1)));
        // The entry that waits is refused, the other one is applied.
        shares.on_refused();
        assert_eq!((shares.total, shares.under_way.len()), (20_000, 2));
        shares.on_applied(9);
        assert_eq!(shares.total, 20_000);
        shares.on_applied(10);
        assert_eq!((shares.total, shares.by_owner.len()), (0, 0));
    }
}
