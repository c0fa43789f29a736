//! A watch at one replica at a time: first the question where the group is, then one for changes after the other.
//!
//! A replica holds a question for changes until something happens. [`WatchSession`] keeps the position up to which
//! everything is known, also from one replica to the next. What an answer means beyond that is its owner's business.
//!
//! Invariant: questions for changes follow an answer to where the group is, and each goes on where the last answer ended.

use trine_kvstore::{Command, List, Position};
use trine_protocol::message::{
    CLIENT_REPLY_HEADER_SIZE, ClientReply, ClientRequest, ClientStatus, ClusterId, Encode,
    Operation, OtherVersion, WATCH_REPLY_BYTES, WATCH_STATUS_MIN, Watch, WatchReply, WatchRequest,
    kind,
};
use trine_transport::backend::Route;
use trine_transport::time::{Duration, Instant};
use trine_transport::{Completion, Cx, Event};

use super::objections::Objection;
use crate::conversation::{Conversation, Due, Question, SessionChange};
use crate::outcome::Obstacle;

/// How long a connection, and the question where the group is, may take.
const PATIENCE: Duration = Duration::from_secs(2);
/// A replica holds a request for ten seconds. One that has not answered after so long is given up.
const HELD_MAX: Duration = Duration::from_secs(15);
/// A replica that does not serve a watch says so in less.
const SERVED_AFTER: Duration = Duration::from_millis(500);
/// Bytes of an answer to a read of nothing.
const WHERE_BYTES: usize = CLIENT_REPLY_HEADER_SIZE + 1024;

/// What is watched, and how.
#[derive(Debug)]
pub struct WatchWish<'a> {
    /// The keys.
    pub watches: Vec<Watch<'a>>,
    /// Leave values out.
    pub keys_only: bool,
    /// A leader refuses, so that a follower is asked.
    pub prefer_follower: bool,
}

/// What a replica has said.
#[derive(Debug)]
pub enum WatchAnswer<'a> {
    /// Where the group is: whatever was acknowledged before is at this position or before it.
    Where {
        /// The replica's cluster.
        cluster: ClusterId,
        /// The position that it has applied.
        applied: Position,
    },
    /// Changes, or why there are none.
    Changes(WatchReply<'a>),
}

/// A watch, as a value without I/O.
#[derive(Debug)]
pub struct WatchSession {
    conversation: Conversation,
    /// Names this watcher at every replica.
    number: u64,
    /// Some as soon as it is known where the group is.
    begun: Option<WatchPlace>,
}

#[derive(Clone, Copy, Debug)]
struct WatchPlace {
    cluster: ClusterId,
    /// Everything up to here is known.
    whole: Position,
    /// And so many events of the next position.
    part: u32,
}

impl WatchSession {
    /// A watch that has not begun. `number` names it at the replicas. The tags of its requests follow `tag`.
    #[must_use]
    pub const fn new(number: u64, tag: u64) -> Self {
        Self {
            conversation: Conversation::after(tag),
            number: if number == 0 { 1 } else { number },
            begun: None,
        }
    }

