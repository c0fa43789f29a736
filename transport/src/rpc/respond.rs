//! The server's program answers: at once, later, or too late.

use super::{Answer, Peer, ServerSlotState, What};
use crate::backend::Route;
use crate::buf::MsgBuf;
use crate::config::MESSAGE_BYTES_MAX;
use crate::endpoint::Endpoint;
use crate::exchange::{ResponseHandle, Stale};
use crate::session::{Role, State};
use crate::time::Instant;
use crate::wire::{Flags, Held, RequestNumber};

impl<R: Route> Endpoint<R> {
    /// Answers a request whose handler said `Later`.
    #[inline(always)]
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
        let found = open.and_then(|session| {
            let (peer, data_bytes) = (Peer::of(session), session.terms.data_bytes());
            let slot = session.server()?.slots.get_mut(usize::from(handle.slot))?;
            let is_awaited =
                slot.sequence == handle.sequence && slot.state == ServerSlotState::Executing;
            is_awaited.then_some((peer, data_bytes, slot))
        });
        let Some((peer, data_bytes, slot)) = found else {
            self.stats.responses_stale += 1;
            return Err(Stale { response });
        };
        slot.state = ServerSlotState::Answered;
        if self.fast_path.takes(response.len()) {
            let request = RequestNumber::new(handle.slot, handle.sequence);
            let flags = Flags::of_round(slot.round).with_if(slot.ecn, Flags::ECN_ECHO);
            let held = Held::from_duration(now.saturating_since(slot.arrived_at));
            self.fast_path
                .write_response(&peer, request, flags, held, &response);
            slot.sent_max = 1;
            slot.response = Some(response);
            return Ok(());
        }
        let is_single = response.len() <= data_bytes;
        slot.response = Some(response);
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

    /// There will be no answer to a request whose handler said `Later`: its client learns that by its
    /// session's end. False, and nothing happens, if nobody waits for the answer any more.
    pub fn give_no_response(&mut self, now: Instant, handle: ResponseHandle) -> bool {
        let open = self
            .sessions
            .get_mut(handle.session)
            .filter(|session| session.state == State::Open);
        let is_awaited = open
            .and_then(|session| session.server()?.slots.get(usize::from(handle.slot)))
            .is_some_and(|slot| {
                slot.sequence == handle.sequence && slot.state == ServerSlotState::Executing
            });
        if is_awaited {
            self.disconnect(now, handle.session);
        } else {
            self.stats.responses_stale += 1;
        }
        is_awaited
    }

    /// Gives up what a server end holds: its session is over.
    pub(crate) fn drop_server_slots(&mut self, session: u16) {
        let Role::Server(server) = &mut self.sessions[session].role else {
            return;
        };
        for slot in std::mem::take(&mut server.slots) {
            self.memory.end_assembly(slot.assembly.as_ref());
            let resent_in = if slot.sent_max > 0 {
                self.memory.epoch()
            } else {
                slot.resent_in
            };
            self.memory.retire(slot.response, resent_in);
        }
        self.let_go(session);
    }
}
