//! Where a UD packet goes to or came from.

use super::device::Port;
use crate::backend::announce::Announce;

/// Bytes in front of every datagram that a UD queue pair receives (the global route header).
pub(super) const GRH_BYTES: usize = 40;
/// On RoCE v2 over IPv4 the second half of those bytes is the packet's IPv4 header.
const IPV4_AT: usize = 20;

/// The other queue pair: what `host:port` stands for on this backend. Exchanged by
/// [`announce`](crate::backend::announce).
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub struct VerbsRoute {
    /// RoCE, or InfiniBand without a subnet manager's LID; zero where the LID is the address.
    pub gid: [u8; 16],
    /// InfiniBand; zero where the GID is the address.
    pub lid: u16,
    /// Queue pair number, 24 bits.
    pub queue_pair: u32,
    /// Key that the receiver insists on.
    pub qkey: u32,
}

impl VerbsRoute {
    /// Bytes of an encoded route.
    pub const BYTES: usize = 26;

    pub(super) fn of_port(port: &Port, queue_pair: u32, qkey: u32) -> Self {
        let (gid, lid) = if port.is_ethernet || port.lid == 0 {
            (port.gid, 0)
        } else {
            ([0; 16], port.lid)
        };
        Self {
            gid,
            lid,
            queue_pair,
            qkey,
        }
    }

    /// The sender of a datagram. `header` is what stands in front of it, `None` where the
    /// completion says that there is no global route header.
    pub(super) fn of_sender(
        header: Option<&[u8; GRH_BYTES]>,
        lid: u16,
        queue_pair: u32,
        qkey: u32,
    ) -> Self {
        let (gid, lid) = match header {
            // On InfiniBand a sender that is known by its LID may add a route header all the same.
            Some(header) => (sender_gid(header), 0),
            None => ([0; 16], lid),
        };
        Self {
            gid,
            lid,
            queue_pair,
            qkey,
        }
    }

    /// As announced: GID, then LID, queue pair number and key, little-endian.
    #[must_use]
    pub fn to_bytes(self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        bytes[..16].copy_from_slice(&self.gid);
        bytes[16..18].copy_from_slice(&self.lid.to_le_bytes());
        bytes[18..22].copy_from_slice(&self.queue_pair.to_le_bytes());
        bytes[22..].copy_from_slice(&self.qkey.to_le_bytes());
        bytes
    }

    /// `None` unless the length is right and the queue pair number has 24 bits.
    #[must_use]
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; Self::BYTES] = bytes.try_into().ok()?;
        let (gid, rest) = bytes.split_first_chunk::<16>()?;
        let (lid, rest) = rest.split_first_chunk::<2>()?;
        let (queue_pair, qkey) = rest.split_first_chunk::<4>()?;
        let route = Self {
            gid: *gid,
            lid: u16::from_le_bytes(*lid),
            queue_pair: u32::from_le_bytes(*queue_pair),
            qkey: u32::from_le_bytes(qkey.try_into().ok()?),
        };
        (route.queue_pair >> 24 == 0).then_some(route)
    }
}

impl Announce for VerbsRoute {
    const FAMILY: u8 = 2;

    fn encode(&self) -> Vec<u8> {
        self.to_bytes().to_vec()
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        Self::from_bytes(bytes)
    }
}

/// The GID in a route header; for RoCE v2 over IPv4 the one that stands for the source address.
fn sender_gid(header: &[u8; GRH_BYTES]) -> [u8; 16] {
    let mut gid = [0; 16];
    let is_ipv4 = header[IPV4_AT] >> 4 == 4 && header[0] >> 4 != 6;
    if is_ipv4 {
        gid[10..12].copy_from_slice(&[0xff; 2]);
        gid[12..].copy_from_slice(&header[IPV4_AT + 12..IPV4_AT + 16]);
    } else {
        gid.copy_from_slice(&header[8..24]);
    }
    gid
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROUTE: VerbsRoute = VerbsRoute {
        gid: [7; 16],
        lid: 0x1234,
        queue_pair: 0x00ab_cdef,
        qkey: 0x1111_2222,
    };

    #[test]
    fn a_route_survives_its_encoding() {
        assert_eq!(VerbsRoute::from_bytes(&ROUTE.to_bytes()), Some(ROUTE));
    }

    #[test]
    fn a_queue_pair_number_of_more_than_24_bits_is_refused() {
        let mut bytes = ROUTE.to_bytes();
        bytes[21] = 1;
        assert_eq!(VerbsRoute::from_bytes(&bytes), None);
        assert_eq!(VerbsRoute::from_bytes(&bytes[..25]), None);
    }

    #[test]
    fn the_sender_over_ipv4_is_the_mapped_address() {
        let mut header = [0; GRH_BYTES];
        header[IPV4_AT] = 0x45;
        header[IPV4_AT + 12..IPV4_AT + 16].copy_from_slice(&[10, 9, 0, 3]);
        let route = VerbsRoute::of_sender(Some(&header), 0, 17, 1);
        assert_eq!(
            route.gid,
            [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 9, 0, 3]
        );
    }

    #[test]
    fn the_sender_over_ipv6_is_the_source_gid() {
        let mut header = [0; GRH_BYTES];
        header[0] = 0x60;
        header[8..24].copy_from_slice(&[0x42; 16]);
        assert_eq!(
            VerbsRoute::of_sender(Some(&header), 0, 17, 1).gid,
            [0x42; 16]
        );
    }
}
