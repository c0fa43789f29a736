//! Each status of a reply, and each way in which an attempt ends without one.

use trine_kvstore::{Position, Response};
use trine_protocol::message::{
    ClientReply, ClientStatus, ClusterId, LeaderTiming, Operation, OtherStatus, OtherVersion,
    StatusClass,
};
use trine_protocol::release::Release;
use trine_transport::app::{Completion, Cx, RpcError};
use trine_transport::backend::Route;
use trine_transport::buf::MsgBuf;
use trine_transport::slab::Key;
use trine_transport::time::Instant;

use super::Clients;
use crate::config::RESPONSE_BYTES_MAX;
use crate::group_view::SPREAD;
use crate::logical::{NamedSession, Registration};
use crate::operation::Pending;
use crate::outcome::{Answer, Obstacle, SessionRefusal, WriteTiming};

/// A reply without its borrowed parts.
struct ReplyHeader {
    status: ClientStatus,
    cluster: ClusterId,
    position: u64,
    leader: Option<std::net::SocketAddr>,
    /// Whether the store's response could be read; only with `Ok`.
    is_sound: bool,
    timing: Option<LeaderTiming>,
    other_version: Option<OtherVersion>,
    release: Option<Release>,
}

impl ReplyHeader {
    /// Why the replica could not read the request.
    fn why_unread(&self) -> Obstacle {
        let release = self.release;
        let other = self.other_version.map(Obstacle::OtherVersion);
        other.unwrap_or(Obstacle::Malformed { release })
    }
}

/// A reply as it came.
pub(super) enum Incoming<'a> {
    /// In a buffer of its own.
    Alone(MsgBuf),
    /// Among others.
    InBatch(&'a [u8]),
}

impl Incoming<'_> {
    fn bytes(&self) -> &[u8] {
        match self {
            Self::Alone(reply) => reply,
            Self::InBatch(reply) => reply,
        }
    }

    /// The answer in a reply that says `Ok` and was read before.
    fn into_answer(self, position: Position) -> Answer {
        match self {
            Self::Alone(reply) => Answer::of_reply(position, reply),
            Self::InBatch(reply) => Answer::of_response(position, ClientReply::response_of(reply)),
        }
    }
}

impl<R: Route> Clients<R> {
    /// An attempt that was no part of a batch has ended.
    pub(super) fn on_attempt_ended(
        &mut self,
        cx: &mut Cx<'_, R>,
        key: Key,
        completion: Completion,
    ) {
        let now = cx.now();
        let Completion {
            result,
            request,
            response,
        } = completion;
        let Some(peer) = self.operations.end_attempt(key, Some(request)) else {
            debug_assert!(false, "an operation lives until its attempt has ended");
            return;
        };
        self.group.on_ended(peer);
        match result {
            // An empty response says nothing: the replica had no room to say more.
            Ok(()) if response.is_empty() => {
                self.on_no_reply(key, RpcError::OutcomeUnknown, 0);
                match self.is_spread(key) {
                    true => self.group.avoid(now, peer),
                    false => self.group.hold_back(now),
                }
                self.try_again(now, key);
            }
            Ok(()) => self.on_reply(now, key, peer, Incoming::Alone(response)),
            Err(error) => {
                self.avoid_if_slow(now, key, peer, error);
                self.on_no_reply(key, error, response.capacity());
                self.try_again(now, key);
            }
        }
    }

    /// Whether an operation may be done by any replica.
    fn is_spread(&self, key: Key) -> bool {
        let pending = self.operations.get(key);
        pending.is_some_and(|pending| SPREAD.contains(&pending.queue))
    }

    /// A read that another replica can do as well, and that took too long here, goes to the others.
    pub(super) fn avoid_if_slow(&mut self, now: Instant, key: Key, peer: usize, error: RpcError) {
        if error == RpcError::Cancelled && self.is_spread(key) {
            self.group.avoid(now, peer);
        }
    }

