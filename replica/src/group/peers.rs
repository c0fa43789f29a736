//! Messages of other members: raft's messages, reports of their state, and answers to both.

use std::net::SocketAddr;

use prost::Message as _;
use raft::eraftpb::{Message, MessageType};
use trine_protocol::message::{Incarnation, PeerHeader, ReplyToken, StateReport};
use trine_transport::time::Instant;

use super::Group;
use super::members::says_removed;
use super::promised::promise_in;
use crate::halt::Halt;
use crate::outbox::Outbox;
use crate::raft_group::Refusal;
use crate::state_machine::StateMachine;

impl Group {
    /// A raft message that came as a request: the answer that raft makes rides in the response, if that is not out yet.
    pub(crate) fn on_raft_request(
        &mut self,
        now: Instant,
        token: Option<ReplyToken>,
        header: &PeerHeader,
        message: &[u8],
        out: &mut Outbox,
    ) {
        let message = self.take_message(now, header, message, out);
        let answers =
            message.is_some_and(|message| self.step(now, header.from, message, token, out));
        if let Some(token) = token
            && !answers
        {
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
    pub(crate) fn on_unreachable(&mut self, address: SocketAddr, out: &Outbox) {
        let Some(state) = &self.state else { return };
        let members = state.members().all().iter();
        for member in members.filter(|member| out.places.of(member) == address) {
            self.consensus.report_unreachable(member.incarnation);
            self.deaths.forget(member.incarnation);
        }
    }

    /// An answer without content: the member is alive, and had nothing to report.
    pub(crate) fn on_empty_answer(&mut self, now: Instant, to: Incarnation) {
        self.hear(now, to, 0);
    }

    pub(super) fn hear(&mut self, now: Instant, from: Incarnation, version: u8) {
        self.membership
            .hear(now, from, version, self.state.as_ref());
    }

    /// Whether a frame is meant for this incarnation, in this cluster, and this member takes part. After a start from files it
    /// does not yet.
    pub(super) fn concerns(&self, header: &PeerHeader, out: &mut Outbox) -> bool {
        let concerns = self.local.is_addressed_by(header) && !self.life.is_halted();
        out.counters.messages_foreign += u64::from(!concerns);
        concerns && self.asking.is_none()
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
            // A snapshot message is stepped only after the state that belongs to it.
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
        if message.msg_type == MessageType::MsgAppendResponse as i32 {
            let end = message.reject.then_some(message.reject_hint);
            self.membership.note_log_end(from, end);
        }
        let term = message.term;
        let raft = self.consensus.raft();
        let leads = raft.is_leader() && raft.term() == term;
        let promise = promise_in(&message, leads.then(|| raft.last_index()));
        match self.consensus.step(now, from, message, token) {
            Ok(answers) => {
                if let Some(promise) = promise {
                    let members = self.state.as_ref().map(StateMachine::members);
                    self.promised.note(from, promise, members);
                }
                answers
            }
            Err(refusal) => {
                out.counters.messages_refused += 1;
                match refusal {
                    Refusal::LogTooShort { last, commit } if self.disk.is_some() => {
                        self.halt_and_quarantine(Halt::RolledBack { last, commit }, out);
                        self.tell_log_end(from, term, (last, commit), token, out)
                    }
                    _ => false,
                }
            }
        }
    }

    /// Tells the leader that this replica has lost entries, by rejecting an append that the leader takes for
    /// acknowledged. The leader's list of members shows it.
    fn tell_log_end(
        &self,
        leader: Incarnation,
        term: u64,
        (last, commit): (u64, u64),
        token: Option<ReplyToken>,
        out: &mut Outbox,
    ) -> bool {
        let Some(token) = token else { return false };
        let mut rejection = Message {
            from: self.local.own.incarnation.0,
            to: leader.0,
            term,
            index: commit,
            reject: true,
            reject_hint: last,
            ..Message::default()
        };
        rejection.set_msg_type(MessageType::MsgAppendResponse);
        out.reply_raft(token, self.local.header_to(leader), &rejection);
        true
    }

    /// A member reports its state. The answer is this replica's own, if it has got there.
    pub(crate) fn on_state_report(
        &mut self,
        now: Instant,
        token: ReplyToken,
        report: &StateReport,
        out: &mut Outbox,
    ) {
        if !self.expects(report, out) {
            return out.reply_empty(token);
        }
        self.hear(now, report.header.from, 0);
        self.agreement.on_report(token, report, &self.local, out);
    }

    /// The answer of the member `to` to a report, over a session that leads to it.
    pub(crate) fn on_report_answer(
        &mut self,
        now: Instant,
        to: Incarnation,
        index: u64,
        answer: &[u8],
        out: &mut Outbox,
    ) {
        // Empty: it has not got there, or belongs to an earlier release.
        let Ok(report) = StateReport::decode(answer) else {
            return;
        };
        let is_its = report.header.from == to && report.index == index;
        if is_its && self.expects(&report, out) {
            self.hear(now, to, 0);
            let diverged = self
                .agreement
                .on_answer(&report, &self.local, &self.consensus);
            if let Some(why) = diverged {
                self.halt_and_quarantine(why, out);
            }
        }
    }

    fn expects(&self, report: &StateReport, out: &mut Outbox) -> bool {
        let (from, index) = (report.header.from, report.index);
        let state = self.state.as_ref();
        self.concerns(&report.header, out)
            && self.agreement.expects(from, index, state, &self.consensus)
    }

    /// The member that was asked whether this replica still is a member has answered.
    pub(crate) fn on_membership_answer(&mut self, answer: &[u8]) {
        if says_removed(answer, self.local.cluster) && !self.life.is_halted() {
            self.leave();
        }
    }
}
