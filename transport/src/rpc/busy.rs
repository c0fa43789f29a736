//! BUSY: the request has arrived and its handler runs. Its data is not sent again; slow probes ask
//! for the response in case that gets lost.

use super::Received;
use crate::backend::Route;
use crate::endpoint::Endpoint;

impl<R: Route> Endpoint<R> {
    pub(crate) fn on_busy(&mut self, rx: &Received<'_>) {
        let Some(index) = self.answered_request(rx) else {
            return;
        };
        let request = &mut self.requests[index];
        if request.sent_max < request.request_packets || request.response_packets > 0 {
            // It was never sent completely, or is answered already.
            self.stats.drops.wrong_state += 1;
            return;
        }
        self.stats.busy_received += 1;
        if request.answered + 1 < request.request_packets {
            // All of it has arrived; only the response is missing.
            let answered = request.request_packets - 1;
            self.on_progress(rx.now, index, answered);
        }
        let request = &mut self.requests[index];
        let probe_max = self.config.probe_interval_max;
        let Some(client) = self.sessions[request.session].client() else {
            return;
        };
        // A rollback may have begun: what was to be sent again has arrived.
        client.sendable &= !(1 << request.slot);
        request.is_busy = true;
        request.due = rx.now + client.rtt.rto(request.attempts).min(probe_max);
        let due = request.due;
        self.requests.watch(index, due);
    }
}
