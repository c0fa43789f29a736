//! A stream of all changes of some keys, from any replica of a group.
//!
//! [`WatchStream`] is the protocol as a value without I/O. [`Watcher`] lets a caller wait for its batches, and
//! [`AsyncWatcher`] gives them to a future.

mod asynchronous;
mod config;
mod event;
mod objections;
mod replicas;
mod session;
mod stream;

pub use asynchronous::{AsyncWatcher, NextBatch};
pub use config::{WatchConfig, WatchError, WatchFrom};
pub use event::{WatchBatch, WatchTarget, WatchedChange, WatchedEvent};
pub use objections::Objection;
pub use session::{WatchAnswer, WatchSession, WatchWish};
pub use stream::WatchStream;

use std::net::SocketAddr;

use trine_kvstore::Position;
use trine_transport::Identity;
use trine_transport::backend::Backend;
use trine_transport::event_loop::EventLoop;
use trine_transport::time::{Clock, Duration};

/// A stream of changes.
pub struct Watcher<B: Backend, C> {
    event_loop: EventLoop<B, C, WatchStream<B::Route>>,
}

impl<B: Backend, C: Clock> Watcher<B, C> {
    /// A stream. Nothing is sent before [`Watcher::next`] is called.
    ///
    /// # Errors
    /// [`WatchError::Transport`].
    pub fn new(
        backend: B,
        clock: C,
        transport: trine_transport::Config,
        config: WatchConfig,
        route_of: impl Fn(SocketAddr) -> Option<B::Route>,
        seed: u64,
    ) -> Result<Self, WatchError> {
        let stream = WatchStream::new(config, route_of, seed);
        let identity = identity_of(seed);
        let event_loop = EventLoop::new(backend, clock, stream, transport, identity, seed)
            .map_err(WatchError::Transport)?;
        Ok(Self { event_loop })
    }

    /// The next events, if they come within `patience`. A batch without events says that nothing has happened up to its
    /// position.
    ///
    /// # Errors
    /// The stream cannot go on. Replicas that do not answer are no error: the stream tries them until one does.
    pub fn next(&mut self, patience: Duration) -> Result<Option<WatchBatch>, WatchError> {
        let until = self.event_loop.now() + patience;
        self.event_loop
            .run_until(Some(until), |stream| {
                stream.error().is_some() || stream.has_batch()
            })
            .map_err(WatchError::Backend)?;
        let stream = self.event_loop.app_mut();
        match (stream.take_batch(), stream.error()) {
            (Some(batch), _) => Ok(Some(batch)),
            (None, Some(error)) => Err(error.clone()),
            (None, None) => Ok(None),
        }
    }

    /// See [`WatchStream::add_address`].
    pub fn add_address(&mut self, address: SocketAddr, route: Option<B::Route>) {
        self.event_loop.app_mut().add_address(address, route);
    }

    /// Where the stream has begun, once that is known.
    #[must_use]
    pub fn began(&self) -> Option<Position> {
        self.event_loop.app().began()
    }

    /// The replica that serves the stream, while one does.
    #[must_use]
    pub fn served_by(&self) -> Option<SocketAddr> {
        self.event_loop.app().served_by(self.event_loop.now())
    }

    /// Why no replica serves the stream now, and since when none does.
    #[must_use]
    pub fn trouble(&self) -> Option<(&str, Duration)> {
        self.event_loop.app().trouble(self.event_loop.now())
    }

    /// Ends the stream, and with it the session.
    pub fn leave(mut self) {
        self.event_loop.with(|stream, cx| stream.leave(cx));
        let _ = self.event_loop.turn();
    }
}

/// The transport's name of a watcher.
fn identity_of(seed: u64) -> Identity {
    Identity {
        cluster: 0,
        incarnation: seed.max(1),
    }
}
