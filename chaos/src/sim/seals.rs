//! Checks that each sealed packet is opened once. Each machine's endpoint counts the runs that it has opened. This counts the different
//! ones that have come to it, by their tags: an endpoint that has opened more has opened one twice.

use super::Host;
use rustc_hash::FxHashSet;
use trine_transport::endpoint::Endpoint;
use trine_transport::wire::{Flags, HEADER_BYTES, PacketType};

/// Bytes of a tag, which ends a run.
const TAG_BYTES: usize = 16;
/// Packets of a handshake, RESET and NOTICE: they are not sealed.
const UNSEALED: [PacketType; 6] = [
    PacketType::Notice,
    PacketType::Reset,
    PacketType::Connect,
    PacketType::Cookie,
    PacketType::Accept,
    PacketType::Refuse,
];

/// The runs that came to one machine since it started.
#[derive(Default)]
pub(crate) struct Seals {
    tags: FxHashSet<[u8; TAG_BYTES]>,
}

impl Seals {
    /// A datagram has come. Damaged bytes may count as a run of their own: then more may be opened than are good, never
    /// fewer.
    pub(crate) fn note(&mut self, datagram: &[u8]) {
        let mut at = 0;
        while let Some(header) = datagram.get(at..).and_then(|rest| rest.get(..HEADER_BYTES)) {
            let length = usize::from(u16::from_le_bytes([header[4], header[5]]));
            let Some(packet) = datagram.get(at..at + length).filter(|_| length > 0) else {
                return;
            };
            at += length;
            let flags = Flags::of_bits(header[1]);
            if !is_unsealed(header) && flags.has(Flags::TRAILER) {
                self.tags.extend(packet.last_chunk());
            }
        }
    }

    /// What is wrong with the number of runs that the endpoint has opened.
    pub(crate) fn finding(&self, host: Host, endpoint: &Endpoint<Host>) -> Option<String> {
        let (opened, came) = (endpoint.stats().sealed_opened, self.tags.len() as u64);
        (opened > came).then(|| {
            format!(
                "a sealed packet is opened twice: {host} has opened {opened} runs, and only {came} different ones came"
            )
        })
    }
}

fn is_unsealed(header: &[u8]) -> bool {
    UNSEALED
        .iter()
        .any(|unsealed| *unsealed as u8 == header[0] & 0x0f)
}
