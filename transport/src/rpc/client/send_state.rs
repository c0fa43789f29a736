//! Which packets of a request are sent and answered: go-back-N (PROTOCOL.md section 5.4).
//!
//! Packets are numbered over the whole exchange: the request's packets first, then one request-for-response for
//! each response packet but the first. The server's answers have the same numbers. Each rollback begins a round.

use super::stamps::Stamps;
use crate::config::GAP_ROLLBACKS_MAX;
use crate::time::Instant;
use trine_canary as canary;

/// The sending side of one request.
#[repr(C)]
pub(super) struct SendState {
    /// When the request must be retransmitted or probed; `FAR_FUTURE` while nothing is unanswered.
    due: Instant,
    /// When a packet was last sent.
    sent_at: Instant,
    /// When the first of the `unheard` ones was; means nothing while there are none.
    unheard_since: Instant,
    /// When the round before this one had sent its last packet, if a timeout ended it; else `ZERO`.
    taken_for_lost: Instant,
    /// The transmission epoch of the last retransmitted data packet; 0 for none.
    retransmitted_in: u64,
    /// 0 until the first response packet has come.
    response_packets: u32,
    /// Packets answered, always the first ones. Never more than `sent`.
    answered: u32,
    /// Packets sent in this round; the first unsent packet's number.
    sent: u32,
    /// The most that was ever sent.
    sent_max: u32,
    request_packets: u32,
    /// Counts rollbacks; four bits go over the wire.
    round: u8,
    /// Timeouts or probes since the last progress.
    attempts: u8,
    /// Timeouts or probes in a row to which the server has said nothing of this request.
    unheard: u8,
    /// Rollbacks for a gap since the last progress.
    gaps: u8,
    /// The server has said that the handler runs.
    is_busy: bool,
    /// When the packets of this round were sent.
    stamps: Stamps,
}

impl SendState {
    pub(super) fn new() -> Self {
        Self {
            due: Instant::FAR_FUTURE,
            sent_at: Instant::ZERO,
            taken_for_lost: Instant::ZERO,
            unheard_since: Instant::ZERO,
            retransmitted_in: 0,
            response_packets: 0,
            answered: 0,
            sent: 0,
            sent_max: 0,
            request_packets: 0,
            round: 0,
            attempts: 0,
            unheard: 0,
            gaps: 0,
            is_busy: false,
            stamps: Stamps::new(),
        }
    }

    /// For a new request. Sets all but the stamps, which count only once they are set again.
    #[inline(always)]
    pub(super) fn reset(&mut self) {
        self.request_packets = 0;
        self.response_packets = 0;
        self.sent = 0;
        self.sent_max = 0;
        self.answered = 0;
        self.round = 0;
        self.attempts = 0;
        self.unheard = 0;
        self.gaps = 0;
        self.is_busy = false;
        self.sent_at = Instant::ZERO;
        self.taken_for_lost = Instant::ZERO;
        self.due = Instant::FAR_FUTURE;
        self.retransmitted_in = 0;
    }

    /// The request has a slot, and so many packets.
    #[inline(always)]
    pub(super) fn set_request_packets(&mut self, packets: u32) {
        self.request_packets = packets;
    }

    /// The first response packet tells how many there are.
    pub(super) fn set_response_packets(&mut self, packets: u32) {
        self.response_packets = packets;
    }

    #[inline(always)]
    pub(super) fn due(&self) -> Instant {
        self.due
    }

    pub(super) fn sent_at(&self) -> Instant {
        self.sent_at
    }

    #[inline(always)]
    pub(super) fn round(&self) -> u8 {
        self.round
    }

    #[inline]
    pub(super) fn is_this_round(&self, round: u8) -> bool {
        round == self.round & 0x0f
    }

    pub(super) fn attempts(&self) -> u8 {
        self.attempts
    }

    pub(super) fn is_busy(&self) -> bool {
        self.is_busy
    }

    pub(super) fn answered(&self) -> u32 {
        self.answered
    }

    pub(super) fn retransmitted_in(&self) -> u64 {
        self.retransmitted_in
    }

    pub(super) fn was_sent(&self) -> bool {
        self.sent_max > 0
    }

