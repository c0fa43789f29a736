//! Keeps the requests of a benchmark's client in flight. Its [`Work`] chooses them, and checks their answers.

use trine_base::failure::Failure;
use trine_base::interrupt;
use trine_transport::backend::{MonotonicClock, Route};
use trine_transport::slab::{Key, Slab};
use trine_transport::time::{Clock, Duration, Instant};
use trine_transport::{
    App, Completion, ConnectError, Cx, Event, RefusedReason, Reply, Request, RpcError, SessionId,
};

use crate::line::Service;

/// What a benchmark asks, and what it makes of the answers.
pub(crate) trait Work {
    /// What is asked from `begin` on, and how long.
    type Load;
    /// What a request asked, as its answer needs it.
    type Asked: Copy;
    /// The bytes of a request.
    type Bytes: AsRef<[u8]>;
    /// What a load has shown.
    type Measured;

    /// The servers.
    const SERVICE: Service;
    /// The server, with its article.
    const SERVER: &'static str;
    /// The most bytes of an answer.
    const ANSWER_BYTES: usize;

    /// Begins a load.
    fn begin(&mut self, load: Self::Load);

    /// Whether no request of the load is left to be sent.
    fn is_sent(&self) -> bool;

    /// When the next request is due; `None` if there is none now.
    fn next_due(&mut self, now: Instant, in_flight: usize) -> Option<Instant>;

    /// What the next request asks.
    fn next_ask(&mut self) -> Self::Asked;

    /// The kind and the bytes of a request.
    fn encode(&self, asked: Self::Asked) -> (u8, Self::Bytes);

    /// The next request was sent.
    fn on_sent(&mut self);

    /// Checks an answer, which came now, and records its latency in nanoseconds.
    fn record(
        &mut self,
        asked: Self::Asked,
        bytes: &[u8],
        latency: u64,
        now: Instant,
    ) -> Result<(), Failure>;

    /// What the load has shown.
    fn take_measured(&mut self) -> Self::Measured;

    /// When a request falls due, if it has to wait for that.
    fn next_timeout(&self) -> Option<Instant> {
        None
    }
}

struct Flight<Asked> {
    asked: Asked,
    due: Instant,
}

/// The client.
pub(crate) struct Driver<W: Work> {
    work: W,
    session: Option<SessionId>,
    refusal: Option<ConnectError>,
    failure: Option<Failure>,
    timeout: Duration,
    /// Requests in flight, by their tags.
    flights: Slab<Flight<W::Asked>>,
}

impl<W: Work> Driver<W> {
    /// With at most `window` requests in flight.
    pub(crate) fn new(work: W, window: usize, timeout: Duration) -> Self {
        Self {
            work,
            session: None,
            refusal: None,
            failure: None,
            timeout,
            flights: Slab::new(window),
        }
    }

    /// How long connecting and each request may take.
    pub(super) fn timeout(&self) -> Duration {
        self.timeout
    }

    /// Whether a session came about, or why none did.
    pub(super) fn connected(&self) -> Option<Result<(), ConnectError>> {
        match self.refusal {
            Some(error) => Some(Err(error)),
            None => self.session.map(|_| Ok(())),
        }
    }

    /// Begins a load.
    pub(super) fn begin(&mut self, load: W::Load) {
        self.work.begin(load);
    }

    /// Whether the load is over, or cannot go on.
    pub(super) fn is_over(&self) -> bool {
        let is_idle = self.work.is_sent() && self.in_flight() == 0;
        is_idle || self.failure.is_some() || interrupt::interrupted()
    }

    /// What the load has shown.
    pub(super) fn finish(&mut self) -> Result<W::Measured, Failure> {
        if interrupt::interrupted() {
            return Err(Failure::interrupted());
        }
        match self.failure.take() {
            Some(failure) => Err(failure),
            None => Ok(self.work.take_measured()),
        }
    }

    fn in_flight(&self) -> usize {
        self.flights.len()
    }

    /// When the next request is due; `None` if there is none now, or no room for it.
    fn next_due(&mut self, now: Instant) -> Option<Instant> {
        let due = self.work.next_due(now, self.in_flight())?;
        (!self.flights.is_full()).then_some(due)
    }

    fn send<R: Route>(&mut self, cx: &mut Cx<'_, R>, session: SessionId, due: Instant) -> bool {
        let asked = self.work.next_ask();
        let (kind, bytes) = self.work.encode(asked);
        let bytes = bytes.as_ref();
        let (Some(mut request), Some(response)) =
            (cx.alloc(bytes.len()), cx.alloc(W::ANSWER_BYTES))
        else {
            self.failure = Some(Failure::usage("no memory for requests", "lower --pipeline"));
            return false;
        };
        request.copy_from_slice(bytes);
        let Ok(key) = self.flights.insert(Flight { asked, due }) else {
            return false;
        };
        let deadline = Some(cx.deadline(self.timeout));
        match cx.enqueue_request(session, kind, request, response, key.to_u64(), deadline) {
            Ok(_) => {
                self.work.on_sent();
                true
            }
            Err(refused) => {
                self.flights.remove(key);
                if refused.reason != RefusedReason::QueueFull {
                    self.fail(RpcError::NotSent);
                }
                false
            }
        }
    }

    fn fail(&mut self, error: RpcError) {
        let failure = || {
            Failure::not_reachable(
                format!("{} no longer answers: {error}", W::SERVER),
                "check that it is still running",
            )
        };
        self.failure.get_or_insert_with(failure);
    }

    fn record(&mut self, flight: Flight<W::Asked>, bytes: &[u8], now: Instant) {
        let latency = now.saturating_since(flight.due).as_nanos();
        if let Err(wrong) = self.work.record(flight.asked, bytes, latency, now) {
            self.failure.get_or_insert(wrong);
        }
    }
}

impl<R: Route, W: Work> App<R> for Driver<W> {
    fn on_request(&mut self, cx: &mut Cx<'_, R>, _: Request<'_>) -> Reply {
        cx.alloc(0).map_or(Reply::Later, Reply::Now)
    }

    fn on_completion(&mut self, _: &mut Cx<'_, R>, tag: u64, completion: Completion) {
        let flight = self.flights.remove(Key::from_u64(tag));
        let flight = flight.expect("a request ends once");
        match completion.result {
            Ok(()) => self.record(flight, &completion.response, MonotonicClock.now()),
            Err(error) => self.fail(error),
        }
    }

    fn on_event(&mut self, _: &mut Cx<'_, R>, event: Event<R>) {
        match event {
            Event::Connected { session, .. } => self.session = Some(session),
            Event::ConnectFailed { reason, .. } => self.refusal = Some(reason),
            Event::Accepted { .. } => {}
            Event::Down { .. } => self.fail(RpcError::NotSent),
        }
    }

    fn on_turn(&mut self, cx: &mut Cx<'_, R>) {
        let Some(session) = self.session.filter(|_| self.failure.is_none()) else {
            return;
        };
        let now = MonotonicClock.now();
        while let Some(due) = self.next_due(now) {
            if !self.send(cx, session, due) {
                break;
            }
        }
    }

    fn next_timeout(&self) -> Option<Instant> {
        self.work.next_timeout()
    }
}
