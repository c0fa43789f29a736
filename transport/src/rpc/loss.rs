//! Loss and progress: go-back-N, its timer, and what counts as news (PROTOCOL.md section 5.4).
//!
//! Each rollback begins a new round of transmissions. Packets carry the round and answers repeat it,
//! so that an answer tells which transmission it belongs to: RTT samples are unambiguous (Karn), and
//! a gap in the answers to this round is a loss in this round, found before the timer fires.

use super::{ClientEnd, ClientRequest, NO_REQUEST, Received};
use crate::app::App;
use crate::backend::Route;
use crate::config::GAP_ROLLBACKS_MAX;
use crate::endpoint::Endpoint;
use crate::exchange::RpcError;
use crate::session::{Role, SessionId, State};
use crate::stats::RttHistogram;
use crate::time::Instant;
use crate::wire::{Flags, Header, Held, PacketType, RequestNumber};
use trine_canary as canary;

/// Why packets are sent again.
#[derive(Copy, Clone, Debug, Eq, PartialEq)]
enum Cause {
    /// An answer has come that only a later packet can have caused.
    Gap,
    /// Nothing has come in time.
    Timeout,
}

impl ClientEnd {
    /// Packets below `answered` are answered. The caller lists the session if it can send now.
    pub(crate) fn progress(&mut self, now: Instant, request: &mut ClientRequest, answered: u32) {
        let in_flight = request.in_flight();
        request.answered = answered;
        request.sent = request.sent.max(answered);
        request.sent_max = request.sent_max.max(answered);
        request.attempts = 0;
        request.gaps = 0;
        request.is_busy = false;
        self.credits += in_flight - request.in_flight();
        if canary::planted("credits off by one") {
            self.credits += 1;
        }
        request.due = if request.in_flight() > 0 {
            now + self.rtt.rto(0)
        } else {
            Instant::FAR_FUTURE
        };
        if request.has_more_to_send() {
            self.sendable |= 1 << request.slot;
        }
    }

    /// Takes an RTT sample from the answer to a packet, before the progress that it brings. No
    /// sample if it is not known when the packet was sent, or how long the server held it.
    #[inline(always)]
    pub(crate) fn sample_rtt(
        &mut self,
        now: Instant,
        sent_at: Option<Instant>,
        held: Held,
        is_marked: bool,
        rtts: &mut RttHistogram,
    ) {
        if let (Some(sent_at), Some(held)) = (sent_at, held.to_duration()) {
            let rtt = now.saturating_since(sent_at).saturating_sub(held);
            self.rtt.on_sample(rtt);
            self.congestion.on_sample(now, rtt, is_marked);
            rtts.record(rtt);
        }
    }

    /// The same for the answer to packet `number`.
    pub(crate) fn sample_answer(
        &mut self,
        rx: &Received<'_>,
        request: &ClientRequest,
        number: u32,
        rtts: &mut RttHistogram,
    ) {
        let header = &rx.packet.header;
        let sent_at = request.stamp_of(number, header.flags.round());
        let is_marked = rx.ecn || header.flags.has(Flags::ECN_ECHO);
        self.sample_rtt(rx.now, sent_at, header.held, is_marked, rtts);
    }
}

impl<R: Route> Endpoint<R> {
    /// Packets below `answered` are answered: credits return, the timer starts anew.
    pub(crate) fn on_progress(&mut self, now: Instant, index: u32, answered: u32) {
        let request = &mut self.requests[index];
        let session = request.session;
        let entry = &mut self.sessions[session];
        entry.prove_alive(now);
        if let Some(client) = entry.client() {
            client.progress(now, request, answered);
        }
        // After a back-off it is due sooner than it was.
        let due = request.due;
        self.requests.watch(index, due);
        self.mark_ready(session);
    }

