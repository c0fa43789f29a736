//! How other threads hand things to an event loop's thread: a queue, and a wake only when the loop sleeps.
//!
//! ```text
//! any thread: push -> queue; wakes the loop if that sleeps or is about to
//! the loop:   on_turn -> take;  next_timeout -> prepare_to_sleep
//! ```

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::backend::Waker;

/// A queue from any thread into an event loop's. Its length is bounded by those who push: each
/// counts its items in here.
///
/// ```
/// use std::collections::VecDeque;
/// use trine_transport::backend::{Backend, RingBackend, RingConfig};
/// use trine_transport::inbox::Inbox;
///
/// let (backend, _peer) = RingBackend::pair(RingConfig::default());
/// let inbox = Inbox::new(16, backend.waker());
/// inbox.push("hello").expect("the inbox is open");
/// assert!(!inbox.prepare_to_sleep(), "something waits");
///
/// let mut taken = VecDeque::new();
/// inbox.take(&mut taken);
/// assert_eq!(taken, ["hello"]);
/// assert!(inbox.close().is_empty());
/// assert_eq!(inbox.push("too late"), Err("too late"));
/// ```
pub struct Inbox<T> {
    queue: Mutex<Queue<T>>,
    /// Set by the loop before it checks the inbox for the last time and sleeps.
    is_sleeping: AtomicBool,
    is_stopping: AtomicBool,
    waker: Waker,
}

struct Queue<T> {
    items: VecDeque<T>,
    /// The receiver will not take any more.
    is_closed: bool,
}

impl<T> Inbox<T> {
    /// An inbox for the loop that this waker wakes, with memory for `capacity` items.
    #[must_use]
    pub fn new(capacity: usize, waker: Waker) -> Self {
        Self {
            queue: Mutex::new(Queue {
                items: VecDeque::with_capacity(capacity),
                is_closed: false,
            }),
            is_sleeping: AtomicBool::new(false),
            is_stopping: AtomicBool::new(false),
            waker,
        }
    }

    /// Puts an item in.
    ///
    /// The order matters on both sides. The pusher puts in and then checks whether the loop sleeps.
    /// The loop says that it sleeps and then checks whether there is anything.
    ///
    /// # Errors
    ///
    /// Gives the item back if the receiver will not take it any more, and in a child of the process that made this: the loop
    /// is its parent's, and the lock may be held for ever.
    pub fn push(&self, item: T) -> Result<(), T> {
        if !self.waker.is_here() {
            return Err(item);
        }
        {
            let mut queue = self.lock();
            if queue.is_closed {
                return Err(item);
            }
            queue.items.push_back(item);
        }
        if self.is_sleeping.swap(false, Ordering::SeqCst) {
            self.waker.wake();
        }
        Ok(())
    }

    /// Moves everything into `taken`, which is empty: the two change memory.
    pub fn take(&self, taken: &mut VecDeque<T>) {
        debug_assert!(taken.is_empty(), "what was taken before is not done yet");
        if !self.waker.is_here() {
            return;
        }
        self.is_sleeping.store(false, Ordering::SeqCst);
        std::mem::swap(&mut self.lock().items, taken);
    }

    /// For `App::next_timeout`: says that the loop is about to sleep. False if it must not, because
    /// something waits or because the end has come.
    #[must_use]
    pub fn prepare_to_sleep(&self) -> bool {
        if !self.waker.is_here() {
            return false;
        }
        self.is_sleeping.store(true, Ordering::SeqCst);
        self.lock().items.is_empty() && !self.is_stopping()
    }

    /// Tells the loop to end.
    pub fn stop(&self) {
        self.is_stopping.store(true, Ordering::SeqCst);
        self.waker.wake();
    }

    /// Whether the loop shall end.
    #[must_use]
    pub fn is_stopping(&self) -> bool {
        self.is_stopping.load(Ordering::SeqCst)
    }

    /// Whether this is the process that made this, and not a child of it. A child gives up the descriptors that it shares
    /// with its parent, when it first asks.
    #[inline]
    #[must_use]
    pub fn is_here(&self) -> bool {
        let is_here = self.waker.is_here();
        if !is_here {
            self.waker.abandon();
        }
        is_here
    }

    /// Ends it: returns the items that were not taken, and refuses later ones. Nothing in a forked child.
    pub fn close(&self) -> VecDeque<T> {
        if !self.waker.is_here() {
            return VecDeque::new();
        }
        let mut queue = self.lock();
        queue.is_closed = true;
        std::mem::take(&mut queue.items)
    }

    /// The queue changes in single steps: a panic elsewhere leaves it whole.
    fn lock(&self) -> MutexGuard<'_, Queue<T>> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
