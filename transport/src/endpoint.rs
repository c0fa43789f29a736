//! The sans-IO core: called with `now` and packets, hands back packets, deadlines and events.

use std::collections::VecDeque;

use crate::app::{App, Refused, RefusedReason, RequestId, ResponseHandle, Stale};
use crate::backend::{Caps, Route, RxBatch, TxBatch};
use crate::buf::{MsgBuf, Pool};
use crate::config::{Config, ConfigError};
use crate::prng::Prng;
use crate::session::{ConnectParams, ConnectRefused, Event, Identity, PeerInfo, SessionId};
use crate::stats::{EndpointStats, SessionStats};
use crate::time::Instant;

/// One end of any number of sessions, for one thread: no I/O, no clock.
pub struct Endpoint<R: Route> {
    config: Config,
    pool: Pool,
    identity: Identity,
    _prng: Prng,
    events: VecDeque<Event<R>>,
    stats: EndpointStats,
}

/// What [`Endpoint::poll_transmit`] did.
#[derive(Copy, Clone, Debug, Default, Eq, PartialEq)]
pub struct Transmit {
    /// Packets added to the batch.
    pub count: usize,
    /// A buffer that must go back to the application was retransmitted: call `Backend::flush`,
    /// then [`Endpoint::on_tx_flushed`], before this batch is sent.
    pub flush_first: bool,
}

impl<R: Route> Endpoint<R> {
    /// An endpoint over a backend with these capabilities, whose `pool` its messages come from.
    pub fn new(
        config: Config,
        caps: &Caps,
        pool: Pool,
        identity: Identity,
        seed: u64,
    ) -> Result<Self, ConfigError> {
        config.validate()?;
        let _ = caps;
        Ok(Self {
            config,
            pool,
            identity,
            _prng: Prng::new(seed),
            events: VecDeque::new(),
            stats: EndpointStats::default(),
        })
    }

    /// Starts to make a session with the endpoint at `route`; the result arrives as an event.
    pub fn connect(
        &mut self,
        now: Instant,
        route: R,
        params: ConnectParams,
    ) -> Result<SessionId, ConnectRefused> {
        let _ = (now, route, params);
        Err(ConnectRefused::TooManySessions)
    }

    /// Ends a session of either mode. Pending requests complete with an error, then `Down` follows.
    pub fn disconnect(&mut self, now: Instant, session: SessionId) {
        let _ = (now, session);
    }

    /// Gives up a request: it completes with `Cancelled`. False if it has already completed.
    pub fn cancel(&mut self, now: Instant, request: RequestId) -> bool {
        let _ = (now, request);
        false
    }

    /// Sends `request` as soon as slots and credits allow. The answer goes into `response`, whose
    /// capacity bounds it. Both buffers come back in the completion with `tag`.
    #[allow(clippy::too_many_arguments)]
    pub fn enqueue_request(
        &mut self,
        now: Instant,
        session: SessionId,
        kind: u8,
        request: MsgBuf,
        response: MsgBuf,
        tag: u64,
        deadline: Option<Instant>,
    ) -> Result<RequestId, Refused> {
        let _ = (now, session, kind, tag, deadline);
        Err(Refused {
            reason: RefusedReason::NoSession,
            request,
            response,
        })
    }

    /// Answers a request whose handler said `Later`.
    pub fn enqueue_response(
        &mut self,
        now: Instant,
        handle: ResponseHandle,
        response: MsgBuf,
    ) -> Result<(), Stale> {
        let _ = (now, handle);
        Err(Stale { response })
    }

    /// Takes received datagrams in.
    pub fn on_packets(&mut self, now: Instant, rx: &mut RxBatch<'_, R>, app: &mut impl App<R>) {
        let _ = (now, rx, app);
    }

    /// Runs the timers that are due, and the completions that wait for an application.
    pub fn on_timeout(&mut self, now: Instant, app: &mut impl App<R>) {
        let _ = (now, app);
    }

    /// Fills `tx` with packets to send.
    pub fn poll_transmit(&mut self, now: Instant, tx: &mut TxBatch<R>) -> Transmit {
        let _ = (now, tx);
        Transmit::default()
    }

    /// The backend has flushed: nothing handed out before the last `poll_transmit` is referred to.
    pub fn on_tx_flushed(&mut self) {}

    /// When `on_timeout` must be called at the latest; a moment in the past means at once.
    #[must_use]
    pub fn next_timeout(&self) -> Option<Instant> {
        None
    }

    /// The next news about sessions.
    pub fn poll_event(&mut self) -> Option<Event<R>> {
        self.events.pop_front()
    }

    /// Changes what later handshakes say about this endpoint.
    pub fn set_identity(&mut self, identity: Identity) {
        self.identity = identity;
    }

    /// Who this endpoint says it is.
    #[must_use]
    pub fn identity(&self) -> Identity {
        self.identity
    }

    /// Counters.
    #[must_use]
    pub fn stats(&self) -> EndpointStats {
        self.stats
    }

    /// A session's measurements; `None` once it is over.
    #[must_use]
    pub fn session_stats(&self, session: SessionId) -> Option<SessionStats> {
        let _ = session;
        None
    }

    /// The other end of a session that stands.
    #[must_use]
    pub fn peer(&self, session: SessionId) -> Option<PeerInfo<R>> {
        let _ = session;
        None
    }

    /// The pool of the backend.
    #[must_use]
    pub fn pool(&self) -> &Pool {
        &self.pool
    }

    /// The configuration.
    #[must_use]
    pub fn config(&self) -> &Config {
        &self.config
    }
}
