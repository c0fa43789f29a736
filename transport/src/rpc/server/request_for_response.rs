//! REQUEST FOR RESPONSE: the client asks for response packets. The server keeps no state about
//! which it has sent: it sends the packet that is asked for.

use std::cmp::Ordering;

use super::answers::ReplyKind;
use super::slot::{MOVED, ServerSlotState};
use super::{RequestEffect, Responses, ServerEnd};
use crate::session::peer::Received;
use crate::stats::Drops;

impl ServerEnd {
    pub(crate) fn on_request_for_response(
        &mut self,
        rx: &Received<'_>,
        responses: &mut Responses,
        drops: &mut Drops,
    ) -> RequestEffect {
        let header = &rx.packet.header;
        let Some(slot) = self.slots.get_mut(usize::from(header.request.slot())) else {
            drops.wrong_state += 1;
            return RequestEffect::NOTHING;
        };
        let received = match header.request.sequence().cmp(&slot.sequence) {
            Ordering::Less => {
                drops.past += 1;
                return RequestEffect::NOTHING;
            }
            Ordering::Equal => slot.received,
            Ordering::Greater => 0,
        };
        let is_present = header.request.sequence() == slot.sequence;
        match slot.state {
            ServerSlotState::Answered if is_present => {
                slot.seen_at_scan = MOVED;
                let response = slot.response.as_ref();
                let packets = response.map_or(0, |response| rx.terms.packets(response.len()));
                let (first, count) = (header.packet_number, header.message_bytes);
                let is_inside = count >= 1 && u32::from(first).saturating_add(count) <= packets;
                if !is_inside || count > u32::from(rx.terms.credits) {
                    drops.bad_number += 1;
                    return RequestEffect::VIOLATION;
                }
                // At most the credits, which have 16 bits.
                let count = count as u16;
                responses.answer(rx, ReplyKind::Response { first, count }, drops);
            }
            ServerSlotState::Executing if is_present => {
                responses.answer(rx, ReplyKind::Busy, drops)
            }
            ServerSlotState::Expired if is_present => drops.past += 1,
            ServerSlotState::GivenUp if is_present => return RequestEffect::VIOLATION,
            ServerSlotState::GaveWay if is_present => return RequestEffect::GAVE_WAY,
            // A probe of a request that is not here.
            _ => responses.answer(rx, ReplyKind::Gap(received as u16), drops),
        }
        RequestEffect::NOTHING
    }
}
