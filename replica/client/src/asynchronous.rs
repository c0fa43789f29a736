//! The async front: a thread drives the event loop, and plain futures wait for it on any executor.
//!
//! A caller encodes its command in its own thread, puts it into the inbox, and wakes the loop only if that is about to
//! sleep. The answer comes back through a cell that the future and the loop share.

use std::collections::{BTreeMap, VecDeque};
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::thread::JoinHandle;

use trine_kvstore::Command;
use trine_protocol::route::RouteOf;
use trine_transport::backend::{self, Backend, BackendError, Route};
use trine_transport::buf::Pool;
use trine_transport::event_loop::EventLoop;
use trine_transport::inbox::Inbox;
use trine_transport::slab::{Key, Slab};
use trine_transport::time::{Clock, Instant};
use trine_transport::{App, Completion, Cx, Event, Origin, Reply, Request};

use super::blocking::{CallError, OpenError, client_identity};
use super::config::{ClientConfig, IN_FLIGHT_MAX, OPERATIONS_MAX};
use super::core::{ClientId, Clients, EncodedCommand, Finished, SubmitError};
use super::operation::Mode;
use super::outcome::{Answer, Error};

/// The state of a call that is waited for.
enum CallState {
    Waiting(Option<Waker>),
    Done(Result<Answer, CallError>),
    Taken,
}

/// Shared by one future and the loop.
struct Cell(Mutex<CallState>);

impl Cell {
    fn complete(&self, result: Result<Answer, CallError>) {
        let before = std::mem::replace(&mut *lock(&self.0), CallState::Done(result));
        if let CallState::Waiting(Some(waker)) = before {
            waker.wake();
        }
    }
}

/// A command on its way into the loop.
struct PendingCall {
    client: u64,
    command: EncodedCommand,
    cell: Arc<Cell>,
}

/// A call whose time runs, and that has not begun yet.
struct QueuedCall {
    call: PendingCall,
    since: Instant,
    deadline: Instant,
}

/// The calls that callers' threads hand to the loop's thread.
struct CallQueue {
    /// Bounded by `pending`.
    inbox: Inbox<PendingCall>,
    /// Calls that were begun and are not over.
    pending: AtomicUsize,
    /// Handles that are gone, every clone of them. All of their calls were put into the inbox before.
    dropped: Mutex<Vec<u64>>,
}

/// A panic in another thread leaves these values whole: they are changed in single steps.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The application of the loop's thread: the clients, fed from the inbox.
struct ClientsApplication<R: Route> {
    clients: Clients<R>,
    shared: Arc<CallQueue>,
    /// The logical clients of the handles, by the handle's number.
    names: BTreeMap<u64, ClientId>,
    /// Handles that are gone, and whose calls may still be held back.
    dropped: Vec<u64>,
    /// Calls under way, by the tag of their operation.
    calls: Slab<Arc<Cell>>,
    /// Calls of clients that have as many operations in flight as they may, in the order in which they came: the first is
    /// the first to be overdue.
    held: VecDeque<QueuedCall>,
    /// Whether calls have ended since the queue was last checked.
    made_room: bool,
    /// Empty between turns; changes memory with the inbox's queue.
    taken: VecDeque<PendingCall>,
}

impl<R: Route> ClientsApplication<R> {
    fn new(clients: Clients<R>, waker: backend::Waker) -> Self {
        let shared = Arc::new(CallQueue {
            inbox: Inbox::new(0, waker),
            pending: AtomicUsize::new(0),
            dropped: Mutex::default(),
        });
        Self {
            clients,
            shared,
            names: BTreeMap::new(),
            dropped: Vec::new(),
            calls: Slab::new(OPERATIONS_MAX),
            held: VecDeque::new(),
            made_room: false,
            taken: VecDeque::new(),
        }
    }

