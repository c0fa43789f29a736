//! A request that this endpoint made, from its enqueueing to its end.

use std::ops::Range;

use super::send_state::SendState;
use crate::backend::PACKET_EVERYWHERE;
use crate::buf::MsgBuf;
use crate::exchange::{Completion, RpcError};
use crate::session::terms::Terms;
use crate::time::Instant;
use crate::wire::{HEADER_BYTES, PACKET_OVERHEAD};

/// No request: an index that the table never gives.
pub(super) const NO_REQUEST: u32 = u32::MAX;

/// A request and its wire state. Fields that a new request sets lie side by side: few
/// instructions write them.
#[repr(C)]
pub(super) struct ClientRequest {
    /// Both Some until the request ends. A queued request that has ended keeps its position, empty.
    pub(super) buffers: Option<Buffers>,
    pub(super) tag: u64,
    pub(super) deadline: Option<Instant>,
    pub(super) generation: u32,
    /// The next one in the session's queue or in the list of free entries.
    pub(super) next: u32,
    pub(super) session: u16,
    /// Means nothing while queued.
    pub(super) slot: u8,
    pub(super) kind: u8,
    pub(super) stage: RequestStage,
    pub(super) send: SendState,
}

/// A request as a program hands it over.
pub(crate) struct NewRequest {
    pub(crate) kind: u8,
    pub(crate) tag: u64,
    pub(crate) deadline: Option<Instant>,
    pub(crate) buffers: Buffers,
}

/// A packet whose arrival a request waits for, at either end.
#[derive(Copy, Clone, Debug, Eq, PartialEq)]
pub(super) enum Awaited {
    /// It is larger than what every path carries.
    Full,
    /// The first packet of a response whose size is not known yet.
    PerhapsFull,
    /// Every path carries it.
    Short,
}

impl Awaited {
    fn full_if(is_full: bool) -> Self {
        match is_full {
            true => Self::Full,
            false => Self::Short,
        }
    }
}

/// The two buffers that a request brings and takes home.
pub(crate) struct Buffers {
    pub(crate) request: MsgBuf,
    pub(crate) response: MsgBuf,
}

/// Where a request is.
#[derive(Copy, Clone, Debug, Eq, PartialEq)]
pub(super) enum RequestStage {
    /// The entry holds no request.
    Free,
    Queued,
    InSlot,
}

impl ClientRequest {
    pub(super) fn empty() -> Self {
        Self {
            buffers: None,
            tag: 0,
            deadline: None,
            generation: 0,
            next: NO_REQUEST,
            session: 0,
            slot: 0,
            kind: 0,
            stage: RequestStage::Free,
            send: SendState::new(),
        }
    }

    /// Sets all but the generation.
    #[inline(always)]
    pub(super) fn begin(&mut self, session: u16, request: NewRequest) {
        self.next = NO_REQUEST;
        self.session = session;
        self.slot = 0;
        self.kind = request.kind;
        self.stage = RequestStage::Queued;
        self.tag = request.tag;
        self.deadline = request.deadline;
        self.buffers = Some(request.buffers);
        self.send.reset();
    }

    /// When it must be retransmitted, probed or ended for its deadline. A request outside of the slots is the
    /// session timer's.
    #[inline]
    pub(super) fn due(&self) -> Instant {
        match self.stage {
            RequestStage::InSlot => self
                .deadline
                .map_or(self.send.due(), |deadline| deadline.min(self.send.due())),
            RequestStage::Free | RequestStage::Queued => Instant::FAR_FUTURE,
        }
    }

    /// What these packets of its response have in bytes, headers included. The response's size must be known.
    pub(super) fn response_bytes(&self, terms: &Terms, packets: Range<u32>) -> usize {
        let Some(buffers) = &self.buffers else {
            return 0;
        };
        let message_bytes = buffers.response.len();
        let bytes_of = |number| HEADER_BYTES + terms.data_range(message_bytes, number).len();
        packets.map(bytes_of).sum()
    }

    /// What the first packet of the exchange that is not answered has to bring to the other end.
    pub(super) fn next_awaited(&self, terms: &Terms) -> Awaited {
        let Some(buffers) = &self.buffers else {
            return Awaited::Short;
        };
        let (request, response) = (buffers.request.len(), &buffers.response);
        let is_full = |message: usize, number: u32| {
            let bytes = PACKET_OVERHEAD + terms.data_range(message, number).len();
            bytes > PACKET_EVERYWHERE
        };
        let (number, packets) = (self.send.answered(), terms.packets(request));
        if number < packets && is_full(request, number) {
            return Awaited::Full;
        }
        if self.send.has_response() {
            // Response packet 0 answers the last request packet.
            let of_response = number.saturating_sub(packets - 1);
            return Awaited::full_if(is_full(response.len(), of_response));
        }
        match number + 1 == packets && is_full(response.capacity(), 0) {
            true => Awaited::PerhapsFull,
            false => Awaited::Short,
        }
    }

    /// Whether its deadline has passed.
    pub(super) fn has_expired(&self, now: Instant) -> bool {
        self.deadline.is_some_and(|deadline| deadline <= now)
    }
}

impl Buffers {
    #[inline(always)]
    pub(crate) fn into_completion(self, result: Result<(), RpcError>) -> Completion {
        Completion {
            result,
            request: self.request,
            response: self.response,
        }
    }
}
