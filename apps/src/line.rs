//! A command's request to one thread of a server.

use std::any::Any;
use std::net::SocketAddr;

use trine_transport::backend::{Backend, MonotonicClock, Route};
use trine_transport::buf::MsgBuf;
use trine_transport::time::{Clock, Duration, Instant};
use trine_transport::{
    App, Completion, ConnectError, ConnectParams, Cx, Event, EventLoop, Reply, Request, RpcError,
    SessionId,
};

use crate::event_loop::{event_loop, turn_until};
use crate::rights::Denied;
use trine_base::failure::Failure;
use trine_base::network::{Network, Opened};
use trine_base::units::show_ns;

/// What the servers of a kind are called in messages.
pub(crate) struct Service {
    /// With its article.
    pub(crate) name: &'static str,
    /// What to do if none answers.
    pub(crate) start_one: &'static str,
    /// What to do if the outcome of a write is unknown.
    pub(crate) see_whether: &'static str,
}

pub(crate) const SAME_RELEASE: &str = "run the same release on both sides";
/// A connection is tried even at the very end of the time, so that the failure names its cause.
const CONNECT_LEAST: Duration = Duration::from_millis(1);

/// How long a command tries.
#[derive(Copy, Clone)]
pub(crate) struct Patience {
    limit: Duration,
    deadline: Instant,
}

impl Patience {
    /// From now on.
    pub(crate) fn of(limit: impl Into<Duration>) -> Self {
        let limit = limit.into();
        let deadline = MonotonicClock.now() + limit;
        Self { limit, deadline }
    }
}

/// A session with one thread of a server.
pub(crate) struct ThreadSession<B: Backend> {
    service: &'static Service,
    event_loop: EventLoop<B, MonotonicClock, CallRecorder>,
    session: SessionId,
    address: SocketAddr,
    patience: Patience,
    _keep: Option<Box<dyn Any + Send>>,
}

impl<B: Backend> ThreadSession<B> {
    pub(crate) fn open<N: Network<Backend = B>>(
        network: &N,
        service: &'static Service,
        address: SocketAddr,
        patience: Patience,
    ) -> Result<Self, Failure> {
        let Reached {
            mut event_loop,
            route,
            keep,
        } = reach(network, service, address, CallRecorder::default())?;
        let left = patience.deadline.saturating_since(MonotonicClock.now());
        let session = connect(&mut event_loop, route, left.max(CONNECT_LEAST))?;
        let connected = |caller: &CallRecorder| caller.connected;
        await_session(&mut event_loop, service, address, patience.limit, connected)?;
        Ok(Self {
            service,
            event_loop,
            session,
            address,
            patience,
            _keep: keep,
        })
    }

    /// Asks. `writes` says whether a lost answer leaves the outcome unknown. A denial is a failure.
    pub(crate) fn ask(
        &mut self,
        kind: u8,
        request: &[u8],
        answer_bytes: usize,
        writes: bool,
    ) -> Result<MsgBuf, Failure> {
        let (session, deadline) = (self.session, self.patience.deadline);
        let sent = self.event_loop.with(|_, cx| {
            let (Some(mut question), Some(answer)) =
                (cx.alloc(request.len()), cx.alloc(answer_bytes))
            else {
                return false;
            };
            question.copy_from_slice(request);
            cx.enqueue_request(session, kind, question, answer, 0, Some(deadline))
                .is_ok()
        });
        if !sent {
            return Err(self.lost(RpcError::NotSent, writes));
        }
        // Ends without a limit here, because the request has a deadline.
        turn_until(&mut self.event_loop, |caller| caller.completion.is_some())
            .map_err(|failure| self.given_up(failure, writes))?;
        match self.event_loop.app_mut().completion.take() {
            Some(Completion {
                result: Ok(()),
                response,
                ..
            }) => match Denied::decode(&response) {
                Some(denied) => Err(denied.failure()),
                None => Ok(response),
            },
            Some(Completion {
                result: Err(error), ..
            }) => Err(self.lost(error, writes)),
            None => unreachable!("the loop ends with a completion"),
        }
    }

    /// Why the answer was not waited for. A command that was sent may have been done, also after a Ctrl-C.
    fn given_up(&self, failure: Failure, writes: bool) -> Failure {
        match failure.is_interrupted() && writes {
            true => Failure::interrupted_after(
                format!(
                    "the command was sent to {} and may have been applied",
                    self.address
                ),
                self.service.see_whether,
            ),
            false => failure,
        }
    }

    /// Reports a request without an answer, and says only what is certain.
    fn lost(&self, error: RpcError, writes: bool) -> Failure {
        let (address, waited) = (self.address, show_ns(self.patience.limit.as_nanos()));
        match (error, writes) {
            (RpcError::ResponseTooLarge { .. }, _) => Failure::usage(
                format!("{address} sent a reply that does not match the request"),
                SAME_RELEASE,
            ),
            (RpcError::NotSent, _) | (_, false) => Failure::not_reachable(
                format!("{address}: {error}; nothing was done (tried for {waited} at most)"),
                self.service.start_one,
            ),
            (_, true) => Failure::outcome_unknown(
                format!("{address}: {error}; the command was sent and may have been applied"),
                self.service.see_whether,
            ),
        }
    }
}

