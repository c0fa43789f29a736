//! The server's program answers: at once, later, or too late.

use super::answers::{ReplyKind, ReplyPacket};
use super::slot::{ServerSlot, ServerSlotState};
use super::{Responses, ServerEnd};
use crate::backend::Route;
use crate::buf::MsgBuf;
use crate::exchange::{ResponseHandle, Stale};
use crate::rpc::{FastPath, Memory};
use crate::session::peer::SessionPeer;
use crate::stats::EndpointStats;
use crate::time::Instant;
use crate::wire::{Flags, Header, PacketType, RequestNumber, ServerTime};

/// What became of a response.
pub(crate) enum Responded {
    /// It has one packet.
    Single,
    /// It is held until its client is done with it.
    Held {
        /// When the memory that the session holds must be scanned, if that must be noted.
        scan_at: Option<Instant>,
    },
}

impl ServerEnd {
    /// The slot of a request whose answer is awaited.
    #[inline(always)]
    fn awaiting(&mut self, handle: ResponseHandle) -> Option<&mut ServerSlot> {
        let slot = self.slots.get_mut(usize::from(handle.slot))?;
        let is_awaited =
            slot.sequence == handle.sequence && slot.state == ServerSlotState::Executing;
        is_awaited.then_some(slot)
    }

    /// Whether the client still waits for the answer to a request.
    pub(crate) fn is_awaited(&mut self, handle: ResponseHandle) -> bool {
        self.awaiting(handle).is_some()
    }

    /// Takes the response to a request whose handler has run.
    #[inline(always)]
    #[allow(clippy::too_many_arguments, clippy::result_large_err)] // the buffer comes back in the error
    pub(crate) fn respond<R: Route>(
        &mut self,
        now: Instant,
        to: &SessionPeer<R>,
        handle: ResponseHandle,
        response: MsgBuf,
        responses: &mut Responses,
        fast_path: &mut FastPath<R>,
        memory: &mut Memory,
        stats: &mut EndpointStats,
    ) -> Result<Responded, Stale> {
        let account = self.account;
        let Some(slot) = self.awaiting(handle) else {
            return Err(Stale { response });
        };
        slot.state = ServerSlotState::Answered;
        if fast_path.takes(response.len()) {
            let header = Header {
                flags: Flags::of_round(slot.round).with_if(slot.ecn, Flags::ECN_ECHO),
                request: RequestNumber::new(handle.slot, handle.sequence),
                server_time: ServerTime::from_duration(now.saturating_since(slot.arrived_at)),
                message_bytes: response.len() as u32,
                ..Header::new(PacketType::Response, to.remote)
            };
            fast_path.write(to, &header, None, &response);
            slot.sent_max = 1;
            slot.response = Some(response);
            return Ok(Responded::Single);
        }
        let is_single = response.len() <= to.terms.data_bytes();
        slot.response = Some(response);
        if !is_single {
            slot.count_response(now, account, handle.slot, memory);
        }
        let answer = ReplyPacket {
            session: handle.session,
            slot: handle.slot,
            round: slot.round,
            ecn: slot.ecn,
            sequence: handle.sequence,
            arrived_at: slot.arrived_at,
            what: ReplyKind::Response { first: 0, count: 1 },
        };
        responses.push(answer, &mut stats.drops);
        if is_single {
            return Ok(Responded::Single);
        }
        Ok(Responded::Held {
            scan_at: self.hold(now, responses.hold_timeout),
        })
    }

    /// The session is over: gives up the memory of its slots.
    pub(crate) fn give_up(&mut self, memory: &mut Memory) {
        let account = self.account;
        for (number, mut slot) in (0..).zip(std::mem::take(&mut self.slots)) {
            slot.uncount_response(account, number, memory);
            drop(slot.end_assembly(account, number, memory));
            let epoch = if slot.sent_max > 0 {
                memory.epoch()
            } else {
                slot.retransmitted_in
            };
            memory.retire(slot.response, epoch);
        }
        self.scan_at = Instant::FAR_FUTURE;
    }
}
