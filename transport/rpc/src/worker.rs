//! Worker threads for long request handlers (paper 3.2).
//!
//! A handler that takes more than a few hundred nanoseconds would hold up every other request of
//! its event loop. [`WithWorkers`] wraps an application. Requests of the kinds that are registered
//! with it are copied, handed to a thread, and answered when the result comes back. All others go
//! to the application itself, in the event loop's thread.
//!
//! ```text
//! event loop: on_request -> copy -> jobs -> worker thread: handler -> results -> wake
//!             on_turn <- results: enqueue_response; a response that came too late is dropped
//! ```

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::patience::Patience;
use trine_transport::app::{App, Cx};
use trine_transport::backend::{Route, Waker};
use trine_transport::buf::{MsgBuf, Pool};
use trine_transport::session::{Event, Holder, SessionId};
use trine_transport::time::Instant as LoopInstant;
use trine_transport::{Completion, Reply, Request, ResponseHandle};

/// Above this many waiting jobs, each new one searches for the job that it makes stale.
const JOBS_UNSORTED_MAX: usize = 256;
/// Looks of an idle thread at the queue before it offers the processor to others.
const POLLS_BEFORE_YIELD: u32 = 64;

/// An application whose long handlers run in threads.
pub struct WithWorkers<A> {
    app: A,
    is_for_workers: [bool; 256],
    workers: Workers,
    stats: WorkerStats,
}

/// Counters of the jobs that went through the workers.
#[derive(Copy, Clone, PartialEq, Eq, Default, Debug)]
pub struct WorkerStats {
    /// Requests handed to a thread.
    pub submitted: u64,
    /// Responses that were sent.
    pub answered: u64,
    /// Responses, or their absence, that no client waited for any more.
    pub stale: u64,
    /// Requests that the application itself got because no memory was left for their copy.
    pub without_memory: u64,
    /// Requests whose handler gave no response; each ended its session.
    pub unanswered: u64,
    /// Requests for which a sleeping thread was woken. Each cost the event loop a system call.
    pub woken: u64,
}

/// The threads and their two queues. Waiting jobs are bounded by the slots of the established
/// sessions: a slot's next request replaces one that its client has given up.
struct Workers {
    shared: Arc<JobQueues>,
    threads: Vec<JoinHandle<()>>,
}

struct JobQueues {
    queues: Mutex<Queues>,
    /// Signalled for each job while a thread sleeps, and when the end has come.
    job_came: Condvar,
    waker: Waker,
    /// Whether jobs wait, and whether results do, or a panic. Read without the lock, so that a look at an empty queue costs
    /// next to nothing. Set only after the lock is given back: who polls comes at once, and would find it taken, which can cost
    /// both sides a system call. So one may be set although the queue is empty already; it is never clear for long
    /// although something waits.
    has_jobs: AtomicBool,
    has_results: AtomicBool,
    /// How long an idle thread polls before it sleeps, in nanoseconds.
    spin_ns: AtomicU64,
}

struct Queues {
    jobs: VecDeque<Job>,
    results: VecDeque<(ResponseHandle, Option<MsgBuf>)>,
    /// Threads that wait for `job_came`.
    sleepers: usize,
    is_over: bool,
    /// A handler has panicked: its thread is gone, and its request will never be answered.
    has_panicked: bool,
}

/// Tells the event loop when a thread unwinds.
struct UnwindGuard<'a>(&'a JobQueues);

struct Job {
    handle: ResponseHandle,
    kind: u8,
    request: MsgBuf,
}

impl<A> WithWorkers<A> {
    /// Starts `threads` threads that run `handler` for requests of `kinds`. `waker` is the waker of
    /// the event loop that will run this application. A handler that finds no memory for a response
    /// returns `None`: the request's session then ends, which tells the client.
    ///
    /// # Errors
    ///
    /// The operating system's, if it gives no more threads.
    pub fn start<F>(
        app: A,
        kinds: &[u8],
        threads: usize,
        pool: &Pool,
        waker: Waker,
        handler: F,
    ) -> std::io::Result<Self>
    where
        F: Fn(u8, &[u8], &Pool) -> Option<MsgBuf> + Send + Sync + 'static,
    {
        let mut is_for_workers = [false; 256];
        for kind in kinds {
            is_for_workers[usize::from(*kind)] = true;
        }
        let workers = Workers::start(threads.max(1), pool, waker, handler)?;
        Ok(Self {
            app,
            is_for_workers,
            workers,
            stats: WorkerStats::default(),
        })
    }

