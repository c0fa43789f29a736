//! Which session's command would be kept for longer than it has to be, and who is charged for that.
//!
//! A leader asks this before it proposes a command. What it learns decides nothing about the state: no replica that
//! applies the log asks.

use super::charges::Charges;
use super::{ClientSessions, Session};

/// Who is charged for the kept answers of a session.
///
/// User 0 is no user but all callers without one: replicas, their fronts for Redis clients, holders of the key file, and
/// everybody in a group without keys. Charged together, one program could stop a whole group whose clients have no names.
/// So each session without a user is charged by itself.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum AnswerOwner {
    /// All sessions of the user with this number, which is not 0.
    User(u32),
    /// The session of this client, which belongs to no user.
    Session(u64),
}

/// A command whose answer its client cannot acknowledge before that of an earlier command.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct EarlyCommand {
    /// Who is charged for its answer.
    pub(crate) owner: AnswerOwner,
    /// What the owner is charged with now.
    pub(crate) held: u64,
    /// The part of it that the command acknowledges.
    pub(crate) acknowledged: u64,
}

impl ClientSessions {
    /// A command that could wait for an earlier one of its session.
    ///
    /// Nothing if its client awaits it before all others: the client acknowledges nothing until it has that answer. Nothing
    /// either if no new answer would be kept, because the command was answered, or its session is closed or unknown.
    #[must_use]
    pub(crate) fn early_command(
        &self,
        client: u64,
        sequence: u64,
        lowest_awaited: u64,
    ) -> Option<EarlyCommand> {
        let session = self.session(*self.by_client.get(&client)?);
        // A client awaits at least the command that it sends.
        let lowest = lowest_awaited.min(sequence);
        let lowest = lowest.max(session.replies.lowest_awaited());
        let is_answered = session.closed || session.replies.get(sequence).is_some();
        if sequence <= lowest || is_answered {
            return None;
        }
        let (owner, held) = self.account_of(session);
        let acknowledged = session.replies.charge_below(lowest);
        assert!(acknowledged <= held, "an owner is charged for its sessions");
        Some(EarlyCommand {
            owner,
            held,
            acknowledged,
        })
    }

    /// Who is charged for the answers of this client's session.
    #[must_use]
    pub(crate) fn answer_owner(&self, client: u64) -> Option<AnswerOwner> {
        let session = self.session(*self.by_client.get(&client)?);
        Some(self.account_of(session).0)
    }

    fn account_of(&self, session: &Session) -> (AnswerOwner, u64) {
        match session.user {
            0 => (AnswerOwner::Session(session.client), session.charge()),
            user => (AnswerOwner::User(user), self.charges.of_user(user)),
        }
    }

