//! Memory that a server end holds for its client, and when it takes it back.
//!
//! A request half received and a response of several packets stay until the client goes on. A client that does not, and
//! yet answers PINGs, would hold them for ever. So each slot is scanned once in a hold timeout, and given up at the
//! second scan that finds no progress. The client has then had between one and two timeouts. Any packet is progress, so
//! that a slow client keeps its session, unless others want the memory: then a request must grow by a part of its size.
//! A client that still goes on with a request that is given up loses its session, because the data is gone. So does one
//! that starts request after request and finishes none.

use super::slot::{MOVED, ServerSlot, ServerSlotState};
use super::{Responses, ServerEnd};
use crate::config::{HOLD_PARTS, HOLD_STRIKES_MAX};
use crate::rpc::Memory;
use crate::rpc::budget::Account;
use crate::session::terms::Terms;
use crate::stats::EndpointStats;
use crate::time::{Duration, Instant};

impl ServerSlot {
    fn holds_response(&self, data_bytes: usize) -> bool {
        let response = self.response.as_ref();
        response.is_some_and(|response| response.len() > data_bytes)
    }

    /// A client begins a request again instead of finishing it. True if it should have finished by now: then the new one
    /// has no more time than the one before it.
    pub(super) fn begin_again(&mut self, before: u32) -> bool {
        let was_scanned = before != MOVED;
        if was_scanned {
            self.seen_at_scan = 0;
        }
        was_scanned
    }

    /// Whether the client has gone on since the last scan; remembers for the next.
    fn went_on(&mut self, is_memory_short: bool) -> bool {
        let before = self.seen_at_scan;
        self.seen_at_scan = self.received;
        if before == MOVED {
            return true;
        }
        // A packet now and then must not hold for hours the memory that others want.
        let least = match is_memory_short {
            true => (self.request_packets / HOLD_PARTS).max(1),
            false => 1,
        };
        self.assembly.is_some() && self.received >= before.saturating_add(least)
    }

    /// Takes back the slot's memory. True if that was a request.
    fn take_back(
        &mut self,
        account: Account,
        number: u8,
        memory: &mut Memory,
        stats: &mut EndpointStats,
    ) -> bool {
        self.state = ServerSlotState::GivenUp;
        self.uncount_response(account, number, memory);
        let assembly = self.end_assembly(account, number, memory);
        let response = self.response.take();
        stats.requests_abandoned += u64::from(assembly.is_some());
        stats.responses_released += u64::from(response.is_some());
        memory.retire(response, memory.epoch());
        assembly.is_some()
    }
}

impl ServerEnd {
    /// Memory is held for this session from now on. Returns when it must be scanned, if that is new.
    pub(super) fn hold(&mut self, now: Instant, hold_timeout: Duration) -> Option<Instant> {
        let is_new = self.scan_at == Instant::FAR_FUTURE;
        if is_new {
            self.scan_at = now + hold_timeout;
        }
        is_new.then_some(self.scan_at)
    }

    /// Scans the slots' memory, if that is due. True if the client has abandoned too many requests.
    pub(crate) fn scan_holds(
        &mut self,
        now: Instant,
        terms: &Terms,
        memory: &mut Memory,
        responses: &Responses,
        stats: &mut EndpointStats,
    ) -> bool {
        if self.scan_at > now {
            return false;
        }
        let due = now + responses.hold_timeout;
        if self.scan_at + responses.hold_timeout / 2 <= now {
            // This process was paused: not the client's fault.
            self.scan_at = due;
            return false;
        }
        let account = self.account;
        let is_memory_short = memory.requests.is_short(account.holder, now);
        let data_bytes = terms.data_bytes();
        let mut is_holding = false;
        for (number, slot) in (0..).zip(&mut self.slots) {
            if slot.assembly.is_none() && !slot.holds_response(data_bytes) {
                continue;
            }
            if slot.went_on(is_memory_short) {
                is_holding = true;
            } else if slot.take_back(account, number, memory, stats) {
                self.strikes = self.strikes.saturating_add(1);
            }
        }
        self.scan_at = if is_holding { due } else { Instant::FAR_FUTURE };
        self.strikes > HOLD_STRIKES_MAX
    }
}