    /// Begins the callers' new calls.
    fn take_calls(&mut self, now: Instant) {
        // In this order: a handle that is found to be gone has put all of its calls into the inbox.
        self.dropped.append(&mut lock(&self.shared.dropped));
        self.shared.inbox.take(&mut self.taken);
        // The time of a call runs from here on, however long its queue is.
        let deadline = now + self.clients.operation_timeout();
        let held = |call| QueuedCall {
            call,
            since: now,
            deadline,
        };
        self.held.extend(self.taken.drain(..).map(held));
        for _ in 0..self.held.len() {
            let Some(held) = self.held.pop_front() else {
                break;
            };
            self.begin(now, held);
        }
        self.made_room = false;
        self.release_dropped();
    }

    /// Forgets the logical clients of handles that are gone, once all of their calls have begun; calls under way end
    /// first.
    fn release_dropped(&mut self) {
        let Self {
            dropped,
            held,
            names,
            clients,
            ..
        } = self;
        dropped.retain(|&name| {
            let waits = held.iter().any(|held| held.call.client == name);
            if !waits && let Some(client) = names.remove(&name) {
                clients.close(client);
            }
            waits
        });
    }

    fn begin(&mut self, now: Instant, held: QueuedCall) {
        if held.deadline <= now {
            return self.end_overdue(now, &held);
        }
        let client = match self.client_of(held.call.client) {
            Ok(client) => client,
            Err(error) => return self.end(&held.call.cell, Err(error.into())),
        };
        if self.clients.in_flight_of(client) >= IN_FLIGHT_MAX {
            return self.held.push_back(held);
        }
        let deadline = Some(held.deadline);
        let PendingCall { command, cell, .. } = held.call;
        let Ok(key) = self.calls.insert(Arc::clone(&cell)) else {
            return self.end(&cell, Err(SubmitError::TooMany.into()));
        };
        if let Err(error) =
            self.clients
                .submit_encoded(now, client, command, deadline, key.to_u64())
        {
            self.calls.remove(key);
            self.end(&cell, Err(error.into()));
        }
    }

    /// The time of a call is over before it began: nothing of it was ever sent.
    fn end_overdue(&self, now: Instant, held: &QueuedCall) {
        let error = Error::NotReachable {
            obstacle: self.clients.obstacle(),
            waited: now.saturating_since(held.since),
        };
        self.end(&held.call.cell, Err(error.into()));
    }

    /// The logical client of a handle; a new one after a command that closed the last.
    fn client_of(&mut self, name: u64) -> Result<ClientId, SubmitError> {
        if let Some(&client) = self.names.get(&name)
            && self.clients.is_open(client)
        {
            return Ok(client);
        }
        let client = self.clients.open().ok_or(SubmitError::TooMany)?;
        self.names.insert(name, client);
        Ok(client)
    }

    fn give_answers(&mut self) {
        while let Some(Finished { tag, result, .. }) = self.clients.poll_finished() {
            self.made_room = true;
            if let Some(cell) = self.calls.remove(Key::from_u64(tag)) {
                self.end(&cell, result.map_err(CallError::Failed));
            }
        }
    }

    fn end(&self, cell: &Cell, result: Result<Answer, CallError>) {
        self.shared.pending.fetch_sub(1, Ordering::SeqCst);
        cell.complete(result);
    }

    /// The loop no longer runs: every waiting call ends with the error.
    fn end_all(&mut self, error: &CallError) {
        let under_way: Vec<Arc<Cell>> = self
            .calls
            .iter()
            .map(|(_, cell)| Arc::clone(cell))
            .collect();
        let waiting = self
            .shared
            .inbox
            .close()
            .into_iter()
            .chain(
                std::mem::take(&mut self.held)
                    .into_iter()
                    .map(|held| held.call),
            )
            .map(|call| call.cell);
        for cell in under_way.into_iter().chain(waiting) {
            self.end(&cell, Err(error.clone()));
        }
    }
}

