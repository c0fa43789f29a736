//! A node: an event loop in a thread of its own, made by a builder that knows the handlers.

use std::io;
use std::sync::Arc;
use std::thread::JoinHandle;

use super::application::LoopApplication;
use super::client::Client;
use super::error::{NodeError, StartError};
use super::loop_handle::LoopHandle;
use super::serve::{self, Caller, Handler, Responder, WorkerHandler};
use super::{CALLS_DEFAULT, Rpc, TASKS_DEFAULT};
use crate::worker::WithWorkers;
use trine_transport::app::App;
use trine_transport::backend::{Backend, BackendError, MonotonicClock, Route};
use trine_transport::config::Config;
use trine_transport::event_loop::EventLoop;
use trine_transport::session::Identity;

/// A running node. Dropping it closes its sessions and ends its thread; calls that wait are told so.
///
/// It belongs to the process that started it, which has the thread. In a child of `fork`, calls and connects are not sent
/// ([`NotSent::OtherProcess`](super::NotSent)), those that were under way end with
/// [`CallError::OutcomeUnknown`](super::CallError), and the parent's node goes on. A child starts a node of its own.
///
/// ```
/// use trine_transport::backend::{UdpBackend, UdpConfig};
/// use trine_rpc::Node;
///
/// let backend = UdpBackend::bind("127.0.0.1:0".parse()?, &UdpConfig::default())?;
/// let node = Node::builder(backend).start()?;
/// let client = node.client();
/// node.stop()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Node<R: Route = std::net::SocketAddr> {
    pub(super) shared: Arc<LoopHandle<R>>,
    /// `None` once it has been waited for.
    thread: Option<JoinHandle<Result<(), BackendError>>>,
}

impl<R: Route> Node<R> {
    /// Begins a node over a backend.
    pub fn builder<B: Backend<Route = R>>(backend: B) -> Builder<B> {
        Builder {
            backend,
            config: Config::default(),
            identity: None,
            handlers: (0..256).map(|_| None).collect(),
            work: (0..256).map(|_| None).collect(),
            kind_twice: None,
            workers: 1,
            calls: CALLS_DEFAULT,
            tasks: TASKS_DEFAULT,
            shared: None,
        }
    }

    /// A handle that opens sessions from this node.
    #[must_use]
    pub fn client(&self) -> Client<R> {
        Client {
            shared: Arc::clone(&self.shared),
        }
    }

    /// Closes the sessions and ends the thread.
    ///
    /// # Errors
    ///
    /// If the node had ended before, by an unusable backend or a panic in a handler.
    pub fn stop(mut self) -> Result<(), NodeError> {
        self.end()
    }

    fn end(&mut self) -> Result<(), NodeError> {
        let Some(thread) = self.thread.take() else {
            return Ok(());
        };
        if !self.shared.inbox.is_here() {
            // The thread is the parent's: here is none to wait for.
            std::mem::forget(thread);
            return Err(NodeError::Backend(BackendError::OtherProcess));
        }
        self.shared.inbox.stop();
        if thread.thread().id() == std::thread::current().id() {
            // Dropped by one of its own handlers: the thread ends by itself.
            return Ok(());
        }
        match thread.join() {
            Ok(end) => end.map_err(NodeError::Backend),
            Err(_) => Err(NodeError::Panicked),
        }
    }
}

impl<R: Route> Drop for Node<R> {
    fn drop(&mut self) {
        // A caller that wants the result calls `stop`.
        let _ = self.end();
    }
}

/// Collects handlers and settings of a [`Node`].
///
/// ```
/// # use trine_transport::backend::{RingBackend, RingConfig};
/// use trine_rpc::{Node, Rpc};
///
/// /// Adds 1.
/// struct Increment;
///
/// impl Rpc for Increment {
///     const KIND: u8 = 1;
///     type Request = u64;
///     type Response = u64;
/// }
///
/// # let (backend, client_backend) = RingBackend::pair(RingConfig::default());
/// # let route = backend.route();
/// let server = Node::builder(backend)
///     .handle::<Increment, _>(|number, _| number + 1)
///     .start()?;
/// # let client = Node::builder(client_backend).start()?;
/// # pollster::block_on(async {
/// let session = client.client().connect(route).await?;
/// assert_eq!(session.call::<Increment>(&41).await?, 42);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use = "nothing runs before `start`"]
pub struct Builder<B: Backend> {
    backend: B,
    config: Config,
    identity: Option<Identity>,
    handlers: Box<[Option<Handler<B::Route>>]>,
    work: Box<[Option<WorkerHandler>]>,
    kind_twice: Option<u8>,
    workers: usize,
    calls: usize,
    tasks: usize,
    /// Made when it is first needed.
    shared: Option<Arc<LoopHandle<B::Route>>>,
}

