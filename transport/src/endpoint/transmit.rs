//! Sends packets in this order: packets that are already written, control packets, answers, requests.

use super::{Endpoint, Transmit};
use crate::backend::{Route, TxBatch};
use crate::time::{Clock, Instant};

impl<R: Route> Endpoint<R> {
    /// Fills `tx` with packets to send, all stamped with `now`. The rest comes with the next call.
    pub fn poll_transmit(&mut self, now: Instant, tx: &mut TxBatch<R>) -> Transmit {
        self.poll_transmit_by(&now, tx)
    }

    /// As [`Endpoint::poll_transmit`], reading the clock for each packet instead of one for all (the paper's
    /// section 5.2.2 without batched timestamps).
    pub fn poll_transmit_by(&mut self, clock: &impl Clock, tx: &mut TxBatch<R>) -> Transmit {
        let before = tx.len();
        self.memory.begin_epoch();
        let count = if self.sessions.has_keys() {
            self.control.transmit(tx);
            let count = tx.len() - before;
            count + self.transmit_sealed(clock, tx)
        } else {
            self.fast_path.transmit(tx);
            self.control.transmit(tx);
            self.transmit_messages(clock, tx);
            tx.len() - before
        };
        self.counters.stats.packets_sent += count as u64;
        let flush_first = self.requests.need_flush(&self.memory) || self.memory.needs_flush();
        Transmit { count, flush_first }
    }

    /// Answers and requests.
    pub(super) fn transmit_messages(&mut self, clock: &impl Clock, tx: &mut TxBatch<R>) {
        self.transmit_answers(clock, tx);
        self.requests.release_departures(clock.now());
        self.transmit_requests(clock, tx);
    }

    /// The server ends' answers, in the order of the packets that they answer.
    fn transmit_answers(&mut self, clock: &impl Clock, tx: &mut TxBatch<R>) {
        let epoch = self.memory.epoch();
        while !tx.is_full() {
            let Some(answer) = self.responses.next() else {
                return;
            };
            let index = answer.session.index;
            let rest = self
                .sessions
                .established(answer.session)
                .and_then(|session| {
                    let (to, stats) = (session.peer_of(index), &mut self.counters.stats);
                    let server = session.server()?;
                    server.transmit(clock, &to, &answer, epoch, stats, tx)
                });
            // A rest is left when the batch is full in the middle of a range.
            self.responses.on_sent(rest);
        }
    }

    /// The client ends' packets, a session at a time.
    fn transmit_requests(&mut self, clock: &impl Clock, tx: &mut TxBatch<R>) {
        let epoch = self.memory.epoch();
        while !tx.is_full() {
            let Some(index) = self.requests.pop_ready() else {
                return;
            };
            let session = self.sessions.entry(index);
            let to = session.peer_of(index);
            if let Some(client) = session.client() {
                let (requests, stats) = (&mut self.requests, &mut self.counters.stats);
                client.transmit(clock, &to, epoch, requests, stats, tx);
            }
        }
    }

    /// The backend has flushed: nothing handed out before the last `poll_transmit` is referred to.
    pub fn on_tx_flushed(&mut self) {
        self.memory.on_flushed();
    }

    /// To be called in front of a sleep. [`Endpoint::next_timeout`] may be early, because packets do not move timers that they
    /// make later; now it is less often.
    pub fn settle_timers(&mut self, now: Instant) {
        self.sessions.settle_timers(now, &self.counters.stats);
    }

    /// When `on_timeout` and `poll_transmit` must be called at the latest; a moment in the past
    /// means at once.
    #[must_use]
    pub fn next_timeout(&self) -> Option<Instant> {
        let has_work = self.requests.have_work()
            || !self.responses.is_empty()
            || !self.fast_path.is_empty()
            || !self.control.is_empty()
            || self.memory.has_retired()
            || self.sessions.have_events();
        if has_work {
            return Some(Instant::ZERO);
        }
        let timers = [
            self.sessions.next_timer(),
            self.requests.next_departure(),
            self.memory.next_look(),
        ];
        let due = self.requests.next_due();
        let due = (due != Instant::FAR_FUTURE).then_some(due);
        timers.into_iter().flatten().chain(due).min()
    }
}