impl<R: Route> App<R> for ClientsApplication<R> {
    fn on_request(&mut self, cx: &mut Cx<'_, R>, request: Request<'_>) -> Reply {
        self.clients.on_request(cx, request)
    }

    fn on_completion(&mut self, cx: &mut Cx<'_, R>, tag: u64, completion: Completion) {
        self.clients.on_completion(cx, tag, completion);
    }

    fn on_event(&mut self, cx: &mut Cx<'_, R>, event: Event<R>) {
        self.clients.on_event(cx, event);
    }

    fn on_turn(&mut self, cx: &mut Cx<'_, R>) {
        // Answers first: they make room for the calls that were held back.
        self.give_answers();
        self.take_calls(cx.now());
        self.clients.on_turn(cx);
        self.give_answers();
    }

    fn next_timeout(&self) -> Option<Instant> {
        let line_moves = self.made_room && !self.held.is_empty();
        if line_moves || !self.shared.inbox.prepare_to_sleep() {
            return Some(Instant::ZERO);
        }
        let overdue = self.held.front().map(|held| held.deadline);
        [self.clients.next_timeout(), overdue]
            .into_iter()
            .flatten()
            .min()
    }
}

/// The thread that drives the clients. Dropping it stops the thread; every waiting call ends with an error.
///
/// Clients belong to the process that started them, which has the thread. In a child of `fork` each new call is *not applied*,
/// and calls that were under way are *outcome unknown*: see [`BlockingClient`](super::BlockingClient).
pub struct AsyncClients {
    shared: Arc<CallQueue>,
    pool: Pool,
    next_name: Arc<std::sync::atomic::AtomicU64>,
    thread: Option<JoinHandle<Option<BackendError>>>,
}

impl AsyncClients {
    /// Starts the thread.
    ///
    /// # Errors
    /// When settings contradict themselves.
    pub fn start<B, C>(
        backend: B,
        clock: C,
        config: ClientConfig,
        transport: trine_transport::Config,
        route_of: RouteOf<B::Route>,
        seed: u64,
    ) -> Result<Self, OpenError>
    where
        B: Backend + Send + 'static,
        C: Clock + Send + 'static,
    {
        let identity = client_identity(&config, seed);
        let pool = backend.pool().clone();
        let clients = Clients::new(config, route_of, pool.clone(), seed)?;
        let hosted = ClientsApplication::new(clients, backend.waker());
        let shared = Arc::clone(&hosted.shared);
        let event_loop = EventLoop::new(backend, clock, hosted, transport, identity, seed)
            .map_err(OpenError::Transport)?;
        let thread = std::thread::Builder::new()
            .name("trine-client".to_owned())
            .spawn(move || drive(event_loop));
        // A process that cannot start a thread can do nothing else either.
        let thread = Some(thread.expect("the system can start a thread"));
        Ok(Self {
            shared,
            pool,
            next_name: Arc::default(),
            thread,
        })
    }

    /// A handle with a logical client of its own: up to 64 of its calls are in flight at a time, more wait. The time of a call
    /// runs from its beginning, also while it waits.
    #[must_use]
    pub fn client(&self) -> AsyncClient {
        let name = self.next_name.fetch_add(1, Ordering::Relaxed);
        AsyncClient {
            handle: Arc::new(Handle {
                shared: Arc::clone(&self.shared),
                name,
            }),
            pool: self.pool.clone(),
        }
    }
}

/// Shared by the clones of a client; the last of them forgets the logical client.
struct Handle {
    shared: Arc<CallQueue>,
    name: u64,
}

impl Drop for Handle {
    fn drop(&mut self) {
        if !self.shared.inbox.is_here() {
            return;
        }
        // No thread is woken for it: only the room for the next handle matters, and that handle wakes the loop itself.
        lock(&self.shared.dropped).push(self.name);
    }
}

