//! Calls as futures: connect, call, and the effect of a dropped future.

use std::future::Future;
use std::marker::PhantomData;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use super::Rpc;
use super::calls::{CallOutcome, Ticket};
use super::error::{CallError, NotSent, SessionError};
use super::loop_handle::{LoopHandle, LoopRequest, Submission};
use super::message::Message;
use super::status::{self, STATUS_BYTES};
use trine_transport::RpcError;
use trine_transport::backend::{MonotonicClock, Route};
use trine_transport::buf::MESSAGE_BYTES_MAX;
use trine_transport::session::{ConnectParams, SessionId};
use trine_transport::stats::EndpointStats;
use trine_transport::time::{Clock, Duration, Instant};

/// Opens sessions from a node. A clone is as good; any thread and any executor may use it.
///
/// ```
/// # use trine_rpc::{Client, SessionError, doc::DocNodes};
/// # let nodes = DocNodes::start();
/// # let (client, route) = (nodes.client(), nodes.route());
/// # pollster::block_on(async {
/// let session = client.connect(route).await?;
/// let stats = client.stats().await?;
/// assert_eq!(stats.sessions_client, 1);
/// # drop(session);
/// # Ok::<(), SessionError>(())
/// # }).unwrap();
/// ```
pub struct Client<R: Route = SocketAddr> {
    pub(super) shared: Arc<LoopHandle<R>>,
}

impl<R: Route> Clone for Client<R> {
    fn clone(&self) -> Self {
        Self {
            shared: Arc::clone(&self.shared),
        }
    }
}

impl<R: Route> Client<R> {
    /// Opens a session with the node at `route`; the handshake begins at once.
    ///
    /// ```
    /// # use trine_rpc::{Client, SessionError, doc::DocNodes};
    /// # let nodes = DocNodes::start();
    /// # let (client, route) = (nodes.client(), nodes.route());
    /// # pollster::block_on(async {
    /// let session = client.connect(route).await?;
    /// # drop(session);
    /// # Ok::<(), SessionError>(())
    /// # }).unwrap();
    /// ```
    pub fn connect(&self, route: R) -> Connect<R> {
        self.connect_with(route, ConnectParams::default())
    }

    /// The same with wishes of its own: credits, slots, how long to try.
    ///
    /// ```
    /// # use trine_rpc::{Client, SessionError, doc::DocNodes};
    /// # use trine_transport::ConnectParams;
    /// # let nodes = DocNodes::start();
    /// # let (client, route) = (nodes.client(), nodes.route());
    /// # pollster::block_on(async {
    /// let wishes = ConnectParams { credits: Some(256), ..ConnectParams::default() };
    /// let session = client.connect_with(route, wishes).await?;
    /// # drop(session);
    /// # Ok::<(), SessionError>(())
    /// # }).unwrap();
    /// ```
    pub fn connect_with(&self, route: R, params: ConnectParams) -> Connect<R> {
        Connect(self.begin(|ticket| LoopRequest::Connect(ticket, route, params)))
    }

    /// The counters of the node's endpoint.
    ///
    /// # Errors
    ///
    /// [`SessionError::TooManyCalls`] and [`SessionError::Stopped`].
    pub async fn stats(&self) -> Result<EndpointStats, SessionError> {
        match self.begin(LoopRequest::Stats).await {
            Ok(CallOutcome::Stats(stats)) => Ok(*stats),
            Ok(outcome) => Err(session_error(outcome)),
            Err(reason) => Err(session_error(CallOutcome::NotSent(reason))),
        }
    }

    fn begin(&self, command: impl FnOnce(Ticket) -> LoopRequest<R>) -> Pending<R> {
        if !self.shared.inbox.is_here() {
            return Pending::failed(NotSent::OtherProcess);
        }
        let Some(ticket) = self.shared.calls.take() else {
            return Pending::failed(NotSent::TooManyCalls);
        };
        Pending::submit(&self.shared, ticket, command(ticket))
    }
}

/// A session that is being opened. Dropping it takes the connect back.
#[must_use = "a connect whose future is dropped is taken back"]
pub struct Connect<R: Route = SocketAddr>(Pending<R>);

