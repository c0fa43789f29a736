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

/// The stream of changes.
pub(super) struct Feed<R: Route> {
    own: SocketAddr,
    route_of: RouteOf<R>,
    /// Names this watcher.
    number: u64,
    /// How long clients wait for the stream to begin.
    patience: Duration,
    cluster: ClusterId,
    session: Option<SessionId>,
    connected: bool,
    asked: Option<(u64, Question)>,
    asked_at: Instant,
    next_tag: u64,
    /// Nothing is asked before this.
    ask_at: Instant,
    /// Everything up to here is told, and so many events of the next position. Nothing before the replica has said where
    /// the group is.
    known: Option<(Position, u32)>,
    /// The next stream begins at a later position: events behind what clients know may be missing.
    has_gap: bool,
    /// The replica takes the request for changes.
    is_served: bool,
    is_live: bool,
    /// Since when it is not.
    dead_since: Option<Instant>,
    trouble: String,
    judged_at: Instant,
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
            session: None,
            connected: false,
            asked: None,
            asked_at: Instant::ZERO,
            next_tag: 0,
            ask_at: Instant::ZERO,
            known: None,
            has_gap: true,
            is_served: false,
            is_live: false,
            dead_since: None,
            trouble: "it has not begun".to_owned(),
            judged_at: Instant::ZERO,
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
        if self.session.is_some() || self.dead_since.is_some() {
            self.forget(cx);
            self.dead_since = None;
        }
        if std::mem::take(&mut self.is_live) {
            server.tell(|broker, clients| broker.on_lost(clients));
        }
    }

    /// The next stream is another one.
    fn forget(&mut self, cx: &mut Cx<'_, R>) {
        self.leave(cx);
        (self.known, self.has_gap) = (None, true);
    }

    fn leave(&mut self, cx: &mut Cx<'_, R>) {
        if let Some(session) = self.session.take() {
            cx.disconnect(session);
        }
        self.connected = false;
        (self.asked, self.is_served) = (None, false);
    }

    /// Tells clients that the stream is there, or that it is not.
    fn judge(&mut self, now: Instant, server: &mut Server, has_leader: bool) {
        self.judged_at = now;
        let is_held = matches!(self.asked, Some((_, Question::Changes)))
            && now.saturating_since(self.asked_at) >= SERVED_AFTER;
        self.is_served |= is_held;
        let is_live = self.is_served && self.known.is_some() && has_leader;
        match (self.is_live, is_live) {
            (false, true) => {
                self.dead_since = None;
                match std::mem::take(&mut self.has_gap) {
                    true => server.tell(|broker, clients| broker.on_begin(clients)),
                    false => server.tell(|broker, clients| broker.on_resume(clients)),
                }
            }
            (true, false) => server.tell(|broker, clients| broker.on_lost(clients)),
            _ => {}
        }
        self.is_live = is_live;
        if is_live {
            return;
        }
        if self.is_served && !has_leader {
            "its replica knows no leader".clone_into(&mut self.trouble);
        }
        let since = *self.dead_since.get_or_insert(now);
        if now.saturating_since(since) >= self.patience {
            self.refuse(server);
        }
    }

    /// The clients that wait for the stream get an error.
    fn refuse(&self, server: &mut Server) {
        let why = format!("this server has no stream of changes: {}", self.trouble);
        server.tell(|broker, clients| broker.on_refused(&why, clients));
    }

    fn ask(&mut self, cx: &mut Cx<'_, R>) {
        if self.asked.is_some() || cx.now() < self.ask_at || self.cluster.is_none() {
            return;
        }
        match (self.session, self.connected, self.known) {
            (None, _, _) => self.connect(cx),
            (Some(_), false, _) => {}
            (Some(session), true, None) => self.ask_where(cx, session),
            (Some(session), true, Some(known)) => self.ask_changes(cx, session, known),
        }
    }

    fn connect(&mut self, cx: &mut Cx<'_, R>) {
        let params = ConnectParams {
            timeout: Some(PATIENCE),
            ..ConnectParams::default()
        };
        let route = (self.route_of)(self.own);
        self.session = route.and_then(|route| cx.connect(route, params).ok());
        if self.session.is_none() {
            self.fail(cx, "its replica cannot be reached", PAUSE);
        }
    }

    fn ask_where(&mut self, cx: &mut Cx<'_, R>, session: SessionId) {
        self.send(cx, Question::Where, |cx, tag| {
            ask_position(cx, session, tag, PATIENCE)
        });
    }

    fn ask_changes(
        &mut self,
        cx: &mut Cx<'_, R>,
        session: SessionId,
        (whole, part): (Position, u32),
    ) {
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
        self.send(cx, Question::Changes, |cx, tag| {
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
        question: Question,
        request: impl FnOnce(&mut Cx<'_, R>, u64) -> bool,
    ) {
        self.next_tag += 1;
        let tag = FEED_BITS | self.next_tag;
        match request(cx, tag) {
            true => (self.asked, self.asked_at) = (Some((tag, question)), cx.now()),
            false => self.ask_at = cx.now() + PAUSE,
        }
    }

    /// The replica does not serve the stream now.
    fn fail(&mut self, cx: &Cx<'_, R>, why: &str, pause: Duration) {
        why.clone_into(&mut self.trouble);
        (self.asked, self.is_served) = (None, false);
        self.ask_at = cx.now() + pause;
    }

    pub(super) fn on_completion(
        &mut self,
        cx: &mut Cx<'_, R>,
        server: &mut Server,
        tag: u64,
        completion: &Completion,
    ) {
        let Some((_, question)) = self.asked.take_if(|(asked, _)| *asked == tag) else {
            return;
        };
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
                self.known = Some((Position::from_u64(reply.position), 0));
            }
            ClientStatus::Ok => self.fail(cx, "its replica belongs to another group", PAUSE),
            _ => self.fail(cx, "its replica cannot say where the group is", PAUSE),
        }
    }

    fn on_changes(&mut self, cx: &Cx<'_, R>, server: &mut Server, reply: &WatchReply<'_>) {
        match reply {
            WatchReply::Events { seen, part, events } => {
                self.is_served = true;
                self.known = Some((Position::from_u64(*seen), *part));
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
                (self.known, self.has_gap) = (None, true);
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
        match event {
            Event::Connected { session, .. } if self.session == Some(*session) => {
                self.connected = true;
            }
            Event::ConnectFailed { session, .. } | Event::Down { session, .. }
                if self.session == Some(*session) =>
            {
                (self.session, self.connected) = (None, false);
                self.fail(cx, "its replica cannot be reached", PAUSE);
            }
            _ => {}
        }
    }

    /// `is_needed`: a client needs the stream.
    pub(super) fn next_timeout(&self, is_needed: bool) -> Option<Instant> {
        if !is_needed {
            // Once more, to leave.
            return self.session.map(|_| Instant::ZERO);
        }
        let connects = self.session.is_some() && !self.connected;
        let asks =
            (self.asked.is_none() && !connects && !self.cluster.is_none()).then_some(self.ask_at);
        let judges =
            (self.asked.is_some() && !self.is_served).then(|| self.asked_at + SERVED_AFTER);
        let again = Some(self.judged_at + JUDGE_EVERY);
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