/// A client's event loop, and its way to a server.
pub(crate) struct Reached<B: Backend, A> {
    pub(crate) event_loop: EventLoop<B, MonotonicClock, A>,
    pub(crate) route: B::Route,
    /// A resource that has to outlive the event loop.
    pub(crate) keep: Option<Box<dyn Any + Send>>,
}

/// Looks for a way to a server.
pub(crate) fn reach<N: Network, A: App<<N::Backend as Backend>::Route>>(
    network: &N,
    service: &Service,
    address: SocketAddr,
    app: A,
) -> Result<Reached<N::Backend, A>, Failure> {
    let Opened {
        backend,
        endpoint,
        route_of,
        keep,
        ..
    } = network.call(&[address])?;
    let event_loop = event_loop(backend, app, endpoint)?;
    let Some(route) = route_of(address) else {
        let message = format!("no way to {address} is known; nothing was done");
        return Err(Failure::not_reachable(message, service.start_one));
    };
    Ok(Reached {
        event_loop,
        route,
        keep,
    })
}

/// Asks for a session.
pub(crate) fn connect<B: Backend, A: App<B::Route>>(
    event_loop: &mut EventLoop<B, MonotonicClock, A>,
    route: B::Route,
    timeout: Duration,
) -> Result<SessionId, Failure> {
    let params = ConnectParams {
        timeout: Some(timeout),
        ..ConnectParams::default()
    };
    event_loop
        .with(|_, cx| cx.connect(route, params))
        .map_err(|refused| Failure::usage(format!("cannot connect: {refused:?}"), ""))
}

/// Turns the loop until `connected` says whether the session came about. `limit` is the time to report.
pub(crate) fn await_session<B: Backend, A: App<B::Route>>(
    event_loop: &mut EventLoop<B, MonotonicClock, A>,
    service: &Service,
    address: SocketAddr,
    limit: Duration,
    connected: impl Fn(&A) -> Option<Result<(), ConnectError>>,
) -> Result<(), Failure> {
    // Ends without a limit here, because connecting has a timeout.
    turn_until(event_loop, |app| connected(app).is_some())?;
    match connected(event_loop.app()) {
        Some(Err(error)) => Err(connect_failure(service, address, error, limit)),
        _ => Ok(()),
    }
}

/// Why no session came about.
fn connect_failure(
    service: &Service,
    address: SocketAddr,
    error: ConnectError,
    limit: Duration,
) -> Failure {
    let Service {
        name, start_one, ..
    } = *service;
    match error {
        ConnectError::TimedOut | ConnectError::Cancelled => Failure::not_reachable(
            format!(
                "no answer from {address}; nothing was done (tried for {})",
                show_ns(limit.as_nanos())
            ),
            start_one,
        ),
        ConnectError::PeerFull => Failure::not_reachable(
            format!("{address} has no room for another client; nothing was done"),
            "try again when other clients have disconnected",
        ),
        ConnectError::BadTerms { term, nearest } => Failure::usage(
            format!(
                "{address} makes no session with this {term} (nearest: {nearest}); nothing was done"
            ),
            SAME_RELEASE,
        ),
        ConnectError::OtherReason { code } => Failure::not_reachable(
            format!("{address} refused the session for reason {code}; nothing was done"),
            SAME_RELEASE,
        ),
        ConnectError::Key(obstacle) => Failure::usage(
            format!("{address} opened no session: {obstacle}; nothing was done"),
            "--key PATH names the key of this group",
        ),
        ConnectError::WrongCluster { .. } => Failure::usage(
            format!("{address} is not {name}; nothing was done"),
            start_one,
        ),
        ConnectError::VersionMismatch { theirs } => Failure::usage(
            format!("{address} speaks version {theirs} of the transport; nothing was done"),
            SAME_RELEASE,
        ),
    }
}

/// Remembers how the one connection and the one request in flight ended.
#[derive(Default)]
struct CallRecorder {
    connected: Option<Result<(), ConnectError>>,
    completion: Option<Completion>,
}

impl<R: Route> App<R> for CallRecorder {
    fn on_request(&mut self, cx: &mut Cx<'_, R>, _: Request<'_>) -> Reply {
        cx.alloc(0).map_or(Reply::Later, Reply::Now)
    }

    fn on_completion(&mut self, _: &mut Cx<'_, R>, _: u64, completion: Completion) {
        self.completion = Some(completion);
    }

    fn on_event(&mut self, _: &mut Cx<'_, R>, event: Event<R>) {
        match event {
            Event::Connected { .. } => self.connected = Some(Ok(())),
            Event::ConnectFailed { reason, .. } => self.connected = Some(Err(reason)),
            Event::Accepted { .. } | Event::Down { .. } => {}
        }
    }
}