    /// Packets of the whole exchange as far as known.
    pub(super) fn packets(&self) -> u32 {
        self.request_packets + self.response_packets.saturating_sub(1)
    }

    pub(super) fn has_more_to_send(&self) -> bool {
        self.sent < self.packets()
    }

    pub(super) fn is_complete(&self) -> bool {
        self.answered == self.packets()
    }

    pub(super) fn has_response(&self) -> bool {
        self.response_packets > 0
    }

    /// Whether all request packets have been sent at least once.
    pub(super) fn was_sent_completely(&self) -> bool {
        self.sent_max >= self.request_packets
    }

    /// The number of the last request packet, which the response answers.
    pub(super) fn last_request_packet(&self) -> u32 {
        self.request_packets - 1
    }

    /// Whether packet `number` has ever been sent.
    pub(super) fn has_sent(&self, number: u32) -> bool {
        number < self.sent_max
    }

    /// Whether a packet from `number` on is under way in this round.
    pub(super) fn has_under_way(&self, number: u32) -> bool {
        self.sent > number
    }

    /// Whether a credit return may say that the packets below `answered` have arrived. The response answers the last.
    pub(super) fn can_be_credited(&self, answered: u32) -> bool {
        answered < self.request_packets && answered <= self.sent_max
    }

    /// Whether all that is under way is the last request packet, or its response: the handler may take its time.
    pub(super) fn waits_for_handler(&self) -> bool {
        self.sent == self.request_packets && self.answered + 1 == self.sent
    }

    /// Packets under way, each with a credit.
    #[inline]
    pub(super) fn in_flight(&self) -> u16 {
        // Bounded by the session's credits.
        (self.sent - self.answered) as u16
    }

    /// Of one packet, which was sent once and is not held, so that its answer ends the request and frees its buffers.
    #[inline]
    pub(super) fn is_single_in_flight(&self) -> bool {
        let is_single = self.request_packets == 1 && self.sent == 1;
        let is_first = (self.answered | self.response_packets) == 0 && self.retransmitted_in == 0;
        is_single && is_first && !self.is_busy
    }

    /// The next packet to send.
    pub(super) fn next_packet(&self) -> NextPacket {
        if self.sent < self.request_packets {
            NextPacket::Request { number: self.sent }
        } else {
            NextPacket::RequestForResponse {
                first: self.sent - self.request_packets + 1,
                wanted: self.packets() - self.sent,
            }
        }
    }

    /// Whether the next packet to send was sent before.
    pub(super) fn next_is_retransmission(&self) -> bool {
        self.sent < self.sent_max
    }

    /// The next packet refers to the request's buffer once more.
    pub(super) fn note_retransmitted(&mut self, epoch: u64) {
        self.retransmitted_in = epoch;
    }

    /// `count` packets have been sent, in a session with so many credits. The timer starts at `due` with the first packet
    /// under way.
    #[inline(always)]
    pub(super) fn on_sent(&mut self, now: Instant, count: u32, credits: u16, due: Instant) {
        let is_first = self.in_flight() == 0;
        if is_first {
            self.due = due;
        }
        let numbers = self.sent..self.sent + count;
        self.stamps.note(now, numbers, is_first, credits);
        self.sent_at = now;
        self.sent += count;
        self.sent_max = self.sent_max.max(self.sent);
    }

    /// The only packet of a request has been sent for the first time.
    #[inline(always)]
    pub(super) fn on_sent_single(&mut self, now: Instant, due: Instant) {
        self.stamps.note_single(now);
        self.sent_at = now;
        self.due = due;
        self.sent = 1;
        self.sent_max = 1;
    }

    /// When packet `number`, which is under way in a session with so many credits, was sent; `None` if the answer is to
    /// an earlier transmission.
    pub(super) fn stamp_of(&self, number: u32, round: u8, credits: u16) -> Option<Instant> {
        let is_known = (self.answered..self.sent).contains(&number);
        (self.is_this_round(round) && is_known)
            .then(|| self.stamps.of(number, credits, self.sent_at))
    }

