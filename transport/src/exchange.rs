//! A request and its answer as a program sees them: the values that it hands over and gets back, and the errors.

use crate::buf::MsgBuf;
use crate::session::api::SessionId;
use crate::time::Instant;

/// A request as its handler sees it.
#[derive(Debug)]
pub struct Request<'a> {
    /// The server end of the session that brought it.
    pub session: SessionId,
    /// The request type.
    pub kind: u8,
    /// The message; for a single-packet request these bytes are the received packet itself.
    pub data: &'a [u8],
    /// Names this request in [`Cx::enqueue_response`](crate::Cx::enqueue_response).
    pub handle: ResponseHandle,
    /// After this moment no caller waits for the answer.
    pub deadline: Option<Instant>,
}

/// A handler's answer.
#[derive(Debug)]
pub enum Reply {
    /// The response.
    Now(MsgBuf),
    /// The response follows through `enqueue_response` with the request's handle.
    Later,
}

/// The end of a request: its outcome and both buffers.
#[derive(Debug)]
pub struct Completion {
    /// `Ok` means that `response` holds the peer's answer, its length set.
    pub result: Result<(), RpcError>,
    /// The request buffer, unchanged.
    pub request: MsgBuf,
    /// The response buffer; its content counts only with `Ok`.
    pub response: MsgBuf,
}

/// Why a request has no response.
#[derive(Copy, Clone, Debug, Eq, PartialEq, Hash)]
pub enum RpcError {
    /// No packet of it left this endpoint: the handler did not run.
    NotSent,
    /// The session ended while it was in flight: the handler ran once or never.
    OutcomeUnknown,
    /// Its deadline passed; the handler ran once or never.
    DeadlineExceeded,
    /// The caller cancelled it; the handler ran once or never.
    Cancelled,
    /// The handler ran, but its response does not fit the response buffer.
    ResponseTooLarge {
        /// Bytes of the response.
        bytes: usize,
    },
}

impl std::fmt::Display for RpcError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::NotSent => "the request was not sent",
            Self::OutcomeUnknown => {
                "the session ended before the response came; the outcome is unknown"
            }
            Self::DeadlineExceeded => "the deadline passed before the response came",
            Self::Cancelled => "the request was cancelled",
            Self::ResponseTooLarge { .. } => "the response does not fit its buffer",
        })
    }
}

impl std::error::Error for RpcError {}

/// Names a request of this endpoint until its completion.
#[derive(Copy, Clone, Debug, Eq, PartialEq, Hash)]
pub struct RequestId {
    pub(crate) index: u32,
    pub(crate) generation: u32,
}

/// Names a received request until its response; late uses are detected and refused.
#[derive(Copy, Clone, Debug, Eq, PartialEq, Hash)]
pub struct ResponseHandle {
    pub(crate) session: SessionId,
    pub(crate) slot: u8,
    pub(crate) sequence: u64,
}

impl ResponseHandle {
    /// The session that brought the request.
    #[must_use]
    pub fn session(&self) -> SessionId {
        self.session
    }

    /// The slot of that session that the request occupies until it is answered.
    #[must_use]
    pub fn slot(&self) -> u8 {
        self.slot
    }
}

/// A request that was not accepted, with its buffers.
#[derive(Debug)]
pub struct Refused {
    /// Why.
    pub reason: RefusedReason,
    /// The request buffer.
    pub request: MsgBuf,
    /// The response buffer.
    pub response: MsgBuf,
}

/// Why a request was not accepted.
#[derive(Copy, Clone, Debug, Eq, PartialEq)]
pub enum RefusedReason {
    /// The session is gone, closing, or is the server end.
    NoSession,
    /// The session's or the endpoint's queue is full.
    QueueFull,
    /// The message is larger than `Config::message_bytes`.
    RequestTooLarge,
    /// The deadline has already passed.
    DeadlineExceeded,
}

/// A response that no caller waits for any more, with its buffer.
#[derive(Debug)]
pub struct Stale {
    /// The response buffer.
    pub response: MsgBuf,
}