    /// The application inside.
    #[must_use]
    pub fn app(&self) -> &A {
        &self.app
    }

    /// The application inside, to be changed.
    pub fn app_mut(&mut self) -> &mut A {
        &mut self.app
    }

    /// Lets an idle thread poll this long before it sleeps; up to twenty times as long where jobs come that often. At
    /// first it is zero: then it does not poll. Waking a thread costs the event loop a
    /// system call, which may take as long as a short handler.
    pub fn set_spin(&self, spin: Duration) {
        let nanoseconds = u64::try_from(spin.as_nanos()).unwrap_or(u64::MAX);
        self.workers
            .shared
            .spin_ns
            .store(nanoseconds, Ordering::Relaxed);
    }

    /// Counters.
    #[must_use]
    pub fn stats(&self) -> WorkerStats {
        self.stats
    }

    fn submit<R: Route>(&mut self, cx: &mut Cx<'_, R>, request: &Request<'_>) -> Option<()> {
        // The received packet's memory is the backend's: a handler that answers later copies.
        let mut copy = cx.alloc(request.data.len())?;
        copy.copy_from_slice(request.data);
        self.stats.submitted += 1;
        let has_woken = self.workers.submit(Job {
            handle: request.handle,
            kind: request.kind,
            request: copy,
        });
        self.stats.woken += u64::from(has_woken);
        Some(())
    }

    fn send_results<R: Route>(&mut self, cx: &mut Cx<'_, R>) {
        while let Some((handle, response)) = self.workers.result() {
            let Some(response) = response else {
                match cx.give_no_response(handle) {
                    true => self.stats.unanswered += 1,
                    false => self.stats.stale += 1,
                }
                continue;
            };
            match cx.enqueue_response(handle, response) {
                Ok(()) => self.stats.answered += 1,
                Err(_) => self.stats.stale += 1,
            }
        }
    }
}

impl<R: Route, A: App<R>> App<R> for WithWorkers<A> {
    fn on_request(&mut self, cx: &mut Cx<'_, R>, request: Request<'_>) -> Reply {
        if !self.is_for_workers[usize::from(request.kind)] {
            return self.app.on_request(cx, request);
        }
        if self.submit(cx, &request).is_some() {
            return Reply::Later;
        }
        self.stats.without_memory += 1;
        // Without memory for a copy the thread's handler cannot run; ours may still answer.
        self.app.on_request(cx, request)
    }

    fn on_completion(&mut self, cx: &mut Cx<'_, R>, tag: u64, completion: Completion) {
        self.app.on_completion(cx, tag, completion);
    }

    fn on_event(&mut self, cx: &mut Cx<'_, R>, event: Event<R>) {
        if let Event::Down { session, .. } = event {
            self.workers.forget(session);
        }
        self.app.on_event(cx, event);
    }

    fn on_notice(&mut self, cx: &mut Cx<'_, R>, kind: u8, body: &[u8]) -> bool {
        self.app.on_notice(cx, kind, body)
    }

    fn on_turn(&mut self, cx: &mut Cx<'_, R>) {
        self.send_results(cx);
        self.app.on_turn(cx);
    }

    fn holder(&self, route: &R) -> Holder {
        self.app.holder(route)
    }

    fn next_timeout(&self) -> Option<LoopInstant> {
        self.app.next_timeout()
    }
}

