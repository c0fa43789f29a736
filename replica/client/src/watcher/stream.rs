//! A stream of changes as a value without I/O.
//!
//! It has one session with one replica, and one request that the replica holds until something happens. It asks first
//! where the group is, by a linearizable read. It keeps the position up to which it has everything. When the replica ends
//! or falls silent, it goes on from there at another one: nothing is missing, and nothing is told again.

use std::net::SocketAddr;

use trine_kvstore::Position;
use trine_protocol::message::{ClusterId, WatchReply};
use trine_transport::backend::Route;
use trine_transport::time::{Duration, Instant};
use trine_transport::{App, Completion, Cx, Event, Reply, Request};

use super::config::{WatchConfig, WatchError, WatchFrom};
use super::event::{WatchBatch, WatchTarget, WatchedEvent};
use super::objections::Objection;
use super::replicas::WatchReplicas;
use super::session::{WatchAnswer, WatchSession, WatchWish};
use crate::conversation::PAUSE;

/// A leader that serves the stream because no follower does goes on for so long, before followers are asked again.
const LEADER_SERVES_FOR: Duration = Duration::from_secs(60);

/// A stream of changes: the application of an event loop.
///
/// Invariant: nothing is asked while a batch waits for its reader, so there is at most one.
pub struct WatchStream<R: Route> {
    config: WatchConfig,
    replicas: WatchReplicas<R>,
    session: WatchSession,
    began: Option<Position>,
    batch: Option<WatchBatch>,
    /// This replica serves the stream although others were preferred: until then it is asked without a preference.
    any_until: Option<Instant>,
    trouble: Trouble,
    failed: Option<WatchError>,
    /// The caller has ended it.
    left: bool,
}

/// Why no replica has served the stream last.
struct Trouble {
    text: String,
    /// None since a replica has answered.
    since: Option<Instant>,
}

/// Why an answer does not serve the stream, and how long the replica wants to be left alone.
type Refusal = (Objection, Duration);

impl<R: Route> WatchStream<R> {
    /// A stream that sends nothing before its first turn. `seed` names it at the replicas, and says which one is asked
    /// first.
    pub fn new(config: WatchConfig, route_of: impl Fn(SocketAddr) -> Option<R>, seed: u64) -> Self {
        let routes = config.addresses.iter().map(|&a| (a, route_of(a)));
        Self {
            replicas: WatchReplicas::new(routes.collect(), seed),
            config,
            session: WatchSession::new(seed, 0),
            began: None,
            batch: None,
            any_until: None,
            trouble: Trouble {
                text: "no replica was asked yet".to_owned(),
                since: None,
            },
            failed: None,
            left: false,
        }
    }

    /// A replica may be at this address, too, as when a name stands for another one than it did. It is asked when its turn
    /// comes. Nothing changes if it is known. If there is no room, the one whose turn comes last gives way.
    pub fn add_address(&mut self, address: SocketAddr, route: Option<R>) {
        self.replicas.add(address, route);
    }

    /// The next events. Nothing is asked for while a batch waits here: a slow reader has one in memory.
    pub fn take_batch(&mut self) -> Option<WatchBatch> {
        self.batch.take()
    }

    /// Whether there are events to take.
    #[must_use]
    pub fn has_batch(&self) -> bool {
        self.batch.is_some()
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
        self.is_served(now).then(|| self.replicas.address())
    }

    /// Why no replica serves the stream now, and since when none does.
    #[must_use]
    pub fn trouble(&self, now: Instant) -> Option<(&str, Duration)> {
        let since = self.trouble.since.filter(|_| !self.is_served(now))?;
        Some((&self.trouble.text, now.saturating_since(since)))
    }

    /// Ends the stream, and with it the session.
    pub fn leave(&mut self, cx: &mut Cx<'_, R>) {
        self.session.leave(cx);
        self.left = true;
    }

    /// Whether nothing is to be sent: the stream has ended, or the last batch was not taken yet.
    fn rests(&self) -> bool {
        self.failed.is_some() || self.left || self.has_batch()
    }

    /// Whether this replica has answered, or holds the request.
    fn is_served(&self, now: Instant) -> bool {
        let is_held = || self.session.held_from().is_some_and(|at| at <= now);
        self.session.is_up() && self.began.is_some() && (self.trouble.since.is_none() || is_held())
    }

