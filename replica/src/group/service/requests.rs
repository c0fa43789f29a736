//! Clients' requests: refused at the door, packed into the next entry, or kept until a quorum has confirmed the
//! leadership.

use trine_canary as canary;
use trine_keys::Credential;
use trine_kvstore::{Command, Position, Response, StoreError};
use trine_protocol::message::{
    ClientRequest, ClientStatus, ForUser, GroupId, Operation, ReplyToken,
};
use trine_transport::Holder;

use super::{Service, refuse};
use crate::audit::{Asked, By};
use crate::config::SESSION_WINDOW;
use crate::group::cx::Cx;
use crate::reads::AnswerWith;
use crate::rights::{Caller, Denied, Missing, Subject, What, administrates};
use crate::state_machine::StateMachine;
use crate::state_machine::entry::EntryBuilder;

impl Service {
    /// A client's request, whose envelope could be read. `caller` tells whom a registration is counted for.
    pub(in crate::group) fn on_client(
        &mut self,
        cx: &mut Cx<'_>,
        token: ReplyToken,
        caller: Caller,
        request: &ClientRequest<'_>,
        holder: &dyn Fn() -> Holder,
    ) {
        let command = match self.admit(cx, request) {
            Ok(command) => command,
            Err(status) => return refuse(cx, token, status),
        };
        if !knows_users(cx, caller, request.operation) {
            return refuse(cx, token, ClientStatus::Busy);
        }
        let owner = owner_of_session(cx, request);
        let user = match check_rights(cx, caller, request, owner, command.as_ref()) {
            Ok(user) => user,
            Err(denied) if may_be_late(cx, request.operation, &denied) => {
                return refuse(cx, token, ClientStatus::NotLeader);
            }
            Err(denied) => {
                self.denials
                    .note(cx, caller, request, command.as_ref(), &denied);
                return self.deny(cx, token, caller, request.operation, &denied);
            }
        };
        let applied = cx.state.map_or(0, StateMachine::commands_applied);
        let scans = &mut self.scans;
        let is_admitted = |command| scans.admit(cx.now, applied, command);
        if !command.as_ref().is_none_or(is_admitted) {
            cx.out.counters.scans_deferred += 1;
            return refuse(cx, token, ClientStatus::Busy);
        }
        match request.operation {
            Operation::ReadStale => self.read_now(cx, token, request.command),
            Operation::ReadLinearizable if canary::planted("read without ReadIndex") => {
                self.read_now(cx, token, request.command);
            }
            Operation::ReadLinearizable | Operation::ReadHere => {
                let users = users_asked(cx, caller);
                let answer = AnswerWith::Value;
                self.reads
                    .push(cx.now, token, answer, request.command, users);
            }
            Operation::Register => match self.may_register(cx, request, holder()) {
                true => {
                    // The user of the session: nobody else's word gets into the log.
                    let sequence = user.into();
                    let request = ClientRequest {
                        sequence,
                        ..*request
                    };
                    self.write_if_active(cx, token, &request, None);
                }
                false => {
                    cx.out.counters.registrations_refused += 1;
                    refuse(cx, token, ClientStatus::SessionShareTaken);
                }
            },
            Operation::Apply | Operation::ApplyAndClose => {
                match check_owner(cx, caller, request, owner) {
                    Ok(()) => self.write_in_session(cx, token, caller, request, command.as_ref()),
                    Err(OtherSession::Unknown) => {
                        let request = ClientRequest {
                            client: 0,
                            ..*request
                        };
                        self.write_in_session(cx, token, caller, &request, command.as_ref());
                    }
                    Err(OtherSession::Refused(status)) => refuse(cx, token, status),
                }
            }
        }
    }

    /// A write in a session that its caller may use.
    fn write_in_session(
        &mut self,
        cx: &mut Cx<'_>,
        token: ReplyToken,
        caller: Caller,
        request: &ClientRequest<'_>,
        command: Option<&Command<'_>>,
    ) {
        if !self.has_reply_room(cx, request) {
            return refuse(cx, token, ClientStatus::ReplyShareTaken);
        }
        if command.is_some_and(administrates) {
            let users = cx.state.map(|state| state.store().users());
            let (client, sequence) = (request.client, request.sequence);
            let asked = Asked { client, sequence };
            self.authors.note(asked, By::caller(caller, users));
        }
        self.write_if_active(cx, token, request, command);
    }

