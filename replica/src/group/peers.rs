//! Raft messages from and to other members.

use std::net::SocketAddr;

use prost::Message as _;
use raft::eraftpb::{Message, MessageType};
use trine_protocol::message::{Incarnation, PeerHeader, ReplyToken};
use trine_transport::time::Instant;

use super::Group;
use crate::outbox::Outbox;

impl Group {
    /// A raft message that came as a request: the answer that raft makes rides in the response.
    pub(crate) fn on_raft_request(
        &mut self,
        now: Instant,
        token: ReplyToken,
        header: &PeerHeader,
        message: &[u8],
        out: &mut Outbox,
    ) {
        let message = self.take_message(now, header, message, out);
        let answers =
            message.is_some_and(|message| self.step(now, header.from, message, Some(token), out));
        if !answers {
            out.reply_empty(token);
        }
    }

    /// The end of a request to a member.
    pub(crate) fn on_raft_answer(
        &mut self,
        now: Instant,
        to: Incarnation,
        append: bool,
        answer: Option<(&PeerHeader, &[u8])>,
        out: &mut Outbox,
    ) {
        match answer {
            Some((header, message)) if header.from == to => {
                if let Some(message) = self.take_message(now, header, message, out) {
                    self.step(now, to, message, None, out);
                }
            }
            Some(_) => out.counters.messages_foreign += 1,
            // A lost append leaves a gap, which raft would otherwise only find by the next rejection.
            None if append => self.consensus.report_unreachable(to),
            None => {}
        }
    }

    /// The session to the members at this address has ended.
    pub(crate) fn on_unreachable(&mut self, address: SocketAddr) {
        let Some(state) = &self.state else { return };
        for member in state
            .members()
            .all()
            .iter()
            .filter(|member| member.address == address)
        {
            self.consensus.report_unreachable(member.incarnation);
        }
    }

    /// An answer without content: the member lives, and had nothing to say.
    pub(crate) fn on_empty_answer(&mut self, now: Instant, to: Incarnation) {
        self.hear(now, to, 0);
    }

    pub(super) fn hear(&mut self, now: Instant, from: Incarnation, version: u8) {
        let known = self
            .state
            .as_ref()
            .is_some_and(|state| state.members().get(from).is_some());
        if known {
            let heard = self.heard.entry(from).or_default();
            heard.at = now;
            // An answer without content says nothing about it.
            if version != 0 {
                heard.state_version = version;
            }
        }
    }

    /// Whether a frame is meant for this life of this replica, in this cluster.
    pub(super) fn concerns(&self, header: &PeerHeader, out: &mut Outbox) -> bool {
        let concerns = self.local.is_addressed_by(header) && self.halted.is_none();
        out.counters.messages_foreign += u64::from(!concerns);
        concerns
    }

    fn take_message(
        &mut self,
        now: Instant,
        header: &PeerHeader,
        bytes: &[u8],
        out: &mut Outbox,
    ) -> Option<Message> {
        if !self.concerns(header, out) {
            return None;
        }
        self.hear(now, header.from, header.state_version);
        match Message::decode(bytes) {
            // A snapshot message is stepped only behind the state that belongs to it.
            Ok(message) if message.msg_type != MessageType::MsgSnapshot as i32 => Some(message),
            _ => {
                out.counters.messages_refused += 1;
                None
            }
        }
    }

    /// Steps a message; returns whether its answer will come through the request's token.
    pub(super) fn step(
        &mut self,
        now: Instant,
        from: Incarnation,
        message: Message,
        token: Option<ReplyToken>,
        out: &mut Outbox,
    ) -> bool {
        if self.consensus.must_run_before(&message) {
            self.pump(now, out);
        }
        let stepped = self.consensus.step(now, from, message, token);
        stepped.unwrap_or_else(|_| {
            out.counters.messages_refused += 1;
            false
        })
    }
}
