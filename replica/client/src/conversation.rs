//! One session with one replica, and one question that is outstanding there.
//!
//! ```text
//!        connect              Connected        ask
//! down ----------> connecting ---------> idle -----> asking
//!   ^                  |                  ^ |           |
//!   |                  |                  | +-- leave --+
//!   |                  |                  +- completion +
//!   +------------------+-- failed, or the session is down
//! ```
//! It sends nothing by itself and calls nobody back: it says what is due and what an event or a completion means to it.
//! Its owner decides what follows: another question, a pause, or the next replica.

use trine_protocol::message::Encode;
use trine_transport::backend::Route;
use trine_transport::session::{ConnectError, DownReason};
use trine_transport::time::{Duration, Instant};
use trine_transport::{ConnectParams, Cx, Event, SessionId};

use crate::outcome::Obstacle;

/// Pause before a question is repeated for which there was no memory.
pub(crate) const PAUSE: Duration = Duration::from_millis(100);

/// A session with one replica.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ReplicaSession {
    Down,
    Connecting(SessionId),
    /// Questions can be sent.
    Up(SessionId),
}

/// What has become of a session.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum SessionChange {
    Up(SessionId),
    NotReached(ConnectError),
    Lost(DownReason),
}

impl SessionChange {
    /// Why there is no session now, if there is none.
    pub(crate) fn obstacle(self) -> Option<Obstacle> {
        match self {
            Self::Up(_) => None,
            Self::NotReached(reason) => Some(reason.into()),
            Self::Lost(_) => Some(Obstacle::NoAnswer),
        }
    }
}

impl ReplicaSession {
    /// The session, if questions can be sent.
    pub(crate) const fn up(self) -> Option<SessionId> {
        match self {
            Self::Up(session) => Some(session),
            Self::Down | Self::Connecting(_) => None,
        }
    }

    const fn any(self) -> Option<SessionId> {
        match self {
            Self::Down => None,
            Self::Connecting(session) | Self::Up(session) => Some(session),
        }
    }

    /// Begins to connect. False if that failed at once.
    pub(crate) fn connect<R: Route>(
        &mut self,
        cx: &mut Cx<'_, R>,
        route: R,
        params: ConnectParams,
    ) -> bool {
        assert_eq!(*self, Self::Down, "there is one session at a time");
        match cx.connect(route, params) {
            Ok(session) => *self = Self::Connecting(session),
            Err(_) => return false,
        }
        true
    }

    /// The meaning of an event for this session, if it has one.
    pub(crate) fn on_event<R: Route>(&mut self, event: &Event<R>) -> Option<SessionChange> {
        let own = self.any();
        match *event {
            Event::Connected { session, .. } if own == Some(session) => {
                *self = Self::Up(session);
                Some(SessionChange::Up(session))
            }
            Event::ConnectFailed {
                session, reason, ..
            } if own == Some(session) => {
                *self = Self::Down;
                Some(SessionChange::NotReached(reason))
            }
            Event::Down { session, reason } if own == Some(session) => {
                *self = Self::Down;
                Some(SessionChange::Lost(reason))
            }
            _ => None,
        }
    }

    /// Ends the session, so that the replica need not wait until it times out.
    pub(crate) fn leave<R: Route>(&mut self, cx: &mut Cx<'_, R>) {
        if let Some(session) = self.any() {
            cx.disconnect(session);
        }
        *self = Self::Down;
    }
}

/// A question without its message.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Question {
    /// The kind of message.
    pub(crate) kind: u8,
    /// Bytes of the longest answer.
    pub(crate) room: usize,
    /// It fails when no answer has come by then.
    pub(crate) deadline: Instant,
}

impl Question {
    /// Sends a message. False if there is no memory for it, or no place for one more request: the caller tries again.
    pub(crate) fn send<R: Route>(
        self,
        cx: &mut Cx<'_, R>,
        session: SessionId,
        tag: u64,
        message: &impl Encode,
    ) -> bool {
        let buffers = (cx.alloc(message.encoded_len()), cx.alloc(self.room));
        let (Some(mut bytes), Some(response)) = buffers else {
            return false;
        };
        message.encode_to_slice(&mut bytes);
        let deadline = Some(self.deadline);
        cx.enqueue_request(session, self.kind, bytes, response, tag, deadline)
            .is_ok()
    }
}