    pub(super) fn on_no_reply(&mut self, key: Key, error: RpcError, capacity: usize) {
        let Some(pending) = self.operations.get_mut(key) else {
            return;
        };
        match error {
            RpcError::NotSent => pending.so_far.obstacle = Some(Obstacle::NoConnection),
            RpcError::OutcomeUnknown | RpcError::DeadlineExceeded | RpcError::Cancelled => {
                pending.so_far.obstacle = Some(Obstacle::NoAnswer);
                pending.note_uncertain();
            }
            RpcError::ResponseTooLarge { bytes } => {
                pending.note_uncertain();
                // The exact size: eight times as much would be taken from the memory of all others.
                pending.room.bytes = bytes.max(capacity + 1).min(RESPONSE_BYTES_MAX);
            }
        }
    }

    /// Makes another attempt, unless the operation's time is over.
    pub(super) fn try_again(&mut self, now: Instant, key: Key) {
        let Some(pending) = self.operations.get(key) else {
            return;
        };
        if pending.is_over(now) {
            let error = pending.failure(now, Obstacle::NoAnswer);
            self.finish(now, key, Err(error));
        } else {
            self.requeue(key);
        }
    }

    pub(super) fn on_reply(&mut self, now: Instant, key: Key, peer: usize, reply: Incoming<'_>) {
        let Some(header) = read(reply.bytes()) else {
            self.note_unreadable();
            self.with_pending(key, Pending::note_uncertain);
            return self.refuse(now, key, Obstacle::UnreadableReply);
        };
        if !self.group.cluster().admits(header.cluster)
            || header.status == ClientStatus::WrongCluster
        {
            return self.on_wrong_cluster(now, key, peer, header.cluster);
        }
        // A refusal does not count: a leaderless replica of another group in the list could answer first.
        if header.status == ClientStatus::Ok {
            self.group.adopt(header.cluster);
        }
        self.group.on_heard(peer, now);
        // Its caller numbers the commands of the session, and decides what comes next.
        let is_of_caller = self.operations.get(key).is_some_and(Pending::is_of_caller);
        if let Some(refusal) = SessionRefusal::of(header.status).filter(|_| is_of_caller) {
            return self.refuse(now, key, Obstacle::NamedSession(refusal));
        }
        // Nobody else waits until this client acknowledges its replies.
        if header.status == ClientStatus::ReplyShareTaken && is_of_caller {
            return self.refuse(now, key, Obstacle::ReplyShareTaken);
        }
        self.on_status(now, key, peer, &header, reply);
    }

    fn on_status(
        &mut self,
        now: Instant,
        key: Key,
        peer: usize,
        header: &ReplyHeader,
        reply: Incoming<'_>,
    ) {
        if header.status != ClientStatus::Ok && self.is_spread(key) {
            self.group.avoid(now, peer);
        }
        match header.status {
            ClientStatus::Ok => self.on_ok(now, key, peer, header, reply),
            ClientStatus::NotLeader if self.is_spread(key) => {
                self.obstructed(now, key, Obstacle::NoLeader);
            }
            ClientStatus::Busy if self.is_spread(key) => {
                self.obstructed(now, key, Obstacle::Busy);
            }
            ClientStatus::NotLeader => {
                self.group.redirect(now, peer, header.leader);
                self.obstructed(now, key, Obstacle::NoLeader);
            }
            ClientStatus::LeadershipLost => {
                self.with_pending(key, Pending::note_uncertain);
                self.group.redirect(now, peer, header.leader);
                self.obstructed(now, key, Obstacle::NoLeader);
            }
            ClientStatus::Busy | ClientStatus::WindowExceeded => {
                self.hold_back(now, key, Obstacle::Busy);
            }
            ClientStatus::SessionsFull => self.hold_back(now, key, Obstacle::SessionsFull),
            ClientStatus::SessionShareTaken => {
                self.hold_back(now, key, Obstacle::SessionShareTaken)
            }
            ClientStatus::ReplyShareTaken => self.hold_back(now, key, Obstacle::ReplyShareTaken),
            ClientStatus::NoQuorum => {
                self.group.ask_elsewhere(now, peer);
                self.obstructed(now, key, Obstacle::NoQuorum);
            }
            ClientStatus::NotAttached => {
                self.group.ask_elsewhere(now, peer);
                self.obstructed(now, key, Obstacle::NotAttached);
            }
            ClientStatus::SessionExpired => self.on_session_expired(now, key),
            ClientStatus::SequenceUsed => self.on_shared_session(now, key, Obstacle::SequenceUsed),
            ClientStatus::Stale => self.on_shared_session(now, key, Obstacle::Stale),
            ClientStatus::TooLarge => self.refuse(now, key, Obstacle::TooLarge),
            ClientStatus::Denied => self.refuse(now, key, Obstacle::Denied),
            ClientStatus::Malformed | ClientStatus::OtherVersion => {
                self.refuse(now, key, header.why_unread());
            }
            ClientStatus::Other(status) => {
                self.on_other_status(now, key, peer, status, header.release);
            }
            ClientStatus::WrongCluster => self.refuse(
                now,
                key,
                Obstacle::WrongCluster {
                    theirs: header.cluster,
                },
            ),
        }
    }

