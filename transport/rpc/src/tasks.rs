//! Handlers that are futures: polled by the event loop when they are first made and when woken.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Wake, Waker};

use super::shared::{Command, Shared, TaskId};
use trine_transport::backend::Route;

pub(super) type TaskFuture = Pin<Box<dyn Future<Output = ()> + Send>>;

/// The tasks of a loop: at most `limit`.
pub(super) struct Tasks<R: Route> {
    places: Vec<Place<R>>,
    free: Vec<u32>,
    limit: usize,
}

struct Place<R: Route> {
    generation: u32,
    task: Option<Task<R>>,
}

struct Task<R: Route> {
    future: TaskFuture,
    wake: Arc<TaskWake<R>>,
}

/// Wakes a task from any thread: through the inbox, once until it is polled.
struct TaskWake<R: Route> {
    id: TaskId,
    is_queued: AtomicBool,
    shared: Arc<Shared<R>>,
}

impl<R: Route> Wake for TaskWake<R> {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if !self.is_queued.swap(true, Ordering::SeqCst) {
            // A loop that is over polls nothing.
            let _ = self.shared.inbox.push(Command::Poll(self.id));
        }
    }
}

impl<R: Route> Tasks<R> {
    pub(super) fn new(limit: usize) -> Self {
        Self {
            places: Vec::new(),
            free: Vec::new(),
            limit,
        }
    }

    pub(super) fn has_room(&self) -> bool {
        !self.free.is_empty() || self.places.len() < self.limit
    }

    /// Takes a task in and polls it. The caller has seen that there is room.
    pub(super) fn spawn(&mut self, shared: &Arc<Shared<R>>, future: TaskFuture) {
        let index = self.free.pop().unwrap_or_else(|| {
            self.places.push(Place {
                generation: 0,
                task: None,
            });
            // The limit has 32 bits.
            (self.places.len() - 1) as u32
        });
        let place = &mut self.places[index as usize];
        let id = TaskId {
            index,
            generation: place.generation,
        };
        let wake = Arc::new(TaskWake {
            id,
            is_queued: AtomicBool::new(true),
            shared: Arc::clone(shared),
        });
        place.task = Some(Task { future, wake });
        self.poll(id);
    }

    /// Polls a task, if it is not over.
    pub(super) fn poll(&mut self, id: TaskId) {
        let place = &mut self.places[id.index as usize];
        let Some(task) = &mut place.task else { return };
        if place.generation != id.generation {
            return;
        }
        // Before the poll: a wake that comes during it counts.
        task.wake.is_queued.store(false, Ordering::SeqCst);
        let waker = Waker::from(Arc::clone(&task.wake));
        if task
            .future
            .as_mut()
            .poll(&mut Context::from_waker(&waker))
            .is_ready()
        {
            place.task = None;
            place.generation = place.generation.wrapping_add(1);
            self.free.push(id.index);
        }
    }
}