impl Drop for AsyncClients {
    fn drop(&mut self) {
        if !self.shared.inbox.is_here() {
            // The thread is the parent's: here is none to wait for.
            return std::mem::forget(self.thread.take());
        }
        self.shared.inbox.stop();
        if let Some(thread) = self.thread.take() {
            drop(thread.join());
        }
    }
}

fn drive<B: Backend, C: Clock>(
    mut event_loop: EventLoop<B, C, ClientsApplication<B::Route>>,
) -> Option<BackendError> {
    let run = || event_loop.run_until(None, |hosted| hosted.shared.inbox.is_stopping());
    // After a panic the loop is only asked for the calls that nobody else can end.
    let stopped = catch_unwind(AssertUnwindSafe(run));
    let error = match &stopped {
        Ok(ended) => ended.as_ref().err().cloned(),
        Err(_) => None,
    };
    if !event_loop.is_here() {
        // A waker forked in this thread. The calls are the parent's, and their locks may be held for ever.
        return error;
    }
    let hosted = event_loop.app_mut();
    hosted.end_all(&error.clone().map_or(CallError::Stopped, CallError::Backend));
    match stopped {
        Ok(_) => error,
        Err(panic) => resume_unwind(panic),
    }
}

/// A client whose calls are futures. A clone shares its logical client.
#[derive(Clone)]
pub struct AsyncClient {
    handle: Arc<Handle>,
    pool: Pool,
}

impl AsyncClient {
    /// Begins a command immediately; the future waits for its end. Dropping the future does not take the command back.
    pub fn execute(&self, mode: Mode, command: &Command<'_>) -> AsyncCall {
        let cell = Arc::new(Cell(Mutex::new(CallState::Waiting(None))));
        let origin = Origin::here();
        if let Err(error) = self.begin(mode, command, &cell) {
            cell.complete(Err(error));
        }
        AsyncCall { cell, origin }
    }

    /// The value of `key`, linearizable.
    pub fn get(&self, key: &[u8]) -> AsyncCall {
        self.execute(Mode::Read, &Command::Get { key })
    }

    /// Sets `key` to `value`.
    pub fn put(&self, key: &[u8], value: &[u8]) -> AsyncCall {
        self.execute(Mode::Write, &Command::Put { key, value })
    }

    /// Removes `key`.
    pub fn delete(&self, key: &[u8]) -> AsyncCall {
        self.execute(Mode::Write, &Command::Delete { key })
    }

    fn begin(&self, mode: Mode, command: &Command<'_>, cell: &Arc<Cell>) -> Result<(), CallError> {
        if !self.handle.shared.inbox.is_here() {
            return Err(SubmitError::OtherProcess.into());
        }
        let command = EncodedCommand::new(&self.pool, mode, command)?;
        let shared = &self.handle.shared;
        if shared.pending.fetch_add(1, Ordering::SeqCst) >= OPERATIONS_MAX {
            shared.pending.fetch_sub(1, Ordering::SeqCst);
            return Err(CallError::NotBegun(SubmitError::TooMany));
        }
        let call = PendingCall {
            client: self.handle.name,
            command,
            cell: Arc::clone(cell),
        };
        shared.inbox.push(call).map_err(|_| {
            shared.pending.fetch_sub(1, Ordering::SeqCst);
            CallError::NotBegun(SubmitError::Closed)
        })
    }
}

/// A command that is under way.
#[must_use = "the outcome of a command is known only to who waits for it"]
pub struct AsyncCall {
    cell: Arc<Cell>,
    /// The process that began it, and learns its end.
    origin: Origin,
}

impl Future for AsyncCall {
    type Output = Result<Answer, CallError>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        if !self.origin.is_here() {
            // Its thread does not exist here, and may have held the lock when it was last seen.
            return Poll::Ready(Err(CallError::Backend(BackendError::OtherProcess)));
        }
        let mut slot = lock(&self.cell.0);
        match std::mem::replace(&mut *slot, CallState::Taken) {
            CallState::Done(result) => Poll::Ready(result),
            CallState::Waiting(_) => {
                *slot = CallState::Waiting(Some(context.waker().clone()));
                Poll::Pending
            }
            CallState::Taken => panic!("polled again after its end"),
        }
    }
}

