//! CREDIT RETURN: request packets have arrived; with the GAP flag: one is missing.

use super::Received;
use crate::backend::Route;
use crate::endpoint::Endpoint;
use crate::wire::Flags;

impl<R: Route> Endpoint<R> {
    /// Credit returns are cumulative: a lost one is made up by the next.
    pub(crate) fn on_credit_return(&mut self, rx: &Received<'_>) {
        let Some(index) = self.answered_request(rx) else {
            return;
        };
        let header = &rx.packet.header;
        let number = u32::from(header.packet_number);
        let is_gap = header.flags.has(Flags::GAP);
        let answered = if is_gap { number } else { number + 1 };
        let request = &self.requests[index];
        // The last request packet is answered by the response.
        if answered >= request.request_packets || answered > request.sent_max {
            self.stats.drops.bad_number += 1;
            return;
        }
        if answered > request.answered {
            if let Some(client) = self.sessions[rx.session].client()
                && !is_gap
            {
                client.sample_answer(rx, request, number, &mut self.rtts);
            }
            self.on_progress(rx.now, index, answered);
        } else if !is_gap {
            self.stats.drops.past += 1;
        }
        let request = &self.requests[index];
        let is_this_round = header.flags.round() == request.round & 0x0f;
        if is_gap && is_this_round && answered == request.answered && request.sent > answered {
            self.on_gap(rx.now, index);
        }
    }
}
