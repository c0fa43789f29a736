//! Client requests: refused at the door, packed into the next entry, or kept until a quorum has confirmed the lead.

use trine_canary as canary;
use trine_kvstore::{Command, Response, StoreError};
use trine_protocol::message::{
    ClientReply, ClientRequest, ClientStatus, ClusterId, GroupId, LeaderTiming, Operation,
    ReplyToken,
};
use trine_transport::time::Instant;

use super::Group;
use super::local::election_timeout;
use crate::config::SESSION_WINDOW;
use crate::outbox::Outbox;
use crate::raft_group::ProposeError;
use crate::state_machine::Answer;
use crate::state_machine::entry::EntryBuilder;

/// Tells a client how its command ended.
pub(super) fn answer(
    token: ReplyToken,
    cluster: ClusterId,
    answer: &Answer<'_>,
    timing: Option<LeaderTiming>,
    out: &mut Outbox,
) {
    let Answer {
        status,
        position,
        response,
    } = *answer;
    let reply = ClientReply {
        status,
        group: GroupId(0),
        cluster,
        position: position.as_u64(),
        leader: None,
        response,
        timing: timing.filter(|_| status == ClientStatus::Ok),
    };
    out.reply(token, &reply);
}

impl Group {
    /// A client's request, whose envelope could be read.
    pub(crate) fn on_client(
        &mut self,
        now: Instant,
        token: ReplyToken,
        request: &ClientRequest<'_>,
        out: &mut Outbox,
    ) {
        if self.halted.is_none() {
            // The vote that decides may have come in the same burst: nothing is taken, or stamped, as an earlier leader.
            self.follow_role(now, out);
        }
        let command = match self.admit(now, request) {
            Ok(command) => command,
            Err(status) => return self.refuse(token, status, out),
        };
        let required = command.as_ref().map_or(0, |command| match *command {
            // The group switches by itself, when every member is ready: nobody else knows when that is.
            Command::RaiseVersion { version } => version.max(command.version()),
            _ => command.version(),
        });
        match request.operation {
            Operation::ReadStale => self.read_now(token, request.command, out),
            Operation::ReadLinearizable if canary::planted("read without ReadIndex") => {
                self.read_now(token, request.command, out);
            }
            Operation::ReadLinearizable | Operation::ReadHere => {
                self.reads.push(now, token, request.command);
            }
            Operation::Register => self.write(now, token, request, required, out),
            Operation::Apply | Operation::ApplyAndClose => match self.check_owner(request) {
                Ok(request) => self.write(now, token, &request, required, out),
                Err(status) => self.refuse(token, status, out),
            },
        }
    }

