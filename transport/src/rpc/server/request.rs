//! REQUEST: a part of a request, received by the server end. The handler runs when it is complete.

use std::cmp::Ordering;

use super::answers::ReplyKind;
use super::count::Room;
use super::slot::{Counted, MOVED, NewRequest, ServerSlotState};
use super::{RequestEffect, Responses, ServerEnd, Then};
use crate::backend::Route;
use crate::buf::MsgBuf;
use crate::rpc::Memory;
use crate::session::peer::{Received, SessionPeer};
use crate::session::terms::Terms;
use crate::stats::{Drops, EndpointStats};
use crate::time::{Duration, Instant};
use crate::wire::{Features, Packet, SinglePacket};
use trine_canary as canary;

/// A request that is complete.
pub(crate) struct Whole {
    pub(crate) kind: u8,
    pub(crate) deadline: Option<Instant>,
    /// Its data, unless that is all in the last packet.
    pub(crate) assembly: Option<MsgBuf>,
}

impl ServerEnd {
    /// The fast path: whether this is a new request of one packet. If not, the packet must go the general way.
    #[inline(always)]
    pub(crate) fn takes_single<R: Route>(
        &self,
        packet: &SinglePacket<'_>,
        from: &SessionPeer<R>,
        responses: &Responses,
    ) -> bool {
        let (number, bytes) = (packet.header.request(), packet.payload.len());
        let Some(slot) = self.slots.get(usize::from(number.slot())) else {
            return false;
        };
        number.sequence() > slot.sequence
            && slot.counted == Counted::Nothing
            && bytes <= from.terms.data_bytes().min(responses.message_bytes)
            && packet.verify(from.seed)
    }

    /// Takes that request, whose handler is to be called. Returns its deadline.
    #[inline(always)]
    pub(crate) fn on_single_request(
        &mut self,
        now: Instant,
        packet: &SinglePacket<'_>,
        ecn: bool,
        memory: &mut Memory,
    ) -> Option<Instant> {
        let slot = &mut self.slots[usize::from(packet.header.request().slot())];
        let new = NewRequest {
            number: packet.header.request(),
            flags: packet.header.flags(),
            kind: packet.header.kind(),
            message_bytes: packet.payload.len() as u32,
            packets: 1,
        };
        let deadline = deadline(now, packet.deadline_ns());
        let previous = slot.begin(&new, memory);
        slot.received = 1;
        slot.deadline = deadline;
        slot.execute(now, new.flags.round(), ecn);
        memory.retire(previous.response, previous.epoch);
        deadline
    }