/// What a conversation waits for, from its owner.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Due {
    Connection,
    Question,
}

/// A conversation with one replica at a time.
///
/// Invariant: a question is outstanding only on a session that is up. Its tag is never used again, so the completion of
/// an earlier question means nothing.
#[derive(Debug)]
pub(crate) struct Conversation {
    session: ReplicaSession,
    /// The outstanding question's tag, and when it was sent.
    asked: Option<(u64, Instant)>,
    last_tag: u64,
    /// Nothing is due before this.
    resume_at: Instant,
}

impl Conversation {
    /// None has begun. Its tags follow `tag`.
    pub(crate) const fn after(tag: u64) -> Self {
        Self {
            session: ReplicaSession::Down,
            asked: None,
            last_tag: tag,
            resume_at: Instant::ZERO,
        }
    }

    /// What comes next, if nothing has to be awaited first.
    pub(crate) fn due(&self, now: Instant) -> Option<Due> {
        self.next_timeout().filter(|&at| at <= now)?;
        Some(match self.session {
            ReplicaSession::Down => Due::Connection,
            ReplicaSession::Connecting(_) | ReplicaSession::Up(_) => Due::Question,
        })
    }

    /// When something is due. Nothing while an event or a completion is awaited.
    pub(crate) fn next_timeout(&self) -> Option<Instant> {
        let waits = matches!(self.session, ReplicaSession::Connecting(_)) || self.asked.is_some();
        (!waits).then_some(self.resume_at)
    }

    pub(crate) fn is_up(&self) -> bool {
        self.session.up().is_some()
    }

    pub(crate) fn is_down(&self) -> bool {
        self.session == ReplicaSession::Down
    }

    /// When the outstanding question was sent.
    pub(crate) fn asked_at(&self) -> Option<Instant> {
        self.asked.map(|(_, at)| at)
    }

    /// Begins to connect. False if that failed at once.
    pub(crate) fn connect<R: Route>(
        &mut self,
        cx: &mut Cx<'_, R>,
        route: Option<R>,
        patience: Duration,
    ) -> bool {
        let params = ConnectParams {
            timeout: Some(patience),
            ..ConnectParams::default()
        };
        route.is_some_and(|route| self.session.connect(cx, route, params))
    }

    /// Asks. False if it could not be sent: it is due again after a pause.
    pub(crate) fn ask<R: Route>(
        &mut self,
        cx: &mut Cx<'_, R>,
        question: Question,
        message: &impl Encode,
    ) -> bool {
        assert!(self.asked.is_none(), "one question at a time");
        let session = self.session.up().expect("questions need a session");
        self.last_tag += 1;
        let sent = question.send(cx, session, self.last_tag, message);
        match sent {
            true => self.asked = Some((self.last_tag, cx.now())),
            false => self.pause(cx.now(), PAUSE),
        }
        sent
    }

    /// Whether the outstanding question has ended with this completion.
    pub(crate) fn on_completion(&mut self, tag: u64) -> bool {
        let is_own = self.asked.take_if(|(asked, _)| *asked == tag).is_some();
        assert!(
            !is_own || self.is_up(),
            "a question is outstanding on a session that is up"
        );
        is_own
    }

    /// The meaning of an event for this conversation, if it has one.
    pub(crate) fn on_event<R: Route>(&mut self, event: &Event<R>) -> Option<SessionChange> {
        let change = self.session.on_event(event)?;
        self.asked = None;
        Some(change)
    }

    /// Nothing is due for a while.
    pub(crate) fn pause(&mut self, now: Instant, pause: Duration) {
        self.resume_at = now + pause;
    }

    /// Ends the session. The next one may be with another replica.
    pub(crate) fn leave<R: Route>(&mut self, cx: &mut Cx<'_, R>) {
        self.session.leave(cx);
        self.asked = None;
    }
}
