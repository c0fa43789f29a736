//! The async front of a stream of changes: a thread drives the event loop, and a future waits for the next batch on any
//! executor.
//!
//! The thread and the reader share one place for one result. While it is full, the thread keeps at most one more batch and
//! asks for nothing. So a slow reader costs no memory.

use std::collections::VecDeque;
use std::future::Future;
use std::net::SocketAddr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::thread::JoinHandle;

use trine_kvstore::Position;
use trine_transport::backend::{Backend, BackendError, Route};
use trine_transport::event_loop::EventLoop;
use trine_transport::inbox::Inbox;
use trine_transport::time::{Clock, Instant};
use trine_transport::{App, Completion, Cx, Event, Reply, Request};

use super::config::{WatchConfig, WatchError};
use super::event::WatchBatch;
use super::identity_of;
use super::stream::WatchStream;

/// Hands batches from the thread to the reader.
struct BatchHandoff {
    place: Mutex<PendingBatch>,
    /// The reader says that it has taken a batch.
    taken: Inbox<()>,
}

/// The next batch, and the state of the stream.
#[derive(Default)]
struct PendingBatch {
    batch: Option<WatchBatch>,
    /// The stream cannot go on behind that batch.
    ended: Option<WatchError>,
    reader: Option<Waker>,
    began: Option<Position>,
    served_by: Option<SocketAddr>,
    trouble: Option<String>,
}

impl PendingBatch {
    fn wake(&mut self) {
        if let Some(reader) = self.reader.take() {
            reader.wake();
        }
    }
}

impl BatchHandoff {
    /// A panic in another thread leaves the place whole: it is changed in single steps.
    fn place(&self) -> MutexGuard<'_, PendingBatch> {
        self.place.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn end(&self, error: WatchError) {
        let mut place = self.place();
        place.ended.get_or_insert(error);
        place.wake();
    }
}

/// The application of the thread: the stream, and the place for its batches.
struct WatchApplication<R: Route> {
    stream: WatchStream<R>,
    shared: Arc<BatchHandoff>,
    /// Empty between turns; changes memory with the inbox's queue.
    taken: VecDeque<()>,
}

impl<R: Route> WatchApplication<R> {
    /// Hands the reader what it waits for.
    fn hand_over(&mut self, now: Instant) {
        let mut place = self.shared.place();
        if place.batch.is_none() {
            place.batch = self.stream.take_batch();
        }
        if !self.stream.has_batch() && place.ended.is_none() {
            place.ended = self.stream.error().cloned();
        }
        if place.batch.is_some() || place.ended.is_some() {
            place.wake();
        }
        place.began = self.stream.began();
        place.served_by = self.stream.served_by(now);
        let trouble = self.stream.trouble(now).map(|(why, _)| why);
        if place.trouble.as_deref() != trouble {
            place.trouble = trouble.map(ToOwned::to_owned);
        }
    }
}

impl<R: Route> App<R> for WatchApplication<R> {
    fn on_request(&mut self, cx: &mut Cx<'_, R>, request: Request<'_>) -> Reply {
        self.stream.on_request(cx, request)
    }

    fn on_completion(&mut self, cx: &mut Cx<'_, R>, tag: u64, completion: Completion) {
        self.stream.on_completion(cx, tag, completion);
    }

    fn on_event(&mut self, cx: &mut Cx<'_, R>, event: Event<R>) {
        self.stream.on_event(cx, event);
    }

    fn on_turn(&mut self, cx: &mut Cx<'_, R>) {
        self.shared.taken.take(&mut self.taken);
        self.taken.clear();
        // First: a batch that finds its place makes room for the next request.
        self.hand_over(cx.now());
        self.stream.on_turn(cx);
    }

    fn next_timeout(&self) -> Option<Instant> {
        match self.shared.taken.prepare_to_sleep() {
            true => self.stream.next_timeout(),
            false => Some(Instant::ZERO),
        }
    }
}

/// A stream of changes whose batches are futures. Dropping it ends the stream.
///
/// ```no_run
/// use trine_client::{AsyncWatcher, WatchConfig, WatchFrom, WatchTarget};
/// use trine_protocol::endpoint_config;
/// use trine_transport::backend::{MonotonicClock, UdpBackend, UdpConfig};
///
/// async fn print_users() -> Result<(), Box<dyn std::error::Error>> {
///     let config = WatchConfig {
///         addresses: vec!["127.0.0.1:7471".parse()?, "127.0.0.1:7472".parse()?],
///         targets: vec![(1, WatchTarget::Prefix(b"user/".to_vec()))],
///         from: WatchFrom::Now,
///         keys_only: false,
///     };
///     let backend = UdpBackend::bind("127.0.0.1:0".parse()?, &UdpConfig::default())?;
///     let (clock, transport, seed) = (MonotonicClock, endpoint_config(), 7);
///     let mut watcher = AsyncWatcher::start(backend, clock, transport, config, Some, seed)?;
///     loop {
///         let batch = watcher.next_batch().await?;
///         for event in &batch.events {
///             println!("{} {:?}", event.position, event.change);
///         }
///     }
/// }
/// ```
pub struct AsyncWatcher {
    shared: Arc<BatchHandoff>,
    thread: Option<JoinHandle<()>>,
}

