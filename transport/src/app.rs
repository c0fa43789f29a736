//! A program on top of an endpoint: the calls that it must answer, and its requests to the endpoint meanwhile.

use crate::backend::Route;
use crate::buf::{ClassStats, MsgBuf};
use crate::config::Config;
use crate::endpoint::Endpoint;
pub use crate::exchange::{
    Completion, Refused, RefusedReason, Reply, Request, RequestId, ResponseHandle, RpcError, Stale,
};
use crate::keys::{KeyId, Keys, Stage};
use crate::session::{ConnectParams, ConnectRefused, Event, Holder, PeerInfo, SessionId};
use crate::stats::{EndpointStats, SessionStats};
use crate::time::{Duration, Instant};

/// The program on top of an endpoint. Every call runs in the endpoint's thread.
pub trait App<R: Route> {
    /// A peer's request, executed at most once. `request.data` is valid during this call only: a
    /// handler that answers later copies what is needed.
    fn on_request(&mut self, cx: &mut Cx<'_, R>, request: Request<'_>) -> Reply;

    /// The end of a request that this endpoint enqueued with `tag`; called exactly once for each.
    fn on_completion(&mut self, cx: &mut Cx<'_, R>, tag: u64, completion: Completion);

    /// A session came, went, or could not be made.
    fn on_event(&mut self, cx: &mut Cx<'_, R>, event: Event<R>) {
        let _ = (cx, event);
    }

    /// A notice has come: a datagram without a session, that is neither repeated nor answered, and that anybody can have
    /// sent ([`crate::wire::notice`]). Returns whether this program knows notices of this kind; it does not by default.
    fn on_notice(&mut self, cx: &mut Cx<'_, R>, kind: u8, body: &[u8]) -> bool {
        let _ = (cx, kind, body);
        false
    }

    /// Called once a turn of the event loop, after packets and timers.
    fn on_turn(&mut self, cx: &mut Cx<'_, R>) {
        let _ = cx;
    }

    /// Whom a new session from `route` is counted for. Called before a session of a peer is accepted that proves no key.
    fn holder(&self, route: &R) -> Holder {
        let _ = route;
        Holder::Shared
    }

    /// Whether a caller may open a session with this key, which the ring knows and the caller has proven to hold. Asked in
    /// handshakes only. One that may not is refused as if the ring did not know the key.
    fn admits(&self, key: &KeyId) -> bool {
        let _ = key;
        true
    }

    /// When `on_turn` must run again at the latest.
    fn next_timeout(&self) -> Option<Instant> {
        None
    }
}

/// The endpoint as handlers see it: everything but packets and timers.
pub struct Cx<'a, R: Route> {
    pub(crate) endpoint: &'a mut Endpoint<R>,
    pub(crate) now: Instant,
}

impl<'a, R: Route> Cx<'a, R> {
    /// For event loops: the context of a call to `on_event` or `on_turn`.
    pub fn new(endpoint: &'a mut Endpoint<R>, now: Instant) -> Self {
        Self { endpoint, now }
    }

    /// The time of this turn.
    #[must_use]
    pub fn now(&self) -> Instant {
        self.now
    }

    /// Memory that message buffers have taken, in bytes.
    #[must_use]
    pub fn buffer_bytes(&self) -> usize {
        self.endpoint.pool().region_bytes()
    }

    /// Those of them that went back to the system after a burst, in bytes.
    #[must_use]
    pub fn buffer_bytes_given_back(&self) -> usize {
        self.endpoint.pool().cold_bytes()
    }

    /// The sizes of the buffers that make up that memory, smallest first.
    pub fn buffer_classes(&self) -> impl Iterator<Item = ClassStats> {
        self.endpoint.pool().classes()
    }

    /// A message buffer of `len` bytes; `None` when the pool's limit is reached.
    #[inline(always)]
    pub fn alloc(&mut self, len: usize) -> Option<MsgBuf> {
        self.endpoint.alloc(len)
    }