    /// A later release has given the status a meaning. Its class says all that has to be known.
    fn on_other_status(
        &mut self,
        now: Instant,
        key: Key,
        peer: usize,
        status: OtherStatus,
        release: Option<Release>,
    ) {
        let obstacle = Obstacle::OtherStatus {
            status: status.byte(),
            release,
        };
        match status.class() {
            StatusClass::Refused => return self.refuse(now, key, obstacle),
            StatusClass::NotProposed => {}
            StatusClass::OutcomeUnknown => self.with_pending(key, Pending::note_uncertain),
        }
        // What a follower answers says nothing about the leader.
        if !self.is_spread(key) {
            self.group.hold_back(now);
            self.group.ask_elsewhere(now, peer);
        }
        self.obstructed(now, key, obstacle);
    }

    fn on_ok(
        &mut self,
        now: Instant,
        key: Key,
        peer: usize,
        header: &ReplyHeader,
        reply: Incoming<'_>,
    ) {
        let Some(pending) = self.operations.get(key) else {
            return;
        };
        let (operation, tag, is_own) = (pending.operation, pending.tag, pending.ticket.is_none());
        if operation != Operation::ReadStale {
            self.group.note_leader_answered(peer);
        }
        if operation == Operation::Register && is_own {
            let session = NamedSession {
                client: header.position,
                number: tag,
            };
            return self.finish_registration(now, key, Registration::Done(session));
        }
        if operation == Operation::Register {
            let client = Position::from_u64(header.position);
            return self.finish(now, key, Ok(Answer::of_registration(client)));
        }
        if header.is_sound {
            let timing = header
                .timing
                .and_then(|leader| self.timing_of(now, key, leader));
            let answer = reply.into_answer(Position::from_u64(header.position));
            let may_be_applied = self
                .operations
                .get(key)
                .is_some_and(|p| p.so_far.may_be_applied);
            // An answer without a position came from no log. Nobody has looked whether an earlier attempt is in it.
            if may_be_applied && header.position == 0 {
                return self.refuse(now, key, Obstacle::RepeatRefused);
            }
            self.finish(now, key, Ok(answer.timed(timing)));
        } else {
            self.note_unreadable();
            self.with_pending(key, Pending::note_uncertain);
            self.refuse(now, key, Obstacle::UnreadableReply);
        }
    }

    fn timing_of(&self, now: Instant, key: Key, leader: LeaderTiming) -> Option<WriteTiming> {
        let pending = self.operations.get(key)?;
        Some(WriteTiming {
            client: pending
                .times
                .sent_at
                .saturating_since(pending.times.started),
            round_trip: now.saturating_since(pending.times.sent_at),
            leader,
        })
    }

