//! Sessions that the caller keeps: it opens them, hands them on, and numbers their commands itself.
//!
//! A front for another protocol needs this. Its own clients repeat a command over other connections and other fronts. So
//! they have to name the session and the sequence, and a front must not keep a window for them. An operation of this
//! kind is repeated over changes of leader as every other one, always under its sequence.

use trine_canary as canary;
use trine_protocol::message::{ClientRequest, Encode, ForUser, Operation};
use trine_transport::backend::Route;
use trine_transport::time::Instant;

use super::{ClientId, Clients, EncodedCommand, SubmitError};
use crate::config::IN_FLIGHT_MAX;
use crate::logical::NamedSession;
use crate::operation::{Numbering, Ticket};

/// The place of a command in a session that its caller keeps.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Numbered {
    /// The session.
    pub session: NamedSession,
    /// From 1. The same for each copy of a command.
    pub sequence: u64,
    /// The lowest sequence whose answer may still be asked for: at most `sequence`, and less than [`IN_FLIGHT_MAX`]
    /// below it.
    pub lowest: u64,
}

impl<R: Route> Clients<R> {
    /// Begins to open a session that the caller keeps, for another user if one is named. Later requests prove by
    /// `number` whose the session is, so it must be hard to guess. The position of the answer is the client id. Until
    /// then the registration counts as one operation of `client`.
    ///
    /// # Errors
    /// When it cannot be begun; nothing has happened then.
    ///
    /// # Panics
    /// When `number` is zero.
    pub fn open_session(
        &mut self,
        now: Instant,
        client: ClientId,
        number: u64,
        for_user: Option<ForUser>,
        tag: u64,
    ) -> Result<(), SubmitError> {
        assert_ne!(number, 0, "zero would prove nothing");
        self.check_room(client)?;
        let envelope = ClientRequest {
            client: number,
            for_user,
            ..ClientRequest::bare(Operation::Register)
        };
        let bytes = envelope.header_len();
        let request = self.pool.alloc(bytes);
        let mut request = request.ok_or(SubmitError::NoBuffer { bytes })?;
        envelope.encode_to_slice(&mut request);
        // In a registration the number stands where later requests have the client id.
        let session = NamedSession {
            client: number,
            number: 0,
        };
        let deadline = now + self.config.operation_timeout;
        let mut pending = self.pending(client.0, Operation::Register, request, now, deadline, tag);
        pending.ticket = Some(Ticket {
            session,
            sequence: 0,
            numbering: Numbering::Caller { lowest: 0 },
        });
        self.start(now, client, pending, false)
    }

    /// Begins a write in a session that the caller keeps. If the session refuses it, the obstacle is
    /// [`Obstacle::NamedSession`](crate::Obstacle::NamedSession).
    ///
    /// # Errors
    /// When it cannot be begun; nothing has happened then.
    ///
    /// # Panics
    /// When the command is a read, or the sequence is not in the window above the lowest one.
    pub fn submit_numbered(
        &mut self,
        now: Instant,
        client: ClientId,
        command: EncodedCommand,
        numbered: Numbered,
        tag: u64,
    ) -> Result<(), SubmitError> {
        let Numbered {
            session,
            sequence,
            lowest,
        } = numbered;
        assert!(command.mode.is_write(), "reads have no sequence");
        assert!(lowest >= 1 && lowest <= sequence, "its answer is awaited");
        assert!(
            sequence - lowest < IN_FLIGHT_MAX as u64,
            "a session awaits no more"
        );
        if canary::planted("TRINE.DO looks at the connection") {
            return self.submit_encoded(now, client, command, None, tag);
        }
        self.check_room(client)?;
        let deadline = now + self.config.operation_timeout;
        let mut pending = self.pending_command(client, command, (now, deadline), tag);
        pending.ticket = Some(Ticket {
            session,
            sequence,
            numbering: Numbering::Caller { lowest },
        });
        // A write names its cluster. Where that is not known yet, the client opens its own session first, which tells.
        let waits = self.group.cluster().is_none() && !self.group.is_awaiting_pin();
        self.start(now, client, pending, waits)
    }
}
