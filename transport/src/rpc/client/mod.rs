//! The client end of a session: it sends requests and drives the protocol.
//!
//! [`ClientEnd`] is one end: its slots, credits, queue and measurements. [`Requests`] is the state that all client ends
//! of an endpoint share. It has the table of requests, the list of sessions that can send, and the completions that
//! wait. The files beside this one add an operation or a packet type each.

mod busy;
mod completion;
mod credit_return;
mod credits;
mod finished;
mod loss;
mod queue;
mod ready;
mod request;
mod request_table;
mod response;
mod send_state;
mod slots;
mod stamps;
mod start;
mod transmit;

pub(crate) use finished::Finished;
pub(crate) use loss::SlotScan;
pub(crate) use request::{Buffers, NewRequest};
#[cfg(test)]
pub(crate) use slots::ClientSlot;

use self::credits::Credits;
use self::finished::FinishedQueue;
use self::queue::RequestQueue;
use self::ready::ReadyList;
use self::request_table::RequestTable;
use self::slots::Slots;
use crate::congestion::{Congestion, Pacer};
use crate::exchange::{RequestId, RpcError};
use crate::session::rtt::{RtoLimits, Rtt};
use crate::session::terms::Terms;
use crate::stats::SessionStats;
use crate::time::{Duration, Instant};

/// State of a client end. Credits in use are always the sum over slots of packets sent less
/// packets answered. Fields that every packet needs come first.
#[repr(C)]
pub(crate) struct ClientEnd {
    slots: Slots,
    listing: Listing,
    credits: Credits,
    /// Requests that wait for a slot.
    queue: RequestQueue,
    completed: u64,
    rtt: Rtt,
    congestion: Congestion,
    pacer: Pacer,
    retransmissions: u64,
    credit_stalls: u64,
}

/// Whether a session is known to have something to send.
#[derive(Copy, Clone, PartialEq, Eq)]
enum Listing {
    No,
    /// It is in the list of those that can send, or waits for its departure.
    Ready,
    /// It waits for the end of a drain slot, and an answer lists it earlier.
    Drains,
}

/// State that the client ends of an endpoint share.
pub(crate) struct Requests {
    table: RequestTable,
    ready: ReadyList,
    finished: FinishedQueue,
}

/// The effect of a server's answer.
#[must_use]
#[derive(Default)]
pub(crate) struct ResponseEffect {
    /// A request made progress: the peer is alive.
    pub(crate) is_progress: bool,
    /// This request is over.
    pub(crate) ended: Option<Ended>,
}

/// A request that is over and still in its slot.
pub(crate) struct Ended {
    pub(crate) index: u32,
    pub(crate) result: Result<(), RpcError>,
}

impl ResponseEffect {
    const NOTHING: Self = Self {
        is_progress: false,
        ended: None,
    };
    const PROGRESS: Self = Self {
        is_progress: true,
        ended: None,
    };
}

impl ClientEnd {
    pub(crate) fn new(terms: &Terms, rto: RtoLimits, congestion: Congestion) -> Self {
        Self {
            slots: Slots::new(terms.slots),
            listing: Listing::No,
            credits: Credits::new(terms.credits),
            queue: RequestQueue::new(),
            completed: 0,
            rtt: Rtt::new(rto),
            congestion,
            pacer: Pacer::default(),
            retransmissions: 0,
            credit_stalls: 0,
        }
    }

    /// Fits the slots to the server's grant, before the first request is in a slot.
    pub(crate) fn set_terms(&mut self, terms: &Terms) {
        self.slots.shrink(terms.slots);
        self.credits = Credits::new(terms.credits);
        self.congestion.set_terms(terms.credits, terms.mtu);
        self.credits.reserve = self.congestion.reserve();
    }

    /// A packet of the handshake was answered: the first RTT samples.
    pub(crate) fn on_handshake_rtt(&mut self, now: Instant, rtt: Duration) {
        self.rtt.on_sample(rtt);
        self.congestion.on_handshake(now, rtt);
    }

    /// See [`Congestion::is_suspicious`].
    pub(crate) fn is_suspicious(&self) -> bool {
        self.congestion.is_suspicious()
    }

    /// Whether a slot is near the end of its request numbers.
    pub(crate) fn has_used_up_numbers(&self) -> bool {
        self.slots.have_used_up_numbers()
    }

    /// No queued request has an earlier deadline.
    pub(crate) fn queue_deadline(&self) -> Instant {
        self.queue.deadline()
    }