    pub(crate) fn on_request(
        &mut self,
        rx: &Received<'_>,
        memory: &mut Memory,
        responses: &mut Responses,
        stats: &mut EndpointStats,
    ) -> RequestEffect {
        let (header, drops) = (&rx.packet.header, &mut stats.drops);
        let limit = responses.message_bytes;
        let Some(packets) = packets_if_sane(rx.packet, &rx.terms, limit) else {
            let is_too_large = header.message_bytes as usize > limit;
            drops.too_large += u64::from(is_too_large);
            drops.bad_number += u64::from(!is_too_large);
            return RequestEffect::VIOLATION;
        };
        let slot = &mut self.slots[usize::from(header.request.slot())];
        match header.request.sequence().cmp(&slot.sequence) {
            Ordering::Less => {
                drops.past += 1;
                return RequestEffect::NOTHING;
            }
            Ordering::Greater => {
                let new = NewRequest {
                    number: header.request,
                    flags: header.flags,
                    kind: header.kind,
                    message_bytes: header.message_bytes,
                    packets,
                };
                let (account, number) = (self.account, header.request.slot());
                let (is_again, seen_at_scan) = (slot.is_unfinished(), slot.seen_at_scan);
                let was_struck = slot.state != ServerSlotState::Receiving;
                slot.uncount_response(account, number, memory);
                drop(slot.end_assembly(account, number, memory));
                let previous = slot.begin(&new, memory);
                memory.retire(previous.response, previous.epoch);
                if !is_again {
                    slot.since = Instant::FAR_FUTURE;
                } else if slot.begin_again(seen_at_scan) && !was_struck {
                    self.strikes = self.strikes.saturating_add(1);
                }
            }
            Ordering::Equal if !slot.agrees_with(header) => {
                drops.bad_number += 1;
                return RequestEffect::VIOLATION;
            }
            Ordering::Equal => {}
        }
        match slot.state {
            ServerSlotState::Receiving if packets == 1 => {
                slot.received = 1;
                slot.deadline = deadline(rx.now, rx.packet.deadline_ns);
                self.execute(rx, memory)
            }
            ServerSlotState::Receiving => self.receive_part(rx, memory, responses, drops),
            ServerSlotState::Answered if packets == 1 && canary::planted("handler run twice") => {
                self.execute(rx, memory)
            }
            ServerSlotState::Executing | ServerSlotState::Answered => {
                self.on_duplicate(rx, responses, drops);
                RequestEffect::NOTHING
            }
            ServerSlotState::Expired => {
                drops.past += 1;
                RequestEffect::NOTHING
            }
            ServerSlotState::GivenUp => RequestEffect::VIOLATION,
            ServerSlotState::GaveWay => RequestEffect::GAVE_WAY,
        }
    }

    /// Takes a part of a request of several packets, if it is the next one.
    fn receive_part(
        &mut self,
        rx: &Received<'_>,
        memory: &mut Memory,
        responses: &mut Responses,
        drops: &mut Drops,
    ) -> RequestEffect {
        let header = &rx.packet.header;
        let number = u32::from(header.packet_number);
        let slot = &mut self.slots[usize::from(header.request.slot())];
        let (received, packets) = (slot.received, slot.request_packets);
        if number > received {
            drops.reordered += 1;
            // Numbers up to the 16-bit packet number.
            responses.answer(rx, ReplyKind::Gap(received as u16), drops);
            return RequestEffect::NOTHING;
        }
        if number < received {
            drops.past += 1;
            responses.answer(rx, ReplyKind::CreditReturnAgain(received as u16 - 1), drops);
            return RequestEffect::NOTHING;
        }
        if number == 0 {
            slot.deadline = deadline(rx.now, rx.packet.deadline_ns);
        }
        match self.store_part(rx, memory, responses) {
            Room::Here => {}
            Room::After(place) => {
                return RequestEffect {
                    then: Then::MakeRoom(place),
                    ..RequestEffect::NOTHING
                };
            }
            Room::None => {
                drops.no_memory += 1;
                return RequestEffect::NOTHING;
            }
        }
        let scan_at = self.hold(rx.now, responses.hold_timeout);
        if received + 1 == packets {
            return RequestEffect {
                scan_at,
                ..self.execute(rx, memory)
            };
        }
        self.return_credit(rx, responses, drops);
        RequestEffect {
            is_progress: true,
            scan_at,
            then: Then::Nothing,
        }
    }

    /// Copies a part of a larger request to its position, if there is memory for the whole.
    fn store_part(
        &mut self,
        rx: &Received<'_>,
        memory: &mut Memory,
        responses: &Responses,
    ) -> Room {
        let header = &rx.packet.header;
        let bytes = header.message_bytes as usize;
        let number = header.request.slot();
        let slot = &mut self.slots[usize::from(number)];
        if slot.assembly.is_none() {
            match slot.begin_assembly(rx.now, self.account, number, memory, responses) {
                Room::Here => {}
                none => return none,
            }
        }
        let Some(assembly) = &mut slot.assembly else {
            return Room::None;
        };
        let range = rx.terms.data_range(bytes, u32::from(header.packet_number));
        assembly[range].copy_from_slice(rx.packet.payload);
        slot.received += 1;
        Room::Here
    }

