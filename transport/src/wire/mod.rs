//! The only directory that knows byte offsets: PROTOCOL.md section 2 and 3 in code.

mod checksum;
mod control;
mod crc;
mod header;
mod layout;
mod notice;
mod sealed;
mod server_time;
mod single;

pub use checksum::Seed;
pub use control::{Accept, BadTerm, Body, Connect, Cookie, Features, Probe, Refuse, RefuseReason};
pub(crate) use control::{intended_bytes, intended_of};
pub use header::{
    Flags, Header, NO_SESSION, Outline, Packet, PacketType, RequestNumber, VERSION, WireError,
    Written, deadline_extension, outline, outlines, split_first,
};
pub use layout::{
    CONTROL_BYTES_MAX, EXTENSION_BYTES, HEADER_BYTES, PACKET_OVERHEAD, TRAILER_BYTES,
};
pub use notice::notice;
pub(crate) use sealed::{
    OpenedPackets, RunSealer, SealedRun, names_session, seal_control, seal_mark,
};
pub use server_time::ServerTime;
pub(crate) use single::{SinglePacket, peek};

/// Continues a CRC32C, which begins with 0, over further bytes.
#[must_use]
pub fn crc32c(sum: u32, bytes: &[u8]) -> u32 {
    crc::append(sum, bytes)
}

#[cfg(test)]
mod tests;
