//! REQUEST FOR RESPONSE: the client asks for response packets. The server keeps no state about
//! which it has sent: it sends the packet that is asked for.

use std::cmp::Ordering;

use super::answers::What;
use super::slot::{MOVED, ServerSlotState};
use super::{Outcome, Responses, ServerEnd};
use crate::session::Received;
use crate::stats::Drops;

impl ServerEnd {
    pub(crate) fn on_request_for_response(
        &mut self,
        rx: &Received<'_>,
        responses: &mut Responses,
        drops: &mut Drops,
    ) -> Outcome {
        let header = &rx.packet.header;
        let Some(slot) = self.slots.get_mut(usize::from(header.request.slot())) else {
            drops.wrong_state += 1;
            return Outcome::NOTHING;
        };
        let received = match header.request.sequence().cmp(&slot.sequence) {
            Ordering::Less => {
                drops.past += 1;
                return Outcome::NOTHING;
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
                    return Outcome::VIOLATION;
                }
                // At most the credits, which have 16 bits.
                let count = count as u16;
                responses.answer(rx, What::Response { first, count }, drops);
            }
            ServerSlotState::Executing if is_present => responses.answer(rx, What::Busy, drops),
            ServerSlotState::Expired if is_present => drops.past += 1,
            ServerSlotState::GivenUp if is_present => return Outcome::VIOLATION,
            ServerSlotState::GaveWay if is_present => return Outcome::GAVE_WAY,
            // A probe of a request that is not here.
            _ => responses.answer(rx, What::Gap(received as u16), drops),
        }
        Outcome::NOTHING
    }
}