impl<B: Backend> Builder<B> {
    /// Serves `P` by a function that runs in the event loop and answers at once. It should take
    /// less than a microsecond: meanwhile nothing else happens on this node. The cost of a request
    /// is one indirect call and one copy of the encoded response.
    ///
    /// A panic in any handler ends the node.
    pub fn handle<P: Rpc, F>(mut self, handler: F) -> Self
    where
        F: FnMut(P::Request, &Caller) -> P::Response + Send + 'static,
    {
        self.register(P::KIND, serve::now::<P, F, B::Route>(handler));
        self
    }

    /// Serves `P` by a function that runs in the event loop and answers later, through the
    /// [`Responder`] that it gets, from any thread.
    pub fn handle_later<P: Rpc, F>(mut self, handler: F) -> Self
    where
        F: FnMut(P::Request, &Caller, Responder<P, B::Route>) + Send + 'static,
    {
        self.register(P::KIND, serve::later::<P, F, B::Route>(handler));
        self
    }

    /// Serves `P` by an async function, whose future the event loop polls: it may wait for calls to
    /// other nodes (see `examples/nested.rs`), and must not block. Takes two allocations a request.
    /// A request beyond [`Builder::tasks`] is refused as overloaded. A client that gives up does not
    /// end the future.
    ///
    /// ```
    /// # use trine_transport::backend::{RingBackend, RingConfig};
    /// # use trine_rpc::{Node, doc::Shout};
    /// # let (backend, _peer) = RingBackend::pair(RingConfig::default());
    /// let node = Node::builder(backend)
    ///     .handle_async::<Shout, _, _>(|text, _| async move { text.to_uppercase() })
    ///     .start()?;
    /// # Ok::<(), trine_rpc::StartError>(())
    /// ```
    pub fn handle_async<P: Rpc, F, T>(mut self, handler: F) -> Self
    where
        F: FnMut(P::Request, Caller) -> T + Send + 'static,
        T: Future<Output = P::Response> + Send + 'static,
    {
        self.register(P::KIND, serve::asynchronous::<P, F, T, B::Route>(handler));
        self
    }

    /// Serves `P` by a function that runs in a worker thread, for as long as it wants. Its request is
    /// copied once more; without memory for that it is refused as overloaded.
    ///
    /// ```
    /// # use trine_transport::backend::{RingBackend, RingConfig};
    /// # use trine_rpc::{Node, doc::Shout};
    /// # let (backend, _peer) = RingBackend::pair(RingConfig::default());
    /// let node = Node::builder(backend)
    ///     .handle_worker::<Shout, _>(|text| text.to_uppercase())
    ///     .workers(4)
    ///     .start()?;
    /// # Ok::<(), trine_rpc::StartError>(())
    /// ```
    pub fn handle_worker<P: Rpc, F>(mut self, handler: F) -> Self
    where
        F: Fn(P::Request) -> P::Response + Send + Sync + 'static,
    {
        self.register(P::KIND, serve::without_memory());
        self.work[usize::from(P::KIND)] = Some(serve::work::<P, F>(handler));
        self
    }

    /// Worker threads, 1 by default; none is started without a worker handler.
    pub fn workers(mut self, threads: usize) -> Self {
        self.workers = threads;
        self
    }

    /// Settings of the endpoint: credits, slots, sessions, timers, congestion control.
    pub fn config(mut self, config: Config) -> Self {
        self.config = config;
        self
    }

    /// The node's identity in handshakes; by default of no group, with a random incarnation.
    pub fn identity(mut self, identity: Identity) -> Self {
        self.identity = Some(identity);
        self
    }

    /// Calls and connects of this node that may be under way together, 4,096 by default; their cells
    /// are allocated at the start.
    ///
    /// # Panics
    ///
    /// If [`Builder::client`] was called before.
    pub fn calls(mut self, limit: usize) -> Self {
        assert!(
            self.shared.is_none(),
            "Builder::calls comes before Builder::client, which uses it"
        );
        self.calls = limit;
        self
    }

