//! Handlers by request type: how typed functions become functions of bytes.

use std::marker::PhantomData;
use std::net::SocketAddr;
use std::sync::Arc;

use super::Rpc;
use super::loop_handle::{LoopHandle, LoopRequest};
use super::message::Message;
use super::status::{self, Status};
use super::tasks::TaskFuture;
use trine_transport::ResponseHandle;
use trine_transport::backend::Route;
use trine_transport::buf::{MsgBuf, Pool};
use trine_transport::session::SessionId;
use trine_transport::time::Instant;

/// A handler's information about a request beside its content.
///
/// ```
/// # use trine_rpc::{Caller, doc::Shout};
/// # use trine_rpc::Rpc;
/// fn shout(text: String, caller: &Caller) -> String {
///     match caller.deadline() {
///         Some(deadline) => format!("{text} (by {} ns)", deadline.as_nanos()),
///         None => text,
///     }
/// }
/// ```
#[derive(Copy, Clone, Debug)]
pub struct Caller {
    pub(super) session: SessionId,
    pub(super) deadline: Option<Instant>,
}

impl Caller {
    /// The server end of the session that brought the request: tells peers apart.
    #[must_use]
    pub fn session(&self) -> SessionId {
        self.session
    }

    /// After this moment, by the node's clock, no caller waits for the answer.
    #[must_use]
    pub fn deadline(&self) -> Option<Instant> {
        self.deadline
    }
}

/// Owes the answer to one request; may be kept, and moved to any thread. Dropped without an answer
/// it tells the caller so ([`CallError::Unanswered`](super::CallError::Unanswered)).
///
/// ```
/// # use trine_rpc::{Node, Responder, doc::{DocNodes, Shout}};
/// # use trine_transport::backend::{RingBackend, RingConfig};
/// # let (backend, _peer) = RingBackend::pair(RingConfig::default());
/// let (to_thread, requests) = std::sync::mpsc::channel();
/// let node = Node::builder(backend)
///     .handle_later::<Shout, _>(move |text, _, responder| {
///         let _ = to_thread.send((text, responder));
///     })
///     .start()?;
/// std::thread::spawn(move || {
///     for (text, responder) in requests {
///         responder.reply(&text.to_uppercase());
///     }
/// });
/// # drop(node);
/// # Ok::<(), trine_rpc::StartError>(())
/// ```
#[must_use = "a responder that is dropped answers that there is no answer"]
pub struct Responder<P: Rpc, R: Route = SocketAddr> {
    shared: Arc<LoopHandle<R>>,
    /// `None` once it is answered.
    handle: Option<ResponseHandle>,
    _response: PhantomData<fn(P::Response)>,
}

impl<P: Rpc, R: Route> Responder<P, R> {
    fn new(shared: &Arc<LoopHandle<R>>, handle: ResponseHandle) -> Self {
        Self {
            shared: Arc::clone(shared),
            handle: Some(handle),
            _response: PhantomData,
        }
    }

    /// Answers. An answer that no caller waits for any more is dropped on the way.
    pub fn reply(mut self, response: &P::Response) {
        if !self.shared.inbox.is_here() {
            return;
        }
        let response = status::response(&self.shared.pool, response);
        self.send(response);
    }

    fn send(&mut self, response: Option<MsgBuf>) {
        if let Some(handle) = self.handle.take() {
            // If the loop is over, the sessions are, too.
            let _ = self
                .shared
                .inbox
                .push(LoopRequest::Respond(handle, response));
        }
    }
}

impl<P: Rpc, R: Route> Drop for Responder<P, R> {
    fn drop(&mut self) {
        // In a forked child it is not ours to answer.
        if self.handle.is_some() && self.shared.inbox.is_here() {
            let response = status::bare(&self.shared.pool, Status::Unanswered);
            self.send(response);
        }
    }
}

/// Runs in the event loop and answers at once; `None` if there is no memory for any answer.
type Now = Box<dyn FnMut(&[u8], &Caller, &Pool) -> Option<MsgBuf> + Send>;
/// Runs in the event loop; the answer comes through the inbox unless a status comes back.
type Later<R> =
    Box<dyn FnMut(&[u8], &Caller, &Arc<LoopHandle<R>>, ResponseHandle) -> Option<Status> + Send>;
/// Makes a future that the event loop polls, or a status.
type Async<R> = Box<
    dyn FnMut(&[u8], &Caller, &Arc<LoopHandle<R>>, ResponseHandle) -> Result<TaskFuture, Status>
        + Send,
>;
/// Runs in a worker thread.
pub(super) type WorkerHandler = Box<dyn Fn(&[u8], &Pool) -> Option<MsgBuf> + Send + Sync>;

/// How a request type is served.
pub(super) enum Handler<R: Route> {
    Now(Now),
    Later(Later<R>),
    Async(Async<R>),
}

pub(super) fn now<P, F, R>(mut handler: F) -> Handler<R>
where
    P: Rpc,
    F: FnMut(P::Request, &Caller) -> P::Response + Send + 'static,
    R: Route,
{
    Handler::Now(Box::new(
        move |bytes, caller, pool| match P::Request::decode(bytes) {
            Ok(request) => status::response(pool, &handler(request, caller)),
            Err(_) => status::bare(pool, Status::BadRequest),
        },
    ))
}

pub(super) fn later<P, F, R>(mut handler: F) -> Handler<R>
where
    P: Rpc,
    F: FnMut(P::Request, &Caller, Responder<P, R>) + Send + 'static,
    R: Route,
{
    Handler::Later(Box::new(move |bytes, caller, shared, handle| {
        let Ok(request) = P::Request::decode(bytes) else {
            return Some(Status::BadRequest);
        };
        handler(request, caller, Responder::new(shared, handle));
        None
    }))
}

pub(super) fn asynchronous<P, F, T, R>(mut handler: F) -> Handler<R>
where
    P: Rpc,
    F: FnMut(P::Request, Caller) -> T + Send + 'static,
    T: Future<Output = P::Response> + Send + 'static,
    R: Route,
{
    Handler::Async(Box::new(move |bytes, caller, shared, handle| {
        let request = P::Request::decode(bytes).map_err(|_| Status::BadRequest)?;
        let (future, responder) = (
            handler(request, *caller),
            Responder::<P, R>::new(shared, handle),
        );
        Ok(Box::pin(async move { responder.reply(&future.await) }))
    }))
}

/// The event loop's own handling of a request for a worker: it gets one only where no memory was
/// left for the worker's copy.
pub(super) fn without_memory<R: Route>() -> Handler<R> {
    Handler::Later(Box::new(|_, _, _, _| Some(Status::Overloaded)))
}

pub(super) fn work<P, F>(handler: F) -> WorkerHandler
where
    P: Rpc,
    F: Fn(P::Request) -> P::Response + Send + Sync + 'static,
{
    Box::new(move |bytes, pool| match P::Request::decode(bytes) {
        Ok(request) => status::response(pool, &handler(request)),
        Err(_) => status::bare(pool, Status::BadRequest),
    })
}
