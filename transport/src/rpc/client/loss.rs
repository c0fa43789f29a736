//! Loss and progress: go-back-N and its timer (PROTOCOL.md section 5.4).
//!
//! Each rollback begins a new round of transmissions. Packets carry the round and answers repeat it,
//! so that an answer tells which transmission it belongs to: RTT samples are unambiguous (Karn), and
//! a gap in the answers to this round is a loss in this round, found before the timer fires.

use super::request::{Awaited, NO_REQUEST};
use super::send_state::Transmission;
use super::{ClientEnd, Ended, Requests};
use crate::backend::Route;
use crate::config::{BLACK_HOLE_TIMEOUTS, BLACK_HOLE_TIMEOUTS_UNSURE};
use crate::exchange::RpcError;
use crate::session::peer::{Received, SessionPeer};
use crate::session::terms::Terms;
use crate::stats::{Counters, Drops, EndpointStats, RttHistogram};
use crate::time::{Duration, Instant};
use crate::wire::{Flags, Header, RequestNumber, ServerTime};
use trine_canary as canary;

/// Why packets are retransmitted.
#[derive(Copy, Clone, Debug, Eq, PartialEq)]
enum Cause {
    /// An answer has come that only a later packet can have caused.
    Gap,
    /// Nothing has come in time.
    Timeout,
}

/// The result of a slot's scan.
pub(crate) enum SlotScan {
    /// There is no such slot.
    End,
    /// Nothing is due.
    Quiet,
    /// The request's deadline has passed.
    Expired(Ended),
    /// A probe with this header must be sent.
    Probe(Header),
    /// Nothing came since `sent_at`, and the session has this timeout.
    TimedOut { sent_at: Instant, rto: Duration },
}

impl ClientEnd {
    /// The request in flight that a server's packet answers; counts a packet that answers none.
    pub(super) fn answered_request(&self, number: RequestNumber, drops: &mut Drops) -> Option<u32> {
        let Some(slot) = self.slots.get(number.slot()) else {
            drops.bad_number += 1;
            return None;
        };
        let is_of_slot =
            slot.sequence == number.sequence() || canary::planted("response to a reused slot");
        if is_of_slot && slot.request != NO_REQUEST {
            return Some(slot.request);
        }
        if number.sequence() <= slot.sequence {
            drops.past += 1;
        } else {
            drops.bad_number += 1;
        }
        None
    }

    /// Packets below `answered` are answered: credits return, the timer starts again. The caller lists the session if
    /// it can send now.
    pub(super) fn progress(
        &mut self,
        now: Instant,
        index: u32,
        answered: u32,
        requests: &mut Requests,
    ) {
        let request = &mut requests.table[index];
        self.credits.held -= u16::from(request.send.is_busy());
        self.credits.left += request.send.on_answered(answered, now + self.rtt.rto(0));
        if canary::planted("credits off by one") {
            self.credits.left += 1;
        }
        if request.send.has_more_to_send() {
            self.slots.set_sendable(request.slot);
        }
    }

    /// The same. Notes the new timer too, which a back-off had set further ahead, and lists the session.
    pub(super) fn on_progress(
        &mut self,
        now: Instant,
        index: u32,
        answered: u32,
        requests: &mut Requests,
    ) {
        self.progress(now, index, answered, requests);
        let (due, session) = (requests.table[index].send.due(), requests.session_of(index));
        requests.table.watch_at(index, due);
        self.mark_ready(session, requests);
    }

    /// Takes an RTT sample from the answer to a packet, before the progress that it brings. No
    /// sample if it is not known when the packet was sent, or how long the server took. The timer covers the server's
    /// time where that is a `hold`: the answer waited for the server's processor, and for no handler.
    #[inline(always)]
    #[allow(clippy::too_many_arguments)] // a struct of them costs instructions
    pub(super) fn sample_rtt(
        &mut self,
        now: Instant,
        arrived_at: Instant,
        sent_at: Option<Instant>,
        server_time: ServerTime,
        is_hold: bool,
        is_marked: bool,
        rtts: &mut RttHistogram,
    ) -> bool {
        if let (Some(sent_at), Some(server_time)) = (sent_at, server_time.to_duration()) {
            let elapsed = now.saturating_since(sent_at);
            if server_time >= elapsed {
                // The server's clock was read before the packet arrived, or ours before the answer did: a poll of a
                // thread that lost its processor in between. The difference is no round-trip time.
                return false;
            }
            let rtt = match is_hold {
                true => elapsed,
                false => elapsed.saturating_sub(server_time),
            };
            self.rtt.on_sample(rtt);
            // The waits for a processor at both ends are no queue of the network.
            let network = arrived_at
                .saturating_since(sent_at)
                .saturating_sub(server_time);
            if network > Duration::ZERO
                && self.congestion.on_sample(now, sent_at, network, is_marked)
            {
                self.credits.reserve = self.congestion.reserve();
            }
            rtts.record(rtt);
            return true;
        }
        false
    }

