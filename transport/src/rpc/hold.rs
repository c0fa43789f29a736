//! Memory that a server end holds for its client, and when it takes it back.
//!
//! A request half received and a response of several packets stay until the client goes on. A client
//! that does not, and yet answers PINGs, would hold them for ever. So each is looked at once in a
//! hold timeout, and given up at the second look that finds no progress: the client has had between
//! one and two timeouts. Any packet is progress, so that a slow client keeps its session, unless others
//! want the memory: then a request must grow by a part of its size. One that is given up and then still
//! goes on loses its session, because what it wants is gone; so does one that starts request after
//! request and finishes none.

use super::server_end::MOVED;
use super::{ServerEnd, ServerSlot, ServerSlotState};
use crate::backend::Route;
use crate::config::{HOLD_PARTS, HOLD_STRIKES_MAX};
use crate::endpoint::Endpoint;
use crate::session::{Role, State};
use crate::time::Instant;

impl ServerSlot {
    fn holds_response(&self, data_bytes: usize) -> bool {
        let response = self.response.as_ref();
        response.is_some_and(|response| response.len() > data_bytes)
    }

    /// Whether the client has gone on since the last look; remembers for the next.
    fn went_on(&mut self, is_memory_short: bool) -> bool {
        let before = self.seen_at_look;
        self.seen_at_look = self.received;
        if before == MOVED {
            return true;
        }
        // A packet now and then must not hold for hours what others want.
        let least = match is_memory_short {
            true => (self.request_packets / HOLD_PARTS).max(1),
            false => 1,
        };
        self.assembly.is_some() && self.received >= before.saturating_add(least)
    }
}

impl ServerEnd {
    /// When the next look is due.
    pub(crate) fn look_due(&self) -> Instant {
        self.look_at
    }
}

impl<R: Route> Endpoint<R> {
    /// Memory is held for this session from now on: it will be looked at.
    pub(crate) fn hold(&mut self, now: Instant, session: u16) {
        let due = now + self.config.hold_timeout;
        let Some(server) = self.sessions[session].server() else {
            return;
        };
        if server.look_at == Instant::FAR_FUTURE {
            server.look_at = due;
            self.timers.set_if_sooner(u32::from(session), due);
        }
    }

    /// Nothing is held for this session any more: there is nothing to look at.
    pub(crate) fn let_go(&mut self, session: u16) {
        if let Some(server) = self.sessions[session].server() {
            server.look_at = Instant::FAR_FUTURE;
        }
    }

    /// A request of several packets has arrived whole.
    pub(crate) fn finished_what_it_began(&mut self, session: u16) {
        if let Some(server) = self.sessions[session].server() {
            server.strikes = 0;
        }
    }

    /// Looks at what a server end holds. The session may end here.
    pub(crate) fn check_holds(&mut self, now: Instant, index: u16) {
        let data_bytes = self.sessions[index].terms.data_bytes();
        let is_open = self.sessions[index].state == State::Open;
        let Role::Server(server) = &mut self.sessions[index].role else {
            return;
        };
        if !is_open || server.look_at > now {
            return;
        }
        let due = now + self.config.hold_timeout;
        let is_memory_short = self.memory.is_short(now);
        if server.look_at + self.config.hold_timeout / 2 <= now {
            // This process was paused: not the client's fault.
            server.look_at = due;
            return;
        }
        let mut is_holding = false;
        for slot in 0..server.slots.len() {
            let Some(server) = self.sessions[index].server() else {
                return;
            };
            let slot = &mut server.slots[slot];
            if slot.assembly.is_none() && !slot.holds_response(data_bytes) {
                continue;
            }
            if slot.went_on(is_memory_short) {
                is_holding = true;
                continue;
            }
            slot.state = ServerSlotState::GivenUp;
            let (assembly, response) = (slot.assembly.take(), slot.response.take());
            server.strikes = server.strikes.saturating_add(u8::from(assembly.is_some()));
            self.memory.end_assembly(assembly.as_ref());
            self.stats.requests_abandoned += u64::from(assembly.is_some());
            self.stats.responses_released += u64::from(response.is_some());
            self.memory.retire(response, self.memory.epoch());
        }
        let Some(server) = self.sessions[index].server() else {
            return;
        };
        server.look_at = if is_holding { due } else { Instant::FAR_FUTURE };
        if server.strikes > HOLD_STRIKES_MAX {
            self.violation(index);
        }
    }
}