impl<R: Route> Future for Connect<R> {
    type Output = Result<Session<R>, SessionError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let shared = self
            .0
            .waiting
            .as_ref()
            .map(|(shared, _)| Arc::clone(shared));
        Pin::new(&mut self.0)
            .poll(context)
            .map(|end| match (end, shared) {
                (Ok(CallOutcome::Session(id)), Some(shared)) => {
                    Ok(Session(Arc::new(Open { shared, id })))
                }
                (Ok(outcome), _) => Err(session_error(outcome)),
                (Err(reason), _) => Err(session_error(CallOutcome::NotSent(reason))),
            })
    }
}

fn session_error(outcome: CallOutcome) -> SessionError {
    match outcome {
        CallOutcome::ConnectRefused(reason) => SessionError::Refused(reason),
        CallOutcome::ConnectFailed(reason) => SessionError::Failed(reason),
        CallOutcome::NotSent(NotSent::TooManyCalls) => SessionError::TooManyCalls,
        CallOutcome::OtherProcess | CallOutcome::NotSent(NotSent::OtherProcess) => {
            SessionError::OtherProcess
        }
        _ => SessionError::Stopped,
    }
}

/// An open session. Clones share it; it is closed when the last of them is dropped, and calls that
/// are still under way then end with [`CallError::OutcomeUnknown`].
///
/// Calls of one session are in flight together, as many as it has slots (8 by default), and
/// complete in any order; more wait in order.
///
/// ```
/// # use trine_rpc::{CallError, doc::{DocNodes, Shout}};
/// # let nodes = DocNodes::start();
/// # let session = nodes.session();
/// # pollster::block_on(async {
/// // Both requests leave at once: a call begins when it is made, not when it is awaited.
/// let first = session.call::<Shout>(&"hello".to_owned());
/// let second = session.call::<Shout>(&"there".to_owned());
/// assert_eq!(first.await?, "HELLO");
/// assert_eq!(second.await?, "THERE");
/// # Ok::<(), CallError>(())
/// # }).unwrap();
/// ```
pub struct Session<R: Route = SocketAddr>(Arc<Open<R>>);

impl<R: Route> Clone for Session<R> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

struct Open<R: Route> {
    shared: Arc<LoopHandle<R>>,
    id: SessionId,
}

impl<R: Route> Drop for Open<R> {
    fn drop(&mut self) {
        // A loop that is over has closed it already.
        let _ = self.shared.inbox.push(LoopRequest::Disconnect(self.id));
    }
}

impl<R: Route> Session<R> {
    /// Calls the peer's handler of `P`. The request is encoded and on its way when this returns.
    /// The layer allocates nothing (both buffers come from the backend's pool); decoding the
    /// response allocates what its type does.
    ///
    /// ```
    /// # use trine_rpc::{CallError, doc::{DocNodes, Shout}};
    /// # let nodes = DocNodes::start();
    /// # let session = nodes.session();
    /// # pollster::block_on(async {
    /// assert_eq!(session.call::<Shout>(&"hello".to_owned()).await?, "HELLO");
    /// # Ok::<(), CallError>(())
    /// # }).unwrap();
    /// ```
    pub fn call<P: Rpc>(&self, request: &P::Request) -> Call<P, R> {
        self.begin(request, None)
    }

    /// The same, but for so long: the deadline travels along, a server that gets the request later
    /// does not execute it, and the call ends with [`CallError::DeadlineExceeded`].
    ///
    /// ```
    /// # use trine_rpc::{CallError, doc::{DocNodes, Sleepy}};
    /// # use trine_transport::time::Duration;
    /// # let nodes = DocNodes::start();
    /// # let session = nodes.session();
    /// # pollster::block_on(async {
    /// // `Sleepy` never answers.
    /// let answer = session.call_within::<Sleepy>(&(), Duration::from_millis(20)).await;
    /// assert_eq!(answer, Err(CallError::DeadlineExceeded));
    /// # });
    /// ```
    pub fn call_within<P: Rpc>(&self, request: &P::Request, within: Duration) -> Call<P, R> {
        let deadline = MonotonicClock.now().saturating_add(within);
        self.begin(request, Some(deadline))
    }

    fn begin<P: Rpc>(&self, request: &P::Request, deadline: Option<Instant>) -> Call<P, R> {
        let pending = match self.submission::<P>(request, deadline) {
            Ok(submission) => {
                let ticket = submission.ticket;
                Pending::submit(&self.0.shared, ticket, LoopRequest::Call(submission))
            }
            Err(reason) => Pending::failed(reason),
        };
        Call(pending, PhantomData)
    }

