//! A stream of changes as a value without I/O.
//!
//! It has one session with one replica, and one request that the replica holds until something happens. It asks first
//! where the group is, by a linearizable read. It keeps the position up to which it has everything. When the replica ends
//! or falls silent, it goes on from there at another one: nothing is missing, and nothing is told again.

use std::collections::VecDeque;
use std::net::SocketAddr;

use trine_kvstore::Position;
use trine_protocol::message::{
    ClientReply, ClientStatus, ClusterId, OtherVersion, WATCH_REPLY_BYTES, WATCH_STATUS_MIN,
    WatchReply, WatchRequest, kind,
};
use trine_transport::backend::Route;
use trine_transport::time::{Duration, Instant};
use trine_transport::{App, Completion, ConnectParams, Cx, Event, Reply, Request, SessionId};

use super::config::{WatchConfig, WatchError, WatchFrom};
use super::event::{WatchBatch, WatchTarget, WatchedEvent};
use super::objections::{Objection, Objections};
use crate::ask::{Ask, ask_position};
use crate::outcome::Obstacle;
use crate::peers::obstacle_of;

/// How long a connection, and the question where the group is, may take.
const PATIENCE: Duration = Duration::from_secs(2);
/// A replica holds a request for ten seconds. One that has not answered after so long is given up.
const HELD_MAX: Duration = Duration::from_secs(15);
/// A replica that does not serve a watch says so in less.
const SERVED_AFTER: Duration = Duration::from_millis(500);
/// Pause after every replica was tried.
const PAUSE: Duration = Duration::from_millis(100);
/// Addresses that a stream asks at, those that were added included.
const ADDRESSES_MAX: usize = 16;
/// A leader that serves the stream because no follower does goes on for so long, before followers are asked again.
const LEADER_SERVES_FOR: Duration = Duration::from_secs(60);

/// A stream of changes: the application of an event loop.
pub struct WatchStream<R: Route> {
    routes: Vec<(SocketAddr, Option<R>)>,
    config: WatchConfig,
    /// Names this watcher at every replica.
    number: u64,
    /// The replica whose turn it is.
    at: usize,
    session: Option<SessionId>,
    connected: bool,
    /// The request that is under way; tags of earlier ones mean nothing.
    asked: Option<u64>,
    /// When the watch request was sent that this replica has.
    held_since: Option<Instant>,
    next_tag: u64,
    /// Nothing is asked before this.
    ask_at: Instant,
    /// The cluster of the replica that has said first where the group is.
    cluster: Option<ClusterId>,
    began: Option<Position>,
    /// Everything up to here is known.
    whole: Position,
    /// And so many events of the next position.
    part: u32,
    batches: VecDeque<WatchBatch>,
    objections: Objections,
    /// This replica serves the stream although others were preferred: until then it is asked without a preference.
    any_until: Option<Instant>,
    trouble: String,
    trouble_since: Option<Instant>,
    failed: Option<WatchError>,
    /// The caller has ended it.
    left: bool,
}

impl<R: Route> WatchStream<R> {
    /// A stream that sends nothing before its first turn. `seed` names it at the replicas, and says which one is asked
    /// first.
    pub fn new(config: WatchConfig, route_of: impl Fn(SocketAddr) -> Option<R>, seed: u64) -> Self {
        let routes: Vec<_> = config.addresses.iter().map(|&a| (a, route_of(a))).collect();
        let count = routes.len().max(1);
        Self {
            at: (seed % count as u64) as usize,
            objections: Objections::of(count),
            routes,
            config,
            number: seed.max(1),
            session: None,
            connected: false,
            asked: None,
            held_since: None,
            next_tag: 0,
            ask_at: Instant::ZERO,
            cluster: None,
            began: None,
            whole: Position::ZERO,
            part: 0,
            batches: VecDeque::new(),
            any_until: None,
            trouble: "no replica was asked yet".to_owned(),
            trouble_since: None,
            failed: None,
            left: false,
        }
    }

    /// A replica may be at this address, too, as when a name stands for another one than it did. It is asked when its turn
    /// comes. Nothing changes if it is known. If there is no room, the one whose turn comes last gives way.
    pub fn add_address(&mut self, address: SocketAddr, route: Option<R>) {
        let count = self.routes.len();
        if self.routes.iter().any(|(known, _)| *known == address) {
            return;
        }
        if count < ADDRESSES_MAX {
            self.routes.push((address, route));
            self.objections.add_replica();
        } else {
            self.routes[(self.at + count - 1) % count] = (address, route);
        }
    }

    /// The next events. Nothing is asked for while a batch waits here: a slow reader has one in memory.
    pub fn take_batch(&mut self) -> Option<WatchBatch> {
        self.batches.pop_front()
    }

    /// Whether there are events to take.
    #[must_use]
    pub fn has_batch(&self) -> bool {
        !self.batches.is_empty()
    }

    /// Why the stream cannot go on behind the batches that are here, if it cannot.
    #[must_use]
    pub fn error(&self) -> Option<&WatchError> {
        self.failed.as_ref()
    }