    /// Answers a request that its sender has no right to. What is asked of the leader is denied once a quorum has
    /// confirmed the leadership: a deposed leader may lack the change that gave the right.
    fn deny(
        &mut self,
        cx: &mut Cx<'_>,
        token: ReplyToken,
        caller: Caller,
        operation: Operation,
        denied: &Denied,
    ) {
        let answer = match operation {
            Operation::Register => AnswerWith::RegistrationDenial,
            _ => AnswerWith::Denial,
        };
        let reason = denied.to_string();
        if operation == Operation::ReadStale {
            let bytes = super::reads::denial(cx, answer, &reason);
            return cx.out.reply_or_owe(token, bytes);
        }
        let users = users_asked(cx, caller);
        self.reads
            .push(cx.now, token, answer, reason.as_bytes(), users);
    }

    /// Whether the caller of a registration has not got more than its share of the group's session entries.
    fn may_register(&mut self, cx: &Cx<'_>, request: &ClientRequest<'_>, caller: Holder) -> bool {
        cx.state.is_none_or(|state| {
            let sessions = state.sessions();
            self.registrars
                .may_register(cx.now, caller, request.client, sessions)
        })
    }

    /// Whether the owner of the session has not got more than its share of the kept answers, or the command cannot wait.
    fn has_reply_room(&self, cx: &Cx<'_>, request: &ClientRequest<'_>) -> bool {
        cx.state
            .is_none_or(|state| self.reply_shares.has_room(state.sessions(), request))
    }

    /// A command of a version that the group has not switched to must not get into the log: an older member could not
    /// read it. It is answered as the store would answer it.
    fn write_if_active(
        &mut self,
        cx: &mut Cx<'_>,
        token: ReplyToken,
        request: &ClientRequest<'_>,
        command: Option<&Command<'_>>,
    ) {
        if command.is_some_and(Command::is_only_read) {
            let error = Response::Error(StoreError::OnlyRead);
            return cx.out.reply_response(token, cx.local.cluster, 0, &error);
        }
        let required = command.map_or(0, |command| match *command {
            // The group switches by itself, when every member is ready: no other party knows when that is.
            Command::RaiseVersion { version } => version.max(command.version()),
            _ => command.version(),
        });
        let active = cx.state.map(|state| state.store().state_version());
        match active.filter(|&active| required > active) {
            Some(active) => {
                let waits = self.next_switch.filter(|next| next.version >= required);
                let error = Response::Error(match waits {
                    Some(next) => StoreError::SwitchWaits {
                        required,
                        active,
                        seconds: next.seconds(cx.now),
                    },
                    None => StoreError::VersionNotActive { required, active },
                });
                cx.out.reply_response(token, cx.local.cluster, 0, &error);
            }
            None => self.write(cx, token, request, command),
        }
    }

    /// The command, if the request may go on; a registration has none.
    fn admit<'a>(
        &self,
        cx: &Cx<'_>,
        request: &ClientRequest<'a>,
    ) -> Result<Option<Command<'a>>, ClientStatus> {
        if cx.state.is_none() || cx.halted {
            return Err(ClientStatus::NotAttached);
        }
        let nameless_allowed = matches!(
            request.operation,
            Operation::Register
                | Operation::ReadLinearizable
                | Operation::ReadStale
                | Operation::ReadHere
        );
        let known =
            request.cluster == cx.local.cluster || (request.cluster.is_none() && nameless_allowed);
        if !known || request.group != GroupId(0) {
            return Err(ClientStatus::WrongCluster);
        }
        let command = check_command(request)?;
        let anywhere = request.operation == Operation::ReadStale
            || (canary::planted("read without ReadIndex")
                && request.operation == Operation::ReadLinearizable);
        let here = request.operation == Operation::ReadHere && cx.raft().leader() != 0;
        if !anywhere {
            self.admit_to_leader(cx, here)?;
        }
        Ok(command)
    }

    /// `here`: a follower will do that has a leader to ask.
    fn admit_to_leader(&self, cx: &Cx<'_>, here: bool) -> Result<(), ClientStatus> {
        if !cx.raft().is_leader() && !here {
            let patience = cx.local.election_timeout().as_nanos() * 4;
            let forsaken = cx
                .consensus
                .leaderless_since()
                .is_some_and(|since| cx.now.saturating_since(since).as_nanos() > patience);
            return Err(if forsaken {
                ClientStatus::NoQuorum
            } else {
                ClientStatus::NotLeader
            });
        }
        let waiting = self.writes.commands() + self.reads.count();
        let full = waiting >= cx.local.config.pending_requests_max
            || self.writes.bytes() + self.reads.bytes() >= cx.local.config.pending_bytes_max;
        if full || cx.raft().is_transferring() {
            Err(ClientStatus::Busy)
        } else {
            Ok(())
        }
    }
}

