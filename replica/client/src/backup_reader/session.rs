//! One session with one replica, for an image of its state: what is asked, and what comes.
//!
//! A value without I/O. The owner of the event loop looks at it after each turn.

use trine_protocol::message::{
    BACKUP_PIECE_HEADER_SIZE, BackupHead, BackupReply, BackupRequest, BackupStep, ClusterId,
    OtherVersion, kind,
};
use trine_transport::backend::{BackendError, Route};
use trine_transport::time::{Duration, Instant};
use trine_transport::{App, Completion, ConnectParams, Cx, Event, Reply, Request};

use super::pieces::{Piece, Pieces};
use crate::conversation::{Question, ReplicaSession, SessionChange};
use crate::outcome::Obstacle;

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

/// A session with one replica, as a value without I/O.
pub struct BackupSession<R: Route> {
    route: R,
    cluster: ClusterId,
    /// `None` before the first turn. There is no second session.
    session: Option<ReplicaSession>,
    beginning: Beginning,
    /// The image that is read.
    pieces: Option<Pieces>,
    /// Nothing is asked before this.
    ask_at: Instant,
    failed: Option<BackupError>,
    over: bool,
}

/// The way to an image.
#[derive(Default)]
struct Beginning {
    /// Some while an image is wanted: of the state after at least this entry.
    at_least: Option<u64>,
    /// The request for it is under way.
    is_asked: bool,
    head: Option<BackupHead>,
    /// Why there is none yet.
    later: String,
}

impl<R: Route> BackupSession<R> {
    /// A session with the replica that `route` leads to, which belongs to `cluster`. It opens with the first turn.
    #[must_use]
    pub fn new(route: R, cluster: ClusterId) -> Self {
        Self {
            route,
            cluster,
            session: None,
            beginning: Beginning::default(),
            pieces: None,
            ask_at: Instant::ZERO,
            failed: None,
            over: false,
        }
    }

    /// Asks for an image of the state after at least the entry `at_least`, until there is one.
    pub fn begin(&mut self, at_least: u64) {
        self.beginning.at_least = Some(at_least);
    }

    /// The state that the image is of, once there is one.
    #[must_use]
    pub fn head(&self) -> Option<&BackupHead> {
        self.beginning.head.as_ref()
    }

    /// Why the replica cannot make an image yet.
    #[must_use]
    pub fn why_not_yet(&self) -> &str {
        &self.beginning.later
    }

    /// Goes on with an image that another session has begun, with the piece `number`.
    pub fn go_on(&mut self, image: u64, number: u32) {
        self.pieces = Some(Pieces::from(image, number));
    }

    /// Whether the next piece is here.
    #[must_use]
    pub fn has_piece(&self) -> bool {
        self.pieces.as_ref().is_some_and(Pieces::has_next)
    }

    /// The next piece, if it is here. Those before it count as taken.
    pub fn take(&mut self) -> Option<Piece> {
        self.pieces.as_mut()?.take()
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
        let image = self.pieces.take().map(|pieces| pieces.image());
        let sent = image.is_some_and(|image| self.send(cx, BackupStep::End { image }, END_TAG));
        self.over = !sent;
    }

    /// Ends the session, and leaves the image where it is.
    pub fn leave(&mut self, cx: &mut Cx<'_, R>) {
        if let Some(session) = &mut self.session {
            session.leave(cx);
        }
    }

    fn fail(&mut self, error: BackupError) {
        self.failed.get_or_insert(error);
    }

    fn is_up(&self) -> bool {
        self.session.and_then(ReplicaSession::up).is_some()
    }

    fn send(&self, cx: &mut Cx<'_, R>, step: BackupStep, tag: u64) -> bool {
        let request = BackupRequest {
            cluster: self.cluster,
            step,
        };
        let Some(session) = self.session.and_then(ReplicaSession::up) else {
            return false;
        };
        let question = Question {
            kind: kind::BACKUP,
            room: RESPONSE_BYTES,
            deadline: cx.now() + PATIENCE,
        };
        question.send(cx, session, tag, &request)
    }

    /// Asks for what is wanted and not asked for.
    fn ask(&mut self, cx: &mut Cx<'_, R>) {
        if !self.is_up() || cx.now() < self.ask_at || self.failed.is_some() {
            return;
        }
        if let Some(at_least) = self.beginning.wanted() {
            self.beginning.is_asked = self.send(cx, BackupStep::Begin { at_least }, BEGIN_TAG);
        }
        while let Some((number, step)) = self.pieces.as_ref().and_then(Pieces::wanted) {
            if !self.send(cx, step, u64::from(number)) {
                // Until there is a buffer.
                self.ask_at = cx.now() + ASK_AGAIN;
                return;
            }
            self.pieces
                .iter_mut()
                .for_each(|pieces| pieces.on_asked(number));
        }
    }

    fn on_begin_reply(&mut self, now: Instant, reply: &BackupReply<'_>) {
        assert!(
            self.beginning.is_asked,
            "an image begins once it was asked for"
        );
        self.beginning.is_asked = false;
        match reply {
            BackupReply::Begun(head) => {
                self.beginning.at_least = None;
                self.beginning.head = Some(*head);
            }
            BackupReply::Later(why) => {
                self.beginning.later = (*why).to_owned();
                self.ask_at = now + ASK_AGAIN;
            }
            other => self.on_refusal(other),
        }
    }

    fn on_piece_reply(&mut self, now: Instant, number: u32, reply: &BackupReply<'_>) {
        match (reply, &mut self.pieces) {
            (BackupReply::Piece { last, bytes }, Some(pieces)) => {
                pieces.on_piece(number, *last, bytes);
            }
            (BackupReply::Later(_), Some(pieces)) => {
                pieces.ask_again(number);
                self.ask_at = now + ASK_AGAIN;
            }
            // The image is not wanted any more.
            (BackupReply::Piece { .. } | BackupReply::Later(_), None) => {}
            (other, _) => self.on_refusal(other),
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
            Err(_) => {
                assert_eq!(tag, BEGIN_TAG, "all other tags are numbers of pieces");
                self.on_begin_reply(cx.now(), &reply);
            }
        }
    }

    fn on_event(&mut self, _cx: &mut Cx<'_, R>, event: Event<R>) {
        let session = self.session.as_mut();
        match session.and_then(|session| session.on_event(&event)) {
            Some(SessionChange::NotReached(reason)) => {
                self.fail(BackupError::NotReached(reason.into()));
            }
            Some(SessionChange::Lost(_)) => self.fail(BackupError::Lost),
            Some(SessionChange::Up(_)) | None => {}
        }
    }

    fn on_turn(&mut self, cx: &mut Cx<'_, R>) {
        if self.session.is_none() && self.failed.is_none() {
            let params = ConnectParams {
                timeout: Some(PATIENCE),
                ..ConnectParams::default()
            };
            let session = self.session.insert(ReplicaSession::Down);
            if !session.connect(cx, self.route, params) {
                self.fail(BackupError::NotReached(Obstacle::NoConnection));
            }
        }
        self.ask(cx);
    }

    fn next_timeout(&self) -> Option<Instant> {
        let wants_piece = self.pieces.as_ref().and_then(Pieces::wanted).is_some();
        let wants = self.beginning.wanted().is_some() || wants_piece;
        (wants && self.is_up() && self.failed.is_none()).then_some(self.ask_at)
    }
}

impl Beginning {
    /// The state that is to be asked for.
    fn wanted(&self) -> Option<u64> {
        self.at_least.filter(|_| !self.is_asked)
    }
}