    /// Where the stream has begun, once that is known.
    #[must_use]
    pub fn began(&self) -> Option<Position> {
        self.began
    }

    /// The replica that serves the stream, while one does.
    #[must_use]
    pub fn served_by(&self, now: Instant) -> Option<SocketAddr> {
        self.is_served(now).then(|| self.address())
    }

    /// Why no replica serves the stream now, and since when none does.
    #[must_use]
    pub fn trouble(&self, now: Instant) -> Option<(&str, Duration)> {
        let since = self.trouble_since.filter(|_| !self.is_served(now))?;
        Some((&self.trouble, now.saturating_since(since)))
    }

    /// Ends the stream, and with it the session.
    pub fn leave(&mut self, cx: &mut Cx<'_, R>) {
        self.leave_replica(cx);
        self.left = true;
    }

    /// Whether there is nothing to send: an answer is awaited, or the last batch was not taken yet.
    fn waits(&self) -> bool {
        self.failed.is_some() || self.left || self.asked.is_some() || self.has_batch()
    }

    fn address(&self) -> SocketAddr {
        self.routes[self.at].0
    }

    /// Whether this replica has answered, or holds the request.
    fn is_served(&self, now: Instant) -> bool {
        let held = |since| now.saturating_since(since) >= SERVED_AFTER;
        self.connected
            && self.began.is_some()
            && (self.trouble_since.is_none() || self.held_since.is_some_and(held))
    }

    fn leave_replica(&mut self, cx: &mut Cx<'_, R>) {
        if let Some(session) = self.session.take() {
            cx.disconnect(session);
        }
        (self.connected, self.asked, self.held_since) = (false, None, None);
    }

    /// This replica does not serve the stream: the next one may.
    fn move_on(&mut self, cx: &mut Cx<'_, R>, objection: Objection, pause: Duration) {
        self.trouble = format!("{}: {objection}", self.address());
        if self.is_served(cx.now()) {
            self.trouble_since = None;
        }
        self.trouble_since.get_or_insert(cx.now());
        self.leave_replica(cx);
        self.any_until = None;
        self.failed = self.objections.add(self.at, objection, self.whole);
        self.at = (self.at + 1) % self.routes.len();
        let round = self.objections.is_round();
        self.ask_at = cx.now()
            + if round {
                pause.max(PAUSE)
            } else {
                Duration::ZERO
            };
    }

    fn connect(&mut self, cx: &mut Cx<'_, R>) {
        let params = ConnectParams {
            timeout: Some(PATIENCE),
            ..ConnectParams::default()
        };
        let session = match self.routes[self.at].1 {
            Some(route) => cx.connect(route, params).ok(),
            None => None,
        };
        match session {
            Some(session) => self.session = Some(session),
            None => {
                let objection = Objection::Obstacle(Obstacle::NoConnection);
                self.move_on(cx, objection, PAUSE);
            }
        }
    }

