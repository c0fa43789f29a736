//! What a server end's slots hold is counted for its holder: from where a message of several packets begins to be held
//! to where it goes.

use super::slot::{Counted, ServerSlot, ServerSlotState};
use super::{Responses, ServerEnd};
use crate::buf::MsgBuf;
use crate::rpc::Memory;
use crate::rpc::budget::{Account, Admission, HeldMessage, SlotId};
use crate::stats::EndpointStats;
use crate::time::Instant;

/// The answer to a request that wants memory.
pub(super) enum Room {
    Here,
    /// When this place has given its memory up.
    After(SlotId),
    None,
}

impl ServerSlot {
    fn piece(&self, account: Account, slot: u8, bytes: usize) -> HeldMessage {
        let Account { holder, session } = account;
        HeldMessage {
            holder,
            place: SlotId { session, slot },
            since: self.since,
            bytes,
        }
    }

    /// Takes memory for a request of several packets.
    pub(super) fn begin_assembly(
        &mut self,
        now: Instant,
        account: Account,
        number: u8,
        memory: &mut Memory,
        responses: &Responses,
    ) -> Room {
        let bytes = self.message_bytes as usize;
        self.since = self.since.min(now);
        let piece = self.piece(account, number, bytes);
        match memory.requests.ask(now, &piece) {
            Admission::Granted => {}
            Admission::After(place) => return Room::After(place),
            Admission::OverShare => return Room::None,
            Admission::Full => {
                let lasts = responses.hold_timeout * 2;
                memory.requests.note_shortage(account.holder, now, lasts);
                return Room::None;
            }
        }
        self.assembly = memory.pool().alloc(bytes);
        if self.assembly.is_none() {
            memory.requests.remove(&piece);
            return Room::None;
        }
        self.counted = Counted::Request;
        Room::Here
    }

    /// The request's memory is not that of a request any more.
    pub(super) fn end_assembly(
        &mut self,
        account: Account,
        number: u8,
        memory: &mut Memory,
    ) -> Option<MsgBuf> {
        let assembly = self.assembly.take()?;
        memory
            .requests
            .remove(&self.piece(account, number, assembly.len()));
        self.counted = Counted::Nothing;
        Some(assembly)
    }

    /// The response, which is held from now on, has several packets.
    pub(super) fn count_response(
        &mut self,
        now: Instant,
        account: Account,
        number: u8,
        memory: &mut Memory,
    ) {
        self.since = now;
        self.counted = Counted::Response;
        let bytes = self.response.as_ref().map_or(0, |response| response.len());
        memory.responses.add(&self.piece(account, number, bytes));
    }

    /// The slot's response goes.
    pub(super) fn uncount_response(&mut self, account: Account, number: u8, memory: &mut Memory) {
        if self.counted != Counted::Response {
            return;
        }
        let bytes = self.response.as_ref().map_or(0, |response| response.len());
        memory.responses.remove(&self.piece(account, number, bytes));
        self.counted = Counted::Nothing;
    }
}

impl ServerEnd {
    /// Gives up what a slot holds, for another holder.
    pub(crate) fn give_way(&mut self, slot: u8, memory: &mut Memory, stats: &mut EndpointStats) {
        let number = slot;
        let slot = &mut self.slots[usize::from(number)];
        let assembly = slot.end_assembly(self.account, number, memory);
        slot.uncount_response(self.account, number, memory);
        stats.requests_gave_way += u64::from(assembly.is_some());
        let response = slot.response.take();
        stats.responses_gave_way += u64::from(response.is_some());
        memory.retire(response, memory.epoch());
        slot.state = ServerSlotState::GaveWay;
    }

    /// The slot whose response must go since this session's holder had another one.
    pub(crate) fn must_go(&self, memory: &Memory) -> Option<SlotId> {
        memory.responses.must_go(self.account.holder)
    }
}
