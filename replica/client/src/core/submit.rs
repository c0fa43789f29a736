//! Beginning an operation: encoded straight into the buffer that is going to be sent.

use trine_kvstore::Command;
use trine_kvstore::checksum::command_checksum;
use trine_protocol::message::{
    CLIENT_REPLY_HEADER_SIZE, ClientRequest, Encode, ForUser, NO_CHECK, Operation, check_of,
};
use trine_transport::backend::{OTHER_PROCESS, Route};
use trine_transport::buf::{MsgBuf, Pool};
use trine_transport::time::Instant;

use super::{ClientId, Clients};
use crate::config::{IN_FLIGHT_MAX, OPERATIONS_MAX, RESPONSE_BYTES_MAX};
use crate::operation::{Mode, OperationQueue, Pending};

/// A caller's request.
#[derive(Clone, Copy, Debug)]
pub struct Submission<'a> {
    /// How it is to be done.
    pub mode: Mode,
    /// The store's command.
    pub command: &'a Command<'a>,
    /// When to give up; nothing means the configured timeout.
    pub deadline: Option<Instant>,
    /// Comes back with the outcome.
    pub tag: u64,
}

/// A command in the buffer that it will be sent from. It can be made in any thread.
#[derive(Debug)]
pub struct EncodedCommand {
    pub(super) mode: Mode,
    expected_bytes: usize,
    /// The envelope, in which cluster, client and sequence are still missing, and the command.
    request: MsgBuf,
}

impl EncodedCommand {
    /// Encodes `command` into a buffer of `pool`, which has to be the backend's.
    ///
    /// # Errors
    /// [`SubmitError::NotARead`] or [`SubmitError::NoBuffer`].
    pub fn new(pool: &Pool, mode: Mode, command: &Command<'_>) -> Result<Self, SubmitError> {
        Self::for_user(pool, mode, None, command)
    }

    /// The same for a user whose rights the command shall have. Replicas believe this of members and fronts.
    ///
    /// # Errors
    /// [`SubmitError::NotARead`] or [`SubmitError::NoBuffer`].
    pub fn for_user(
        pool: &Pool,
        mode: Mode,
        for_user: Option<ForUser>,
        command: &Command<'_>,
    ) -> Result<Self, SubmitError> {
        Self::encode(pool, mode, for_user, None, command)
    }

    /// A write for [`Clients::submit_numbered`]. `checksum` is one of what the command's sender has asked for: a sequence
    /// that was used for something else is refused. Two copies that were encoded at different moments may differ
    /// where a time of the clock became a time to live, and are still the same command.
    ///
    /// # Errors
    /// [`SubmitError::NoBuffer`].
    pub fn for_sender(
        pool: &Pool,
        for_user: Option<ForUser>,
        checksum: u32,
        command: &Command<'_>,
    ) -> Result<Self, SubmitError> {
        Self::encode(pool, Mode::Write, for_user, Some(checksum), command)
    }

    /// Without a checksum that of the encoded command counts.
    fn encode(
        pool: &Pool,
        mode: Mode,
        for_user: Option<ForUser>,
        checksum: Option<u32>,
        command: &Command<'_>,
    ) -> Result<Self, SubmitError> {
        if !mode.is_write() && !command.is_read_only() {
            return Err(SubmitError::NotARead);
        }
        // Any check has the length of the one that is made below.
        let some_check = check_of(0);
        let envelope = ClientRequest {
            for_user,
            check: if mode.is_write() {
                some_check
            } else {
                NO_CHECK
            },
            ..ClientRequest::bare(mode.operation())
        };
        let front = envelope.header_len();
        let bytes = front + command.encoded_len();
        let mut request = pool.alloc(bytes).ok_or(SubmitError::NoBuffer { bytes })?;
        let written = command.encode_into(&mut request[front..]);
        assert!(written.is_ok(), "the buffer has the encoded length");
        let envelope = ClientRequest {
            check: match mode.is_write() {
                true => check_of(checksum.unwrap_or_else(|| command_checksum(&request[front..]))),
                false => NO_CHECK,
            },
            ..envelope
        };
        envelope.encode_to_slice(&mut request[..front]);
        Ok(Self {
            mode,
            expected_bytes: crate::ranges::expected_bytes(command),
            request,
        })
    }

    /// Makes room for a response of this many bytes. A response that does not fit costs a second
    /// attempt.
    #[must_use]
    pub fn expecting(self, response_bytes: usize) -> Self {
        let expected_bytes = response_bytes.min(RESPONSE_BYTES_MAX - CLIENT_REPLY_HEADER_SIZE);
        Self {
            expected_bytes,
            ..self
        }
    }
}

