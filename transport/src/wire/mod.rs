//! The only directory that knows byte offsets: PROTOCOL.md section 2 and 3 in code.

mod checksum;
mod control;
mod crc;
mod header;
mod held;
mod single;

pub use checksum::Seed;
pub use control::{Accept, Body, Connect, Cookie, Features, Probe, Refuse, RefuseReason};
pub use header::{
    CONTROL_BYTES_MAX, EXTENSION_BYTES, Flags, HEADER_BYTES, Header, NO_SESSION, PACKET_OVERHEAD,
    Packet, PacketType, RequestNumber, TRAILER_BYTES, VERSION, WireError, Written,
    deadline_extension, split_first,
};
pub use held::Held;
pub(crate) use single::{SinglePacket, peek};

#[cfg(test)]
mod tests;