    /// The state machine no longer knows the session. A write that was never sent before continues under a new one. For
    /// the rest the outcome can no longer be known.
    fn on_session_expired(&mut self, now: Instant, key: Key) {
        let Some(pending) = self.operations.get_mut(key) else {
            return;
        };
        pending.so_far.obstacle = Some(Obstacle::SessionExpired);
        let (owner, may_be_applied, is_over) = (
            pending.owner,
            pending.so_far.may_be_applied,
            pending.is_over(now),
        );
        let Some(ticket) = pending.ticket else {
            return self.refuse(now, key, Obstacle::SessionExpired);
        };
        if let Some(logical) = self.logical.get_mut(owner)
            && ticket.is_of_epoch(logical.epoch)
        {
            logical.forget_session();
            self.stats.sessions_lost += 1;
        }
        if may_be_applied {
            self.refuse(now, key, Obstacle::SessionExpired);
        } else if is_over {
            self.try_again(now, key);
        } else {
            self.wait_for_session(now, key, owner);
        }
    }

    /// Somebody else gives commands in this client's session, as a copy of the virtual machine that it runs in does: the
    /// sequence was used, or given up. The next command has another session. This one is not tried again: its caller has to
    /// hear of it.
    fn on_shared_session(&mut self, now: Instant, key: Key, obstacle: Obstacle) {
        let found = self.operations.get(key).map(|p| (p.owner, p.ticket));
        if let Some((owner, Some(ticket))) = found
            && let Some(logical) = self.logical.get_mut(owner)
            && ticket.is_of_epoch(logical.epoch)
        {
            logical.forget_session();
            self.stats.sessions_lost += 1;
        }
        self.refuse(now, key, obstacle);
    }

    /// Removes the ticket of an evicted session from an operation that was certainly not applied under it. The next
    /// session may be there already. The client's last command, which waits for all others, stays behind it.
    pub(super) fn wait_for_session(&mut self, now: Instant, key: Key, owner: Key) {
        let (Some(pending), Some(logical)) =
            (self.operations.get_mut(key), self.logical.get_mut(owner))
        else {
            return;
        };
        pending.ticket = None;
        self.operations.hold(key);
        logical.waiting.push_front(key);
        self.admit(now, owner);
    }

    fn on_wrong_cluster(&mut self, now: Instant, key: Key, peer: usize, theirs: ClusterId) {
        let obstacle = Obstacle::WrongCluster { theirs };
        self.group.on_foreign(peer, obstacle);
        if self.group.all_foreign().is_some() {
            self.refuse(now, key, obstacle);
            self.fail_if_all_foreign(now);
        } else {
            self.obstructed(now, key, obstacle);
        }
    }

    /// The leader has no room for it now: it is asked again after a pause.
    fn hold_back(&mut self, now: Instant, key: Key, obstacle: Obstacle) {
        self.group.hold_back(now);
        self.obstructed(now, key, obstacle);
    }

    /// Notes the obstacle and tries again.
    fn obstructed(&mut self, now: Instant, key: Key, obstacle: Obstacle) {
        self.with_pending(key, |pending| pending.so_far.obstacle = Some(obstacle));
        self.try_again(now, key);
    }

    fn with_pending(&mut self, key: Key, change: impl FnOnce(&mut Pending)) {
        if let Some(pending) = self.operations.get_mut(key) {
            change(pending);
        }
    }
}

fn read(reply: &[u8]) -> Option<ReplyHeader> {
    let reply = ClientReply::decode(reply).ok()?;
    let ClientReply {
        status,
        cluster,
        position,
        leader,
        timing,
        other_version,
        release,
        ..
    } = reply;
    let is_sound = status == ClientStatus::Ok && Response::decode(reply.response).is_ok();
    Some(ReplyHeader {
        status,
        cluster,
        position,
        leader,
        is_sound,
        timing,
        other_version,
        release,
    })
}