    /// The charges, counted from the sessions.
    pub(super) fn recount(&self) -> Charges {
        let mut charges = Charges::default();
        for session in self.slots.iter().flatten() {
            charges.add(session.user, session.charge());
        }
        charges
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client_sessions::{Registration, SessionVerdict};
    use crate::config::{SessionLimits, VERSION_CLOSED_SESSIONS_STAY};
    use proptest::prelude::*;
    use trine_kvstore::Position;
    use trine_protocol::message::NO_CHECK;

    fn at(index: u64) -> Position {
        Position::new(index, 0)
    }

    fn sessions(count_max: u32, reply_bytes_max: u64) -> ClientSessions {
        ClientSessions::new(SessionLimits {
            count_max,
            reply_bytes_max,
            ttl_ns: 1_000,
        })
    }

    fn open(sessions: &mut ClientSessions, index: u64, user: u32) -> u64 {
        let opened = sessions.register_for(at(index), index, user, 0);
        assert_eq!(opened, Registration::Session(at(index)));
        at(index).as_u64()
    }

    fn apply(sessions: &mut ClientSessions, client: u64, sequence: u64, lowest: u64, bytes: usize) {
        let name = (client, sequence, NO_CHECK);
        assert_eq!(sessions.judge(name, lowest, 0), SessionVerdict::Apply);
        sessions.record(name, at(100 + sequence), &vec![0; bytes]);
    }

    #[test]
    fn a_user_is_charged_for_all_of_its_sessions_and_a_nameless_one_for_one() {
        let mut sessions = sessions(8, 1 << 20);
        let clients =
            [(1, 7), (2, 7), (3, 0), (4, 0)].map(|(at, user)| open(&mut sessions, at, user));
        for client in clients {
            apply(&mut sessions, client, 2, 1, 1_000);
        }
        let held = |client: u64| {
            let early = sessions.early_command(client, 3, 1).expect("1 is awaited");
            (early.owner, early.held)
        };
        let one = 1_000 + 32 + 128;
        assert_eq!(held(clients[0]), (AnswerOwner::User(7), 2 * one));
        assert_eq!(held(clients[1]), (AnswerOwner::User(7), 2 * one));
        assert_eq!(held(clients[2]), (AnswerOwner::Session(clients[2]), one));
    }

    #[test]
    fn what_a_client_awaits_first_is_never_early() {
        let mut sessions = sessions(8, 1 << 20);
        let client = open(&mut sessions, 1, 7);
        for sequence in [2, 3, 5] {
            apply(&mut sessions, client, sequence, 1, 1_000);
        }
        let early = |sequence, lowest| sessions.early_command(client, sequence, lowest);
        assert_eq!(early(1, 1), None, "the lowest");
        assert_eq!(early(3, 1), None, "answered");
        assert_eq!(
            early(4, 4),
            None,
            "the lowest now: it acknowledges all below"
        );
        assert_eq!(early(6, 9), None, "a client awaits what it sends");
        let acknowledged =
            |sequence, lowest| early(sequence, lowest).map(|early| early.acknowledged);
        assert_eq!(acknowledged(4, 1), Some(0));
        assert_eq!(acknowledged(4, 3), Some(1_032));
        assert_eq!(acknowledged(6, 4), Some(2 * 1_032));
        assert_eq!(sessions.early_command(client + 1, 4, 1), None, "unknown");
        sessions.close(client);
        assert_eq!(sessions.early_command(client, 4, 1), None, "closed");
    }

    #[derive(Clone, Debug)]
    enum Step {
        Register {
            nonce: u64,
            user: u32,
        },
        Command {
            session: u64,
            sequence: u64,
            lowest: u64,
            bytes: usize,
        },
        Close(u64),
        Pass(u64),
        ThroughASnapshot(usize),
    }

    fn step() -> impl Strategy<Value = Step> {
        let command = (1..40_u64, 1..80_u64, 1..70_u64, 0..700_usize);
        prop_oneof![
            2 => (1..40_u64, 0..4_u32).prop_map(|(nonce, user)| Step::Register { nonce, user }),
            6 => command.prop_map(|(session, sequence, lowest, bytes)| Step::Command {
                session,
                sequence,
                lowest,
                bytes
            }),
            1 => (1..40_u64).prop_map(Step::Close),
            1 => (0..1_200_u64).prop_map(Step::Pass),
            1 => (1..2_000_usize).prop_map(Step::ThroughASnapshot),
        ]
    }

    proptest! {
        /// The charges are added up from one change to the next. Whatever happens, they are what a count of the sessions
        /// gives, also where sessions are evicted, and at a replica that has them from a snapshot.
        #[test]
        fn the_charges_are_what_a_recount_gives(steps in prop::collection::vec(step(), 0..120)) {
            let mut sessions = sessions(6, 6_000);
            sessions.set_version(VERSION_CLOSED_SESSIONS_STAY);
            let mut now = 0;
            for (index, step) in (1..).zip(steps) {
                match step {
                    Step::Register { nonce, user } => {
                        sessions.register_for(at(index), nonce, user, now);
                    }
                    Step::Command { session, sequence, lowest, bytes } => {
                        let name = (at(session).as_u64(), sequence, NO_CHECK);
                        if sessions.judge(name, lowest, now) == SessionVerdict::Apply {
                            sessions.record(name, at(index), &vec![0; bytes]);
                        }
                    }
                    Step::Close(session) => sessions.close(at(session).as_u64()),
                    Step::Pass(ns) => now += ns,
                    Step::ThroughASnapshot(piece_bytes) => {
                        let pieces = sessions.to_pieces(piece_bytes);
                        sessions = ClientSessions::new(sessions.limits());
                        sessions.set_version(VERSION_CLOSED_SESSIONS_STAY);
                        for piece in pieces {
                            sessions.add_piece(&piece).expect("its own piece");
                        }
                    }
                }
                prop_assert_eq!(sessions.recount(), sessions.charges.clone());
            }
        }
    }
}
