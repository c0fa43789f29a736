//! How calls, connects and starts fail.

use std::fmt;

use super::message::DecodeError;
use trine_transport::backend::{BackendError, OTHER_PROCESS};
use trine_transport::config::ConfigError;
use trine_transport::session::{ConnectError, ConnectRefused};

/// Why a call has no response. [`CallError::may_have_run`] tells whether it may be repeated without
/// a second thought.
///
/// ```
/// use trine_rpc::{CallError, CallRefusal, NotSent};
///
/// assert!(!CallError::NotSent(NotSent::SessionOver).may_have_run());
/// assert!(!CallError::Refused(CallRefusal::Overloaded).may_have_run());
/// assert!(CallError::OutcomeUnknown.may_have_run());
/// ```
#[derive(Copy, Clone, Debug, Eq, PartialEq)]
pub enum CallError {
    /// No packet of it left: the handler did not run.
    NotSent(NotSent),
    /// The server answered, but did not run the handler.
    Refused(CallRefusal),
    /// The session ended while it was in flight: the handler ran once or never.
    OutcomeUnknown,
    /// Its deadline passed; the handler ran once or never.
    DeadlineExceeded,
    /// The handler ran, but its response is larger than `Rpc::RESPONSE_BYTES_MAX` or than a message
    /// can be.
    ResponseTooLarge,
    /// The handler ran, but gave no answer: it dropped its `Responder`, or its server had no memory.
    Unanswered,
    /// The handler ran, but its answer is no value of the response type.
    BadResponse(DecodeError),
}

/// Why no packet of a call left.
#[derive(Copy, Clone, Debug, Eq, PartialEq)]
pub enum NotSent {
    /// As many calls as `Builder::calls` allows are under way, or the session's queue is full: wait
    /// for some of them.
    TooManyCalls,
    /// The pool has no memory for the request or the response.
    NoMemory,
    /// The request is larger than `Config::message_bytes`.
    RequestTooLarge,
    /// The session is over: connect again.
    SessionOver,
    /// The node has stopped.
    Stopped,
    /// The node belongs to the process that forked this one: start another node here.
    OtherProcess,
}

/// Why a server did not run a handler.
#[derive(Copy, Clone, Debug, Eq, PartialEq)]
pub enum CallRefusal {
    /// It has none for this request type.
    UnknownType,
    /// The request is no value of the type that its handler takes.
    BadRequest,
    /// It has no room for another request at the moment.
    Overloaded,
}

impl CallError {
    /// False if the handler certainly did not run: calling again does nothing twice.
    #[must_use]
    pub fn may_have_run(&self) -> bool {
        !matches!(self, Self::NotSent(_) | Self::Refused(_))
    }
}

impl fmt::Display for CallError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotSent(reason) => write!(f, "the request was not sent: {reason}"),
            Self::Refused(reason) => write!(f, "the server refused the request: {reason}"),
            Self::OutcomeUnknown => f.write_str(
                "the session ended before the response came; whether the handler ran is unknown",
            ),
            Self::DeadlineExceeded => f.write_str("the deadline passed before the response came"),
            Self::ResponseTooLarge => {
                f.write_str("the response is too large; raise Rpc::RESPONSE_BYTES_MAX of its type")
            }
            Self::Unanswered => f.write_str("the handler ran but gave no answer"),
            Self::BadResponse(error) => write!(f, "the response was not understood: {error}"),
        }
    }
}

impl fmt::Display for NotSent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::TooManyCalls => {
                "too many calls are under way; wait for some, or raise Builder::calls"
            }
            Self::NoMemory => "the backend's pool has no memory left",
            Self::RequestTooLarge => "it is larger than Config::message_bytes",
            Self::SessionOver => "the session is over; connect again",
            Self::Stopped => "the node has stopped",
            Self::OtherProcess => OTHER_PROCESS,
        })
    }
}

impl fmt::Display for CallRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::UnknownType => "it has no handler for this request type",
            Self::BadRequest => "the request is malformed",
            Self::Overloaded => "it has no room for another request at the moment",
        })
    }
}

impl std::error::Error for CallError {}

/// Why there is no session.
///
/// ```
/// use trine_transport::ConnectError;
/// use trine_rpc::SessionError;
///
/// let error = SessionError::Failed(ConnectError::TimedOut);
/// assert!(error.to_string().contains("nobody answered"));
/// ```
#[derive(Copy, Clone, Debug, Eq, PartialEq)]
pub enum SessionError {
    /// This node has no room for it, or the wishes are out of range.
    Refused(ConnectRefused),
    /// The handshake failed.
    Failed(ConnectError),
    /// As many calls and connects as `Builder::calls` allows are under way.
    TooManyCalls,
    /// The node has stopped.
    Stopped,
    /// The node belongs to the process that forked this one: start another node here.
    OtherProcess,
}

impl fmt::Display for SessionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused(ConnectRefused::TooManySessions) => {
                f.write_str("Config::sessions are in use; close some or raise it")
            }
            Self::Refused(ConnectRefused::NoCredits) => f.write_str(
                "the receive queue has no room for another session's credits; ask for fewer, or set Config::overcommit",
            ),
            Self::Refused(ConnectRefused::BadParams) => {
                f.write_str("credits must be 1 to 1024 and slots 1 to 64")
            }
            Self::Failed(ConnectError::TimedOut) => {
                f.write_str("nobody answered in time; is the server up and the address right?")
            }
            Self::Failed(ConnectError::WrongCluster { theirs }) => {
                write!(f, "the server belongs to another group, {theirs:#x}")
            }
            Self::Failed(ConnectError::VersionMismatch { theirs }) => {
                write!(f, "the server speaks version {theirs} of the protocol")
            }
            Self::Failed(ConnectError::PeerFull) => {
                f.write_str("the server has no room for another session")
            }
            Self::Failed(ConnectError::BadTerms { term, nearest }) => {
                write!(
                    f,
                    "the server makes no session with this {term}; the nearest that it takes is {nearest}"
                )
            }
            Self::Failed(ConnectError::Key(obstacle)) => {
                write!(f, "the server made no session: {obstacle}")
            }
            Self::Failed(ConnectError::OtherReason { code }) => {
                write!(
                    f,
                    "the server refused the session for reason {code}, which this release does not know"
                )
            }
            Self::Failed(ConnectError::Cancelled) => f.write_str("the connect was taken back"),
            Self::TooManyCalls => NotSent::TooManyCalls.fmt(f),
            Self::Stopped => NotSent::Stopped.fmt(f),
            Self::OtherProcess => NotSent::OtherProcess.fmt(f),
        }
    }
}

impl std::error::Error for SessionError {}

/// Why a node did not start.
#[derive(Debug)]
pub enum StartError {
    /// The configuration contradicts itself or the backend.
    Config(ConfigError),
    /// Two handlers are registered for this request type.
    KindTwice(u8),
    /// The operating system gave no thread or no random numbers.
    System(std::io::Error),
}

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Config(error) => error.fmt(f),
            Self::KindTwice(kind) => write!(
                f,
                "two handlers are registered for request type {kind}; give each Rpc a KIND of its own"
            ),
            Self::System(error) => write!(f, "the operating system refused: {error}"),
        }
    }
}

impl std::error::Error for StartError {}

/// How a node ended, if not because it was asked to.
#[derive(Debug)]
pub enum NodeError {
    /// The backend became unusable.
    Backend(BackendError),
    /// A handler panicked.
    Panicked,
}

impl fmt::Display for NodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Backend(error) => error.fmt(f),
            Self::Panicked => f.write_str("a handler panicked"),
        }
    }
}

impl std::error::Error for NodeError {}
