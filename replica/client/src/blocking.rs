//! The blocking front: one call, one answer. It drives its own event loop in the caller's thread.

use std::net::SocketAddr;

use trine_kvstore::Command;
use trine_protocol::route::RouteOf;
use trine_transport::backend::{Backend, BackendError};
use trine_transport::event_loop::EventLoop;
use trine_transport::time::{Clock, Duration, Instant};
use trine_transport::{ConfigError, Identity};

use super::config::{ClientConfig, ClientConfigError};
use super::core::{ClientId, Clients, Submission, SubmitError};
use super::operation::Mode;
use super::outcome::{Answer, Error};

/// Why a client could not be made.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum OpenError {
    /// The client's settings contradict themselves.
    #[error(transparent)]
    Client(#[from] ClientConfigError),
    /// The transport's settings contradict themselves or the backend.
    #[error("{0}")]
    Transport(ConfigError),
}

/// Why a call has no answer.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum CallError {
    /// It was not even begun: nothing was sent.
    #[error(transparent)]
    NotBegun(#[from] SubmitError),
    /// It was tried; the error says whether it can have been applied.
    #[error(transparent)]
    Failed(#[from] Error),
    /// The socket became unusable while it was under way: it may have been applied.
    #[error("outcome unknown, it may have been applied: {0}")]
    Backend(BackendError),
    /// The client's thread has ended while it was under way: it may have been applied.
    #[error("outcome unknown, it may have been applied: the client was stopped")]
    Stopped,
}

impl CallError {
    /// Whether the command certainly was not applied and never will be.
    #[must_use]
    pub const fn is_definitely_not_applied(&self) -> bool {
        match self {
            Self::NotBegun(_) => true,
            Self::Failed(error) => error.is_definitely_not_applied(),
            Self::Backend(_) | Self::Stopped => false,
        }
    }
}

/// A client that waits for each answer.
///
/// It belongs to the process that opened it. In a child of `fork` (or of `daemon(3)`, which forks) its calls are *not applied*,
/// those that were under way are *outcome unknown*, and the parent's goes on. A child opens a client of its own.
pub struct BlockingClient<B: Backend, C> {
    event_loop: EventLoop<B, C, Clients<B::Route>>,
    client: ClientId,
    /// The tag of the present call. An earlier one may still be under way, if its wait was given up or the backend failed.
    tag: u64,
}

impl<B: Backend, C: Clock> BlockingClient<B, C> {
    /// A client over `backend`; the first call connects.
    ///
    /// # Errors
    /// When settings contradict themselves.
    pub fn new(
        backend: B,
        clock: C,
        config: ClientConfig,
        transport: trine_transport::Config,
        route_of: RouteOf<B::Route>,
        seed: u64,
    ) -> Result<Self, OpenError> {
        let identity = client_identity(&config, seed);
        let mut clients = Clients::new(config, route_of, backend.pool().clone(), seed)?;
        let client = clients.open().expect("a new table has room for one client");
        let event_loop = EventLoop::new(backend, clock, clients, transport, identity, seed)
            .map_err(OpenError::Transport)?;
        Ok(Self {
            event_loop,
            client,
            tag: 0,
        })
    }

    /// Does one command and waits for its end.
    ///
    /// # Errors
    /// [`CallError`] says whether the command can have been applied.
    pub fn execute(&mut self, mode: Mode, command: &Command<'_>) -> Result<Answer, CallError> {
        self.begin(mode, command, None)?;
        // Every operation ends by its deadline, so this does.
        let answer = self.answer_by(None)?;
        Ok(answer.expect("a wait without an end is over when there is an answer"))
    }

    /// Begins one command, for [`BlockingClient::answer_by`]. It has the configured timeout, or this limit. Another one that
    /// has no answer yet is no longer waited for.
    ///
    /// # Errors
    /// Nothing was sent.
    pub fn begin(
        &mut self,
        mode: Mode,
        command: &Command<'_>,
        limit: Option<Duration>,
    ) -> Result<(), SubmitError> {
        if !self.event_loop.is_here() {
            // Its turn fails, and gives up what the parent shares with this process.
            let _ = self.event_loop.turn();
            return Err(SubmitError::OtherProcess);
        }
        let client = self.current_client()?;
        self.tag += 1;
        let tag = self.tag;
        self.event_loop.with(|clients, cx| {
            let submission = Submission {
                mode,
                command,
                deadline: limit.map(|limit| cx.now() + limit),
                tag,
            };
            clients.submit(cx.now(), client, submission)
        })
    }

    /// Waits for the answer to the command that was begun last, at most until this time. `None`: there is none yet.
    ///
    /// # Errors
    /// As [`BlockingClient::execute`].
    pub fn answer_by(&mut self, until: Option<Instant>) -> Result<Option<Answer>, CallError> {
        let (mut finished, tag) = (None, self.tag);
        let done = |clients: &mut Clients<B::Route>| {
            while let Some(other) = clients.poll_finished() {
                if other.tag == tag {
                    finished = Some(other);
                }
            }
            finished.is_some()
        };
        self.event_loop
            .run_until(until, done)
            .map_err(CallError::Backend)?;
        let result = finished.map(|finished| finished.result.map_err(CallError::Failed));
        result.transpose()
    }

    /// See [`Clients::add_peer`].
    pub fn add_peer(&mut self, address: SocketAddr) {
        self.event_loop.app_mut().add_peer(address);
    }

    /// The value of `key`, linearizable.
    ///
    /// # Errors
    /// As [`BlockingClient::execute`].
    pub fn get(&mut self, key: &[u8]) -> Result<Answer, CallError> {
        self.execute(Mode::Read, &Command::Get { key })
    }

    /// Sets `key` to `value`.
    ///
    /// # Errors
    /// As [`BlockingClient::execute`].
    pub fn put(&mut self, key: &[u8], value: &[u8]) -> Result<Answer, CallError> {
        self.execute(Mode::Write, &Command::Put { key, value })
    }

    /// Removes `key`.
    ///
    /// # Errors
    /// As [`BlockingClient::execute`].
    pub fn delete(&mut self, key: &[u8]) -> Result<Answer, CallError> {
        self.execute(Mode::Write, &Command::Delete { key })
    }

    /// The replica that is taken for the leader.
    #[must_use]
    pub fn leader(&self) -> Option<SocketAddr> {
        self.event_loop.app().leader()
    }

    /// The event loop underneath, for its clock and counters.
    #[must_use]
    pub const fn event_loop(&self) -> &EventLoop<B, C, Clients<B::Route>> {
        &self.event_loop
    }

    /// The open logical client; another one after a command that closed the last.
    fn current_client(&mut self) -> Result<ClientId, SubmitError> {
        let clients = self.event_loop.app_mut();
        if !clients.is_open(self.client) {
            self.client = clients.open().ok_or(SubmitError::TooMany)?;
        }
        Ok(self.client)
    }
}

/// A client endpoint's claims in handshakes: its incarnation, so that replicas can tell it from an earlier client at
/// the same address, and its cluster only if that is configured.
pub(super) fn client_identity(config: &ClientConfig, seed: u64) -> Identity {
    Identity {
        cluster: config.cluster.0,
        incarnation: seed.max(1),
    }
}
