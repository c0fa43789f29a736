//! Reads an image of one replica's state, piece by piece, for a backup.
//!
//! A reader has one session with one replica. It asks for a few pieces ahead, hands them out in their order, and tells
//! the replica which ones its caller has. When the session fails, another reader can go on with the same image.
//! [`BackupSession`] is all of that as a value without I/O. [`BackupReader`] waits for what comes.

mod pieces;
mod session;

use trine_protocol::message::{BackupHead, ClusterId};
use trine_transport::Identity;
use trine_transport::backend::Backend;
use trine_transport::event_loop::EventLoop;
use trine_transport::time::{Clock, Duration, Instant};

pub use pieces::Piece;
use session::ASK_AGAIN;
pub use session::{BackupError, BackupSession};

/// Reads an image of one replica.
pub struct BackupReader<B: Backend, C> {
    event_loop: EventLoop<B, C, BackupSession<B::Route>>,
}

impl<B: Backend, C: Clock> BackupReader<B, C> {
    /// A reader of the replica that `route` leads to, which belongs to `cluster`.
    ///
    /// # Errors
    /// [`BackupError::Transport`].
    pub fn new(
        backend: B,
        clock: C,
        transport: trine_transport::Config,
        route: B::Route,
        cluster: ClusterId,
        seed: u64,
    ) -> Result<Self, BackupError> {
        let session = BackupSession::new(route, cluster);
        let identity = Identity {
            cluster: cluster.0,
            incarnation: seed.max(1),
        };
        let event_loop = EventLoop::new(backend, clock, session, transport, identity, seed)
            .map_err(BackupError::Transport)?;
        Ok(Self { event_loop })
    }

    /// Asks for an image of the state after at least the entry `at_least`, and waits for it for `patience`. Nothing if the
    /// replica cannot make one yet; a later call goes on waiting.
    ///
    /// # Errors
    /// [`BackupError`].
    pub fn begin(
        &mut self,
        at_least: u64,
        patience: Duration,
    ) -> Result<Option<BackupHead>, BackupError> {
        self.event_loop.app_mut().begin(at_least);
        let until = self.event_loop.now() + patience;
        self.run(until, |session| session.head().is_some())?;
        Ok(self.event_loop.app().head().copied())
    }

    /// Why the replica cannot make an image yet.
    #[must_use]
    pub fn why_not_yet(&self) -> &str {
        self.event_loop.app().why_not_yet()
    }

    /// Goes on with an image that another reader has begun, with the piece `number`.
    pub fn go_on(&mut self, image: u64, number: u32) {
        self.event_loop.app_mut().go_on(image, number);
    }

    /// The next piece, if it comes within `patience`. Those before it count as taken.
    ///
    /// # Errors
    /// [`BackupError`].
    pub fn next(&mut self, patience: Duration) -> Result<Option<Piece>, BackupError> {
        let until = self.event_loop.now() + patience;
        self.run(until, BackupSession::has_piece)?;
        Ok(self.event_loop.app_mut().take())
    }

    /// Does nothing for so long but to keep the session.
    ///
    /// # Errors
    /// [`BackupError`].
    pub fn pause(&mut self, pause: Duration) -> Result<(), BackupError> {
        let until = self.event_loop.now() + pause;
        self.run(until, |_| false)
    }

    /// Tells the replica that the image is not needed any more.
    pub fn end(mut self) {
        self.event_loop.with(|session, cx| session.end(cx));
        let until = self.event_loop.now() + ASK_AGAIN;
        // The replica finds out by itself if this does not reach it.
        let _ = self
            .event_loop
            .run_until(Some(until), |session| session.is_over());
        self.leave();
    }

    /// Ends the session, and leaves the image where it is.
    pub fn leave(mut self) {
        self.event_loop.with(|session, cx| session.leave(cx));
        let _ = self.event_loop.turn();
    }

    fn run(
        &mut self,
        until: Instant,
        done: impl Fn(&BackupSession<B::Route>) -> bool,
    ) -> Result<(), BackupError> {
        self.event_loop
            .run_until(Some(until), |session| {
                session.error().is_some() || done(session)
            })
            .map_err(BackupError::Backend)?;
        match self.event_loop.app().error() {
            Some(error) => Err(error.clone()),
            None => Ok(()),
        }
    }
}
