//! The server's program answers: at once, later, or too late.

use super::{Answer, ServerSlotState, What};
use crate::app::{ResponseHandle, Stale};
use crate::backend::Route;
use crate::buf::MsgBuf;
use crate::config::MESSAGE_BYTES_MAX;
use crate::endpoint::Endpoint;
use crate::session::{Role, State};
use crate::time::Instant;

impl<R: Route> Endpoint<R> {
    /// Answers a request whose handler said `Later`.
    #[inline]
    #[allow(clippy::result_large_err)] // the buffer comes back in the error
    pub fn enqueue_response(
        &mut self,
        now: Instant,
        handle: ResponseHandle,
        response: MsgBuf,
    ) -> Result<(), Stale> {
        assert!(
            response.len() <= MESSAGE_BYTES_MAX,
            "a response above the limit of messages"
        );
        let open = self
            .sessions
            .get_mut(handle.session)
            .filter(|session| session.state == State::Open);
        let data_bytes = open
            .as_ref()
            .map_or(0, |session| session.terms.data_bytes());
        let slot = open
            .and_then(|session| session.server())
            .and_then(|server| server.slots.get_mut(usize::from(handle.slot)))
            .filter(|slot| {
                slot.sequence == handle.sequence && slot.state == ServerSlotState::Executing
            });
        let Some(slot) = slot else {
            self.stats.responses_stale += 1;
            return Err(Stale { response });
        };
        let is_single = response.len() <= data_bytes;
        slot.response = Some(response);
        slot.state = ServerSlotState::Answered;
        let answer = Answer {
            session: handle.session.index,
            generation: handle.session.generation,
            slot: handle.slot,
            round: slot.round,
            ecn: slot.ecn,
            sequence: handle.sequence,
            what: What::Response { first: 0, count: 1 },
        };
        if !self.answers.push(answer) {
            // The client will ask again.
            self.stats.drops.answers_full += 1;
        }
        if !is_single {
            self.hold(now, handle.session.index);
        }
        Ok(())
    }

    /// Gives up what a server end holds: its session is over.
    pub(crate) fn drop_server_slots(&mut self, session: u16) {
        let Role::Server(server) = &mut self.sessions[session].role else {
            return;
        };
        for slot in std::mem::take(&mut server.slots) {
            self.assembly_bytes -= slot.assembly.map_or(0, |buffer| buffer.len());
            let resent_in = if slot.sent_max > 0 {
                self.epoch
            } else {
                slot.resent_in
            };
            self.retire(slot.response, resent_in);
        }
    }
}
