//! Handlers that are futures: polled by the event loop when they are first made and when woken.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Wake, Waker};

use super::loop_handle::{LoopHandle, LoopRequest};
use trine_transport::backend::Route;
use trine_transport::slab::{Key, Slab};

pub(super) type TaskFuture = Pin<Box<dyn Future<Output = ()> + Send>>;

/// The tasks of a loop: at most `limit`.
pub(super) struct Tasks<R: Route>(Slab<Task<R>>);

struct Task<R: Route> {
    future: TaskFuture,
    wake: Arc<TaskWake<R>>,
}

/// Wakes a task from any thread: through the inbox, once until it is polled.
struct TaskWake<R: Route> {
    id: Key,
    is_queued: AtomicBool,
    shared: Arc<LoopHandle<R>>,
}

impl<R: Route> Wake for TaskWake<R> {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if !self.is_queued.swap(true, Ordering::SeqCst) {
            // A loop that is over polls nothing.
            let _ = self.shared.inbox.push(LoopRequest::Poll(self.id));
        }
    }
}

impl<R: Route> Tasks<R> {
    pub(super) fn new(limit: usize) -> Self {
        Self(Slab::new(limit))
    }

    pub(super) fn has_room(&self) -> bool {
        !self.0.is_full()
    }

    /// Takes a task in and polls it. The caller has seen that there is room.
    pub(super) fn spawn(&mut self, shared: &Arc<LoopHandle<R>>, future: TaskFuture) {
        let make = |id| Task {
            future,
            wake: Arc::new(TaskWake {
                id,
                is_queued: AtomicBool::new(true),
                shared: Arc::clone(shared),
            }),
        };
        if let Some(id) = self.0.insert_with(make) {
            self.poll(id);
        }
    }

    /// Polls a task, if it is not over.
    pub(super) fn poll(&mut self, id: Key) {
        let Some(task) = self.0.get_mut(id) else {
            return;
        };
        // Before the poll: a wake that comes during it counts.
        task.wake.is_queued.store(false, Ordering::SeqCst);
        let waker = Waker::from(Arc::clone(&task.wake));
        let mut context = Context::from_waker(&waker);
        if task.future.as_mut().poll(&mut context).is_ready() {
            self.0.remove(id);
        }
    }
}
