//! Sessions as a program opens and closes them, and the timers that run in all of them.

use super::Endpoint;
use crate::app::App;
use crate::backend::Route;
use crate::rpc::SlotScan;
use crate::session::{
    Closed, ConnectParams, ConnectRefused, ControlOutput, DownReason, Ended, Role, SessionId, Timer,
};
use crate::time::Instant;

impl<R: Route> Endpoint<R> {
    /// Starts to make a session with the endpoint at `route`. The result arrives as an event;
    /// requests may be enqueued at once and wait for it.
    pub fn connect(
        &mut self,
        now: Instant,
        route: R,
        params: ConnectParams,
    ) -> Result<SessionId, ConnectRefused> {
        let out = &mut ControlOutput::new(&mut self.control, &mut self.counters.stats);
        self.sessions.connect(now, route, params, out)
    }

    /// Ends a session of either mode. Pending requests complete with an error: in the next `on_timeout`, or in
    /// a later one where the backend must flush first. `Down` is among the events at once, and so may come
    /// before them. The peer is told; nothing waits for its answer.
    pub fn disconnect(&mut self, now: Instant, session: SessionId) {
        self.close(now, session, DownReason::Disconnected);
    }

    /// As `disconnect`, for this reason.
    fn close(&mut self, now: Instant, id: SessionId, reason: DownReason) {
        let out = &mut ControlOutput::new(&mut self.control, &mut self.counters.stats);
        match self.sessions.close(now, id, reason, out) {
            Closed::Not => {}
            Closed::Ended(ended) => self.discard(Some(ended)),
            Closed::Closing => {
                let (memory, requests) = (&mut self.memory, &mut self.requests);
                match self.sessions.entry(id.index).role_mut() {
                    Role::Client(client) => {
                        client.fail_all(id.index, memory, requests, &mut self.counters.stats);
                    }
                    Role::Server(server) => server.give_up(memory),
                }
            }
        }
    }

    /// The peer broke the protocol, or goes on with a message that gave way.
    pub(super) fn end_for(&mut self, reason: DownReason, index: u16) {
        if reason != DownReason::GaveWay {
            return self.end_for_violation(index);
        }
        let out = &mut ControlOutput::new(&mut self.control, &mut self.counters.stats);
        let ended = self.sessions.give_way(index, out);
        self.discard(ended);
    }

    /// The peer broke the protocol.
    pub(super) fn end_for_violation(&mut self, index: u16) {
        let out = &mut ControlOutput::new(&mut self.control, &mut self.counters.stats);
        let ended = self.sessions.on_violation(index, out);
        self.discard(ended);
    }

    /// Gives up the requests and the memory of a session that is over.
    pub(super) fn discard(&mut self, ended: Option<Ended>) {
        let Some(Ended { index, role }) = ended else {
            return;
        };
        let (memory, requests) = (&mut self.memory, &mut self.requests);
        match role {
            Role::Client(mut client) => {
                client.fail_all(index, memory, requests, &mut self.counters.stats);
                requests.cancel_departure(index);
            }
            Role::Server(mut server) => server.give_up(memory),
        }
    }

    /// Runs the timers that are due, and the completions that wait for an application.
    pub fn on_timeout(&mut self, now: Instant, app: &mut impl App<R>) {
        while let Some(index) = self.sessions.pop_due(now) {
            self.on_session_timer(now, index, app);
        }
        if self.requests.next_scan() <= now {
            self.scan_requests(now, app);
        }
        self.memory.on_time(now);
        // Last, so that requests of a session that has just ended complete in this call, before an event loop
        // tells its `Down`. Those whose buffers wait for a flush complete after that.
        self.deliver_finished(now, app);
    }

    /// Handles the requests that are due, and with them the rest of their sessions. A loss
    /// is rare: the watch costs a common request no more than the note of a time.
    fn scan_requests(&mut self, now: Instant, app: &mut impl App<R>) {
        let mut from = 0;
        while let Some(request) = self.requests.pop_overdue(from, now) {
            let session = self.requests.session_of(request);
            self.on_session_timer(now, session, app);
            self.requests.watch(request);
            from = request + 1;
        }
    }