#[cfg(test)]
mod tests {
    use trine_transport::backend::{MonotonicClock, RingBackend, RingConfig, RingRoute};
    use trine_transport::time::Duration;

    use super::super::config::LOGICAL_CLIENTS_MAX;
    use super::super::outcome::Obstacle;
    use super::*;
    use crate::operations::Operations;

    /// Clients that know one replica, which no packet reaches, and a handle.
    fn hosted() -> (ClientsApplication<RingRoute>, AsyncClient) {
        let backend = RingBackend::mesh(1, RingConfig::default()).remove(0);
        let config = ClientConfig::new(vec![std::net::SocketAddr::from(([127, 0, 0, 1], 1))]);
        let pool = backend.pool().clone();
        let route_of: RouteOf<RingRoute> = Box::new(|_| None);
        let clients = Clients::new(config, route_of, pool.clone(), 1).unwrap();
        let hosted = ClientsApplication::new(clients, backend.waker());
        let shared = Arc::clone(&hosted.shared);
        let handle = Arc::new(Handle { shared, name: 0 });
        (hosted, AsyncClient { handle, pool })
    }

    fn outcome(call: &mut AsyncCall) -> Poll<Result<Answer, CallError>> {
        Pin::new(call).poll(&mut Context::from_waker(Waker::noop()))
    }

    /// Found by review: the time of a call began when it left the queue. Of 640 writes to a group without a quorum,
    /// with 5 s for each, the last ended after 50 s.
    #[test]
    fn the_time_of_a_call_runs_while_it_waits_for_its_turn() {
        let (mut hosted, client) = hosted();
        let begun = Instant::ZERO + Duration::from_secs(100);
        let deadline = begun + hosted.clients.operation_timeout();
        let mut calls: Vec<_> = (0..IN_FLIGHT_MAX + 10)
            .map(|_| client.put(b"key", b"value"))
            .collect();
        hosted.take_calls(begun);
        assert_eq!(hosted.held.len(), 10);
        // Nothing else is due.
        let nobody = ClientConfig::new(Vec::new());
        *hosted.clients.operations() = Operations::new(&nobody);
        assert_eq!(hosted.next_timeout(), Some(deadline));

        let just_before = begun + Duration::from_millis(4_999);
        hosted.take_calls(just_before);
        assert!(calls.iter_mut().all(|call| outcome(call).is_pending()));
        hosted.take_calls(deadline);
        for call in &mut calls[IN_FLIGHT_MAX..] {
            let Poll::Ready(Err(error)) = outcome(call) else {
                panic!("its time is over");
            };
            assert!(error.is_definitely_not_applied(), "{error:?}");
            let CallError::Failed(Error::NotReachable { waited, .. }) = error else {
                panic!("{error:?}");
            };
            assert_eq!(waited, Duration::from_secs(5));
        }
        let pending = hosted.shared.pending.load(Ordering::SeqCst);
        assert_eq!(pending, IN_FLIGHT_MAX, "the others make room");
    }

    /// A panic in the loop's thread left every call waiting for good.
    #[test]
    fn calls_end_with_the_thread_that_drives_them() {
        let backend = RingBackend::mesh(1, RingConfig::default()).remove(0);
        let config = ClientConfig::new(vec![std::net::SocketAddr::from(([127, 0, 0, 1], 1))]);
        let route_of: RouteOf<RingRoute> = Box::new(|_| panic!("a defect"));
        let transport = trine_transport::Config::default();
        let clients =
            AsyncClients::start(backend, MonotonicClock, config, transport, route_of, 1).unwrap();
        let mut call = clients.client().put(b"key", b"value");
        let begun = std::time::Instant::now();
        let ended = loop {
            if let Poll::Ready(ended) = outcome(&mut call) {
                break ended;
            }
            assert!(begun.elapsed().as_secs() < 20, "it waits for good");
            std::thread::yield_now();
        };
        assert!(matches!(ended, Err(CallError::Stopped)), "{ended:?}");
    }

