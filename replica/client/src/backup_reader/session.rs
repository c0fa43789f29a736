//! One session with one replica, for an image of its state: what is asked, and what comes.
//!
//! A value without I/O. The owner of the event loop looks at it after each turn.

use std::collections::{BTreeMap, VecDeque};

use trine_canary as canary;
use trine_protocol::message::{
    BACKUP_PIECE_HEADER_SIZE, BACKUP_WINDOW, BackupHead, BackupReply, BackupRequest, BackupStep,
    ClusterId, OtherVersion, kind,
};
use trine_transport::backend::{BackendError, Route};
use trine_transport::time::{Duration, Instant};
use trine_transport::{App, Completion, ConnectParams, Cx, Event, Reply, Request, SessionId};

use crate::ask::Ask;
use crate::outcome::Obstacle;
use crate::peers::obstacle_of;

/// How long a connection, and the answer to a request, may take.
const PATIENCE: Duration = Duration::from_secs(5);
/// Pause before a request that the replica could not do yet is repeated.
pub(super) const ASK_AGAIN: Duration = Duration::from_millis(50);
/// Room for the longest piece of an image, or for a reason.
const RESPONSE_BYTES: usize =
    BACKUP_PIECE_HEADER_SIZE + 64 + trine_kvstore::config::CHUNK_BYTES_MAX;
/// Tags of requests that are none for a piece.
const BEGIN_TAG: u64 = u64::MAX;
const END_TAG: u64 = u64::MAX - 1;

/// Why an image cannot be read, or not any further.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum BackupError {
    /// There is no session with the replica.
    #[error("{0}")]
    NotReached(Obstacle),
    /// The replica has not answered, or its session has ended: it may still have the image.
    #[error("the replica does not answer any more")]
    Lost,
    /// The image is not there any more.
    #[error("{why}")]
    Gone {
        /// The replica's reason.
        why: String,
    },
    /// The replica will not do it.
    #[error("{why}")]
    Refused {
        /// The replica's reason.
        why: String,
    },
    /// The caller has no right to it, at no replica.
    #[error("{why}")]
    Denied {
        /// What is missing.
        why: String,
    },
    /// The replica's answer is none: it is of a release without backups, or has no memory left to answer.
    #[error("the replica gives no readable answer: it may run a release without backups")]
    Unreadable,
    /// The transport's settings contradict themselves or the backend.
    #[error("{0}")]
    Transport(trine_transport::ConfigError),
    /// The socket became unusable.
    #[error("{0}")]
    Backend(BackendError),
}

/// A piece of the image.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Piece {
    /// Which one, from 0.
    pub number: u32,
    /// Whether it is the last one.
    pub last: bool,
    /// The piece.
    pub bytes: Vec<u8>,
}

/// A session with one replica, as a value without I/O.
pub struct BackupSession<R: Route> {
    route: R,
    cluster: ClusterId,
    session: Option<SessionId>,
    connected: bool,
    /// Some while an image is wanted.
    begin: Option<u64>,
    /// The request for it is under way.
    beginning: bool,
    head: Option<BackupHead>,
    later: String,
    /// The image that is read.
    image: Option<u64>,
    /// Pieces that the caller has.
    taken: u32,
    /// Pieces to ask for now, once more.
    again: VecDeque<u32>,
    /// The first piece that was never asked for.
    next: u32,
    /// The number of pieces, once that is known.
    count: Option<u32>,
    arrived: BTreeMap<u32, Piece>,
    /// Nothing is asked before this.
    ask_at: Instant,
    failed: Option<BackupError>,
    over: bool,
}

impl<R: Route> BackupSession<R> {
    /// A session with the replica that `route` leads to, which belongs to `cluster`. It opens with the first turn.
    #[must_use]
    pub fn new(route: R, cluster: ClusterId) -> Self {
        Self {
            route,
            cluster,
            session: None,
            connected: false,
            begin: None,
            beginning: false,
            head: None,
            later: String::new(),
            image: None,
            taken: 0,
            again: VecDeque::new(),
            next: 0,
            count: None,
            arrived: BTreeMap::new(),
            ask_at: Instant::ZERO,
            failed: None,
            over: false,
        }
    }