    /// This end's measurements and load.
    pub(crate) fn stats(&self, terms: &Terms) -> SessionStats {
        SessionStats {
            rtt_ns_smoothed: self.rtt.smoothed_ns(),
            rtt_ns_min: self.rtt.min_ns(),
            rtt_ns_last: self.rtt.last_ns(),
            rto_ns: self.rtt.rto(0).as_nanos(),
            rtt_samples: self.rtt.samples(),
            retransmissions: self.retransmissions,
            credits_in_use: terms.credits - self.credits.left,
            requests_in_flight: self.slots.used(),
            requests_queued: self.queue.len(),
            requests_completed: self.completed,
            credit_stalls: self.credit_stalls,
            rate_bytes_per_second: self.congestion.rate(),
            ..SessionStats::default()
        }
    }

    /// Lists the session among those that can send, if it can and is not listed yet.
    #[inline]
    pub(crate) fn mark_ready(&mut self, session: u16, requests: &mut Requests) {
        if !self.slots.can_send() || self.listing == Listing::Ready {
            return;
        }
        if !self.credits.may_send() {
            // Otherwise a window that each request finds full by itself would never grow.
            return self.congestion.on_blocked();
        }
        let drains = self.listing == Listing::Drains;
        let is_listed = drains && !requests.ready.cancel_departure(session);
        self.listing = Listing::Ready;
        if !is_listed {
            requests.ready.push(session);
        }
    }

    /// Begins to fetch a slot.
    #[inline]
    pub(crate) fn prefetch_slot(&self, slot: u8) {
        self.slots.prefetch(slot);
    }
}

impl Requests {
    pub(crate) fn new(requests: usize, sessions: usize) -> Self {
        Self {
            table: RequestTable::new(requests),
            ready: ReadyList::new(sessions),
            finished: FinishedQueue::new(requests),
        }
    }

    pub(crate) fn is_full(&self) -> bool {
        self.table.is_full()
    }

    /// Requests in flight or queued.
    pub(crate) fn used(&self) -> usize {
        self.table.used()
    }

    /// The index of a request that is not complete.
    pub(crate) fn find(&self, id: RequestId) -> Option<u32> {
        self.table.find(id)
    }

    /// The session of a request.
    pub(crate) fn session_of(&self, index: u32) -> u16 {
        self.table[index].session
    }

    /// Whether something can be sent or delivered at once.
    pub(crate) fn have_work(&self) -> bool {
        !self.ready.is_empty() || !self.finished.is_empty()
    }

    /// The next session with something to send. The session may have ended since it was listed.
    pub(crate) fn pop_ready(&mut self) -> Option<u16> {
        self.ready.pop()
    }

    /// Lists the sessions whose departure has come.
    pub(crate) fn release_departures(&mut self, now: Instant) {
        self.ready.release_departures(now);
    }

    pub(crate) fn next_departure(&self) -> Option<Instant> {
        self.ready.next_departure()
    }

    /// The session is over and departs no more.
    pub(crate) fn cancel_departure(&mut self, session: u16) {
        self.ready.cancel_departure(session);
    }

    /// When the next scan of the requests is due, or earlier.
    #[inline]
    pub(crate) fn next_scan(&self) -> Instant {
        self.table.next_scan()
    }

    /// When a request must be handled; of many requests that may be told too early.
    pub(crate) fn next_due(&self) -> Instant {
        self.table.next_due()
    }

    /// See [`RequestTable::pop_overdue`].
    pub(crate) fn pop_overdue(&mut self, from: u32, now: Instant) -> Option<u32> {
        self.table.pop_overdue(from, now)
    }

    /// Notes when a request must be handled next.
    pub(crate) fn watch(&mut self, index: u32) {
        self.table.watch(index);
    }
}

#[cfg(test)]
impl ClientEnd {
    /// Credits in use are the sum over slots of packets sent less packets answered.
    pub(crate) fn check_credits(&self, terms: &Terms, requests: &Requests) {
        let slots = (0..terms.slots).filter_map(|slot| self.slots.get(slot));
        let sends = slots
            .filter(|slot| slot.request != request::NO_REQUEST)
            .map(|slot| &requests.table[slot.request].send);
        let (mut in_use, mut held) = (0, 0);
        for send in sends {
            in_use += send.in_flight();
            held += u16::from(send.is_busy());
        }
        assert_eq!(in_use, terms.credits - self.credits.left, "credits in use");
        assert_eq!(held, self.credits.held, "requests that are held");
    }

    /// The first slot, in words.
    pub(crate) fn describe_slot(&self, requests: &Requests) -> String {
        let slot = self.slots.get(0).expect("a session has a slot");
        if slot.request == request::NO_REQUEST {
            return format!("free after {}", slot.sequence);
        }
        let send = &requests.table[slot.request].send;
        format!("{} {}", slot.sequence, send.describe())
    }

    /// The first slot has had so many requests.
    pub(crate) fn set_sequence(&mut self, sequence: u64) {
        self.slots
            .get_mut(0)
            .expect("a session has a slot")
            .sequence = sequence;
    }
}
