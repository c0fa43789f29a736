//! BUSY: the request has arrived and its handler runs. Its data is not retransmitted; slow probes ask
//! for the response in case that gets lost.

use super::send_state::SendState;
use super::{ClientEnd, Requests, ResponseEffect};
use crate::config::{HELD_PROBE_MAX, HELD_PROBE_PART};
use crate::session::peer::Received;
use crate::session::rtt::Rtt;
use crate::stats::Counters;
use crate::time::{Duration, Instant};

impl ClientEnd {
    pub(crate) fn on_busy(
        &mut self,
        rx: &Received<'_>,
        probe_interval_max: Duration,
        requests: &mut Requests,
        counters: &mut Counters,
    ) -> ResponseEffect {
        let (number, stats) = (rx.packet.header.request, &mut counters.stats);
        let Some(index) = self.answered_request(number, &mut stats.drops) else {
            return ResponseEffect::NOTHING;
        };
        let send = &requests.table[index].send;
        if !send.was_sent_completely() || send.has_response() {
            // It was never sent completely, or is answered already.
            stats.drops.wrong_state += 1;
            return ResponseEffect::NOTHING;
        }
        stats.busy_received += 1;
        let answered = send.last_request_packet();
        // All of it has arrived; only the response is missing.
        let is_progress = send.answered() < answered;
        if is_progress {
            self.on_progress(rx.now, index, answered, requests);
        }
        let request = &mut requests.table[index];
        // A rollback may have begun: the packets that it would retransmit have arrived.
        self.slots.clear_sendable(request.slot);
        let due = rx.now + probe_interval(&self.rtt, &request.send, rx.now, probe_interval_max);
        self.credits.held += u16::from(!request.send.is_busy());
        request.send.on_busy(due);
        requests.table.watch_at(index, due);
        // Its credit does not count for the window any more.
        self.mark_ready(rx.session.index, requests);
        ResponseEffect {
            is_progress,
            ended: None,
        }
    }
}

/// How long until the next probe: the RTO, up to a bound, and longer once the request was held for long.
pub(super) fn probe_interval(
    rtt: &Rtt,
    send: &SendState,
    now: Instant,
    most: Duration,
) -> Duration {
    let held = now.saturating_since(send.sent_at());
    let of_held = Duration::from_nanos(held.as_nanos() / HELD_PROBE_PART).min(HELD_PROBE_MAX);
    rtt.rto(send.attempts()).min(most).max(of_held)
}