    /// Sends a request under a new tag, or tries it again after a pause.
    fn send(
        &mut self,
        cx: &mut Cx<'_, R>,
        request: impl FnOnce(&mut Cx<'_, R>, SessionId, u64) -> bool,
    ) {
        let Some(session) = self.session else { return };
        self.next_tag += 1;
        match request(cx, session, self.next_tag) {
            true => self.asked = Some(self.next_tag),
            false => self.ask_at = cx.now() + PAUSE,
        }
    }

    fn ask_events(&mut self, cx: &mut Cx<'_, R>, cluster: ClusterId) {
        let targets = std::mem::take(&mut self.config.targets);
        // Once every replica was asked, any of them will do.
        let any_will_do =
            self.objections.is_late() || self.any_until.is_some_and(|until| cx.now() < until);
        let request = WatchRequest {
            cluster,
            watcher: self.number,
            from: self.whole.as_u64(),
            part: self.part,
            keys_only: self.config.keys_only,
            prefer_follower: !any_will_do && self.routes.len() > 1,
            bytes_max: WATCH_REPLY_BYTES as u32,
            watches: targets.iter().map(WatchTarget::watch).collect(),
        };
        self.send(cx, |cx, session, tag| {
            let ask = Ask {
                kind: kind::WATCH,
                room: WATCH_REPLY_BYTES,
                tag,
                patience: HELD_MAX,
            };
            ask.send(cx, session, &request)
        });
        self.held_since = self.asked.map(|_| cx.now());
        drop(request);
        self.config.targets = targets;
    }

    fn on_where(&mut self, cx: &mut Cx<'_, R>, reply: &ClientReply<'_>) {
        if reply.status != ClientStatus::Ok {
            let objection = Objection::of_reply(reply);
            return self.move_on(cx, objection, PAUSE);
        }
        let applied = Position::from_u64(reply.position);
        let from = match self.config.from {
            WatchFrom::Now => applied,
            WatchFrom::Behind(from) => from,
        };
        if from > applied {
            self.failed = Some(WatchError::Future { from, applied });
            return;
        }
        (self.began, self.whole) = (Some(from), from);
        self.cluster = Some(reply.cluster);
    }

    fn on_events(&mut self, cx: &mut Cx<'_, R>, reply: &WatchReply<'_>) {
        let text = |why: &&str| (*why).to_owned();
        match reply {
            WatchReply::Events { seen, part, events } => {
                (self.whole, self.part) = (Position::from_u64(*seen), *part);
                if self.objections.is_late() {
                    self.any_until = Some(cx.now() + LEADER_SERVES_FOR);
                }
                self.objections.clear();
                self.trouble_since = None;
                self.batches.push_back(WatchBatch {
                    events: events.iter().map(WatchedEvent::from).collect(),
                    position: self.whole,
                    more: *part > 0,
                });
            }
            WatchReply::Compacted { oldest } => {
                let oldest = Position::from_u64(*oldest);
                self.move_on(cx, Objection::Compacted(oldest), PAUSE);
            }
            WatchReply::Later { pause_ms, why } => {
                let pause = Duration::from_millis(u64::from(*pause_ms));
                self.move_on(cx, Objection::Later(text(why)), pause);
            }
            WatchReply::Denied(why) => self.move_on(cx, Objection::Denied(text(why)), PAUSE),
            // The group has come to this position: it was asked before the first watch. A leader that says so was deposed
            // and has not noticed yet.
            WatchReply::Future { .. } => {
                let why = "the replica has not come to the position of the watch";
                self.move_on(cx, Objection::Later(why.to_owned()), PAUSE);
            }
            WatchReply::Refused(why) => {
                let why = text(why);
                self.failed = Some(WatchError::Refused { why });
            }
            WatchReply::Replaced => {
                let why = "another request of the same watcher has come";
                self.move_on(cx, Objection::Later(why.to_owned()), PAUSE);
            }
        }
    }
}

impl<R: Route> App<R> for WatchStream<R> {
    fn on_request(&mut self, cx: &mut Cx<'_, R>, _request: Request<'_>) -> Reply {
        cx.alloc(0).map_or(Reply::Later, Reply::Now)
    }

    fn on_completion(&mut self, cx: &mut Cx<'_, R>, tag: u64, completion: Completion) {
        if self.asked != Some(tag) {
            return;
        }
        self.asked = None;
        if completion.result.is_err() {
            let objection = Objection::Obstacle(Obstacle::NoAnswer);
            return self.move_on(cx, objection, PAUSE);
        }
        let bytes = &completion.response[..];
        if bytes.is_empty() {
            let objection = Objection::Later("its answer is empty".to_owned());
            return self.move_on(cx, objection, PAUSE);
        }
        if let Some(other) = OtherVersion::in_reply(bytes) {
            let objection = Objection::Obstacle(Obstacle::OtherVersion(other));
            return self.move_on(cx, objection, PAUSE);
        }
        let read = match self.began {
            None => ClientReply::decode(bytes).map(|reply| self.on_where(cx, &reply)),
            // Any message may be answered with a client's status. None of them is one of a watch reply.
            Some(_)
                if bytes
                    .get(1)
                    .is_some_and(|status| *status < WATCH_STATUS_MIN) =>
            {
                ClientReply::decode(bytes)
                    .map(|reply| self.move_on(cx, Objection::of_reply(&reply), PAUSE))
            }
            Some(_) => WatchReply::decode(bytes).map(|reply| self.on_events(cx, &reply)),
        };
        if read.is_err() {
            self.move_on(cx, Objection::Obstacle(Obstacle::UnreadableReply), PAUSE);
        }
    }

    fn on_event(&mut self, cx: &mut Cx<'_, R>, event: Event<R>) {
        match event {
            Event::Connected { session, .. } if self.session == Some(session) => {
                self.connected = true;
            }
            Event::ConnectFailed {
                session, reason, ..
            } if self.session == Some(session) => {
                self.session = None;
                self.move_on(cx, Objection::Obstacle(obstacle_of(reason)), PAUSE);
            }
            Event::Down { session, .. } if self.session == Some(session) => {
                self.session = None;
                let objection = Objection::Obstacle(Obstacle::NoAnswer);
                self.move_on(cx, objection, PAUSE);
            }
            _ => {}
        }
    }

    fn on_turn(&mut self, cx: &mut Cx<'_, R>) {
        if self.waits() || cx.now() < self.ask_at || self.routes.is_empty() {
            return;
        }
        match (self.session, self.connected, self.cluster) {
            (None, _, _) => self.connect(cx),
            (Some(_), false, _) => {}
            (Some(_), true, None) => self.send(cx, |cx, session, tag| {
                ask_position(cx, session, tag, PATIENCE)
            }),
            (Some(_), true, Some(cluster)) => self.ask_events(cx, cluster),
        }
    }

    fn next_timeout(&self) -> Option<Instant> {
        let connects = self.session.is_some() && !self.connected;
        (!self.waits() && !connects).then_some(self.ask_at)
    }
}
