//! RESPONSE: a part of a response, received by the client end.

use super::Received;
use crate::app::{App, RpcError};
use crate::backend::Route;
use crate::endpoint::Endpoint;
use crate::rpc::loss::Cause;

impl<R: Route> Endpoint<R> {
    /// The first packet returns the credits of the whole request, each later one that of its
    /// request-for-response.
    pub(crate) fn on_response(&mut self, rx: &Received<'_>, app: &mut impl App<R>) {
        let Some(index) = self.answered_request(rx) else {
            return;
        };
        let header = &rx.packet.header;
        let terms = self.sessions[rx.session].terms;
        let (number, bytes) = (
            u32::from(header.packet_number),
            header.message_bytes as usize,
        );
        let range = terms.data_range(bytes, number);
        let request = &self.requests[index];
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
                self.roll_back(rx.now, index, Cause::Gap);
            }
            return;
        }
        if !self.take_response_data(rx, index, bytes, range) {
            return self.complete(rx.now, index, Err(RpcError::ResponseTooLarge), app);
        }
        self.sample_rtt(rx, index, place);
        self.on_progress(rx.now, index, place + 1);
        let request = &self.requests[index];
        if request.answered == request.packets() {
            self.complete(rx.now, index, Ok(()), app);
        }
    }

    /// Copies a packet's data to its place. False if the response does not fit its buffer.
    fn take_response_data(
        &mut self,
        rx: &Received<'_>,
        index: u32,
        bytes: usize,
        range: std::ops::Range<usize>,
    ) -> bool {
        let terms = self.sessions[rx.session].terms;
        let request = &mut self.requests[index];
        let Some(buffers) = &mut request.buffers else {
            unreachable!("a request in a slot has its buffers")
        };
        let response = &mut buffers.response;
        if rx.packet.header.packet_number == 0 {
            if bytes > response.capacity() {
                return false;
            }
            response.resize(bytes);
            request.response_packets = terms.packets(bytes);
        } else if response.len() != bytes {
            // The peer has changed its mind about the size.
            return false;
        }
        response[range].copy_from_slice(rx.packet.payload);
        true
    }
}
