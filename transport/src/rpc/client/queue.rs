//! Requests of a session beyond its slots, in order, linked through the table of requests.

use super::request::NO_REQUEST;
use super::request_table::RequestTable;
use crate::time::Instant;

/// The queue of one client end.
#[repr(C)]
pub(super) struct RequestQueue {
    first: u32,
    last: u32,
    /// Requests that wait.
    len: u32,
    /// Entries whose requests have ended; `len` counts the others.
    ended: u32,
    /// No queued request has an earlier deadline.
    deadline: Instant,
}

impl RequestQueue {
    pub(super) fn new() -> Self {
        Self {
            first: NO_REQUEST,
            last: NO_REQUEST,
            len: 0,
            ended: 0,
            deadline: Instant::FAR_FUTURE,
        }
    }

    /// Whether it has no entry, not even one whose request has ended.
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.first == NO_REQUEST
    }

    /// Requests that wait.
    pub(super) fn len(&self) -> u32 {
        self.len
    }

    pub(super) fn deadline(&self) -> Instant {
        self.deadline
    }

    pub(super) fn set_deadline(&mut self, deadline: Instant) {
        self.deadline = deadline;
    }

    pub(super) fn first(&self) -> u32 {
        self.first
    }

    pub(super) fn push(&mut self, index: u32, table: &mut RequestTable) {
        self.link(index, table);
        self.len += 1;
        let deadline = table[index].deadline.unwrap_or(Instant::FAR_FUTURE);
        self.deadline = self.deadline.min(deadline);
    }

    fn link(&mut self, index: u32, table: &mut RequestTable) {
        match self.last {
            NO_REQUEST => self.first = index,
            last => table[last].next = index,
        }
        self.last = index;
    }

    /// Takes the first entry off. Its request may have ended.
    pub(super) fn pop(&mut self, table: &RequestTable) -> Option<u32> {
        if self.is_empty() {
            return None;
        }
        let index = self.first;
        let entry = &table[index];
        self.first = entry.next;
        if self.first == NO_REQUEST {
            self.last = NO_REQUEST;
            self.deadline = Instant::FAR_FUTURE;
        }
        // One that ended in the queue was uncounted then.
        if entry.buffers.is_some() {
            self.len -= 1;
        } else {
            self.ended -= 1;
        }
        Some(index)
    }

    /// A queued request has ended. It keeps its position, empty, until its turn comes or the queue is swept.
    pub(super) fn note_ended(&mut self) {
        self.len -= 1;
        self.ended += 1;
    }

    /// Half of the queue is empty entries: a sweep costs a constant share for each of them.
    pub(super) fn is_worth_sweeping(&self) -> bool {
        self.ended > self.len
    }

    /// Frees the entries of requests that have ended; the others keep their order.
    pub(super) fn sweep(&mut self, table: &mut RequestTable) {
        let mut next = self.first;
        (self.first, self.last) = (NO_REQUEST, NO_REQUEST);
        self.ended = 0;
        while next != NO_REQUEST {
            let index = next;
            next = table[index].next;
            if table[index].buffers.is_none() {
                table.release(index);
                continue;
            }
            table[index].next = NO_REQUEST;
            self.link(index, table);
        }
    }
}