    /// The same for one that does begin: it has the rest of its time.
    #[test]
    fn a_call_that_had_to_wait_keeps_its_deadline() {
        let (mut hosted, client) = hosted();
        let begun = Instant::ZERO + Duration::from_secs(100);
        let deadline = begun + hosted.clients.operation_timeout();
        let calls: Vec<_> = (0..=IN_FLIGHT_MAX).map(|_| client.get(b"key")).collect();
        hosted.take_calls(begun);
        let later = begun + Duration::from_secs(3);
        let (key, _) = hosted.clients.operations().iter().next().unwrap();
        hosted.clients.refuse(later, key, Obstacle::TooLarge);
        hosted.give_answers();
        hosted.take_calls(later);
        assert!(hosted.held.is_empty());
        assert_eq!(hosted.calls.len(), IN_FLIGHT_MAX);
        let mut deadlines = hosted.clients.operations().iter();
        assert!(deadlines.all(|(_, pending)| pending.times.deadline == deadline));
        drop(calls);
    }

    /// A time that the test sets.
    #[derive(Clone)]
    struct Set(std::rc::Rc<std::cell::Cell<u64>>);

    impl Clock for Set {
        fn now(&self) -> Instant {
            Instant::from_nanos(self.0.get())
        }
    }

    /// Operations whose time was over made room at the end of a turn, and nothing asked for the next turn. A call that
    /// waited behind them slept until some packet came, or until its own time was over.
    #[test]
    fn operations_that_are_overdue_let_the_next_calls_begin() {
        let (hosted, client) = hosted();
        assert_eq!(hosted.clients.operation_timeout(), Duration::from_secs(5));
        let backend = RingBackend::mesh(1, RingConfig::default()).remove(0);
        let time = Set(std::rc::Rc::new(std::cell::Cell::new(1_000_000_000)));
        let transport = trine_protocol::endpoint_config();
        let (clock, nobody) = (time.clone(), trine_transport::Identity::default());
        let mut event_loop =
            EventLoop::new(backend, clock, hosted, transport, nobody, 1).expect("sound");
        let mut advance = |by: Duration| {
            time.0.set(time.0.get() + by.as_nanos());
            event_loop.turn().expect("rings do not fail");
            let hosted = event_loop.app();
            (hosted.calls.len(), hosted.held.len(), hosted.next_timeout())
        };
        let _first: Vec<_> = (0..IN_FLIGHT_MAX).map(|_| client.get(b"key")).collect();
        advance(Duration::from_nanos(1));
        let _last = client.get(b"key");
        let (under_way, held, _) = advance(Duration::from_secs(4));
        assert_eq!((under_way, held), (IN_FLIGHT_MAX, 1));
        let (under_way, held, due) = advance(Duration::from_secs(1));
        assert_eq!((under_way, held, due), (0, 1, Some(Instant::ZERO)));
    }

    /// The logical client of every handle that there ever was used to stay. So the 65,537th handle of a process could
    /// do nothing, however few were in use.
    #[test]
    fn handles_that_are_gone_make_room_for_new_ones() {
        let (mut hosted, _) = hosted();
        for name in 0..=LOGICAL_CLIENTS_MAX as u64 {
            let shared = Arc::clone(&hosted.shared);
            let handle = Arc::new(Handle { shared, name });
            assert!(hosted.client_of(name).is_ok(), "handle {name}");
            drop(handle);
            hosted.take_calls(Instant::ZERO);
            assert!(hosted.names.is_empty());
        }
    }
}
