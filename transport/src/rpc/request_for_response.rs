//! REQUEST FOR RESPONSE: the client asks for response packets. The server keeps no state about
//! which it has sent: it answers what is asked for.

use std::cmp::Ordering;

use super::server_end::MOVED;
use super::{Received, ServerSlotState, What};
use crate::backend::Route;
use crate::endpoint::Endpoint;
use crate::session::State;

impl<R: Route> Endpoint<R> {
    pub(crate) fn on_request_for_response(&mut self, rx: &Received<'_>) {
        let header = &rx.packet.header;
        let session = &self.sessions[rx.session];
        let (terms, is_open) = (session.terms, session.state == State::Open);
        let Some(slot) = self
            .sessions
            .server_slot(rx.session, header.request.slot())
            .filter(|_| is_open)
        else {
            self.stats.drops.wrong_state += 1;
            return;
        };
        let received = match header.request.sequence().cmp(&slot.sequence) {
            Ordering::Less => {
                self.stats.drops.past += 1;
                return;
            }
            Ordering::Equal => slot.received,
            Ordering::Greater => 0,
        };
        let is_present = header.request.sequence() == slot.sequence;
        match slot.state {
            ServerSlotState::Answered if is_present => {
                slot.seen_at_look = MOVED;
                let packets = slot
                    .response
                    .as_ref()
                    .map_or(0, |response| terms.packets(response.len()));
                let (first, count) = (header.packet_number, header.message_bytes);
                let is_inside = count >= 1 && u32::from(first).saturating_add(count) <= packets;
                if !is_inside || count > u32::from(terms.credits) {
                    self.stats.drops.bad_number += 1;
                    return self.violation(rx.session);
                }
                // At most the credits, which have 16 bits.
                self.answer(
                    rx,
                    What::Response {
                        first,
                        count: count as u16,
                    },
                );
            }
            ServerSlotState::Executing if is_present => self.answer(rx, What::Busy),
            ServerSlotState::Expired if is_present => self.stats.drops.past += 1,
            ServerSlotState::GivenUp if is_present => self.violation(rx.session),
            // A probe of a request that is not here.
            _ => self.answer(rx, What::Gap(received as u16)),
        }
    }
}