    /// When the only packet of a request was sent, if that was in this round.
    #[inline(always)]
    pub(super) fn stamp_of_single(&self, round: u8) -> Option<Instant> {
        self.is_this_round(round).then_some(self.sent_at)
    }

    /// Which transmission does a response of this round answer? `None` if that cannot be told. BUSY has said that a
    /// request was there when it came again: its response answers the earlier one, whatever its round.
    pub(super) fn answered_transmission(&self, round: u8) -> Option<Transmission> {
        if self.taken_for_lost == Instant::ZERO {
            let is_known = self.is_this_round(round);
            return is_known.then_some(Transmission::First(self.sent_at));
        }
        if self.is_this_round(round) && !self.is_busy {
            return Some(Transmission::Again(self.sent_at));
        }
        Some(Transmission::TakenForLost(self.taken_for_lost))
    }

    /// Packets below `answered` are answered. The timer moves to `due` while others are under way. Returns
    /// the credits that come back.
    pub(super) fn on_answered(&mut self, answered: u32, due: Instant) -> u16 {
        let in_flight = self.in_flight();
        self.answered = answered;
        self.sent = self.sent.max(answered);
        self.sent_max = self.sent_max.max(answered);
        self.attempts = 0;
        self.unheard = 0;
        self.gaps = 0;
        self.is_busy = false;
        self.taken_for_lost = Instant::ZERO;
        self.due = if self.in_flight() > 0 {
            due
        } else {
            Instant::FAR_FUTURE
        };
        in_flight - self.in_flight()
    }

    /// A loss in this round is proven. True if the request may roll back for it.
    pub(super) fn on_gap(&mut self) -> bool {
        let may_roll_back = self.gaps < GAP_ROLLBACKS_MAX;
        self.gaps += u8::from(may_roll_back);
        may_roll_back
    }

    /// Nothing came in time: the round is over.
    pub(super) fn on_timeout(&mut self, now: Instant) {
        self.taken_for_lost = self.sent_at;
        self.on_attempt(now);
    }

    /// Nothing came in time, or a probe is sent.
    pub(super) fn on_attempt(&mut self, now: Instant) {
        self.attempts = self.attempts.saturating_add(1);
        if self.unheard == 0 {
            self.unheard_since = now;
        }
        self.unheard = self.unheard.saturating_add(1);
    }

    /// When the first was of at least `count` timeouts or probes in a row to which the server has said nothing of this
    /// request. `None` if there were fewer.
    pub(super) fn unheard_since(&self, count: u8) -> Option<Instant> {
        (self.unheard >= count).then_some(self.unheard_since)
    }

    /// Goes back to the first unanswered packet. Returns the credits of the packets after it.
    pub(super) fn roll_back(&mut self) -> u16 {
        let credits = self.in_flight();
        self.sent = self.answered;
        if canary::planted("rollback forgets a packet") {
            self.sent = self.sent_max.min(self.answered + 1);
        }
        self.round = self.round.wrapping_add(1);
        // The timer starts with the next transmission.
        self.due = Instant::FAR_FUTURE;
        credits
    }

    #[cfg(test)]
    pub(super) fn describe(&self) -> String {
        let (sent, answered, packets) = (self.sent, self.answered, self.packets());
        let busy = if self.is_busy { ", busy" } else { "" };
        format!("sent {sent} answered {answered} of {packets}{busy}")
    }

    /// The server has all of the request; it is probed at `due`.
    pub(super) fn on_busy(&mut self, due: Instant) {
        self.is_busy = true;
        self.unheard = 0;
        self.due = due;
    }

    /// The next probe is at `due`.
    pub(super) fn probe_at(&mut self, due: Instant) {
        self.due = due;
    }
}

/// A transmission of a request's packet, and when it was.
pub(super) enum Transmission {
    /// No timeout came before the response.
    First(Instant),
    /// The one before it got lost, or its response.
    Again(Instant),
    /// It was taken for lost, and was not.
    TakenForLost(Instant),
}

/// A packet of the exchange that is sent next.
pub(super) enum NextPacket {
    /// This packet of the request.
    Request { number: u32 },
    /// A request for response packets from `first` on, of which `wanted` are left.
    RequestForResponse { first: u32, wanted: u32 },
}