    /// Asks for an image of the state after at least the entry `at_least`, until there is one.
    pub fn begin(&mut self, at_least: u64) {
        self.begin = Some(at_least);
    }

    /// The state that the image is of, once there is one.
    #[must_use]
    pub fn head(&self) -> Option<&BackupHead> {
        self.head.as_ref()
    }

    /// Why the replica cannot make an image yet.
    #[must_use]
    pub fn why_not_yet(&self) -> &str {
        &self.later
    }

    /// Goes on with an image that another session has begun, with the piece `number`.
    pub fn go_on(&mut self, image: u64, number: u32) {
        let skips = number > 0 && canary::planted("a resumed backup skips a piece");
        let number = number + u32::from(skips);
        self.image = Some(image);
        (self.taken, self.next) = (number, number);
    }

    /// Whether the next piece is here.
    #[must_use]
    pub fn has_piece(&self) -> bool {
        self.arrived.contains_key(&self.taken)
    }

    /// The next piece, if it is here. Those before it count as taken.
    pub fn take(&mut self) -> Option<Piece> {
        let piece = self.arrived.remove(&self.taken)?;
        self.taken += 1;
        Some(piece)
    }

    /// Why nothing more comes of this session.
    #[must_use]
    pub fn error(&self) -> Option<&BackupError> {
        self.failed.as_ref()
    }

    /// Whether the replica has said that the image is gone, as [`BackupSession::end`] has asked, or cannot be asked.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.over
    }

    /// Tells the replica that the image is not needed any more.
    pub fn end(&mut self, cx: &mut Cx<'_, R>) {
        let sent = self.image.take();
        let sent = sent.is_some_and(|image| self.send(cx, BackupStep::End { image }, END_TAG));
        self.over = !sent;
    }

    /// Ends the session, and leaves the image where it is.
    pub fn leave(&mut self, cx: &mut Cx<'_, R>) {
        if let Some(session) = self.session {
            cx.disconnect(session);
        }
    }

    fn fail(&mut self, error: BackupError) {
        self.failed.get_or_insert(error);
    }

    fn send(&self, cx: &mut Cx<'_, R>, step: BackupStep, tag: u64) -> bool {
        let request = BackupRequest {
            cluster: self.cluster,
            step,
        };
        let Some(session) = self.session.filter(|_| self.connected) else {
            return false;
        };
        let ask = Ask {
            kind: kind::BACKUP,
            room: RESPONSE_BYTES,
            tag,
            patience: PATIENCE,
        };
        ask.send(cx, session, &request)
    }

    /// Asks for what is wanted and not asked for.
    fn ask(&mut self, cx: &mut Cx<'_, R>) {
        if !self.connected || cx.now() < self.ask_at || self.failed.is_some() {
            return;
        }
        if let Some(at_least) = self.begin.filter(|_| !self.beginning) {
            self.beginning = self.send(cx, BackupStep::Begin { at_least }, BEGIN_TAG);
        }
        let Some(image) = self.image else { return };
        while let Some(number) = self.next_wanted() {
            let step = BackupStep::Piece {
                image,
                number,
                needed_from: self.taken,
            };
            if !self.send(cx, step, u64::from(number)) {
                // Until there is a buffer.
                self.ask_at = cx.now() + ASK_AGAIN;
                return;
            }
            match self.again.front() {
                Some(&first) if first == number => drop(self.again.pop_front()),
                _ => self.next += 1,
            }
        }
    }

    fn next_wanted(&self) -> Option<u32> {
        if let Some(&number) = self.again.front() {
            return Some(number);
        }
        let in_window = self.next - self.taken < BACKUP_WINDOW;
        let exists = self.count.is_none_or(|count| self.next < count);
        (in_window && exists).then_some(self.next)
    }

    fn on_begin_reply(&mut self, now: Instant, reply: &BackupReply<'_>) {
        self.beginning = false;
        match reply {
            BackupReply::Begun(head) => {
                self.begin = None;
                self.head = Some(*head);
            }
            BackupReply::Later(why) => {
                self.later = (*why).to_owned();
                self.ask_at = now + ASK_AGAIN;
            }
            other => self.on_refusal(other),
        }
    }

    fn on_piece_reply(&mut self, now: Instant, number: u32, reply: &BackupReply<'_>) {
        match reply {
            // There is none: it was asked for before the end was known.
            BackupReply::Piece { bytes: [], .. } => {}
            BackupReply::Piece { last, bytes } => {
                if *last {
                    self.count = Some(number + 1);
                }
                if number >= self.taken {
                    let piece = Piece {
                        number,
                        last: *last,
                        bytes: bytes.to_vec(),
                    };
                    self.arrived.insert(number, piece);
                }
            }
            BackupReply::Later(_) => {
                self.again.push_back(number);
                self.ask_at = now + ASK_AGAIN;
            }
            other => self.on_refusal(other),
        }
    }

    fn on_refusal(&mut self, reply: &BackupReply<'_>) {
        let error = match reply {
            BackupReply::Gone(why) => BackupError::Gone {
                why: (*why).to_owned(),
            },
            BackupReply::Refused(why) => BackupError::Refused {
                why: (*why).to_owned(),
            },
            BackupReply::Denied(why) => BackupError::Denied {
                why: (*why).to_owned(),
            },
            _ => BackupError::Unreadable,
        };
        self.fail(error);
    }
}