impl Workers {
    fn start<F>(threads: usize, pool: &Pool, waker: Waker, handler: F) -> std::io::Result<Self>
    where
        F: Fn(u8, &[u8], &Pool) -> Option<MsgBuf> + Send + Sync + 'static,
    {
        let queues = Queues {
            jobs: VecDeque::new(),
            results: VecDeque::new(),
            sleepers: 0,
            is_over: false,
            has_panicked: false,
        };
        let shared = Arc::new(JobQueues {
            queues: Mutex::new(queues),
            job_came: Condvar::new(),
            waker,
            has_jobs: AtomicBool::new(false),
            has_results: AtomicBool::new(false),
            spin_ns: AtomicU64::new(0),
        });
        let handler = Arc::new(handler);
        // Threads that have started end with `workers` if a later one fails to.
        let mut workers = Self {
            shared: Arc::clone(&shared),
            threads: Vec::with_capacity(threads),
        };
        for number in 0..threads {
            let (shared, pool, handler) = (Arc::clone(&shared), pool.clone(), Arc::clone(&handler));
            let thread = std::thread::Builder::new()
                .name(format!("worker-{number}"))
                .spawn(move || shared.work(&pool, &*handler))?;
            workers.threads.push(thread);
        }
        Ok(workers)
    }

    /// Whether this process has the threads. In a forked child they do not exist, and may have held the lock.
    fn is_here(&self) -> bool {
        self.shared.waker.is_here()
    }

    /// Whether a thread had to be woken.
    fn submit(&self, job: Job) -> bool {
        if !self.is_here() {
            return false;
        }
        let mut queues = self.shared.lock();
        if queues.jobs.len() >= JOBS_UNSORTED_MAX {
            let place = |job: &Job| (job.handle.session(), job.handle.slot());
            let taken = place(&job);
            queues.jobs.retain(|waiting| place(waiting) != taken);
        }
        queues.jobs.push_back(job);
        let has_sleepers = queues.sleepers > 0;
        drop(queues);
        self.shared.has_jobs.store(true, Ordering::Release);
        if has_sleepers {
            self.shared.job_came.notify_one();
        }
        has_sleepers
    }

    /// Gives up the waiting jobs of a session that is over.
    fn forget(&self, session: SessionId) {
        if !self.is_here() {
            return;
        }
        self.shared
            .lock()
            .jobs
            .retain(|job| job.handle.session() != session);
    }

    /// A handler that panics stops the event loop, as one that runs in it does.
    fn result(&self) -> Option<(ResponseHandle, Option<MsgBuf>)> {
        if !self.shared.has_results.load(Ordering::Relaxed) || !self.is_here() {
            return None;
        }
        let mut queues = self.shared.lock();
        assert!(
            !queues.has_panicked,
            "a handler panicked in a worker thread"
        );
        let result = queues.results.pop_front();
        let is_left = !queues.results.is_empty();
        self.shared.has_results.store(is_left, Ordering::Relaxed);
        result
    }
}

impl JobQueues {
    /// The main loop of a thread.
    fn work(&self, pool: &Pool, handler: &impl Fn(u8, &[u8], &Pool) -> Option<MsgBuf>) {
        let _watch = UnwindGuard(self);
        let mut patience = Patience::default();
        while let Some(job) = self.next_job(&mut patience) {
            let response = handler(job.kind, &job.request, pool);
            if !self.waker.is_here() {
                // The handler forked, and its child came back here: the results are the parent's.
                return;
            }
            let mut queues = self.lock();
            queues.results.push_back((job.handle, response));
            drop(queues);
            self.has_results.store(true, Ordering::Release);
            self.waker.wake();
        }
    }

    /// Waits for a job; `None` when the end has come.
    fn next_job(&self, patience: &mut Patience) -> Option<Job> {
        let mut idle_since = None;
        let mut queues = self.lock();
        loop {
            if queues.is_over {
                return None;
            }
            if let Some(job) = queues.jobs.pop_front() {
                let is_left = !queues.jobs.is_empty();
                self.has_jobs.store(is_left, Ordering::Relaxed);
                drop(queues);
                let pause = idle_since.map_or(Duration::ZERO, |since: Instant| since.elapsed());
                patience.note(pause);
                return Some(job);
            }
            self.has_jobs.store(false, Ordering::Relaxed);
            if idle_since.is_none() {
                drop(queues);
                idle_since = Some(Instant::now());
                self.poll(patience);
                queues = self.lock();
                continue;
            }
            queues.sleepers += 1;
            queues = self
                .job_came
                .wait(queues)
                .unwrap_or_else(PoisonError::into_inner);
            queues.sleepers -= 1;
        }
    }

