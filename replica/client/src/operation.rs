//! One operation under way: its kind, its progress, and the certain facts about it.

use trine_protocol::message::{CLIENT_REPLY_HEADER_SIZE, Operation};
use trine_transport::app::RequestId;
use trine_transport::buf::MsgBuf;
use trine_transport::slab::Key;
use trine_transport::time::{Duration, Instant};

use super::logical::NamedSession;
use super::outcome::{Error, Obstacle};

/// How an operation is to be done.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Mode {
    /// Through the log, exactly once.
    Write,
    /// Through the log, as the client's last command: its session ends with it.
    WriteAndClose,
    /// A read of the committed state.
    Read,
    /// The same, read at a follower, which asks the leader for the commit index. If no follower can be reached, the
    /// leader does it.
    ReadFollower,
    /// The same, read at each replica by rotation.
    ReadAnywhere,
    /// A read of any replica's applied state, also without a leader or a quorum.
    ReadStale,
}

impl Mode {
    pub(super) const fn is_write(self) -> bool {
        matches!(self, Self::Write | Self::WriteAndClose)
    }

    pub(super) const fn operation(self) -> Operation {
        match self {
            Self::Write => Operation::Apply,
            Self::WriteAndClose => Operation::ApplyAndClose,
            Self::Read => Operation::ReadLinearizable,
            Self::ReadFollower | Self::ReadAnywhere => Operation::ReadHere,
            Self::ReadStale => Operation::ReadStale,
        }
    }
}

/// Operations that can share a batch: they end at about the same time and go to the same replica.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum OperationQueue {
    /// Through the log.
    Write,
    /// Linearizable reads.
    Read,
    /// Reads that any replica can do; the leader is asked first.
    Stale,
    /// Linearizable reads that a follower is to do.
    Follower,
    /// Linearizable reads that replicas do by rotation.
    Anywhere,
}

impl OperationQueue {
    pub(super) const COUNT: usize = 5;

    pub(super) const fn of(mode: Mode) -> Self {
        match mode {
            Mode::Write | Mode::WriteAndClose => Self::Write,
            Mode::Read => Self::Read,
            Mode::ReadStale => Self::Stale,
            Mode::ReadFollower => Self::Follower,
            Mode::ReadAnywhere => Self::Anywhere,
        }
    }
}

/// The progress of an operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum OperationStage {
    /// A write that has no sequence yet: its client is not registered, or its window is full.
    Waiting,
    /// Can be sent; its key is in one of the ready queues.
    Ready,
    /// One attempt is under way, alone or in a batch; the transport owes a completion.
    Sent {
        peer: usize,
        request: RequestId,
        at: Instant,
    },
}

/// The session and sequence under which a write is done.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Ticket {
    pub(super) session: NamedSession,
    pub(super) sequence: u64,
    pub(super) numbering: Numbering,
}

/// Who numbers the writes of a session.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Numbering {
    /// The logical client: this is the one with that epoch of its sessions.
    Client { epoch: u32 },
    /// The caller, who also says which sequence is the lowest that it still awaits. A registration that the caller has
    /// asked for has sequence 0.
    Caller { lowest: u64 },
}

impl Ticket {
    /// Whether it belongs to the logical client's session with this epoch.
    pub(super) fn is_of_epoch(&self, present: u32) -> bool {
        match self.numbering {
            Numbering::Client { epoch } => epoch == present,
            Numbering::Caller { .. } => false,
        }
    }

    /// Whether the caller has numbered the write.
    pub(super) const fn is_of_caller(&self) -> bool {
        matches!(self.numbering, Numbering::Caller { .. })
    }
}

#[derive(Debug)]
pub(super) struct Pending {
    pub(super) owner: Key,
    pub(super) tag: u64,
    pub(super) operation: Operation,
    /// The queue for it when it is ready.
    pub(super) queue: OperationQueue,
    pub(super) stage: OperationStage,
    /// None exactly while an attempt is under way that is no part of a batch: the transport has it then.
    pub(super) request: Option<MsgBuf>,
    pub(super) room: ResponseRoom,
    /// None for reads, for the logical client's own registration, and for writes that wait.
    pub(super) ticket: Option<Ticket>,
    pub(super) times: OperationTimes,
    pub(super) so_far: SoFar,
}

/// The room for an operation's response.
#[derive(Clone, Copy, Debug)]
pub(super) struct ResponseRoom {
    /// Of the next attempt.
    pub(super) bytes: usize,
    /// Bytes of the room for large responses that the attempt under way takes.
    pub(super) reserved: usize,
    /// The response size in bytes that the caller expects; zero if it did not say.
    pub(super) expected: usize,
    /// Whether it must travel alone: a batch with it brought a reply that was too large.
    pub(super) alone: bool,
}

impl ResponseRoom {
    /// The caller expects a response of this many bytes.
    pub(super) fn expect(&mut self, bytes: usize) {
        self.expected = bytes;
        self.bytes = self.bytes.max(CLIENT_REPLY_HEADER_SIZE + bytes);
    }
}

#[derive(Clone, Copy, Debug)]
pub(super) struct OperationTimes {
    pub(super) started: Instant,
    /// When the last attempt left.
    pub(super) sent_at: Instant,
    /// Whether the reply shall include the time by stage.
    pub(super) timed: bool,
    pub(super) deadline: Instant,
}

/// What the attempts so far have left behind.
///
/// Invariant: a write that may be applied stays one that may be.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct SoFar {
    /// Whether an attempt of this write ended without saying that it was not executed.
    pub(super) may_be_applied: bool,
    /// The obstacle of the last attempt.
    pub(super) obstacle: Option<Obstacle>,
    /// Set when the deadline passed during an attempt: no further attempt is made.
    pub(super) given_up: bool,
}

impl Pending {
    /// The error with which the operation ends now, if it ends without an answer.
    pub(super) fn failure(&self, now: Instant, fallback: Obstacle) -> Error {
        let waited: Duration = now.saturating_since(self.times.started);
        let obstacle = self.so_far.obstacle.unwrap_or(fallback);
        if self.so_far.may_be_applied {
            Error::OutcomeUnknown { obstacle, waited }
        } else {
            Error::NotReachable { obstacle, waited }
        }
    }

    /// The error with which the operation ends now because `obstacle` will not go away.
    pub(super) fn refusal(&self, now: Instant, obstacle: Obstacle) -> Error {
        if self.so_far.may_be_applied {
            Error::OutcomeUnknown {
                obstacle,
                waited: now.saturating_since(self.times.started),
            }
        } else {
            Error::Refused { obstacle }
        }
    }

    /// Whether it opens the session of the logical client itself, and not one that the caller asked for.
    pub(super) fn is_own_registration(&self) -> bool {
        self.operation == Operation::Register && self.ticket.is_none()
    }

    /// Whether the caller has named the session and the sequence.
    pub(super) fn is_of_caller(&self) -> bool {
        self.ticket.is_some_and(|ticket| ticket.is_of_caller())
    }

    /// Whether no further attempt may be made.
    pub(super) fn is_over(&self, now: Instant) -> bool {
        self.so_far.given_up || self.times.deadline <= now
    }

    /// An attempt ended without an answer and may have been executed.
    pub(super) fn note_uncertain(&mut self) {
        self.so_far.may_be_applied |= self.operation.is_write();
    }
}