impl AsyncWatcher {
    /// Starts the thread, and with it the stream. `seed` has to be another one for each watcher.
    ///
    /// # Errors
    /// [`WatchError::Transport`].
    pub fn start<B, C>(
        backend: B,
        clock: C,
        transport: trine_transport::Config,
        config: WatchConfig,
        route_of: impl Fn(SocketAddr) -> Option<B::Route>,
        seed: u64,
    ) -> Result<Self, WatchError>
    where
        B: Backend + Send + 'static,
        C: Clock + Send + 'static,
    {
        let shared = Arc::new(BatchHandoff {
            place: Mutex::default(),
            taken: Inbox::new(1, backend.waker()),
        });
        let hosted = WatchApplication {
            stream: WatchStream::new(config, route_of, seed),
            shared: Arc::clone(&shared),
            taken: VecDeque::new(),
        };
        let event_loop = EventLoop::new(backend, clock, hosted, transport, identity_of(seed), seed)
            .map_err(WatchError::Transport)?;
        let thread = std::thread::Builder::new()
            .name("trine-watcher".to_owned())
            .spawn(move || drive(event_loop));
        // A process that cannot start a thread can do nothing else either.
        let thread = Some(thread.expect("the system can start a thread"));
        Ok(Self { shared, thread })
    }

    /// The next events, when they come. A batch without events says that nothing has happened up to its position. Dropping
    /// the future loses nothing: the next one gives the same batch.
    ///
    /// # Errors
    /// The future gives a [`WatchError`] if the stream cannot go on, and so does every later one. Replicas that do not
    /// answer are no error: the stream tries them until one does.
    pub fn next_batch(&mut self) -> NextBatch<'_> {
        NextBatch { watcher: self }
    }

    /// The same for a caller that polls.
    pub fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Result<WatchBatch, WatchError>> {
        if !self.shared.taken.is_here() {
            return Poll::Ready(Err(WatchError::Backend(BackendError::OtherProcess)));
        }
        let mut place = self.shared.place();
        if let Some(batch) = place.batch.take() {
            drop(place);
            // It refuses only when the thread has ended, and then nothing waits there.
            let _ = self.shared.taken.push(());
            return Poll::Ready(Ok(batch));
        }
        if let Some(error) = &place.ended {
            return Poll::Ready(Err(error.clone()));
        }
        place.reader = Some(context.waker().clone());
        Poll::Pending
    }

    /// Where the stream has begun, once that is known.
    #[must_use]
    pub fn began(&self) -> Option<Position> {
        self.told(|place| place.began)
    }

    /// The replica that serves the stream, while one does.
    #[must_use]
    pub fn served_by(&self) -> Option<SocketAddr> {
        self.told(|place| place.served_by)
    }

    /// Why no replica serves the stream now.
    #[must_use]
    pub fn trouble(&self) -> Option<String> {
        self.told(|place| place.trouble.clone())
    }

    /// What the thread has said. Nothing in a forked child, where it may have been saying something else.
    fn told<T>(&self, read: impl Fn(&PendingBatch) -> Option<T>) -> Option<T> {
        let is_here = self.shared.taken.is_here();
        is_here.then(|| read(&self.shared.place())).flatten()
    }
}

impl Drop for AsyncWatcher {
    fn drop(&mut self) {
        if !self.shared.taken.is_here() {
            // The thread is the parent's: here is none to wait for.
            return std::mem::forget(self.thread.take());
        }
        self.shared.taken.stop();
        if let Some(thread) = self.thread.take() {
            drop(thread.join());
        }
    }
}

fn drive<B: Backend, C: Clock>(mut event_loop: EventLoop<B, C, WatchApplication<B::Route>>) {
    let shared = Arc::clone(&event_loop.app().shared);
    let run = || {
        event_loop.run_until(None, |hosted| hosted.shared.taken.is_stopping())?;
        event_loop.with(|hosted, cx| hosted.stream.leave(cx));
        event_loop.turn()
    };
    let ended = catch_unwind(AssertUnwindSafe(run));
    if !shared.taken.is_here() {
        // A waker forked in this thread. The reader is the parent's.
        return;
    }
    let error = match ended {
        Ok(Ok(_)) => WatchError::Stopped,
        Ok(Err(error)) => WatchError::Backend(error),
        // The thread's own message says which defect it is.
        Err(_) => WatchError::Stopped,
    };
    shared.taken.close();
    shared.end(error);
}

/// The next batch of an [`AsyncWatcher`].
#[must_use = "a future does nothing unless it is awaited"]
pub struct NextBatch<'a> {
    watcher: &'a mut AsyncWatcher,
}

impl Future for NextBatch<'_> {
    type Output = Result<WatchBatch, WatchError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        self.watcher.poll_next(context)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{WatchFrom, WatchTarget};
    use trine_transport::backend::{MonotonicClock, RingBackend, RingConfig, RingRoute};

    /// A panic in the loop's thread would leave the reader waiting for good.
    #[test]
    fn a_reader_does_not_wait_for_a_thread_that_has_ended() {
        let backend = RingBackend::mesh(1, RingConfig::default()).remove(0);
        let config = WatchConfig {
            addresses: vec![SocketAddr::from(([127, 0, 0, 1], 1))],
            targets: vec![(1, WatchTarget::Key(b"key".to_vec()))],
            from: WatchFrom::Now,
            keys_only: false,
        };
        let transport = trine_transport::Config::default();
        let nowhere = |_| None::<RingRoute>;
        let mut watcher =
            AsyncWatcher::start(backend, MonotonicClock, transport, config, nowhere, 1)
                .expect("sound");
        let mut context = Context::from_waker(Waker::noop());
        assert!(watcher.poll_next(&mut context).is_pending());
        watcher.shared.taken.stop();
        let thread = watcher.thread.take().expect("it was started");
        thread.join().expect("it ends");
        for _ in 0..2 {
            let next = Pin::new(&mut watcher.next_batch()).poll(&mut context);
            assert_eq!(next, Poll::Ready(Err(WatchError::Stopped)));
        }
    }
}
