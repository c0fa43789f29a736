//! All changes of the store, from the replica of this process, for Redis clients that track keys or subscribe.
//!
//! It is one watch of all keys, without values, at one replica: the history there has every change under each leader. It
//! runs while a client needs it.
//!
//! ```text
//!           needed             the replica has said        asked for changes, and no objection:
//! (nothing) ------> connecting ------------------> asking ----------------------------------> live
//!                       ^       where the group is   ^                                          |
//!                       |                            +-- later, cut off from the leader <-------+
//!                       +------------------------------- compacted: events are missing <--------+
//! ```
//! The diagram is `Link` and `Reached` together; `Phase` is what clients were told of it.
//!
//! Invariant: it is live only while its replica serves the stream from a known position and follows a leader. Events that
//! clients have not been told are behind a gap, and the gap is closed only as they forget what they have read.
//!
//! Whenever it stops being live, clients forget what they have read. It is not live either while its replica knows no
//! leader: others may be changing what this replica has not heard of.

use std::net::SocketAddr;

use trine_client::{Ask, ask_position};
use trine_kvstore::{KeyRange, Position};
use trine_protocol::message::{
    ClientReply, ClientStatus, ClusterId, WATCH_REPLY_BYTES, Watch, WatchEvent, WatchReply,
    WatchRequest, Watched, kind,
};
use trine_protocol::route::RouteOf;
use trine_resp::KeyChange;
use trine_transport::backend::Route;
use trine_transport::time::{Duration, Instant};
use trine_transport::{Completion, ConnectParams, Cx, Event, SessionId};

use super::server::Server;

/// The bits of a tag of a request that is not one of `Clients`, which never sets both.
const FEED_BITS: u64 = 3 << 62;
/// How long a connection, and the question where the group is, may take.
const PATIENCE: Duration = Duration::from_secs(2);
/// A replica holds a request for ten seconds. One that has not answered after so long is given up.
const HELD_MAX: Duration = Duration::from_secs(15);
/// A replica that does not serve the watch says so in less. If it comes later all the same, what was read is invalid then.
const SERVED_AFTER: Duration = Duration::from_millis(500);
/// Pause after a failure.
const PAUSE: Duration = Duration::from_millis(100);
/// How often it is looked whether the replica has a leader: its thread says so without a wake-up.
const JUDGE_EVERY: Duration = Duration::from_millis(250);
/// A replica that names such a pause will not serve the watch soon.
const HOPELESS_PAUSE_MS: u32 = 2_000;

/// A question to the replica.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Question {
    /// Where the group is.
    Where,
    /// The changes behind the position.
    Changes,
}

/// The way to the replica.
#[derive(Clone, Copy, Debug)]
enum FeedSession {
    /// There is none.
    Down,
    Connecting(SessionId),
    /// Nothing is asked.
    Idle(SessionId),
    /// A question was sent.
    Asking {
        session: SessionId,
        tag: u64,
        question: Question,
        at: Instant,
    },
}

impl FeedSession {
    fn session(self) -> Option<SessionId> {
        match self {
            Self::Down => None,
            Self::Connecting(session) | Self::Idle(session) | Self::Asking { session, .. } => {
                Some(session)
            }
        }
    }
}

/// A position, and how many events of the next one.
type Place = (Position, u32);

/// Up to where everything is told.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Reached {
    /// The replica has not said where the group is.
    Unknown,
    /// Up to here, but before that events behind what clients know may be missing.
    BehindGap(Place),
    /// Up to here, without a gap.
    Whole(Place),
}

impl Reached {
    fn place(self) -> Option<Place> {
        match self {
            Self::Unknown => None,
            Self::BehindGap(place) | Self::Whole(place) => Some(place),
        }
    }

    /// Events up to here were told, too.
    fn advance(&mut self, place: Place) {
        *self = match self {
            Self::Unknown | Self::BehindGap(_) => Self::BehindGap(place),
            Self::Whole(_) => Self::Whole(place),
        };
    }

    /// Clients forget what they have read. Says whether there was a gap.
    fn close_gap(&mut self) -> bool {
        let place = self.place().expect("a live stream has a position");
        let before = std::mem::replace(self, Self::Whole(place));
        before != *self
    }
}