    /// A session belongs to whoever knows the number that it was registered with: client ids can be guessed, for they are
    /// positions in the log. Nothing of what another client sends reaches the session, not even its sequence.
    ///
    /// The request that goes into the log names client 0, which no session ever has, where this replica knows of no such
    /// session: then the log answers "session expired". Answered at once, that would be wrong of a leader that was deposed
    /// without knowing it, for the session may exist at the next one.
    fn check_owner<'a>(
        &self,
        request: &ClientRequest<'a>,
    ) -> Result<ClientRequest<'a>, ClientStatus> {
        let state = self.state.as_ref().ok_or(ClientStatus::NotAttached)?;
        match state.sessions().number_of(request.client) {
            Some(number) if number == request.session_number && number != 0 => Ok(*request),
            Some(_) => Err(ClientStatus::SessionExpired),
            None if self.consensus.raft().has_applied_in_term() => Ok(ClientRequest {
                client: 0,
                ..*request
            }),
            // Earlier leaders may have registered sessions that this one has not applied yet.
            None => Err(ClientStatus::Busy),
        }
    }

    /// The command, if the request may go on; a registration has none.
    fn admit<'a>(
        &self,
        now: Instant,
        request: &ClientRequest<'a>,
    ) -> Result<Option<Command<'a>>, ClientStatus> {
        if self.state.is_none() || self.halted.is_some() {
            return Err(ClientStatus::NotAttached);
        }
        let nameless_allowed = matches!(
            request.operation,
            Operation::Register
                | Operation::ReadLinearizable
                | Operation::ReadStale
                | Operation::ReadHere
        );
        let known = request.cluster == self.local.cluster
            || (request.cluster.is_none() && nameless_allowed);
        if !known || request.group != GroupId(0) {
            return Err(ClientStatus::WrongCluster);
        }
        let command = check_command(request)?;
        let anywhere = request.operation == Operation::ReadStale
            || (canary::planted("read without ReadIndex")
                && request.operation == Operation::ReadLinearizable);
        let here = request.operation == Operation::ReadHere && self.consensus.raft().leader() != 0;
        if !anywhere {
            self.admit_to_leader(now, here)?;
        }
        Ok(command)
    }

    /// `here`: a follower will do that has a leader to ask.
    fn admit_to_leader(&self, now: Instant, here: bool) -> Result<(), ClientStatus> {
        if !self.consensus.raft().is_leader() && !here {
            let patience = election_timeout(&self.local.config).as_nanos() * 4;
            let forsaken = self
                .consensus
                .leaderless_since()
                .is_some_and(|since| now.saturating_since(since).as_nanos() > patience);
            return Err(if forsaken {
                ClientStatus::NoQuorum
            } else {
                ClientStatus::NotLeader
            });
        }
        let waiting = self.writes.commands() + self.reads.count();
        let full = waiting >= self.local.config.pending_requests_max
            || self.writes.bytes() + self.reads.bytes() >= self.local.config.pending_bytes_max;
        if full || self.consensus.raft().is_transferring() {
            Err(ClientStatus::Busy)
        } else {
            Ok(())
        }
    }

    /// Answers a request without doing it.
    pub(super) fn refuse(&self, token: ReplyToken, status: ClientStatus, out: &mut Outbox) {
        match status {
            ClientStatus::Busy => out.counters.busy += 1,
            ClientStatus::NotLeader => out.counters.redirected += 1,
            _ => {}
        }
        let leader = self
            .leader_address()
            .filter(|&leader| leader != self.local.own.address);
        out.reply(
            token,
            &ClientReply {
                leader,
                ..ClientReply::refusal(status, self.local.cluster)
            },
        );
    }

    /// A command of a version that the group has not switched to must not get into the log: an older member could not
    /// read it. Answers it as the store would.
    fn is_ahead_of_its_group(&self, token: ReplyToken, required: u8, out: &mut Outbox) -> bool {
        let Some(active) = self
            .state
            .as_ref()
            .map(|state| state.store().state_version())
        else {
            return false;
        };
        let ahead = required > active;
        if ahead {
            let error = StoreError::VersionNotActive { required, active };
            out.reply_response(token, self.local.cluster, 0, &Response::Error(error));
        }
        ahead
    }

    fn write(
        &mut self,
        now: Instant,
        token: ReplyToken,
        request: &ClientRequest<'_>,
        required: u8,
        out: &mut Outbox,
    ) {
        if self.is_ahead_of_its_group(token, required, out) {
            return;
        }
        if !self.writes.has_room(request) {
            self.propose_waiting(now, out);
        }
        if self.writes.watches_next(request.timed) {
            let received = self.look_at_stopwatch(now);
            self.writes.watch_next(received, request.timed);
        }
        self.writes.push(token, request);
        out.counters.writes_proposed += 1;
    }

    /// Packs what has arrived into one entry.
    pub(super) fn propose_waiting(&mut self, now: Instant, out: &mut Outbox) {
        if !self.writes.has_waiting() {
            return;
        }
        let watches = self.writes.watches();
        let proposed = watches.then(|| self.look_at_stopwatch(now));
        let data = self.writes.take_entry(self.clock.stamp(now));
        let bytes = data.len();
        match self.consensus.propose(data) {
            Ok((index, term)) => {
                out.counters.entries_proposed += 1;
                self.writes.on_proposed(index, term, bytes, proposed);
            }
            Err(error) => {
                let status = match error {
                    ProposeError::NotLeader => ClientStatus::NotLeader,
                    ProposeError::Dropped | ProposeError::ChangeInProgress => ClientStatus::Busy,
                };
                for token in self.writes.take_waiting() {
                    self.refuse(token, status, out);
                }
            }
        }
    }

    fn read_now(&mut self, token: ReplyToken, command: &[u8], out: &mut Outbox) {
        out.counters.reads_stale += 1;
        self.answer_read(token, command, out);
    }

    pub(super) fn answer_read(&self, token: ReplyToken, command: &[u8], out: &mut Outbox) {
        let Some(state) = &self.state else {
            return self.refuse(token, ClientStatus::NotAttached, out);
        };
        match Command::decode(command) {
            Ok(command) => {
                let position = state.applied_position().as_u64();
                out.reply_response(
                    token,
                    self.local.cluster,
                    position,
                    &state.store().read(&command),
                );
            }
            Err(_) => self.refuse(token, ClientStatus::Malformed, out),
        }
    }

    /// The lead is lost: whoever waits here has to ask somebody else.
    pub(super) fn abandon_clients(&mut self, out: &mut Outbox) {
        for token in self.writes.take_proposed() {
            self.refuse(token, ClientStatus::LeadershipLost, out);
        }
        for token in self.writes.take_waiting() {
            self.refuse(token, ClientStatus::NotLeader, out);
        }
        for read in self.reads.take_all() {
            self.refuse(read.token, ClientStatus::NotLeader, out);
        }
        self.abandon_orders(out);
    }
}

/// What can be said about a command without any state.
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