    fn submission<P: Rpc>(
        &self,
        value: &P::Request,
        deadline: Option<Instant>,
    ) -> Result<Submission, NotSent> {
        if !self.0.shared.inbox.is_here() {
            return Err(NotSent::OtherProcess);
        }
        let len = value.encoded_len();
        if len > MESSAGE_BYTES_MAX {
            return Err(NotSent::RequestTooLarge);
        }
        let room = P::RESPONSE_BYTES_MAX
            .saturating_add(STATUS_BYTES)
            .min(MESSAGE_BYTES_MAX);
        let pool = &self.0.shared.pool;
        let mut request = pool.alloc(len).ok_or(NotSent::NoMemory)?;
        let response = pool.alloc(room).ok_or(NotSent::NoMemory)?;
        value.encode(&mut request);
        let ticket = self.0.shared.calls.take().ok_or(NotSent::TooManyCalls)?;
        Ok(Submission {
            ticket,
            session: self.0.id,
            kind: P::KIND,
            request,
            response,
            deadline,
        })
    }
}

/// A call under way. Dropping it cancels the request: its slot is free for the next one at once.
/// The handler runs once or not at all, and the caller does not learn which.
///
/// ```
/// # use trine_rpc::{CallError, doc::{DocNodes, Shout, Sleepy}};
/// # let nodes = DocNodes::start();
/// # let session = nodes.session();
/// # pollster::block_on(async {
/// drop(session.call::<Sleepy>(&()));
/// // The session goes on.
/// assert_eq!(session.call::<Shout>(&"hello".to_owned()).await?, "HELLO");
/// # Ok::<(), CallError>(())
/// # }).unwrap();
/// ```
#[must_use = "a call whose future is dropped is cancelled"]
pub struct Call<P: Rpc, R: Route = SocketAddr>(Pending<R>, PhantomData<fn() -> P>);

impl<P: Rpc, R: Route> Future for Call<P, R> {
    type Output = Result<P::Response, CallError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        Pin::new(&mut self.0).poll(context).map(|end| match end {
            Ok(CallOutcome::Response(response)) => status::read(&response),
            Ok(CallOutcome::Failed(error)) => Err(call_error(error)),
            Ok(CallOutcome::NotSent(reason)) | Err(reason) => Err(CallError::NotSent(reason)),
            Ok(CallOutcome::OtherProcess) => Err(CallError::OutcomeUnknown),
            Ok(_) => unreachable!("a call ends as a call"),
        })
    }
}

fn call_error(error: RpcError) -> CallError {
    match error {
        RpcError::NotSent => CallError::NotSent(NotSent::SessionOver),
        RpcError::DeadlineExceeded => CallError::DeadlineExceeded,
        RpcError::ResponseTooLarge { .. } => CallError::ResponseTooLarge,
        // Only a dropped future cancels, and that sees no result.
        RpcError::OutcomeUnknown | RpcError::Cancelled => CallError::OutcomeUnknown,
    }
}

/// Waits for a cell.
struct Pending<R: Route> {
    /// `Some` until the end, if it has begun at all.
    waiting: Option<(Arc<LoopHandle<R>>, Ticket)>,
    failed: Option<NotSent>,
}

impl<R: Route> Pending<R> {
    fn submit(shared: &Arc<LoopHandle<R>>, ticket: Ticket, command: LoopRequest<R>) -> Self {
        if shared.inbox.push(command).is_err() {
            // The loop is over, and its end may have come before this cell was in use.
            shared.calls.end_queued(ticket);
        }
        Self {
            waiting: Some((Arc::clone(shared), ticket)),
            failed: None,
        }
    }

    fn failed(reason: NotSent) -> Self {
        Self {
            waiting: None,
            failed: Some(reason),
        }
    }
}

impl<R: Route> Future for Pending<R> {
    type Output = Result<CallOutcome, NotSent>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        if let Some(reason) = self.failed.take() {
            return Poll::Ready(Err(reason));
        }
        let Some((shared, ticket)) = &self.waiting else {
            panic!("polled again after its end");
        };
        if !shared.inbox.is_here() {
            self.waiting = None;
            return Poll::Ready(Ok(CallOutcome::OtherProcess));
        }
        shared.calls.poll(*ticket, context).map(|outcome| {
            self.waiting = None;
            Ok(outcome)
        })
    }
}

impl<R: Route> Drop for Pending<R> {
    fn drop(&mut self) {
        if let Some((shared, ticket)) = self.waiting.take() {
            shared.abandon(ticket);
        }
    }
}