/// What clients were told of the stream.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Phase {
    /// Nobody needs it.
    Resting,
    /// It has not been there since then.
    Dead { since: Instant },
    /// It is there.
    Live,
}

/// The stream of changes.
pub(super) struct Feed<R: Route> {
    own: SocketAddr,
    route_of: RouteOf<R>,
    /// Names this watcher.
    number: u64,
    /// How long clients wait for the stream to begin.
    patience: Duration,
    cluster: ClusterId,
    link: FeedSession,
    next_tag: u64,
    /// Nothing is asked before this.
    ask_at: Instant,
    reached: Reached,
    /// The replica takes the request for changes.
    is_served: bool,
    verdict: FeedVerdict,
}

/// Whether the stream is there.
struct FeedVerdict {
    phase: Phase,
    /// When that was judged last.
    at: Instant,
    /// Why it was not there last.
    trouble: String,
}

impl<R: Route> Feed<R> {
    pub(super) fn new(
        own: SocketAddr,
        route_of: RouteOf<R>,
        number: u64,
        patience: Duration,
    ) -> Self {
        Self {
            own,
            route_of,
            number: number.max(1),
            patience,
            cluster: ClusterId::NONE,
            link: FeedSession::Down,
            next_tag: 0,
            ask_at: Instant::ZERO,
            reached: Reached::Unknown,
            is_served: false,
            verdict: FeedVerdict {
                phase: Phase::Resting,
                at: Instant::ZERO,
                trouble: "it has not begun".to_owned(),
            },
        }
    }

    /// Whether a completion is of one of its requests.
    pub(super) fn owns(tag: u64) -> bool {
        tag & FEED_BITS == FEED_BITS
    }

    /// `has_leader`: the replica follows a leader, or leads.
    pub(super) fn on_turn(
        &mut self,
        cx: &mut Cx<'_, R>,
        server: &mut Server,
        cluster: ClusterId,
        has_leader: bool,
    ) {
        if !server.needs_stream() {
            return self.rest(cx, server);
        }
        if cluster != self.cluster {
            self.forget(cx);
            self.cluster = cluster;
        }
        self.ask(cx);
        self.judge(cx.now(), server, has_leader);
    }

    /// No client needs the stream.
    fn rest(&mut self, cx: &mut Cx<'_, R>, server: &mut Server) {
        let before = std::mem::replace(&mut self.verdict.phase, Phase::Resting);
        if self.link.session().is_some() || matches!(before, Phase::Dead { .. }) {
            self.forget(cx);
        }
        if before == Phase::Live {
            server.tell(|broker, clients| broker.on_lost(clients));
        }
    }

    /// The next stream is another one.
    fn forget(&mut self, cx: &mut Cx<'_, R>) {
        self.leave(cx);
        self.reached = Reached::Unknown;
    }

    fn leave(&mut self, cx: &mut Cx<'_, R>) {
        if let Some(session) = self.link.session() {
            cx.disconnect(session);
        }
        (self.link, self.is_served) = (FeedSession::Down, false);
    }

    /// Tells clients that the stream is there, or that it is not.
    fn judge(&mut self, now: Instant, server: &mut Server, has_leader: bool) {
        self.verdict.at = now;
        self.is_served |= match self.link {
            FeedSession::Asking {
                question: Question::Changes,
                at,
                ..
            } => now.saturating_since(at) >= SERVED_AFTER,
            _ => false,
        };
        let is_live = self.is_served && self.reached.place().is_some() && has_leader;
        if is_live {
            if std::mem::replace(&mut self.verdict.phase, Phase::Live) != Phase::Live {
                match self.reached.close_gap() {
                    true => server.tell(|broker, clients| broker.on_begin(clients)),
                    false => server.tell(|broker, clients| broker.on_resume(clients)),
                }
            }
            return;
        }
        let since = match self.verdict.phase {
            Phase::Dead { since } => since,
            Phase::Resting => now,
            Phase::Live => {
                server.tell(|broker, clients| broker.on_lost(clients));
                now
            }
        };
        self.verdict.phase = Phase::Dead { since };
        if self.is_served && !has_leader {
            "its replica knows no leader".clone_into(&mut self.verdict.trouble);
        }
        if now.saturating_since(since) >= self.patience {
            self.refuse(server);
        }
    }

