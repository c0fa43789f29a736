//! The server end of a session: a slot per concurrent request, its response kept until the next one.

use crate::buf::MsgBuf;
use crate::session::Terms;
use crate::time::Instant;
use crate::wire::{Header, RequestNumber};

/// `ServerSlot::seen_at_look`: something came since the last look.
pub(crate) const MOVED: u32 = u32::MAX;

/// State of a server end: slots, nothing else. The client drives the protocol.
#[derive(Default)]
pub(crate) struct ServerEnd {
    pub(crate) slots: Box<[ServerSlot]>,
    /// When to look at what the slots hold; `FAR_FUTURE` exactly while none holds anything.
    pub(super) look_at: Instant,
    /// Requests in a row that the client began and never finished.
    pub(super) strikes: u8,
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
    pub(crate) sequence: u64,
    pub(crate) state: ServerSlotState,
    pub(crate) kind: u8,
    pub(crate) message_bytes: u32,
    /// 0 until a packet has told.
    pub(crate) request_packets: u32,
    /// Packets received, always the first ones.
    pub(crate) received: u32,
    /// When the last packet of the request came, and the round and mark that it carried.
    pub(crate) arrived_at: Instant,
    pub(crate) round: u8,
    pub(crate) ecn: bool,
    pub(crate) deadline: Option<Instant>,
    /// Some exactly while a request of several packets is being received.
    pub(crate) assembly: Option<MsgBuf>,
    /// Some exactly in `Answered`.
    pub(crate) response: Option<MsgBuf>,
    /// The last credit return's place in the queue of answers.
    pub(crate) credit_return: u64,
    /// The transmission epoch in which response data was last sent again; 0 for never.
    pub(crate) resent_in: u64,
    /// Response packets sent at least once, always the first ones.
    pub(crate) sent_max: u32,
    /// What was received at the last look at what the slot holds, or `MOVED`.
    pub(crate) seen_at_look: u32,
}

/// What a slot does.
#[derive(Copy, Clone, Debug, Eq, PartialEq)]
pub(crate) enum ServerSlotState {
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
}

impl ServerSlot {
    fn new() -> Self {
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
            response: None,
            credit_return: u64::MAX,
            resent_in: 0,
            sent_max: 0,
            seen_at_look: MOVED,
        }
    }

    /// Begins a request of so many packets. Returns the previous response
    /// and the epoch in which it was last sent again.
    #[inline]
    pub(crate) fn begin(
        &mut self,
        number: RequestNumber,
        kind: u8,
        message_bytes: u32,
        packets: u32,
    ) -> (Option<MsgBuf>, u64) {
        let previous = (self.response.take(), self.resent_in);
        self.sequence = number.sequence();
        self.state = ServerSlotState::Receiving;
        self.kind = kind;
        self.message_bytes = message_bytes;
        self.request_packets = packets;
        self.received = 0;
        self.deadline = None;
        self.credit_return = u64::MAX;
        self.resent_in = 0;
        self.sent_max = 0;
        self.seen_at_look = MOVED;
        previous
    }

    /// Whether the packet says the same about the request as its first one did.
    pub(crate) fn agrees_with(&self, header: &Header) -> bool {
        self.message_bytes == header.message_bytes && self.kind == header.kind
    }
}

impl ServerEnd {
    pub(crate) fn new(terms: &Terms) -> Self {
        Self {
            slots: (0..terms.slots).map(|_| ServerSlot::new()).collect(),
            look_at: Instant::FAR_FUTURE,
            strikes: 0,
        }
    }
}
