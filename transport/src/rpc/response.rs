//! RESPONSE: a part of a response, received by the client end.

use std::ops::Range;

use super::{ClientRequest, Received};
use crate::app::App;
use crate::backend::Route;
use crate::endpoint::Endpoint;
use crate::exchange::RpcError;
use crate::session::Terms;
use crate::wire::Packet;

impl<R: Route> Endpoint<R> {
    /// The first packet returns the credits of the whole request, each later one that of its
    /// request-for-response.
    pub(crate) fn on_response(&mut self, rx: &Received<'_>, app: &mut impl App<R>) {
        let Some(index) = self.answered_request(rx) else {
            return;
        };
        let header = &rx.packet.header;
        let session = &mut self.sessions[rx.session];
        let terms = session.terms;
        let Some(client) = session.client() else {
            return;
        };
        let (number, bytes) = (
            u32::from(header.packet_number),
            header.message_bytes as usize,
        );
        let range = terms.data_range(bytes, number);
        let request = &mut self.requests[index];
        let place = request.request_packets - 1 + number;
        if number >= terms.packets(bytes)
            || range.len() != rx.packet.payload.len()
            || place >= request.sent_max
        {
            self.stats.drops.bad_number += 1;
            return;
        }
        if place < request.answered {
            self.stats.drops.past += 1;
            return;
        }
        if number > 0 && place > request.answered {
            self.stats.drops.reordered += 1;
            let is_this_round = header.flags.round() == request.round & 0x0f;
            if is_this_round && request.response_packets > 0 {
                self.on_gap(rx.now, index);
            }
            return;
        }
        if !take_data(request, rx.packet, &terms, range) {
            return self.complete(rx.now, index, Err(RpcError::ResponseTooLarge), app);
        }
        client.sample_answer(rx, request, place, &mut self.rtts);
        client.progress(rx.now, request, place + 1);
        session.prove_alive(rx.now);
        let (is_whole, due) = (request.answered == request.packets(), request.due);
        if is_whole {
            self.complete(rx.now, index, Ok(()), app);
        } else {
            self.requests.watch(index, due);
            self.mark_ready(rx.session);
        }
    }
}

/// Copies a packet's data to its place. False if the response does not fit its buffer, or if its
/// size is not what the first packet said.
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
        request.response_packets = terms.packets(bytes);
    } else if response.len() != bytes {
        return false;
    }
    response[range].copy_from_slice(packet.payload);
    true
}