    /// Connects or asks, if that is due. `wish` says for what. An error if no connection can be made.
    pub fn on_turn<'w, R: Route>(
        &mut self,
        cx: &mut Cx<'_, R>,
        route: impl FnOnce() -> Option<R>,
        wish: impl FnOnce() -> WatchWish<'w>,
    ) -> Result<(), Objection> {
        match (self.conversation.due(cx.now()), self.begun) {
            (None, _) => {}
            (Some(Due::Connection), _) => {
                if !self.conversation.connect(cx, route(), PATIENCE) {
                    return Err(Objection::Obstacle(Obstacle::NoConnection));
                }
            }
            (Some(Due::Question), None) => self.ask_where(cx),
            (Some(Due::Question), Some(begun)) => self.ask_changes(cx, begun, wish()),
        }
        Ok(())
    }

    /// Asks where the group is, by a linearizable read of nothing.
    fn ask_where<R: Route>(&mut self, cx: &mut Cx<'_, R>) {
        let mut command = Vec::new();
        let keys = List::default();
        Command::MultiGet { keys }.encode(&mut command);
        let request = ClientRequest {
            command: &command,
            ..ClientRequest::bare(Operation::ReadHere)
        };
        self.ask(cx, kind::CLIENT, WHERE_BYTES, PATIENCE, &request);
    }

    fn ask_changes<R: Route>(
        &mut self,
        cx: &mut Cx<'_, R>,
        begun: WatchPlace,
        wish: WatchWish<'_>,
    ) {
        let request = WatchRequest {
            cluster: begun.cluster,
            watcher: self.number,
            from: begun.whole.as_u64(),
            part: begun.part,
            keys_only: wish.keys_only,
            prefer_follower: wish.prefer_follower,
            bytes_max: WATCH_REPLY_BYTES as u32,
            watches: wish.watches,
        };
        self.ask(cx, kind::WATCH, WATCH_REPLY_BYTES, HELD_MAX, &request);
    }

    fn ask<R: Route>(
        &mut self,
        cx: &mut Cx<'_, R>,
        kind: u8,
        room: usize,
        patience: Duration,
        message: &impl Encode,
    ) {
        let deadline = cx.now() + patience;
        let question = Question {
            kind,
            room,
            deadline,
        };
        // Without memory it is due again after a pause.
        let _ = self.conversation.ask(cx, question, message);
    }

    /// The watch begins at `position`, in the cluster that has said where it is.
    pub fn begin(&mut self, cluster: ClusterId, position: Position) {
        assert!(self.begun.is_none(), "a watch begins once");
        let (whole, part) = (position, 0);
        self.begun = Some(WatchPlace {
            cluster,
            whole,
            part,
        });
    }

    /// Everything up to here is known. Nothing before the watch has begun.
    #[must_use]
    pub fn known(&self) -> Option<Position> {
        self.begun.map(|begun| begun.whole)
    }

    /// What a completion answers, or why it answers nothing. `None` if it is of no question that is outstanding.
    pub fn on_completion<'c>(
        &mut self,
        tag: u64,
        completion: &'c Completion,
    ) -> Option<Result<WatchAnswer<'c>, Objection>> {
        let is_own = self.conversation.on_completion(tag);
        is_own.then(|| self.read(completion))
    }

    fn read<'c>(&mut self, completion: &'c Completion) -> Result<WatchAnswer<'c>, Objection> {
        if completion.result.is_err() {
            return Err(Objection::Obstacle(Obstacle::NoAnswer));
        }
        let bytes = &completion.response[..];
        if bytes.is_empty() {
            return Err(Objection::Later("its answer is empty".to_owned()));
        }
        if let Some(other) = OtherVersion::in_reply(bytes) {
            return Err(Objection::Obstacle(Obstacle::OtherVersion(other)));
        }
        let unreadable = |_| Objection::Obstacle(Obstacle::UnreadableReply);
        // Any message may be answered with a client's status. None of them is one of a watch reply.
        let is_of_client = bytes
            .get(1)
            .is_some_and(|status| *status < WATCH_STATUS_MIN);
        match &mut self.begun {
            Some(begun) if !is_of_client => {
                let reply = WatchReply::decode(bytes).map_err(unreadable)?;
                if let WatchReply::Events { seen, part, .. } = &reply {
                    (begun.whole, begun.part) = (Position::from_u64(*seen), *part);
                }
                Ok(WatchAnswer::Changes(reply))
            }
            begun => {
                let reply = ClientReply::decode(bytes).map_err(unreadable)?;
                match reply.status {
                    ClientStatus::Ok if begun.is_none() => Ok(WatchAnswer::Where {
                        cluster: reply.cluster,
                        applied: Position::from_u64(reply.position),
                    }),
                    _ => Err(Objection::of_reply(&reply)),
                }
            }
        }
    }

    /// Why there is no session any more, if that is what an event says.
    pub fn on_event<R: Route>(&mut self, event: &Event<R>) -> Option<Obstacle> {
        let change = self.conversation.on_event(event);
        change.and_then(SessionChange::obstacle)
    }

    /// Whether there is a session.
    #[must_use]
    pub fn is_up(&self) -> bool {
        self.conversation.is_up()
    }

    /// Whether there is no session, and none is being made.
    #[must_use]
    pub fn is_down(&self) -> bool {
        self.conversation.is_down()
    }

    /// From when on the outstanding question for changes counts as one that the replica holds, and so serves.
    #[must_use]
    pub fn held_from(&self) -> Option<Instant> {
        let asked_at = self.begun.and_then(|_| self.conversation.asked_at());
        asked_at.map(|at| at + SERVED_AFTER)
    }

    /// When something is due. Nothing while an answer or a connection is awaited.
    #[must_use]
    pub fn next_timeout(&self) -> Option<Instant> {
        self.conversation.next_timeout()
    }

    /// Nothing is due for a while.
    pub fn pause(&mut self, now: Instant, pause: Duration) {
        self.conversation.pause(now, pause);
    }

    /// Ends the session. The watch goes on from where it is, with this replica or another one.
    pub fn leave<R: Route>(&mut self, cx: &mut Cx<'_, R>) {
        self.conversation.leave(cx);
    }

    /// The next question is again where the group is: what was known means nothing any more.
    pub fn forget(&mut self) {
        self.begun = None;
    }
}
