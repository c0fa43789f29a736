//! Large responses take turns: so many bytes of them may be under way together, further operations wait.
//!
//! Without a limit, the responses to many large reads would take all message memory of both ends. None of them would
//! come in time, and each attempt that is given up would be repeated.

use std::collections::VecDeque;

use trine_transport::backend::Route;
use trine_transport::slab::Key;

use super::config::ClientConfig;
use super::core::Clients;
use super::operation::{Pending, Stage};

/// The room for large responses, and who waits for it.
#[derive(Debug, Default)]
pub(super) struct LargeResponses {
    /// Bytes that attempts under way have taken.
    taken: usize,
    waiting: VecDeque<Key>,
}

impl LargeResponses {
    /// Whether so many more bytes may be under way, beside those that are about to be. A response that is larger than
    /// the whole room goes alone.
    pub(super) fn has_room(&self, besides: usize, bytes: usize, config: &ClientConfig) -> bool {
        let taken = self.taken + besides;
        taken == 0 || taken + bytes <= config.large_response_bytes
    }

    /// An operation has to wait for room.
    pub(super) fn wait(&mut self, key: Key) {
        self.waiting.push_back(key);
    }

    /// An attempt is under way.
    pub(super) fn take(&mut self, pending: &mut Pending, usual: usize) {
        debug_assert_eq!(pending.reserved, 0, "one attempt is under way at a time");
        if pending.response_bytes > usual {
            pending.reserved = pending.response_bytes;
            self.taken += pending.reserved;
        }
    }

    /// The attempt has ended.
    pub(super) fn give_back(&mut self, pending: &mut Pending) {
        self.taken -= std::mem::take(&mut pending.reserved);
    }
}

impl<R: Route> Clients<R> {
    /// Operations for whose responses there is room now are ready again.
    pub(super) fn admit_large(&mut self) {
        let mut admitted = 0;
        while let Some(&key) = self.large.waiting.front() {
            let waits = |pending: &&Pending| pending.stage == Stage::Ready;
            if let Some(pending) = self.operations.get(key).filter(waits) {
                let bytes = pending.response_bytes;
                if !self.large.has_room(admitted, bytes, &self.config) {
                    return;
                }
                admitted += bytes;
                self.make_ready(key);
            }
            self.large.waiting.pop_front();
        }
    }
}