    /// See [`Endpoint::connect`].
    pub fn connect(
        &mut self,
        route: R,
        params: ConnectParams,
    ) -> Result<SessionId, ConnectRefused> {
        self.endpoint.connect(self.now, route, params)
    }

    /// See [`Endpoint::disconnect`].
    pub fn disconnect(&mut self, session: SessionId) {
        self.endpoint.disconnect(self.now, session);
    }

    /// See [`Endpoint::give_no_response`].
    pub fn give_no_response(&mut self, handle: ResponseHandle) -> bool {
        self.endpoint.give_no_response(self.now, handle)
    }

    /// See [`Endpoint::cancel`].
    pub fn cancel(&mut self, request: RequestId) -> bool {
        self.endpoint.cancel(request)
    }

    /// See [`Endpoint::enqueue_request`].
    #[allow(clippy::result_large_err)] // the buffers come back in the error
    pub fn enqueue_request(
        &mut self,
        session: SessionId,
        kind: u8,
        request: MsgBuf,
        response: MsgBuf,
        tag: u64,
        deadline: Option<Instant>,
    ) -> Result<RequestId, Refused> {
        self.endpoint
            .enqueue_request(self.now, session, kind, request, response, tag, deadline)
    }

    /// See [`Endpoint::enqueue_response`].
    #[allow(clippy::result_large_err)] // the buffer comes back in the error
    pub fn enqueue_response(
        &mut self,
        handle: ResponseHandle,
        response: MsgBuf,
    ) -> Result<(), Stale> {
        self.endpoint.enqueue_response(self.now, handle, response)
    }

    /// See [`Endpoint::peer`].
    #[must_use]
    pub fn peer(&self, session: SessionId) -> Option<PeerInfo<R>> {
        self.endpoint.peer(session)
    }

    /// See [`Endpoint::end_sessions_of`].
    pub fn end_sessions_of(&mut self, is_over: impl Fn(&KeyId) -> bool) -> usize {
        self.endpoint.end_sessions_of(self.now, is_over)
    }

    /// See [`Endpoint::change_keys`].
    pub fn change_keys(&mut self, keys: Keys) -> usize {
        self.endpoint.change_keys(self.now, keys)
    }

    /// See [`Endpoint::end_unsealed`].
    pub fn end_unsealed(&mut self, are_meant: impl Fn(&R) -> bool) -> usize {
        self.endpoint.end_unsealed(self.now, are_meant)
    }

    /// See [`Endpoint::unsealed_callers`].
    pub fn unsealed_callers(&self) -> impl Iterator<Item = (SessionId, R)> + '_ {
        self.endpoint.unsealed_callers()
    }

    /// See [`Endpoint::sealed_callers`].
    pub fn sealed_callers(&self) -> impl Iterator<Item = KeyId> + '_ {
        self.endpoint.sealed_callers()
    }

    /// See [`Endpoint::key_stage`].
    #[must_use]
    pub fn key_stage(&self) -> Option<Stage> {
        self.endpoint.key_stage()
    }

    /// See [`Endpoint::key`].
    #[must_use]
    pub fn key(&self, session: SessionId) -> Option<KeyId> {
        self.endpoint.key(session)
    }

    /// See [`Endpoint::session_stats`].
    #[must_use]
    pub fn session_stats(&self, session: SessionId) -> Option<SessionStats> {
        self.endpoint.session_stats(session)
    }

    /// See [`Endpoint::stats`].
    #[must_use]
    pub fn stats(&self) -> EndpointStats {
        self.endpoint.stats()
    }

    /// See [`Endpoint::set_identity`].
    pub fn set_identity(&mut self, identity: crate::session::Identity) {
        self.endpoint.set_identity(identity);
    }

    /// The endpoint's configuration.
    #[must_use]
    pub fn config(&self) -> &Config {
        self.endpoint.config()
    }

    /// A deadline `after` from now.
    #[must_use]
    pub fn deadline(&self, after: Duration) -> Instant {
        self.now + after
    }
}