/// The owner of the session that a write names: the number that its client drew, and the number of its user.
fn owner_of_session(cx: &Cx<'_>, request: &ClientRequest<'_>) -> Option<(u64, u32)> {
    let is_write = matches!(
        request.operation,
        Operation::Apply | Operation::ApplyAndClose
    );
    cx.state
        .filter(|_| is_write)?
        .sessions()
        .owner_of(request.client)
}

/// Why a write does not go into the session that it names.
enum OtherSession {
    /// This replica knows of no such session. What goes into the log names client 0, which no session ever has, and the
    /// log answers "session expired". Answered at once, that would be wrong of a leader that was deposed without knowing
    /// it, for the session may exist at the next one.
    Unknown,
    /// It is answered with this.
    Refused(ClientStatus),
}

/// A session belongs to the client that knows the number that it was registered with: client ids can be guessed, for
/// they are positions in the log. Nothing from another client reaches the session, not even a sequence.
fn check_owner(
    cx: &Cx<'_>,
    caller: Caller,
    request: &ClientRequest<'_>,
    owner: Option<(u64, u32)>,
) -> Result<(), OtherSession> {
    match owner {
        Some((number, user)) if number == request.session_number && number != 0 => {
            let is_own = user == 0 && caller.may_give_every_command();
            if is_own || may_use_session(cx, caller, request, user) {
                Ok(())
            } else {
                Err(OtherSession::Refused(ClientStatus::SessionExpired))
            }
        }
        Some(_) => Err(OtherSession::Refused(ClientStatus::SessionExpired)),
        None if cx.raft().has_applied_in_term() => Err(OtherSession::Unknown),
        // Earlier leaders may have registered sessions that this one has not applied yet.
        None => Err(OtherSession::Refused(ClientStatus::Busy)),
    }
}

/// A session belongs to the user that registered it, whoever else knows its number.
#[inline(never)]
fn may_use_session(cx: &Cx<'_>, caller: Caller, request: &ClientRequest<'_>, user: u32) -> bool {
    let users = cx.state.map(|state| state.store().users());
    let subject = users.and_then(|users| Subject::of(caller, users).ok());
    canary::planted("a session answers another user")
        || subject.is_some_and(|subject| {
            // Who may do everything could open this user's session, so it may use it as well.
            let opened_it = subject == Subject::Anybody && request.for_user.is_some();
            (opened_it || subject.may_use_session_of(user)) && is_named(&subject, request, user)
        })
}

/// Whether a request may use a session of the user with this number: the session is the caller's own, or the request is
/// for that user. A front has the numbers of many users' sessions, because they hand them to it. So it says for whom it
/// asks, and a session of anybody else does not answer. A request that names nobody is for the user of its session.
fn is_named(caller: &Subject<'_>, request: &ClientRequest<'_>, user: u32) -> bool {
    let named = request.for_user.map_or(user, |named| named.number);
    user == named || user == caller.number() || canary::planted("another user's token is answered")
}

