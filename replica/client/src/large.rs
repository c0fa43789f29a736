//! Large responses take turns: so many bytes of them may be under way together, further operations wait.
//!
//! Without a limit, the responses to many large reads would take all message memory of both ends. None of them would
//! come in time, and each attempt that is given up would be repeated.

use std::collections::VecDeque;

use trine_transport::slab::Key;

use super::config::ClientConfig;
use super::operation::{OperationStage, Pending};

/// A pipeline of small commands must not wait behind large reads, so responses count from this size.
const COUNTED_BYTES: usize = 64 << 10;

/// The room for large responses, and who waits for it.
///
/// Invariant: what is taken is the sum of what the attempts under way have reserved.
#[derive(Debug)]
pub(super) struct LargeResponses {
    /// Responses up to this size are not counted.
    usual: usize,
    /// Most bytes together.
    most: usize,
    /// Bytes that admitted operations have taken, from their admission to the end of their attempt.
    taken: usize,
    /// In the order of their admission. Some may be over.
    waiting: VecDeque<Key>,
}

impl LargeResponses {
    pub(super) fn new(config: &ClientConfig) -> Self {
        Self {
            usual: config.response_bytes.max(COUNTED_BYTES),
            most: config.large_response_bytes,
            taken: 0,
            waiting: VecDeque::new(),
        }
    }

    /// Whether an operation could be sent if there were room for its response.
    pub(super) fn is_waiting(&self, pending: &Pending) -> bool {
        let is_large = pending.room.bytes > self.usual;
        is_large && pending.room.reserved == 0 && pending.stage == OperationStage::Ready
    }

    /// An operation has to wait for room.
    pub(super) fn wait(&mut self, key: Key) {
        self.waiting.push_back(key);
    }

    /// The operation that has waited longest.
    pub(super) fn first(&self) -> Option<Key> {
        self.waiting.front().copied()
    }

    /// That operation waits no more.
    pub(super) fn drop_first(&mut self) {
        self.waiting.pop_front();
    }

    /// Takes room for a response, if there is any. A response that is larger than the whole room goes alone.
    pub(super) fn take(&mut self, pending: &mut Pending) -> bool {
        let bytes = pending.room.bytes;
        let has_room = self.taken == 0 || self.taken + bytes <= self.most;
        assert_eq!(pending.room.reserved, 0, "room is taken once an attempt");
        if has_room {
            pending.room.reserved = bytes;
            self.taken += bytes;
        }
        has_room
    }

    /// Whether no response under way takes any of the room.
    pub(super) fn is_unused(&self) -> bool {
        self.taken == 0
    }

    /// The attempt has ended, or there will be none.
    pub(super) fn give_back(&mut self, pending: &mut Pending) {
        let bytes = std::mem::take(&mut pending.room.reserved);
        assert!(bytes <= self.taken, "what is given back was taken");
        self.taken -= bytes;
    }
}
