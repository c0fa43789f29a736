//! What the other members have promised to this one.
//!
//! A member makes its term and its entries durable before it speaks of them, and within a term it never drops what it has
//! acknowledged to that term's leader. So its files never say less than what is remembered here, unless they are an older
//! copy: then it has to be told. Nothing of this is on any disk. A member that starts remembers nothing, and learns
//! it again from the next messages.

use raft::eraftpb::{Message, MessageType};
use trine_canary as canary;
use trine_protocol::message::{Incarnation, PromisedPosition};

use crate::membership::MemberTable;

/// The highest position of each member that has spoken to this one.
#[derive(Debug, Default)]
pub(super) struct Promised {
    /// No more than members.
    list: Vec<(Incarnation, PromisedPosition)>,
}

/// What the sender of a message promises with it. Every message is sent in the sender's term. Only a question ahead of a
/// vote and its answer name a term that nobody has entered. A rejection is left out: a replica that has halted over lost
/// entries answers with one in the leader's term. An acknowledged entry counts only for the leader of its term, which has it:
/// `led` is the last entry of that leader here. Nobody else can check what a message says, and a number that is made up would
/// end its sender at its next start.
pub(super) fn promise_in(message: &Message, led: Option<u64>) -> Option<PromisedPosition> {
    let index = match MessageType::from_i32(message.msg_type)? {
        MessageType::MsgRequestPreVote | MessageType::MsgRequestPreVoteResponse => return None,
        MessageType::MsgAppendResponse if message.reject => return None,
        MessageType::MsgAppendResponse if led.is_some_and(|last| message.index <= last) => {
            message.index
        }
        _ => 0,
    };
    let term = message.term;
    (term > 0).then_some(PromisedPosition { term, index })
}

impl Promised {
    /// A member has promised this.
    pub(super) fn note(
        &mut self,
        by: Incarnation,
        promise: PromisedPosition,
        members: Option<&MemberTable>,
    ) {
        if canary::planted("members forget what was promised") {
            return;
        }
        assert!(promise.term > 0, "nobody speaks in term 0");
        match self.list.iter_mut().find(|(member, _)| *member == by) {
            Some((_, highest)) => *highest = promise.max(*highest),
            None if members.is_some_and(|members| members.get(by).is_some()) => {
                self.list.push((by, promise));
            }
            None => {}
        }
    }

    /// The most that a member has promised.
    pub(super) fn by(&self, member: Incarnation) -> Option<PromisedPosition> {
        let mut list = self.list.iter();
        let found = list.find(|(by, _)| *by == member);
        found.map(|&(_, highest)| highest)
    }

    /// Forgets those that are no members any more.
    pub(super) fn retain(&mut self, members: &MemberTable) {
        self.list.retain(|(by, _)| members.get(*by).is_some());
        assert!(self.list.len() <= members.all().len());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use trine_protocol::message::{Member, MemberRole, NodeId};

    /// To a leader of the term whose log ends at entry 40.
    fn said(kind: MessageType, (term, index): (u64, u64)) -> Option<PromisedPosition> {
        let mut message = Message {
            term,
            index,
            ..Message::default()
        };
        message.set_msg_type(kind);
        promise_in(&message, Some(40))
    }

    fn position(term: u64, index: u64) -> PromisedPosition {
        PromisedPosition { term, index }
    }

    #[test]
    fn only_an_acknowledged_append_promises_entries() {
        let at = (7, 40);
        let append = said(MessageType::MsgAppendResponse, at);
        assert_eq!(append, Some(position(7, 40)));
        for kind in [
            MessageType::MsgRequestVoteResponse,
            MessageType::MsgRequestVote,
            MessageType::MsgHeartbeatResponse,
            MessageType::MsgAppend,
        ] {
            assert_eq!(said(kind, at), Some(position(7, 0)), "{kind:?}");
        }
        for kind in [
            MessageType::MsgRequestPreVote,
            MessageType::MsgRequestPreVoteResponse,
        ] {
            assert_eq!(said(kind, at), None, "{kind:?}");
        }
        assert_eq!(said(MessageType::MsgReadIndex, (0, 0)), None);
        let mut rejection = Message {
            term: 7,
            index: 40,
            reject: true,
            ..Message::default()
        };
        rejection.set_msg_type(MessageType::MsgAppendResponse);
        assert_eq!(promise_in(&rejection, Some(40)), None);
    }

    /// Whatever an acknowledgement names was remembered, also by those who never sent the entry, and its sender halted at its next
    /// start.
    #[test]
    fn an_acknowledged_entry_counts_only_for_the_leader_that_has_it() {
        let acknowledged = |led| {
            let mut message = Message {
                term: 7,
                index: 40,
                ..Message::default()
            };
            message.set_msg_type(MessageType::MsgAppendResponse);
            promise_in(&message, led)
        };
        assert_eq!(acknowledged(Some(41)), Some(position(7, 40)));
        assert_eq!(acknowledged(Some(39)), Some(position(7, 0)));
        assert_eq!(acknowledged(None), Some(position(7, 0)));
    }

    #[test]
    fn the_highest_is_kept_of_members_only_and_a_later_term_outweighs_any_entry() {
        let member = Member {
            node_id: NodeId(2),
            role: MemberRole::Voter,
            incarnation: Incarnation(22),
            address: ([10, 0, 0, 2], 7471).into(),
        };
        let table = MemberTable::new(&[member]);
        let mut promised = Promised::default();
        for (promise, highest) in [
            (position(3, 9), position(3, 9)),
            (position(3, 8), position(3, 9)),
            (position(4, 0), position(4, 0)),
            (position(3, 500), position(4, 0)),
            (position(4, 2), position(4, 2)),
        ] {
            promised.note(Incarnation(22), promise, Some(&table));
            assert_eq!(promised.by(Incarnation(22)), Some(highest));
        }
        promised.note(Incarnation(33), position(9, 9), Some(&table));
        assert_eq!(promised.by(Incarnation(33)), None);
        promised.retain(&MemberTable::new(&[]));
        assert_eq!(promised.by(Incarnation(22)), None);
    }
}
