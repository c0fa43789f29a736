//! Where raft's messages go.

use raft::eraftpb::{Message, MessageType};
use trine_protocol::message::{Incarnation, PEER_HEADER_SIZE, kind};
use trine_transport::time::Duration;

use super::Consensus;
use crate::config::APPEND_BYTES_UNDER_WAY_MAX;
use crate::group::local::Local;
use crate::outbox::{Outbox, PeerRequest, Purpose};
use crate::output::Class;
use crate::raft_group::is_answer;
use crate::state_machine::StateMachine;

/// Room for the answer to a raft message; answers carry neither entries nor snapshots.
const ANSWER_BYTES_MAX: usize = PEER_HEADER_SIZE + 256;

impl Consensus {
    /// Sends a message of raft: with the response to the request that it answers, or on its own.
    pub(in crate::group) fn dispatch(
        &mut self,
        message: &Message,
        local: &Local,
        state: Option<&StateMachine>,
        out: &mut Outbox,
    ) {
        let to = Incarnation(message.to);
        let request = if is_answer(message) {
            self.answers.pop_front().flatten()
        } else {
            None
        };
        match request {
            Some(token) => out.reply_raft(token, local.header_to(to), message),
            None => self.send_to_member(message, local, state, out),
        }
    }

    fn send_to_member(
        &mut self,
        message: &Message,
        local: &Local,
        state: Option<&StateMachine>,
        out: &mut Outbox,
    ) {
        let to = Incarnation(message.to);
        let Some(member) = state.and_then(|state| state.members().get(to)) else {
            // Removed meanwhile, or not known here yet.
            out.counters.messages_unsent += 1;
            return;
        };
        let append = message.get_msg_type() == MessageType::MsgAppend;
        if append && out.append_bytes_under_way(to) >= APPEND_BYTES_UNDER_WAY_MAX {
            // It stays in the log until the member has answered some of its messages.
            out.counters.appends_withheld += 1;
            return self.report_unreachable(to);
        }
        let timeout = if append {
            Duration::from_secs(1)
        } else {
            local.election_timeout()
        };
        let peer_request = PeerRequest {
            to: member.address,
            expect: Some(to),
            kind: if append { kind::APPEND } else { kind::RAFT },
            class: Class::Raft,
            purpose: Purpose::Raft { to, append: 0 },
            timeout,
            answer_bytes_max: ANSWER_BYTES_MAX,
        };
        if !out.send_raft(peer_request, local.header_to(to), message) && append {
            self.report_unreachable(to);
        }
    }
}