/// Whether the one whom the request is for may do what it asks for, and the number of that user, 0 for none. A front or a
/// member names the user. A write that names none is for the user of its session.
fn check_rights(
    cx: &Cx<'_>,
    caller: Caller,
    request: &ClientRequest<'_>,
    owner: Option<(u64, u32)>,
    command: Option<&Command<'_>>,
) -> Result<u32, Denied> {
    let owner = owner.map(|(_, user)| user);
    // Most requests: they are for nobody, and looking at the users would change nothing.
    let names_nobody = request.for_user.is_none() && owner.unwrap_or(0) == 0;
    if names_nobody && caller.may_give_every_command() {
        return Ok(0);
    }
    check_rights_of_user(cx, caller, request, owner, command)
}

#[inline(never)]
fn check_rights_of_user(
    cx: &Cx<'_>,
    caller: Caller,
    request: &ClientRequest<'_>,
    owner: Option<u32>,
    command: Option<&Command<'_>>,
) -> Result<u32, Denied> {
    // Without a state nobody comes this far.
    let Some(state) = cx.state else { return Ok(0) };
    let users = state.store().users();
    let caller = Subject::of(caller, users)?;
    // In a session that it may not use, `check_owner` answers.
    let owner = owner.filter(|&owner| caller.may_use_session_of(owner));
    let of_session = || owner.filter(|&owner| owner != 0).map(ForUser::of_number);
    let subject = match request.for_user.or_else(of_session) {
        Some(user) => caller.acting_for(user, users)?,
        None => caller,
    };
    subject.may(command.map_or(What::Session, What::Command))?;
    if command.is_some_and(administrates) {
        // The audit line is about the user of the session, so that has to be who gave the command.
        let is_own = owner.is_none_or(|owner| owner == caller.number());
        if !is_own || subject.number() != caller.number() {
            return Err(subject.may_not_administrate());
        }
    }
    Ok(subject.number())
}

/// Whether this replica has applied every change of the users that was acknowledged before the request came. A leader of
/// which that is not sure may lack a user who was added, and may still have one who was removed. Stale reads are checked
/// by what there is, and a follower's by what there is when they are answered.
fn knows_users(cx: &Cx<'_>, caller: Caller, operation: Operation) -> bool {
    let is_checked = !matches!(
        caller,
        Caller::Unkeyed(_) | Caller::Proven(Credential::Admin)
    );
    let is_led = operation != Operation::ReadStale && cx.raft().is_leader();
    !(is_checked && is_led) || cx.raft().has_applied_in_term()
}

/// Whether a read is denied by a follower that may not have heard yet of the user. The leader knows.
fn may_be_late(cx: &Cx<'_>, operation: Operation, denied: &Denied) -> bool {
    let is_about_user = matches!(denied.missing, Missing::Key { .. } | Missing::User);
    is_about_user && operation == Operation::ReadHere && !cx.raft().is_leader()
}

/// The state of the users by which a read of a user is checked. Nothing for those whom no change of the users concerns.
fn users_asked(cx: &Cx<'_>, caller: Caller) -> Option<Position> {
    match caller {
        Caller::Unkeyed(_) | Caller::Proven(Credential::Admin) => None,
        Caller::Proven(_) => cx.state.map(|state| state.store().users().changed_at()),
    }
}

/// The answer to a command that needs no state.
fn check_command<'a>(request: &ClientRequest<'a>) -> Result<Option<Command<'a>>, ClientStatus> {
    if !EntryBuilder::can_ever_hold(request.command.len()) {
        return Err(ClientStatus::TooLarge);
    }
    if request.operation == Operation::Register {
        return if request.command.is_empty() && request.client != 0 {
            Ok(None)
        } else {
            Err(ClientStatus::Malformed)
        };
    }
    let Ok(command) = Command::decode(request.command) else {
        return Err(ClientStatus::Malformed);
    };
    if !request.operation.is_write() {
        return if command.is_read_only() {
            Ok(Some(command))
        } else {
            Err(ClientStatus::Malformed)
        };
    }
    if request.sequence == 0 {
        return Err(ClientStatus::Malformed);
    }
    if request.sequence.saturating_sub(request.lowest_awaited) >= SESSION_WINDOW {
        return Err(ClientStatus::WindowExceeded);
    }
    Ok(Some(command))
}