    /// All of the request is here: the one call of its handler.
    fn execute(&mut self, rx: &Received<'_>, memory: &mut Memory) -> RequestEffect {
        let header = &rx.packet.header;
        let slot = &mut self.slots[usize::from(header.request.slot())];
        slot.execute(rx.arrived_at, header.flags.round(), rx.ecn);
        slot.seen_at_scan = MOVED;
        let assembly = slot.end_assembly(self.account, header.request.slot(), memory);
        if assembly.is_some() {
            // The client finished the request that it began.
            self.strikes = 0;
        }
        RequestEffect {
            is_progress: true,
            scan_at: None,
            then: Then::Call(Whole {
                kind: slot.kind,
                deadline: slot.deadline,
                assembly,
            }),
        }
    }

    /// The client no longer waits for the answer to a request that is complete.
    pub(crate) fn expire(&mut self, slot: u8) {
        if let Some(slot) = self.slots.get_mut(usize::from(slot)) {
            slot.state = ServerSlotState::Expired;
        }
    }

    /// A packet of a request that is complete: something that we sent was lost, or it came twice.
    fn on_duplicate(&mut self, rx: &Received<'_>, responses: &mut Responses, drops: &mut Drops) {
        let header = &rx.packet.header;
        let slot = &mut self.slots[usize::from(header.request.slot())];
        let last = slot.request_packets - 1;
        drops.past += 1;
        if u32::from(header.packet_number) < last {
            return responses.answer(rx, ReplyKind::CreditReturnAgain(last as u16 - 1), drops);
        }
        if slot.round != header.flags.round() {
            // The server time counts from the transmission that the answer's round names.
            slot.round = header.flags.round();
            slot.arrived_at = rx.arrived_at;
        }
        let what = match slot.state {
            ServerSlotState::Executing => ReplyKind::Busy,
            _ => {
                slot.seen_at_scan = MOVED;
                ReplyKind::Response { first: 0, count: 1 }
            }
        };
        responses.answer(rx, what, drops);
    }

    /// Returns the credit of a request packet that is not the last. With cumulative returns a
    /// return that still waits to be sent is raised instead.
    fn return_credit(&mut self, rx: &Received<'_>, responses: &mut Responses, drops: &mut Drops) {
        let header = &rx.packet.header;
        let what = ReplyKind::CreditReturn(header.packet_number);
        let slot = &mut self.slots[usize::from(header.request.slot())];
        if rx.terms.features.has(Features::CUMULATIVE_CREDITS)
            && let Some(waiting) = responses.answers.at_position(slot.credit_return)
            && matches!(waiting.what, ReplyKind::CreditReturn(_))
            && waiting.session == rx.session
            && waiting.slot == header.request.slot()
            && waiting.sequence == header.request.sequence()
        {
            waiting.what = what;
            waiting.arrived_at = rx.arrived_at;
            waiting.round = header.flags.round();
            waiting.ecn |= rx.ecn;
            return;
        }
        responses.answer(rx, what, drops);
        slot.credit_return = responses.answers.last_position();
    }
}

/// The request's packets, if this one keeps to the session's terms and the limits. A peer that
/// does not loses its session.
#[inline]
fn packets_if_sane(packet: &Packet<'_>, terms: &Terms, limit: usize) -> Option<u32> {
    let header = &packet.header;
    let (bytes, number) = (
        header.message_bytes as usize,
        u32::from(header.packet_number),
    );
    let packets = terms.packets(bytes);
    let is_sane = bytes <= limit
        && header.request.slot() < terms.slots
        && header.request.sequence() > 0
        && number < packets
        && terms.data_range(bytes, number).len() == packet.payload.len();
    is_sane.then_some(packets)
}

/// The moment at which the request's deadline passes, if its packet tells how long that is.
#[inline(always)]
fn deadline(now: Instant, left_ns: Option<u64>) -> Option<Instant> {
    left_ns.map(|left| now.saturating_add(Duration::from_nanos(left)))
}