    /// Polls until a job seems to wait, or for the time that an idle thread polls. Offers the processor to others.
    fn poll(&self, patience: &Patience) {
        let spin = Duration::from_nanos(self.spin_ns.load(Ordering::Relaxed));
        if spin.is_zero() {
            return;
        }
        let spin = patience.poll_for(spin);
        let start = Instant::now();
        while !self.has_jobs.load(Ordering::Relaxed) && start.elapsed() < spin {
            for _ in 0..POLLS_BEFORE_YIELD {
                if self.has_jobs.load(Ordering::Relaxed) {
                    return;
                }
                std::hint::spin_loop();
            }
            std::thread::yield_now();
        }
    }

    fn lock(&self) -> MutexGuard<'_, Queues> {
        // A thread that panics does so in a handler, never between two changes of the queues.
        self.queues.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for UnwindGuard<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.lock().has_panicked = true;
            self.0.has_results.store(true, Ordering::Relaxed);
            self.0.waker.wake();
        }
    }
}

impl Drop for Workers {
    /// Jobs that have not begun are given up: their sessions end with the endpoint.
    fn drop(&mut self) {
        if !self.is_here() {
            // The threads are the parent's: here are none to wait for.
            return std::mem::forget(std::mem::take(&mut self.threads));
        }
        self.shared.lock().is_over = true;
        self.shared.job_came.notify_all();
        for thread in self.threads.drain(..) {
            // A thread that panicked has printed why.
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;
    use trine_transport::backend::{Backend, MonotonicClock, RingBackend, RingConfig, RingRoute};
    use trine_transport::{Config, ConnectParams, EventLoop, Identity, RequestId, RpcError};

    const SHORT: u8 = 1;
    const LONG: u8 = 2;

    /// Echoes in the event loop; collects completions.
    #[derive(Default)]
    struct Echo {
        session: Option<SessionId>,
        done: Vec<(u64, Result<(), RpcError>, Vec<u8>)>,
    }

    impl App<RingRoute> for Echo {
        fn on_request(&mut self, cx: &mut Cx<'_, RingRoute>, request: Request<'_>) -> Reply {
            let mut response = cx.alloc(request.data.len()).expect("memory");
            response.copy_from_slice(request.data);
            Reply::Now(response)
        }

        fn on_completion(&mut self, _: &mut Cx<'_, RingRoute>, tag: u64, completion: Completion) {
            self.done
                .push((tag, completion.result, completion.response.to_vec()));
        }

        fn on_event(&mut self, _: &mut Cx<'_, RingRoute>, event: Event<RingRoute>) {
            if let Event::Connected { session, .. } = event {
                self.session = Some(session);
            }
        }
    }

    type Loop<A> = EventLoop<RingBackend, MonotonicClock, A>;

    fn event_loop<A: App<RingRoute>>(backend: RingBackend, app: A) -> Loop<A> {
        let identity = Identity {
            cluster: 0,
            incarnation: 1,
        };
        EventLoop::new(backend, MonotonicClock, app, Config::default(), identity, 1)
            .expect("a good configuration")
    }

    struct Pair {
        client: Loop<Echo>,
        server: Loop<WithWorkers<Echo>>,
        /// Each message lets one long handler end.
        allow: mpsc::Sender<()>,
    }

    /// A client with a session at a server whose long handler waits for the test.
    fn pair() -> Pair {
        pair_with(|kind, data, pool| {
            let mut response = pool.alloc(2).expect("memory");
            response.copy_from_slice(&[kind, data.len() as u8]);
            Some(response)
        })
    }

    /// The same, and the long handler's answer when it may end.
    fn pair_with(answer: fn(u8, &[u8], &Pool) -> Option<MsgBuf>) -> Pair {
        let (ours, theirs) = RingBackend::pair(RingConfig::default());
        let (address, waker, pool) = (theirs.route(), theirs.waker(), theirs.pool().clone());
        let (allow, allowed) = mpsc::channel();
        let allowed = Mutex::new(allowed);
        let handler = move |kind: u8, data: &[u8], pool: &Pool| {
            allowed
                .lock()
                .expect("one thread")
                .recv()
                .expect("the test allows it");
            answer(kind, data, pool)
        };
        let app = WithWorkers::start(Echo::default(), &[LONG], 1, &pool, waker, handler)
            .expect("threads");
        let (server, client) = (event_loop(theirs, app), event_loop(ours, Echo::default()));
        let mut pair = Pair {
            client,
            server,
            allow,
        };
        pair.client
            .with(|_, cx| cx.connect(address, ConnectParams::default()))
            .expect("room");
        pair.run(|pair| pair.client.app().session.is_some());
        pair
    }

    impl Pair {
        /// Turns both loops until `done` holds.
        fn run(&mut self, done: impl Fn(&Self) -> bool) {
            let end = Instant::now() + Duration::from_secs(20);
            while !done(self) {
                self.client.turn().expect("the ring works");
                self.server.turn().expect("the ring works");
                assert!(Instant::now() < end, "it takes for ever");
                std::thread::yield_now();
            }
        }

        fn request(&mut self, kind: u8, tag: u64) -> RequestId {
            self.client.with(|app, cx| {
                let request = cx.alloc(4).expect("memory");
                let response = cx.alloc(64).expect("memory");
                let session = app.session.expect("a session");
                cx.enqueue_request(session, kind, request, response, tag, None)
                    .expect("accepted")
            })
        }
    }

    #[test]
    fn a_long_handler_does_not_hold_up_the_event_loop() {
        let mut pair = pair();
        pair.request(LONG, 0);
        for tag in 1..=100 {
            pair.request(SHORT, tag);
        }
        // The long handler cannot end before the test says so, and yet these do.
        pair.run(|pair| pair.client.app().done.len() == 100);
        assert!(pair.client.app().done.iter().all(|(tag, ..)| *tag != 0));
        pair.allow.send(()).expect("the handler waits");
        pair.run(|pair| pair.client.app().done.len() == 101);
        assert_eq!(pair.client.app().done[100], (0, Ok(()), vec![LONG, 4]));
        let stats = pair.server.app().stats();
        assert_eq!((stats.submitted, stats.answered, stats.stale), (1, 1, 0));
    }

    /// Turns of both loops that so many short requests took, one after the other: the most of the fastest
    /// 99 %.
    fn p99_in_turns(pair: &mut Pair, requests: u64) -> usize {
        let mut turns: Vec<usize> = (0..requests)
            .map(|tag| {
                pair.request(SHORT, tag);
                let before = pair.client.app().done.len();
                (1..)
                    .find(|_| {
                        pair.client.turn().expect("the ring works");
                        pair.server.turn().expect("the ring works");
                        pair.client.app().done.len() > before
                    })
                    .expect("it ends")
            })
            .collect();
        turns.sort_unstable();
        turns[turns.len() * 99 / 100]
    }

    /// Counted in turns of the event loops, not in time: other load on the machine has no effect.
    #[test]
    fn the_slowest_short_requests_are_as_fast_while_long_ones_run() {
        let mut pair = pair();
        let alone = p99_in_turns(&mut pair, 500);
        for tag in 0..4 {
            pair.request(LONG, 1_000 + tag);
        }
        pair.run(|pair| pair.server.app().stats().submitted == 4);
        let beside = p99_in_turns(&mut pair, 500);
        assert_eq!(
            pair.server.app().stats().answered,
            0,
            "the long ones still run"
        );
        assert_eq!(beside, alone);
        for _ in 0..4 {
            pair.allow.send(()).expect("the handler waits");
        }
        pair.run(|pair| pair.server.app().stats().answered == 4);
    }

    /// A handler without memory for its answer gives none: the client must learn it, and does by its
    /// session's end.
    #[test]
    fn a_handler_that_gives_no_response_ends_the_session() {
        let mut pair = pair_with(|_, _, _| None);
        pair.request(LONG, 7);
        pair.allow.send(()).expect("the handler waits");
        pair.run(|pair| !pair.client.app().done.is_empty());
        let (tag, result, _) = &pair.client.app().done[0];
        assert_eq!((*tag, *result), (7, Err(RpcError::OutcomeUnknown)));
        assert_eq!(pair.server.app().stats().unanswered, 1);
        assert_eq!(pair.server.endpoint().stats().sessions_server, 0);
    }

    /// A thread that polls gets its jobs without being woken, and sleeps when none has come for so long.
    #[test]
    fn a_thread_polls_for_a_while_and_then_sleeps() {
        let mut pair = pair();
        let sleepers = |pair: &Pair| pair.server.app().workers.shared.lock().sleepers;
        pair.run(|pair| sleepers(pair) == 1);
        pair.server.app().set_spin(Duration::from_secs(20));
        for tag in 0..8 {
            pair.request(LONG, tag);
            pair.allow.send(()).expect("the handler waits");
            pair.run(|pair| pair.client.app().done.len() as u64 == tag + 1);
            assert_eq!(sleepers(&pair), 0, "it polls");
        }
        pair.server.app().set_spin(Duration::ZERO);
        pair.request(LONG, 8);
        pair.allow.send(()).expect("the handler waits");
        pair.run(|pair| sleepers(pair) == 1);
    }

    /// A handler that panicked took its thread along without a word: its request stayed BUSY for
    /// ever, and without threads so did every later one.
    #[test]
    #[should_panic(expected = "a handler panicked in a worker thread")]
    fn a_panic_in_a_handler_stops_the_event_loop() {
        let mut pair = pair();
        pair.request(LONG, 0);
        pair.run(|pair| pair.server.app().stats().submitted == 1);
        // The handler expects the test's word, which now never comes.
        pair.allow = mpsc::channel().0;
        pair.run(|pair| pair.client.app().done.len() == 1);
    }

    #[test]
    fn an_answer_to_a_request_that_was_given_up_is_dropped() {
        let mut pair = pair();
        let long = pair.request(LONG, 0);
        pair.run(|pair| pair.server.app().stats().submitted == 1);
        assert!(pair.client.with(|_, cx| cx.cancel(long)));
        // The next request takes the slot.
        pair.request(SHORT, 1);
        pair.run(|pair| pair.client.app().done.len() == 2);
        pair.allow.send(()).expect("the handler waits");
        pair.run(|pair| pair.server.app().stats().stale == 1);
        let outcomes: Vec<_> = pair
            .client
            .app()
            .done
            .iter()
            .map(|(tag, result, _)| (*tag, *result))
            .collect();
        assert_eq!(outcomes, [(0, Err(RpcError::Cancelled)), (1, Ok(()))]);
    }

    /// A handler that gave no answer to a request that its client had given up long ago ended the whole session.
    /// Requests that had nothing to do with it ended, too.
    #[test]
    fn no_answer_to_a_request_that_was_given_up_ends_no_session() {
        let mut pair = pair_with(|_, _, _| None);
        let long = pair.request(LONG, 0);
        pair.run(|pair| pair.server.app().stats().submitted == 1);
        assert!(pair.client.with(|_, cx| cx.cancel(long)));
        // The next request takes the slot.
        pair.request(SHORT, 1);
        pair.run(|pair| pair.client.app().done.len() == 2);
        pair.allow.send(()).expect("the handler waits");
        pair.run(|pair| {
            let stats = pair.server.app().stats();
            stats.stale + stats.unanswered == 1
        });
        assert_eq!(pair.server.app().stats().unanswered, 0);
        assert_eq!(pair.server.endpoint().stats().responses_stale, 1);
        pair.request(SHORT, 2);
        pair.run(|pair| pair.client.app().done.len() == 3);
        assert_eq!(pair.client.app().done[2].1, Ok(()));
    }

    #[test]
    fn jobs_of_a_session_that_is_over_are_given_up() {
        let mut pair = pair();
        for tag in 0..8 {
            pair.request(LONG, tag);
        }
        pair.run(|pair| pair.server.app().stats().submitted == 8);
        let session = pair.client.app().session.expect("a session");
        pair.client.with(|_, cx| cx.disconnect(session));
        pair.run(|pair| pair.server.endpoint().stats().sessions_server == 0);
        pair.server.turn().expect("the ring works");
        // At most the one that runs is left.
        pair.allow.send(()).expect("the handler waits");
        pair.run(|pair| pair.server.app().workers.shared.lock().jobs.is_empty());
    }
}
