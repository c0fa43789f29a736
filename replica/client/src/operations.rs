//! The operations of an endpoint that are not over: those that can be sent, those that wait, and when one is overdue.
//!
//! Invariant: an operation that is ready is in the queue of its kind, or waits for room for its large response. A queue
//! may name operations that are over. What the large responses under way may take is given back with the attempt or
//! with the operation. Nothing is overdue before `check_at`.

use std::collections::VecDeque;

use trine_transport::buf::MsgBuf;
use trine_transport::slab::{Key, Slab};
use trine_transport::time::Instant;

use super::config::{ClientConfig, OPERATIONS_MAX};
use super::large::LargeResponses;
use super::operation::{OperationQueue, OperationStage, Pending};

pub(super) struct Operations {
    table: Slab<Pending>,
    ready: [VecDeque<Key>; OperationQueue::COUNT],
    large: LargeResponses,
    check_at: Instant,
}

impl Operations {
    pub(super) fn new(config: &ClientConfig) -> Self {
        Self {
            table: Slab::new(OPERATIONS_MAX),
            ready: Default::default(),
            large: LargeResponses::new(config),
            check_at: Instant::FAR_FUTURE,
        }
    }

    /// Nothing if there are as many as there may be.
    pub(super) fn insert(&mut self, pending: Pending) -> Option<Key> {
        self.table.insert(pending).ok()
    }

    pub(super) fn get(&self, key: Key) -> Option<&Pending> {
        self.table.get(key)
    }

    pub(super) fn get_mut(&mut self, key: Key) -> Option<&mut Pending> {
        self.table.get_mut(key)
    }

    pub(super) fn remove(&mut self, key: Key) -> Option<Pending> {
        let mut pending = self.table.remove(key)?;
        self.large.give_back(&mut pending);
        assert!(
            !self.table.is_empty() || self.large.is_unused(),
            "an operation gives back the room that it takes"
        );
        Some(pending)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (Key, &Pending)> {
        self.table.iter()
    }

    pub(super) fn len(&self) -> usize {
        self.table.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.table.is_empty()
    }

    pub(super) fn is_full(&self) -> bool {
        self.table.is_full()
    }

    /// It can be sent as soon as there is room for its response.
    pub(super) fn make_ready(&mut self, key: Key) {
        let Some(pending) = self.table.get_mut(key) else {
            return;
        };
        let is_sent = matches!(pending.stage, OperationStage::Sent { .. });
        assert!(!is_sent, "one attempt at a time");
        pending.stage = OperationStage::Ready;
        match self.large.is_waiting(pending) {
            true => self.large.wait(key),
            false => self.ready[pending.queue as usize].push_back(key),
        }
        self.admit_large();
    }

    /// Operations for whose responses there is room now can be sent.
    pub(super) fn admit_large(&mut self) {
        while let Some(key) = self.large.first() {
            let pending = self.table.get_mut(key);
            if let Some(pending) = pending.filter(|pending| self.large.is_waiting(pending)) {
                if !self.large.take(pending) {
                    return;
                }
                self.ready[pending.queue as usize].push_back(key);
            }
            self.large.drop_first();
        }
    }

    /// Whether it could be sent if there were room for its response.
    pub(super) fn waits_for_room(&self, key: Key) -> bool {
        let pending = self.table.get(key);
        pending.is_some_and(|pending| self.large.is_waiting(pending))
    }

    /// An attempt has ended. `request` is that of one that was no part of a batch. Returns whom it was sent to.
    pub(super) fn end_attempt(&mut self, key: Key, request: Option<MsgBuf>) -> Option<usize> {
        let pending = self.table.get_mut(key)?;
        let OperationStage::Sent { peer, .. } = pending.stage else {
            return None;
        };
        pending.stage = OperationStage::Ready;
        if request.is_some() {
            pending.request = request;
        }
        self.large.give_back(pending);
        Some(peer)
    }

    /// It cannot be sent any more before something else has happened.
    pub(super) fn hold(&mut self, key: Key) {
        if let Some(pending) = self.table.get_mut(key) {
            pending.stage = OperationStage::Waiting;
            self.large.give_back(pending);
        }
    }

    pub(super) fn has_ready(&self, queue: OperationQueue) -> bool {
        !self.ready[queue as usize].is_empty()
    }

    /// Whether anything waits for a leader.
    pub(super) fn has_ready_for_leader(&self) -> bool {
        self.has_ready(OperationQueue::Write) || self.has_ready(OperationQueue::Read)
    }

    /// When the first operation in this queue was submitted.
    pub(super) fn first_started(&self, queue: OperationQueue) -> Option<Instant> {
        let &first = self.ready[queue as usize].front()?;
        self.table.get(first).map(|pending| pending.times.started)
    }

    pub(super) fn pop_ready(&mut self, queue: OperationQueue) -> Option<Key> {
        self.ready[queue as usize].pop_front()
    }

    /// What was popped last is the first one again.
    pub(super) fn put_back(&mut self, queue: OperationQueue, key: Key) {
        self.ready[queue as usize].push_front(key);
    }

    /// Something may be overdue then.
    pub(super) fn check_by(&mut self, at: Instant) {
        self.check_at = self.check_at.min(at);
    }

    /// Nothing is overdue before this moment, as all of them were looked at.
    pub(super) fn check_at_next(&mut self, at: Instant) {
        self.check_at = at;
    }

    /// When to look for overdue ones.
    pub(super) fn check_at(&self) -> Instant {
        self.check_at
    }
}
