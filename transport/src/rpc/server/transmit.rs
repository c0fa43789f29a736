//! Packets that a server end sends: the answers that wait, resolved against their slots.

use super::ServerEnd;
use super::answers::{ReplyKind, ReplyPacket};
use super::slot::ServerSlotState;
use crate::backend::{Route, TxBatch};
use crate::rpc::packet::push_data;
use crate::session::peer::SessionPeer;
use crate::stats::EndpointStats;
use crate::time::Clock;
use crate::wire::{Features, Flags, Header, PacketType, RequestNumber, ServerTime};
use trine_canary as canary;

impl ServerEnd {
    /// Sends an answer. Returns the part of it that did not fit the batch.
    pub(crate) fn transmit<R: Route>(
        &mut self,
        clock: &impl Clock,
        to: &SessionPeer<R>,
        answer: &ReplyPacket,
        epoch: u64,
        stats: &mut EndpointStats,
        tx: &mut TxBatch<R>,
    ) -> Option<ReplyKind> {
        let flags = Flags::of_round(answer.round).with_if(answer.ecn, Flags::ECN_ECHO);
        let header = |packet_type, number, flags| Header {
            packet_number: number,
            flags,
            request: RequestNumber::new(answer.slot, answer.sequence),
            ..Header::new(packet_type, to.remote)
        };
        let header = match answer.what {
            ReplyKind::CreditReturn(number) => Header {
                server_time: held(clock, to, answer),
                ..header(PacketType::CreditReturn, number, flags)
            },
            // The packet that it names was answered before, and its answer may have been under way when the client sent it
            // again: from this one it could take a round trip that is too short.
            ReplyKind::CreditReturnAgain(number) => Header {
                server_time: match to.terms.features.has(Features::ANSWER_TIMES) {
                    true => ServerTime::UNKNOWN,
                    false => ServerTime::ZERO,
                },
                ..header(PacketType::CreditReturn, number, flags)
            },
            ReplyKind::Gap(number) => {
                header(PacketType::CreditReturn, number, flags.with(Flags::GAP))
            }
            ReplyKind::Busy => {
                stats.busy_sent += 1;
                header(PacketType::Busy, 0, flags)
            }
            ReplyKind::Response { first, count } => {
                let header = header(PacketType::Response, first, flags);
                return self.transmit_response(clock, to, answer, header, count, epoch, stats, tx);
            }
        };
        let len = header.write_packet(to.seed, None, &[], tx.next_room());
        tx.push_written(to.route, len, to.terms.mtu);
        None
    }

    /// Sends `count` response packets beginning with the header's. Returns those that are left.
    #[allow(clippy::too_many_arguments)]
    fn transmit_response<R: Route>(
        &mut self,
        clock: &impl Clock,
        to: &SessionPeer<R>,
        answer: &ReplyPacket,
        mut header: Header,
        count: u16,
        epoch: u64,
        stats: &mut EndpointStats,
        tx: &mut TxBatch<R>,
    ) -> Option<ReplyKind> {
        let slot = self.slots.get_mut(usize::from(answer.slot))?;
        if slot.sequence != answer.sequence || slot.state != ServerSlotState::Answered {
            return None;
        }
        let response = slot.response.as_ref()?;
        header.message_bytes = response.len() as u32;
        let end = header.packet_number.saturating_add(count);
        while header.packet_number < end {
            if tx.is_full() {
                let (first, count) = (header.packet_number, end - header.packet_number);
                return Some(ReplyKind::Response { first, count });
            }
            let number = u32::from(header.packet_number);
            let range = to.terms.data_range(response.len(), number);
            header.server_time = match number {
                0 => ServerTime::from_duration(clock.now().saturating_since(slot.arrived_at)),
                _ => held(clock, to, answer),
            };
            if number < slot.sent_max {
                slot.retransmitted_in = epoch;
                stats.retransmissions += 1;
            }
            slot.sent_max = slot.sent_max.max(number + 1);
            push_data(tx, to, &header, None, response, range);
            header.packet_number += 1;
        }
        None
    }
}

/// How long the packet that is answered has been here, if the client has use for it. The time before an answer leaves is
/// this host's, and no queue of the network.
fn held<R: Route>(clock: &impl Clock, to: &SessionPeer<R>, answer: &ReplyPacket) -> ServerTime {
    if !to.terms.features.has(Features::ANSWER_TIMES) || canary::planted("answers without times") {
        return ServerTime::ZERO;
    }
    ServerTime::from_duration(clock.now().saturating_since(answer.arrived_at))
}
