//! Requests that this endpoint made and that are not complete: in a slot, or queued for one.
//!
//! They live apart from the sessions, in one table that is reused from the last entry freed, so
//! that 20,000 idle sessions cost no cache and a few busy requests stay warm.

use crate::buf::MsgBuf;
use crate::config::RTT_STAMPS;
use crate::exchange::{Completion, RequestId, RpcError};
use crate::time::Instant;

/// No request.
pub(crate) const NO_REQUEST: u32 = u32::MAX;

/// A request and its wire state. Packets are numbered over the whole exchange: the request's
/// packets first, then one request-for-response for each response packet but the first. The
/// server's answers have the same numbers.
/// What a request begins with lies side by side, so that it is written in few strokes.
#[repr(C)]
pub(crate) struct ClientRequest {
    /// Both Some until the request ends. A queued request that has ended keeps its place, empty.
    pub(crate) buffers: Option<Buffers>,
    pub(crate) tag: u64,
    /// When it must be retransmitted or probed; `FAR_FUTURE` while nothing is unanswered.
    pub(crate) due: Instant,
    pub(crate) deadline: Option<Instant>,

    generation: u32,
    /// The next one in the session's queue or in the list of free entries.
    pub(crate) next: u32,
    /// When a packet of it was last sent.
    pub(crate) sent_at: Instant,
    /// The transmission epoch of the last retransmitted data packet; 0 for none.
    pub(crate) resent_in: u64,
    /// 0 until the first response packet has come.
    pub(crate) response_packets: u32,
    /// Packets answered, always the first ones. Never more than `sent`.
    pub(crate) answered: u32,
    /// Packets sent in this round; the first unsent packet's number.
    pub(crate) sent: u32,
    /// The most that was ever sent.
    pub(crate) sent_max: u32,
    pub(crate) request_packets: u32,
    /// Counts rollbacks; four bits go over the wire.
    pub(crate) round: u8,
    /// Timeouts or probes since the last progress.
    pub(crate) attempts: u8,
    /// Rollbacks for a gap since the last progress.
    pub(crate) gaps: u8,
    /// The server has said that the handler runs.
    pub(crate) is_busy: bool,
    pub(crate) session: u16,
    /// Means nothing while queued.
    pub(crate) slot: u8,
    pub(crate) kind: u8,
    pub(crate) place: Place,
    /// When the packets of this round were sent, by number modulo `RTT_STAMPS`.
    stamps: [Instant; RTT_STAMPS],
}

/// The two buffers that a request brings and takes home.
pub(crate) struct Buffers {
    pub(crate) request: MsgBuf,
    pub(crate) response: MsgBuf,
}

#[derive(Copy, Clone, Debug, Eq, PartialEq)]
pub(crate) enum Place {
    Free,
    Queued,
    InSlot,
}

/// A completion that could not be delivered where it arose.
pub(crate) struct Finished {
    pub(crate) tag: u64,
    pub(crate) completion: Completion,
    /// Delivered once transmissions up to this epoch are flushed.
    pub(crate) after_epoch: u64,
}

impl ClientRequest {
    fn empty() -> Self {
        Self {
            generation: 0,
            next: NO_REQUEST,
            session: 0,
            slot: 0,
            kind: 0,
            place: Place::Free,
            tag: 0,
            deadline: None,
            buffers: None,
            request_packets: 0,
            response_packets: 0,
            sent: 0,
            sent_max: 0,
            answered: 0,
            round: 0,
            attempts: 0,
            gaps: 0,
            is_busy: false,
            sent_at: Instant::ZERO,
            due: Instant::FAR_FUTURE,
            resent_in: 0,
            stamps: [Instant::ZERO; RTT_STAMPS],
        }
    }

    /// Sets all but the generation and the stamps, which count only once they are set anew.
    #[inline(always)]
    fn begin(
        &mut self,
        session: u16,
        kind: u8,
        tag: u64,
        deadline: Option<Instant>,
        buffers: Buffers,
    ) {
        self.next = NO_REQUEST;
        self.session = session;
        self.slot = 0;
        self.kind = kind;
        self.place = Place::Queued;
        self.tag = tag;
        self.deadline = deadline;
        self.buffers = Some(buffers);
        self.request_packets = 0;
        self.response_packets = 0;
        self.sent = 0;
        self.sent_max = 0;
        self.answered = 0;
        self.round = 0;
        self.attempts = 0;
        self.gaps = 0;
        self.is_busy = false;
        self.sent_at = Instant::ZERO;
        self.due = Instant::FAR_FUTURE;
        self.resent_in = 0;
    }

    /// Packets of the whole exchange as far as known.
    pub(crate) fn packets(&self) -> u32 {
        self.request_packets + self.response_packets.saturating_sub(1)
    }

    pub(crate) fn has_more_to_send(&self) -> bool {
        self.sent < self.packets()
    }

    pub(crate) fn in_flight(&self) -> u16 {
        // Bounded by the session's credits.
        (self.sent - self.answered) as u16
    }

    /// When it must be looked at: to be sent again or probed, or because its deadline has passed. A
    /// request outside of the slots is the session timer's.
    pub(crate) fn look_due(&self) -> Instant {
        match self.place {
            Place::InSlot => self
                .deadline
                .map_or(self.due, |deadline| deadline.min(self.due)),
            Place::Free | Place::Queued => Instant::FAR_FUTURE,
        }
    }

