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
//! The diagram is of the [`WatchSession`]; [`Phase`] is what clients were told of it.
//!
//! Invariant: it is live only while its replica serves the stream from a known position and follows a leader. Events that
//! clients have not been told are behind a gap, and the gap is closed only as they forget what they have read.
//!
//! Whenever it stops being live, clients forget what they have read. It is not live either while its replica knows no
//! leader: others may be changing what this replica has not heard of.

use std::net::SocketAddr;

use trine_client::{Objection, Obstacle, WatchAnswer, WatchSession, WatchWish};
use trine_kvstore::KeyRange;
use trine_protocol::message::{ClusterId, Watch, WatchEvent, WatchReply, Watched};
use trine_protocol::route::RouteOf;
use trine_resp::KeyChange;
use trine_transport::backend::Route;
use trine_transport::time::{Duration, Instant};
use trine_transport::{Completion, Cx, Event};

use super::server::Server;

/// The bits of a tag of a request that is not one of `Clients`, which never sets both.
const FEED_BITS: u64 = 3 << 62;
/// Pause after a failure.
const PAUSE: Duration = Duration::from_millis(100);
/// Pause after a refusal.
const REFUSED_PAUSE: Duration = Duration::from_secs(2);
/// How often it is looked whether the replica has a leader: its thread says so without a wake-up.
const JUDGE_EVERY: Duration = Duration::from_millis(250);
/// A replica that names such a pause will not serve the watch soon.
const HOPELESS_PAUSE_MS: u32 = 2_000;

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
    /// How long clients wait for the stream to begin.
    patience: Duration,
    cluster: ClusterId,
    session: WatchSession,
    /// Events that clients were not told may lie before what the session knows.
    has_gap: bool,
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
            patience,
            cluster: ClusterId::NONE,
            session: WatchSession::new(number, FEED_BITS),
            has_gap: true,
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
        if !self.cluster.is_none() {
            self.ask(cx);
        }
        self.judge(cx.now(), server, has_leader);
    }

    /// No client needs the stream.
    fn rest(&mut self, cx: &mut Cx<'_, R>, server: &mut Server) {
        let before = std::mem::replace(&mut self.verdict.phase, Phase::Resting);
        if !self.session.is_down() || matches!(before, Phase::Dead { .. }) {
            self.forget(cx);
        }
        if before == Phase::Live {
            server.tell(|broker, clients| broker.on_lost(clients));
        }
    }

    /// The next stream is another one.
    fn forget(&mut self, cx: &mut Cx<'_, R>) {
        self.leave(cx);
        self.open_gap();
    }

    /// It is not known any more up to where clients were told.
    fn open_gap(&mut self) {
        self.session.forget();
        self.has_gap = true;
    }

    fn leave(&mut self, cx: &mut Cx<'_, R>) {
        self.session.leave(cx);
        self.is_served = false;
    }

    /// Tells clients that the stream is there, or that it is not.
    fn judge(&mut self, now: Instant, server: &mut Server, has_leader: bool) {
        self.verdict.at = now;
        self.is_served |= self.session.held_from().is_some_and(|at| at <= now);
        let is_live = self.is_served && self.session.known().is_some() && has_leader;
        if is_live {
            if std::mem::replace(&mut self.verdict.phase, Phase::Live) != Phase::Live {
                match std::mem::take(&mut self.has_gap) {
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

    /// Asks for the changes of all keys, as soon as it is known where the group is.
    fn ask(&mut self, cx: &mut Cx<'_, R>) {
        let everything = Watch {
            id: 0,
            watched: Watched::Range(KeyRange::Prefix(b"")),
        };
        let wish = || WatchWish {
            watches: vec![everything],
            keys_only: true,
            prefer_follower: false,
        };
        let route = || (self.route_of)(self.own);
        if self.session.on_turn(cx, route, wish).is_err() {
            self.fail(cx, "its replica cannot be reached", PAUSE);
        }
    }

    /// The replica does not serve the stream now.
    fn fail(&mut self, cx: &Cx<'_, R>, why: &str, pause: Duration) {
        why.clone_into(&mut self.verdict.trouble);
        self.is_served = false;
        self.session.pause(cx.now(), pause);
    }

    pub(super) fn on_completion(
        &mut self,
        cx: &mut Cx<'_, R>,
        server: &mut Server,
        tag: u64,
        completion: &Completion,
    ) {
        match self.session.on_completion(tag, completion) {
            None => {}
            Some(Ok(WatchAnswer::Where { cluster, applied })) if cluster == self.cluster => {
                self.session.begin(cluster, applied);
            }
            Some(Ok(WatchAnswer::Where { .. })) => {
                self.fail(cx, "its replica belongs to another group", PAUSE);
            }
            Some(Ok(WatchAnswer::Changes(reply))) => self.on_changes(cx, server, &reply),
            Some(Err(objection)) => self.on_objection(cx, &objection),
        }
    }

    fn on_objection(&mut self, cx: &mut Cx<'_, R>, objection: &Objection) {
        let has_begun = self.session.known().is_some();
        let why = match objection {
            Objection::Obstacle(Obstacle::NoAnswer) => {
                self.leave(cx);
                "its replica does not answer"
            }
            Objection::Obstacle(Obstacle::UnreadableReply) | Objection::Later(_) => {
                "its replica's answer cannot be read"
            }
            _ if has_begun => "its replica's answer cannot be read",
            _ => "its replica cannot say where the group is",
        };
        self.fail(cx, why, PAUSE);
    }

    fn on_changes(&mut self, cx: &Cx<'_, R>, server: &mut Server, reply: &WatchReply<'_>) {
        match reply {
            WatchReply::Events { events, .. } => {
                self.is_served = true;
                server.tell(|broker, clients| {
                    for event in events.iter() {
                        broker.on_change(&change_of(&event), clients);
                    }
                    broker.on_changes_end(clients);
                });
            }
            WatchReply::Compacted { .. } | WatchReply::Future { .. } => {
                let why = "changes were forgotten before they were told";
                self.fail(cx, why, Duration::ZERO);
                self.open_gap();
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
                self.fail(cx, why, REFUSED_PAUSE);
                self.refuse(server);
            }
            WatchReply::Replaced => self.fail(cx, "another watcher has its number", PAUSE),
        }
    }

    pub(super) fn on_event(&mut self, cx: &Cx<'_, R>, event: &Event<R>) {
        if self.session.on_event(event).is_some() {
            self.fail(cx, "its replica cannot be reached", PAUSE);
        }
    }

    /// `is_needed`: a client needs the stream.
    pub(super) fn next_timeout(&self, is_needed: bool) -> Option<Instant> {
        if !is_needed {
            // Once more, to leave.
            return (!self.session.is_down()).then_some(Instant::ZERO);
        }
        let asks = self.session.next_timeout();
        // Time alone says of a question for changes that it is held. The others end with their session.
        let held_from = self.session.held_from();
        let dues = [
            asks.filter(|_| !self.cluster.is_none()),
            held_from.filter(|_| !self.is_served),
            Some(self.verdict.at + JUDGE_EVERY),
        ];
        dues.into_iter().flatten().min()
    }
}

fn change_of<'a>(event: &WatchEvent<'a>) -> KeyChange<'a> {
    KeyChange {
        position: event.position,
        command: event.command,
        change: event.change,
    }
}
