//! One connected client: its socket, its connection, and what is still open between them.

use std::net::IpAddr;

use mio::event::Event;
use trine_resp::Connection;
use trine_transport::time::{Duration, Instant};

use super::super::auth::Claim;
use super::super::stream::Stream;

/// The limits in time and bytes for data from a client that broke the protocol. Closing the connection earlier would
/// reset it, and the client would lose the error message.
const DRAIN_TIME: Duration = Duration::from_secs(2);
const DRAIN_BYTES_MAX: usize = 64 << 20;

/// A client.
pub(in super::super) struct Client {
    pub(in super::super) stream: Stream,
    pub(in super::super) connection: Connection,
    pub(super) peer: IpAddr,
    pub(super) readiness: Readiness,
    /// It is among those that have something to do.
    pub(super) queued: bool,
    pub(super) claims: Claims,
    pub(super) deadlines: Deadlines,
    /// Bytes that it holds, as of when they were counted last.
    pub(super) held: usize,
    counted: Counted,
}

/// What the socket has reported. The kernel does so once for each change.
pub(super) struct Readiness {
    pub(super) readable: bool,
    pub(super) writable: bool,
    /// The peer's end was reported, so a short read may not be the last one.
    pub(super) peer_ended: bool,
}

/// Which user the client says it is.
#[derive(Default)]
pub(super) struct Claims {
    /// The password was right, and the group is still to be asked.
    pub(super) verified: Option<Claim>,
    /// The group is asked.
    pub(super) asked: Option<Claim>,
    /// As which user the client has come last.
    pub(super) came_as: Option<Claim>,
}

/// Times that end a connection.
#[derive(Default)]
pub(super) struct Deadlines {
    /// Since then the client has read none of its waiting replies.
    pub(super) blocked_since: Option<Instant>,
    /// By then the keys of TLS have to be agreed on.
    pub(super) handshake_until: Option<Instant>,
    /// The client has its last reply; its further data is discarded.
    pub(super) drain: Option<Drain>,
}

/// The remaining limits for a client that broke the protocol.
pub(super) struct Drain {
    pub(super) until: Instant,
    pub(super) bytes_left: usize,
}

/// Errors of the connection that the counters already include.
#[derive(Default)]
struct Counted {
    errors: u64,
    auth_failures: u64,
}

impl Client {
    /// A client that may have sent something already.
    pub(super) fn new(
        stream: Stream,
        connection: Connection,
        peer: IpAddr,
        handshake_until: Option<Instant>,
    ) -> Self {
        Self {
            stream,
            connection,
            peer,
            readiness: Readiness {
                readable: true,
                writable: true,
                peer_ended: false,
            },
            queued: false,
            claims: Claims::default(),
            deadlines: Deadlines {
                handshake_until,
                ..Deadlines::default()
            },
            held: 0,
            counted: Counted::default(),
        }
    }

    /// Whether it has to be looked at after some time, even if nothing happens at its socket.
    pub(super) fn has_deadline(&self) -> bool {
        let Deadlines {
            blocked_since,
            handshake_until,
            drain,
        } = &self.deadlines;
        blocked_since.is_some() || handshake_until.is_some() || drain.is_some()
    }

    /// Tells the client that no more replies follow, and lets it finish sending.
    pub(super) fn begin_drain(&mut self, now: Instant) {
        // The next read notices a client that has gone.
        let _ = self.stream.end_writing();
        self.readiness.readable = true;
        self.deadlines.drain = Some(Drain {
            until: now + DRAIN_TIME,
            bytes_left: DRAIN_BYTES_MAX,
        });
    }

    /// Error replies since the last call.
    pub(super) fn take_errors(&mut self) -> u64 {
        let all = self.connection.errors();
        all - std::mem::replace(&mut self.counted.errors, all)
    }

    /// Wrong passwords and keys since the last call.
    pub(super) fn take_auth_failures(&mut self) -> u64 {
        let all = self.connection.auth_failures();
        all - std::mem::replace(&mut self.counted.auth_failures, all)
    }
}

impl Readiness {
    /// Takes what an event says.
    pub(super) fn note(&mut self, event: &Event) {
        let ended = event.is_read_closed() || event.is_error();
        self.readable |= event.is_readable() || ended;
        self.peer_ended |= ended;
        self.writable |= event.is_writable();
    }
}