    /// Requests that async handlers may be serving together, 4,096 by default.
    pub fn tasks(mut self, limit: usize) -> Self {
        self.tasks = limit;
        self
    }

    /// A client of the future node, for its handlers: its calls wait for the start.
    pub fn client(&mut self) -> Client<B::Route> {
        Client {
            shared: self.shared(),
        }
    }

    /// Starts the thread.
    ///
    /// # Errors
    ///
    /// [`StartError`]: the settings contradict themselves, a request type has two handlers, or the
    /// system gives no thread.
    pub fn start(mut self) -> Result<Node<B::Route>, StartError>
    where
        B: Send + 'static,
    {
        if let Some(kind) = self.kind_twice {
            return Err(StartError::KindTwice(kind));
        }
        let shared = self.shared();
        let handlers = std::mem::take(&mut self.handlers);
        let hosted = LoopApplication::new(Arc::clone(&shared), handlers, self.tasks);
        let kinds: Vec<u8> = (0..=u8::MAX)
            .filter(|kind| self.work[usize::from(*kind)].is_some())
            .collect();
        let thread = if kinds.is_empty() {
            self.spawn(hosted, &shared, |hosted| hosted)?
        } else {
            let work = std::mem::take(&mut self.work);
            let run = move |kind: u8, bytes: &[u8], pool: &_| {
                work[usize::from(kind)]
                    .as_ref()
                    .and_then(|work| work(bytes, pool))
            };
            let (pool, waker) = (self.backend.pool().clone(), self.backend.waker());
            let app = WithWorkers::start(hosted, &kinds, self.workers, &pool, waker, run)
                .map_err(StartError::System)?;
            self.spawn(app, &shared, WithWorkers::app_mut)?
        };
        Ok(Node {
            shared,
            thread: Some(thread),
        })
    }

    fn spawn<A>(
        self,
        app: A,
        shared: &Arc<LoopHandle<B::Route>>,
        hosted: fn(&mut A) -> &mut LoopApplication<B::Route>,
    ) -> Result<JoinHandle<Result<(), BackendError>>, StartError>
    where
        A: App<B::Route> + Send + 'static,
        B: Send + 'static,
    {
        let (seed, incarnation) = (draw()?, draw()?);
        let identity = self.identity.unwrap_or(Identity {
            cluster: 0,
            incarnation,
        });
        let event_loop = EventLoop::new(
            self.backend,
            MonotonicClock,
            app,
            self.config,
            identity,
            seed,
        )
        .map_err(StartError::Config)?;
        let shared = Arc::clone(shared);
        std::thread::Builder::new()
            .name("trine-node".to_owned())
            .spawn(move || drive(event_loop, &shared, hosted))
            .map_err(StartError::System)
    }

    fn register(&mut self, kind: u8, handler: Handler<B::Route>) {
        self.check_kind(kind);
        self.handlers[usize::from(kind)] = Some(handler);
    }

    fn check_kind(&mut self, kind: u8) {
        let index = usize::from(kind);
        if self.handlers[index].is_some() || self.work[index].is_some() {
            self.kind_twice.get_or_insert(kind);
        }
    }

    fn shared(&mut self) -> Arc<LoopHandle<B::Route>> {
        let (backend, calls) = (&self.backend, self.calls);
        let make = || LoopHandle::new(calls, backend.pool().clone(), backend.waker());
        Arc::clone(self.shared.get_or_insert_with(make))
    }
}

/// Tells everybody who waits when the loop ends, also by a panic.
struct EndNotifier<'a, R: Route>(&'a LoopHandle<R>);

impl<R: Route> Drop for EndNotifier<'_, R> {
    fn drop(&mut self) {
        self.0.end();
    }
}

/// The node's thread.
fn drive<B: Backend, A: App<B::Route>>(
    mut event_loop: EventLoop<B, MonotonicClock, A>,
    shared: &LoopHandle<B::Route>,
    hosted: fn(&mut A) -> &mut LoopApplication<B::Route>,
) -> Result<(), BackendError> {
    let _end = EndNotifier(shared);
    event_loop.run_until(None, |_| shared.inbox.is_stopping())?;
    event_loop.with(|app, cx| hosted(app).close(cx));
    Ok(())
}

fn draw() -> Result<u64, StartError> {
    getrandom::u64().map_err(|error| StartError::System(io::Error::other(error.to_string())))
}