    /// The session's timer has fired.
    fn on_session_timer(&mut self, now: Instant, index: u16, app: &mut impl App<R>) {
        let Some(session) = self.sessions.at(index) else {
            return;
        };
        let id = session.id(index);
        let out = &mut ControlOutput::new(&mut self.control, &mut self.counters.stats);
        match self.sessions.on_timer(now, index, out) {
            Timer::Done => {}
            Timer::Established => self.scan_session(now, id, app),
            Timer::Ended(ended) => self.discard(Some(ended)),
        }
        self.expire_queued(now, id, app);
        self.sessions.set_timer(now, id, &self.counters.stats);
    }

    /// Scans the slots of an established session.
    fn scan_session(&mut self, now: Instant, id: SessionId, app: &mut impl App<R>) {
        let session = self.sessions.entry(id.index);
        let (terms, is_worn) = (session.terms(), session.has_worn_keys(now));
        match session.role_mut() {
            // Request numbers are finite: the caller gets new ones with a new session. Checked here and not with
            // each request, because they last.
            Role::Client(client) if is_worn || client.has_used_up_numbers() => {
                self.close(now, id, DownReason::NumbersUsedUp);
            }
            Role::Client(_) => self.scan_slots(now, id, app),
            Role::Server(_) if is_worn => self.close(now, id, DownReason::NumbersUsedUp),
            Role::Server(server) => {
                let (responses, stats) = (&self.responses, &mut self.counters.stats);
                if server.scan_holds(now, &terms, &mut self.memory, responses, stats) {
                    self.end_for_violation(id.index);
                }
            }
        }
    }

    /// Scans every slot of a client end: deadlines, lost packets, probes of busy requests.
    fn scan_slots(&mut self, now: Instant, id: SessionId, app: &mut impl App<R>) {
        for slot in 0.. {
            // A completion may end the session.
            let Some(session) = self.sessions.established(id) else {
                return;
            };
            let (to, probe_max) = (session.peer_of(id.index), self.config.probe_interval_max);
            let Role::Client(client) = session.role_mut() else {
                return;
            };
            let (requests, counters) = (&mut self.requests, &mut self.counters);
            let scanned = client.scan_slot(now, slot, &to, probe_max, requests, counters);
            match scanned {
                SlotScan::End => return,
                SlotScan::Quiet => {}
                SlotScan::Expired(ended) => self.complete(now, id.index, ended, app),
                SlotScan::Probe(_) | SlotScan::TimedOut { .. } if self.swallows(id, slot) => {
                    return self.on_black_hole(now, id);
                }
                SlotScan::Probe(header) => {
                    let probe = self.sessions.entry(id.index).control(&header, &[]);
                    self.control.push(probe, &mut self.counters.stats.drops);
                }
                SlotScan::TimedOut { sent_at, rto } => {
                    let out = &mut ControlOutput::new(&mut self.control, &mut self.counters.stats);
                    self.sessions
                        .ping_after_timeout(now, id.index, sent_at, rto, out);
                }
            }
        }
    }

    /// Whether the path seems to swallow the full packets of a slot's request: the peer is there, and says nothing of it.
    fn swallows(&self, id: SessionId, slot: u8) -> bool {
        let session = self.sessions.get(id);
        session.is_some_and(|session| match session.role() {
            Role::Client(client) => {
                let stuck = client.stuck_since(slot, &session.terms(), &self.requests);
                stuck.is_some_and(|since| session.heard_at() > since)
                    && self.sessions.rests_on_promise(id.index)
            }
            Role::Server(_) => false,
        })
    }

    /// The path swallows full packets, although it was said to carry them: the session ends, and the next one to this peer
    /// has smaller ones.
    fn on_black_hole(&mut self, now: Instant, id: SessionId) {
        self.counters.stats.black_holes += 1;
        self.sessions.on_black_hole(now, id.index);
        self.close(now, id, DownReason::BlackHole);
    }

    /// Ends queued requests whose deadline has passed.
    fn expire_queued(&mut self, now: Instant, id: SessionId, app: &mut impl App<R>) {
        if self.sessions.get(id).is_none() {
            return;
        }
        let Some(client) = self.sessions.entry(id.index).client() else {
            return;
        };
        let (requests, stats) = (&mut self.requests, &mut self.counters.stats);
        if client.expire_queued(now, &self.memory, requests, stats) {
            self.deliver_finished(now, app);
        }
    }
}
