//! CREDIT RETURN: request packets have arrived; with the GAP flag: one is missing.

use super::{ClientEnd, Requests, ResponseEffect};
use crate::session::peer::Received;
use crate::stats::Counters;
use crate::wire::Flags;

impl ClientEnd {
    /// Credit returns are cumulative: a lost one is made up by the next.
    pub(crate) fn on_credit_return(
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
        let is_gap = header.flags.has(Flags::GAP);
        let answered = if is_gap { number } else { number + 1 };
        let send = &requests.table[index].send;
        if !send.can_be_credited(answered) {
            stats.drops.bad_number += 1;
            return ResponseEffect::NOTHING;
        }
        let is_progress = answered > send.answered();
        if is_progress {
            if !is_gap {
                let is_known = self.sample_answer(rx, index, number, requests, rtts);
                if let Some(at_server) = header.server_time.to_duration().filter(|_| is_known) {
                    let here = rx.now.saturating_since(rx.arrived_at);
                    self.congestion.on_host_wait(at_server + here);
                }
            }
            self.on_progress(rx.now, index, answered, requests);
        } else if !is_gap {
            stats.drops.past += 1;
        }
        let send = &requests.table[index].send;
        let is_this_round = send.is_this_round(header.flags.round());
        let is_next = answered == send.answered() && send.has_under_way(answered);
        if is_gap && is_this_round && is_next {
            self.on_gap(rx.now, index, requests, stats);
        }
        ResponseEffect {
            is_progress,
            ended: None,
        }
    }
}
