//! A packet without a session (PROTOCOL.md section 2.1).

use super::checksum::Seed;
use super::header::{Header, NO_SESSION, PacketType};

/// The bytes of a datagram with one notice, for a sender without an endpoint.
#[must_use]
pub fn notice(kind: u8, body: &[u8]) -> Vec<u8> {
    let header = Header {
        kind,
        ..Header::new(PacketType::Notice, NO_SESSION)
    };
    [&header.write(Seed::NONE, None, body)[..], body].concat()
}
