//! Requests that this endpoint made and that are not complete: in a slot, or queued for one.
//!
//! They are kept apart from the sessions, in one table that is reused from the last entry freed.
//! Thus 20,000 idle sessions cost no cache and a few busy requests stay warm.

use super::request::{ClientRequest, NO_REQUEST, NewRequest, RequestStage};
use crate::exchange::RequestId;
use crate::time::Instant;

/// Requests that are scanned to tell when the first of them is due.
const SCANNED_MAX: usize = 128;

/// All requests.
pub(super) struct RequestTable {
    entries: Vec<ClientRequest>,
    free: u32,
    limit: usize,
    used: usize,
    /// For each entry the time at which it must be handled, or an earlier one; `FAR_FUTURE` if not
    /// at all. Side by side, so that one scan of all costs a few cache lines, and no request a timer.
    watched: Vec<Instant>,
    /// Nothing in `watched` is earlier.
    next_scan: Instant,
}

impl RequestTable {
    pub(super) fn new(limit: usize) -> Self {
        Self {
            entries: Vec::with_capacity(limit),
            free: NO_REQUEST,
            limit,
            used: 0,
            watched: Vec::with_capacity(limit),
            next_scan: Instant::FAR_FUTURE,
        }
    }

    #[inline]
    pub(super) fn is_full(&self) -> bool {
        self.used == self.limit
    }

    pub(super) fn used(&self) -> usize {
        self.used
    }

    /// Takes an entry into use. The caller has checked that there is one.
    #[inline(always)]
    pub(super) fn insert(
        &mut self,
        session: u16,
        request: NewRequest,
    ) -> (RequestId, &mut ClientRequest) {
        self.used += 1;
        if self.free == NO_REQUEST {
            self.grow();
        }
        let index = self.free;
        let entry = &mut self.entries[index as usize];
        self.free = entry.next;
        entry.begin(session, request);
        let id = RequestId {
            index,
            generation: entry.generation,
        };
        (id, entry)
    }

    /// Makes one more entry.
    #[cold]
    fn grow(&mut self) {
        assert!(
            self.entries.len() < self.limit,
            "insert into a full request table"
        );
        self.free = self.entries.len() as u32;
        self.entries.push(ClientRequest::empty());
        self.watched.push(Instant::FAR_FUTURE);
    }

    /// Frees an entry whose buffers are gone.
    #[inline]
    pub(super) fn release(&mut self, index: u32) {
        let entry = &mut self.entries[index as usize];
        debug_assert!(entry.buffers.is_none() && entry.stage != RequestStage::Free);
        entry.generation = entry.generation.wrapping_add(1);
        entry.stage = RequestStage::Free;
        entry.next = self.free;
        self.free = index;
        self.used -= 1;
        self.watched[index as usize] = Instant::FAR_FUTURE;
    }

    /// Notes when the request is due. An earlier note is kept, since a scan is cheap.
    #[inline(always)]
    pub(super) fn watch(&mut self, index: u32) {
        let due = self.entries[index as usize].due();
        self.watch_at(index, due);
    }

    /// The same, for a request whose retransmission or probe is due at `at`.
    #[inline(always)]
    pub(super) fn watch_at(&mut self, index: u32, at: Instant) {
        let watched = &mut self.watched[index as usize];
        if at < *watched {
            *watched = at;
            self.next_scan = self.next_scan.min(at);
        }
    }

    /// When the next scan of the requests is due, or earlier.
    #[inline]
    pub(super) fn next_scan(&self) -> Instant {
        self.next_scan
    }

    /// When a request is due. Of many requests that may be told too early, as [`RequestTable::next_scan`] is: a
    /// request that was answered leaves its time behind, and one that made progress its first.
    pub(super) fn next_due(&self) -> Instant {
        if self.entries.len() > SCANNED_MAX {
            return self.next_scan;
        }
        let watched = self.watched.iter().zip(&self.entries);
        watched
            .filter(|(at, _)| **at != Instant::FAR_FUTURE)
            .map(|(at, entry)| entry.due().max(*at))
            .min()
            .unwrap_or(Instant::FAR_FUTURE)
    }

    /// The first request from index `from` on that is due; the notes of those that are due later are corrected. Without
    /// one the scan is over. The caller begins with index 0. For each request that it was given, it changes when that
    /// is due, and then goes on after it.
    pub(super) fn pop_overdue(&mut self, from: u32, now: Instant) -> Option<u32> {
        if from == 0 {
            self.next_scan = Instant::FAR_FUTURE;
        }
        for index in from as usize..self.watched.len() {
            if self.watched[index] <= now {
                let due = self.entries[index].due();
                if due <= now {
                    // Watched again when its next transmission or probe says so.
                    self.watched[index] = Instant::FAR_FUTURE;
                    return Some(index as u32);
                }
                self.watched[index] = due;
            }
            self.next_scan = self.next_scan.min(self.watched[index]);
        }
        None
    }

    /// The index of a request that is not complete.
    pub(super) fn find(&self, id: RequestId) -> Option<u32> {
        let entry = self.entries.get(id.index as usize)?;
        (entry.generation == id.generation && entry.buffers.is_some()).then_some(id.index)
    }
}

impl std::ops::Index<u32> for RequestTable {
    type Output = ClientRequest;

    #[inline(always)]
    fn index(&self, index: u32) -> &ClientRequest {
        &self.entries[index as usize]
    }
}

impl std::ops::IndexMut<u32> for RequestTable {
    #[inline(always)]
    fn index_mut(&mut self, index: u32) -> &mut ClientRequest {
        &mut self.entries[index as usize]
    }
}