    /// This replica does not serve the stream: the next one may. `was_served`: it has done so until now.
    fn move_on(&mut self, cx: &mut Cx<'_, R>, was_served: bool, (objection, pause): Refusal) {
        self.trouble.text = format!("{}: {objection}", self.replicas.address());
        if was_served {
            self.trouble.since = None;
        }
        self.trouble.since.get_or_insert(cx.now());
        self.session.leave(cx);
        self.any_until = None;
        let known = self.session.known().unwrap_or_default();
        self.failed = self.replicas.object(objection, known);
        let pause = match self.replicas.is_round() {
            true => pause.max(PAUSE),
            false => Duration::ZERO,
        };
        self.session.pause(cx.now(), pause);
    }

    fn on_where(&mut self, cluster: ClusterId, applied: Position) {
        let from = match self.config.from {
            WatchFrom::Now => applied,
            WatchFrom::Behind(from) => from,
        };
        if from > applied {
            self.failed = Some(WatchError::Future { from, applied });
            return;
        }
        self.began = Some(from);
        self.session.begin(cluster, from);
    }

    fn on_changes(&mut self, now: Instant, reply: &WatchReply<'_>) -> Result<(), Refusal> {
        let later = |why: &str, pause| Err((Objection::Later(why.to_owned()), pause));
        match reply {
            WatchReply::Events { seen, part, events } => {
                if self.replicas.are_all_tried() {
                    self.any_until = Some(now + LEADER_SERVES_FOR);
                }
                self.replicas.forget_objections();
                self.trouble.since = None;
                let batch = WatchBatch {
                    events: events.iter().map(WatchedEvent::from).collect(),
                    position: Position::from_u64(*seen),
                    more: *part > 0,
                };
                assert!(self.batch.replace(batch).is_none(), "one batch at a time");
                Ok(())
            }
            WatchReply::Compacted { oldest } => {
                let oldest = Position::from_u64(*oldest);
                Err((Objection::Compacted(oldest), PAUSE))
            }
            WatchReply::Later { pause_ms, why } => {
                later(why, Duration::from_millis(u64::from(*pause_ms)))
            }
            WatchReply::Denied(why) => Err((Objection::Denied((*why).to_owned()), PAUSE)),
            // The group has come to this position: it was asked before the first watch. A leader that says so was deposed
            // and has not noticed yet.
            WatchReply::Future { .. } => later(
                "the replica has not come to the position of the watch",
                PAUSE,
            ),
            WatchReply::Refused(why) => {
                let why = (*why).to_owned();
                self.failed = Some(WatchError::Refused { why });
                Ok(())
            }
            WatchReply::Replaced => later("another request of the same watcher has come", PAUSE),
        }
    }
}

impl<R: Route> App<R> for WatchStream<R> {
    fn on_request(&mut self, cx: &mut Cx<'_, R>, _request: Request<'_>) -> Reply {
        cx.alloc(0).map_or(Reply::Later, Reply::Now)
    }

    fn on_completion(&mut self, cx: &mut Cx<'_, R>, tag: u64, completion: Completion) {
        let was_served = self.is_served(cx.now());
        let taken = match self.session.on_completion(tag, &completion) {
            None => return,
            Some(Ok(WatchAnswer::Where { cluster, applied })) => {
                self.on_where(cluster, applied);
                Ok(())
            }
            Some(Ok(WatchAnswer::Changes(reply))) => self.on_changes(cx.now(), &reply),
            Some(Err(objection)) => Err((objection, PAUSE)),
        };
        if let Err(refusal) = taken {
            self.move_on(cx, was_served, refusal);
        }
    }

    fn on_event(&mut self, cx: &mut Cx<'_, R>, event: Event<R>) {
        let was_served = self.is_served(cx.now());
        if let Some(obstacle) = self.session.on_event(&event) {
            self.move_on(cx, was_served, (Objection::Obstacle(obstacle), PAUSE));
        }
    }

    fn on_turn(&mut self, cx: &mut Cx<'_, R>) {
        if self.rests() || self.replicas.is_empty() {
            return;
        }
        // Once every replica was asked, any of them will do.
        let any_will_do =
            self.replicas.are_all_tried() || self.any_until.is_some_and(|until| cx.now() < until);
        let (config, replicas) = (&self.config, &self.replicas);
        let wish = || WatchWish {
            watches: config.targets.iter().map(WatchTarget::watch).collect(),
            keys_only: config.keys_only,
            prefer_follower: !any_will_do && replicas.len() > 1,
        };
        let turn = self.session.on_turn(cx, || replicas.route(), wish);
        if let Err(objection) = turn {
            self.move_on(cx, false, (objection, PAUSE));
        }
    }

    fn next_timeout(&self) -> Option<Instant> {
        self.session.next_timeout().filter(|_| !self.rests())
    }
}
