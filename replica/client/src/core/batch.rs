//! Operations that are ready together share a message, and so do their replies.
//!
//! A packet's way through the transport costs the same whatever it carries, and so does each request that the replica
//! tracks. Every operation keeps its own sequence and its own result; only the attempt is shared.

use trine_protocol::message::{
    BATCH_HEADER_SIZE, BATCH_ITEM_HEADER_SIZE, BatchItems, BatchWriter, CLIENT_REPLY_HEADER_SIZE,
    OtherVersion, kind,
};
use trine_transport::app::{Completion, Cx, RpcError};
use trine_transport::backend::Route;
use trine_transport::session::SessionId;
use trine_transport::slab::{Key, Slab};
use trine_transport::time::Instant;

use super::Clients;
use super::reply::Incoming;
use crate::config::{OPERATIONS_MAX, WRITE_RESPONSE_BYTES};
use crate::outcome::Obstacle;
use crate::sent_batch::{BATCH_BIT, SentBatch};

/// Vectors of earlier batches that are kept.
const SPARE_MAX: usize = 64;

/// The message that is being put together, and those under way.
pub(super) struct Batches {
    under_way: Slab<SentBatch>,
    /// Keys of the message that is being put together; empty between calls.
    pub(super) picked: Vec<Key>,
    /// Vectors of earlier batches, for reuse.
    spare: Vec<Vec<Key>>,
}

impl Batches {
    pub(super) fn new() -> Self {
        Self {
            under_way: Slab::new(OPERATIONS_MAX),
            picked: Vec::new(),
            spare: Vec::new(),
        }
    }

    /// The picked keys, in a vector of their own.
    fn take_picked(&mut self) -> Vec<Key> {
        let mut keys = self.spare.pop().unwrap_or_default();
        keys.extend_from_slice(&self.picked);
        keys
    }

    /// Keeps the vector of a finished batch for the next one.
    fn recycle(&mut self, mut keys: Vec<Key>) {
        if self.spare.len() < SPARE_MAX {
            keys.clear();
            self.spare.push(keys);
        }
    }
}

impl<R: Route> Clients<R> {
    /// Sends the picked operations in one message; returns whether it could be sent.
    pub(super) fn send_batch(
        &mut self,
        cx: &mut Cx<'_, R>,
        peer: usize,
        session: SessionId,
    ) -> bool {
        let keys = self.batches.take_picked();
        let (request_bytes, response_bytes) = self.batch_sizes(&keys);
        let (Some(mut request), Some(response)) =
            (cx.alloc(request_bytes), cx.alloc(response_bytes))
        else {
            self.note_all(&keys, Obstacle::NoBuffer);
            return self.abandon_batch(keys);
        };
        let mut writer = BatchWriter::new(&mut request);
        for &key in &keys {
            self.fill_in(key);
            if let Some(item) = self
                .operations
                .get(key)
                .and_then(|pending| pending.request.as_ref())
            {
                writer.push(item);
            }
        }
        let written = writer.finish();
        assert_eq!(
            written, request_bytes,
            "every picked operation has its request"
        );
        let batch = match self.batches.under_way.insert(SentBatch { peer, keys }) {
            Ok(batch) => batch,
            Err(refused) => return self.abandon_batch(refused.keys),
        };
        let tag = BATCH_BIT | batch.to_u64();
        let Ok(id) = cx.enqueue_request(session, kind::CLIENT_BATCH, request, response, tag, None)
        else {
            let refused = self.batches.under_way.remove(batch);
            return self.abandon_batch(refused.map(|batch| batch.keys).unwrap_or_default());
        };
        self.group.on_sent(peer, cx.now());
        for index in 0..self.batches.picked.len() {
            self.note_sent(self.batches.picked[index], peer, id, cx.now());
        }
        true
    }

    fn batch_sizes(&self, keys: &[Key]) -> (usize, usize) {
        let mut sizes = (BATCH_HEADER_SIZE, BATCH_HEADER_SIZE);
        for pending in keys.iter().filter_map(|&key| self.operations.get(key)) {
            let request = pending.request.as_ref().map_or(0, |request| request.len());
            let response = match pending.operation.is_write() {
                true => CLIENT_REPLY_HEADER_SIZE + WRITE_RESPONSE_BYTES.max(pending.room.expected),
                false => pending.room.bytes,
            };
            sizes.0 += BATCH_ITEM_HEADER_SIZE + request;
            sizes.1 += BATCH_ITEM_HEADER_SIZE + response;
        }
        sizes
    }

    fn note_all(&mut self, keys: &[Key], obstacle: Obstacle) {
        for &key in keys {
            if let Some(pending) = self.operations.get_mut(key) {
                pending.so_far.obstacle = Some(obstacle);
            }
        }
    }

    fn abandon_batch(&mut self, keys: Vec<Key>) -> bool {
        self.batches.recycle(keys);
        false
    }

    pub(super) fn on_batch_ended(
        &mut self,
        cx: &mut Cx<'_, R>,
        batch: Key,
        completion: Completion,
    ) {
        let Some(SentBatch { peer, keys }) = self.batches.under_way.remove(batch) else {
            debug_assert!(false, "a batch ends once");
            return;
        };
        self.group.on_ended(peer);
        for &key in &keys {
            self.operations.end_attempt(key, None);
        }
        match completion.result {
            // An empty response says nothing: the replica had no room to say more. It may have had answers that together fit
            // no message at all.
            Ok(()) if completion.response.is_empty() => {
                self.group.hold_back(cx.now());
                self.send_alone_from_now_on(&keys);
                self.on_no_batch_reply(cx.now(), &keys, RpcError::OutcomeUnknown);
            }
            Ok(()) => self.on_batch_reply(cx.now(), peer, &keys, &completion.response),
            Err(error) => {
                // All operations of a batch are from one queue.
                if let Some(&first) = keys.first() {
                    self.avoid_if_slow(cx.now(), first, peer, error);
                }
                self.on_no_batch_reply(cx.now(), &keys, error);
            }
        }
        self.batches.recycle(keys);
    }

    fn on_batch_reply(&mut self, now: Instant, peer: usize, keys: &[Key], reply: &[u8]) {
        // A replica that does not know batches has read none of the requests, and says so to each.
        if OtherVersion::in_reply(reply).is_some() {
            for &key in keys {
                self.on_reply(now, key, peer, Incoming::InBatch(reply));
            }
            return;
        }
        let items = BatchItems::decode_replies(reply)
            .ok()
            .filter(|items| items.len() == keys.len());
        let mut items = items.into_iter().flatten();
        for &key in keys {
            // Without an item for each operation the whole reply is unreadable; an empty item is unreadable alone.
            self.on_reply(
                now,
                key,
                peer,
                Incoming::InBatch(items.next().unwrap_or_default()),
            );
        }
    }

    fn send_alone_from_now_on(&mut self, keys: &[Key]) {
        for &key in keys {
            if let Some(pending) = self.operations.get_mut(key) {
                pending.room.alone = true;
            }
        }
    }

    fn on_no_batch_reply(&mut self, now: Instant, keys: &[Key], error: RpcError) {
        for &key in keys {
            let response_bytes = self
                .operations
                .get(key)
                .map_or(0, |pending| pending.room.bytes);
            self.on_no_reply(key, error, response_bytes);
            if let Some(pending) = self.operations.get_mut(key)
                && matches!(error, RpcError::ResponseTooLarge { .. })
            {
                // It is not known which of them was too large: each finds out by itself.
                pending.room.alone = true;
                pending.room.bytes = response_bytes;
            }
            self.try_again(now, key);
        }
    }
}