    /// Of one packet, which was sent once, so that its answer ends the request and frees its buffers.
    #[inline]
    pub(crate) fn is_single_in_flight(&self) -> bool {
        let is_single = self.request_packets == 1 && self.sent == 1;
        is_single && (self.answered | self.response_packets) == 0 && self.resent_in == 0
    }

    pub(crate) fn stamp(&mut self, number: u32, now: Instant) {
        self.stamps[number as usize % RTT_STAMPS] = now;
    }

    /// When packet `number` was sent, if it was sent once and its stamp still stands.
    pub(crate) fn stamp_of(&self, number: u32, round: u8) -> Option<Instant> {
        let is_this_round = round == self.round & 0x0f;
        let still_stands = number < self.sent && (self.sent - number) as usize <= RTT_STAMPS;
        (is_this_round && still_stands).then(|| self.stamps[number as usize % RTT_STAMPS])
    }
}

/// Requests that are looked at to tell when the first of them must be.
const LOOKED_AT_MAX: usize = 128;

/// All requests.
pub(crate) struct RequestTable {
    entries: Vec<ClientRequest>,
    free: u32,
    limit: usize,
    used: usize,
    /// For each entry the time at which it must be looked at, or an earlier one; `FAR_FUTURE` if not
    /// at all. Side by side, so that one look at all costs a few cache lines, and no request a timer.
    watched: Vec<Instant>,
    /// Nothing in `watched` is earlier.
    next_look: Instant,
}

impl RequestTable {
    pub(crate) fn new(limit: usize) -> Self {
        Self {
            entries: Vec::with_capacity(limit),
            free: NO_REQUEST,
            limit,
            used: 0,
            watched: Vec::with_capacity(limit),
            next_look: Instant::FAR_FUTURE,
        }
    }

    pub(crate) fn is_full(&self) -> bool {
        self.used == self.limit
    }

    pub(crate) fn used(&self) -> usize {
        self.used
    }

    /// Takes an entry into use. The caller has checked that there is one.
    #[inline(always)]
    pub(crate) fn insert(
        &mut self,
        session: u16,
        kind: u8,
        tag: u64,
        deadline: Option<Instant>,
        buffers: Buffers,
    ) -> RequestId {
        self.used += 1;
        if self.free == NO_REQUEST {
            self.grow();
        }
        let index = self.free;
        let entry = &mut self.entries[index as usize];
        self.free = entry.next;
        entry.begin(session, kind, tag, deadline, buffers);
        RequestId {
            index,
            generation: entry.generation,
        }
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
    pub(crate) fn release(&mut self, index: u32) {
        let entry = &mut self.entries[index as usize];
        debug_assert!(entry.buffers.is_none() && entry.place != Place::Free);
        entry.generation = entry.generation.wrapping_add(1);
        entry.place = Place::Free;
        entry.next = self.free;
        self.free = index;
        self.used -= 1;
        self.watched[index as usize] = Instant::FAR_FUTURE;
    }

    /// The request must be looked at then; an earlier time stands, since a look is cheap.
    #[inline(always)]
    pub(crate) fn watch(&mut self, index: u32, at: Instant) {
        let watched = &mut self.watched[index as usize];
        if at < *watched {
            *watched = at;
            self.next_look = self.next_look.min(at);
        }
    }

    /// When the next look at the requests is due, or earlier.
    #[inline]
    pub(crate) fn next_look(&self) -> Instant {
        self.next_look
    }

    /// When a request must be looked at. Of many requests that may be told too early, as [`RequestTable::next_look`] is: a
    /// request that was answered leaves its time behind, and one that made progress its first.
    pub(crate) fn next_due(&self) -> Instant {
        if self.entries.len() > LOOKED_AT_MAX {
            return self.next_look;
        }
        let watched = self.watched.iter().zip(&self.entries);
        watched
            .filter(|(at, _)| **at != Instant::FAR_FUTURE)
            .map(|(at, entry)| entry.look_due().max(*at))
            .min()
            .unwrap_or(Instant::FAR_FUTURE)
    }

    /// The first request from index `from` on whose time has come; those that were watched too early
    /// are watched anew. Without one the look is over. The caller begins with index 0, and goes on
    /// behind each request that it was given, after it has changed when that must be looked at.
    pub(crate) fn pop_overdue(&mut self, from: u32, now: Instant) -> Option<u32> {
        if from == 0 {
            self.next_look = Instant::FAR_FUTURE;
        }
        for index in from as usize..self.watched.len() {
            if self.watched[index] <= now {
                let due = self.entries[index].look_due();
                if due <= now {
                    // Watched again when its next transmission or probe says so.
                    self.watched[index] = Instant::FAR_FUTURE;
                    return Some(index as u32);
                }
                self.watched[index] = due;
            }
            self.next_look = self.next_look.min(self.watched[index]);
        }
        None
    }

    /// The index of a request that is not complete.
    pub(crate) fn find(&self, id: RequestId) -> Option<u32> {
        let entry = self.entries.get(id.index as usize)?;
        (entry.generation == id.generation && entry.buffers.is_some()).then_some(id.index)
    }
}

impl std::ops::Index<u32> for RequestTable {
    type Output = ClientRequest;

    fn index(&self, index: u32) -> &ClientRequest {
        &self.entries[index as usize]
    }
}

impl std::ops::IndexMut<u32> for RequestTable {
    fn index_mut(&mut self, index: u32) -> &mut ClientRequest {
        &mut self.entries[index as usize]
    }
}

impl Buffers {
    pub(crate) fn into_completion(self, result: Result<(), RpcError>) -> Completion {
        Completion {
            result,
            request: self.request,
            response: self.response,
        }
    }
}