/// Why an operation did not begin.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum SubmitError {
    /// This process is a child, by `fork`, of the one that opened the client. Nothing was sent, and nothing ever will be:
    /// open a new client.
    #[error("not applied: {OTHER_PROCESS}")]
    OtherProcess,
    /// As many operations as one client may have are in flight: take an outcome first.
    #[error("{IN_FLIGHT_MAX} operations of this client are in flight: wait for one of them")]
    InFlight,
    /// The endpoint has as many operations as it may have.
    #[error("{OPERATIONS_MAX} operations are in flight: wait for some of them")]
    TooMany,
    /// The client was closed, or never was.
    #[error("the client is closed")]
    Closed,
    /// The command is a write and the mode is a read.
    #[error("a command that changes something cannot be done as a read")]
    NotARead,
    /// The command exceeds what a message buffer can hold, or no buffer is left.
    #[error("no message buffer for a command of {bytes} bytes")]
    NoBuffer {
        /// Length of the encoded request.
        bytes: usize,
    },
}

impl<R: Route> Clients<R> {
    /// Begins an operation; its end comes out of [`Clients::poll_finished`].
    ///
    /// # Errors
    /// When it cannot be begun; nothing has happened then.
    pub fn submit(
        &mut self,
        now: Instant,
        client: ClientId,
        submission: Submission<'_>,
    ) -> Result<(), SubmitError> {
        self.check_room(client)?;
        let command = EncodedCommand::new(&self.pool, submission.mode, submission.command)?;
        self.begin(now, client, command, submission.deadline, submission.tag)
    }

    /// Begins an operation for another user: replicas believe this of members and fronts.
    ///
    /// # Errors
    /// When it cannot be begun; nothing has happened then.
    pub fn submit_for(
        &mut self,
        now: Instant,
        client: ClientId,
        for_user: ForUser,
        submission: Submission<'_>,
    ) -> Result<(), SubmitError> {
        self.check_room(client)?;
        let (mode, for_user) = (submission.mode, Some(for_user));
        let command = EncodedCommand::for_user(&self.pool, mode, for_user, submission.command)?;
        self.begin(now, client, command, submission.deadline, submission.tag)
    }

    /// Begins an operation whose command is encoded already.
    ///
    /// # Errors
    /// When it cannot be begun; nothing has happened then.
    pub fn submit_encoded(
        &mut self,
        now: Instant,
        client: ClientId,
        command: EncodedCommand,
        deadline: Option<Instant>,
        tag: u64,
    ) -> Result<(), SubmitError> {
        self.check_room(client)?;
        self.begin(now, client, command, deadline, tag)
    }

    /// Begins an operation for which there is room.
    #[inline(always)]
    fn begin(
        &mut self,
        now: Instant,
        client: ClientId,
        command: EncodedCommand,
        deadline: Option<Instant>,
        tag: u64,
    ) -> Result<(), SubmitError> {
        let waits = command.mode.is_write();
        let deadline = deadline.unwrap_or(now + self.config.operation_timeout);
        let pending = self.pending_command(client, command, (now, deadline), tag);
        self.start(now, client, pending, waits)
    }

    /// The operation of a command, which begins now and ends at the deadline.
    #[inline(always)]
    pub(super) fn pending_command(
        &mut self,
        client: ClientId,
        command: EncodedCommand,
        (now, deadline): (Instant, Instant),
        tag: u64,
    ) -> Pending {
        let EncodedCommand {
            mode,
            expected_bytes,
            request,
        } = command;
        let mut pending = self.pending(client.0, mode.operation(), request, now, deadline, tag);
        pending.queue = OperationQueue::of(mode);
        pending.times.timed = mode.is_write() && self.next_is_timed();
        pending.room.expect(expected_bytes);
        pending
    }

    /// Starts an operation for which there is room. `waits`: only with the client's own session.
    #[inline(always)]
    pub(super) fn start(
        &mut self,
        now: Instant,
        client: ClientId,
        pending: Pending,
        waits: bool,
    ) -> Result<(), SubmitError> {
        let deadline = pending.times.deadline;
        let ends_own_session =
            pending.operation == Operation::ApplyAndClose && pending.ticket.is_none();
        let key = self.operations.insert(pending);
        let key = key.ok_or(SubmitError::TooMany)?;
        let logical = self.logical.get_mut(client.0).ok_or(SubmitError::Closed)?;
        logical.in_flight += 1;
        assert!(logical.in_flight <= IN_FLIGHT_MAX, "room was looked for");
        logical.closing |= ends_own_session;
        self.operations.check_by(deadline);
        if waits {
            logical.waiting.push_back(key);
            self.admit(now, client.0);
        } else {
            self.operations.make_ready(key);
        }
        Ok(())
    }

    /// Whether the write that is begun now is one of those that are timed.
    fn next_is_timed(&mut self) -> bool {
        let Some(every) = self.config.time_every.checked_sub(1) else {
            return false;
        };
        let timed = self.until_timed == 0;
        self.until_timed = if timed { every } else { self.until_timed - 1 };
        timed
    }

    pub(super) fn check_room(&self, client: ClientId) -> Result<(), SubmitError> {
        if !self.is_here() {
            return Err(SubmitError::OtherProcess);
        }
        let logical = self
            .logical
            .get(client.0)
            .filter(|logical| !logical.closing)
            .ok_or(SubmitError::Closed)?;
        if logical.in_flight >= IN_FLIGHT_MAX {
            return Err(SubmitError::InFlight);
        }
        if self.operations.is_full() {
            return Err(SubmitError::TooMany);
        }
        Ok(())
    }
}
