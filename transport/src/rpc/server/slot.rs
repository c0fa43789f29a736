//! A slot of a server end: the request that it receives or executes, and the response that it keeps.

use crate::buf::MsgBuf;
use crate::rpc::Memory;
use crate::time::Instant;
use crate::wire::{Flags, Header, RequestNumber};

/// `ServerSlot::seen_at_scan`: a packet came since the last scan.
pub(super) const MOVED: u32 = u32::MAX;

/// A request as its first packet describes it.
pub(super) struct NewRequest {
    pub(super) number: RequestNumber,
    pub(super) flags: Flags,
    pub(super) kind: u8,
    pub(super) message_bytes: u32,
    pub(super) packets: u32,
}

/// The response that a slot had, and the epoch in which a transmission may refer to it.
pub(super) struct Previous {
    pub(super) response: Option<MsgBuf>,
    pub(super) epoch: u64,
}

/// One slot.
///
/// ```text
///   Receiving --last packet--> Executing --response--> Answered
///       ^                          |                      |
///       +---- next sequence -------+----------------------+
/// ```
pub(crate) struct ServerSlot {
    /// Of the present request; 0 before the first. A handler runs at most once for each.
    pub(super) sequence: u64,
    pub(super) state: ServerSlotState,
    pub(super) kind: u8,
    pub(super) message_bytes: u32,
    /// 0 until a packet has told.
    pub(super) request_packets: u32,
    /// Packets received, always the first ones.
    pub(super) received: u32,
    /// When the last packet of the request came, and the round and mark that it carried.
    pub(super) arrived_at: Instant,
    pub(super) round: u8,
    pub(super) ecn: bool,
    pub(super) deadline: Option<Instant>,
    /// Some exactly while a request of several packets is being received.
    pub(super) assembly: Option<MsgBuf>,
    /// The message that is counted for the session's holder. The fast path takes a slot that has none.
    pub(super) counted: Counted,
    /// Since when it is counted. A request that is begun again instead of finished is as old as the one before it.
    pub(super) since: Instant,
    /// Some exactly in `Answered`.
    pub(super) response: Option<MsgBuf>,
    /// The last credit return's position in the queue of answers.
    pub(super) credit_return: u64,
    /// The transmission epoch in which response data was last retransmitted; 0 for never.
    pub(super) retransmitted_in: u64,
    /// Response packets sent at least once, always the first ones.
    pub(super) sent_max: u32,
    /// `received` at the last scan of the slot's memory, or `MOVED`.
    pub(super) seen_at_scan: u32,
}

/// A slot's message of several packets, as it is counted.
#[derive(Copy, Clone, Debug, Eq, PartialEq)]
pub(super) enum Counted {
    Nothing,
    /// `assembly`.
    Request,
    /// `response`.
    Response,
}

/// State of a slot.
#[derive(Copy, Clone, Debug, Eq, PartialEq)]
pub(super) enum ServerSlotState {
    /// Waits for packets of the present or of the first request.
    Receiving,
    /// The handler has been called.
    Executing,
    /// The response is there.
    Answered,
    /// The deadline had passed before the handler could run; the client knows without an answer.
    Expired,
    /// The client left it alone for too long: its request, or its response, is not here any more.
    GivenUp,
    /// Its request, or its response, was given up because the client's holder had too much.
    GaveWay,
}

impl ServerSlot {
    pub(super) fn new() -> Self {
        Self {
            sequence: 0,
            state: ServerSlotState::Receiving,
            kind: 0,
            message_bytes: 0,
            request_packets: 0,
            received: 0,
            arrived_at: Instant::ZERO,
            round: 0,
            ecn: false,
            deadline: None,
            assembly: None,
            counted: Counted::Nothing,
            since: Instant::FAR_FUTURE,
            response: None,
            credit_return: u64::MAX,
            retransmitted_in: 0,
            sent_max: 0,
            seen_at_scan: MOVED,
        }
    }

    /// Begins a request of so many packets. It tells that the client is done with the slot's previous request and,
    /// unless the client gave that up, that the response has come. Returns that response.
    #[inline(always)]
    pub(super) fn begin(&mut self, new: &NewRequest, memory: &Memory) -> Previous {
        let is_proof = !new.flags.has(Flags::GAP) || self.sent_max == 0;
        let epoch = if is_proof {
            self.retransmitted_in
        } else {
            memory.epoch()
        };
        let previous = Previous {
            response: self.response.take(),
            epoch,
        };
        self.sequence = new.number.sequence();
        self.state = ServerSlotState::Receiving;
        self.kind = new.kind;
        self.message_bytes = new.message_bytes;
        self.request_packets = new.packets;
        self.received = 0;
        self.deadline = None;
        self.credit_return = u64::MAX;
        self.retransmitted_in = 0;
        self.sent_max = 0;
        self.seen_at_scan = MOVED;
        previous
    }

    /// The last packet of the request has come, in this round and with this mark: its handler is called.
    #[inline(always)]
    pub(super) fn execute(&mut self, arrived_at: Instant, round: u8, ecn: bool) {
        self.arrived_at = arrived_at;
        self.round = round;
        self.ecn = ecn;
        self.state = ServerSlotState::Executing;
    }

    /// Whether a request of several packets was begun and has not come to its end.
    pub(super) fn is_unfinished(&self) -> bool {
        let is_begun = match self.state {
            ServerSlotState::Receiving => self.assembly.is_some(),
            ServerSlotState::GivenUp | ServerSlotState::GaveWay => true,
            ServerSlotState::Executing | ServerSlotState::Answered | ServerSlotState::Expired => {
                false
            }
        };
        is_begun && self.received < self.request_packets
    }

    /// Whether the packet says the same about the request as its first one did.
    pub(super) fn agrees_with(&self, header: &Header) -> bool {
        self.message_bytes == header.message_bytes && self.kind == header.kind
    }
}
