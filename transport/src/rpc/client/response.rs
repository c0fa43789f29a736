//! RESPONSE: a part of a response, received by the client end.

use std::ops::Range;

use super::request::{ClientRequest, NO_REQUEST};
use super::{ClientEnd, Ended, Finished, Requests, ResponseEffect};
use crate::backend::Route;
use crate::exchange::RpcError;
use crate::session::peer::{Received, SessionPeer};
use crate::session::terms::Terms;
use crate::stats::Counters;
use crate::time::Instant;
use crate::wire::{Flags, HEADER_BYTES, Packet, SinglePacket};

impl ClientEnd {
    /// The fast path: the request of one packet, sent once, that this packet answers. `None` if the packet must go the
    /// general way.
    #[inline(always)]
    pub(crate) fn single_answered<R: Route>(
        &self,
        packet: &SinglePacket<'_>,
        from: &SessionPeer<R>,
        requests: &Requests,
    ) -> Option<u32> {
        let number = packet.header.request();
        let slot = self.slots.get(number.slot())?;
        if slot.sequence != number.sequence() || slot.request == NO_REQUEST {
            return None;
        }
        let request = &requests.table[slot.request];
        let is_single = request.send.is_single_in_flight();
        let capacity = request.buffers.as_ref()?.response.capacity();
        let fits = packet.payload.len() <= from.terms.data_bytes().min(capacity);
        (is_single && fits && packet.verify(from.seed)).then_some(slot.request)
    }

    /// Takes the answer to that request, which ends with it.
    #[inline(always)]
    #[allow(clippy::too_many_arguments)] // a struct of them costs 30 instructions
    pub(crate) fn on_single_response<R: Route>(
        &mut self,
        now: Instant,
        packet: &SinglePacket<'_>,
        ecn: bool,
        index: u32,
        from: &SessionPeer<R>,
        requests: &mut Requests,
        counters: &mut Counters,
    ) -> Finished {
        let request = &mut requests.table[index];
        let mut buffers = request.buffers.take().expect("seen by the caller");
        buffers.response.resize(packet.payload.len());
        buffers.response.copy_from_slice(packet.payload);
        let is_marked = ecn || packet.header.flags().has(Flags::ECN_ECHO);
        let sent_at = request.send.stamp_of_single(packet.header.flags().round());
        self.sample_rtt(
            now,
            now,
            sent_at,
            packet.header.server_time(),
            false,
            is_marked,
            &mut counters.rtts,
        );
        if let Some(sent_at) = sent_at {
            self.rtt.on_waited(now, now.saturating_since(sent_at));
        }
        self.charge_first_response(now, packet.payload.len());
        self.completed += 1;
        counters.stats.requests_completed += 1;
        let tag = request.tag;
        // It has one packet, which is answered now.
        self.leave_slot(packet.header.request().slot(), 1, false);
        requests.table.release(index);
        if self.queue.is_empty() {
            self.mark_ready(from.index, requests);
        } else {
            self.start_queued(from.index, &from.terms, requests);
        }
        Finished {
            tag,
            completion: buffers.into_completion(Ok(())),
            // Sent once, and answered: nothing refers to it.
            after_epoch: 0,
        }
    }

    /// The request was paced without its first response packet, which has these bytes of data.
    #[inline(always)]
    fn charge_first_response(&mut self, now: Instant, data_bytes: usize) {
        if let Some(rate) = self.congestion.pacing_rate() {
            self.pacer.on_answered(now, HEADER_BYTES + data_bytes, rate);
        }
    }

    /// The first packet returns the credits of the whole request, each later one that of its
    /// request-for-response.
    pub(crate) fn on_response(
        &mut self,
        rx: &Received<'_>,
        requests: &mut Requests,
        counters: &mut Counters,
    ) -> ResponseEffect {
        let header = &rx.packet.header;
        let Counters { stats, rtts } = counters;
        let Some(index) = self.answered_request(header.request, &mut stats.drops) else {
            return ResponseEffect::NOTHING;
        };
        let number = u32::from(header.packet_number);
        let bytes = header.message_bytes as usize;
        let range = rx.terms.data_range(bytes, number);
        let request = &mut requests.table[index];
        // The first response packet answers the last request packet.
        let position = request.send.last_request_packet() + number;
        if number >= rx.terms.packets(bytes)
            || range.len() != rx.packet.payload.len()
            || !request.send.has_sent(position)
        {
            stats.drops.bad_number += 1;
            return ResponseEffect::NOTHING;
        }
        if position < request.send.answered() {
            stats.drops.past += 1;
            return ResponseEffect::NOTHING;
        }
        if number > 0 && position > request.send.answered() {
            stats.drops.reordered += 1;
            let is_this_round = request.send.is_this_round(header.flags.round());
            if is_this_round && request.send.has_response() {
                self.on_gap(rx.now, index, requests, stats);
            }
            return ResponseEffect::NOTHING;
        }
        if !take_data(request, rx.packet, &rx.terms, range) {
            return ResponseEffect {
                is_progress: false,
                ended: Some(Ended {
                    index,
                    result: Err(RpcError::ResponseTooLarge { bytes }),
                }),
            };
        }
        self.sample_answer(rx, index, position, requests, rtts);
        if number == 0 {
            self.measure_wait(rx.now, index, header.flags.round(), requests);
            self.charge_first_response(rx.now, rx.packet.payload.len());
        }
        self.progress(rx.now, index, position + 1, requests);
        let send = &requests.table[index].send;
        if send.is_complete() {
            let result = Ok(());
            return ResponseEffect {
                is_progress: true,
                ended: Some(Ended { index, result }),
            };
        }
        let due = send.due();
        requests.table.watch_at(index, due);
        self.mark_ready(rx.session.index, requests);
        ResponseEffect::PROGRESS
    }
}

/// Copies a packet's data to its position. False if the response does not fit its buffer, or if its
/// size differs from the first packet's.
#[inline]
fn take_data(
    request: &mut ClientRequest,
    packet: &Packet<'_>,
    terms: &Terms,
    range: Range<usize>,
) -> bool {
    let Some(buffers) = &mut request.buffers else {
        unreachable!("a request in a slot has its buffers")
    };
    let (response, bytes) = (&mut buffers.response, packet.header.message_bytes as usize);
    if packet.header.packet_number == 0 {
        if bytes > response.capacity() {
            return false;
        }
        response.resize(bytes);
        request.send.set_response_packets(terms.packets(bytes));
    } else if response.len() != bytes {
        return false;
    }
    response[range].copy_from_slice(packet.payload);
    true
}
