//! Completions that could not be delivered where they arose: for want of an application, or of a flush.

use std::collections::VecDeque;

use crate::exchange::Completion;
use crate::rpc::Memory;

/// A completion, and when it may be delivered.
pub(crate) struct Finished {
    pub(crate) tag: u64,
    pub(crate) completion: Completion,
    /// Delivered once transmissions up to this epoch are flushed.
    pub(super) after_epoch: u64,
}

/// Completions that wait.
pub(super) struct FinishedQueue {
    queue: VecDeque<Finished>,
}

impl Finished {
    /// Whether a transmission may still refer to its request buffer.
    pub(crate) fn must_wait(&self, memory: &Memory) -> bool {
        memory.is_referred_to(self.after_epoch)
    }
}

impl FinishedQueue {
    pub(super) fn new(capacity: usize) -> Self {
        Self {
            queue: VecDeque::with_capacity(capacity),
        }
    }

    pub(super) fn push(&mut self, finished: Finished) {
        self.queue.push_back(finished);
    }

    pub(super) fn pop(&mut self) -> Option<Finished> {
        self.queue.pop_front()
    }

    pub(super) fn len(&self) -> usize {
        self.queue.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// Whether a completion waits for a flush that has not come.
    pub(super) fn needs_flush(&self, memory: &Memory) -> bool {
        let mut queue = self.queue.iter();
        queue.any(|finished| finished.must_wait(memory))
    }
}