    /// Takes the wait for a response into account, before the progress that it brings.
    pub(super) fn measure_wait(
        &mut self,
        now: Instant,
        index: u32,
        round: u8,
        requests: &Requests,
    ) {
        match requests.table[index].send.answered_transmission(round) {
            Some(Transmission::First(sent_at)) => {
                self.rtt.on_waited(now, now.saturating_since(sent_at));
            }
            Some(Transmission::Again(sent_at)) => {
                self.rtt.on_loss(now);
                self.rtt.on_waited(now, now.saturating_since(sent_at));
            }
            Some(Transmission::TakenForLost(sent_at)) => {
                self.rtt
                    .on_spurious_timeout(now, now.saturating_since(sent_at));
            }
            None => {}
        }
    }

    /// The same for the answer to packet `number`. False if there was no sample to take.
    pub(super) fn sample_answer(
        &mut self,
        rx: &Received<'_>,
        index: u32,
        number: u32,
        requests: &Requests,
        rtts: &mut RttHistogram,
    ) -> bool {
        let header = &rx.packet.header;
        let send = &requests.table[index].send;
        let sent_at = send.stamp_of(number, header.flags.round(), rx.terms.credits);
        // The wait for a handler is measured where its response comes: `measure_wait`.
        let is_hold = number != send.last_request_packet();
        let is_marked = rx.ecn || header.flags.has(Flags::ECN_ECHO);
        self.sample_rtt(
            rx.now,
            rx.arrived_at,
            sent_at,
            header.server_time,
            is_hold,
            is_marked,
            rtts,
        )
    }

    /// An answer has come that proves a loss in this round. The first few such proofs in a row are acted on at once. If
    /// none of the rounds in between brought any progress, the packet is not lost by chance, and the timer, which
    /// doubles, sets the pace.
    pub(super) fn on_gap(
        &mut self,
        now: Instant,
        index: u32,
        requests: &mut Requests,
        stats: &mut EndpointStats,
    ) {
        if requests.table[index].send.on_gap() {
            self.roll_back(now, index, Cause::Gap, requests, stats);
        }
    }

    /// Goes back to the first unanswered packet. The credits of the packets after it return.
    fn roll_back(
        &mut self,
        now: Instant,
        index: u32,
        cause: Cause,
        requests: &mut Requests,
        stats: &mut EndpointStats,
    ) {
        let request = &mut requests.table[index];
        let waits_for_handler = request.send.waits_for_handler();
        self.credits.left += request.send.roll_back();
        self.slots.set_sendable(request.slot);
        match cause {
            Cause::Gap => {
                stats.gaps += 1;
                self.congestion.on_gap(now);
            }
            Cause::Timeout => {
                stats.timeouts += 1;
                request.send.on_timeout(now);
                let sent_at = request.send.sent_at();
                self.rtt.on_timeout(now, sent_at);
                if !waits_for_handler {
                    self.congestion.on_timeout(now, sent_at);
                }
            }
        }
        self.credits.reserve = self.congestion.reserve();
        let session = request.session;
        self.mark_ready(session, requests);
    }

    /// Since when the peer has said nothing of a request of which a full packet may be what gets lost, although it was
    /// asked several times. `None` if nothing hints at that.
    pub(crate) fn stuck_since(
        &self,
        slot: u8,
        terms: &Terms,
        requests: &Requests,
    ) -> Option<Instant> {
        let index = self.slots.get(slot)?.request;
        if index == NO_REQUEST {
            return None;
        }
        let request = &requests.table[index];
        let timeouts = match request.next_awaited(terms) {
            Awaited::Full => BLACK_HOLE_TIMEOUTS,
            Awaited::PerhapsFull => BLACK_HOLE_TIMEOUTS_UNSURE,
            Awaited::Short => return None,
        };
        request.send.unheard_since(timeouts)
    }

    /// Scans one slot for a deadline that has passed, lost packets, and a probe of a busy request that is due.
    pub(crate) fn scan_slot<R: Route>(
        &mut self,
        now: Instant,
        slot: u8,
        to: &SessionPeer<R>,
        probe_interval_max: Duration,
        requests: &mut Requests,
        counters: &mut Counters,
    ) -> SlotScan {
        let Some(index) = self.slots.get(slot).map(|slot| slot.request) else {
            return SlotScan::End;
        };
        if index == NO_REQUEST {
            return SlotScan::Quiet;
        }
        let request = &requests.table[index];
        if request.has_expired(now) {
            return SlotScan::Expired(Ended {
                index,
                result: Err(RpcError::DeadlineExceeded),
            });
        }
        if request.send.due() > now {
            return SlotScan::Quiet;
        }
        if request.send.is_busy() {
            counters.stats.probes_sent += 1;
            return SlotScan::Probe(self.probe_busy(now, index, to, probe_interval_max, requests));
        }
        let (sent_at, rto) = (request.send.sent_at(), self.rtt.rto(0));
        self.roll_back(now, index, Cause::Timeout, requests, &mut counters.stats);
        SlotScan::TimedOut { sent_at, rto }
    }
}