    /// The clients that wait for the stream get an error.
    fn refuse(&self, server: &mut Server) {
        let why = format!(
            "this server has no stream of changes: {}",
            self.verdict.trouble
        );
        server.tell(|broker, clients| broker.on_refused(&why, clients));
    }

    fn ask(&mut self, cx: &mut Cx<'_, R>) {
        if cx.now() < self.ask_at || self.cluster.is_none() {
            return;
        }
        match (self.link, self.reached.place()) {
            (FeedSession::Down, _) => self.connect(cx),
            (FeedSession::Connecting(_) | FeedSession::Asking { .. }, _) => {}
            (FeedSession::Idle(session), None) => self.ask_where(cx, session),
            (FeedSession::Idle(session), Some(known)) => self.ask_changes(cx, session, known),
        }
    }

    fn connect(&mut self, cx: &mut Cx<'_, R>) {
        let params = ConnectParams {
            timeout: Some(PATIENCE),
            ..ConnectParams::default()
        };
        let route = (self.route_of)(self.own);
        match route.and_then(|route| cx.connect(route, params).ok()) {
            Some(session) => self.link = FeedSession::Connecting(session),
            None => self.fail(cx, "its replica cannot be reached", PAUSE),
        }
    }

    fn ask_where(&mut self, cx: &mut Cx<'_, R>, session: SessionId) {
        self.send(cx, session, Question::Where, |cx, tag| {
            ask_position(cx, session, tag, PATIENCE)
        });
    }

    fn ask_changes(&mut self, cx: &mut Cx<'_, R>, session: SessionId, (whole, part): Place) {
        let everything = Watched::Range(KeyRange::Prefix(b""));
        let request = WatchRequest {
            cluster: self.cluster,
            watcher: self.number,
            from: whole.as_u64(),
            part,
            keys_only: true,
            prefer_follower: false,
            bytes_max: WATCH_REPLY_BYTES as u32,
            watches: vec![Watch {
                id: 0,
                watched: everything,
            }],
        };
        self.send(cx, session, Question::Changes, |cx, tag| {
            let ask = Ask {
                kind: kind::WATCH,
                room: WATCH_REPLY_BYTES,
                tag,
                patience: HELD_MAX,
            };
            ask.send(cx, session, &request)
        });
    }