impl<R: Route> App<R> for BackupSession<R> {
    fn on_request(&mut self, cx: &mut Cx<'_, R>, _request: Request<'_>) -> Reply {
        cx.alloc(0).map_or(Reply::Later, Reply::Now)
    }

    fn on_completion(&mut self, cx: &mut Cx<'_, R>, tag: u64, completion: Completion) {
        if tag == END_TAG {
            self.over = true;
            return;
        }
        if completion.result.is_err() {
            return self.fail(BackupError::Lost);
        }
        if let Some(other) = OtherVersion::in_reply(&completion.response) {
            return self.fail(BackupError::NotReached(Obstacle::OtherVersion(other)));
        }
        let Ok(reply) = BackupReply::decode(&completion.response) else {
            return self.fail(BackupError::Unreadable);
        };
        match u32::try_from(tag) {
            Ok(number) => self.on_piece_reply(cx.now(), number, &reply),
            Err(_) => self.on_begin_reply(cx.now(), &reply),
        }
    }

    fn on_event(&mut self, _cx: &mut Cx<'_, R>, event: Event<R>) {
        match event {
            Event::Connected { .. } => self.connected = true,
            Event::ConnectFailed { reason, .. } => {
                self.fail(BackupError::NotReached(obstacle_of(reason)));
            }
            Event::Down { .. } => {
                self.connected = false;
                self.fail(BackupError::Lost);
            }
            Event::Accepted { .. } => {}
        }
    }

    fn on_turn(&mut self, cx: &mut Cx<'_, R>) {
        if self.session.is_none() && self.failed.is_none() {
            let params = ConnectParams {
                timeout: Some(PATIENCE),
                ..ConnectParams::default()
            };
            match cx.connect(self.route, params) {
                Ok(session) => self.session = Some(session),
                Err(_) => self.fail(BackupError::NotReached(Obstacle::NoConnection)),
            }
        }
        self.ask(cx);
    }

    fn next_timeout(&self) -> Option<Instant> {
        let wants = self.begin.is_some_and(|_| !self.beginning)
            || self.image.is_some_and(|_| self.next_wanted().is_some());
        (wants && self.connected && self.failed.is_none()).then_some(self.ask_at)
    }
}
