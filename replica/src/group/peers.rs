//! Raft messages from and to other members.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use prost::Message as _;
use raft::eraftpb::{Message, MessageType};
use trine_protocol::message::{
    GroupId, Incarnation, PEER_HEADER_SIZE, PeerHeader, ReplyToken, kind,
};
use trine_transport::time::{Duration, Instant};

use super::{Group, election_timeout};
use crate::config::{APPEND_BYTES_UNDER_WAY_MAX, APPENDS_PER_SLOT};
use crate::outbox::{Letter, Outbox, Purpose};
use crate::output::Class;

/// Room for the answer to a raft message; answers carry neither entries nor snapshots.
const ANSWER_BYTES_MAX: usize = PEER_HEADER_SIZE + 256;

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
            None if append => self.raft.report_unreachable(to.0),
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
            self.raft.report_unreachable(member.incarnation.0);
        }
    }

    /// No more appends are in flight to a member than the session to it carries within a few of its rounds. Once a tick,
    /// because raft forgets it when a member is added, or with a snapshot.
    pub(super) fn fit_appends(&mut self, lanes: &BTreeMap<SocketAddr, usize>) {
        let Some(state) = self.state.as_ref().filter(|_| self.raft.is_leader()) else {
            return;
        };
        for member in state.members().all() {
            if let Some(&slots) = lanes.get(&member.address) {
                let most = slots.max(1).saturating_mul(APPENDS_PER_SLOT);
                let most = most.min(self.config.appends_in_flight_max);
                self.raft.limit_appends(member.incarnation.0, most);
            }
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
        let concerns = header.cluster == self.cluster
            && header.group == GroupId(0)
            && header.to == self.own.incarnation
            && self.halted.is_none();
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
        // Not `get_msg_type`: that panics on a type that does not exist.
        let appends = matches!(
            MessageType::from_i32(message.msg_type),
            Some(MessageType::MsgAppend | MessageType::MsgHeartbeat)
        );
        if !appends && self.raft.has_unwritten() {
            // Raft asserts that a candidate's log is written.
            self.pump(now, out);
        }
        match self.raft.step(now, from.0, message) {
            Ok(true) => {
                self.answers.push_back(token);
                token.is_some()
            }
            Ok(false) => false,
            Err(_) => {
                out.counters.messages_refused += 1;
                false
            }
        }
    }

    pub(super) fn header_to(&self, to: Incarnation) -> PeerHeader {
        PeerHeader {
            cluster: self.cluster,
            group: GroupId(0),
            from: self.own.incarnation,
            to,
            state_version: self.config.state_version,
        }
    }

    pub(super) fn send_to_member(&mut self, to: Incarnation, message: &Message, out: &mut Outbox) {
        let Some(member) = self
            .state
            .as_ref()
            .and_then(|state| state.members().get(to))
        else {
            // Removed meanwhile, or not known here yet.
            out.counters.messages_unsent += 1;
            return;
        };
        let append = message.get_msg_type() == MessageType::MsgAppend;
        if append && out.append_bytes_under_way(to) >= APPEND_BYTES_UNDER_WAY_MAX {
            // It stays in the log until the member has answered some of what it was sent.
            out.counters.appends_withheld += 1;
            return self.raft.report_unreachable(to.0);
        }
        let timeout = if append {
            Duration::from_secs(1)
        } else {
            election_timeout(&self.config)
        };
        let letter = Letter {
            to: member.address,
            expect: Some(to),
            kind: if append { kind::APPEND } else { kind::RAFT },
            class: Class::Raft,
            purpose: Purpose::Raft { to, append: 0 },
            timeout,
            answer_bytes_max: ANSWER_BYTES_MAX,
        };
        if !out.send_raft(letter, self.header_to(to), message) && append {
            self.raft.report_unreachable(to.0);
        }
    }
}