    /// Sends a request under a new tag, or tries it again after a pause.
    fn send(
        &mut self,
        cx: &mut Cx<'_, R>,
        session: SessionId,
        question: Question,
        request: impl FnOnce(&mut Cx<'_, R>, u64) -> bool,
    ) {
        self.next_tag += 1;
        let tag = FEED_BITS | self.next_tag;
        if !request(cx, tag) {
            self.ask_at = cx.now() + PAUSE;
            return;
        }
        self.link = FeedSession::Asking {
            session,
            tag,
            question,
            at: cx.now(),
        };
    }

    /// The replica does not serve the stream now.
    fn fail(&mut self, cx: &Cx<'_, R>, why: &str, pause: Duration) {
        why.clone_into(&mut self.verdict.trouble);
        if let FeedSession::Asking { session, .. } = self.link {
            self.link = FeedSession::Idle(session);
        }
        self.is_served = false;
        self.ask_at = cx.now() + pause;
    }

    pub(super) fn on_completion(
        &mut self,
        cx: &mut Cx<'_, R>,
        server: &mut Server,
        tag: u64,
        completion: &Completion,
    ) {
        let (session, question) = match self.link {
            FeedSession::Asking {
                session,
                tag: asked,
                question,
                ..
            } if asked == tag => (session, question),
            _ => return,
        };
        self.link = FeedSession::Idle(session);
        let bytes = &completion.response[..];
        if completion.result.is_err() {
            self.leave(cx);
            return self.fail(cx, "its replica does not answer", PAUSE);
        }
        let read = match question {
            Question::Where => ClientReply::decode(bytes).map(|reply| self.on_where(cx, &reply)),
            Question::Changes => {
                WatchReply::decode(bytes).map(|reply| self.on_changes(cx, server, &reply))
            }
        };
        if read.is_err() {
            self.fail(cx, "its replica's answer cannot be read", PAUSE);
        }
    }

    fn on_where(&mut self, cx: &Cx<'_, R>, reply: &ClientReply<'_>) {
        match reply.status {
            ClientStatus::Ok if reply.cluster == self.cluster => {
                self.reached
                    .advance((Position::from_u64(reply.position), 0));
            }
            ClientStatus::Ok => self.fail(cx, "its replica belongs to another group", PAUSE),
            _ => self.fail(cx, "its replica cannot say where the group is", PAUSE),
        }
    }

    fn on_changes(&mut self, cx: &Cx<'_, R>, server: &mut Server, reply: &WatchReply<'_>) {
        match reply {
            WatchReply::Events { seen, part, events } => {
                self.is_served = true;
                self.reached.advance((Position::from_u64(*seen), *part));
                server.tell(|broker, clients| {
                    for event in events.iter() {
                        broker.on_change(&change_of(&event), clients);
                    }
                    broker.on_changes_end(clients);
                });
            }
            WatchReply::Compacted { .. } | WatchReply::Future { .. } => {
                self.fail(
                    cx,
                    "changes were forgotten before they were told",
                    Duration::ZERO,
                );
                self.reached = Reached::Unknown;
                server.note_gap();
            }
            WatchReply::Later { pause_ms, why } => {
                let pause = Duration::from_millis(u64::from(*pause_ms));
                self.fail(cx, why, pause.max(PAUSE));
                if *pause_ms >= HOPELESS_PAUSE_MS {
                    self.refuse(server);
                }
            }
            WatchReply::Refused(why) | WatchReply::Denied(why) => {
                self.fail(cx, why, PATIENCE);
                self.refuse(server);
            }
            WatchReply::Replaced => self.fail(cx, "another watcher has its number", PAUSE),
        }
    }

    pub(super) fn on_event(&mut self, cx: &Cx<'_, R>, event: &Event<R>) {
        let own = self.link.session();
        match event {
            Event::Connected { session, .. } if own == Some(*session) => {
                self.link = FeedSession::Idle(*session);
            }
            Event::ConnectFailed { session, .. } | Event::Down { session, .. }
                if own == Some(*session) =>
            {
                self.link = FeedSession::Down;
                self.fail(cx, "its replica cannot be reached", PAUSE);
            }
            _ => {}
        }
    }

    /// `is_needed`: a client needs the stream.
    pub(super) fn next_timeout(&self, is_needed: bool) -> Option<Instant> {
        if !is_needed {
            // Once more, to leave.
            return self.link.session().map(|_| Instant::ZERO);
        }
        let (asks, judges) = match self.link {
            FeedSession::Down | FeedSession::Idle(_) => {
                let is_known = !self.cluster.is_none();
                (is_known.then_some(self.ask_at), None)
            }
            // Time alone says of a question for changes that it is held. The others end with their session.
            FeedSession::Asking {
                question: Question::Changes,
                at,
                ..
            } => (None, (!self.is_served).then(|| at + SERVED_AFTER)),
            FeedSession::Connecting(_) | FeedSession::Asking { .. } => (None, None),
        };
        let again = Some(self.verdict.at + JUDGE_EVERY);
        [asks, judges, again].into_iter().flatten().min()
    }
}

fn change_of<'a>(event: &WatchEvent<'a>) -> KeyChange<'a> {
    KeyChange {
        position: event.position,
        command: event.command,
        change: event.change,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gap_is_closed_once_and_opens_with_an_unknown_position() {
        let at = |index| (Position::new(index, 0), 0);
        let mut reached = Reached::Unknown;
        assert_eq!(reached.place(), None);
        reached.advance(at(5));
        reached.advance(at(7));
        assert_eq!(reached, Reached::BehindGap(at(7)));
        assert!(reached.close_gap());
        reached.advance(at(9));
        assert!(!reached.close_gap(), "it was lost, and has missed nothing");
        assert_eq!(reached, Reached::Whole(at(9)));
    }
}