    /// An answer has come that proves a loss in this round. The first few such proofs in a row are acted on at once;
    /// when none of the rounds in between brought any progress, the packet is not lost by chance, and the timer, which
    /// doubles, sets the pace.
    pub(crate) fn on_gap(&mut self, now: Instant, index: u32) {
        let request = &mut self.requests[index];
        if request.gaps < GAP_ROLLBACKS_MAX {
            request.gaps += 1;
            self.roll_back(now, index, Cause::Gap);
        }
    }

    /// Back to the first unanswered packet. The credits of what is given up return.
    fn roll_back(&mut self, now: Instant, index: u32, cause: Cause) {
        let request = &mut self.requests[index];
        let Some(client) = self.sessions[request.session].client() else {
            return;
        };
        client.credits += request.in_flight();
        client.sendable |= 1 << request.slot;
        request.sent = request.answered;
        if canary::planted("rollback forgets a packet") {
            request.sent = request.sent_max.min(request.answered + 1);
        }
        request.round = request.round.wrapping_add(1);
        // The timer starts with the next transmission.
        request.due = Instant::FAR_FUTURE;
        match cause {
            Cause::Gap => self.stats.gaps += 1,
            Cause::Timeout => {
                self.stats.timeouts += 1;
                request.attempts = request.attempts.saturating_add(1);
                client.rtt.on_timeout(now, request.sent_at);
            }
        }
        let session = request.session;
        self.mark_ready(session);
    }

    /// Looks at the requests whose time has come, and with them at the rest of their sessions. A loss
    /// is rare: what is watched costs a common request no more than the note of a time.
    pub(crate) fn check_requests(&mut self, now: Instant, app: &mut impl App<R>) {
        let mut from = 0;
        while let Some(index) = self.requests.pop_overdue(from, now) {
            let session = self.requests[index].session;
            self.on_session_timer(now, session, app);
            let due = self.requests[index].look_due();
            self.requests.watch(index, due);
            from = index + 1;
        }
    }

    /// Looks at every slot of a client end: deadlines, lost packets, probes of busy requests.
    pub(crate) fn check_slots(&mut self, now: Instant, id: SessionId, app: &mut impl App<R>) {
        for slot in 0.. {
            // A completion may end the session.
            let Some(session) = self
                .sessions
                .get(id)
                .filter(|session| session.state == State::Open)
            else {
                return;
            };
            let Role::Client(client) = &session.role else {
                return;
            };
            let Some(place) = client.slots.get(slot) else {
                return;
            };
            if place.request == NO_REQUEST {
                continue;
            }
            let request = &self.requests[place.request];
            let rto = client.rtt.rto(0);
            if request.deadline.is_some_and(|deadline| deadline <= now) {
                self.complete(now, place.request, Err(RpcError::DeadlineExceeded), app);
            } else if request.due <= now && request.is_busy {
                // Fits: a session has at most 64 slots.
                self.probe_busy(now, slot as u8, place.request, place.sequence);
            } else if request.due <= now {
                let (index, sent_at) = (place.request, request.sent_at);
                self.roll_back(now, index, Cause::Timeout);
                self.ping_after_timeout(now, id.index, sent_at, rto);
            }
        }
    }

    /// Asks for the first response packet of a request that executes. Costs no credit: the last
    /// request packet's is still in use.
    fn probe_busy(&mut self, now: Instant, slot: u8, index: u32, sequence: u64) {
        let request = &mut self.requests[index];
        let session = &mut self.sessions[request.session];
        let (route, seed, remote) = (session.route, session.seed, session.remote);
        let Some(client) = session.client() else {
            return;
        };
        request.attempts = request.attempts.saturating_add(1);
        request.due = now
            + client
                .rtt
                .rto(request.attempts)
                .min(self.config.probe_interval_max);
        let due = request.due;
        let header = Header {
            request: RequestNumber::new(slot, sequence),
            message_bytes: 1,
            flags: Flags::of_round(request.round),
            ..Header::new(PacketType::RequestForResponse, remote)
        };
        self.requests.watch(index, due);
        self.stats.probes_sent += 1;
        self.send_control(route, header, seed, None);
    }
}
